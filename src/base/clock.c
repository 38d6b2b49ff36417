/* clock.c: monotonic time, deadlines and condition variables that keep them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef __APPLE__
#define _DARWIN_C_SOURCE /* pthread_cond_timedwait_relative_np */
#endif

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>

static _Atomic int64_t standing_ns = -1;

void weir__clock_stand(int64_t ns)
{
    atomic_store_explicit(&standing_ns, ns, memory_order_relaxed);
}

int64_t weir__clock_now_ns(void)
{
    struct timespec now;
    int64_t still = atomic_load_explicit(&standing_ns, memory_order_relaxed);
    if (still >= 0) return still;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * WEIR__NS_PER_S + now.tv_nsec;
}

int64_t weir__clock_deadline_ns(int64_t timeout_ms)
{
    int64_t now = weir__clock_now_ns();
    if (timeout_ms < 0 || timeout_ms >= (WEIR__CLOCK_NEVER - now) / WEIR__NS_PER_MS) return WEIR__CLOCK_NEVER;
    return now + timeout_ms * WEIR__NS_PER_MS;
}

struct timespec weir__clock_timespec(int64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / WEIR__NS_PER_S), .tv_nsec = (long)(ns % WEIR__NS_PER_S)};
    return ts;
}

int weir__clock_cond_init(pthread_cond_t *cond)
{
#ifdef __APPLE__
    return pthread_cond_init(cond, NULL); /* waits are relative there, hence monotonic */
#else
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0) return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0) rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
#endif
}

int weir__clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    if (deadline_ns == WEIR__CLOCK_NEVER) return pthread_cond_wait(cond, mutex);
    if (deadline_ns < 0) return ETIMEDOUT;
#ifdef __APPLE__
    int64_t left = deadline_ns - weir__clock_now_ns();
    if (left <= 0) return ETIMEDOUT;
    struct timespec relative = weir__clock_timespec(left);
    return pthread_cond_timedwait_relative_np(cond, mutex, &relative);
#else
    struct timespec until = weir__clock_timespec(deadline_ns);
    return pthread_cond_timedwait(cond, mutex, &until);
#endif
}
