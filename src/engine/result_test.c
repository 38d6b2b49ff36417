/* weir_generate: the same text as a stream's and a detokenizer's, without a stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>

#include "support/engine/engine.h"

static void a_result_holds_text_tokens_reason_and_usage(void **state)
{
    rig *r = *state;
    weir_result result;
    rig_script(r, 'A', 5, "ab\xc3");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_END);
    assert_string_equal(result.text, "ab\xef\xbf\xbd");
    assert_int_equal(result.length, 5);
    assert_int_equal(result.n_tokens, 3);
    static const int32_t want[] = {'a', 'b', 0xc3};
    assert_memory_equal(result.tokens, want, sizeof want);
    assert_int_equal(result.error.code, WEIR_OK);
    assert_int_equal(result.usage.n_prompt, 5);
    assert_int_equal(result.usage.n_generated, 4);
    assert_true(result.usage.ttft_ns > 0 && result.usage.ttft_ns <= result.usage.total_ns);
    weir_result_fini(&result);
    assert_null(result.text);
    assert_null(result.tokens);
    weir_result_fini(&result);
    weir_result_fini(NULL);
}

static void an_empty_answer_is_an_empty_text(void **state)
{
    rig *r = *state;
    weir_result result;
    rig_script(r, 'A', 5, "");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    for (int32_t max_tokens = -1; max_tokens <= 0; max_tokens++) {
        request.max_tokens = max_tokens;
        assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &result, NULL), WEIR_OK);
        assert_int_equal(result.reason, max_tokens == 0 ? WEIR_REASON_LENGTH : WEIR_REASON_END);
        assert_string_equal(result.text, "");
        assert_int_equal(result.length, 0);
        assert_int_equal(result.n_tokens, 0);
        weir_result_fini(&result);
    }
}

/* Any tokens, also ill-formed bytes and control tokens, that the fake's hash chooses. */
static void generated_streamed_and_detokenized_text_are_the_same_bytes(void **state)
{
    rig *r = *state;
    rig_load(r, "fake:eos_every=40,any=1,seed=3");
    for (int round = 0; round < 4; round++) {
        char prompt[16];
        weir_request request = weir_request_default();
        r->params.manual = round % 2 == 0;
        r->params.layout = round < 2 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
        rig_start(r);
        for (int i = 0; i < 25; i++) {
            snprintf(prompt, sizeof prompt, "prompt %d", 25 * round + i);
            request.text = prompt;
            request.sampler = &r->greedy;
            request.max_tokens = 120;
            request.special = i % 2 == 0;
            request.interval = 1 + i % 3;
            weir_result results[2];
            weir_request both[2] = {request, request};
            weir_stream *streams[2] = {NULL, rig_stream(r)};
            assert_int_equal(weir_generate(r->engine, both, 2, streams, results, NULL), WEIR_OK);
            sink got = {0};
            char text[4096];
            size_t length = 0;
            sink_take(&got, streams[1]);
            assert_int_equal(weir_detokenize(r->model, results[0].tokens, results[0].n_tokens,
                                             request.special, text, sizeof text, &length, NULL),
                             WEIR_OK);
            for (int k = 0; k < 2; k++) {
                assert_int_equal(results[k].length, length);
                assert_memory_equal(results[k].text, text, length + 1);
                assert_int_equal(results[k].n_tokens, got.n_tokens);
                assert_memory_equal(results[k].tokens, got.tokens, got.n_tokens * sizeof *got.tokens);
                assert_int_equal(results[k].reason, got.reason);
                weir_result_fini(&results[k]);
            }
            assert_int_equal(got.n_text, length);
            assert_memory_equal(got.text, text, length);
            rig_release(r, streams[1]);
            r->n_streams = 0;
        }
        rig_stop(r);
    }
}

