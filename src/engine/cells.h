/* cells.h: the KV cells of slots: which sequence holds a slot's cells, whether another request fits, and the
 * saved cells of suspended requests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_CELLS_H
#define WEIR_ENGINE_CELLS_H

#include "cache/cache.h"
#include "engine/slot.h"

/* ---- Lanes ---- */

/* The driver's. Invariant: slot[lane]->lane == lane where slot[lane] is not NULL; no lane has both a slot and
 * a cached prefix. */
typedef struct weir__lanes {
    weir__slot **slot; /* [n] the slot whose cells the lane holds; NULL = free, or a cached prefix is in it */
    int32_t n;
    bool pooled; /* gaps between lanes cost nothing */
    weir__memory *memory;
    weir__cache *cache;
} weir__lanes;

/* One lane for each sequence of the memory. False: out of memory. Free with fini in any case. */
bool weir__lanes_init(weir__lanes *lanes, weir__memory *memory, weir__cache *cache);
void weir__lanes_fini(weir__lanes *lanes);

/* The first lane that holds nothing, -1 = none. */
int32_t weir__lanes_free(const weir__lanes *lanes);

/* Gives the slot a lane that has no slot. */
void weir__lanes_enter(weir__lanes *lanes, weir__slot *slot, int32_t lane);

/* Frees the slot's cells and gives its lane back, if it has one. */
void weir__lanes_leave(weir__lanes *lanes, weir__slot *slot);

/* The cache has taken over the lane with the slot's cells. */
void weir__lanes_hand_over(weir__lanes *lanes, weir__slot *slot);

/* Closes a gap between lanes, at most one per tick. */
void weir__lanes_compact(weir__lanes *lanes);

/* ---- Room ---- */

/* The driver's. It changes nothing but n and, when it evicts, the cache. */
typedef struct weir__cells {
    weir__memory *memory;
    weir__cache *cache;
    weir__slots slots;
    int64_t n;     /* cells that slots may fill; of a pool fewer after the backend ran out; lanes: no limit */
    bool *counted; /* [n_seqs] scratch */
} weir__cells;

/* False: out of memory. Freed with fini in any case. */
bool weir__cells_init(weir__cells *cells, weir__memory *memory, weir__cache *cache, weir__slots slots);
void weir__cells_fini(weir__cells *cells);

/* Cells that the request needs to be worth a slot. */
int64_t weir__cells_wanted(const weir__request *request);

/* Cells in use, plus those that the slots want. */
int64_t weir__cells_reserved(const weir__cells *cells);

/* Cells of the slots' sequences. The others in use belong to cached prefixes. */
int32_t weir__cells_held(const weir__cells *cells);

/* Cells that are left once the slots' tokens are computed; below 0: they do not fit. A pass adds at most one
 * token to each slot, so passes do not run out of cells as long as the tokens fit. Drafts take the rest. */
int64_t weir__cells_left(const weir__cells *cells);

/* True if the request fits beside the running ones; with `preempts`: beside those that it does not preempt.
 * It always fits alone, because the engine's limits hold for it. */
bool weir__cells_fits(const weir__cells *cells, const weir__request *request, bool preempts, int64_t now);

/* Evicts the least recently used cached prefix. False: none is left. */
bool weir__cells_evict(weir__cells *cells);

/* The backend has fewer cells than the count says: fills fewer until a request ends. False: only one slot is
 * in use, and the cells are too few for it. */
bool weir__cells_shrink(weir__cells *cells);
void weir__cells_reset(weir__cells *cells);

/* ---- Cells of suspended requests ---- */

/* Saves the slot's cells in its request if memory and budget allow it. Otherwise they are computed again. */
void weir__cells_save(weir__memory *memory, weir__cache *cache, const weir__slot *slot);

/* Restores the saved cells, if there are any, after weir__lanes_enter. Otherwise the tokens are computed
 * again. */
void weir__cells_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot);

/* Frees the saved cells. */
void weir__cells_forget(weir__cache *cache, weir__request *request);

#endif
