/* Cancels in each phase of a request and of a tick.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

/* ---- Something that happens within a tick --------------------------------------------------------- */

/* Cancels a stream right before the backend does pass or sample number `at`, counted from when it was set. */
typedef struct trap {
    weir_stream *stream; /* NULL: not set */
    int at;
} trap;

static void spring(trap *t)
{
    if (t->stream != NULL && t->at-- == 0) weir_stream_cancel(t->stream);
}

static void trap_decode(void *user, const weir__batch *batch)
{
    (void)batch;
    spring(user);
}

static void trap_sample(void *user, int32_t row)
{
    (void)row;
    spring(user);
}

/* Sets the traps, before the engine is made. */
static void set_traps(rig *r, trap *decode, trap *sample)
{
    if (decode != NULL) r->fake->before_decode = trap_decode;
    r->fake->before_decode_user = decode;
    if (sample != NULL) r->fake->before_sample = trap_sample;
    r->fake->before_sample_user = sample;
}

/* ---- Cancels -------------------------------------------------------------------------------------- */

static void cancel_while_prefilling_frees_the_cells(void **state)
{
    rig *r = *state;
    sink got = {0};
    r->params.chunk_size = 4;
    rig_script(r, 'A', 40, "answer");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 3);
    assert_int_equal(atomic_load(&r->fake->n_cells), 12);
    assert_int_equal(rig_stats(r).n_slots_prefilling, 1);
    weir_stream_cancel(stream);
    assert_true(rig_tick(r).idle);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "");
    assert_int_equal(got.n_chunks, 1);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    assert_int_equal(rig_stats(r).n_slots_prefilling, 0);
    assert_int_equal(rig_stats(r).n_kv_reserved, 0);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 12);
}

static void cancel_while_generating_frees_the_cells(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 4, "answer");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 3);
    assert_int_equal(rig_stats(r).n_slots_generating, 1);
    assert_int_equal(rig_stats(r).n_kv_used, 6);
    weir_stream_cancel(stream);
    assert_true(rig_tick(r).idle); /* no pass is spent on it */
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "ans");
    assert_int_equal(got.n_tokens, 3);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 1);
    weir_stream_cancel(stream);
    rig_ticks(r, 3);
    assert_int_equal(sink_take(&got, stream), 0);
}

static void cancel_leaves_what_was_not_read_yet(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 4, "answer");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 3);
    weir_stream_cancel(stream);
    weir_stream_cancel(stream);
    rig_tick(r);
    assert_int_equal(sink_take(&got, stream), 4);
    assert_sink(got, WEIR_REASON_CANCELLED, "ans");
}

static void cancel_after_the_end_changes_nothing(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 4, "ok");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_run(r);
    weir_stream_cancel(stream);
    assert_false(weir_stream_cancelled(stream));
    rig_run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "ok");
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 0);
}

static void cancel_brings_what_was_held_back(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"cdX"};
    sink got[3] = {0};
    weir_stream *streams[3];
    rig_script(r, 'A', 4, "abcdef");
    rig_script(r, 'B', 4, "abcdef");
    rig_script(r, 'C', 4, "abc\xf0\x9f\x99\x82");
    rig_start(r);
    weir_request requests[] = {rig_ask_interval(r, 'A', 50), rig_ask_stop(r, 'B', stop), rig_ask(r, 'C')};
    for (int i = 0; i < 3; i++) streams[i] = rig_submit(r, &requests[i]);
    rig_ticks(r, 4);
    static const char *const before[] = {"a", "ab", "abc"}; /* held: bcd by the interval, cd, one byte */
    for (int i = 0; i < 3; i++) {
        sink_take(&got[i], streams[i]);
        assert_string_equal(got[i].text, before[i]);
        weir_stream_cancel(streams[i]);
    }
    rig_tick(r);
    static const char *const after[] = {"abcd", "abcd", ("abc" REPLACEMENT)};
    for (int i = 0; i < 3; i++) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_CANCELLED, after[i]);
        assert_int_equal(got[i].n_tokens, 4);
    }
}

/* Another stream keeps the pass going: a pass that nobody waits for is broken off. */
static void cancel_between_decode_and_sampling_beats_the_end(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got = {0}, company = {0};
    set_traps(r, &t, NULL);
    rig_script(r, 'A', 4, "ok");
    rig_script(r, 'B', 4, "company");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A'), *other = rig_submit_key(r, 'B');
    rig_ticks(r, 2);
    t.stream = stream; /* in the pass that gives the end token */
    rig_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "ok");
    assert_int_equal(atomic_load(&r->fake->n_samples), 2 * 3 - 1);
    assert_int_equal(weir_stream_usage(stream).n_generated, 2);
    assert_int_equal(rig_stats(r).n_kv_used, 4 + 2);
    t.stream = NULL;
    rig_run_out(r, other, &company);
    assert_sink(company, WEIR_REASON_END, "company");
}

static void cancel_between_decode_and_sampling_beats_length_and_stop(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"k"};
    for (int i = 0; i < 2; i++) {
        trap t = {0};
        sink got = {0};
        set_traps(r, &t, NULL);
        rig_script(r, 'A', 4, "ok");
        rig_script(r, 'B', 4, "company");
        rig_start(r);
        weir_request request = i == 0 ? rig_ask(r, 'A') : rig_ask_stop(r, 'A', stop);
        request.max_tokens = 2;
        weir_stream *stream = rig_submit(r, &request);
        rig_submit_key(r, 'B');
        rig_tick(r);
        t.stream = stream;
        rig_tick(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_CANCELLED, "o");
        rig_stop(r);
    }
}

