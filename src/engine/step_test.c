/* The tick: ends, cancels, deadlines, failures, plans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/testing.h"

#define E_ACUTE     "\xc3\xa9"
#define REPLACEMENT "\xef\xbf\xbd"

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

/* Before the engine is made. */
static void set_traps(rig *r, trap *decode, trap *sample)
{
    if (decode != NULL) r->fake->before_decode = trap_decode;
    r->fake->before_decode_user = decode;
    if (sample != NULL) r->fake->before_sample = trap_sample;
    r->fake->before_sample_user = sample;
}

static weir_request with_stop(rig *r, int32_t key, const char *const *stop)
{
    weir_request request = rig_ask(r, key);
    request.stop = stop;
    request.n_stop = 1;
    return request;
}

static weir_request with_interval(rig *r, int32_t key, int32_t interval)
{
    weir_request request = rig_ask(r, key);
    request.interval = interval;
    return request;
}

/* Runs to the end and takes everything. */
static void run_out(rig *r, weir_stream *stream, sink *got)
{
    rig_run(r);
    sink_take(got, stream);
    assert_true(got->finished);
    assert_int_equal(weir_stream_reason(stream), got->reason);
}

/* ---- Ends ----------------------------------------------------------------------------------------- */

static void the_token_that_ends_is_counted_and_not_delivered(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "ab");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "ab");
    assert_int_equal(got.n_tokens, 2);
    assert_int_equal(got.n_chunks, 3);
    weir_usage usage = weir_stream_usage(stream);
    assert_int_equal(usage.n_prompt, 3);
    assert_int_equal(usage.n_generated, 3);
    assert_int_equal(usage.n_cached, 0);
    assert_int_equal(rig_stats(r).n_generated_tokens, 3);
}

static void every_kind_of_end_token_ends(void **state)
{
    rig *r = *state;
    static const int32_t answer[] = {'x', WEIR__FAKE_EOT, 'y'};
    static const int32_t at_once[] = {WEIR__FAKE_EOS};
    sink got[2] = {0};
    rig_script_ids(r, 'A', 1, answer, COUNT(answer));
    rig_script_ids(r, 'B', 1, at_once, 1);
    rig_start(r);
    weir_stream *streams[] = {rig_submit_key(r, 'A'), rig_submit_key(r, 'B')};
    for (int i = 0; i < 2; i++) run_out(r, streams[i], &got[i]);
    assert_sink(got[0], WEIR_REASON_END, "x");
    assert_sink(got[1], WEIR_REASON_END, "");
    assert_int_equal(got[1].n_chunks, 1);
    assert_int_equal(weir_stream_usage(streams[1]).n_generated, 1);
}

static void the_last_allowed_token_comes_with_the_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 3;
    weir_stream *stream = rig_submit(r, &request);
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_LENGTH, "abc");
    assert_int_equal(got.n_chunks, 3);
    assert_string_equal(got.last, "c");
    assert_int_equal(atomic_load(&r->fake->n_samples), 3);
    assert_int_equal(atomic_load(&r->fake->n_tokens), 3 + 2); /* the last token is not fed */
}

static void a_stop_on_the_last_allowed_token_is_a_stop(void **state)
{
    rig *r = *state;
    sink got = {0};
    static const char *const stop[] = {"bc"};
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    weir_request request = with_stop(r, 'A', stop);
    request.max_tokens = 3;
    weir_stream *stream = rig_submit(r, &request);
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "a");
    assert_int_equal(got.n_tokens, 3);
}

static void text_that_a_stop_holds_back_comes_with_the_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    static const char *const stop[] = {"-END-"};
    rig_script(r, 'A', 3, "x-EN");
    rig_start(r);
    weir_request request = with_stop(r, 'A', stop);
    weir_stream *stream = rig_submit(r, &request);
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "x-EN");
    assert_string_equal(got.last, "-EN");
    assert_int_equal(got.last_tokens, 3);
}

static void bytes_of_a_character_that_never_came_are_replaced_at_the_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "x\xf0\x9f\x99");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "x" REPLACEMENT);
    assert_int_equal(got.last_tokens, 3);
}

static void a_stop_that_the_last_flush_completes_is_a_stop(void **state)
{
    rig *r = *state;
    sink got = {0};
    static const char *const stop[] = {"!" REPLACEMENT};
    rig_script(r, 'A', 3, "x!\xf0\x9f");
    rig_start(r);
    weir_request request = with_stop(r, 'A', stop);
    weir_stream *stream = rig_submit(r, &request);
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "x");
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_STOP_WORDS], 1);
}

static void tokens_held_by_the_interval_come_with_the_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "abcdefgh");
    rig_start(r);
    weir_request request = with_interval(r, 'A', 5);
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    sink_take(&got, stream);
    assert_string_equal(got.text, "a"); /* the first is not delayed */
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "abcdefgh");
    assert_int_equal(got.n_chunks, 3); /* a, bcdef, gh */
    assert_int_equal(got.last_tokens, 2);
}

