/* thread.h: threads of the library's own: how they start, those that help an owner, and thread pools.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Make threads that this one starts between the two take no signals: the program's handlers run on the
 * program's threads. Signals for a thread's own faults (such as SIGSEGV) still reach them. */
void weir__thread_quiet(sigset_t *before);
void weir__thread_restore(const sigset_t *before);

/* Starts such a thread, as pthread_create does. */
int weir__thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *user),
                       void *user);

/* Names the calling thread in lists of threads; cut after 15 bytes. */
void weir__thread_name(const char *name);

/* Threads of passes go before the calling one, and before those that it starts, from now on (Linux). */
void weir__thread_yield(void);

/* True if n more threads, at most 1024, can be started: ggml aborts when its own cannot. */
bool weir__thread_room(int32_t n);

/* ---- Thread pools ---- */

typedef struct weir__thread_pool weir__thread_pool;

/* Creates up to n_helpers threads that sleep until there is work; fewer where the process has reached a
 * limit. NULL: no memory. */
weir__thread_pool *weir__thread_pool_create(int32_t n_helpers);
void weir__thread_pool_destroy(weir__thread_pool *pool);

/* Calls fn(user, i) once for each i of 0 … n-1, on this thread and on the helpers that are awake in time;
 * returns when all calls have. One thread at a time; fn must not call it. Allocates nothing. */
void weir__thread_pool_run(weir__thread_pool *pool, void (*fn)(void *user, int32_t i), void *user, int32_t n);

#ifndef __cplusplus /* which has no _Atomic */

#include <stdatomic.h>

/* ---- Helpers ---- */

/* A thread with a lock, a condition, and a request to end, for which its function looks. */
typedef struct weir__helper {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* as of weir__clock_cond_init */
    _Atomic bool ending;    /* set under the mutex */
} weir__helper;

/* False: the process has reached a limit, and nothing needs to be undone. */
bool weir__helper_start(weir__helper *helper, void *(*fn)(void *user), void *user);

/* Asks the thread to end, and waits for that. The lock stays. */
void weir__helper_join(weir__helper *helper);
void weir__helper_fini(weir__helper *helper);

#endif

#endif
