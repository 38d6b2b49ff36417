/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

/* Large passes compute most tokens a second, so prompts come first. One token is kept for the streams that
 * run, which take turns for it: prompts that follow each other without end would stop them. */
static size_t plan_prefill_priority(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    weir__prompts prompts;
    int32_t kept = weir__schedule_generating(view) > 0 && view->budget > 0 ? 1 : 0;
    int32_t budget = view->budget - kept;
    weir__schedule_prompts(view, &prompts);
    size_t n = weir__schedule_prefills(view, &prompts, plan, 0, &budget);
    budget += kept;
    return weir__schedule_decodes(view, plan, n, &budget);
}

const weir_strategy *weir_strategy_prefill_priority(void)
{
    static const weir_strategy strategy = {.name = "prefill-priority", .plan = plan_prefill_priority};
    return &strategy;
}