static void the_interval_may_change_while_it_runs(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "abcdefgh");
    rig_start(r);
    weir_request request = with_interval(r, 'A', 100);
    weir_stream *stream = rig_submit(r, &request);
    rig_ticks(r, 4);
    sink_take(&got, stream);
    assert_string_equal(got.text, "a");
    weir_stream_set_interval(stream, 1);
    rig_tick(r);
    assert_int_equal(sink_take(&got, stream), 1);
    assert_string_equal(got.last, "bcde");
    run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "abcdefgh");
}

static void a_tick_brings_each_stream_one_chunk_at_the_most(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"zz"};
    weir_stream *streams[4];
    sink got[4] = {0};
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 5 + 9 * i, "a\xff" E_ACUTE "zy\xe2\x82zz and so on");
    r->params.chunk_size = 8;
    rig_start(r);
    for (int i = 0; i < 4; i++) {
        weir_request request = with_stop(r, 'A' + i, stop);
        request.interval = 1 + i % 2;
        streams[i] = rig_submit(r, &request);
    }
    for (int tick = 0; tick < 40; tick++) {
        if (tick == 9) weir_stream_cancel(streams[3]);
        rig_tick(r);
        for (int i = 0; i < 4; i++) assert_in_range(sink_take(&got[i], streams[i]), 0, 1);
    }
    for (int i = 0; i < 3; i++)
        assert_sink(got[i], WEIR_REASON_STOP_WORDS, "a" REPLACEMENT E_ACUTE "zy" REPLACEMENT);
    assert_int_equal(got[3].reason, WEIR_REASON_CANCELLED);
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
    run_out(r, stream, &got);
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
    weir_request requests[] = {with_interval(r, 'A', 50), with_stop(r, 'B', stop), rig_ask(r, 'C')};
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
    run_out(r, other, &company);
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
        weir_request request = i == 0 ? rig_ask(r, 'A') : with_stop(r, 'A', stop);
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
    run_out(r, other, &got);
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
    assert_sink(got, WEIR_REASON_END, "ok"); /* whoever is first */
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
    weir_request request = with_stop(r, 'A', stop);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_STOP_WORDS], 1);
    assert_int_equal(rig_stats(r).n_generated_tokens, 5);
}

/* ---- Deadlines ------------------------------------------------------------------------------------ */

static void pass_ms(int ms)
{
    int64_t until = weir__clock_deadline_ns(ms);
    while (weir__clock_now_ns() <= until) continue;
}

static void a_deadline_ends_prefill_and_generation_with_the_text_so_far(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    r->params.chunk_size = 4;
    rig_script(r, 'A', 100, "never");
    rig_script(r, 'B', 3, "abcdefgh");
    rig_start(r);
    weir_request requests[] = {rig_ask(r, 'A'), with_interval(r, 'B', 50)};
    weir_stream *streams[] = {rig_stream(r), rig_stream(r)};
    requests[0].deadline_ms = requests[1].deadline_ms = 400;
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    rig_ticks(r, 3); /* far within it */
    assert_false(weir_stream_finished(streams[0]) || weir_stream_finished(streams[1]));
    pass_ms(401);
    assert_true(rig_tick(r).idle);
    for (int i = 0; i < 2; i++) sink_take(&got[i], streams[i]);
    assert_sink(got[0], WEIR_REASON_DEADLINE, "");
    assert_sink(got[1], WEIR_REASON_DEADLINE, "abc");
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_DEADLINE], 2);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
}

static void a_deadline_that_passes_during_a_pass_beats_its_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "a");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = 300;
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    atomic_store(&r->fake->tick_us, 320000);
    rig_tick(r); /* the end token, too late */
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_DEADLINE, "a");
    assert_int_equal(weir_stream_usage(stream).n_generated, 1);
}

static void cancel_beats_a_deadline_that_has_passed_as_well(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = 1;
    weir_stream *queued = rig_submit(r, &request);
    weir_stream_cancel(queued);
    pass_ms(2);
    rig_tick(r);
    assert_int_equal(weir_stream_reason(queued), WEIR_REASON_CANCELLED);
}

/* ---- Failures ------------------------------------------------------------------------------------- */

static void a_failed_pass_ends_the_streams_in_it_and_no_other(void **state)
{
    rig *r = *state;
    sink got[3] = {0};
    weir_error error;
    r->params.n_slots = 2;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcd");
    rig_start(r);
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_ticks(r, 2);
    atomic_store(&r->fake->fail_decode_at, 0);
    atomic_store(&r->fake->fail_decode_keep, 1); /* and it left a token behind */
    rig_tick(r);
    for (int i = 0; i < 2; i++) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_ERROR, "ab");
        weir_stream_error(streams[i], &error);
        assert_int_equal(error.code, WEIR_BACKEND);
        assert_string_not_equal(error.message, "");
    }
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    assert_int_equal(rig_stats(r).n_failed_ticks, 1);
    run_out(r, streams[2], &got[2]);
    assert_sink(got[2], WEIR_REASON_END, "abcd");
    weir_stream_error(streams[2], &error);
    assert_int_equal(error.code, WEIR_OK);
}

