/* Calls that would wait for the engine, from where they would wait for ever.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/waker.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/engine/engine.h"
#include "support/pause.h"

static void driven_engines_are_a_stack(void **state)
{
    (void)state;
    weir__waker *a = NULL, *b = NULL;
    weir__driving outer, inner, again;
    assert_int_equal(weir__waker_create(&a), WEIR_OK);
    assert_int_equal(weir__waker_create(&b), WEIR_OK);
    assert_false(weir__driving_here(a));
    weir__driving_begin(&outer, a);
    weir__driving_begin(&inner, b);
    weir__driving_begin(&again, a);
    assert_true(weir__driving_here(a) && weir__driving_here(b));
    assert_false(weir__waker_may_wait(a));
    weir__driving_end(&again);
    assert_true(weir__driving_here(a) && weir__driving_here(b));
    weir__driving_end(&inner);
    assert_true(weir__driving_here(a) && !weir__driving_here(b));
    assert_true(weir__waker_may_wait(b));
    weir__driving_end(&outer);
    assert_true(weir__waker_may_wait(a));
    weir__waker_release(a);
    weir__waker_release(b);
}

/* ---- From callbacks ---- */

/* A call that a callback tries once, and its status. */
typedef struct attempt {
    rig *r;
    weir_stream *other; /* attached, without a chunk yet */
    weir_status generate, best, drain, next, consume, destroy, step;
    weir_error error;
    atomic_int n; /* calls */
} attempt;

static bool ignore(const weir_chunk *chunk, void *user)
{
    (void)chunk, (void)user;
    return true;
}

static void try_all(weir_stream *stream, void *user)
{
    attempt *a = user;
    weir_result result;
    weir_chunk chunk;
    (void)stream;
    if (atomic_load(&a->n) == 0) {
        weir_request request = rig_ask(a->r, 'A');
        a->next = weir_stream_next(a->other, -1, &chunk);
        a->consume = weir_stream_consume(a->other, ignore, 10, NULL);
        a->best = weir_generate_best(a->r->engine, &request, 2, 1, &result, NULL);
        a->generate = weir_generate(a->r->engine, &request, 1, NULL, &result, &a->error);
        a->destroy = weir_engine_destroy(a->r->engine);
        a->step = weir_engine_step(a->r->engine, NULL, 0, NULL, NULL);
        a->drain = weir_engine_drain(a->r->engine, -1);
    }
    atomic_fetch_add(&a->n, 1);
}

static void start(rig *r, bool manual)
{
    r->params.manual = manual;
    r->params.n_slots = 1; /* the second stream waits in the queue, without a chunk */
    rig_script(r, 'A', 4, "an answer of some length");
    rig_start(r);
}

static void assert_refused(attempt *a)
{
    assert_int_equal(a->next, WEIR_STATE);
    assert_int_equal(a->consume, WEIR_STATE);
    assert_int_equal(a->best, WEIR_STATE);
    assert_int_equal(a->generate, WEIR_STATE);
    assert_int_equal(a->error.code, WEIR_STATE);
    assert_string_equal(a->error.field, "engine");
    assert_non_null(strstr(a->error.message, "callback"));
    assert_int_equal(a->destroy, WEIR_STATE);
    assert_int_equal(a->step, WEIR_STATE);
    assert_int_equal(a->drain, WEIR_STATE);
}

static void swallow(weir_log_level level, const char *message, void *user)
{
    int *n = user;
    *n += level == WEIR_LOG_ERROR && strstr(message, "weir_engine_destroy") != NULL;
}

/* The two streams of a test; the first one's callback tries. */
static void submit_both(rig *r, attempt *a, weir_stream **first)
{
    weir_request requests[2] = {rig_ask(r, 'A'), rig_ask(r, 'A')};
    weir_stream *streams[2] = {rig_stream(r), rig_stream(r)};
    *a = (attempt){.r = r, .other = streams[1]};
    assert_int_equal(weir_stream_set_ready(streams[0], try_all, a), WEIR_OK);
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    *first = streams[0];
}

static void the_engine_s_thread_refuses_to_wait_for_itself(void **state)
{
    rig *r = *state;
    attempt a;
    weir_stream *first;
    sink got = {0}, other = {0};
    int n_told = 0;
    start(r, false);
    weir_log_set(swallow, &n_told);
    submit_both(r, &a, &first);
    sink_wait(&got, first);
    sink_wait(&other, a.other);
    weir_log_set(NULL, NULL);
    assert_refused(&a);
    assert_int_equal(n_told, 1);
    assert_sink(got, WEIR_REASON_END, "an answer of some length"); /* nothing was harmed */
    assert_sink(other, WEIR_REASON_END, "an answer of some length");
}

