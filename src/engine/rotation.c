/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rotation.h"

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

void weir__rotation_choose(weir__rotation *rotation, const weir__slot *slots, int32_t n_slots)
{
    const weir__slot *next = NULL;
    int32_t first = 0; /* the first slot with work */
    rotation->n_sets = 0;
    for (int32_t i = 0; i < n_slots; i++) {
        if (!slot_has_work(&slots[i])) continue;
        if (next == NULL) first = i;
        rotation->n_sets += is_first(slots, first, i);
        if (next == NULL || slots[i].served < next->served) next = &slots[i];
    }
    if (next != NULL) rotation->key = next->request->history.adapters.key;
}

void weir__rotation_pass(weir__rotation *rotation, weir__slot *slots, int32_t n_slots)
{
    for (int32_t i = 0; i < n_slots; i++)
        if (slots[i].state != WEIR_SLOT_IDLE && weir__rotation_has(rotation, &slots[i]))
            slots[i].served = rotation->stamp;
    rotation->stamp++;
}
