/* thread.h: threads of the library's own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create, with every signal blocked: the program's handlers run on the program's threads. */
int weir__thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *user),
                       void *user);

#endif