static void several_requests_end_each_for_its_own_reason(void **state)
{
    rig *r = *state;
    static const char *const stop[] = {"cd"};
    weir_result results[5];
    sink got = {0};
    for (int i = 0; i < 5; i++) rig_script(r, 'A' + i, 3, "abcdef");
    r->params.n_slots = 2;
    rig_start(r);
    weir_request requests[5];
    weir_stream *streams[5] = {NULL, NULL, rig_stream(r), NULL, NULL};
    for (int i = 0; i < 5; i++) requests[i] = rig_ask(r, 'A' + i);
    requests[1].max_tokens = 2;
    requests[2].stop = stop;
    requests[2].n_stop = 1;
    requests[3].deadline_ms = 1;
    atomic_store(&r->fake->tick_us, 2000);
    atomic_store(&r->fake->fail_sample_at, 9 + 4 + 1);
    assert_int_equal(weir_generate(r->engine, requests, 5, streams, results, NULL), WEIR_OK);
    /* 0: 7 samples, 1: 2, then 2: 4; 3 passed its deadline in the queue; 4 fails somewhere */
    static const weir_reason reasons[] = {WEIR_REASON_END, WEIR_REASON_LENGTH, WEIR_REASON_STOP_WORDS,
                                          WEIR_REASON_DEADLINE, WEIR_REASON_ERROR};
    static const char *const want[] = {"abcdef", "ab", "ab", ""};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(results[i].reason, reasons[i]);
        if (i < 4) assert_string_equal(results[i].text, want[i]);
        assert_int_equal(results[i].error.code, i == 4 ? WEIR_BACKEND : WEIR_OK);
    }
    assert_memory_equal("abcdef", results[4].text, results[4].length);
    assert_int_equal(results[4].length, results[4].n_tokens);
    sink_take(&got, streams[2]);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "ab");
    assert_int_equal(weir_stream_index(streams[2]), 2);
    for (int i = 0; i < 5; i++) weir_result_fini(&results[i]);
}

