/* turn.h: chooses the set of adapters for a tick: a pass has one set, so requests with different sets take
 * turns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_TURN_H
#define WEIR_ENGINE_TURN_H

#include "engine/slot.h"

/* The driver's. A set's turn comes when none of its slots that have work was served, or admitted, before all
 * of the others': so none waits for more ticks than there are sets, whatever comes meanwhile. */
typedef struct weir__turn {
    uint64_t key;            /* of the set whose turn it is */
    int32_t n_sets;          /* that have work, this one included */
    uint64_t stamp;          /* of the next slot that is served or admitted */
    weir__adapters adapters; /* that the context has */
} weir__turn;

/* Whether the slot may be planned in this tick. */
static inline bool weir__turn_has(const weir__turn *turn, const weir__slot *slot)
{
    return slot->request->history.adapters.key == turn->key;
}

/* The slot has begun. */
static inline void weir__turn_enter(weir__turn *turn, weir__slot *slot)
{
    slot->turn = turn->stamp++;
}

/* Chooses the set. Asked again before the tick is over it gives the same, as long as that has work. */
void weir__turn_choose(weir__turn *turn, const weir__slot *slots, int32_t n_slots);

/* The tick is over: its slots go to the end of the row. */
void weir__turn_pass(weir__turn *turn, weir__slot *slots, int32_t n_slots);

#endif
