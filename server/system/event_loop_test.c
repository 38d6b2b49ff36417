/* event_loop_test.c: descriptors, times and wake-ups, by epoll and by poll.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "event_loop.h"

#define N_PAIRS 100

typedef struct end {
    serve_watch watch; /* first */
    serve_loop *loop;
    int other;
    unsigned what;
    int n;
    struct end *victim; /* forgotten when this one is called */
} end;

static void on_ready(serve_watch *watch, unsigned what)
{
    end *e = (end *)(void *)watch;
    e->what = what;
    e->n++;
    if (e->victim == NULL) return;
    int fd = e->victim->watch.fd;
    serve_loop_forget(e->loop, &e->victim->watch);
    close(fd);
    e->victim = NULL;
}

static end open_pair(serve_loop *loop, unsigned want)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    return (end){.watch = {.fd = fds[0], .want = want, .ready = on_ready}, .loop = loop, .other = fds[1]};
}

static void close_pair(serve_loop *loop, end *e)
{
    int fd = e->watch.fd;
    if (fd >= 0) {
        serve_loop_forget(loop, &e->watch);
        close(fd);
    }
    if (e->other >= 0) close(e->other);
}

static void test_only_wanted_events_are_reported(void **state)
{
    serve_loop *loop = serve_loop_create(*state != NULL);
    end e = open_pair(loop, SERVE_LOOP_READ);
    assert_true(serve_loop_watch(loop, &e.watch));
    serve_loop_turn(loop, true);
    assert_int_equal(e.n, 0);
    assert_int_equal(write(e.other, "x", 1), 1);
    serve_loop_turn(loop, false);
    assert_int_equal(e.what, SERVE_LOOP_READ);
    serve_loop_want(loop, &e.watch, SERVE_LOOP_WRITE);
    serve_loop_turn(loop, false);
    assert_int_equal(e.what, SERVE_LOOP_WRITE);
    serve_loop_want(loop, &e.watch, 0);
    e.n = 0;
    serve_loop_turn(loop, true);
    assert_int_equal(e.n, 0);
    close(e.other); /* that is reported even to an end that asks for nothing */
    e.other = -1;
    serve_loop_turn(loop, false);
    assert_true((e.what & SERVE_LOOP_GONE) != 0);
    close_pair(loop, &e);
    serve_loop_destroy(loop);
}

/* A descriptor that is forgotten during a turn is not called in it, in any order; a new one in its place
 * is. */
static void test_forgetting(void **state)
{
    serve_loop *loop = serve_loop_create(*state != NULL);
    static end ends[N_PAIRS];
    for (int i = 0; i < N_PAIRS; i++) {
        ends[i] = open_pair(loop, SERVE_LOOP_WRITE);
        assert_true(serve_loop_watch(loop, &ends[i].watch));
    }
    for (int i = 0; i < N_PAIRS; i += 2) {
        ends[i].victim = &ends[i + 1];
        ends[i + 1].victim = &ends[i];
    }
    serve_loop_turn(loop, true);
    for (int i = 0; i < N_PAIRS; i += 2) {
        assert_int_equal(ends[i].n + ends[i + 1].n, 1);
        assert_true((ends[i].watch.fd < 0) != (ends[i + 1].watch.fd < 0));
        end *gone = ends[i].watch.fd < 0 ? &ends[i] : &ends[i + 1];
        close(gone->other);
        *gone = open_pair(loop, SERVE_LOOP_WRITE);
        assert_true(serve_loop_watch(loop, &gone->watch));
    }
    for (int i = 0; i < N_PAIRS; i++) ends[i].n = 0;
    serve_loop_turn(loop, true);
    for (int i = 0; i < N_PAIRS; i++) assert_int_equal(ends[i].n, 1);
    for (int i = 0; i < N_PAIRS; i++) close_pair(loop, &ends[i]);
    serve_loop_destroy(loop);
}

static int fired[8], n_fired;

static void on_first(serve_timer *timer)
{
    (void)timer;
    fired[n_fired++] = 1;
}

static void on_second(serve_timer *timer)
{
    (void)timer;
    fired[n_fired++] = 2;
}

static void test_times(void **state)
{
    serve_loop *loop = serve_loop_create(*state != NULL);
    serve_timer first = {.fire = on_first}, second = {.fire = on_second};
    n_fired = 0;
    serve_loop_set(loop, &second, 20000);
    serve_loop_set(loop, &first, 1000);
    int64_t began_ns = weir__clock_now_ns();
    serve_loop_turn(loop, true);
    while (n_fired < 2) serve_loop_turn(loop, false);
    assert_true(weir__clock_now_ns() - began_ns >= 20 * WEIR__NS_PER_MS - WEIR__NS_PER_MS);
    assert_int_equal(fired[0], 1);
    assert_int_equal(fired[1], 2);
    serve_loop_set(loop, &first, 0); /* once each, and again */
    serve_loop_turn(loop, false);
    assert_int_equal(n_fired, 3);
    serve_loop_destroy(loop);
}

static void *wake(void *loop)
{
    for (int i = 0; i < 100000; i++) serve_loop_wake(loop); /* more than its pipe holds */
    return NULL;
}

static void test_waking(void **state)
{
    serve_loop *loop = serve_loop_create(*state != NULL);
    pthread_t thread;
    serve_loop_wake(loop);
    serve_loop_turn(loop, false); /* which would wait for ever */
    assert_int_equal(pthread_create(&thread, NULL, wake, loop), 0);
    serve_loop_turn(loop, false);
    pthread_join(thread, NULL);
    serve_loop_wake(loop);
    serve_loop_turn(loop, false);
    serve_loop_destroy(loop);
}

static int with_poll(void **state)
{
    *state = "poll";
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_wanted_events_are_reported),
        cmocka_unit_test_setup(test_only_wanted_events_are_reported, with_poll),
        cmocka_unit_test(test_forgetting),
        cmocka_unit_test_setup(test_forgetting, with_poll),
        cmocka_unit_test(test_times),
        cmocka_unit_test_setup(test_times, with_poll),
        cmocka_unit_test(test_waking),
        cmocka_unit_test_setup(test_waking, with_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
