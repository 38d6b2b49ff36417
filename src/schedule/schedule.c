/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

size_t weir__schedule_decodes(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget)
{
    for (size_t i = 0; i<view->n_slots && * budget> 0; i++) {
        if (view->slots[i].state != WEIR_SLOT_GENERATING) continue;
        plan[n++] = (weir_plan_entry){.slot = view->slots[i].slot, .n_tokens = 1};
        --*budget;
    }
    return n;
}

size_t weir__schedule_prefills(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget)
{
    for (size_t i = 0; i<view->n_slots && * budget> 0; i++) {
        const weir_slot_view *slot = &view->slots[i];
        if (slot->state != WEIR_SLOT_PREFILLING) continue;
        int32_t n_tokens = least(least(slot->n_prompt_left, view->chunk_size), *budget);
        plan[n++] = (weir_plan_entry){.slot = slot->slot, .n_tokens = n_tokens};
        *budget -= n_tokens;
    }
    return n;
}
