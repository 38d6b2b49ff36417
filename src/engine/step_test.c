/* The tick: ends, deadlines, failures.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

#define E_ACUTE "\xc3\xa9"

/* ---- Ends ----------------------------------------------------------------------------------------- */

static void the_token_that_ends_is_counted_and_not_delivered(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "ab");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_run_out(r, stream, &got);
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
    for (int i = 0; i < 2; i++) rig_run_out(r, streams[i], &got[i]);
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
    rig_run_out(r, stream, &got);
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
    weir_request request = rig_ask_stop(r, 'A', stop);
    request.max_tokens = 3;
    weir_stream *stream = rig_submit(r, &request);
    rig_run_out(r, stream, &got);
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
    weir_request request = rig_ask_stop(r, 'A', stop);
    weir_stream *stream = rig_submit(r, &request);
    rig_run_out(r, stream, &got);
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
    rig_run_out(r, stream, &got);
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
    weir_request request = rig_ask_stop(r, 'A', stop);
    weir_stream *stream = rig_submit(r, &request);
    rig_run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "x");
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_STOP_WORDS], 1);
}

static void tokens_held_by_the_interval_come_with_the_end(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', 3, "abcdefgh");
    rig_start(r);
    weir_request request = rig_ask_interval(r, 'A', 5);
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    sink_take(&got, stream);
    assert_string_equal(got.text, "a"); /* the first is not delayed */
    rig_run_out(r, stream, &got);
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
    weir_request request = rig_ask_interval(r, 'A', 100);
    weir_stream *stream = rig_submit(r, &request);
    rig_ticks(r, 4);
    sink_take(&got, stream);
    assert_string_equal(got.text, "a");
    weir_stream_set_interval(stream, 1);
    rig_tick(r);
    assert_int_equal(sink_take(&got, stream), 1);
    assert_string_equal(got.last, "bcde");
    rig_run_out(r, stream, &got);
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
        weir_request request = rig_ask_stop(r, 'A' + i, stop);
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
    weir__clock_stand(weir__clock_now_ns()); /* however long the ticks take */
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask_interval(r, 'B', 50)};
    weir_stream *streams[] = {rig_stream(r), rig_stream(r)};
    requests[0].deadline_ms = requests[1].deadline_ms = 400;
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    rig_ticks(r, 3);
    assert_false(weir_stream_finished(streams[0]) || weir_stream_finished(streams[1]));
    weir__clock_stand(weir__clock_now_ns() + 401 * WEIR__NS_PER_MS);
    assert_true(rig_tick(r).idle);
    weir__clock_stand(-1);
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
    request.deadline_ms = 3000;
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    atomic_store(&r->fake->tick_us, 3020000);
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
    rig_run_out(r, streams[2], &got[2]);
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
    /* the youngest has the lowest slot: ages count from the admission, not by the number */
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
        rig_run_out(r, streams[i], &got[i]);
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
        rig_run_out(r, streams[i], &got[i]);
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
    weir_request request = rig_ask_stop(r, 'A', stop);
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
