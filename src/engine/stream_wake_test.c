/* Readers learn that there is something to take: descriptor, ready callback, waiting.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/engine/engine.h"

/* ---- Descriptor ----------------------------------------------------------------------------------- */

static void the_descriptor_is_readable_exactly_while_something_can_be_taken(void **state)
{
    bench *b = *state;
    weir_chunk chunk;
    int fd = descriptor_of(b->stream);
    assert_false(readable(fd));
    for (int round = 0; round < 3; round++) {
        bench_push(b, "a");
        assert_true(readable(fd));
        bench_push(b, "b");
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_true(readable(fd)); /* "b" */
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
        assert_false(readable(fd));
        assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_TIMEOUT);
        assert_false(readable(fd));
    }
    weir_stream_cancel(b->stream);
    assert_false(readable(fd));
    bench_end(b, WEIR_REASON_CANCELLED, "");
    assert_true(readable(fd));
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_OK);
    assert_false(readable(fd));
}

static void a_descriptor_made_late_knows_what_waits(void **state)
{
    bench *b = *state;
    bench_push(b, "a");
    int fd = descriptor_of(b->stream);
    assert_true(readable(fd));
    assert_int_equal(descriptor_of(b->stream), fd); /* one for its life */
    sink got = {0};
    sink_take(&got, b->stream);
    assert_false(readable(fd));
}

