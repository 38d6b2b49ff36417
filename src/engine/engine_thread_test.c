/* An engine with its own thread, readers and cancellers on others. Run under the thread sanitizer.
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "support/engine/engine.h"

#define N       8
#define AGES_US (INT64_C(3600) * 1000000) /* a pass that is not broken off outlasts the test programs' time */

static char answers[N][200];

/* N scripts with long answers that have multi-byte characters split over tokens. */
static void start(rig *r, int32_t n_slots)
{
    r->params.manual = false;
    r->params.n_slots = n_slots;
    for (int i = 0; i < N; i++) {
        size_t n = 0;
        for (int k = 0; n < 150; k++)
            n += (size_t)snprintf(answers[i] + n, sizeof answers[i] - n, "%c%d \xe2\x82\xac ", 'A' + i, k);
        rig_script(r, 'A' + i, 3 + 7 * i, answers[i]);
    }
    rig_start(r);
}

typedef struct reader {
    pthread_t thread;
    weir_stream *stream;
    int after; /* chunks until a cancel; 0 = never */
    int pause_us;
    sink got;
} reader;

static void *read_to_the_end(void *argument)
{
    reader *p = argument;
    weir_chunk chunk;
    while (!p->got.finished && p->got.wrong == NULL) {
        weir_status status = weir_stream_next(p->stream, 120000, &chunk);
        if (status == WEIR_OK)
            sink_add(&p->got, &chunk);
        else
            p->got.wrong = weir_status_name(status);
        if (p->after > 0 && p->got.n_chunks == p->after) weir_stream_cancel(p->stream);
        struct timespec pause = {.tv_nsec = p->pause_us * 1000L};
        if (p->pause_us > 0) nanosleep(&pause, NULL);
    }
    return NULL;
}

static void start_reader(reader *p, weir_stream *stream)
{
    p->stream = stream;
    assert_int_equal(pthread_create(&p->thread, NULL, read_to_the_end, p), 0);
}

/* The text read is the beginning of the answer, apart from a replacement where a character was cut. */
static void check_cut(const sink *got, int i)
{
    size_t n = 0;
    while (n < got->n_text && got->text[n] == answers[i][n]) n++;
    if (n < got->n_text) assert_string_equal(got->text + n, "\xef\xbf\xbd");
    assert_true(got->n_tokens <= strlen(answers[i]) && got->n_tokens >= n);
}

static void eight_readers_get_their_own_text(void **state)
{
    rig *r = *state;
    static reader readers[N];
    memset(readers, 0, sizeof readers);
    start(r, N);
    for (int i = 0; i < N; i++) {
        readers[i].pause_us = i % 3 == 2 ? 2000 : 0; /* some are slow */
        start_reader(&readers[i], rig_submit_key(r, 'A' + i));
    }
    for (int i = 0; i < N; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_sink(readers[i].got, WEIR_REASON_END, answers[i]);
        assert_int_equal(readers[i].got.n_tokens, strlen(answers[i]));
    }
}