static void a_refused_request_fills_no_result(void **state)
{
    rig *r = *state;
    weir_result results[2];
    weir_error error;
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'A')};
    requests[1].max_tokens = -9;
    memset(results, 0xff, sizeof results);
    assert_int_equal(weir_generate(r->engine, requests, 2, NULL, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[1].max_tokens");
    for (int i = 0; i < 2; i++) weir_result_fini(&results[i]); /* harmless */
    assert_int_equal(weir_generate(r->engine, requests, 1, NULL, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "results");
    assert_int_equal(weir_generate(NULL, requests, 1, NULL, results, &error), WEIR_INVALID);
    assert_int_equal(weir_generate(r->engine, requests, 0, NULL, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_true(rig_tick(r).idle);
    weir_engine_stop(r->engine);
    assert_int_equal(weir_generate(r->engine, requests, 1, NULL, results, &error), WEIR_STOPPED);
}

static void every_allocation_of_generate_may_fail(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 3, "one \xc3");
    rig_script(r, 'B', 3, "two");
    long n = 0;
    for (bool pending = false; !pending; n++) {
        rig_start(r);
        weir_request requests[] = {rig_ask(r, 'A'), rig_ask(r, 'B')};
        weir_stream *streams[] = {NULL, rig_stream(r)};
        weir_result results[2];
        weir_error error = {0};
        sink got = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_generate(r->engine, requests, 2, streams, results, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) {
            static const char *const want[] = {"one \xef\xbf\xbd", "two"};
            int n_errors = 0;
            sink_take(&got, streams[1]);
            assert_true(got.finished);
            n_errors += got.reason == WEIR_REASON_ERROR;
            for (int i = 0; i < 2; i++) {
                n_errors += results[i].reason == WEIR_REASON_ERROR;
                if (results[i].reason != WEIR_REASON_ERROR)
                    assert_string_equal(results[i].text, want[i]);
                else
                    assert_int_equal(results[i].error.code, WEIR_NO_MEMORY);
                weir_result_fini(&results[i]);
            }
            assert_in_range(n_errors, pending ? 0 : 1, pending ? 0 : 2);
        } else {
            assert_int_equal(status, WEIR_NO_MEMORY);
            assert_int_equal(error.code, WEIR_NO_MEMORY);
            assert_int_equal(weir_stream_index(streams[1]), -1);
        }
        rig_release(r, streams[1]);
        r->n_streams = 0;
        rig_stop(r);
    }
    assert_true(n > 15);
}

static void reasons_have_names(void **state)
{
    (void)state;
    static const char *const want[] = {"not_finished", "end",        "length",  "cancelled",
                                       "error",        "stop_words", "deadline"};
    for (int i = 0; i < 7; i++) assert_string_equal(weir_reason_name((weir_reason)i), want[i]);
    assert_string_equal(weir_reason_name((weir_reason)7), "unknown");
    assert_string_equal(weir_reason_name((weir_reason)-1), "unknown");
}

/* ---- From several threads ------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t thread;
    rig *r;
    weir_request requests[2];
    weir_result results[2];
    weir_status status;
} caller;

static void *call(void *argument)
{
    caller *c = argument;
    c->status = weir_generate(c->r->engine, c->requests, 2, NULL, c->results, NULL);
    return NULL;
}

static void many_callers(rig *r, bool manual)
{
    enum { N = 6 };
    caller callers[N];
    r->params.manual = manual;
    r->params.n_slots = 3;
    char answer[N][32];
    for (int i = 0; i < N; i++) {
        snprintf(answer[i], sizeof answer[i], "answer number %d", i);
        rig_script(r, 'A' + i, 3 + i, answer[i]);
    }
    rig_start(r);
    atomic_store(&r->fake->tick_us, 300); /* so that they are there at the same time */
    for (int i = 0; i < N; i++) {
        callers[i] = (caller){.r = r, .requests = {rig_ask(r, 'A' + i), rig_ask(r, 'A' + i)}};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].status, WEIR_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(callers[i].results[k].reason, WEIR_REASON_END);
            assert_string_equal(callers[i].results[k].text, answer[i]);
            weir_result_fini(&callers[i].results[k]);
        }
    }
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], 2 * N);
}

static void many_threads_generate_on_one_engine(void **state)
{
    many_callers(*state, false);
}

static void many_threads_drive_one_manual_engine_in_turn(void **state)
{
    many_callers(*state, true);
}

static void a_stop_ends_the_wait_of_generate(void **state)
{
    rig *r = *state;
    caller c = {.r = r};
    r->params.manual = false;
    rig_script(r, 'A', 3, "a long answer that the stop cuts off");
    rig_start(r);
    atomic_store(&r->fake->tick_us, 200000);
    c.requests[0] = c.requests[1] = rig_ask(r, 'A');
    assert_int_equal(pthread_create(&c.thread, NULL, call, &c), 0);
    while (rig_stats(r).n_generated_tokens < 4) sched_yield();
    weir_engine_stop(r->engine);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.status, WEIR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.results[i].reason, WEIR_REASON_ERROR);
        assert_int_equal(c.results[i].error.code, WEIR_STOPPED);
        assert_true(c.results[i].n_tokens >= 1 && c.results[i].length == c.results[i].n_tokens);
        weir_result_fini(&c.results[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_result_holds_text_tokens_reason_and_usage),
        RIG_TEST(an_empty_answer_is_an_empty_text),
        RIG_TEST(generated_streamed_and_detokenized_text_are_the_same_bytes),
        RIG_TEST(several_requests_end_each_for_its_own_reason),
        RIG_TEST(a_refused_request_fills_no_result),
        RIG_TEST(every_allocation_of_generate_may_fail),
        cmocka_unit_test(reasons_have_names),
        RIG_TEST(many_threads_generate_on_one_engine),
        RIG_TEST(many_threads_drive_one_manual_engine_in_turn),
        RIG_TEST(a_stop_ends_the_wait_of_generate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
