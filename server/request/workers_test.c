/* workers_test.c: jobs end when their client has gone, when their time is over, and at the end.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/clock.h"
#include "workers.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_begun, n_done;

static void count(int *n)
{
    pthread_mutex_lock(&mutex);
    ++*n;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void await(const int *n, int wanted)
{
    pthread_mutex_lock(&mutex);
    while (*n < wanted) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void done(serve_call *call)
{
    (void)call;
    count(&n_done);
}

/* Runs until it is asked to end, as all long work of the library does. */
static void endless(serve_call *call)
{
    weir__budget budget;
    (void)call;
    weir__budget_init(&budget, UINT64_MAX, UINT64_MAX);
    count(&n_begun);
    while (weir__budget_step(&budget, 1)) continue;
    assert_int_equal(budget.over, WEIR__LIMIT_INTERRUPT);
}

static void quick(serve_call *call)
{
    (void)call;
}

static _Atomic bool released;

/* A job that never asks. */
static void deaf(serve_call *call)
{
    (void)call;
    count(&n_begun);
    while (!released) continue;
}

static int setup(void **state)
{
    (void)state;
    n_begun = n_done = 0;
    released = false;
    return 0;
}

static void test_a_job_ends_when_its_client_goes(void **state)
{
    serve_call endless_call = {0}, quick_call = {0};
    (void)state;
    serve_workers *workers = serve_workers_create(1, 3600, done);
    serve_workers_give(workers, &endless_call, endless);
    await(&n_begun, 1);
    serve_workers_give(workers, &quick_call, quick);
    atomic_store(&endless_call.gone, true);
    await(&n_done, 2);
    assert_true(serve_workers_destroy(workers, -1));
}

static void test_a_job_ends_when_its_time_is_over(void **state)
{
    serve_call call = {0};
    (void)state;
    serve_workers *workers = serve_workers_create(1, 0, done);
    serve_workers_give(workers, &call, endless);
    await(&n_done, 1);
    assert_true(serve_workers_destroy(workers, -1));
}

static void test_jobs_end_with_their_workers(void **state)
{
    serve_call calls[3] = {0};
    (void)state;
    serve_workers *workers = serve_workers_create(2, 3600, done);
    for (int i = 0; i < 3; i++) serve_workers_give(workers, &calls[i], endless);
    await(&n_begun, 2);
    assert_true(serve_workers_destroy(workers, -1));
    assert_int_equal(n_begun, 2);
    assert_int_equal(n_done, 3); /* also the one that was never begun */
}

static void test_slow_jobs_leave_room_and_have_time(void **state)
{
    static const serve_route slow = {.slow = true};
    serve_call calls[3] = {{.route = &slow}, {.route = &slow}, {0}};
    int32_t n_new;
    (void)state;
    serve_workers *workers = serve_workers_create(1, 0, done);
    serve_workers_give(workers, &calls[0], endless);
    serve_workers_give(workers, &calls[1], endless);
    await(&n_begun, 1);
    assert_int_equal(
        serve_workers_stuck(workers, weir__clock_now_ns() + INT64_C(3600) * WEIR__NS_PER_S, 5, &n_new), 0);
    serve_workers_give(workers, &calls[2], quick);
    await(&n_done, 1);
    atomic_store(&calls[0].gone, true);
    await(&n_begun, 2);
    atomic_store(&calls[1].gone, true);
    await(&n_done, 3);
    assert_true(serve_workers_destroy(workers, -1));
}

static void test_a_job_that_does_not_end_is_seen(void **state)
{
    serve_call call = {0};
    int32_t n_new;
    int64_t later_ns = weir__clock_now_ns() + INT64_C(3600) * WEIR__NS_PER_S;
    (void)state;
    serve_workers *workers = serve_workers_create(2, 30, done);
    assert_int_equal(serve_workers_stuck(workers, later_ns, 3500, &n_new), 0);
    serve_workers_give(workers, &call, deaf);
    await(&n_begun, 1);
    assert_int_equal(serve_workers_stuck(workers, weir__clock_now_ns(), 0, &n_new), 0);
    assert_int_equal(serve_workers_stuck(workers, later_ns, 3600, &n_new), 0); /* it may take 30 s more */
    assert_int_equal(serve_workers_stuck(workers, later_ns, 3500, &n_new), 1);
    assert_int_equal(n_new, 1);
    assert_int_equal(serve_workers_stuck(workers, later_ns, 3500, &n_new), 1);
    assert_int_equal(n_new, 0); /* reported once */
    assert_false(serve_workers_destroy(workers, 10));
    released = true;
    assert_true(serve_workers_destroy(workers, -1));
    assert_int_equal(n_done, 1);
}

static serve_call *order[16];

static void note(serve_call *call)
{
    order[n_begun] = call; /* one worker */
    count(&n_begun);
}

/* An owner who has queued many jobs does not hold back the first one of another; each one's keep their
 * order. */
static void test_owners_take_turns(void **state)
{
    enum { HOG = 6, OTHER = 2, LATE = 1 };
    serve_call blocker = {0}, calls[HOG + OTHER + LATE] = {0};
    static const int wanted[] = {0, 6, 8, 1, 7, 2, 3, 4, 5};
    (void)state;
    serve_workers *workers = serve_workers_create(1, 3600, done);
    serve_workers_give(workers, &blocker, deaf);
    await(&n_begun, 1);
    for (int i = 0; i < HOG + OTHER + LATE; i++) {
        calls[i].owner = serve_owner_of(i < HOG ? 0 : i < HOG + OTHER ? 1 : 2, "");
        serve_workers_give(workers, &calls[i], note);
    }
    serve_call own = {.owner = serve_owner_of(0, "")}, stranger = {.owner = serve_owner_of(3, "")};
    assert_true(serve_workers_have_room(workers, &own, 12)); /* of 12 places it has 6, and 3 are free */
    assert_false(serve_workers_have_room(workers, &own, 11));
    assert_true(serve_workers_have_room(workers, &stranger, 10));
    assert_false(serve_workers_have_room(workers, &stranger, 9));
    released = true;
    await(&n_done, 1 + HOG + OTHER + LATE);
    for (int i = 0; i < HOG + OTHER + LATE; i++) assert_ptr_equal(order[i + 1], &calls[wanted[i]]);
    assert_true(serve_workers_destroy(workers, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_owners_take_turns, setup),
        cmocka_unit_test_setup(test_a_job_ends_when_its_client_goes, setup),
        cmocka_unit_test_setup(test_a_job_ends_when_its_time_is_over, setup),
        cmocka_unit_test_setup(test_jobs_end_with_their_workers, setup),
        cmocka_unit_test_setup(test_slow_jobs_leave_room_and_have_time, setup),
        cmocka_unit_test_setup(test_a_job_that_does_not_end_is_seen, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
