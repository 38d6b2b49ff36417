/* schedule.h: the parts that weir's strategies share. weir_strategy in more.h is the contract of a
 * strategy.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SCHEDULE_SCHEDULE_H
#define WEIR_SCHEDULE_SCHEDULE_H

#include "schedule/cost.h"

#define WEIR__SCHEDULE_SLOTS                                                                                 \
    256 /* of an engine, and its lanes; slots of a view beyond that are not planned */

/* The prefilling slots of a view. */
typedef struct weir__prompts {
    const weir_slot_view *slots[WEIR__SCHEDULE_SLOTS]; /* [n] by priority, then oldest first */
    size_t n;
    const weir_slot_view *oldest; /* NULL when n is 0 */
} weir__prompts;

void weir__schedule_prompts(const weir_view *view, weir__prompts *prompts);

int32_t weir__schedule_generating(const weir_view *view);

/* Adds an entry of one token for each generating slot, those that have waited longest first if *budget is
 * short, then their drafts while it lasts. Reduces *budget. Returns the number of entries so far. */
size_t weir__schedule_decodes(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget);

/* Adds entries for chunks of prompts. Reduces *budget. Returns the number of entries so far. */
size_t weir__schedule_prefills(const weir_view *view, const weir__prompts *prompts, weir_plan_entry *plan,
                               size_t n, int32_t *budget);

/* The work of the plan. Entries for slots that are not in the view do not count. */
weir__shape weir__schedule_shape(const weir_view *view, const weir_plan_entry *plan, size_t n_plan);

/* The prompt tokens, up to `most`, that keep a tick within the target, if each costs token_ns and all else
 * rest_ns. */
int32_t weir__latency_target_fit(const weir_cost *cost, int64_t target_ns, double rest_ns, double token_ns,
                                 int32_t most);

/* The prompt tokens, up to `most`, of a tick that latency-target plans. */
int32_t weir__latency_target_prefill(const weir_cost *cost, int64_t target_ns, double rest_ns,
                                     double token_ns, int32_t most);

static inline int32_t weir__schedule_least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

#endif
