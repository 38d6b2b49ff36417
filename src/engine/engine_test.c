/* An engine's life, and many threads at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "base/cpu.h"
#include "support/engine/engine.h"

static char heard[512];

static void hear(weir_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    snprintf(heard, sizeof heard, "%s", line);
}

/* ---- Create --------------------------------------------------------------------------------------- */

static void create_refused(rig *r, weir_status status, const char *field)
{
    weir_error error = {0};
    long live = weir__mem_live();
    assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, &error), status);
    assert_null(r->engine);
    assert_int_equal(error.code, status);
    assert_string_equal(error.field, field);
    assert_int_equal(weir__mem_live(), live);
    assert_int_equal(atomic_load(&r->fake->n_contexts), 0);
}

static void parameters_out_of_range_are_named(void **state)
{
    rig *r = *state;
    const weir_engine_params good = r->params;
#define REFUSED(member, value)                                                                               \
    do {                                                                                                     \
        r->params = good;                                                                                    \
        r->params.member = (value);                                                                          \
        create_refused(r, WEIR_INVALID, #member);                                                            \
    } while (0)
    REFUSED(n_slots, 0);
    REFUSED(n_slots, 257);
    REFUSED(n_slots, -1);
    REFUSED(n_slots, INT32_MIN);
    REFUSED(n_ctx, -1);
    REFUSED(n_ctx, INT32_MAX);
    REFUSED(n_kv, -1);
    REFUSED(max_tokens, -2);
    REFUSED(n_batch, 0);
    REFUSED(n_batch, r->params.n_slots - 1); /* each slot needs a token in a tick */
    REFUSED(n_ubatch, -1);
    REFUSED(chunk_size, 0);
    REFUSED(chunk_size, INT32_MIN);
    REFUSED(n_threads, -1);
    REFUSED(n_threads, 100000);
    REFUSED(n_threads_batch, -1);
    REFUSED(queue_limit, -1);
    REFUSED(ageing_ms, -1);
    REFUSED(ageing_ms, 86400001);
    REFUSED(itl_target_ms, 0);
    REFUSED(itl_target_ms, 60001);
    REFUSED(layout, (weir_layout)3);
    REFUSED(type_k, (weir_kv_type)5);
    REFUSED(type_v, (weir_kv_type)99);
    static const weir_strategy empty = {.name = "empty"};
    REFUSED(strategy, &empty);
    r->params = good;
    r->params.size = 0;
    create_refused(r, WEIR_INVALID, "params");
}

static void too_many_cells_are_named(void **state)
{
    rig *r = *state;
    if (weir__cpu_memory_available() == 0) skip();
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.n_slots = 256;
    r->params.n_kv = 1 << 28;
    create_refused(r, WEIR_NO_MEMORY, "n_kv");
}

/* Every call with an engine that was destroyed says so, and blames no fork(). */
static void a_destroyed_engine_is_named(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_request request = weir_request_default();
    weir_result result;
    weir_forecast forecast = {.size = sizeof forecast};
    weir_engine_stats stats = {.size = sizeof stats};
    const weir_view *view;
    weir_snapshot *snapshot = NULL;
    weir_stream *stream = NULL;
    weir_flight *flight = NULL;
    int32_t token = 1;
    size_t n;
    request.text = "x";
    r->params.manual = true;
    assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, NULL), WEIR_OK);
    weir_engine *gone = r->engine;
    r->engine = NULL;
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    assert_int_equal(weir_engine_destroy(gone), WEIR_OK);
#define GONE(call)                                                                                           \
    do {                                                                                                     \
        memset(&error, 0, sizeof error);                                                                     \
        assert_int_equal(call, WEIR_STATE);                                                                  \
        assert_string_equal(error.field, "engine");                                                          \
        assert_non_null(strstr(error.message, "was destroyed"));                                             \
        assert_null(strstr(error.message, "fork"));                                                          \
    } while (0)
    GONE(weir_engine_submit(gone, &request, 1, &stream, &error));
    GONE(weir_engine_submit(gone, &request, 0, NULL, &error));
    GONE(weir_generate(gone, &request, 1, NULL, &result, &error));
    GONE(weir_generate_best(gone, &request, 1, 1, &result, &error));
    GONE(weir_flight_open(gone, &request, false, &flight, NULL, &error));
    GONE(weir_engine_plan_request(gone, &request, &forecast, &error));
    GONE(weir_snapshot_create(gone, &token, 1, NULL, 0, 1, &snapshot, &error));
    GONE(weir_engine_view(gone, &view, &error));
    GONE(weir_engine_step(gone, NULL, 0, NULL, &error));
