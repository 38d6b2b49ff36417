/* clock_test.c: deadlines, waits, and a clock that stands.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

static void time_does_not_go_back(void **test)
{
    (void)test;
    int64_t before = weir__clock_now_ns();
    assert_true(before >= 0);
    for (int i = 0; i < 1000; i++) {
        int64_t now = weir__clock_now_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void deadlines_do_not_overflow(void **test)
{
    (void)test;
    assert_int_equal(weir__clock_deadline_ns(-1), WEIR__CLOCK_NEVER);
    assert_int_equal(weir__clock_deadline_ns(INT64_MIN), WEIR__CLOCK_NEVER);
    assert_int_equal(weir__clock_deadline_ns(INT64_MAX), WEIR__CLOCK_NEVER);
    assert_int_equal(weir__clock_deadline_ns(INT64_MAX / WEIR__NS_PER_MS), WEIR__CLOCK_NEVER);
    int64_t before = weir__clock_now_ns();
    int64_t deadline = weir__clock_deadline_ns(1000);
    assert_true(deadline - before >= WEIR__NS_PER_S);
    assert_true(deadline <= weir__clock_now_ns() + WEIR__NS_PER_S);
    assert_true(weir__clock_deadline_ns(0) <= weir__clock_now_ns());
}

static void timespecs(void **test)
{
    (void)test;
    struct timespec ts = weir__clock_timespec(INT64_C(12345678901));
    assert_int_equal(ts.tv_sec, 12);
    assert_int_equal(ts.tv_nsec, 345678901);
}

static void wait_ends_at_its_deadline(void **test)
{
    (void)test;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    assert_int_equal(weir__clock_cond_init(&cond), 0);
    pthread_mutex_lock(&mutex);
    int64_t deadline = weir__clock_deadline_ns(20);
    int rc = 0;
    while (rc == 0) rc = weir__clock_cond_wait(&cond, &mutex, deadline);
    assert_int_equal(rc, ETIMEDOUT);
    assert_true(weir__clock_now_ns() >= deadline);
    /* Deadlines that have passed */
    assert_int_equal(weir__clock_cond_wait(&cond, &mutex, 0), ETIMEDOUT);
    assert_int_equal(weir__clock_cond_wait(&cond, &mutex, -1), ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool woken;
};

static void *wake(void *user)
{
    struct shared *shared = user;
    pthread_mutex_lock(&shared->mutex);
    shared->woken = true;
    pthread_cond_signal(&shared->cond);
    pthread_mutex_unlock(&shared->mutex);
    return NULL;
}

static void wait_is_woken(void **test)
{
    (void)test;
    const int64_t deadlines[] = {WEIR__CLOCK_NEVER, WEIR__CLOCK_NEVER - 1, weir__clock_deadline_ns(60000)};
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        struct shared shared = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        pthread_t thread;
        int rc = 0;
        assert_int_equal(weir__clock_cond_init(&shared.cond), 0);
        pthread_mutex_lock(&shared.mutex);
        assert_int_equal(pthread_create(&thread, NULL, wake, &shared), 0);
        while (!shared.woken && rc == 0)
            rc = weir__clock_cond_wait(&shared.cond, &shared.mutex, deadlines[i]);
        pthread_mutex_unlock(&shared.mutex);
        pthread_join(thread, NULL);
        assert_int_equal(rc, 0);
        pthread_cond_destroy(&shared.cond);
    }
}

static void a_clock_can_be_made_to_stand(void **state)
{
    (void)state;
    int64_t before = weir__clock_now_ns();
    weir__clock_stand(42);
    assert_int_equal(weir__clock_now_ns(), 42);
    assert_int_equal(weir__clock_deadline_ns(1), 42 + WEIR__NS_PER_MS);
    weir__clock_stand(0);
    assert_int_equal(weir__clock_now_ns(), 0);
    weir__clock_stand(-1);
    assert_true(weir__clock_now_ns() >= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(deadlines_do_not_overflow),
        cmocka_unit_test(timespecs),
        cmocka_unit_test(wait_ends_at_its_deadline),
        cmocka_unit_test(wait_is_woken),
        cmocka_unit_test(a_clock_can_be_made_to_stand),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
