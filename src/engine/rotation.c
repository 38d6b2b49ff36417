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

/* Whether it is the first one from `from` on that has work with its set. */
static bool is_first(const weir__slot *from, const weir__slot *slot)
{
    for (const weir__slot *other = from; other < slot; other++)
        if (slot_has_work(other) && is_same_set(other, slot)) return false;
    return true;
}

/* Of the slots with a segment, that of the oldest request: its image is complete first. */
static const weir__slot *oldest_segment(const weir__slots *slots)
{
    const weir__slot *oldest = NULL;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++)
        if (slot_has_work(slot) && slot->next == WEIR__NEXT_SEGMENT &&
            (oldest == NULL || slot->request->serial < oldest->request->serial))
            oldest = slot;
    return oldest;
}

void weir__rotation_choose(weir__rotation *rotation, const weir__slots *slots)
{
    const weir__slot *next = NULL, *first = NULL; /* first: with work */
    rotation->n_sets = 0;
    rotation->segment = -1;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (!slot_has_work(slot)) continue;
        if (first == NULL) first = slot;
        rotation->n_sets += is_first(first, slot);
        if (next == NULL || slot->served < next->served) next = slot;
    }
    if (next == NULL) return;
    if (next->next == WEIR__NEXT_SEGMENT) {
        next = oldest_segment(slots);
        rotation->segment = next->index;
    }
    rotation->key = next->request->history.adapters.key;
}

void weir__rotation_pass(weir__rotation *rotation, const weir__slots *slots)
{
    for (weir__slot *slot = slots->first; slot < slots->end; slot++)
        if (slot->state != WEIR_SLOT_IDLE &&
            (rotation->segment >= 0 ? slot->next == WEIR__NEXT_SEGMENT : weir__rotation_has(rotation, slot)))
            slot->served = rotation->stamp;
    rotation->stamp++;
}