static void the_descriptor_lives_until_the_last_release(void **state)
{
    bench *b = *state;
    int fd = -1;
    assert_int_equal(weir_stream_descriptor(b->stream, &fd, NULL), WEIR_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    bench_end(b, WEIR_REASON_END, "");
    assert_true(fcntl(fd, F_GETFD) >= 0);
    weir_stream_release(b->stream);
    b->stream = NULL;
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void no_descriptor_left_is_an_error_and_the_stream_goes_on(void **state)
{
    bench *b = *state;
    struct rlimit old, none;
    weir_error error = {0};
    int fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = (rlim_t)fd; /* the next one would be this */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    weir_status status = weir_stream_descriptor(b->stream, &fd, &error);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(status, WEIR_IO);
    assert_int_equal(error.code, WEIR_IO);
    bench_push(b, "a");
    assert_true(readable(descriptor_of(b->stream))); /* the second attempt */
}

/* ---- Ready ---------------------------------------------------------------------------------------- */

typedef struct ready {
    int calls;
    sink got;
    bool take, release;
} ready;

static void on_ready(weir_stream *stream, void *user)
{
    ready *r = user;
    weir_chunk chunk;
    r->calls++;
    while (r->take && weir_stream_try_next(stream, &chunk) == WEIR_OK) sink_add(&r->got, &chunk);
    if (r->release) weir_stream_release(stream);
}

static void ready_runs_when_nothing_becomes_something(void **state)
{
    bench *b = *state;
    ready r = {0};
    sink got = {0};
    weir_stream_set_ready(b->stream, on_ready, &r);
    assert_int_equal(r.calls, 0);
    bench_push(b, "a");
    assert_int_equal(r.calls, 1);
    bench_push(b, "b"); /* something waits already */
    assert_int_equal(r.calls, 1);
    sink_take(&got, b->stream);
    bench_push(b, "c");
    assert_int_equal(r.calls, 2);
    weir_stream_cancel(b->stream);
    assert_int_equal(r.calls, 2);
}

static void ready_runs_at_the_end_also_when_text_waits(void **state)
{
    bench *b = *state;
    ready r = {0};
    weir_stream_set_ready(b->stream, on_ready, &r);
    bench_push(b, "a");
    bench_end(b, WEIR_REASON_END, "");
    assert_int_equal(r.calls, 2);
}

static void ready_is_told_at_once_of_what_waits(void **state)
{
    bench *b = *state;
    ready r = {.take = true};
    bench_push(b, "a");
    weir_stream_set_ready(b->stream, on_ready, &r);
    assert_int_equal(r.calls, 1);
    assert_string_equal(r.got.text, "a");
    weir_stream_set_ready(b->stream, on_ready, &r);
    assert_int_equal(r.calls, 1);
}

static void ready_may_take_everything_itself(void **state)
{
    bench *b = *state;
    ready r = {.take = true};
    weir_stream_set_ready(b->stream, on_ready, &r);
    bench_push(b, "a");
    bench_push(b, "b");
    assert_int_equal(r.calls, 2);
    bench_end(b, WEIR_REASON_END, "c");
    assert_sink(r.got, WEIR_REASON_END, "abc");
}

static void ready_is_not_called_once_it_was_taken_away(void **state)
{
    bench *b = *state;
    ready first = {0}, second = {0};
    weir_stream_set_ready(b->stream, on_ready, &first);
    weir_stream_set_ready(b->stream, on_ready, &second);
    bench_push(b, "a");
    assert_int_equal(first.calls, 0);
    assert_int_equal(second.calls, 1);
    weir_stream_set_ready(b->stream, NULL, NULL);
    bench_end(b, WEIR_REASON_END, "");
    assert_int_equal(second.calls, 1);
}

static void ready_does_not_run_for_a_put_that_failed(void **state)
{
    bench *b = *state;
    ready r = {0};
    weir_stream_set_ready(b->stream, on_ready, &r);
    weir__mem_fail_after(0);
    assert_false(bench_put(b, 1, "a"));
    assert_int_equal(r.calls, 0);
    bench_push(b, "a");
    assert_int_equal(r.calls, 1); /* the failed one left nothing behind */
}

/* The action of one callback on another stream, and of that one's on this. */
typedef struct pair {
    weir_stream *streams[2];
    int calls;
} pair;

static void silence_both(weir_stream *stream, void *user)
{
    pair *p = user;
    p->calls++;
    weir_stream_set_ready(p->streams[stream == p->streams[0]], NULL, NULL);
    weir_stream_set_ready(stream, NULL, NULL);
}

/* One thread drives them, so that neither waits for the other: nor may TSan see locks in two orders. */
static void ready_may_silence_other_streams(void **state)
{
    bench *b = *state;
    weir_usage usage = {0};
    const weir_chunk x = {.text = "x", .length = 1}, end = {.text = "", .finished = true};
    pair p = {.streams = {b->stream}};
    assert_int_equal(weir_stream_create(&p.streams[1], NULL), WEIR_OK);
    assert_int_equal(weir__stream_attach(p.streams[1], 1, 1, 3, b->waker), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) weir_stream_set_ready(p.streams[k], silence_both, &p);
        for (int k = 0; k < 2; k++) assert_true(weir__stream_push(p.streams[k ^ i], &x, &usage));
        assert_int_equal(p.calls, i + 1); /* the first took both away */
        weir_chunk chunk;
        for (int k = 0; k < 2; k++) assert_int_equal(weir_stream_try_next(p.streams[k], &chunk), WEIR_OK);
    }
    weir__stream_finish(p.streams[1], &end, NULL, &usage);
    weir_stream_release(p.streams[1]);
}

static void the_last_release_may_come_from_within_ready(void **state)
{
    bench *b = *state;
    ready r = {.release = true};
    weir_stream_set_ready(b->stream, on_ready, &r);
    bench_push(b, "a");
    assert_int_equal(r.calls, 1);
    assert_int_equal(weir__waker_cancels(b->waker), 1);
    bench_end(b, WEIR_REASON_CANCELLED, ""); /* ready is gone with the last holder */
    assert_int_equal(r.calls, 1);
    b->stream = NULL;
}

static void the_last_release_may_come_from_within_the_final_ready(void **state)
{
    bench *b = *state;
    ready r = {.take = true, .release = true};
    weir_stream_set_ready(b->stream, on_ready, &r);
    bench_end(b, WEIR_REASON_END, "a");
    b->stream = NULL;
    assert_int_equal(r.calls, 1);
    assert_sink(r.got, WEIR_REASON_END, "a");
}

static void the_last_release_may_come_from_within_set_ready(void **state)
{
    bench *b = *state;
    ready r = {.take = true, .release = true};
    bench_end(b, WEIR_REASON_END, "a");
    weir_stream_set_ready(b->stream, on_ready, &r);
    b->stream = NULL;
    assert_int_equal(r.calls, 1);
    assert_sink(r.got, WEIR_REASON_END, "a");
}

/* ---- Threads -------------------------------------------------------------------------------------- */

typedef struct reader {
    pthread_t thread;
    weir_stream *stream;
    int timeout_ms;
    weir_status status;
    weir_chunk chunk;
    char text[64]; /* the chunk's, copied while it is valid */
} reader;

static void *read_once(void *argument)
{
    reader *r = argument;
    r->status = weir_stream_next(r->stream, r->timeout_ms, &r->chunk);
    if (r->status == WEIR_OK) snprintf(r->text, sizeof r->text, "%s", r->chunk.text);
    return NULL;
}

/* Returns once the thread waits inside next: from then on another take is refused. */
static void start_reader(reader *r, weir_stream *stream, int timeout_ms)
{
    weir_chunk chunk;
    *r = (reader){.stream = stream, .timeout_ms = timeout_ms};
    assert_int_equal(pthread_create(&r->thread, NULL, read_once, r), 0);
    while (weir_stream_try_next(stream, &chunk) != WEIR_STATE) sched_yield();
}

static void a_waiting_reader_wakes_on_a_chunk(void **state)
{
    bench *b = *state;
    reader r;
    start_reader(&r, b->stream, -1);
    bench_push(b, "woken");
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, WEIR_OK);
    assert_string_equal(r.text, "woken");
}

