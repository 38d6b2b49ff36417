/* forecast.c: the dry run of a request.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/member.h"
#include "engine/driver.h"
#include "engine/engine.h"
#include "engine/prefix.h"
#include "schedule/schedule.h"

/* The number of waiting requests that would go before this one. The mutex is held. */
static int32_t n_before(const weir__shared *shared, weir__request *request, int64_t now)
{
    int32_t n = 0, top = weir__queue_top(&shared->queue, UINT64_MAX);
    if (request->priority > top) top = request->priority;
    request->serial = shared->serial;
    request->tenant = (weir__tenant *)weir__tenant_find(&shared->tenants, request->tenant_hash);
    weir__rank own = weir__queue_rank(request, top, now);
    for (const weir__request *at = shared->queue.first; at != NULL; at = at->next) {
        weir__rank rank = weir__queue_rank(at, top, now);
        n += weir__rank_before(&rank, &own);
    }
    return n;
}

/* The other requests that generate. */
typedef struct others {
    int32_t n;
    double context_k; /* tokens that they attend to in a tick, in units of 1,024 */
} others;

/* Requests in slots that outrank this one, whose prompt makes way for them (ADR 0086). */
typedef struct superiors {
    double prompts_ns; /* the time that the rest of their prompts takes */
    int64_t n_ticks;   /* in this many ticks */
    int32_t n_answer;  /* tokens of the longest rest of an answer */
    bool streams;      /* one of them generates already */
} superiors;

static int32_t chunk_of(const weir_engine *engine)
{
    return weir__schedule_least(engine->params.chunk_size, engine->params.n_batch);
}

static int32_t ticks_of(int32_t n_tokens, int32_t chunk)
{
    return n_tokens / chunk + (n_tokens % chunk > 0);
}

/* The mutex is held. The request is new, so that age lifts none. */
static superiors find_superiors(const weir_engine *engine, const weir__request *request)
{
    superiors found = {0};
    const weir__shared *shared = &engine->shared;
    for (int32_t i = 0; i < shared->n_running; i++) {
        const weir__running *at = &shared->running[i];
        if (at->priority <= request->priority) continue;
        if (at->n_answer > found.n_answer) found.n_answer = at->n_answer;
        if (at->n_prompt == 0) {
            found.streams = true;
            continue;
        }
        int32_t n_ticks = ticks_of(at->n_prompt, chunk_of(engine));
        found.n_ticks += n_ticks;
        found.prompts_ns += weir_cost_tick_ns(&shared->rates.cost, n_ticks, 0, at->n_prompt,
                                              weir__cost_context_k(at->n_past, at->n_prompt));
    }
    return found;
}

/* Beside the superiors' prompts a prompt of *n tokens has turns, in passes of these: the time of these, until
 * it is computed or they are. *n: the tokens that are left. */
static double take_turns(const superiors *above, int32_t a_turn, int32_t *n)
{
    int64_t n_turns = above->n_ticks / WEIR__PACE_TURN;
    int32_t wanted = ticks_of(*n, a_turn);
    if (n_turns < wanted) {
        *n -= (int32_t)n_turns * a_turn;
        return above->prompts_ns;
    }
    if (wanted == 0) return 0.0;
    *n = 0;
    return above->prompts_ns * wanted * WEIR__PACE_TURN / (double)above->n_ticks;
}

/* The ticks that compute the prompt's n tokens. Beside streams that outrank it, as long as these go on, a
 * tick has `fitting` tokens; if none fits, one tick of a turn has one. */
static int32_t prompt_ticks(int32_t n, int32_t chunk, int32_t fitting, const superiors *above)
{
    if (fitting >= chunk || above->n_answer == 0) return ticks_of(n, chunk);
    int32_t slow = fitting > 0 ? ticks_of(n, fitting) : n * WEIR__PACE_TURN;
    if (slow <= above->n_answer) return slow;
    int32_t n_done = fitting > 0 ? above->n_answer * fitting : above->n_answer / WEIR__PACE_TURN;
    return above->n_answer + ticks_of(n - n_done, chunk);
}