static void a_pass_whose_streams_are_all_cancelled_is_broken_off(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got[2] = {0};
    set_traps(r, &t, NULL);
    r->params.chunk_size = 6;
    rig_script(r, 'A', 4, "abc");
    rig_script(r, 'B', 20, "later");
    rig_start(r);
    weir_stream *streams[] = {rig_submit_key(r, 'A'), rig_submit_key(r, 'B')};
    rig_ticks(r, 2);
    weir_stream_cancel(streams[1]); /* seen at the start of the tick: it is not in the pass */
    t.stream = streams[0];
    rig_tick(r);
    for (int i = 0; i < 2; i++) sink_take(&got[i], streams[i]);
    assert_sink(got[0], WEIR_REASON_CANCELLED, "ab");
    assert_sink(got[1], WEIR_REASON_CANCELLED, "");
    assert_int_equal(atomic_load(&r->fake->n_passes), 2);
    assert_int_equal(rig_stats(r).n_failed_ticks, 0); /* nothing has failed */
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

static void a_pass_is_not_broken_off_while_anybody_waits_for_it(void **state)
{
    rig *r = *state;
    trap t = {0};
    set_traps(r, &t, NULL);
    rig_script(r, 'A', 4, "abc");
    rig_start(r);
    weir_request unread = rig_ask(r, 'A'); /* counts, though nobody reads it */
    assert_int_equal(weir_engine_submit(r->engine, &unread, 1, NULL, NULL), WEIR_OK);
    t.stream = rig_submit_key(r, 'A');
    rig_tick(r);
    assert_int_equal(weir_stream_reason(t.stream), WEIR_REASON_CANCELLED);
    t.stream = NULL;
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], 1);
    assert_int_equal(atomic_load(&r->fake->n_passes), 4);
}

static void cancel_in_the_last_pass_of_the_prompt_gives_no_token(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got = {0};
    set_traps(r, &t, NULL);
    rig_script(r, 'A', 4, "ok");
    rig_script(r, 'B', 4, "fine");
    rig_start(r);
    t.stream = rig_submit_key(r, 'A');
    weir_stream *other = rig_submit_key(r, 'B');
    rig_tick(r);
    sink_take(&got, t.stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "");
    assert_int_equal(weir_stream_usage(t.stream).n_generated, 0);
    assert_int_equal(rig_stats(r).n_kv_used, 4);
    t.stream = NULL;
    got = (sink){0};
    rig_run_out(r, other, &got);
    assert_sink(got, WEIR_REASON_END, "fine");
}

static void cancel_while_the_end_is_sampled_comes_too_late(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got = {0};
    set_traps(r, NULL, &t);
    rig_script(r, 'A', 4, "ok");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 2);
    t.stream = stream;
    rig_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "ok"); /* the first one wins */
}

static void cancel_while_a_token_is_sampled_ends_in_the_next_tick(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got = {0};
    set_traps(r, NULL, &t);
    rig_script(r, 'A', 4, "abcd");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_tick(r);
    t.stream = stream;
    rig_tick(r);
    sink_take(&got, stream);
    assert_string_equal(got.text, "ab");
    assert_false(got.finished);
    rig_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "ab");
}

static void cancel_beats_the_failure_of_its_pass(void **state)
{
    rig *r = *state;
    trap t = {0};
    sink got[2] = {0};
    set_traps(r, &t, NULL);
    rig_script(r, 'A', 4, "abcd");
    rig_script(r, 'B', 4, "abcd");
    rig_start(r);
    weir_stream *streams[] = {rig_submit_key(r, 'A'), rig_submit_key(r, 'B')};
    rig_ticks(r, 2);
    t.stream = streams[0];
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_tick(r);
    for (int i = 0; i < 2; i++) sink_take(&got[i], streams[i]);
    assert_sink(got[0], WEIR_REASON_CANCELLED, "ab");
    assert_sink(got[1], WEIR_REASON_ERROR, "ab");
}

static void the_last_release_ends_the_request(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 4, "answer");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_ticks(r, 2);
    rig_release(r, stream);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 1);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

static void a_request_that_nobody_reads_runs_to_its_end(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 4, "answer");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], 1);
    assert_int_equal(rig_stats(r).n_generated_tokens, 7);
}

static void a_request_that_nobody_reads_still_stops_at_its_stop_string(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"swe"};
    rig_script(r, 'A', 4, "answer");
    rig_start(r);
    weir_request request = rig_ask_stop(r, 'A', stop);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_STOP_WORDS], 1);
    assert_int_equal(rig_stats(r).n_generated_tokens, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(cancel_while_prefilling_frees_the_cells),
        RIG_TEST(cancel_while_generating_frees_the_cells),
        RIG_TEST(cancel_leaves_what_was_not_read_yet),
        RIG_TEST(cancel_after_the_end_changes_nothing),
        RIG_TEST(cancel_brings_what_was_held_back),
        RIG_TEST(cancel_between_decode_and_sampling_beats_the_end),
        RIG_TEST(cancel_between_decode_and_sampling_beats_length_and_stop),
        RIG_TEST(a_pass_whose_streams_are_all_cancelled_is_broken_off),
        RIG_TEST(a_pass_is_not_broken_off_while_anybody_waits_for_it),
        RIG_TEST(cancel_in_the_last_pass_of_the_prompt_gives_no_token),
        RIG_TEST(cancel_while_the_end_is_sampled_comes_too_late),
        RIG_TEST(cancel_while_a_token_is_sampled_ends_in_the_next_tick),
        RIG_TEST(cancel_beats_the_failure_of_its_pass),
        RIG_TEST(the_last_release_ends_the_request),
        RIG_TEST(a_request_that_nobody_reads_runs_to_its_end),
        RIG_TEST(a_request_that_nobody_reads_still_stops_at_its_stop_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