static void a_tick_by_hand_refuses_to_wait_for_itself(void **state)
{
    rig *r = *state;
    attempt a;
    weir_stream *first;
    sink got = {0};
    int n_told = 0;
    start(r, true);
    weir_log_set(swallow, &n_told);
    submit_both(r, &a, &first);
    rig_run(r);
    weir_log_set(NULL, NULL);
    assert_refused(&a);
    sink_take(&got, first);
    assert_sink(got, WEIR_REASON_END, "an answer of some length");
}

/* The driver waits for this callback as well, on whatever thread it runs. */
static void so_does_a_callback_within_set_ready(void **state)
{
    rig *r = *state;
    int n_told = 0;
    attempt a = {.r = r};
    start(r, false);
    weir_log_set(swallow, &n_told);
    weir_request requests[2] = {rig_ask(r, 'A'), rig_ask(r, 'A')};
    weir_stream *streams[2] = {rig_stream(r), rig_stream(r)};
    atomic_store(&r->fake->tick_us, 2000); /* the other one is still waiting then */
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    int fd = descriptor_of(streams[0]);
    while (!readable(fd)) sched_yield();
    a.other = streams[1];
    assert_int_equal(weir_stream_set_ready(streams[0], try_all, &a), WEIR_OK);
    weir_log_set(NULL, NULL);
    assert_int_equal(atomic_load(&a.n) > 0, true);
    assert_refused(&a);
    weir_stream_set_ready(streams[0], NULL, NULL);
}

static void stop_engine(weir_stream *stream, void *engine)
{
    (void)stream;
    weir_engine_stop(engine);
}

static void a_callback_within_set_ready_may_stop(void **state)
{
    rig *r = *state;
    sink got = {0};
    start(r, true);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 4);
    assert_int_equal(weir_stream_set_ready(stream, stop_engine, r->engine), WEIR_OK);
    sink_take(&got, stream);
    assert_int_equal(got.reason, WEIR_REASON_ERROR);
    assert_int_equal(weir_stream_set_ready(stream, NULL, NULL), WEIR_OK);
}

/* ---- A manual engine that no thread drives ---- */

#define MOMENT WEIR__NS_PER_MS

static void count_undriven(weir_log_level level, const char *message, void *user)
{
    int *n = user;
    *n += level == WEIR_LOG_ERROR && strstr(message, "weir_engine_step") != NULL;
}

static void a_wait_without_limit_ends_if_no_thread_drives(void **state)
{
    rig *r = *state;
    weir_chunk chunk;
    weir_flight *flight = NULL;
    uint64_t at = 0;
    int n_told = 0;
    sink got = {0};
    start(r, true);
    weir__waker_be_manual(r->engine->waker, MOMENT);
    weir_stream *stream = rig_submit_key(r, 'A');
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_flight_open(r->engine, &request, false, &flight, NULL, NULL), WEIR_OK);
    weir_log_set(count_undriven, &n_told);
    assert_int_equal(weir_stream_next(stream, -1, &chunk), WEIR_STATE);
    assert_int_equal(weir_flight_next(flight, &at, -1, &chunk), WEIR_STATE);
    assert_int_equal(n_told, 2);
    assert_int_equal(weir_stream_next(stream, 1, &chunk), WEIR_TIMEOUT);
    assert_int_equal(weir_flight_next(flight, &at, 1, &chunk), WEIR_TIMEOUT);
    weir_log_set(NULL, NULL);
    assert_int_equal(n_told, 2);
    rig_run(r); /* nothing is lost */
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "an answer of some length");
    assert_int_equal(weir_flight_next(flight, &at, -1, &chunk), WEIR_OK);
    weir_flight_release(flight);
}

/* Ends the reading of empty chunks after a while. */
static bool take_some(const weir_chunk *chunk, void *user)
{
    int *n_left = user;
    assert_true(chunk->text[0] == '\0' && !chunk->finished);
    return --*n_left > 0;
}

static void a_consumer_goes_on_if_no_thread_drives(void **state)
{
    rig *r = *state;
    int n_told = 0, n_left = 20;
    sink got = {0};
    start(r, true);
    weir__waker_be_manual(r->engine->waker, MOMENT);
    weir_stream *stream = rig_submit_key(r, 'A');
    weir_log_set(count_undriven, &n_told);
    assert_int_equal(weir_stream_consume(stream, take_some, 2, &n_left), WEIR_ABORTED);
    weir_log_set(NULL, NULL);
    assert_int_equal(n_left, 0);
    assert_int_equal(n_told, 0);
    rig_run(r); /* nothing is lost */
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "an answer of some length");
}