#undef GONE
    assert_int_equal(weir_engine_get_stats(gone, &stats), WEIR_STATE);
    assert_int_equal(weir_engine_ticks(gone, 0, NULL, 0, &n), WEIR_STATE);
    assert_int_equal(weir_engine_tick_slots(gone, 0, NULL, 0, &n), WEIR_STATE);
    assert_int_equal(weir_engine_arrivals(gone, 0, NULL, 0, &n), WEIR_STATE);
    assert_int_equal(weir_engine_block_tokens(gone, 0, NULL, 0, &n), WEIR_STATE);
    assert_int_equal(weir_engine_drain(gone, 0), WEIR_STATE);
    weir_log_set(hear, NULL);
    weir_engine_stop(gone);
    assert_non_null(strstr(heard, "weir_engine_stop did nothing"));
    assert_int_equal(weir_engine_destroy(gone), WEIR_STATE);
    weir_log_set(NULL, NULL);
    assert_non_null(strstr(heard, "weir_engine_destroy did nothing: the engine was destroyed"));
    weir_stream_release(stream);
}

static void missing_pointers_are_reported(void **state)
{
    rig *r = *state;
    weir_error error;
    weir_engine_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_engine_create(NULL, &r->params, &r->engine, &error), WEIR_INVALID);
    assert_string_equal(error.field, "model");
    assert_int_equal(weir_engine_create(r->model, &r->params, NULL, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_get_stats(NULL, &stats), WEIR_INVALID);
    assert_int_equal(weir_engine_drain(NULL, 0), WEIR_INVALID);
    weir_engine_stop(NULL);
    weir_engine_destroy(NULL);
    rig_start(r);
    assert_int_equal(weir_engine_get_stats(r->engine, NULL), WEIR_INVALID);
    stats.size = 0;
    assert_int_equal(weir_engine_get_stats(r->engine, &stats), WEIR_INVALID);
}

static void the_defaults_make_an_engine_with_a_thread(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "hello");
    assert_int_equal(weir_engine_create(r->model, NULL, &r->engine, NULL), WEIR_OK);
    assert_int_equal(rig_stats(r).n_slots, 8);
    assert_int_equal(rig_stats(r).n_ctx, 4096);
    sink_wait(&got, rig_submit_key(r, 'A'));
    assert_sink(got, WEIR_REASON_END, "hello");
}

static void allotted_sizes_are_reported(void **state)
{
    rig *r = *state;
    r->params.n_slots = 3;
    r->params.n_ctx = 300;
    r->params.layout = WEIR_LAYOUT_PER_SLOT;
    rig_start(r);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.layout, WEIR_LAYOUT_PER_SLOT);
    assert_int_equal(stats.n_kv, 3 * 512); /* lanes round up */
    assert_int_equal(stats.n_ctx, 300);    /* a request's limit does not */
    weir_engine_destroy(r->engine);
    r->params.n_kv = 512; /* less than the slots could use: the context shrinks with it */
    r->params.n_ctx = 0;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    rig_start(r);
    stats = rig_stats(r);
    assert_int_equal(stats.n_kv, 512);
    assert_int_equal(stats.n_ctx, 512);
    assert_int_equal(stats.n_batch, 512);
    weir_engine_destroy(r->engine);
    r->params.n_kv = 0;
    rig_start(r);
    assert_int_equal(rig_stats(r).n_ctx, 4096); /* n_ctx 0: the model's training length */
}

static void a_model_without_weights_is_refused(void **state)
{
    rig *r = *state;
    weir_model_params params = weir_model_params_default();
    weir_model *model;
    weir_error error;
    params.vocab_only = true;
    assert_int_equal(weir_model_load("fake:", &params, &model, NULL), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &r->params, &r->engine, &error), WEIR_UNSUPPORTED);
    weir_model_release(model);
}

