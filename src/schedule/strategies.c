/* strategies.c: the strategies, and their names.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
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

/* ---- latency-target: as many prompt tokens in a tick as its streams' target leaves time for ---- */

/* The fewest prompt tokens of a tick. With a short context, fewer than 16 make a pass hardly faster. Behind a
 * long one they are progress if they cost enough in relation to all else in the tick: a quarter as much if
 * this meets the target. Where it does not, waiting helps the streams the less the more it is missed, so the
 * part grows with the third power of the tick's length, and is twice as much from twice the target on. Fewer
 * than 4 tokens cost nearly as much, because all share the cells that are read. */
#define LEAST_PREFILL  16
#define FEWEST_PREFILL 4
#define PART_IN_TIME   0.25
#define PART_LATE      2.0
#define MARGIN         2 /* spreads of ticks kept below the target: 19 of 20 ticks meet it */
#define MOST_MARGIN                                                                                          \
    0.5 /* limit on the margin, so that prompts progress even beside other processes' bursts */

typedef struct draft {
    const weir_view *view;
    weir__prompts prompts;
    weir_plan_entry *plan;
    size_t n_decodes; /* entries at the start of the plan */
} draft;

/* Writes the plan with this many prompt tokens. */
static size_t with_prefill(draft *d, int32_t n_prefill)
{
    return weir__schedule_prefills(d->view, &d->prompts, d->plan, d->n_decodes, &n_prefill);
}

/* The longest tick to plan for. */
static double limit_ns(const weir_cost *cost, int64_t target_ns)
{
    return (double)target_ns / (1 + fmin(MARGIN * cost->spread, MOST_MARGIN));
}

static bool is_in_time(draft *d, int32_t n_prefill)
{
    size_t n = with_prefill(d, n_prefill);
    return weir_plan_tick_ns(d->view, d->plan, n) <= limit_ns(&d->view->cost, d->view->itl_target_ns);
}

/* The cost of a tick without its prompt tokens, and that of one prompt token. */
typedef struct price {
    double rest_ns, token_ns;
} price;

static int32_t least_prefill(price p, double limit)
{
    double late = (1 + PART_IN_TIME) * p.rest_ns / limit;
    double part = fmin(PART_IN_TIME * fmax(late * late * late, 1), PART_LATE);
    double n = ceil(part * p.rest_ns / p.token_ns);
    if (!(n < LEAST_PREFILL)) return LEAST_PREFILL;
    return n > FEWEST_PREFILL ? (int32_t)n : FEWEST_PREFILL;
}

static price price_of(draft *d)
{
    size_t n = with_prefill(d, LEAST_PREFILL);
    weir__shape prompts = weir__schedule_shape(d->view, d->plan + d->n_decodes, n - d->n_decodes);
    double ns = weir_cost_tick_ns(&d->view->cost, 0, 0, prompts.n_prefill, prompts.n_context_k);
    return (price){weir_plan_tick_ns(d->view, d->plan, n) - ns, ns / prompts.n_prefill};
}

/* The most prompt tokens, up to n, that meet the target, but at least those of a tick. */
static int32_t fitting_prefill(draft *d, int32_t n)
{
    if (n <= FEWEST_PREFILL || is_in_time(d, n)) return n;
    int32_t fits = least_prefill(price_of(d), limit_ns(&d->view->cost, d->view->itl_target_ns)), too_many = n;
    if (fits >= n || !is_in_time(d, fits)) return weir__schedule_least(fits, n);
    while (too_many - fits > 1) {
        int32_t half = fits + (too_many - fits) / 2;
        if (is_in_time(d, half))
            fits = half;
        else
            too_many = half;
    }
    return fits;
}

int32_t weir__latency_target_fit(const weir_cost *cost, int64_t target_ns, double rest_ns, double token_ns,
                                 int32_t most)
{
    double n = (limit_ns(cost, target_ns) - rest_ns) / token_ns;
    if (!(n < most)) return most;
    return n > 0 ? (int32_t)n : 0;
}

int32_t weir__latency_target_prefill(const weir_cost *cost, int64_t target_ns, double rest_ns,
                                     double token_ns, int32_t most)
{
    int32_t n = weir__latency_target_fit(cost, target_ns, rest_ns, token_ns, most);
    int32_t least = least_prefill((price){rest_ns, token_ns}, limit_ns(cost, target_ns));
    return n >= least ? n : weir__schedule_least(least, most);
}

static size_t plan_latency_target(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    draft d = {.view = view, .plan = plan};
    int32_t budget = view->budget;
    weir__schedule_prompts(view, &d.prompts);
    d.n_decodes = weir__schedule_decodes(view, plan, 0, &budget);
    if (d.n_decodes > 0 && d.prompts.n > 0) budget = fitting_prefill(&d, budget);
    return with_prefill(&d, budget);
}

const weir_strategy *weir_strategy_latency_target(void)
{
    static const weir_strategy strategy = {.name = "latency-target", .plan = plan_latency_target};
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
