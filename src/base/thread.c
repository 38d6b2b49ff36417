/* thread.c: threads of the library's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>

int weir__thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *user),
                       void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return pthread_create(thread, attributes, fn, user);
    int failed = pthread_create(thread, attributes, fn, user); /* it inherits the mask */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
