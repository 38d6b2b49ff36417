/* room.h: the KV cells that slots may fill, and whether another request fits among them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ROOM_H
#define WEIR_ENGINE_ROOM_H

#include "cache/cache.h"
#include "engine/slot.h"

/* The driver's. It changes nothing but n, and the cache where it evicts. */
typedef struct weir__room {
    weir__memory *memory;
    weir__cache *cache;
    const weir__slot *slots; /* [n_slots] */
    int32_t n_slots;
    int64_t n; /* cells that slots may fill: a pool's, fewer after the backend found none; lanes: no limit */
    bool *counted; /* [n_seqs] scratch */
} weir__room;

/* False: out of memory. Freed with fini in any case. */
bool weir__room_init(weir__room *room, weir__memory *memory, weir__cache *cache, const weir__slot *slots,
                     int32_t n_slots);
void weir__room_fini(weir__room *room);

/* Cells that a request of so many tokens needs to be worth a slot. */
int64_t weir__room_wanted(const weir__request *request);

/* Cells in use, and those that the slots want beside what they have. */
int64_t weir__room_reserved(const weir__room *room);

/* Cells that the slots' sequences hold; the others in use are cached prefixes'. */
int32_t weir__room_held(const weir__room *room);

/* Cells that are left once the slots' tokens are computed; below 0: they do not fit. A pass adds at most one
 * token to each slot, so that no pass lacks cells as long as they fit; drafts take what is left. */
int64_t weir__room_left(const weir__room *room);

/* Whether the request fits beside the slots that it would not suspend; those that it would are counted as
 * gone when `turns`. Alone it always fits: it is in the engine's limits. */
bool weir__room_fits(const weir__room *room, const weir__request *request, bool turns, int64_t ageing_ns,
                     int64_t now);

/* Frees cells that no request needs, the least recently used first. False: there are none. */
bool weir__room_evict(weir__room *room);

/* The backend has fewer cells than was counted: until a request ends, less is filled. False: there is but one
 * slot in use, and for it they are too few. */
bool weir__room_shrink(weir__room *room);
void weir__room_reset(weir__room *room);

#endif
