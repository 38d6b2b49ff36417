/* thread.c: threads of the library's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/resource.h>
#endif

#include "base/clock.h"
#include "base/mem.h"

#define NICENESS 10 /* a tenth of the processor beside a busy thread */

void weir__thread_quiet(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, before); /* cannot fail with these arguments */
}

void weir__thread_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int weir__thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *user),
                       void *user)
{
    sigset_t before;
    weir__thread_quiet(&before);
    int failed = pthread_create(thread, attributes, fn, user); /* it inherits the mask */
    weir__thread_restore(&before);
    return failed;
}

void weir__thread_name(const char *name)
{
#if defined(__linux__)
    prctl(PR_SET_NAME, name, 0, 0, 0);
#elif defined(__APPLE__)
    pthread_setname_np(name);
#else
    (void)name;
#endif
}

void weir__thread_yield(void)
{
#ifdef __linux__
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread, which those that it starts inherit */
#endif
}

static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

bool weir__thread_room(int32_t n)
{
    pthread_mutex_t gate;
    pthread_t threads[1024];
    int32_t made = 0;
    if (n > 1024 || pthread_mutex_init(&gate, NULL) != 0) return false;
    pthread_mutex_lock(&gate);
    while (made < n && weir__thread_start(&threads[made], NULL, wait_at, &gate) == 0) made++;
    pthread_mutex_unlock(&gate);
    for (int32_t i = 0; i < made; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&gate);
    return made == n;
}

/* ---- Helpers ---- */

bool weir__helper_start(weir__helper *helper, void *(*fn)(void *user), void *user)
{
    atomic_init(&helper->ending, false);
    if (pthread_mutex_init(&helper->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&helper->changed) != 0) goto no_cond;
    if (weir__thread_start(&helper->thread, NULL, fn, user) == 0) return true;
    pthread_cond_destroy(&helper->changed);
no_cond:
    pthread_mutex_destroy(&helper->mutex);
    return false;
}

void weir__helper_join(weir__helper *helper)
{
    pthread_mutex_lock(&helper->mutex);
    atomic_store(&helper->ending, true);
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
    pthread_join(helper->thread, NULL);
}

void weir__helper_fini(weir__helper *helper)
{
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->mutex);
}

/* ---- Thread pools ---- */

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