static void every_allocation_of_create_may_fail(void **state)
{
    rig *r = *state;
    for (int manual = 0; manual < 2; manual++) {
        int n_lookup = 0;
        r->params.manual = manual;
        r->params.n_draft_max = 4;
        for (long n = 0;; n++) {
            weir_error error = {0};
            long live = weir__mem_live();
            weir__mem_fail_after(n);
            weir_status status = weir_engine_create(r->model, &r->params, &r->engine, &error);
            bool pending = weir__mem_fail_pending();
            weir__mem_fail_after(-1);
            if (pending) {
                assert_int_equal(status, WEIR_OK);
                assert_true(n > 8 && n_lookup > 0);
                break;
            }
            assert_int_equal(status, WEIR_NO_MEMORY);
            assert_int_equal(error.code, WEIR_NO_MEMORY);
            n_lookup += strcmp(error.field, "lookup_bytes") == 0;
            assert_int_equal(weir__mem_live(), live);
        }
        rig_stop(r);
    }
}

/* Memory fails once, anywhere in submit and run: a refused submit, or one terminal chunk for each stream and
 * at most one of them an error; the engine goes on. */
static void every_allocation_of_a_run_may_fail(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"no such text"};
    static const char *const want[] = {"one \xf0\x9f\x99\x82 one", "two two \xef\xbf\xbd"};
    rig_script(r, 'A', 3, want[0]);
    rig_script(r, 'B', 30, "two two \xc3");
    long n = 0;
    for (bool pending = false; !pending; n++) {
        rig_start(r);
        weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B')};
        weir_stream *streams[] = {rig_stream(r), rig_stream(r)};
        requests[1].stop = stop;
        requests[1].n_stop = 1;
        requests[1].interval = 3;
        weir__mem_fail_after(n);
        weir_status status = weir_engine_submit(r->engine, requests, 2, streams, NULL);
        if (status == WEIR_OK) rig_run(r);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        int n_errors = 0;
        for (int i = 0; i < 2 && status == WEIR_OK; i++) {
            sink got = {0};
            weir_error error;
            sink_take(&got, streams[i]);
            assert_true(got.finished);
            weir_stream_error(streams[i], &error);
            n_errors += got.reason == WEIR_REASON_ERROR;
            if (got.reason == WEIR_REASON_ERROR)
                assert_int_equal(error.code, WEIR_NO_MEMORY);
            else
                assert_sink(got, WEIR_REASON_END, want[i]);
        }
        if (status == WEIR_OK)
            assert_int_equal(n_errors, !pending);
        else
            assert_int_equal(status, WEIR_NO_MEMORY);
        assert_int_equal(rig_stats(r).n_kv_used, 0);
        assert_int_equal(rig_stats(r).n_kv_reserved, 0);
        sink after = {0};
        weir_stream *next = rig_submit_key(r, 'A');
        rig_run(r);
        sink_take(&after, next);
        assert_sink(after, WEIR_REASON_END, want[0]);
        rig_stop(r);
        for (int i = 0; i < 2; i++) weir_stream_release(streams[i]);
        weir_stream_release(next);
        r->n_streams = 0;
    }
    assert_true(n > 20);
}

/* ---- Stop ----------------------------------------------------------------------------------------- */

static void stop_ends_every_stream_once_whatever_its_state(void **state)
{
    rig *r = *state;
    static const char *const want[] = {"abc", "", "ab", "", ""};
    sink got[5] = {0};
    weir_stream *streams[5];
    weir_error error;
    r->params.n_slots = 3;
    r->params.chunk_size = 4;
    rig_script(r, 'A', 3, "abcdef"); /* generates, held back by the interval */
    rig_script(r, 'B', 90, "never"); /* prefills */
    rig_script(r, 'C', 3, "ab");     /* ends before the stop */
    rig_script(r, 'D', 90, "never"); /* waits */
    rig_script(r, 'E', 3, "never");  /* waits, cancelled */
    rig_start(r);
    for (int i = 0; i < 5; i++) {
        weir_request request = rig_ask(r, 'A' + i);
        request.interval = 10;
        streams[i] = rig_submit(r, &request);
    }
    weir_stream *blocker = rig_submit_key(r, 'D');
    rig_ticks(r, 3);
    weir_stream_cancel(streams[4]);
    weir_engine_stop(r->engine);
    weir_engine_stop(r->engine);
    static const weir_reason reasons[] = {WEIR_REASON_ERROR, WEIR_REASON_ERROR, WEIR_REASON_END,
                                          WEIR_REASON_ERROR, WEIR_REASON_CANCELLED};
    for (int i = 0; i < 5; i++) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], reasons[i], want[i]);
        weir_stream_error(streams[i], &error);
        assert_int_equal(error.code, reasons[i] == WEIR_REASON_ERROR ? WEIR_STOPPED : WEIR_OK);
    }
    assert_true(weir_stream_finished(blocker));
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    assert_int_equal(weir_engine_drain(r->engine, 0), WEIR_OK); /* nothing lives */
}

