/* turn.h: chooses the set of adapters for a tick. A pass has one set, so requests with different sets take
 * turns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_TURN_H
#define WEIR_ENGINE_TURN_H

#include "engine/slot.h"

/* The driver's. The set whose slot with work was served or admitted longest ago is next. So none waits for
 * more ticks than there are sets, whatever arrives meanwhile. */
typedef struct weir__turn {
    uint64_t key;            /* of the set that is served */
    int32_t n_sets;          /* sets with work, including this one */
    uint64_t stamp;          /* for the next slot that is served or admitted */
    weir__adapters adapters; /* of the context */
} weir__turn;

/* Whether the slot may be planned in this tick. */
static inline bool weir__turn_has(const weir__turn *turn, const weir__slot *slot)
{
    return slot->request->history.adapters.key == turn->key;
}

/* The slot has got a request. */
static inline void weir__turn_enter(weir__turn *turn, weir__slot *slot)
{
    slot->turn = turn->stamp++;
}

/* Chooses the set. Called again in the same tick, it chooses the same one, as long as that has work. */
void weir__turn_choose(weir__turn *turn, const weir__slot *slots, int32_t n_slots);

/* The tick is over: its slots go to the end of the line. */
void weir__turn_pass(weir__turn *turn, weir__slot *slots, int32_t n_slots);

#endif
