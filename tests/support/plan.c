/* SPDX-License-Identifier: Apache-2.0 */
#include "support/plan.h"

/* The most that the slot may get, 0 when it has no work. */
static int32_t most_of(const weir_view *view, int32_t slot)
{
    for (size_t i = 0; i < view->n_slots; i++) {
        const weir_slot_view *v = &view->slots[i];
        if (v->slot != slot) continue;
        if (v->state == WEIR_SLOT_GENERATING) return 1 + v->n_draft;
        return v->n_prompt_left < view->chunk_size ? v->n_prompt_left : view->chunk_size;
    }
    return 0;
}

bool plan_allowed(const weir_view *view, int32_t n_slots, const weir_plan_entry *plan, size_t n)
{
    if (n > (size_t)n_slots) return false;
    for (size_t i = 0; i < n; i++) {
        if (plan[i].slot < 0 || plan[i].slot >= n_slots || plan[i].n_tokens < 0) return false;
        if (plan[i].n_tokens > most_of(view, plan[i].slot)) return false;
        for (size_t k = 0; k < i; k++)
            if (plan[k].slot == plan[i].slot && plan[k].n_tokens > 0 && plan[i].n_tokens > 0) return false;
    }
    return plan_sum(plan, n) <= view->budget;
}

int64_t plan_sum(const weir_plan_entry *plan, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += plan[i].n_tokens;
    return sum;
}

static void spoil(dice *d, const weir_view *view, int32_t n_slots, weir_plan_entry *entry)
{
    const int32_t counts[] = {INT32_MIN, -1, entry->n_tokens + 1, view->budget + 1, INT32_MAX};
    const int32_t slots[] = {INT32_MIN, -1, dice_in(d, 0, n_slots - 1), n_slots, INT32_MAX};
    if (dice_one_in(d, 2))
        entry->n_tokens = counts[dice_in(d, 0, 4)];
    else
        entry->slot = slots[dice_in(d, 0, 4)];
}

size_t plan_random(dice *d, const weir_view *view, int32_t n_slots, weir_plan_entry *plan, size_t room)
{
    size_t n = 0;
    int32_t left = view->budget;
    for (size_t i = 0; i < view->n_slots && n < room; i++) {
        if (dice_one_in(d, 4)) continue;
        int32_t most = most_of(view, view->slots[i].slot);
        if (most > left && !dice_one_in(d, 20)) most = left; /* else it may be over budget */
        size_t at = (size_t)dice_in(d, 0, (int32_t)n);
        if (at < n) plan[n] = plan[at];
        plan[at].slot = view->slots[i].slot;
        plan[at].n_tokens = dice_in(d, dice_one_in(d, 6) || most < 1 ? 0 : 1, most > 0 ? most : 0);
        left -= plan[at].n_tokens;
        n++;
    }
    if (!dice_one_in(d, 4)) return n;
    if (n < room && dice_one_in(d, 2))
        plan[n++] = (weir_plan_entry){.slot = dice_in(d, -1, n_slots), .n_tokens = dice_in(d, -1, 2)};
    else if (n > 0)
        spoil(d, view, n_slots, &plan[dice_in(d, 0, (int32_t)n - 1)]);
    return n;
}
