/* schedule.c: what strategies do to running streams when a long prompt arrives, and how well ticks are
 * foretold.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: schedule MODEL [THREADS [ROUNDS [SECONDS]]]
 *
 * First, for each strategy in turn: four streams run, then a prompt of 1,242 tokens comes. Printed are
 * medians over the rounds: the worst gap between two tokens of a running stream, the prompt's time to first
 * token, the time until all have ended. Then, for each layout: requests of random lengths come and go for
 * SECONDS, and each tick's time is compared with what the cost model said before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "base/clock.h"

#define N_RUNNING   4
#define RUNNING     32   /* prompt tokens of a running stream */
#define ANSWER      100  /* and of its answer */
#define LATE        1242 /* prompt tokens of the late one */
#define LATE_ANSWER 16
#define BEFORE      20 /* ticks before it comes */
#define TARGET_MS   50
#define MOST        64 /* rounds */
#define N_SLOTS     8
#define MOST_TICKS  200000

static weir_model *model;
static int32_t n_threads;
static uint64_t random_state = 1;

static uint32_t roll(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* MMIX */
    return (uint32_t)(random_state >> 33);
}

static void must(weir_status status, const weir_error *error)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "schedule: %s: %s\n", error->field, error->message);
    exit(1);
}

static weir_engine *engine_of(const weir_strategy *strategy, weir_layout layout)
{
    weir_error error = {0};
    weir_engine *engine = NULL;
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N_SLOTS;
    params.n_draft_max = 0; /* each token is to be computed for itself */
    params.n_ctx = 2048;
    params.n_threads = n_threads;
    params.strategy = strategy;
    params.itl_target_ms = TARGET_MS;
    params.layout = layout;
    params.manual = true;
    must(weir_engine_create(model, &params, &engine, &error), &error);
    return engine;
}

static weir_stream *start(weir_engine *engine, int32_t n_prompt, int32_t n_answer)
{
    static int32_t tokens[2048];
    weir_model_info info = {.size = sizeof info};
    weir_error error = {0};
    weir_stream *stream = NULL;
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_model_describe(model, &info);
    for (int32_t i = 0; i < n_prompt; i++)
        tokens[i] = 100 + (int32_t)(roll() % (uint32_t)(info.n_vocab - 100));
    sampler.temp = 0;
    sampler.ignore_eos = true;
    request.tokens = tokens;
    request.n_tokens = (size_t)n_prompt;
    request.sampler = &sampler;
    request.max_tokens = n_answer;
    must(weir_stream_create(&stream, &error), &error);
    must(weir_engine_submit(engine, &request, 1, &stream, &error), &error);
    return stream;
}

static double median(double *values, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && values[k - 1] > values[k]; k--) {
            double value = values[k];
            values[k] = values[k - 1];
            values[k - 1] = value;
        }
    return values[n / 2];
}

/* ---- A late prompt ---- */

typedef struct run {
    double gap_ms, ttft_ms, total_ms;
} run;

/* One tick, and what it means for the gaps of the running streams. */
static bool step(weir_engine *engine, weir_stream **streams, int64_t *last, int32_t *n_tokens, double *gap_ms)
{
    weir_report report = {.size = sizeof report};
    weir_error error = {0};
    must(weir_engine_step(engine, NULL, 0, &report, &error), &error);
    int64_t now = weir__clock_now_ns();
    for (int i = 0; i < N_RUNNING; i++) {
        int32_t n = weir_stream_usage(streams[i]).n_generated;
        if (n == n_tokens[i]) continue;
        double gap = (double)(now - last[i]) / 1e6;
        if (n_tokens[i] > 0 && gap > *gap_ms) *gap_ms = gap;
        n_tokens[i] = n;
        last[i] = now;
    }
    return report.n_active > 0 || report.queue_depth > 0;
}

static run late_prompt(const weir_strategy *strategy, bool is_late)
{
    weir_engine *engine = engine_of(strategy, WEIR_LAYOUT_AUTO);
    weir_stream *streams[N_RUNNING + 1] = {NULL};
    int64_t last[N_RUNNING] = {0};
    int32_t n_tokens[N_RUNNING] = {0};
    run r = {.gap_ms = 0};
    bool working = true;
    for (int i = 0; i < N_RUNNING; i++) streams[i] = start(engine, RUNNING, ANSWER);
    for (int i = 0; i < BEFORE; i++) step(engine, streams, last, n_tokens, &r.gap_ms);
    r.gap_ms = 0;
    int64_t begun = weir__clock_now_ns();
    if (is_late) streams[N_RUNNING] = start(engine, LATE, LATE_ANSWER);
    while (working) working = step(engine, streams, last, n_tokens, &r.gap_ms);
    r.total_ms = (double)(weir__clock_now_ns() - begun) / 1e6;
    if (is_late) r.ttft_ms = (double)weir_stream_usage(streams[N_RUNNING]).ttft_ns / 1e6;
    for (int i = 0; i <= N_RUNNING; i++) weir_stream_release(streams[i]);
    weir_engine_destroy(engine);
    return r;
}

