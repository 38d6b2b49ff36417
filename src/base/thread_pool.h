/* thread_pool.h: a thread pool that helps its caller with parts that do not depend on each other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_THREAD_POOL_H
#define WEIR_BASE_THREAD_POOL_H

#include <stdint.h>

typedef struct weir__thread_pool weir__thread_pool;

/* Creates up to n_helpers threads that sleep until there is work; fewer where the process has reached a
 * limit. NULL: no memory. */
weir__thread_pool *weir__thread_pool_create(int32_t n_helpers);
void weir__thread_pool_destroy(weir__thread_pool *pool);

/* Calls fn(user, i) once for each i of 0 … n-1, on this thread and on the helpers that are awake in time;
 * returns when all calls have. One thread at a time; fn must not call it. Allocates nothing. */
void weir__thread_pool_run(weir__thread_pool *pool, void (*fn)(void *user, int32_t i), void *user, int32_t n);

#endif
