/* prefix.h: what a request need not compute.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PREFIX_H
#define WEIR_ENGINE_PREFIX_H

#include "cache/cache.h"
#include "engine/lanes.h"
#include "engine/shared.h"
#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Whether a model's memory can be cut at the end of a sequence only, and not at any token. */
bool weir__prefix_is_exact(const weir_model *model);

/* Which prefixes are kept. Constant after open; the cache has its own lock. */
typedef struct weir__prefix {
    const weir_model *model;
    weir__cache *cache;
    bool caching;     /* prefixes are kept */
    bool exact;       /* the model's memory cannot be cut */
    bool checkpoints; /* there is room for states that are saved where it cannot */
    int32_t least;    /* tokens of a prefix that is worth keeping */
} weir__prefix;

/* Makes memory, cache and prefix of a context. */
weir_status weir__prefix_open(weir__driver *driver, weir_error *error);

/* After weir__slot_start: a lane with what is there of the request's tokens; or the slot is JOINED and has
 * none. */
void weir__prefix_start(weir__driver *driver, weir__slot *slot);

/* Starts the JOINED slots that have nothing to wait for any longer. */
void weir__prefix_rejoin(weir__driver *driver);

/* How many of n tokens the slot may compute at once. */
int32_t weir__prefix_chunk(const weir__prefix *prefix, const weir__slot *slot, int32_t n);

/* The slot has computed up to n_past. */
void weir__prefix_advance(const weir__prefix *prefix, weir__slot *slot);

/* Nobody finds the slot's tokens any longer. */
void weir__prefix_leave(const weir__prefix *prefix, weir__slot *slot);

/* The same of a slot that has ended; the cache may take over its lane. */
void weir__prefix_keep(const weir__prefix *prefix, weir__lanes *lanes, weir__slot *slot);

/* Tokens of a prompt that would not be computed. Any thread. */
int32_t weir__prefix_known(const weir__prefix *prefix, weir__shared *shared, const weir__request *request);

#endif
