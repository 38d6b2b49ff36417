/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

/* Half of the budget for each side; prompts get what streams leave of their half, then streams what prompts
 * left. */
static size_t plan_balanced(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    weir__prompts prompts;
    int32_t n_generating = weir__schedule_generating(view);
    int32_t kept = weir__schedule_least(n_generating, view->budget - view->budget / 2);
    int32_t budget = view->budget - kept;
    weir__schedule_prompts(view, &prompts);
    size_t n = weir__schedule_prefills(view, &prompts, plan, 0, &budget);
    budget += kept;
    return weir__schedule_decodes(view, plan, n, &budget);
}

const weir_strategy *weir_strategy_balanced(void)
{
    static const weir_strategy strategy = {.name = "balanced", .plan = plan_balanced};
    return &strategy;
}