static void cancels_of_some_readers_do_not_touch_the_others(void **state)
{
    rig *r = *state;
    static reader readers[N];
    memset(readers, 0, sizeof readers);
    start(r, 4);
    atomic_store(&r->fake->tick_us, 300);
    for (int i = 0; i < N; i++) {
        readers[i].after = i % 2 == 1 ? i : 0;
        start_reader(&readers[i], rig_submit_key(r, 'A' + i));
    }
    for (int i = 0; i < N; i++) {
        pthread_join(readers[i].thread, NULL);
        if (i % 2 == 0) {
            assert_sink(readers[i].got, WEIR_REASON_END, answers[i]);
            continue;
        }
        assert_null(readers[i].got.wrong);
        assert_int_equal(readers[i].got.reason, WEIR_REASON_CANCELLED);
        assert_true(readers[i].got.n_chunks > readers[i].after);
        check_cut(&readers[i].got, i);
    }
    assert_int_equal(weir_engine_drain(r->engine, 120000), WEIR_OK);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

static void a_reader_that_never_comes_holds_nobody_up(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    start(r, 2);
    weir_stream *absent = rig_submit_key(r, 'A'), *present = rig_submit_key(r, 'B');
    sink_wait(&got[1], present);
    assert_sink(got[1], WEIR_REASON_END, answers[1]);
    assert_int_equal(weir_engine_drain(r->engine, 120000), WEIR_OK);
    assert_true(weir_stream_finished(absent));
    assert_int_equal(sink_take(&got[0], absent), WEIR__CHUNKS_MOST); /* merged, and complete */
    assert_sink(got[0], WEIR_REASON_END, answers[0]);
    assert_int_equal(got[0].n_tokens, strlen(answers[0]));
}

/* Holds the engine's thread inside a pass. */
typedef struct gate {
    atomic_bool closed, inside;
} gate;

static void wait_at_gate(void *user, const weir__batch *batch)
{
    gate *g = user;
    (void)batch;
    while (atomic_load(&g->closed)) {
        atomic_store(&g->inside, true);
        sched_yield();
    }
}

typedef struct waiter {
    pthread_t thread;
    weir_stream *stream;
    weir_status status;
} waiter;

/* Returns false, which ends the call, as soon as the cancel is reported. */
static bool until_cancelled(const weir_chunk *chunk, void *stream)
{
    return chunk->length > 0 || !weir_stream_cancelled(stream);
}

static void *consume_until_cancelled(void *argument)
{
    waiter *w = argument;
    w->status = weir_stream_consume(w->stream, until_cancelled, 20000, w->stream);
    return NULL;
}

/* All of this happens while one pass is under way. */
static void nothing_that_a_caller_does_waits_for_a_pass(void **state)
{
    rig *r = *state;
    gate g = {.closed = true};
    weir_chunk chunk;
    r->fake->before_decode = wait_at_gate;
    r->fake->before_decode_user = &g;
    start(r, 2);
    weir_stream *stream = rig_submit_key(r, 'A'), *other = rig_submit_key(r, 'B');
    while (!atomic_load(&g.inside)) sched_yield();
    waiter w = {.stream = stream};
    assert_int_equal(pthread_create(&w.thread, NULL, consume_until_cancelled, &w), 0);
    while (weir_stream_try_next(stream, &chunk) != WEIR_STATE) sched_yield();
    weir_stream_set_interval(stream, 7);
    weir_stream_cancel(stream);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.status, WEIR_ABORTED);
    assert_int_equal(weir_stream_try_next(stream, &chunk), WEIR_TIMEOUT); /* its end is still to come */
    weir_stream *third = rig_submit_key(r, 'C');
    weir_engine_stats stats = rig_stats(r);
    assert_true(stats.n_slots_prefilling >= 1 && stats.n_kv_reserved > 0); /* admitted, not yet computed */
    assert_int_equal(stats.n_slots_prefilling + stats.queue_depth, 3);
    assert_int_equal(weir_engine_drain(r->engine, 0), WEIR_TIMEOUT);
    assert_int_equal(atomic_load(&r->fake->n_passes), 0);
    atomic_store(&g.closed, false);
    sink got[3] = {0};
    sink_wait(&got[0], stream);
    assert_sink(got[0], WEIR_REASON_CANCELLED, "");
    sink_wait(&got[1], other);
    assert_sink(got[1], WEIR_REASON_END, answers[1]);
    sink_wait(&got[2], third);
    assert_sink(got[2], WEIR_REASON_END, answers[2]);
}

static void a_pass_that_nobody_waits_for_is_broken_off(void **state)
{
    rig *r = *state;
    sink got = {0};
    start(r, 2);
    atomic_store(&r->fake->tick_us, AGES_US);
    weir_stream *stream = rig_submit_key(r, 'A');
    while (rig_stats(r).queue_depth > 0) sched_yield();
    weir_stream_cancel(stream);
    sink_wait(&got, stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "");
    atomic_store(&r->fake->tick_us, 0);
    got = (sink){0};
    sink_wait(&got, rig_submit_key(r, 'B'));
    assert_sink(got, WEIR_REASON_END, answers[1]);
    assert_int_equal(rig_stats(r).n_failed_ticks, 0);
}

static void stop_breaks_off_the_pass_and_wakes_every_reader(void **state)
{
    rig *r = *state;
    static reader readers[4];
    memset(readers, 0, sizeof readers);
    start(r, 2);
    atomic_store(&r->fake->tick_us, AGES_US);
    weir_request requests[4];
    weir_stream *streams[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = rig_ask(r, 'A' + i);
        streams[i] = rig_stream(r);
    }
    assert_int_equal(weir_engine_submit(r->engine, requests, 4, streams, NULL), WEIR_OK);
    for (int i = 0; i < 4; i++) start_reader(&readers[i], streams[i]); /* two of them are queued */
    while (rig_stats(r).queue_depth > 2) sched_yield();
    weir_engine_stop(r->engine);
    for (int i = 0; i < 4; i++) {
        weir_error error;
        pthread_join(readers[i].thread, NULL);
        assert_sink(readers[i].got, WEIR_REASON_ERROR, "");
        weir_stream_error(readers[i].stream, &error);
        assert_int_equal(error.code, WEIR_STOPPED);
    }
}

