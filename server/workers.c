/* workers.c: threads that read, render and write what would keep the service thread too long.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/thread.h"
#include "serve.h"

struct serve_workers {
    pthread_mutex_t mutex; /* all below but n and threads */
    pthread_cond_t work;
    serve_call *first, *last;
    bool stopping;
    int32_t n;
    pthread_t threads[];
};

static serve_call *take(serve_workers *workers)
{
    serve_call *call = NULL;
    pthread_mutex_lock(&workers->mutex);
    while (workers->first == NULL && !workers->stopping) pthread_cond_wait(&workers->work, &workers->mutex);
    if (!workers->stopping) {
        call = workers->first;
        workers->first = call->next_job;
        if (workers->first == NULL) workers->last = NULL;
    }
    pthread_mutex_unlock(&workers->mutex);
    return call;
}

static void *run(void *user)
{
    serve_call *call;
    weir__thread_name("weir-work");
    while ((call = take(user)) != NULL) {
        if (!atomic_load_explicit(&call->gone, memory_order_acquire)) call->job(call);
        serve_server_post(call);
    }
    return NULL;
}

serve_workers *serve_workers_create(int32_t n)
{
    serve_workers *workers = weir__mem_calloc(1, sizeof *workers + (size_t)n * sizeof *workers->threads);
    if (workers == NULL) return NULL;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->work, NULL);
    while (workers->n < n && weir__thread_start(&workers->threads[workers->n], NULL, run, workers) == 0)
        workers->n++;
    if (workers->n > 0) return workers;
    serve_workers_destroy(workers);
    return NULL;
}

void serve_workers_destroy(serve_workers *workers)
{
    if (workers == NULL) return;
    pthread_mutex_lock(&workers->mutex);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->mutex);
    for (int32_t i = 0; i < workers->n; i++) pthread_join(workers->threads[i], NULL);
    for (serve_call *call = workers->first, *next; call != NULL; call = next) {
        next = call->next_job;
        serve_server_post(call);
    }
    pthread_cond_destroy(&workers->work);
    pthread_mutex_destroy(&workers->mutex);
    weir__mem_free(workers);
}

void serve_workers_give(serve_workers *workers, serve_call *call, void (*job)(serve_call *call))
{
    call->state = SERVE_WORKING;
    call->job = job;
    call->next_job = NULL;
    pthread_mutex_lock(&workers->mutex);
    if (workers->last != NULL)
        workers->last->next_job = call;
    else
        workers->first = call;
    workers->last = call;
    pthread_cond_signal(&workers->work);
    pthread_mutex_unlock(&workers->mutex);
}
