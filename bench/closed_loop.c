/* closed_loop.c: weir's engine from C, under the load that elixir/bench/server.exs puts on Weir.Server.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: closed_loop MODEL N_SLOTS N_CTX N_BATCH MAX_TOKENS; each line of standard input is CONCURRENCY
 * N_REQUESTS. CONCURRENCY threads take requests from 0 to N_REQUESTS - 1 and read their streams chunk by
 * chunk; then comes a line: tokens generated, nanoseconds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weir/weir.h>

#define THREADS_MAX 256

struct load {
    weir_engine *engine;
    int32_t max_tokens;
    long n_requests;
    atomic_long next, n_tokens, n_failed;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The same prompt as in server.exs. */
static bool ask(struct load *load, long i)
{
    char prompt[128];
    weir_stream *stream = NULL;
    weir_chunk chunk = {.finished = false};
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    sampler.temp = 0;
    snprintf(prompt, sizeof prompt, "Story number %ld. Once upon a time, in a land far away, there", i);
    request.text = prompt;
    request.sampler = &sampler;
    request.max_tokens = load->max_tokens;
    request.cache_prompt = false;
    if (weir_stream_create(&stream, NULL) != WEIR_OK) return false;
    bool good = weir_engine_submit(load->engine, &request, 1, &stream, NULL) == WEIR_OK;
    while (good && !chunk.finished) {
        good = weir_stream_next(stream, -1, &chunk) == WEIR_OK;
        if (good) atomic_fetch_add(&load->n_tokens, (long)chunk.n_tokens);
    }
    weir_stream_release(stream);
    return good;
}

static void *client(void *user)
{
    struct load *load = user;
    long i;
    while ((i = atomic_fetch_add(&load->next, 1)) < load->n_requests)
        if (!ask(load, i)) atomic_fetch_add(&load->n_failed, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    weir_model *model = NULL;
    weir_error error = {0};
    struct load load = {.engine = NULL};
    weir_engine_params params = weir_engine_params_default();
    long n_threads, n_requests;
    int status = 1;
    if (argc != 6) {
        fputs("usage: closed_loop MODEL N_SLOTS N_CTX N_BATCH MAX_TOKENS\n", stderr);
        return 2;
    }
    params.n_slots = atoi(argv[2]);
    params.n_ctx = params.n_kv = atoi(argv[3]);
    params.n_batch = atoi(argv[4]);
    params.queue_limit = 0;
    params.n_draft_max = 0; /* each token is to be computed for itself */
    load.max_tokens = atoi(argv[5]);
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) goto done;
    if (weir_engine_create(model, &params, &load.engine, &error) != WEIR_OK) goto done;
    while (scanf("%ld %ld", &n_threads, &n_requests) == 2) {
        pthread_t threads[THREADS_MAX];
        if (n_threads < 1 || n_threads > THREADS_MAX) goto done;
        load.n_requests = n_requests;
        atomic_store(&load.next, 0);
        atomic_store(&load.n_tokens, 0);
        int64_t start = now_ns();
        for (long i = 0; i < n_threads; i++)
            if (pthread_create(&threads[i], NULL, client, &load) != 0) abort();
        for (long i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
        int64_t end = now_ns();
        if (atomic_load(&load.n_failed) > 0) goto done;
        printf("%ld %lld\n", atomic_load(&load.n_tokens), (long long)(end - start));
        fflush(stdout);
    }
    status = 0;
done:
    if (status != 0) fprintf(stderr, "closed_loop: %s\n", error.message);
    weir_engine_destroy(load.engine);
    weir_model_release(model);
    return status;
}