static void an_idle_engine_wakes_for_work_again_and_again(void **state)
{
    rig *r = *state;
    start(r, 2);
    for (int i = 0; i < 50; i++) {
        sink got = {0};
        weir_stream *stream = rig_submit_key(r, 'A' + i % N);
        sink_wait(&got, stream);
        assert_sink(got, WEIR_REASON_END, answers[i % N]);
        rig_release(r, stream);
        r->n_streams = 0;
    }
}

static void a_deadline_passes_without_anybody_ringing(void **state)
{
    rig *r = *state;
    sink got = {0};
    start(r, 1);
    atomic_store(&r->fake->tick_us, 2000);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = 30;
    weir_stream *stream = rig_submit(r, &request);
    sink_wait(&got, stream);
    assert_null(got.wrong);
    assert_int_equal(got.reason, WEIR_REASON_DEADLINE);
    assert_true(weir_stream_usage(stream).total_ns >= 30 * WEIR__NS_PER_MS);
}

/* ---- Descriptors and callbacks -------------------------------------------------------------------- */

static void many_streams_are_read_by_one_poll_loop(void **state)
{
    rig *r = *state;
    weir_stream *streams[N];
    static sink got[N];
    struct pollfd entries[N];
    int n_open = N;
    memset(got, 0, sizeof got);
    start(r, 4);
    for (int i = 0; i < N; i++) {
        streams[i] = rig_submit_key(r, 'A' + i);
        entries[i] = (struct pollfd){.events = POLLIN};
        assert_int_equal(weir_stream_descriptor(streams[i], &entries[i].fd, NULL), WEIR_OK);
    }
    while (n_open > 0) {
        assert_true(poll(entries, N, 120000) > 0);
        for (int i = 0; i < N; i++) {
            if (!(entries[i].revents & POLLIN)) continue;
            weir_chunk chunk;
            assert_int_equal(weir_stream_try_next(streams[i], &chunk), WEIR_OK); /* readable: there is one */
            sink_add(&got[i], &chunk);
            if (!got[i].finished) continue;
            entries[i].fd = -1;
            n_open--;
        }
    }
    for (int i = 0; i < N; i++) assert_sink(got[i], WEIR_REASON_END, answers[i]);
}

typedef struct callback {
    sink got;
    atomic_bool finished;
    pthread_t thread;
} callback;

static void take_in_callback(weir_stream *stream, void *user)
{
    callback *c = user;
    weir_chunk chunk;
    c->thread = pthread_self();
    while (weir_stream_try_next(stream, &chunk) == WEIR_OK) sink_add(&c->got, &chunk);
    if (c->got.finished) {
        weir_stream_release(stream);
        atomic_store(&c->finished, true);
    }
}

static void callbacks_can_do_all_the_reading_and_the_release(void **state)
{
    rig *r = *state;
    static callback callbacks[N];
    memset(callbacks, 0, sizeof callbacks);
    start(r, 3);
    for (int i = 0; i < N; i++) {
        weir_stream *stream = NULL;
        weir_request request = rig_ask(r, 'A' + i);
        assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
        weir_stream_set_ready(stream, take_in_callback, &callbacks[i]);
        assert_int_equal(weir_engine_submit(r->engine, &request, 1, &stream, NULL), WEIR_OK);
    }
    for (int i = 0; i < N; i++) {
        while (!atomic_load(&callbacks[i].finished)) sched_yield();
        assert_sink(callbacks[i].got, WEIR_REASON_END, answers[i]);
        assert_true(pthread_equal(callbacks[i].thread, callbacks[0].thread));
        assert_false(pthread_equal(callbacks[i].thread, pthread_self())); /* the engine's */
    }
}

typedef struct follower {
    rig *r;
    weir_stream *next;
    atomic_int status; /* of the submit; -100 before */
} follower;

static void submit_next(weir_stream *stream, void *user)
{
    follower *f = user;
    if (!weir_stream_finished(stream)) return;
    weir_request request = rig_ask(f->r, 'B');
    atomic_store(&f->status, (int)weir_engine_submit(f->r->engine, &request, 1, &f->next, NULL));
}

static void a_callback_may_submit(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    start(r, 1);
    weir_stream *first = rig_stream(r);
    follower f = {.r = r, .next = rig_stream(r), .status = -100};
    weir_stream_set_ready(first, submit_next, &f);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &first, NULL), WEIR_OK);
    sink_wait(&got[0], first);
    while (atomic_load(&f.status) == -100) sched_yield();
    weir_stream_set_ready(first, NULL, NULL);
    assert_int_equal(atomic_load(&f.status), WEIR_OK);
    sink_wait(&got[1], f.next);
    assert_sink(got[1], WEIR_REASON_END, answers[1]);
}