static void a_backend_that_always_fails_ends_everything_with_an_error(void **state)
{
    rig *r = *state;
    weir_stream *streams[6];
    r->params.n_slots = 2;
    rig_script(r, 'A', 3, "abcd");
    rig_start(r);
    atomic_store(&r->fake->fail_decode_more, INT64_MAX);
    atomic_store(&r->fake->fail_decode_at, 0);
    for (int i = 0; i < 6; i++) streams[i] = rig_submit_key(r, 'A');
    assert_int_equal(rig_run(r), 3);
    for (int i = 0; i < 6; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_ERROR, "");
    }
    assert_int_equal(rig_stats(r).n_failed_ticks, 3);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_ERROR], 6);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 0);
}

static void without_cells_the_youngest_waits(void **state)
{
    rig *r = *state;
    sink got[3] = {0};
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcd");
    rig_start(r);
    /* the youngest has the lowest slot: ages are told from the admission, not from the number */
    weir_stream *first = rig_submit_key(r, 'A');
    streams[0] = rig_submit_key(r, 'A');
    streams[1] = rig_submit_key(r, 'B');
    rig_tick(r);
    weir_stream_cancel(first);
    streams[2] = rig_submit_key(r, 'C');
    rig_tick(r);
    atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_failed_ticks, 1);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspended, 1);
    sink_take(&got[2], streams[2]);
    assert_string_equal(got[2].text, "a");
    sink_take(&got[0], streams[0]);
    assert_string_equal(got[0].text, "abc");
    for (int i = 0; i < 3; i++) {
        run_out(r, streams[i], &got[i]);
        assert_sink(got[i], WEIR_REASON_END, "abcd"); /* tried again, nothing lost or doubled */
    }
}

static void a_sample_that_fails_ends_only_its_stream(void **state)
{
    rig *r = *state;
    sink got[3] = {0};
    weir_error error;
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcd");
    rig_start(r);
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_ticks(r, 2);
    atomic_store(&r->fake->fail_sample_at, 1);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_failed_ticks, 0);
    sink_take(&got[1], streams[1]);
    assert_sink(got[1], WEIR_REASON_ERROR, "ab");
    weir_stream_error(streams[1], &error);
    assert_int_equal(error.code, WEIR_BACKEND);
    for (int i = 0; i < 3; i += 2) {
        run_out(r, streams[i], &got[i]);
        assert_sink(got[i], WEIR_REASON_END, "abcd");
    }
}

static void an_error_brings_what_was_held_back(void **state)
{
    rig *r = *state;
    sink got = {0};
    static const char *const stop[] = {"cdX"};
    rig_script(r, 'A', 4, "abcd\xc3");
    rig_start(r);
    weir_request request = with_stop(r, 'A', stop);
    request.interval = 50;
    weir_stream *stream = rig_submit(r, &request);
    rig_ticks(r, 5);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_ERROR, "abcd" REPLACEMENT);
    assert_int_equal(got.n_tokens, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_token_that_ends_is_counted_and_not_delivered),
        RIG_TEST(every_kind_of_end_token_ends),
        RIG_TEST(the_last_allowed_token_comes_with_the_end),
        RIG_TEST(a_stop_on_the_last_allowed_token_is_a_stop),
        RIG_TEST(text_that_a_stop_holds_back_comes_with_the_end),
        RIG_TEST(bytes_of_a_character_that_never_came_are_replaced_at_the_end),
        RIG_TEST(a_stop_that_the_last_flush_completes_is_a_stop),
        RIG_TEST(tokens_held_by_the_interval_come_with_the_end),
        RIG_TEST(the_interval_may_change_while_it_runs),
        RIG_TEST(a_tick_brings_each_stream_one_chunk_at_the_most),
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
        RIG_TEST(a_deadline_ends_prefill_and_generation_with_the_text_so_far),
        RIG_TEST(a_deadline_that_passes_during_a_pass_beats_its_end),
        RIG_TEST(cancel_beats_a_deadline_that_has_passed_as_well),
        RIG_TEST(a_failed_pass_ends_the_streams_in_it_and_no_other),
        RIG_TEST(a_backend_that_always_fails_ends_everything_with_an_error),
        RIG_TEST(without_cells_the_youngest_waits),
        RIG_TEST(a_sample_that_fails_ends_only_its_stream),
        RIG_TEST(an_error_brings_what_was_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