/* Adds the time of this request's prompt and answer, beside the others. */
static void guess_times(const weir_engine *engine, const weir_cost *cost, const weir__request *request,
                        const others *beside, const superiors *above, weir_forecast *forecast)
{
    int32_t chunk = chunk_of(engine), fitting = chunk;
    int32_t n_new = forecast->n_prompt - forecast->n_cached;
    int32_t n_rest = request->max_tokens > 1 ? request->max_tokens - 1 : 0;
    /* The chunk is, in lanes, a pass of its own, beside that of the streams' tokens. */
    int32_t n_passes = engine->driver.info.layout == WEIR_LAYOUT_PER_SLOT && beside->n > 0 ? 2 : 1;
    double context_k = weir__cost_context_k(forecast->n_cached, n_new);
    if (beside->n > 0 && n_new > 0) {
        int64_t target_ns = engine->params.itl_target_ms * WEIR__NS_PER_MS;
        double streams_ns = weir_cost_tick_ns(cost, n_passes, beside->n, 0, beside->context_k);
        double token_ns = weir_cost_tick_ns(cost, 0, 0, 1, context_k / n_new);
        fitting = weir__latency_target_fit(cost, target_ns, streams_ns, token_ns, chunk);
        if (engine->driver.strategy.plan == weir_strategy_latency_target()->plan)
            chunk = weir__latency_target_prefill(cost, target_ns, streams_ns, token_ns, chunk);
    }
    int32_t n_left = n_new, a_turn = !above->streams ? chunk_of(engine) : fitting > 0 ? fitting : 1;
    double turns_ns = take_turns(above, a_turn, &n_left);
    int32_t n_ticks = prompt_ticks(n_left, chunk, fitting, above);
    double prompt = turns_ns + weir_cost_tick_ns(cost, 0, 0, n_new, context_k) +
                    n_ticks * weir_cost_tick_ns(cost, n_passes, beside->n, 0, beside->context_k);
    double rest = weir_cost_tick_ns(cost, 0, 0, 0, weir__cost_context_k(forecast->n_prompt, n_rest)) +
                  n_rest * weir_cost_tick_ns(cost, 1, 1 + beside->n, 0, beside->context_k);
    forecast->ttft_ns += (int64_t)prompt;
    forecast->finish_ns = forecast->ttft_ns + (int64_t)rest;
}

static weir_status look_at_queue(weir_engine *engine, weir__request *request, weir_forecast *forecast,
                                 weir_error *error)
{
    weir__shared *shared = &engine->shared;
    int64_t now = weir__clock_now_ns();
    pthread_mutex_lock(&shared->mutex);
    const weir_engine_stats *stats = &shared->stats;
    weir__rates rates = shared->rates;
    bool open = shared->open;
    int32_t waiting;
    int64_t over = weir__shared_over(shared, &engine->params, request->tenant_hash, 1, &waiting);
    bool slot_free = shared->n_placed < engine->params.n_slots &&
                     (stats->layout == WEIR_LAYOUT_PER_SLOT || shared->n_placed == 0 ||
                      stats->n_kv_reserved - stats->n_kv_cached + weir__cells_wanted(request) <= stats->n_kv);
    int32_t before = n_before(shared, request, now);
    others beside = {shared->n_placed, (stats->n_kv_used - stats->n_kv_cached) / 1024.0};
    superiors above = find_superiors(engine, request);
    pthread_mutex_unlock(&shared->mutex);
    if (!open)
        return weir__error_set(error, WEIR_STOPPED, "",
                               "the engine takes no more requests: it was stopped or is draining");
    forecast->queue_place = slot_free ? 0 : before + 1;
    forecast->busy = over > 0;
    if (over > 0) forecast->retry_ns = weir__rates_retry_ns(&rates, engine->params.n_slots, over);
    if (rates.cost.n_ticks == 0) return WEIR_OK;
    forecast->ttft_ns = (int64_t)(rates.service_ns / engine->params.n_slots * forecast->queue_place);
    if (beside.n >= engine->params.n_slots) { /* one of them will have ended */
        beside.context_k *= (engine->params.n_slots - 1.0) / beside.n;
        beside.n = engine->params.n_slots - 1;
    }
    guess_times(engine, &rates.cost, request, &beside, &above, forecast);
    return WEIR_OK;
}

weir_status weir_engine_plan_request(weir_engine *engine, const weir_request *given, weir_forecast *forecast,
                                     weir_error *error)
{
    weir_forecast full = {.size = sizeof full};
    weir__request *request = NULL;
    if (engine == NULL || given == NULL || forecast == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING,
                             engine == NULL  ? "engine"
                             : given == NULL ? "request"
                                             : "forecast",
                             "a pointer is NULL");
    weir_status status = weir__engine_check_exists(engine, error);
    if (status == WEIR_OK) status = weir__sized_give(forecast, &full, sizeof full, "forecast", error);
    if (status != WEIR_OK) return status;
    /* Limits without the engine's own: the forecast also has the length of a prompt that does not fit. */
    weir_engine_params limits = engine->params;
    limits.n_ctx = INT32_MAX;
    limits.prompt_lookup = false; /* and without drafts */
    status = weir__request_create(engine->model, &limits, given, 0, engine->waker, NULL, &request, error);
    if (status != WEIR_OK) return status;
    full.n_prompt = request->history.n_prompt;
    full.fits = request->history.n_prompt + (request->max_tokens > 0) <= engine->params.n_ctx;
    int32_t room = engine->params.n_ctx - request->history.n_prompt;
    if (request->max_tokens > room) request->max_tokens = room;
    if (full.fits) {
        full.n_cached = weir__prefix_known(&engine->driver.prefix, &engine->shared, request);
        status = look_at_queue(engine, request, &full, error);
    }
    weir__request_destroy(request);
    return status == WEIR_OK ? weir__sized_give(forecast, &full, sizeof full, "forecast", error) : status;
}
