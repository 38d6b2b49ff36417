/* Submits of several requests: all of them start, or none does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

static void start(rig *r)
{
    rig_script(r, 'A', 4, "answer");
    rig_script(r, 'B', 3, "other");
    rig_start(r);
}

static void a_bad_second_request_starts_nothing(void **state)
{
    rig *r = *state;
    start(r);
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), rig_ask(r, 'A')};
    weir_stream *streams[] = {rig_stream(r), rig_stream(r), rig_stream(r)};
    requests[0].interval = 9;
    requests[1].max_tokens = -5;
    rig_refuses(r, requests, 3, streams, WEIR_INVALID, "requests[1].max_tokens");
    assert_true(rig_tick(r).idle);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_stream_index(streams[i]), -1);
        assert_int_equal(weir_stream_interval(streams[i]), 1);
    }
    requests[1].max_tokens = -1;
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_OK);
}

/* Submits three requests of which the middle one's stream cannot be had: the others stay fresh. */
static void middle_refused(rig *r, weir_stream *middle)
{
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), rig_ask(r, 'A')};
    weir_stream *streams[] = {rig_stream(r), middle, rig_stream(r)};
    weir_chunk chunk;
    int32_t depth = rig_stats(r).queue_depth;
    requests[0].interval = 9;
    weir_error error = {0};
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, &error), WEIR_STATE);
    assert_string_equal(error.field, "streams");
    assert_int_equal(rig_stats(r).queue_depth, depth);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(weir_stream_index(streams[i]), -1);
        assert_int_equal(weir_stream_interval(streams[i]), 1);
        assert_int_equal(weir_stream_try_next(streams[i], &chunk), WEIR_STATE);
    }
    weir_request again = rig_ask(r, 'A'); /* they are still good for one request each */
    sink got = {0};
    assert_int_equal(weir_engine_submit(r->engine, &again, 1, &streams[0], NULL), WEIR_OK);
    rig_run(r);
    sink_take(&got, streams[0]);
    assert_sink(got, WEIR_REASON_END, "answer");
}

static void a_finished_stream_starts_nothing(void **state)
{
    rig *r = *state;
    start(r);
    weir_stream *used = rig_submit_key(r, 'A');
    rig_run(r);
    sink got = {0};
    middle_refused(r, used);
    sink_take(&got, used); /* its chunks are still there */
    assert_sink(got, WEIR_REASON_END, "answer");
}

static void a_stream_attached_elsewhere_starts_nothing(void **state)
{
    rig *r = *state;
    start(r);
    weir_stream *used = rig_submit_key(r, 'A');
    rig_tick(r);
    sink got = {0};
    middle_refused(r, used);
    sink_take(&got, used);
    assert_sink(got, WEIR_REASON_END, "answer");
    assert_int_equal(weir_stream_index(used), 0);
}

static void a_cancelled_stream_starts_nothing(void **state)
{
    rig *r = *state;
    start(r);
    weir_stream *cancelled = rig_stream(r);
    weir_stream_cancel(cancelled);
    middle_refused(r, cancelled);
    assert_int_equal(weir_stream_reason(cancelled), WEIR_REASON_NOT_FINISHED);
}

static void the_same_stream_twice_starts_nothing(void **state)
{
    rig *r = *state;
    start(r);
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), rig_ask(r, 'A')};
    weir_stream *twice = rig_stream(r);
    weir_stream *streams[] = {twice, NULL, twice};
    weir_chunk chunk;
    rig_refuses(r, requests, 3, streams, WEIR_STATE, "streams");
    assert_int_equal(weir_stream_index(twice), -1);
    assert_int_equal(weir_stream_try_next(twice, &chunk), WEIR_STATE);
    assert_true(rig_tick(r).idle);
    assert_int_equal(weir_engine_submit(r->engine, requests, 1, &twice, NULL), WEIR_OK);
}

static void streams_get_their_place_in_the_submit_as_index(void **state)
{
    rig *r = *state;
    start(r);
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), rig_ask(r, 'A')};
    weir_stream *streams[] = {rig_stream(r), NULL, rig_stream(r)};
    sink got[3] = {0};
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_OK);
    assert_int_equal(weir_stream_index(streams[0]), 0);
    assert_int_equal(weir_stream_index(streams[2]), 2);
    rig_run(r);
    for (int i = 0; i < 3; i += 2) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_END, "answer");
    }
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], 3); /* nobody read the second */
    assert_int_equal(weir_stream_index(streams[2]), 2);
}

