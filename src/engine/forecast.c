/* forecast.c: the dry run of a request.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/sized.h"
#include "engine/engine.h"
#include "engine/prefix.h"
#include "schedule/schedule.h"

/* The number of waiting requests that would go before this one. The mutex is held. */
static int32_t n_before(const weir__shared *shared, weir__request *request, int64_t ageing_ns, int64_t now)
{
    int32_t n = 0, top = weir__queue_top(&shared->queue);
    if (request->priority > top) top = request->priority;
    request->serial = shared->serial;
    request->salt = (weir__salt *)weir__salt_find(&shared->salts, request->salt_hash);
    weir__rank own = weir__queue_rank(request, top, ageing_ns, now);
    for (const weir__request *at = shared->queue.first; at != NULL; at = at->next) {
        weir__rank rank = weir__queue_rank(at, top, ageing_ns, now);
        n += weir__rank_before(&rank, &own);
    }
    return n;
}

/* The other requests that generate. */
typedef struct others {
    int32_t n;
    double context_k; /* tokens that they attend to in a tick, in units of 1,024 */
} others;

/* Adds the time of this request's prompt and answer, beside the others. */
static void guess_times(const weir_engine *engine, const weir_cost *cost, const weir__request *request,
                        const others *beside, weir_forecast *forecast)
{
    int32_t chunk = engine->params.chunk_size < engine->params.n_batch ? engine->params.chunk_size
                                                                       : engine->params.n_batch;
    int32_t n_new = forecast->n_prompt - forecast->n_cached;
    int32_t n_rest = request->max_tokens > 1 ? request->max_tokens - 1 : 0;
    /* In lanes the first token of the chunk is in a pass with the streams' tokens. */
    int32_t n_passes = engine->driver.info.layout == WEIR_LAYOUT_PER_SLOT && beside->n > 0 ? 2 : 1;
    double context_k = weir__cost_context_k(forecast->n_cached, n_new);
    if (engine->driver.strategy.plan == weir_strategy_latency_target()->plan && beside->n > 0 && n_new > 0)
        chunk =
            weir__latency_target_prefill(cost, engine->params.itl_target_ms * WEIR__NS_PER_MS,
                                         weir_cost_tick_ns(cost, n_passes, beside->n, 0, beside->context_k),
                                         weir_cost_tick_ns(cost, 0, 0, 1, context_k / n_new), chunk);
    int32_t n_ticks = (n_new + chunk - 1) / chunk;
    double prompt = weir_cost_tick_ns(cost, n_ticks * n_passes, n_ticks * beside->n, n_new,
                                      context_k + n_ticks * beside->context_k);
    double rest =
        weir_cost_tick_ns(cost, n_rest, n_rest * (1 + beside->n), 0,
                          weir__cost_context_k(forecast->n_prompt, n_rest) + n_rest * beside->context_k);
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
    int64_t over = weir__shared_over(shared, &engine->params, 1);
    bool slot_free = shared->n_live < engine->params.n_slots &&
                     (stats->layout == WEIR_LAYOUT_PER_SLOT || shared->n_live == 0 ||
                      stats->n_kv_reserved - stats->n_kv_cached + weir__cells_wanted(request) <= stats->n_kv);
    int32_t before = n_before(shared, request, weir__ageing_ns(&engine->params), now);
    others beside = {shared->n_live, (stats->n_kv_used - stats->n_kv_cached) / 1024.0};
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
    guess_times(engine, &rates.cost, request, &beside, forecast);
    return WEIR_OK;
}

weir_status weir_engine_plan_request(weir_engine *engine, const weir_request *given, weir_forecast *forecast,
                                     weir_error *error)
{
    weir_forecast full = {.size = sizeof full};
    weir__request *request = NULL;
    if (engine == NULL || given == NULL || forecast == NULL)
        return weir__error_set(error, WEIR_INVALID,
                               engine == NULL  ? "engine"
                               : given == NULL ? "request"
                                               : "forecast",
                               "a pointer is NULL");
    weir_status status = weir__sized_give(forecast, &full, sizeof full, "forecast", error);
    /* Without the engine's limit: the forecast also has the length of a prompt that does not fit. */
    weir_engine_params limits = engine->params;
    limits.n_ctx = INT32_MAX;
    if (status == WEIR_OK)
        status = weir__request_create(engine->model, &limits, given, 0, engine->bell, NULL, &request, error);
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
