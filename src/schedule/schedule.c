/* schedule.c: chooses slots that generate and prompts that wait, and adds up the work of a plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

/* ---- Parts of plans ---- */

static size_t n_slots(const weir_view *view)
{
    return view->n_slots < WEIR__SCHEDULE_SLOTS ? view->n_slots : WEIR__SCHEDULE_SLOTS;
}

int32_t weir__schedule_generating(const weir_view *view)
{
    int32_t n = 0;
    for (size_t i = 0; i < n_slots(view); i++) n += view->slots[i].state == WEIR_SLOT_GENERATING;
    return n;
}

void weir__schedule_prompts(const weir_view *view, weir__prompts *prompts)
{
    prompts->n = 0;
    prompts->oldest = NULL;
    for (size_t i = 0; i < n_slots(view); i++) {
        const weir_slot_view *slot = &view->slots[i];
        if (slot->state != WEIR_SLOT_PREFILLING || slot->n_prompt_left < 1) continue;
        if (prompts->oldest == NULL) prompts->oldest = slot;
        size_t at = prompts->n++;
        for (; at > 0 && prompts->slots[at - 1]->priority < slot->priority; at--)
            prompts->slots[at] = prompts->slots[at - 1];
        prompts->slots[at] = slot;
    }
}

/* plan [n] has the first n waiting slots. Prompts keep half of the rest. */
static void add_drafts(const weir_view *view, const weir_slot_view *const *waiting, weir_plan_entry *plan,
                       size_t n, int32_t *budget)
{
    int32_t left = *budget;
    bool prompts = false;
    for (size_t i = 0; i < n_slots(view); i++) prompts |= view->slots[i].state == WEIR_SLOT_PREFILLING;
    if (prompts) left /= 2;
    for (size_t i = 0; i < n && left > 0; i++) {
        int32_t n_draft = weir__schedule_least(waiting[i]->n_draft, left);
        if (n_draft < 1) continue;
        plan[i].n_tokens += n_draft;
        *budget -= n_draft;
        left -= n_draft;
    }
}

size_t weir__schedule_decodes(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget)
{
    const weir_slot_view *waiting[WEIR__SCHEDULE_SLOTS];
    size_t n_waiting = 0, n_planned = 0;
    bool is_short = weir__schedule_generating(view) > *budget;
    for (size_t i = 0; i < n_slots(view); i++) {
        const weir_slot_view *slot = &view->slots[i];
        if (slot->state != WEIR_SLOT_GENERATING) continue;
        size_t at = n_waiting++;
        for (; is_short && at > 0 && waiting[at - 1]->idle_ns < slot->idle_ns; at--)
            waiting[at] = waiting[at - 1];
        waiting[at] = slot;
    }
    plan += n;
    for (; n_planned < n_waiting && *budget >= 1; n_planned++) {
        plan[n_planned] = (weir_plan_entry){.slot = waiting[n_planned]->slot, .n_tokens = 1};
        --*budget;
    }
    add_drafts(view, waiting, plan, n_planned, budget);
    return n + n_planned;
}

static int32_t most_of(const weir_view *view, const weir_slot_view *slot)
{
    int32_t most = weir__schedule_least(slot->n_prompt_left, view->chunk_size);
    return slot->limit > 0 ? weir__schedule_least(most, slot->limit) : most;
}

size_t weir__schedule_prefills(const weir_view *view, const weir__prompts *prompts, weir_plan_entry *plan,
                               size_t n, int32_t *budget)
{
    int32_t kept = *budget / 4 + (*budget % 4 > 0); /* kept for the oldest until its turn */
    if (prompts->n > 0) kept = weir__schedule_least(kept, most_of(view, prompts->oldest));
    for (size_t i = 0; *budget > 0 && i < prompts->n; i++) {
        const weir_slot_view *slot = prompts->slots[i];
        if (slot == prompts->oldest) kept = 0;
        int32_t n_tokens = weir__schedule_least(most_of(view, slot), *budget - kept);
        if (n_tokens < 1) continue;
        plan[n++] = (weir_plan_entry){.slot = slot->slot, .n_tokens = n_tokens};
        *budget -= n_tokens;
    }
    return n;
}

/* ---- The work of a plan ---- */

weir__shape weir__schedule_shape(const weir_view *view, const weir_plan_entry *plan, size_t n_plan)
{
    weir__shape shape = {.n_passes = 0};
    int32_t given[WEIR__SCHEDULE_SLOTS] = {0}; /* by slot */
    int32_t rows[WEIR__SCHEDULE_SLOTS] = {0};  /* by lane */
    int32_t n_lanes = 0;
    for (size_t i = 0; i < n_plan; i++)
        if (plan[i].slot >= 0 && plan[i].slot < WEIR__SCHEDULE_SLOTS && plan[i].n_tokens > 0)
            given[plan[i].slot] = plan[i].n_tokens;
    for (size_t i = 0; i < n_slots(view); i++) {
        const weir_slot_view *slot = &view->slots[i];
        if (slot->slot < 0 || slot->slot >= WEIR__SCHEDULE_SLOTS) continue;
        if (slot->lane < 0 || slot->lane >= WEIR__SCHEDULE_SLOTS) continue;
        int32_t n = given[slot->slot];
        if (slot->state == WEIR_SLOT_GENERATING)
            shape.n_decode += n;
        else
            shape.n_prefill += n;
        shape.n_context_k += weir__cost_context_k(slot->n_past, n);
        rows[slot->lane] += n;
        if (slot->lane >= n_lanes) n_lanes = slot->lane + 1;
    }
    shape.n_passes = weir__cost_passes(rows, n_lanes, view->n_ubatch, view->layout);
    return shape;
}

double weir_plan_tick_ns(const weir_view *view, const weir_plan_entry *plan, size_t n_plan)
{
    if (view == NULL) return 0;
    weir__shape shape = weir__schedule_shape(view, plan, n_plan);
    return weir_cost_tick_ns(&view->cost, shape.n_passes, shape.n_decode, shape.n_prefill, shape.n_context_k);
}
