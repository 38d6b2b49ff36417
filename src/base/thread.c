/* thread.c: threads of the library's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/resource.h>
#endif

#define NICENESS 10 /* a tenth of the processor beside a busy thread */

void weir__thread_quiet(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, before); /* cannot fail with these arguments */
}

void weir__thread_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int weir__thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *user),
                       void *user)
{
    sigset_t before;
    weir__thread_quiet(&before);
    int failed = pthread_create(thread, attributes, fn, user); /* it inherits the mask */
    weir__thread_restore(&before);
    return failed;
}

void weir__thread_name(const char *name)
{
#if defined(__linux__)
    prctl(PR_SET_NAME, name, 0, 0, 0);
#elif defined(__APPLE__)
    pthread_setname_np(name);
#else
    (void)name;
#endif
}

void weir__thread_yield(void)
{
#ifdef __linux__
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread, which those that it starts inherit */
#endif
}

static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

bool weir__thread_room(int32_t n)
{
    pthread_mutex_t gate;
    pthread_t threads[1024];
    int32_t made = 0;
    if (n > 1024 || pthread_mutex_init(&gate, NULL) != 0) return false;
    pthread_mutex_lock(&gate);
    while (made < n && weir__thread_start(&threads[made], NULL, wait_at, &gate) == 0) made++;
    pthread_mutex_unlock(&gate);
    for (int32_t i = 0; i < made; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&gate);
    return made == n;
}
