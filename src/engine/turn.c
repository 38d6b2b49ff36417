/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/turn.h"

static bool slot_has_work(const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_PREFILLING || slot->state == WEIR_SLOT_GENERATING;
}

/* Whether slot i is the first one from `from` on that has work with its set. */
static bool is_first(const weir__slot *slots, int32_t from, int32_t i)
{
    for (int32_t k = from; k < i; k++)
        if (slot_has_work(&slots[k]) &&
            slots[k].request->history.adapters.key == slots[i].request->history.adapters.key)
            return false;
    return true;
}

void weir__turn_choose(weir__turn *turn, const weir__slot *slots, int32_t n_slots)
{
    const weir__slot *next = NULL;
    int32_t first = 0; /* the first slot with work */
    turn->n_sets = 0;
    for (int32_t i = 0; i < n_slots; i++) {
        if (!slot_has_work(&slots[i])) continue;
        if (next == NULL) first = i;
        turn->n_sets += is_first(slots, first, i);
        if (next == NULL || slots[i].turn < next->turn) next = &slots[i];
    }
    if (next != NULL) turn->key = next->request->history.adapters.key;
}

void weir__turn_pass(weir__turn *turn, weir__slot *slots, int32_t n_slots)
{
    for (int32_t i = 0; i < n_slots; i++)
        if (slots[i].state != WEIR_SLOT_IDLE && weir__turn_has(turn, &slots[i])) slots[i].turn = turn->stamp;
    turn->stamp++;
}
