/* call_stop_test.c: stop strings end no call, however its tokens come: one by one, in bursts of a draft,
 * after a suspension and in a fork. The backend says at which token a call begins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/draft.h"
#include "support/guess.h"

#define ANSWER "abcdefghefijkl"

static const char *const stops[] = {"ef"};

/* Tokens that the sampler got, and the first that is a call's. */
static int32_t n_seen, first_of_call;

static size_t before_call(const weir__bsampler *sampler)
{
    (void)sampler;
    return n_seen++ < first_of_call ? WEIR__NO_CALL : 0;
}

/* Sets the hook, after the model was loaded. */
static void hook_call(rig *r, int32_t first)
{
    static weir__backend ops;
    ops = *r->model->ops;
    ops.text_before_call = before_call;
    r->model->ops = &ops;
    n_seen = 0;
    first_of_call = first;
}

static weir_request ask(rig *r)
{
    weir_request request = rig_ask(r, 'A');
    request.stop = stops;
    request.n_stop = 1;
    return request;
}

/* "ef" are the tokens 4 and 5. */
static void judge(const sink *got, int32_t first)
{
    assert_string_equal(got->text, first > 5 ? "abcd" : ANSWER);
    assert_int_equal(got->reason, first > 5 ? WEIR_REASON_STOP_WORDS : WEIR_REASON_END);
}

static void one_by_one_and_in_bursts(void **state)
{
    rig *r = *state;
    static guess g;
    rig_script(r, 'A', 6, ANSWER);
    for (int32_t n_draft = 0; n_draft <= 8; n_draft += 4) {
        for (int32_t first = 0; first < 8; first++) {
            sink got = {0};
            r->params.n_draft_max = n_draft;
            rig_start(r);
            if (n_draft > 0) assert_true(guess_install(&g, r->engine, r->model, n_draft, first % 3));
            hook_call(r, first);
            weir_request request = ask(r);
            weir_stream *stream = rig_submit(r, &request);
            if (n_draft > 0)
                draft_run(r);
            else
                rig_run(r);
            sink_take(&got, stream);
            judge(&got, first);
            rig_stop(r);
        }
    }
}

static void after_a_suspension(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    rig_script(r, 'A', 6, ANSWER);
    rig_script(r, 'B', 1, "x");
    for (int32_t first = 2; first < 8; first++) {
        for (int n_ticks = 2; n_ticks < 9; n_ticks++) {
            sink got = {0};
            rig_start(r);
            hook_call(r, first);
            weir_request request = ask(r), other = rig_ask(r, 'B');
            weir_stream *stream = rig_submit(r, &request);
            rig_ticks(r, n_ticks);
            int32_t seen = n_seen;
            other.priority = 1;
            rig_submit(r, &other);
            while (rig_stats(r).n_finished[WEIR_REASON_END] == 0 && !rig_tick(r).idle) continue;
            n_seen = seen; /* the other's tokens are none of it */
            rig_run(r);
            sink_take(&got, stream);
            judge(&got, first);
            rig_stop(r);
        }
    }
}

static void in_a_fork(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 6, ANSWER);
    rig_start(r);
    for (int32_t first = 0; first < 6; first++) {
        sink whole = {0};
        hook_call(r, first);
        weir_request request = ask(r);
        weir_stream *source = rig_submit(r, &request);
        rig_run(r);
        sink_take(&whole, source);
        judge(&whole, first);
        for (int32_t at = 0; at < 12; at++) {
            sink got = {0};
            static char text[sizeof got.text];
            weir_request more = weir_request_default();
            more.sampler = &r->greedy;
            more.max_tokens = 40;
            more.stop = stops;
            more.n_stop = 1;
            n_seen = 0;
            weir_stream *fork = rig_stream(r);
            assert_int_equal(weir_engine_fork(r->engine, source, at, &more, fork, NULL), WEIR_OK);
            rig_run(r);
            sink_take(&got, fork);
            snprintf(text, sizeof text, "%s%s", weir_stream_source_text(fork, NULL), got.text);
            assert_string_equal(text, ANSWER);
            assert_int_equal(got.reason, WEIR_REASON_END);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_by_one_and_in_bursts, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(after_a_suspension, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(in_a_fork, rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