static void a_cancel_that_came_before_the_stop_counts(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    weir_stream *streams[] = {rig_submit_key(r, 'A'), rig_submit_key(r, 'A')};
    rig_ticks(r, 2);
    weir_stream_cancel(streams[0]);
    weir_engine_stop(r->engine);
    for (int i = 0; i < 2; i++) sink_take(&got[i], streams[i]);
    assert_sink(got[0], WEIR_REASON_CANCELLED, "ab");
    assert_sink(got[1], WEIR_REASON_ERROR, "ab");
}

static void a_stopped_engine_takes_no_more(void **state)
{
    rig *r = *state;
    weir_error error;
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_engine_stop(r->engine);
    weir_request request = rig_ask(r, 'A');
    weir_stream *stream = rig_stream(r);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &stream, &error), WEIR_STOPPED);
    assert_int_equal(error.code, WEIR_STOPPED);
    assert_int_equal(weir_stream_index(stream), -1);
    assert_int_equal(rig_stats(r).n_submitted, 0);
    assert_int_equal(rig_stats(r).n_refused, 0); /* counts full queues only */
    assert_true(rig_tick(r).idle);
}

static void streams_outlive_their_engine_and_model(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    rig_script(r, 'A', 3, "abc");
    rig_script(r, 'B', 3, "abcdef");
    rig_start(r);
    weir_stream *done = rig_submit_key(r, 'A'), *cut = rig_submit_key(r, 'B');
    rig_ticks(r, 4);
    rig_stop(r);
    weir_stream_cancel(cut);
    weir_stream_set_interval(cut, 4);
    sink_take(&got[0], done);
    assert_sink(got[0], WEIR_REASON_END, "abc");
    sink_take(&got[1], cut);
    assert_sink(got[1], WEIR_REASON_ERROR, "abcd");
}

static void stop_here(weir_stream *stream, void *engine)
{
    (void)stream;
    weir_engine_stop(engine);
    weir_engine_stop(engine);
}

static void stop_from_within_a_ready_callback(rig *r, bool manual)
{
    sink got[3] = {0};
    weir_stream *streams[3];
    r->params.manual = manual;
    r->params.n_slots = 2;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcdef");
    rig_start(r);
    for (int i = 0; i < 3; i++) {
        streams[i] = rig_stream(r);
        weir_stream_set_ready(streams[i], stop_here, r->engine); /* also those that the stop ends */
    }
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), rig_ask(r, 'C')};
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_OK);
    if (manual) rig_ticks(r, 2);
    for (int i = 0; i < 3; i++) {
        sink_wait(&got[i], streams[i]);
        assert_int_equal(got[i].reason, WEIR_REASON_ERROR);
        assert_true(got[i].n_text <= 1);
    }
    weir_engine_stop(r->engine);
    for (int i = 0; i < 3; i++) weir_stream_set_ready(streams[i], NULL, NULL);
}

static void a_ready_callback_may_stop_a_manual_engine(void **state)
{
    stop_from_within_a_ready_callback(*state, true);
}

static void a_ready_callback_may_stop_an_engine_with_a_thread(void **state)
{
    stop_from_within_a_ready_callback(*state, false);
}

typedef struct inner {
    weir_engine *outer, *inner;
    int calls;
} inner;

static void drive_the_inner(weir_stream *stream, void *user)
{
    inner *i = user;
    (void)stream;
    i->calls++;
    weir_engine_step(i->inner, NULL, 0, NULL, NULL);
}

