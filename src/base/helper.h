/* helper.h: the life of a thread that helps its owner.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HELPER_H
#define WEIR_BASE_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

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