static void a_waiting_reader_wakes_on_the_end(void **state)
{
    bench *b = *state;
    reader r;
    start_reader(&r, b->stream, -1);
    bench_end(b, WEIR_REASON_END, "");
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, WEIR_OK);
    assert_true(r.chunk.finished);
}

static void a_waiting_reader_sleeps_through_a_cancel_to_the_end(void **state)
{
    bench *b = *state;
    reader r;
    weir_chunk chunk;
    start_reader(&r, b->stream, -1);
    weir_stream_cancel(b->stream);
    usleep(20000);                                                         /* for a reader that would wake */
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_STATE); /* it is still inside */
    bench_end(b, WEIR_REASON_CANCELLED, "held back");
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, WEIR_OK);
    assert_string_equal(r.text, "held back");
    assert_true(r.chunk.finished);
}

static void a_reader_that_comes_after_the_cancel_waits_for_the_end(void **state)
{
    bench *b = *state;
    reader r;
    weir_chunk chunk;
    weir_stream_cancel(b->stream);
    assert_int_equal(weir_stream_next(b->stream, 1, &chunk), WEIR_TIMEOUT);
    start_reader(&r, b->stream, -1);
    bench_end(b, WEIR_REASON_CANCELLED, "x");
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, WEIR_OK);
    assert_string_equal(r.text, "x");
    assert_true(r.chunk.finished);
}

static void a_waiting_reader_wakes_when_the_submit_is_refused_after_all(void **state)
{
    bench *b = *state;
    reader r;
    start_reader(&r, b->stream, -1);
    weir__stream_detach(b->stream);
    b->attached = false;
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, WEIR_STATE);
    bench_attach(b); /* it is as fresh as before */
}

static void two_readers_at_once_are_a_state_error(void **state)
{
    bench *b = *state;
    reader r;
    start_reader(&r, b->stream, -1);
    weir_chunk chunk;
    assert_int_equal(weir_stream_next(b->stream, 1000, &chunk), WEIR_STATE);
    bench_push(b, "for the first");
    pthread_join(r.thread, NULL);
    assert_string_equal(r.text, "for the first");
    assert_int_equal(weir_stream_try_next(b->stream, &chunk), WEIR_TIMEOUT); /* free again */
}

/* Takes every second chunk: the other thread takes the others. */
typedef struct player {
    pthread_t thread;
    weir_stream *stream;
    sink *got; /* shared */
    atomic_int *turn;
    int me;
} player;

static void *play(void *argument)
{
    player *p = argument;
    for (;;) {
        while (atomic_load(p->turn) != p->me) {
            if (atomic_load(p->turn) < 0) return NULL;
            sched_yield();
        }
        weir_chunk chunk;
        weir_status status = weir_stream_next(p->stream, 120000, &chunk);
        if (status == WEIR_OK)
            sink_add(p->got, &chunk);
        else
            p->got->wrong = weir_status_name(status);
        bool over = p->got->finished || p->got->wrong != NULL;
        atomic_store(p->turn, over ? -1 : 1 - p->me);
        if (over) return NULL;
    }
}

static void a_stream_may_be_handed_from_thread_to_thread(void **state)
{
    bench *b = *state;
    sink got = {0};
    atomic_int turn = 0;
    player players[2];
    for (int i = 0; i < 2; i++) {
        players[i] = (player){.stream = b->stream, .got = &got, .turn = &turn, .me = i};
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    char want[2048] = "";
    for (int i = 0; i < 500; i++) {
        char text[8];
        snprintf(text, sizeof text, "%d,", i % 10);
        strcat(want, text);
        assert_true(bench_put(b, i, text));
        if (i % 7 == 0) sched_yield();
    }
    bench_end(b, WEIR_REASON_END, "");
    for (int i = 0; i < 2; i++) pthread_join(players[i].thread, NULL);
    assert_sink(got, WEIR_REASON_END, want);
    assert_int_equal(got.n_tokens, 500);
}

typedef struct collector {
    pthread_t thread;
    weir_stream *stream;
    sink got;
} collector;

static void *collect(void *argument)
{
    collector *c = argument;
    sink_wait(&c->got, c->stream);
    return NULL;
}

static void nothing_is_lost_between_a_fast_writer_and_a_reader(void **state)
{
    bench *b = *state;
    collector c = {.stream = b->stream};
    assert_int_equal(pthread_create(&c.thread, NULL, collect, &c), 0);
    for (int i = 0; i < 4000; i++) assert_true(bench_put(b, i, "z"));
    bench_end(b, WEIR_REASON_LENGTH, "!");
    pthread_join(c.thread, NULL);
    assert_null(c.got.wrong);
    assert_int_equal(c.got.n_tokens, 4000);
    for (int i = 0; i < 4000; i++) assert_int_equal(c.got.tokens[i], i);
    assert_int_equal(c.got.n_text, 4001);
    assert_int_equal(c.got.reason, WEIR_REASON_LENGTH);
}

static void *cancel_often(void *stream)
{
    for (int i = 0; i < 1000; i++) {
        weir_stream_cancel(stream);
        weir_stream_set_interval(stream, i);
        (void)weir_stream_finished(stream);
        (void)weir_stream_usage(stream);
    }
    return NULL;
}

static void cancels_from_many_threads_are_one_cancel(void **state)
{
    bench *b = *state;
    pthread_t threads[4];
    sink got = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, cancel_often, b->stream), 0);
    for (int i = 0; i < 200; i++) bench_push(b, "x");
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(weir__waker_cancels(b->waker), 1);
    bench_end(b, WEIR_REASON_CANCELLED, "");
    sink_take(&got, b->stream);
    assert_int_equal(got.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(got.n_text, 200);
}

