/* strategies.c: the strategies that need only the view, and the names of all.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "schedule/schedule.h"

/* ---- decode-maximal ---- */

/* Plans the running streams' tokens first, because someone is waiting for them; prompts fill the rest. */
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

/* ---- Prompts first ---- */

/* Streams get `kept` tokens of the budget, and the rest that the prompts leave. */
static size_t plan_prompts_first(const weir_view *view, weir_plan_entry *plan, int32_t kept)
{
    weir__prompts prompts;
    int32_t budget = view->budget - kept;
    weir__schedule_prompts(view, &prompts);
    size_t n = weir__schedule_prefills(view, &prompts, plan, 0, &budget);
    budget += kept;
    return weir__schedule_decodes(view, plan, n, &budget);
}

/* Large passes compute the most tokens per second. One token is kept for the running streams, which take
 * turns for it: an endless row of prompts would stop them. */
static size_t plan_prefill_priority(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    return plan_prompts_first(view, plan, weir__schedule_generating(view) > 0 && view->budget > 0 ? 1 : 0);
}

const weir_strategy *weir_strategy_prefill_priority(void)
{
    static const weir_strategy strategy = {.name = "prefill-priority", .plan = plan_prefill_priority};
    return &strategy;
}

/* Half of the budget for each side. Prompts also get the rest of the streams' half, then streams get the rest
 * of the prompts'. */
static size_t plan_balanced(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    int32_t half = view->budget - view->budget / 2;
    return plan_prompts_first(view, plan, weir__schedule_least(weir__schedule_generating(view), half));
}

const weir_strategy *weir_strategy_balanced(void)
{
    static const weir_strategy strategy = {.name = "balanced", .plan = plan_balanced};
    return &strategy;
}

/* ---- Names ---- */

const weir_strategy *weir_strategy_get(size_t i)
{
    switch (i) {
    case 0: return weir_strategy_decode_maximal();
    case 1: return weir_strategy_prefill_priority();
    case 2: return weir_strategy_balanced();
    case 3: return weir_strategy_latency_target();
    default: return NULL;
    }
}

const weir_strategy *weir_strategy_find(const char *name)
{
    const weir_strategy *strategy;
    if (name == NULL) return NULL;
    for (size_t i = 0; (strategy = weir_strategy_get(i)) != NULL; i++)
        if (strcmp(strategy->name, name) == 0) return strategy;
    return NULL;
}