static void stop_both(weir_stream *stream, void *user)
{
    inner *i = user;
    (void)stream;
    weir_engine_stop(i->outer);
    weir_engine_stop(i->inner);
}

static void a_callback_may_drive_one_engine_and_stop_both(void **state)
{
    rig *r = *state;
    weir_engine *second;
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    assert_int_equal(weir_engine_create(r->model, &r->params, &second, NULL), WEIR_OK);
    inner i = {.outer = r->engine, .inner = second};
    weir_stream *streams[] = {rig_submit_key(r, 'A'), rig_stream(r)};
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(second, &request, 1, &streams[1], NULL), WEIR_OK);
    weir_stream_set_ready(streams[0], drive_the_inner, &i);
    weir_stream_set_ready(streams[1], stop_both, &i);
    rig_tick(r);
    assert_true(i.calls >= 1);
    for (int k = 0; k < 2; k++) {
        sink got = {0};
        sink_take(&got, streams[k]);
        assert_sink(got, WEIR_REASON_ERROR, "a");
        weir_stream_set_ready(streams[k], NULL, NULL);
    }
    weir_engine_destroy(second);
}

/* Answers with the script, and in the second pass stops the engine after the first of three sequences. */
static int32_t next_and_stop(void *user, const int32_t *history, int32_t n)
{
    rig *r = user;
    if (history[0] == 'A' && n == 4) weir_engine_stop(r->engine);
    return rig_next(user, history, n);
}

static void a_pass_that_a_stop_breaks_off_leaves_nothing_behind(void **state)
{
    rig *r = *state;
    weir_error error;
    r->fake->next = next_and_stop;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcdef");
    rig_start(r);
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_ticks(r, 2);
    for (int i = 0; i < 3; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_ERROR, "a");
        weir_stream_error(streams[i], &error);
        assert_int_equal(error.code, WEIR_STOPPED);
    }
    assert_int_equal(rig_stats(r).n_failed_ticks, 0);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

/* ---- Drain ---------------------------------------------------------------------------------------- */

static void drain_lets_a_manual_engine_finish_only_when_driven(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_drain(r->engine, -1), WEIR_STATE);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_STOPPED);
    rig_run(r);
    assert_int_equal(weir_stream_reason(stream), WEIR_REASON_END);
    assert_int_equal(weir_engine_drain(r->engine, -1), WEIR_OK);
}

static void drain_waits_for_what_runs_and_takes_nothing_new(void **state)
{
    rig *r = *state;
    sink got[3] = {0};
    weir_stream *streams[3];
    r->params.manual = false;
    r->params.n_slots = 1;
    rig_script(r, 'A', 3, "abcd");
    rig_start(r);
    atomic_store(&r->fake->tick_us, 100000);
    weir_request request = rig_ask(r, 'A');
    const weir_request requests[] = {request, request, request};
    for (int i = 0; i < 3; i++) streams[i] = rig_stream(r);
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_OK);
    assert_int_equal(weir_engine_drain(r->engine, 1), WEIR_TIMEOUT);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_STOPPED);
    assert_int_equal(weir_engine_drain(r->engine, -1), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(weir_stream_finished(streams[i]));
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_END, "abcd");
    }
    assert_int_equal(weir_engine_drain(r->engine, 0), WEIR_OK);
}

/* ---- Counters ------------------------------------------------------------------------------------- */

static void counters_add_up(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 5, "abcd");
    rig_script(r, 'B', 7, "ab");
    rig_start(r);
    rig_submit_key(r, 'A');
    rig_submit_key(r, 'B');
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.n_submitted, 2);
    assert_int_equal(stats.queue_depth, 2);
    assert_int_equal(stats.n_ticks, 0);
    atomic_store(&r->fake->tick_us, 1000);
    rig_tick(r);
    stats = rig_stats(r);
    assert_int_equal(stats.queue_depth, 0);
    assert_int_equal(stats.n_slots_generating, 2);
    assert_int_equal(stats.n_kv_used, 12);
    /* their cells, a token each to be fed, and room to grow: 16 tokens and an eighth */
    assert_int_equal(stats.n_kv_reserved, 14 + 2 * 16 + 5 / 8 + 9 / 8);
    assert_int_equal(stats.n_prompt_tokens, 12);
    assert_int_equal(stats.n_generated_tokens, 2);
    assert_int_equal(rig_run(r), 4);
    stats = rig_stats(r);
    assert_int_equal(stats.n_ticks, 5);
    assert_int_equal(stats.n_finished[WEIR_REASON_END], 2);
    assert_int_equal(stats.n_generated_tokens, 5 + 3);
    assert_int_equal(stats.n_prompt_tokens, 12);
    assert_true(stats.decode_ns >= 5 * WEIR__NS_PER_MS);
    assert_true(stats.busy_ns > stats.decode_ns);
    assert_true(stats.tick_ns >= WEIR__NS_PER_MS && stats.tick_ns < stats.busy_ns);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_ticks, 5); /* nothing to do is no tick */
}

