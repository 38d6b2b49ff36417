/* Threads of the library's own: which signals reach them, and their names.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pthread_getname_np */
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

static void *be_named(void *name)
{
    weir__thread_name("weir-named");
    return (void *)(intptr_t)pthread_getname_np(pthread_self(), name, 16);
}

static void a_thread_has_a_name(void **state)
{
    (void)state;
    pthread_t thread;
    void *failed;
    char name[16] = "";
    assert_int_equal(weir__thread_start(&thread, NULL, be_named, name), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_string_equal(name, "weir-named");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_takes_only_what_it_does_wrong_itself),
        cmocka_unit_test(a_thread_has_a_name),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
