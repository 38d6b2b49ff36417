#include "engine/forecast.h"

#include "base/error.h"
#include "base/params.h"
#include "engine/engine.h"

#define NEWEST       0.125               /* what the newest measurement counts */
#define RETRY_NS     INT64_C(1000000000) /* nothing is known */
#define RETRY_MAX_NS (3600 * INT64_C(1000000000))

/* ---- Rates ---- */

static void average(double *rate, double newest)
{
    *rate = *rate > 0 ? *rate + NEWEST * (newest - *rate) : newest;
}

void weir__rates_finished(weir__rates *rates, int64_t service_ns)
{
    if (service_ns > 0) average(&rates->service_ns, (double)service_ns);
}

void weir__rates_tick(weir__rates *rates, int32_t n_prefill, int32_t n_decode, int64_t tick_ns)
{
    if (tick_ns <= 0) return;
    if (n_prefill > 0) average(&rates->prompt_ns, (double)tick_ns / (n_prefill + n_decode));
    if (n_decode > 0) average(&rates->token_ns, (double)tick_ns);
}

int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places)
{
    double each = rates->service_ns > 0 ? rates->service_ns / n_slots : (double)RETRY_NS;
    double ns = each * (double)places;
    if (ns > (double)RETRY_MAX_NS) return RETRY_MAX_NS;
    return ns > (double)WEIR__NS_PER_MS ? (int64_t)ns : WEIR__NS_PER_MS;
}

/* ---- Dry run ---- */

/* How many of those that wait would go before this one. The mutex is held. */
static int32_t n_before(weir_engine *engine, weir__request *request, int64_t now)
{
    int32_t n = 0, top = request->priority;
    request->serial = engine->serial;
    request->share = (weir__share *)weir__share_find(&engine->shares, request->salt);
    for (const weir__request *at = engine->queue.first; at != NULL; at = at->next)
        if (at->priority > top) top = at->priority;
    weir__rank own = weir__queue_rank(request, top, weir__ageing_ns(engine), now);
    for (const weir__request *at = engine->queue.first; at != NULL; at = at->next) {
        weir__rank rank = weir__queue_rank(at, top, weir__ageing_ns(engine), now);
        n += weir__rank_before(&rank, &own);
    }
    return n;
}

/* Tokens of the prompt that would not be computed again. */
static int32_t n_cached(weir_engine *engine, const weir__request *request)
{
    return weir__prefix_known(engine, request);
}

static weir_status look(weir_engine *engine, weir__request *request, weir_forecast *forecast,
                        weir_error *error)
{
    int64_t now = weir__clock_now_ns();
    pthread_mutex_lock(&engine->mutex);
    const weir_engine_stats *stats = &engine->stats;
    weir__rates rates = engine->told;
    bool open = engine->open;
    int64_t over = weir__engine_over(engine, 1);
    bool slot_free =
        engine->n_live < engine->params.n_slots &&
        (stats->layout == WEIR_LAYOUT_PER_SLOT || engine->n_live == 0 ||
         stats->n_kv_reserved - stats->n_kv_cached + weir__suspend_cells_wanted(request, request->n_prompt) <=
             stats->n_kv);
    int32_t before = n_before(engine, request, now);
    pthread_mutex_unlock(&engine->mutex);
    if (!open)
        return weir__error_set(error, WEIR_STOPPED, "",
                               "the engine takes no more requests: it was stopped or is draining");
    forecast->queue_place = slot_free ? 0 : before + 1;
    forecast->busy = over > 0;
    if (over > 0) forecast->retry_ns = weir__rates_retry_ns(&rates, engine->params.n_slots, over);
    double wait = rates.service_ns / engine->params.n_slots * forecast->queue_place;
    double prefill = rates.prompt_ns * (forecast->n_prompt - forecast->n_cached);
    double rest = request->max_tokens > 1 ? rates.token_ns * (request->max_tokens - 1) : 0;
    if (rates.prompt_ns > 0) {
        forecast->ttft_ns = (int64_t)(wait + prefill);
        forecast->finish_ns = (int64_t)(wait + prefill + rest);
    }
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
    weir_status status = weir__params_give(forecast, &full, sizeof full, "forecast", error);
    /* Without the engine's limit: how long a prompt is that does not fit is worth telling. */
    weir__limits limits = {.n_ctx = INT32_MAX, .max_tokens = engine->limits.max_tokens};
    if (status == WEIR_OK) status = weir__request_create(engine->model, &limits, given, 0, &request, error);
    if (status != WEIR_OK) return status;
    full.n_prompt = request->n_prompt;
    full.fits = request->n_prompt + (request->max_tokens > 0) <= engine->limits.n_ctx;
    int32_t room = engine->limits.n_ctx - request->n_prompt;
    if (request->max_tokens > room) request->max_tokens = room;
    if (full.fits) {
        full.n_cached = n_cached(engine, request);
        status = look(engine, request, &full, error);
    }
    weir__request_destroy(request);
    return status == WEIR_OK ? weir__params_give(forecast, &full, sizeof full, "forecast", error) : status;
}
