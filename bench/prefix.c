/* prefix.c: streams that begin with the same tokens.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: prefix MODEL LAYOUT N_STREAMS N_PREFIX N_OWN N_ANSWER N_THREADS ROUNDS
 *
 * Requests with N_PREFIX random tokens in common and N_OWN of their own arrive together. Per round: layout,
 * seconds until the last answer has ended, tokens per second of ticks without prompts, and a checksum of the
 * answers. LAYOUT is unified or per_slot. Needs only weir.h, so that it also builds beside older versions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

static void die(const char *what, const weir_error *error)
{
    fprintf(stderr, "prefix: %s: %s\n", what, error != NULL ? error->message : "failed");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void fill(int32_t *tokens, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        tokens[i] = (int32_t)(1000 + (*state >> 33) % 30000);
    }
}

/* Ticks that computed no prompt. */
static double decode_rate(weir_engine *engine, uint64_t *next)
{
    static weir_tick ticks[512];
    double n_tokens = 0, ns = 0;
    size_t n;
    while (weir_engine_ticks(engine, *next, ticks, 512, &n) == WEIR_OK) {
        *next = ticks[n - 1].serial + 1;
        for (size_t i = 0; i < n; i++) {
            if (ticks[i].n_prefill > 0 || ticks[i].n_decode == 0) continue;
            n_tokens += ticks[i].n_decode;
            ns += (double)ticks[i].tick_ns;
        }
    }
    return ns > 0 ? n_tokens * 1e9 / ns : 0;
}

int main(int argc, char **argv)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_error error = {0};
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_engine_params params = weir_engine_params_default();
    uint64_t state = 1, next = 0;

    if (argc != 9) die("usage: prefix MODEL LAYOUT N_STREAMS N_PREFIX N_OWN N_ANSWER N_THREADS ROUNDS", NULL);
    size_t n_streams = strtoul(argv[3], NULL, 10), n_prefix = strtoul(argv[4], NULL, 10);
    size_t n_prompt = n_prefix + strtoul(argv[5], NULL, 10);
    weir_request *requests = calloc(n_streams, sizeof *requests);
    weir_result *results = calloc(n_streams, sizeof *results);
    int32_t *tokens = calloc(n_streams * n_prompt, sizeof *tokens);
    if (requests == NULL || results == NULL || tokens == NULL) die("memory", NULL);
    greedy.temp = 0;
    greedy.ignore_eos = true;
    params.layout = strcmp(argv[2], "unified") == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    params.n_slots = (int32_t)n_streams;
    params.n_ctx = (int32_t)((n_prompt + strtoul(argv[6], NULL, 10) + 256) / 256 * 256);
    params.n_threads = (int32_t)strtol(argv[7], NULL, 10);
    params.n_draft_max = 0;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) die(argv[1], &error);
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) die("engine", &error);
    for (long round = strtol(argv[8], NULL, 10); round > 0; round--) {
        struct timespec pause = {.tv_nsec = 20000000}; /* the last tick's record may come after its chunks */
        uint64_t sum = 0;
        fill(tokens, n_prefix, &state);
        for (size_t i = 0; i < n_streams; i++) {
            memmove(tokens + i * n_prompt, tokens, n_prefix * sizeof *tokens);
            fill(tokens + i * n_prompt + n_prefix, n_prompt - n_prefix, &state);
            requests[i] = weir_request_default();
            requests[i].tokens = tokens + i * n_prompt;
            requests[i].n_tokens = n_prompt;
            requests[i].sampler = &greedy;
            requests[i].max_tokens = (int32_t)strtol(argv[6], NULL, 10);
        }
        int64_t ns = -now_ns();
        if (weir_generate(engine, requests, n_streams, NULL, results, &error) != WEIR_OK)
            die("generate", &error);
        ns += now_ns();
        nanosleep(&pause, NULL);
        for (size_t i = 0; i < n_streams; i++) {
            for (size_t t = 0; t < results[i].n_tokens; t++)
                sum = sum * 31 + (uint64_t)(uint32_t)results[i].tokens[t];
            weir_result_fini(&results[i]);
        }
        printf("%s,%.3f,%.1f,%016llx\n", argv[2], (double)ns / 1e9, decode_rate(engine, &next),
               (unsigned long long)sum);
        fflush(stdout);
    }
    weir_engine_destroy(engine);
    weir_model_release(model);
    free(tokens);
    free(results);
    free(requests);
    return 0;
}
