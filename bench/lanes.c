/* lanes.c: what several answers, logprobs and forks cost, in one engine and by turns: lanes MODEL REPEATS
 * [cpu].
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each repeat prints one line of numbers, milliseconds, with `cpu` of the process's time instead of the
 * clock's: a prompt of 512 tokens and the first token of 1 answer, the same with 8 answers, the same with the
 * prompt's logprobs (top 5); 1 answer and 8 in an engine that keeps nothing in host memory, so that only what
 * the answers themselves need is done; 128 tokens of 1 stream without and with logprobs (top 5), and of 4
 * streams; the first token of a request with those 512 tokens and 64 more, and of a fork of one that has
 * them. Every prompt is one that the engine has never seen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#define N_PROMPT 512
#define N_SHORT  16
#define N_TOKENS 128
#define N_FORK   64
#define N_BEST   8

static weir_engine *engine;
static weir_sampler_params greedy;
static uint64_t dice = 1;
static int32_t n_vocab;
static clockid_t clock_id = CLOCK_MONOTONIC;

static void need(weir_status status, const weir_error *error)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "lanes: %s: %s\n", weir_status_name(status), error->message);
    exit(1);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(clock_id, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void fill(int32_t *prompt, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        prompt[i] = 300 + (int32_t)((dice >> 33) % (uint64_t)(n_vocab - 400));
    }
}

static weir_request ask(const int32_t *prompt, size_t n, int32_t max_tokens)
{
    weir_request request = weir_request_default();
    request.tokens = prompt;
    request.n_tokens = n;
    request.max_tokens = max_tokens;
    request.sampler = &greedy;
    return request;
}

static void run(weir_stream *const *streams, int n)
{
    weir_error error = {0};
    for (int i = 0; i < n; i++)
        while (!weir_stream_finished(streams[i]))
            need(weir_engine_step(engine, NULL, 0, NULL, &error), &error);
}

/* n answers of the request, from its submit to the end of all. */
static double answer(const weir_request *request, int n)
{
    weir_stream *streams[N_BEST];
    weir_error error = {0};
    for (int i = 0; i < n; i++) need(weir_stream_create(&streams[i], &error), &error);
    double start = now_ms();
    need(weir_engine_submit_n(engine, request, (size_t)n, streams, &error), &error);
    run(streams, n);
    double ms = now_ms() - start;
    for (int i = 0; i < n; i++) weir_stream_release(streams[i]);
    return ms;
}

/* Of a prompt of its own. */
static double prefill(int n, bool scored)
{
    static int32_t prompt[N_PROMPT];
    fill(prompt, N_PROMPT);
    weir_request request = ask(prompt, N_PROMPT, 1);
    request.n_prompt_logprobs = scored ? 5 : 0;
    return answer(&request, n);
}

static double decode(int n, bool scored)
{
    int32_t prompt[N_SHORT];
    fill(prompt, N_SHORT);
    weir_request request = ask(prompt, N_SHORT, N_TOKENS);
    request.n_logprobs = scored ? 5 : 0;
    return answer(&request, n);
}

static void fork_one(double *fresh, double *forked)
{
    static int32_t prompt[N_PROMPT + N_FORK];
    weir_stream *streams[2];
    weir_error error = {0};
    fill(prompt, N_PROMPT + N_FORK);
    weir_request request = ask(prompt, N_PROMPT + N_FORK, 1);
    *fresh = answer(&request, 1);
    fill(prompt, N_PROMPT);
    request = ask(prompt, N_PROMPT, N_TOKENS);
    for (int i = 0; i < 2; i++) need(weir_stream_create(&streams[i], &error), &error);
    need(weir_engine_submit(engine, &request, 1, &streams[0], &error), &error);
    while (weir_stream_usage(streams[0]).n_generated < N_FORK)
        need(weir_engine_step(engine, NULL, 0, NULL, &error), &error);
    request = ask(NULL, 0, 1);
    double start = now_ms();
    need(weir_engine_fork(engine, streams[0], -1, &request, streams[1], &error), &error);
    run(&streams[1], 1);
    *forked = now_ms() - start;
    run(streams, 1);
    for (int i = 0; i < 2; i++) weir_stream_release(streams[i]);
}

int main(int argc, char **argv)
{
    weir_model *model = NULL;
    weir_error error = {0};
    weir_model_info info = {.size = sizeof info};
    weir_engine_params params = weir_engine_params_default();
    long repeats = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    bool cpu = argc == 4 && strcmp(argv[3], "cpu") == 0;
    if (repeats < 1 || argc > 3 + cpu) {
        fputs("usage: lanes MODEL REPEATS [cpu]\n", stderr);
        return 2;
    }
    if (cpu) clock_id = CLOCK_PROCESS_CPUTIME_ID;
    need(weir_model_load(argv[1], NULL, &model, &error), &error);
    weir_model_describe(model, &info);
    n_vocab = info.n_vocab;
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
    greedy.ignore_eos = true;
    params.manual = true;
    params.n_slots = N_BEST;
    params.n_ctx = 1024;
    params.n_draft_max = 0; /* a token a tick: what else varies is not what is measured */
    weir_engine *keeping, *bare;
    need(weir_engine_create(model, &params, &keeping, &error), &error);
    params.cache_bytes = 0;
    need(weir_engine_create(model, &params, &bare, &error), &error);
    engine = bare;
    prefill(N_BEST, false); /* warm, as is what follows */
    engine = keeping;
    prefill(N_BEST, true);
    decode(4, true);
    for (long i = 0; i < repeats; i++) {
        double fresh, forked, one = prefill(1, false), eight = prefill(N_BEST, false),
                              scored = prefill(1, true);
        engine = bare;
        double bare_one = prefill(1, false), bare_eight = prefill(N_BEST, false);
        engine = keeping;
        double d1 = decode(1, false), l1 = decode(1, true), d4 = decode(4, false), l4 = decode(4, true);
        fork_one(&fresh, &forked);
        printf("%.3f %.3f %.3f %.3f %.3f %.3f %.3f %.3f %.3f %.3f %.3f\n", one, eight, scored, bare_one,
               bare_eight, d1, l1, d4, l4, fresh, forked);
        fflush(stdout);
    }
    weir_engine_destroy(bare);
    weir_engine_destroy(keeping);
    weir_model_release(model);
    return 0;
}
