/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/doorbell.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

struct weir__doorbell {
    atomic_int refs;
    atomic_uint cancels;
    pthread_mutex_t mutex; /* protects rung; nothing else is ever locked under it */
    pthread_cond_t cond;
    bool rung;
    pid_t process; /* that created it */
};

weir_status weir__doorbell_create(weir__doorbell **out)
{
    weir__doorbell *bell = weir__mem_calloc(1, sizeof *bell);
    if (bell == NULL) return WEIR_NO_MEMORY;
    atomic_init(&bell->refs, 1);
    bell->process = getpid();
    if (pthread_mutex_init(&bell->mutex, NULL) != 0) goto no_mutex;
    if (weir__clock_cond_init(&bell->cond) != 0) goto no_cond;
    *out = bell;
    return WEIR_OK;
no_cond:
    pthread_mutex_destroy(&bell->mutex);
no_mutex:
    weir__mem_free(bell);
    return WEIR_NO_MEMORY;
}

weir__doorbell *weir__doorbell_hold(weir__doorbell *bell)
{
    atomic_fetch_add_explicit(&bell->refs, 1, memory_order_relaxed);
    return bell;
}

void weir__doorbell_release(weir__doorbell *bell)
{
    if (bell == NULL || atomic_fetch_sub_explicit(&bell->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_cond_destroy(&bell->cond);
    pthread_mutex_destroy(&bell->mutex);
    weir__mem_free(bell);
}

bool weir__doorbell_is_inherited(const weir__doorbell *bell)
{
    return bell->process != getpid();
}

void weir__doorbell_ring(weir__doorbell *bell)
{
    if (weir__doorbell_is_inherited(bell))
        return; /* nobody waits in a child, and fork() may have left the mutex locked */
    pthread_mutex_lock(&bell->mutex);
    bell->rung = true;
    pthread_cond_signal(&bell->cond);
    pthread_mutex_unlock(&bell->mutex);
}

void weir__doorbell_cancel(weir__doorbell *bell)
{
    atomic_fetch_add_explicit(&bell->cancels, 1, memory_order_release);
    weir__doorbell_ring(bell);
}

uint32_t weir__doorbell_cancels(const weir__doorbell *bell)
{
    return atomic_load_explicit(&bell->cancels, memory_order_acquire);
}

void weir__doorbell_wait(weir__doorbell *bell, int64_t deadline_ns)
{
    pthread_mutex_lock(&bell->mutex);
    while (!bell->rung)
        if (weir__clock_cond_wait(&bell->cond, &bell->mutex, deadline_ns) == ETIMEDOUT) break;
    bell->rung = false;
    pthread_mutex_unlock(&bell->mutex);
}
