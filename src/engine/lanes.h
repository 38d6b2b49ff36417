/* lanes.h: which sequence holds a slot's cells.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_LANES_H
#define WEIR_ENGINE_LANES_H

#include "cache/cache.h"
#include "engine/slot.h"

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

#endif