static void late_prompts(int n_rounds)
{
    static run runs[5][MOST];
    late_prompt(weir_strategy_get(0), true); /* warms up */
    for (int round = 0; round < n_rounds; round++)
        for (int i = 0; i < 5; i++)
            runs[i][round] = late_prompt(weir_strategy_get(i < 4 ? (size_t)i : 0), i < 4);
    printf("%d streams run, a prompt of %d tokens comes; target %d ms; medians of %d\n", N_RUNNING, LATE,
           TARGET_MS, n_rounds);
    printf("%-18s %12s %8s %9s\n", "strategy", "worst gap ms", "TTFT ms", "total ms");
    for (int i = 0; i < 5; i++) {
        double gap[MOST], ttft[MOST], total[MOST];
        for (int round = 0; round < n_rounds; round++) {
            gap[round] = runs[i][round].gap_ms;
            ttft[round] = runs[i][round].ttft_ms;
            total[round] = runs[i][round].total_ms;
        }
        printf("%-18s %12.1f %8.0f %9.0f\n", i < 4 ? weir_strategy_get((size_t)i)->name : "(no late prompt)",
               median(gap, n_rounds), median(ttft, n_rounds), median(total, n_rounds));
    }
}

/* ---- Foretelling ---- */

enum { DECODES, MIXED, PREFILLS, N_KINDS };

static double ratios[N_KINDS][MOST_TICKS]; /* actual by predicted */
static int n_ratios[N_KINDS];

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void foretell(weir_engine *engine, const weir_strategy *strategy)
{
    const weir_view *view;
    weir_plan_entry plan[N_SLOTS];
    weir_report report = {.size = sizeof report};
    weir_error error = {0};
    must(weir_engine_view(engine, &view, &error), &error);
    size_t n = strategy->plan(view, plan, strategy->user);
    double predicted = weir_plan_tick_ns(view, plan, n);
    bool known = view->cost.n_ticks >= 10;
    must(weir_engine_step(engine, plan, n, &report, &error), &error);
    if (report.idle || !known) return;
    int kind = report.n_prefill == 0 ? DECODES : report.n_decode == 0 ? PREFILLS : MIXED;
    if (n_ratios[kind] < MOST_TICKS) ratios[kind][n_ratios[kind]++] = (double)report.tick_ns / predicted;
}

static void random_load(const weir_strategy *strategy, weir_layout layout, double seconds)
{
    static const char *const names[] = {"decodes", "mixed", "prefills"}, *const layouts[] = {
                                                                             "auto", "unified", "per_slot"};
    weir_engine *engine = engine_of(strategy, layout);
    weir_stream *streams[N_SLOTS] = {NULL};
    int64_t end = weir__clock_now_ns() + (int64_t)(seconds * 1e9);
    memset(n_ratios, 0, sizeof n_ratios);
    random_state = 7;
    while (weir__clock_now_ns() < end) {
        for (int i = 0; i < N_SLOTS; i++) {
            if (streams[i] != NULL && weir_stream_finished(streams[i])) {
                weir_stream_release(streams[i]);
                streams[i] = NULL;
            }
            if (streams[i] == NULL && roll() % 64 == 0)
                streams[i] = start(engine, 8 + (int32_t)(roll() % (roll() % 4 == 0 ? 1500u : 200u)),
                                   8 + (int32_t)(roll() % 200));
        }
        foretell(engine, strategy);
    }
    weir_engine_destroy(engine);
    for (int i = 0; i < N_SLOTS; i++) weir_stream_release(streams[i]);
    for (int kind = 0; kind < N_KINDS; kind++) {
        int n = n_ratios[kind];
        if (n == 0) continue;
        qsort(ratios[kind], (size_t)n, sizeof **ratios, by_value);
        printf("%-16s %-9s %-9s %6d", strategy->name, layouts[layout], names[kind], n);
        static const double parts[] = {0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
        for (int i = 0; i < 6; i++) printf(" %6.2f", ratios[kind][(int)(parts[i] * (n - 1))]);
        printf("\n");
    }
}

int main(int n, char **words)
{
    weir_error error = {0};
    if (n < 2) {
        fputs("usage: schedule MODEL [THREADS [ROUNDS [SECONDS]]]\n", stderr);
        return 2;
    }
    n_threads = n > 2 ? atoi(words[2]) : 0;
    int n_rounds = n > 3 ? atoi(words[3]) : 5;
    double seconds = n > 4 ? atof(words[4]) : 10;
    if (n_rounds > MOST) n_rounds = MOST;
    must(weir_model_load(words[1], NULL, &model, &error), &error);
    if (n_rounds > 0) late_prompts(n_rounds);
    printf("\nticks of a random load: actual time by predicted\n");
    printf("%-16s %-9s %-9s %6s %6s %6s %6s %6s %6s %6s\n", "strategy", "layout", "kind", "ticks", "p5",
           "p25", "p50", "p75", "p95", "p99");
    for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        random_load(weir_strategy_latency_target(), (weir_layout)layout, seconds);
        random_load(weir_strategy_decode_maximal(), (weir_layout)layout, seconds);
    }
    weir_model_release(model);
    return 0;
}
