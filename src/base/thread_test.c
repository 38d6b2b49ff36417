/* Which signals reach a thread of the library's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void *look(void *user)
{
    pthread_sigmask(SIG_SETMASK, NULL, user);
    return NULL;
}

static void a_thread_takes_only_what_it_does_wrong_itself(void **state)
{
    (void)state;
    sigset_t before, after, inside;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(weir__thread_start(&thread, NULL, look, &inside), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGPIPE, SIGCHLD, SIGWINCH};
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
        assert_int_equal(sigismember(&inside, blocked[i]), 1);
        assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
    }
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        assert_int_equal(sigismember(&inside, open[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_takes_only_what_it_does_wrong_itself),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
