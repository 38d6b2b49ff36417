/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

/* Streams that run are waited on by someone, so their tokens come first; prompts fill the rest. */
static size_t plan_decode_maximal(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    weir__prompts prompts;
    int32_t budget = view->budget;
    weir__schedule_prompts(view, &prompts);
    size_t n = weir__schedule_decodes(view, plan, 0, &budget);
    return weir__schedule_prefills(view, &prompts, plan, n, &budget);
}

const weir_strategy *weir_strategy_decode_maximal(void)
{
    static const weir_strategy strategy = {.name = "decode-maximal", .plan = plan_decode_maximal};
    return &strategy;
}