/* ---- Everybody at once ---------------------------------------------------------------------------- */

typedef struct client {
    pthread_t thread;
    rig *r;
    int number, n_done;
    const char *wrong;
} client;

static void *live(void *argument)
{
    client *c = argument;
    for (int i = 0; i < 20 && c->wrong == NULL; i++) {
        int key = (c->number + i) % N;
        weir_stream *stream = NULL;
        weir_request request = rig_ask(c->r, 'A' + key);
        request.interval = 1 + i % 4;
        sink *got = calloc(1, sizeof *got);
        if (got == NULL || weir_stream_create(&stream, NULL) != WEIR_OK) c->wrong = "no memory";
        weir_status status = weir_engine_submit(c->r->engine, &request, 1, &stream, NULL);
        if (status == WEIR_BUSY) {
            c->n_done--;
        } else if (status != WEIR_OK) {
            c->wrong = "submit";
        } else if (i % 5 == 4) {
            weir_stream_release(weir_stream_hold(stream)); /* and away */
        } else {
            if (i % 5 == 3) weir_stream_cancel(stream);
            sink_wait(got, stream);
            c->wrong = got->wrong;
            if (got->reason == WEIR_REASON_END && strcmp(got->text, answers[key]) != 0) c->wrong = "text";
            if (got->reason != WEIR_REASON_END && i % 5 != 3) c->wrong = "reason";
        }
        c->n_done++;
        weir_stream_release(stream);
        free(got);
    }
    return NULL;
}

