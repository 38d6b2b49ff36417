/* thread.h: threads of the library's own.
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

#endif
