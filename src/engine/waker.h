/* waker.h: how any thread wakes the thread that drives an engine, and which threads may wait for that one.
 * Reference-counted, so that a stream may wake after its engine is gone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_WAKER_H
#define WEIR_ENGINE_WAKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

/* ---- Waking ---- */

typedef struct weir__waker weir__waker;

/* One reference for the caller. NO_MEMORY. */
weir_status weir__waker_create(weir__waker **out);
weir__waker *weir__waker_hold(weir__waker *waker);
void weir__waker_release(weir__waker *waker);

/* Wakes the waiter, or makes its next wait return at once. Any thread; takes a lock of its own for a few
 * instructions. Does nothing in a child of fork(): nobody waits there, and the lock may be held forever. */
void weir__waker_wake(weir__waker *waker);

/* Counts a cancel and wakes. The engine searches its queue for cancelled streams only if the count has
 * changed. */
void weir__waker_cancel(weir__waker *waker);
uint32_t weir__waker_cancels(const weir__waker *waker);

/* True if this process is a child of fork() whose parent created the waker. The threads that answer it are
 * not here. */
bool weir__waker_is_inherited(const weir__waker *waker);

/* Returns when it was woken since the last wait, or when deadline_ns has passed. One waiter. */
void weir__waker_wait(weir__waker *waker, int64_t deadline_ns);

/* ---- Who may wait for whom ---- */

/* An engine that a thread drives, or whose callbacks it runs: a call on that thread which would wait for the
 * engine is refused. The waker stands for the engine, because streams know only that. Must not move between
 * begin and end. */
typedef struct weir__driving {
    const weir__waker *waker;
    const struct weir__driving *outer; /* begun by this thread before */
} weir__driving;

/* Marks this thread as driving, for a tick, and for a ready callback on any thread. End in the reverse
 * order. */
void weir__driving_begin(weir__driving *driving, const weir__waker *waker);
void weir__driving_end(const weir__driving *driving);

/* True if this thread drives the engine: then waiting for the engine here would never end. */
bool weir__driving_here(const weir__waker *waker);

/* True if a call may wait for this waker's engine: the driver exists and is another thread. A child of fork()
 * has no threads of its parent. */
bool weir__waker_may_wait(const weir__waker *waker);

/* The engine has no thread of its own. A wait without a deadline ends once no thread has driven it for
 * patience_ns to twice that time. Before other threads know the waker. */
void weir__waker_be_manual(weir__waker *waker, int64_t patience_ns);

/* Called when a thread begins to drive a manual engine, and when it ends. */
void weir__waker_note_drive(weir__waker *waker);

/* Waits as weir__clock_cond_wait does for what the driver brings. EDEADLK: there is no deadline, and no
 * thread drove the manual engine during its patience. */
int weir__waker_await(weir__waker *waker, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns);

/* Says in the log why this call has ended so. */
void weir__waker_log_undriven(const char *call);

#endif