static void clients_come_and_go_and_the_counters_add_up(void **state)
{
    rig *r = *state;
    client clients[6];
    uint64_t n_done = 0, n_finished = 0;
    r->params.queue_limit = 4;
    start(r, 3);
    for (int i = 0; i < 6; i++) {
        clients[i] = (client){.r = r, .number = i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, live, &clients[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(clients[i].thread, NULL);
        if (clients[i].wrong != NULL) fail_msg("%s", clients[i].wrong);
        n_done += (uint64_t)clients[i].n_done;
    }
    assert_int_equal(weir_engine_drain(r->engine, 120000), WEIR_OK);
    weir_engine_stats stats = rig_stats(r);
    for (int i = 0; i < 8; i++) n_finished += stats.n_finished[i];
    assert_int_equal(stats.n_submitted, n_done);
    assert_int_equal(n_finished, n_done);
    assert_int_equal(stats.n_refused, 6 * 20 - n_done);
    assert_int_equal(stats.n_finished[WEIR_REASON_ERROR], 0);
    assert_int_equal(stats.n_kv_used, 0);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

static void *step_often(void *argument)
{
    client *c = argument;
    while (c->n_done < 100000) {
        weir_status status = weir_engine_step(c->r->engine, NULL, 0, NULL, NULL);
        if (status != WEIR_OK && status != WEIR_STATE) c->wrong = weir_status_name(status);
        if (status == WEIR_OK && rig_stats(c->r).n_finished[WEIR_REASON_END] == N) break;
        c->n_done++;
    }
    return NULL;
}

static void a_manual_engine_may_change_drivers(void **state)
{
    rig *r = *state;
    client drivers[3];
    weir_stream *streams[N];
    start(r, 4);
    weir_engine_destroy(r->engine);
    r->params.manual = true;
    rig_start(r);
    for (int i = 0; i < N; i++) streams[i] = rig_submit_key(r, 'A' + i);
    for (int i = 0; i < 3; i++) {
        drivers[i] = (client){.r = r};
        assert_int_equal(pthread_create(&drivers[i].thread, NULL, step_often, &drivers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(drivers[i].thread, NULL);
        assert_null(drivers[i].wrong);
    }
    rig_run(r);
    for (int i = 0; i < N; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, answers[i]);
    }
}

static void *stop_it(void *engine)
{
    weir_engine_stop(engine);
    return NULL;
}

static void a_manual_engine_may_be_stopped_by_another_thread(void **state)
{
    rig *r = *state;
    pthread_t thread;
    sink got = {0};
    start(r, 1);
    weir_engine_destroy(r->engine);
    r->params.manual = true;
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_tick(r);
    assert_int_equal(pthread_create(&thread, NULL, stop_it, r->engine), 0);
    while (!weir_stream_finished(stream)) weir_engine_step(r->engine, NULL, 0, NULL, NULL);
    pthread_join(thread, NULL);
    sink_take(&got, stream);
    assert_true(got.reason == WEIR_REASON_ERROR || got.reason == WEIR_REASON_END);
    check_cut(&got, 0);
}

typedef struct watcher {
    pthread_t thread;
    weir_engine *engine;
    atomic_bool *over;
    size_t piece;
    uint64_t n_ticks, n_tokens, n_generated, n_arrivals;
    const char *wrong;
} watcher;

/* Reads the record as it grows, in pieces of its own size, and once more after the end. */
static void *watch(void *argument)
{
    watcher *f = argument;
    weir_tick ticks[64];
    weir_tick_slot parts[64];
    weir_arrival arrivals[64];
    uint64_t part = 0;
    for (bool last = false; !last;) {
        last = atomic_load(f->over);
        size_t n;
        while (weir_engine_ticks(f->engine, f->n_ticks, ticks, f->piece, &n) == WEIR_OK) {
            for (size_t i = 0; i < n; i++)
                if (ticks[i].serial != f->n_ticks++) f->wrong = "a tick is missing";
        }
        while (weir_engine_tick_slots(f->engine, part, parts, f->piece, &n) == WEIR_OK) {
            for (size_t i = 0; i < n; i++) {
                if (parts[i].serial != part++) f->wrong = "a part is missing";
                f->n_tokens += (uint64_t)parts[i].n_tokens;
                if (parts[i].end_ns != 0) f->n_generated += (uint64_t)parts[i].n_generated;
            }
        }
        while (weir_engine_arrivals(f->engine, f->n_arrivals, arrivals, f->piece, &n) == WEIR_OK) {
            for (size_t i = 0; i < n; i++)
                if (arrivals[i].request != f->n_arrivals++) f->wrong = "an arrival is missing";
        }
        sched_yield();
    }
    return NULL;
}

static void the_record_has_several_readers(void **state)
{
    rig *r = *state;
    watcher watchers[3] = {{.piece = 1}, {.piece = 7}, {.piece = 64}};
    atomic_bool over = false;
    start(r, 3);
    for (size_t i = 0; i < COUNT(watchers); i++) {
        watchers[i].engine = r->engine;
        watchers[i].over = &over;
        assert_int_equal(pthread_create(&watchers[i].thread, NULL, watch, &watchers[i]), 0);
    }
    for (int round = 0; round < 3; round++) {
        weir_stream *streams[N];
        for (int i = 0; i < N; i++) streams[i] = rig_submit_key(r, 'A' + i);
        weir_stream_cancel(streams[round]);
        for (int i = 0; i < N; i++) {
            sink got = {0};
            sink_wait(&got, streams[i]);
            assert_null(got.wrong);
        }
    }
    assert_int_equal(weir_engine_drain(r->engine, 120000), WEIR_OK);
    weir_engine_stop(r->engine);
    atomic_store(&over, true);
    weir_engine_stats stats = rig_stats(r);
    for (size_t i = 0; i < COUNT(watchers); i++) {
        watcher *f = &watchers[i];
        pthread_join(f->thread, NULL);
        assert_null(f->wrong);
        assert_int_equal(f->n_ticks, stats.n_ticks);
        assert_int_equal(f->n_arrivals, stats.n_submitted);
        assert_int_equal(f->n_generated, stats.n_generated_tokens);
        assert_true(f->n_tokens >= stats.n_prompt_tokens && f->n_tokens == (uint64_t)stats.batch_tokens.sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(eight_readers_get_their_own_text),
        RIG_TEST(cancels_of_some_readers_do_not_touch_the_others),
        RIG_TEST(a_reader_that_never_comes_holds_nobody_up),
        RIG_TEST(nothing_that_a_caller_does_waits_for_a_pass),
        RIG_TEST(a_pass_that_nobody_waits_for_is_broken_off),
        RIG_TEST(stop_breaks_off_the_pass_and_wakes_every_reader),
        RIG_TEST(an_idle_engine_wakes_for_work_again_and_again),
        RIG_TEST(a_deadline_passes_without_anybody_ringing),
        RIG_TEST(many_streams_are_read_by_one_poll_loop),
        RIG_TEST(callbacks_can_do_all_the_reading_and_the_release),
        RIG_TEST(a_callback_may_submit),
        RIG_TEST(clients_come_and_go_and_the_counters_add_up),
        RIG_TEST(a_manual_engine_may_change_drivers),
        RIG_TEST(a_manual_engine_may_be_stopped_by_another_thread),
        RIG_TEST(the_record_has_several_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
