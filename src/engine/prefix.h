/* prefix.h: the tokens that a request need not compute.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PREFIX_H
#define WEIR_ENGINE_PREFIX_H

#include "cache/cache.h"
#include "engine/lanes.h"
#include "engine/shared.h"
#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Whether a model's memory can be cut only at the end of a sequence. */
bool weir__prefix_is_exact(const weir_model *model);

/* Which prefixes are kept. Constant after open; the cache has its own lock. */
typedef struct weir__prefix {
    const weir_model *model;
    weir__cache *cache;
    bool caching;     /* prefixes are kept */
    bool exact;       /* the model's memory cannot be cut */
    bool checkpoints; /* states are saved where it cannot */
    int32_t least;    /* the shortest prefix worth keeping, in tokens */
} weir__prefix;

/* Creates memory, cache and prefix of a context. */
weir_status weir__prefix_open(weir__driver *driver, weir_error *error);

/* After weir__slot_start: gives the slot a lane with those of the request's tokens that are available, or
 * makes it JOINED, without a lane. */
void weir__prefix_start(weir__driver *driver, weir__slot *slot);

/* Starts the JOINED slots whose leader has computed their tokens or is gone, or whose file has been read or
 * does not come in time. */
void weir__prefix_rejoin(weir__driver *driver);

/* The number of tokens, at most n, that the slot may compute at once. */
int32_t weir__prefix_chunk(const weir__prefix *prefix, const weir__slot *slot, int32_t n);

/* The slot has computed its tokens up to n_past. */
void weir__prefix_advance(const weir__prefix *prefix, weir__slot *slot);

/* The slot has ended: its tokens are no longer found. The cache may take over its lane. */
void weir__prefix_keep(const weir__prefix *prefix, weir__lanes *lanes, weir__slot *slot);

/* Does one of the errands that callers wait for: gives or takes the state of a cached prefix. */
void weir__prefix_carry(weir__driver *driver);

/* Of snapshots for other engines, whose files have other times. Any thread. */
weir__snapshot_limits weir__prefix_limits(const weir__driver *driver);

/* Tokens of a prompt that would come from the cache. Any thread. */
int32_t weir__prefix_known(const weir__prefix *prefix, weir__shared *shared, const weir__request *request);

#endif
