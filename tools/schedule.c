/* weir bench schedule: the time that deciding takes in each tick, where the model costs nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "cli/lib/options.h"
#include "cli/lib/signals.h"
#include "commands.h"
#include "tally.h"

#define MODEL      "fake:n_vocab=32000,n_ctx_train=65536"
#define N_PROMPT   96
#define N_ANSWER   48 /* each slot begins anew so often */
#define N_SHARED   64 /* tokens at the beginning of a prompt that many have */
#define N_PREFIXES 97 /* different ones */
#define QUEUE      16 /* requests that wait, so that each tick may admit */
#define SLOTS_MAX  256
#define NODES_MAX  1000000
#define TICKS_MAX  10000000

struct bench {
    cli_args *args;
    weir_model *model;
    weir_engine *engine;
    const weir_strategy *strategy;
    uint64_t n_submitted;
    int32_t n_entries;         /* prefixes that are kept when the measurement ends */
    cli_spread *decide, *tick; /* µs: view and plan; the tick less its pass */
};

/* Request i: one of the shared beginnings, then tokens of its own. Nobody reads it. */
static weir_status submit_request(struct bench *bench, int32_t n_answer, weir_error *error)
{
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    int32_t prompt[N_PROMPT];
    uint64_t i = bench->n_submitted++;
    for (int32_t k = 0; k < N_PROMPT; k++) {
        uint64_t x = k < N_SHARED ? i % N_PREFIXES : i + N_PREFIXES;
        prompt[k] = 300 + (int32_t)((x * 2654435761u + (uint64_t)k * 40503u) % 31000);
    }
    sampler.temp = 0;
    sampler.ignore_eos = true;
    request.tokens = prompt;
    request.n_tokens = N_PROMPT;
    request.sampler = &sampler;
    request.max_tokens = n_answer;
    return weir_engine_submit(bench->engine, &request, 1, NULL, error);
}

static weir_status fill_queue(struct bench *bench, int32_t n_answer, weir_error *error)
{
    weir_engine_stats stats = {.size = sizeof stats};
    weir_status status = weir_engine_get_stats(bench->engine, &stats);
    for (int32_t n = stats.queue_depth; n < QUEUE && status == WEIR_OK; n++)
        status = submit_request(bench, n_answer, error);
    return status;
}

/* Looks, plans and does it; the times when they are wanted. */
static weir_status run_tick(struct bench *bench, bool measured, weir_error *error)
{
    weir_plan_entry plan[SLOTS_MAX];
    weir_report report = {.size = sizeof report};
    const weir_view *view;
    int64_t started = weir__clock_now_ns();
    weir_status status = weir_engine_view(bench->engine, &view, error);
    if (status != WEIR_OK) return status;
    size_t n = bench->strategy->plan(view, plan, bench->strategy->user);
    int64_t decided = weir__clock_now_ns();
    status = weir_engine_step(bench->engine, n > 0 ? plan : NULL, n, &report, error);
    if (!measured) return status;
    cli_spread_add(bench->decide, (double)(decided - started) / 1e3);
    cli_spread_add(bench->tick, (double)(report.tick_ns - report.decode_ns) / 1e3);
    return status;
}

/* Distinct prompts before the measurement: a prefix cache may keep some of them. */
static weir_status warm_up(struct bench *bench, weir_error *error)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && bench->n_submitted < (uint64_t)bench->args->n_nodes &&
           cli_signals_ended() == 0) {
        status = fill_queue(bench, 1, error);
        if (status == WEIR_OK) status = run_tick(bench, false, error);
    }
    /* Ticks run until every slot is busy, with requests as long as the measured ones. */
    for (int32_t i = 0; i < 2 * N_ANSWER && status == WEIR_OK && cli_signals_ended() == 0; i++) {
        status = fill_queue(bench, N_ANSWER, error);
        if (status == WEIR_OK) status = run_tick(bench, false, error);
    }
    return status;
}

static weir_status measure_ticks(struct bench *bench, weir_error *error)
{
    weir_engine_params params = bench->args->engine;
    params.n_ctx = 256;
    params.n_kv = params.n_slots * params.n_ctx;
    params.manual = true;
    params.n_draft_max = 0; /* the model cannot be guessed */
    bench->strategy = params.strategy != NULL ? params.strategy : weir_strategy_decode_maximal();
    weir_status status = weir_model_load(MODEL, NULL, &bench->model, error);
    if (status == WEIR_OK) status = weir_engine_create(bench->model, &params, &bench->engine, error);
    if (status == WEIR_OK) status = warm_up(bench, error);
    for (int32_t i = 0; i < bench->args->n_requests && status == WEIR_OK && cli_signals_ended() == 0; i++) {
        status = fill_queue(bench, N_ANSWER, error);
        if (status == WEIR_OK) status = run_tick(bench, true, error);
    }
    weir_engine_stats stats = {.size = sizeof stats};
    if (status == WEIR_OK) status = weir_engine_get_stats(bench->engine, &stats);
    bench->n_entries = stats.n_cache_entries;
    return status;
}

static json_t *spread_json(const cli_spread *spread)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", spread->n > 0 ? spread->sum / (double)spread->n : 0.0,
                     "p50", cli_spread_part(spread, 0.5), "p99", cli_spread_part(spread, 0.99), "max",
                     cli_spread_part(spread, 1));
}

static cli_exit check_args(const cli_args *args)
{
    if (args->words.n > 0)
        return cli_fail(CLI_USAGE, "weir bench schedule takes no %s", args->words.items[0]);
    if (args->engine.n_slots < 1 || args->engine.n_slots > SLOTS_MAX)
        return cli_fail(CLI_USAGE, "--slots is %d; allowed: 1 to %d", args->engine.n_slots, SLOTS_MAX);
    if (args->n_nodes < 0 || args->n_nodes > NODES_MAX)
        return cli_fail(CLI_USAGE, "--cache-nodes is %d; allowed: 0 to %d", args->n_nodes, NODES_MAX);
    if (args->n_requests < 1 || args->n_requests > TICKS_MAX)
        return cli_fail(CLI_USAGE, "--ticks is %d; allowed: 1 to %d", args->n_requests, TICKS_MAX);
    return CLI_OK;
}

cli_exit bench_schedule(cli_args *args)
{
    struct bench bench = {.args = args};
    weir_error error = {0};
    cli_exit code = check_args(args);
    if (code != CLI_OK) return code;
    bench.decide = cli_alloc(1, sizeof *bench.decide);
    bench.tick = cli_alloc(1, sizeof *bench.tick);
    if (measure_ticks(&bench, &error) != WEIR_OK)
        code = cli_fail_error(args, CLI_FAILED, "the measurement failed", &error);
    else
        bench_report(args,
                     json_pack("{s:i, s:s, s:i, s:i, s:I, s:o, s:o}", "slots", args->engine.n_slots,
                               "strategy", bench.strategy->name, "cache_nodes", args->n_nodes,
                               "cache_entries", bench.n_entries, "ticks", (json_int_t)bench.decide->n,
                               "decide_us", spread_json(bench.decide), "tick_us", spread_json(bench.tick)),
                     NULL, 0);
    weir_engine_destroy(bench.engine);
    weir_model_release(bench.model);
    cli_free(bench.decide);
    cli_free(bench.tick);
    return code;
}
