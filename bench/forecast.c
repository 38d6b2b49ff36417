/* forecast.c: forecasts of requests beside what came, and the ITL target while a long prompt arrives.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: forecast MODEL LAYOUT N_OTHERS N_REQUESTS N_LONG N_THREADS TARGET_MS
 *
 * N_OTHERS streams generate all the time. Beside them N_REQUESTS requests of random lengths (64 to 3,000
 * tokens, answers of 2 to 48) run one after the other, and at the end one of N_LONG tokens (0: none), with
 * the strategy latency-target. A line for each: tokens, then milliseconds to the first token and to the end,
 * forecast and real. The last lines: medians of the relative errors, how many are within 20 %, and the time
 * between the ends of ticks with the long prompt in them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

enum { MOST = 4096 };

static weir_model *model;
static weir_engine *engine;
static uint64_t dice = 1;
static double errors[2][MOST]; /* of the first token, of the end */
static int n_errors;

static void check(weir_status status, const char *what, const weir_error *error)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "forecast: %s: %s\n", what, error->message);
    exit(1);
}

static int32_t roll(int32_t low, int32_t high)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int32_t)((dice >> 33) % (uint64_t)(high - low + 1));
}

static weir_stream *submit(int32_t n_prompt, int32_t n_answer, weir_forecast *forecast)
{
    static int32_t tokens[1 << 17];
    weir_error error = {0};
    weir_stream *stream = NULL;
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    for (int32_t i = 0; i < n_prompt; i++) tokens[i] = roll(1000, 30000);
    sampler.temp = 0;
    sampler.ignore_eos = true;
    request.tokens = tokens;
    request.n_tokens = (size_t)n_prompt;
    request.sampler = &sampler;
    request.max_tokens = n_answer;
    if (forecast != NULL) check(weir_engine_plan_request(engine, &request, forecast, &error), "plan", &error);
    check(weir_stream_create(&stream, &error), "stream", &error);
    check(weir_engine_submit(engine, &request, 1, &stream, &error), "submit", &error);
    return stream;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part(double *values, int n, double p)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n > 0 ? values[(int)(p * (n - 1) + 0.5)] : 0;
}

static void probe(int32_t n_prompt, int32_t n_answer)
{
    weir_forecast forecast = {.size = sizeof forecast};
    weir_stream *stream = submit(n_prompt, n_answer, &forecast);
    weir_chunk chunk;
    do
        if (weir_stream_next(stream, -1, &chunk) != WEIR_OK) exit(1);
    while (!chunk.finished);
    weir_usage usage = weir_stream_usage(stream);
    weir_stream_release(stream);
    const double want[] = {(double)forecast.ttft_ns, (double)forecast.finish_ns},
                 got[] = {(double)usage.ttft_ns, (double)usage.total_ns};
    for (int i = 0; i < 2; i++) errors[i][n_errors] = want[i] / got[i] - 1;
    n_errors++;
    printf("%d,%d,%.0f,%.0f,%.0f,%.0f\n", n_prompt, n_answer, want[0] / 1e6, got[0] / 1e6, want[1] / 1e6,
           got[1] / 1e6);
    fflush(stdout);
}

/* Reads ticks up to the newest; the gaps between the ends of those with a prompt and streams. */
static int read_ticks(uint64_t *next, double *gaps)
{
    static weir_tick ticks[512];
    int n_gaps = 0;
    int64_t before = 0;
    size_t n;
    while (weir_engine_ticks(engine, *next, ticks, 512, &n) == WEIR_OK) {
        *next = ticks[n - 1].serial + 1;
        for (size_t i = 0; i < n; i++) {
            int64_t end = ticks[i].start_ns + ticks[i].tick_ns;
            if (ticks[i].n_prefill > 0 && ticks[i].n_decode > 0 && before > 0 && n_gaps < MOST)
                gaps[n_gaps++] = (double)(end - before) / 1e6;
            before = end;
        }
    }
    return n_gaps;
}

int main(int argc, char **argv)
{
    weir_engine_params params = weir_engine_params_default();
    weir_stream *others[64];
    weir_error error = {0};
    static double gaps[MOST];
    uint64_t next = 0;
    if (argc != 8) {
        fputs("usage: forecast MODEL LAYOUT N_OTHERS N_REQUESTS N_LONG N_THREADS TARGET_MS\n", stderr);
        return 2;
    }
    int n_others = atoi(argv[3]), n_requests = atoi(argv[4]), n_long = atoi(argv[5]);
    params.layout = strcmp(argv[2], "unified") == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    params.n_slots = n_others + 1;
    params.n_ctx = n_long > 4000 ? n_long + 512 : 8192;
    params.n_threads = atoi(argv[6]);
    params.n_draft_max = 0;
    params.strategy = weir_strategy_latency_target();
    params.itl_target_ms = atoi(argv[7]);
    check(weir_model_load(argv[1], NULL, &model, &error), argv[1], &error);
    check(weir_engine_create(model, &params, &engine, &error), "engine", &error);
    for (int i = 0; i < n_others; i++) others[i] = submit(roll(100, 900), params.n_ctx - 1000, NULL);
    for (int i = -4; i < n_requests; i++) {
        if (i == 0) n_errors = 0; /* the model of costs has seen some ticks */
        probe(roll(64, 3000), roll(2, 48));
    }
    for (int i = 0; i < 2 && n_errors > 0; i++) {
        int n_near = 0;
        for (int k = 0; k < n_errors; k++) {
            n_near += fabs(errors[i][k]) <= 0.2;
        }
        double middle = part(errors[i], n_errors, 0.5);
        for (int k = 0; k < n_errors; k++) errors[i][k] = fabs(errors[i][k]);
        printf("%s: median error %+.1f %%, absolute %.1f %%, %d of %d within 20 %%\n",
               i == 0 ? "first token" : "end", 100 * middle, 100 * part(errors[i], n_errors, 0.5), n_near,
               n_errors);
    }
    if (n_long > 0) {
        struct timespec pause = {.tv_nsec = 100000000};
        nanosleep(&pause, NULL);
        read_ticks(&next, gaps);
        probe(n_long, 2);
        nanosleep(&pause, NULL);
        int n = read_ticks(&next, gaps);
        printf("gaps with the long prompt: %d, p50 %.1f, p95 %.1f, most %.1f ms, target %s ms\n", n,
               part(gaps, n, 0.5), part(gaps, n, 0.95), part(gaps, n, 1), argv[7]);
    }
    for (int i = 0; i < n_others; i++) weir_stream_release(others[i]);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return 0;
}
