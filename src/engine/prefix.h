/* prefix.h: which prefixes an engine keeps, how many tokens of a prompt they have, and why no
 * more.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PREFIX_H
#define WEIR_ENGINE_PREFIX_H

#include "cache/cache.h"
#include "engine/cells.h"
#include "engine/history.h"
#include "engine/shared.h"
#include "engine/slot.h"

/* True if a cached sequence cannot be cut everywhere: it is one state, or a window has lost cells. */
bool weir__prefix_is_exact(const weir_model *model);

/* True if a sequence is one state of all its tokens, which cannot be cut at all. */
bool weir__prefix_is_whole(const weir_model *model);

/* Constant after open; the cache has its own lock. */
typedef struct weir__prefix {
    const weir_model *model;
    const weir_engine_params *params;
    const weir_context_info *info;
    weir__cache *cache; /* the driver destroys it; lanes and cells point to it, too */
    bool caching;       /* prefixes are kept */
    bool exact;         /* weir__prefix_is_exact of the model */
    bool parts;         /* but with a part of a state, a longer sequence serves, too */
    bool checkpoints;   /* states are saved within texts, too */
    int32_t least;      /* the shortest prefix worth keeping, in tokens */
} weir__prefix;

/* Set before: the members up to `cache`, and the memory. Creates the cache, which wakes the engine. */
weir_status weir__prefix_open(weir__prefix *prefix, weir__memory *memory, weir__waker *waker,
                              weir_error *error);

/* True if the request may use the cache and leave its text there. */
bool weir__prefix_serves(const weir__prefix *prefix, const weir__request *request);

/* Shortens the hit, so that it does not end within an image. */
void weir__prefix_cut(const weir__prefix *prefix, const weir__history *history, weir__cache_hit *hit);

/* The number of tokens between checkpoints of a prompt, apart from those at the ends of its messages;
 * INT32_MAX: there are no others. */
int32_t weir__prefix_spacing(const weir__prefix *prefix, int32_t n_prompt);

/* The last checkpoint that the leader will save within n tokens. */
int32_t weir__prefix_last_checkpoint(const weir__prefix *prefix, const weir__slot *leader, int32_t n);

/* The number of tokens, at most n, that the slot may compute at once. */
int32_t weir__prefix_chunk(const weir__prefix *prefix, const weir__slot *slot, int32_t n);

/* The slot has computed its tokens up to n_past. */
void weir__prefix_advance(const weir__prefix *prefix, weir__slot *slot);

/* The slot has ended: its tokens are no longer found. The cache may take over its lane. */
void weir__prefix_keep(const weir__prefix *prefix, weir__lanes *lanes, weir__slot *slot);

/* The limits of snapshots for other engines, whose files have other times. Any thread. */
weir__snapshot_limits weir__prefix_limits(const weir__prefix *prefix);

/* Tokens of a prompt that would come from the cache. Any thread. */
int32_t weir__prefix_known(const weir__prefix *prefix, weir__shared *shared, const weir__request *request);

/* ---- Misses ---- */

/* Writes the result of a prompt's look-up into *info. If the prompt diverged, looks at the tokens around the
 * divergence. Allocates nothing. */
void weir__miss_note(const weir_model *model, const weir__history *history, const weir__cache_hit *hit,
                     weir_miss_info *info);

/* Removes what a request without a salt may not know, since others sent the cached texts: their words and
 * lines, and how much more of a text was known than the n_cached tokens that it did not compute. */
void weir__miss_withhold(weir_miss_info *info, int32_t n_cached);

#endif
