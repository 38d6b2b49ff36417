/* clock.h: monotonic time, deadlines and condition variables that keep them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define WEIR__NS_PER_S  INT64_C(1000000000)
#define WEIR__NS_PER_MS INT64_C(1000000)

/* A deadline that never comes. */
#define WEIR__CLOCK_NEVER INT64_MAX

/* Nanoseconds on the monotonic clock; the start is arbitrary, the wall clock's jumps do not matter. Any
 * thread, never fails, not negative. */
int64_t weir__clock_now_ns(void);

/* Makes the clock above stand at ns until the next call; negative: it goes again. For replays and tests. It
 * holds for the whole process: waits with deadlines do not belong into it meanwhile. */
void weir__clock_stand(int64_t ns);

/* The deadline timeout_ms from now; negative: WEIR__CLOCK_NEVER. */
int64_t weir__clock_deadline_ns(int64_t timeout_ms);

/* ns >= 0 */
struct timespec weir__clock_timespec(int64_t ns);

/* Makes a condition variable for weir__clock_cond_wait; 0 or an errno value. pthread_cond_destroy ends it. */
int weir__clock_cond_init(pthread_cond_t *cond);

/* Waits with mutex locked, which it is again on return: 0 when woken (perhaps for nothing, so test the
 * condition again), ETIMEDOUT when deadline_ns on the clock above has passed. WEIR__CLOCK_NEVER waits without
 * limit. */
int weir__clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns);

#endif