/* A tick that begins to last before the other stream has a chunk. */
typedef struct long_tick {
    rig *r;
    weir_stream *other;
    weir_status tried; /* of the other stream while it has a reader */
    sem_t begun;
} long_tick;

/* Lasts until the other stream's reader waits, and then for much longer than its patience. */
static void last_long(weir_stream *stream, void *user)
{
    long_tick *tick = user;
    weir_chunk chunk;
    sem_post(&tick->begun);
    while ((tick->tried = weir_stream_try_next(tick->other, &chunk)) == WEIR_TIMEOUT) sched_yield();
    pause_us(50 * MOMENT / 1000);
    (void)weir_stream_set_ready(stream, NULL, NULL);
}

/* One tick only: both streams have their first chunk from it. */
static void *drive(void *user)
{
    rig_tick(((long_tick *)user)->r);
    return NULL;
}

static void a_wait_goes_on_within_a_tick(void **state)
{
    rig *r = *state;
    long_tick tick = {.r = r};
    pthread_t thread;
    weir_chunk chunk;
    r->params.manual = true;
    r->params.n_slots = 2;
    rig_script(r, 'A', 4, "an answer of some length");
    rig_start(r);
    weir__waker_be_manual(r->engine->waker, MOMENT);
    weir_request requests[2] = {rig_ask(r, 'A'), rig_ask(r, 'A')};
    weir_stream *streams[2] = {rig_stream(r), rig_stream(r)};
    assert_int_equal(sem_init(&tick.begun, 0, 0), 0);
    tick.other = streams[1];
    assert_int_equal(weir_stream_set_ready(streams[0], last_long, &tick), WEIR_OK);
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, drive, &tick), 0);
    assert_int_equal(sem_wait(&tick.begun), 0);
    assert_int_equal(weir_stream_next(streams[1], -1, &chunk), WEIR_OK);
    pthread_join(thread, NULL);
    sem_destroy(&tick.begun);
    assert_int_equal(tick.tried, WEIR_STATE);
    rig_run(r);
}

/* ---- After fork() ---- */

/* The number of the first thing that is not as it should be, 0 = none. */
static int use_inherited(rig *r, weir_stream *running)
{
    weir_request request = weir_request_default();
    weir_result result;
    weir_chunk chunk;
    weir_error error = {0};
    weir_stream *fresh = NULL;
    request.text = "x";
    if (weir_stream_create(&fresh, NULL) != WEIR_OK) return 1;
    if (weir_engine_submit(r->engine, &request, 1, &fresh, &error) != WEIR_STATE) return 2;
    if (strstr(error.message, "fork()") == NULL) return 3;
    if (weir_generate(r->engine, &request, 1, NULL, &result, NULL) != WEIR_STATE) return 4;
    if (weir_engine_drain(r->engine, -1) != WEIR_STATE) return 5;
    while (weir_stream_try_next(running, &chunk) == WEIR_OK) continue;
    if (weir_stream_next(running, -1, &chunk) != WEIR_STATE) return 6;
    weir_stream_release(running);
    weir_engine_stop(r->engine);
    if (weir_engine_destroy(r->engine) != WEIR_STATE) return 7;
    return 0;
}

static void a_child_cannot_use_its_parents_engine(void **state)
{
    rig *r = *state;
    sink got = {0};
    int status = -1, n_told = 0;
    start(r, false);
    atomic_store(&r->fake->tick_us, 500);
    weir_stream *stream = rig_submit_key(r, 'A');
    weir_log_set(swallow, &n_told);
    pid_t child = fork();
    if (child == 0) {
        alarm(300); /* a hang ends it with a signal */
        _exit(use_inherited(r, stream));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    weir_log_set(NULL, NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sink_wait(&got, stream); /* the parent's goes on */
    assert_sink(got, WEIR_REASON_END, "an answer of some length");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driven_engines_are_a_stack),
        RIG_TEST(the_engine_s_thread_refuses_to_wait_for_itself),
        RIG_TEST(a_tick_by_hand_refuses_to_wait_for_itself),
        RIG_TEST(so_does_a_callback_within_set_ready),
        RIG_TEST(a_callback_within_set_ready_may_stop),
        RIG_TEST(a_wait_without_limit_ends_if_no_thread_drives),
        RIG_TEST(a_consumer_goes_on_if_no_thread_drives),
        RIG_TEST(a_wait_goes_on_within_a_tick),
        RIG_TEST(a_child_cannot_use_its_parents_engine),
    };
    alarm(300); /* a call that waits for ever fails */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
