/* waker.c: wakes the thread that drives an engine; knows which engines the calling thread drives itself; and
 * ends waits for a manual engine that no thread drives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/waker.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- Waking ---- */

struct weir__waker {
    atomic_int refs;
    atomic_uint cancels;
    pthread_mutex_t mutex; /* protects woken; nothing else is ever locked under it */
    pthread_cond_t cond;
    bool woken;
    pid_t process;       /* that created it */
    int64_t patience_ns; /* 0: the engine has a thread of its own */
    atomic_uint drives;  /* odd while a thread drives a manual engine */
};

weir_status weir__waker_create(weir__waker **out)
{
    weir__waker *waker = weir__mem_calloc(1, sizeof *waker);
    if (waker == NULL) return WEIR_NO_MEMORY;
    atomic_init(&waker->refs, 1);
    waker->process = getpid();
    if (pthread_mutex_init(&waker->mutex, NULL) != 0) goto no_mutex;
    if (weir__clock_cond_init(&waker->cond) != 0) goto no_cond;
    *out = waker;
    return WEIR_OK;
no_cond:
    pthread_mutex_destroy(&waker->mutex);
no_mutex:
    weir__mem_free(waker);
    return WEIR_NO_MEMORY;
}

weir__waker *weir__waker_hold(weir__waker *waker)
{
    atomic_fetch_add_explicit(&waker->refs, 1, memory_order_relaxed);
    return waker;
}

void weir__waker_release(weir__waker *waker)
{
    if (waker == NULL || atomic_fetch_sub_explicit(&waker->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_cond_destroy(&waker->cond);
    pthread_mutex_destroy(&waker->mutex);
    weir__mem_free(waker);
}

bool weir__waker_is_inherited(const weir__waker *waker)
{
    return waker->process != getpid();
}

void weir__waker_wake(weir__waker *waker)
{
    if (weir__waker_is_inherited(waker))
        return; /* nobody waits in a child, and fork() may have left the mutex locked */
    pthread_mutex_lock(&waker->mutex);
    waker->woken = true;
    pthread_cond_signal(&waker->cond);
    pthread_mutex_unlock(&waker->mutex);
}

void weir__waker_cancel(weir__waker *waker)
{
    atomic_fetch_add_explicit(&waker->cancels, 1, memory_order_release);
    weir__waker_wake(waker);
}

uint32_t weir__waker_cancels(const weir__waker *waker)
{
    return atomic_load_explicit(&waker->cancels, memory_order_acquire);
}

void weir__waker_wait(weir__waker *waker, int64_t deadline_ns)
{
    pthread_mutex_lock(&waker->mutex);
    while (!waker->woken)
        if (weir__clock_cond_wait(&waker->cond, &waker->mutex, deadline_ns) == ETIMEDOUT) break;
    waker->woken = false;
    pthread_mutex_unlock(&waker->mutex);
}

/* ---- Who may wait for whom ---- */

static _Thread_local const weir__driving *innermost;

void weir__driving_begin(weir__driving *driving, const weir__waker *waker)
{
    driving->waker = waker;
    driving->outer = innermost;
    innermost = driving;
}

void weir__driving_end(const weir__driving *driving)
{
    innermost = driving->outer;
}

bool weir__driving_here(const weir__waker *waker)
{
    const weir__driving *at = innermost;
    while (at != NULL && at->waker != waker) at = at->outer;
    return at != NULL;
}

bool weir__waker_may_wait(const weir__waker *waker)
{
    return !weir__driving_here(waker) && !weir__waker_is_inherited(waker);
}

void weir__waker_be_manual(weir__waker *waker, int64_t patience_ns)
{
    waker->patience_ns = patience_ns;
}

void weir__waker_note_drive(weir__waker *waker)
{
    atomic_fetch_add(&waker->drives, 1);
}

int weir__waker_await(weir__waker *waker, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    if (deadline_ns != WEIR__CLOCK_NEVER || waker->patience_ns == 0)
        return weir__clock_cond_wait(cond, mutex, deadline_ns);
    weir__waker_hold(waker); /* while the mutex is free, the caller may lose it */
    unsigned before = atomic_load(&waker->drives);
    int woken = weir__clock_cond_wait(cond, mutex, weir__clock_now_ns() + waker->patience_ns);
    if (woken == ETIMEDOUT) woken = before % 2 == 0 && atomic_load(&waker->drives) == before ? EDEADLK : 0;
    weir__waker_release(waker);
    return woken;
}

void weir__waker_log_undriven(const char *call)
{
    weir__log(WEIR_LOG_ERROR,
              "%s stops waiting: no thread drives the manual engine. Call weir_engine_step on another "
              "thread, or take chunks with timeout 0 between steps",
              call);
}
