/* rotation.h: chooses the set of adapters for a tick. A pass has one set, so requests with different sets
 * take turns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ROTATION_H
#define WEIR_ENGINE_ROTATION_H

#include "engine/slot.h"

/* The driver's. Segments of images and sounds are a set of their own, of which a tick computes one (ADR
 * 0074). The set whose slot with work was served or admitted longest ago is next. So none waits for more
 * ticks than there are sets, whatever arrives meanwhile. */
typedef struct weir__rotation {
    uint64_t key;            /* of the set that is served */
    int32_t segment;         /* the slot whose segment is computed; -1 = tokens are */
    int32_t n_sets;          /* sets with work, including this one */
    uint64_t stamp;          /* for the next slot that is served or admitted */
    weir__adapters adapters; /* of the context */
} weir__rotation;

/* Whether the slot may be planned in this tick. */
static inline bool weir__rotation_has(const weir__rotation *rotation, const weir__slot *slot)
{
    if (rotation->segment >= 0) return slot->index == rotation->segment;
    return slot->next == WEIR__NEXT_TOKEN && slot->request->history.adapters.key == rotation->key;
}

/* The slot has got a request. */
static inline void weir__rotation_enter(weir__rotation *rotation, weir__slot *slot)
{
    slot->served = rotation->stamp++;
}

/* Chooses the set. Called again in the same tick, it chooses the same one, as long as that has work. */
void weir__rotation_choose(weir__rotation *rotation, const weir__slots *slots);

/* The tick is over: its slots go to the end of the line. */
void weir__rotation_pass(weir__rotation *rotation, const weir__slots *slots);

#endif