static void a_request_without_a_stream_costs_no_stream_memory(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 5, "abcdefgh");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    rig_ticks(r, 2);
    long live = weir__mem_live();
    rig_ticks(r, 5);
    assert_int_equal(weir__mem_live(), live);
    assert_int_equal(r->engine->driver.slots.first[0].request->emit.text.capacity, 0); /* no text was made */
    assert_null(r->engine->driver.scratch.piece.bytes);                                /* nor looked up */
    assert_int_equal(rig_stats(r).n_generated_tokens, 7);
}

static void see_cells(weir_stream *stream, void *user)
{
    rig *r = user;
    if (!weir_stream_finished(stream)) return;
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine_get_stats(r->engine, &stats);
    r->dirty = stats.n_kv_used != 0 || stats.n_kv_reserved != 0 || stats.n_slots_generating != 0 ||
               stats.n_finished[WEIR_REASON_END] != 1 || atomic_load(&r->fake->n_cells) != 0;
}

static void at_the_terminal_chunk_cells_are_free_and_counters_current(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 5, "abcd");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    r->dirty = true;
    weir_stream_set_ready(stream, see_cells, r);
    rig_run(r);
    assert_false(r->dirty);
}

static void an_older_program_gets_the_stats_it_knows(void **state)
{
    rig *r = *state;
    weir_engine_stats stats;
    memset(&stats, 0x55, sizeof stats);
    stats.size = offsetof(weir_engine_stats, n_slots_generating);
    rig_start(r);
    assert_int_equal(weir_engine_get_stats(r->engine, &stats), WEIR_OK);
    assert_int_equal(stats.n_slots, 4);
    assert_int_equal(stats.n_slots_prefilling, 0);
    assert_int_equal(stats.n_slots_generating, 0x55555555);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(parameters_out_of_range_are_named),
        RIG_TEST(too_many_cells_are_named),
        RIG_TEST(a_destroyed_engine_is_named),
        RIG_TEST(missing_pointers_are_reported),
        RIG_TEST(the_defaults_make_an_engine_with_a_thread),
        RIG_TEST(allotted_sizes_are_reported),
        RIG_TEST(a_model_without_weights_is_refused),
        RIG_TEST(every_allocation_of_create_may_fail),
        RIG_TEST(every_allocation_of_a_run_may_fail),
        RIG_TEST(stop_ends_every_stream_once_whatever_its_state),
        RIG_TEST(a_cancel_that_came_before_the_stop_counts),
        RIG_TEST(a_stopped_engine_takes_no_more),
        RIG_TEST(streams_outlive_their_engine_and_model),
        RIG_TEST(a_ready_callback_may_stop_a_manual_engine),
        RIG_TEST(a_ready_callback_may_stop_an_engine_with_a_thread),
        RIG_TEST(a_callback_may_drive_one_engine_and_stop_both),
        RIG_TEST(a_pass_that_a_stop_breaks_off_leaves_nothing_behind),
        RIG_TEST(drain_lets_a_manual_engine_finish_only_when_driven),
        RIG_TEST(drain_waits_for_what_runs_and_takes_nothing_new),
        RIG_TEST(counters_add_up),
        RIG_TEST(a_request_without_a_stream_costs_no_stream_memory),
        RIG_TEST(at_the_terminal_chunk_cells_are_free_and_counters_current),
        RIG_TEST(an_older_program_gets_the_stats_it_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
