/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/waker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define SOON (30 * WEIR__NS_PER_MS)

/* A call wakes one wait, before or during it; the next wait lasts as long as it may. */
static void a_ring_is_heard_once(void **state)
{
    (void)state;
    weir__waker *waker = NULL;
    assert_int_equal(weir__waker_create(&waker), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        weir__waker_wake(waker);
        weir__waker_wake(waker);                /* not counted */
        weir__waker_wait(waker, INT64_MAX / 2); /* would hang */
        int64_t until = weir__clock_now_ns() + SOON;
        weir__waker_wait(waker, until);
        assert_true(weir__clock_now_ns() >= until);
    }
    uint32_t n = weir__waker_cancels(waker);
    weir__waker_cancel(waker); /* wakes, too */
    assert_int_equal(weir__waker_cancels(waker), n + 1);
    weir__waker_wait(waker, INT64_MAX / 2);
    assert_false(weir__waker_is_inherited(waker));
    weir__waker_release(waker);
}

static atomic_bool over;

static void *wake_until_over(void *waker)
{
    while (!atomic_load(&over)) weir__waker_wake(waker);
    return NULL;
}

/* A child does not wait, whatever the parent's threads hold at the fork. */
static void a_child_rings_without_waiting(void **state)
{
    (void)state;
    weir__waker *waker = NULL;
    pthread_t thread;
    assert_int_equal(weir__waker_create(&waker), WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, wake_until_over, waker), 0);
    int n_hung = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(300); /* a hang ends it with a signal */
            weir__waker_cancel(waker);
            _exit(0);
        }
        int status = -1;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        n_hung += !WIFEXITED(status);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    weir__waker_release(waker);
    assert_int_equal(n_hung, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_is_heard_once),
        cmocka_unit_test(a_child_rings_without_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