static void submits_of_nothing_are_refused(void **state)
{
    rig *r = *state;
    weir_error error;
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_result result;
    assert_int_equal(weir_engine_submit(r->engine, NULL, 0, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests");
    assert_int_equal(weir_engine_submit(r->engine, &request, 0, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_non_null(strstr(error.message, "`n` is 0; allowed: 1 to "));
    assert_int_equal(weir_engine_submit_n(r->engine, &request, 0, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_int_equal(weir_generate(r->engine, &request, 0, NULL, &result, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_int_equal(weir_engine_submit(r->engine, NULL, 1, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests");
    assert_int_equal(weir_engine_submit(NULL, &request, 1, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "engine");
    assert_int_equal(weir_engine_submit(r->engine, &request, SIZE_MAX, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_true(rig_tick(r).idle);
}

static void everything_given_is_copied_at_submit(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 4, "say when");
    rig_script(r, 'q', 2, "text");
    rig_start(r);
    int32_t tokens[4];
    char stop[] = "when", text[] = "q?";
    const char *stops[] = {stop};
    weir_sampler_params sampler = r->greedy;
    weir_request requests[2] = {rig_ask(r, 'A'), weir_request_default()};
    memcpy(tokens, requests[0].tokens, sizeof tokens);
    requests[0].tokens = tokens;
    requests[0].sampler = &sampler;
    requests[0].stop = stops;
    requests[0].n_stop = 1;
    text[1] = (char)('a' + ('q' + 1) % 26); /* the script's second token */
    requests[1].text = text;
    requests[1].add_special = false;
    requests[1].sampler = &sampler;
    weir_stream *streams[] = {rig_stream(r), rig_stream(r)};
    assert_int_equal(weir_engine_submit(r->engine, requests, 2, streams, NULL), WEIR_OK);
    memset(tokens, 0, sizeof tokens);
    memset(stop, 'y', sizeof stop - 1);
    memset(text, 'z', sizeof text - 1);
    memset(&sampler, 0xff, sizeof sampler);
    memset(requests, 0xff, sizeof requests);
    stops[0] = NULL;
    rig_run(r);
    sink got[2] = {0};
    for (int i = 0; i < 2; i++) sink_take(&got[i], streams[i]);
    assert_sink(got[0], WEIR_REASON_STOP_WORDS, "say ");
    assert_int_equal(weir_stream_usage(streams[0]).stop, 1);
    assert_int_equal(weir_stream_usage(streams[1]).stop, 0);
    assert_sink(got[1], WEIR_REASON_END, "text");
}

static void the_requests_interval_reaches_the_stream(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.interval = 4;
    assert_int_equal(weir_stream_interval(rig_submit(r, &request)), 4);
    weir_stream *slow = rig_stream(r), *same = rig_stream(r);
    weir_stream_set_interval(slow, 8);
    weir_stream_set_interval(same, 8);
    request.interval = 1;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &slow, NULL), WEIR_OK);
    assert_int_equal(weir_stream_interval(slow), 1);
    request.interval = 0;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &same, NULL), WEIR_OK);
    assert_int_equal(weir_stream_interval(same), 8);
    weir_error error = {0};
    weir_stream *refused = rig_stream(r);
    request.interval = -1;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &refused, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].interval");
}

static void every_allocation_of_a_submit_may_fail(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"stop", "halt"};
    start(r);
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B'), weir_request_default()};
    requests[0].stop = stops;
    requests[0].n_stop = 2;
    requests[2].text = "a text whose tokens are more than half as many as its bytes";
    weir_stream *streams[] = {rig_stream(r), NULL, rig_stream(r)};
    for (long n = 0;; n++) {
        weir_error error = {0};
        long live = weir__mem_live();
        weir__mem_fail_after(n);
        weir_status status = weir_engine_submit(r->engine, requests, 3, streams, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (pending) {
            assert_int_equal(status, WEIR_OK);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, WEIR_NO_MEMORY);
        assert_int_equal(error.code, WEIR_NO_MEMORY);
        assert_int_equal(weir__mem_live(), live);
        assert_int_equal(weir_stream_index(streams[0]), -1);
        assert_int_equal(weir_stream_index(streams[2]), -1);
        assert_int_equal(rig_stats(r).queue_depth, 0);
    }
    rig_run(r);
    assert_int_equal(weir_stream_reason(streams[0]), WEIR_REASON_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_bad_second_request_starts_nothing),
        RIG_TEST(a_finished_stream_starts_nothing),
        RIG_TEST(a_stream_attached_elsewhere_starts_nothing),
        RIG_TEST(a_cancelled_stream_starts_nothing),
        RIG_TEST(the_same_stream_twice_starts_nothing),
        RIG_TEST(streams_get_their_place_in_the_submit_as_index),
        RIG_TEST(submits_of_nothing_are_refused),
        RIG_TEST(everything_given_is_copied_at_submit),
        RIG_TEST(the_requests_interval_reaches_the_stream),
        RIG_TEST(every_allocation_of_a_submit_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
