/* thread_pool.c: a thread pool that helps its caller.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/thread.h"

/* `mutex` protects the members after it up to `next`. A round is open while its caller hands out work;
 * helpers join open rounds only, so the caller waits for those that have joined and never for one that still
 * sleeps.
 */
struct weir__thread_pool {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* a round has begun, or the pool ends */
    pthread_cond_t done; /* n_inside became 0 */
    bool open, ending;
    uint64_t round;
    int32_t n_inside; /* helpers in this round */
    void (*fn)(void *user, int32_t i);
    void *user;
    int32_t n;

    _Atomic int32_t next; /* may pass n */
    int32_t n_helpers;
    pthread_t helpers[];
};

static void take_part(weir__thread_pool *pool)
{
    int32_t i;
    while ((i = atomic_fetch_add(&pool->next, 1)) < pool->n) pool->fn(pool->user, i);
}

static void *help_pool(void *argument)
{
    weir__thread_pool *pool = argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->mutex);
    while (!pool->ending) {
        if (!pool->open || pool->round == seen) {
            pthread_cond_wait(&pool->work, &pool->mutex);
            continue;
        }
        seen = pool->round;
        pool->n_inside++;
        pthread_mutex_unlock(&pool->mutex);
        take_part(pool);
        pthread_mutex_lock(&pool->mutex);
        if (--pool->n_inside == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

weir__thread_pool *weir__thread_pool_create(int32_t n_helpers)
{
    weir__thread_pool *pool = weir__mem_calloc(1, sizeof *pool + (size_t)n_helpers * sizeof pool->helpers[0]);
    if (pool == NULL) return NULL;
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) goto no_mutex;
    if (pthread_cond_init(&pool->work, NULL) != 0) goto no_work;
    if (pthread_cond_init(&pool->done, NULL) != 0) goto no_done;
    while (pool->n_helpers < n_helpers &&
           weir__thread_start(&pool->helpers[pool->n_helpers], NULL, help_pool, pool) == 0)
        pool->n_helpers++;
    return pool;

no_done:
    pthread_cond_destroy(&pool->work);
no_work:
    pthread_mutex_destroy(&pool->mutex);
no_mutex:
    weir__mem_free(pool);
    return NULL;
}

void weir__thread_pool_destroy(weir__thread_pool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->mutex);
    pool->ending = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int32_t i = 0; i < pool->n_helpers; i++) pthread_join(pool->helpers[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    weir__mem_free(pool);
}

void weir__thread_pool_run(weir__thread_pool *pool, void (*fn)(void *user, int32_t i), void *user, int32_t n)
{
    pthread_mutex_lock(&pool->mutex);
    pool->fn = fn;
    pool->user = user;
    pool->n = n;
    atomic_store(&pool->next, 0);
    pool->open = true;
    pool->round++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    take_part(pool);
    pthread_mutex_lock(&pool->mutex);
    pool->open = false;
    while (pool->n_inside > 0) pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
