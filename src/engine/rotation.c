/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rotation.h"

static bool slot_has_work(const weir__slot *slot)
{
    return (slot->state == WEIR_SLOT_PREFILLING || slot->state == WEIR_SLOT_GENERATING) &&
           slot->next != WEIR__NEXT_AWAITED;
}

static bool is_same_set(const weir__slot *a, const weir__slot *b)
{
    return a->next == b->next && (a->next == WEIR__NEXT_SEGMENT ||
                                  a->request->history.adapters.key == b->request->history.adapters.key);
}

/* Whether slot i is the first one from `from` on that has work with its set. */
static bool is_first(const weir__slot *slots, int32_t from, int32_t i)
{
    for (int32_t k = from; k < i; k++)
        if (slot_has_work(&slots[k]) && is_same_set(&slots[k], &slots[i])) return false;
    return true;
}

/* Of the slots with a segment, that of the oldest request: its image is complete first. */
static const weir__slot *oldest_segment(const weir__slot *slots, int32_t n_slots)
{
    const weir__slot *oldest = NULL;
    for (int32_t i = 0; i < n_slots; i++)
        if (slot_has_work(&slots[i]) && slots[i].next == WEIR__NEXT_SEGMENT &&
            (oldest == NULL || slots[i].request->serial < oldest->request->serial))
            oldest = &slots[i];
    return oldest;
}

void weir__rotation_choose(weir__rotation *rotation, const weir__slot *slots, int32_t n_slots)
{
    const weir__slot *next = NULL;
    int32_t first = 0; /* the first slot with work */
    rotation->n_sets = 0;
    rotation->segment = -1;
    for (int32_t i = 0; i < n_slots; i++) {
        if (!slot_has_work(&slots[i])) continue;
        if (next == NULL) first = i;
        rotation->n_sets += is_first(slots, first, i);
        if (next == NULL || slots[i].served < next->served) next = &slots[i];
    }
    if (next == NULL) return;
    if (next->next == WEIR__NEXT_SEGMENT) {
        next = oldest_segment(slots, n_slots);
        rotation->segment = next->index;
    }
    rotation->key = next->request->history.adapters.key;
}

void weir__rotation_pass(weir__rotation *rotation, weir__slot *slots, int32_t n_slots)
{
    for (int32_t i = 0; i < n_slots; i++)
        if (slots[i].state != WEIR_SLOT_IDLE &&
            (rotation->segment >= 0 ? slots[i].next == WEIR__NEXT_SEGMENT
                                    : weir__rotation_has(rotation, &slots[i])))
            slots[i].served = rotation->stamp;
    rotation->stamp++;
}