/* A callback that stays inside until it is let out. */
typedef struct gate {
    bench *b;
    atomic_int inside, open, left;
    atomic_int returned; /* set_ready has */
} gate;

static void stay(weir_stream *stream, void *user)
{
    gate *g = user;
    (void)stream;
    atomic_store(&g->inside, 1);
    while (!atomic_load(&g->open)) sched_yield();
    atomic_store(&g->left, 1);
}

static void *push_one(void *argument)
{
    gate *g = argument;
    weir_usage usage = {0};
    weir__stream_push(g->b->stream, &(weir_chunk){.text = "x", .length = 1}, &usage);
    return NULL;
}

static void *take_away(void *argument)
{
    gate *g = argument;
    weir_stream_set_ready(g->b->stream, NULL, NULL);
    atomic_store(&g->returned, atomic_load(&g->left) ? 1 : -1);
    return NULL;
}

static void set_ready_returns_only_when_the_former_callback_is_out(void **state)
{
    bench *b = *state;
    gate g = {.b = b};
    pthread_t writer, taker;
    weir_stream_set_ready(b->stream, stay, &g);
    assert_int_equal(pthread_create(&writer, NULL, push_one, &g), 0);
    while (!atomic_load(&g.inside)) sched_yield();
    assert_int_equal(pthread_create(&taker, NULL, take_away, &g), 0);
    for (int i = 0; i < 50; i++) sched_yield();
    assert_int_equal(atomic_load(&g.returned), 0);
    /* a reader does not have to wait for the callback */
    sink got = {0};
    assert_int_equal(sink_take(&got, b->stream), 1);
    weir_stream_cancel(b->stream);
    atomic_store(&g.open, 1);
    pthread_join(taker, NULL);
    pthread_join(writer, NULL);
    assert_int_equal(atomic_load(&g.returned), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BENCH_TEST(the_descriptor_is_readable_exactly_while_something_can_be_taken),
        BENCH_TEST(a_descriptor_made_late_knows_what_waits),
        BENCH_TEST(the_descriptor_lives_until_the_last_release),
        BENCH_TEST(no_descriptor_left_is_an_error_and_the_stream_goes_on),
        BENCH_TEST(ready_runs_when_nothing_becomes_something),
        BENCH_TEST(ready_runs_at_the_end_also_when_text_waits),
        BENCH_TEST(ready_is_told_at_once_of_what_waits),
        BENCH_TEST(ready_may_take_everything_itself),
        BENCH_TEST(ready_is_not_called_once_it_was_taken_away),
        BENCH_TEST(ready_does_not_run_for_a_put_that_failed),
        BENCH_TEST(ready_may_silence_other_streams),
        BENCH_TEST(the_last_release_may_come_from_within_ready),
        BENCH_TEST(the_last_release_may_come_from_within_the_final_ready),
        BENCH_TEST(the_last_release_may_come_from_within_set_ready),
        BENCH_TEST(a_waiting_reader_wakes_on_a_chunk),
        BENCH_TEST(a_waiting_reader_wakes_on_the_end),
        BENCH_TEST(a_waiting_reader_sleeps_through_a_cancel_to_the_end),
        BENCH_TEST(a_reader_that_comes_after_the_cancel_waits_for_the_end),
        BENCH_TEST(a_waiting_reader_wakes_when_the_submit_is_refused_after_all),
        BENCH_TEST(two_readers_at_once_are_a_state_error),
        BENCH_TEST(a_stream_may_be_handed_from_thread_to_thread),
        BENCH_TEST(nothing_is_lost_between_a_fast_writer_and_a_reader),
        BENCH_TEST(cancels_from_many_threads_are_one_cancel),
        BENCH_TEST(set_ready_returns_only_when_the_former_callback_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
