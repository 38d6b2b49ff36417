/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

static weir_forecast forecast(rig *r, const weir_request *request)
{
    weir_error error = {0};
    weir_forecast made = {.size = sizeof made};
    if (weir_engine_plan_request(r->engine, request, &made, &error) != WEIR_OK) fail_msg("%s", error.message);
    return made;
}

static void a_dry_run_reports_place_and_fit_and_starts_nothing(void **state)
{
    rig *r = *state;
    r->params.n_slots = 2;
    rig_script(r, 'A', 5, "abcdef");
    rig_script(r, 'L', 300, "");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    weir_forecast f = forecast(r, &request);
    assert_int_equal(f.n_prompt, 5);
    assert_int_equal(f.n_cached, 0);
    assert_int_equal(f.queue_place, 0);
    assert_true(f.fits && !f.busy);
    assert_int_equal(f.ttft_ns + f.finish_ns + f.retry_ns, 0); /* nothing was measured */
    for (int i = 0; i < 4; i++) rig_submit_key(r, 'A');
    rig_tick(r);
    assert_int_equal(forecast(r, &request).queue_place, 3);
    request.priority = 1;
    assert_int_equal(forecast(r, &request).queue_place, 1);
    request.priority = -1;
    assert_int_equal(forecast(r, &request).queue_place, 3);
    assert_int_equal(rig_stats(r).queue_depth, 2);
    assert_int_equal(rig_stats(r).n_submitted, 4);
    weir_request longer = rig_ask(r, 'L');
    f = forecast(r, &longer);
    assert_false(f.fits);
    assert_int_equal(f.n_prompt, 300);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 4 * 5);
}

static void times_come_from_what_was_measured(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    rig_script(r, 'A', 8, "abcdefghi");
    rig_start(r);
    atomic_store(&r->fake->tick_us, 2000);
    for (int i = 0; i < 20; i++) {
        rig_submit_key(r, 'A');
        rig_run(r);
    }
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 10;
    weir_forecast now = forecast(r, &request);
    assert_true(now.ttft_ns > 0 && now.finish_ns > now.ttft_ns);
    rig_submit_key(r, 'A');
    rig_tick(r);
    rig_submit_key(r, 'A');
    weir_forecast later = forecast(r, &request);
    assert_int_equal(later.queue_place, 2);
    assert_true(later.ttft_ns >= 2 * 20 * WEIR__NS_PER_MS); /* two answers before */
    rig_run(r);
}

/* A pass 1 ms, a token of an answer 10 us, of a prompt 1 us, 1,024 cells that are looked at another 1 us. */
static void known_costs(rig *r)
{
    r->engine->shared.rates = (weir__rates){
        .service_ns = 8e9,
        .cost = {.pass_ns = 1e6, .decode_ns = 1e4, .prefill_ns = 1e3, .context_ns = 1e3 * 1024, .n_ticks = 5},
    };
}

static void assert_times(rig *r, const weir_request *request, int64_t ttft_ns, int64_t rest_ns)
{
    known_costs(r);
    weir_forecast f = forecast(r, request);
    assert_true(f.fits);
    assert_int_equal(f.ttft_ns, ttft_ns);
    assert_int_equal(f.finish_ns, ttft_ns + rest_ns);
}

static void times_are_sums_of_what_ticks_cost(void **state)
{
    rig *r = *state;
    const int64_t pass = 1000000, decode = 10000, prefill = 1000, cell = 1000;
    /* Ten tokens in chunks of four look at 1 + 2 + ... + 10 cells, five more at 11 + ... + 15. */
    const int64_t prompt = 3 * pass + 10 * prefill + 55 * cell, rest = 5 * (pass + decode) + 65 * cell;
    r->params.n_slots = 2;
    r->params.chunk_size = 4;
    rig_script(r, 'A', 10, "abcdef");
    rig_script(r, 'B', 5, "abcdefghijklm");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 6;
    assert_times(r, &request, prompt, rest);
    request.max_tokens = 2;
    assert_times(r, &request, prompt, pass + decode + 11 * cell);
    request.max_tokens = 1;
    assert_times(r, &request, prompt, 0);
    request.max_tokens = 0;
    assert_times(r, &request, prompt, 0);
    request.max_tokens = 6;
    rig_submit_key(r, 'B'); /* one that generates beside it: a pass, a token and its context in each tick */
    rig_tick(r);
    rig_tick(r);
    int64_t other = decode + cell * (rig_stats(r).n_kv_used - rig_stats(r).n_kv_cached);
    assert_true(other > decode);
    assert_times(r, &request, prompt + 3 * (pass + other), rest + 5 * other);
    rig_submit_key(r, 'B'); /* and one before it, whose slot it gets: half the time of an answer */
    rig_tick(r);
    other = decode + cell * (rig_stats(r).n_kv_used - rig_stats(r).n_kv_cached) / 2; /* one of two */
    assert_times(r, &request, prompt + 3 * (pass + other) + 4000 * WEIR__NS_PER_MS, rest + 5 * other);
    rig_run(r);
}

/* Beside streams latency-target divides a prompt into the chunks that meet the target. */
static void chunks_are_those_of_the_strategy(void **state)
{
    rig *r = *state;
    const int64_t pass = 1000000, decode = 10000, prefill = 100000;
    r->params.n_slots = 2;
    r->params.strategy = weir_strategy_latency_target();
    r->params.itl_target_ms = 5;
    rig_script(r, 'A', 200, "abcdef");
    rig_script(r, 'B', 5, "abcdefghijklm");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 1;
    for (int beside = 0; beside < 2; beside++) {
        r->engine->shared.rates.cost =
            (weir_cost){.pass_ns = pass, .decode_ns = decode, .prefill_ns = prefill, .n_ticks = 5};
        weir_forecast f = forecast(r, &request);
        if (beside == 0) {
            assert_int_equal(f.ttft_ns, pass + 200 * prefill);
            rig_submit_key(r, 'B');
            rig_tick(r);
            rig_tick(r);
        } else { /* two passes and 29 tokens in a tick of 5 ms, so seven ticks */
            assert_int_equal(f.ttft_ns, 7 * (2 * pass + decode) + 200 * prefill);
        }
    }
    rig_run(r);
}

static void an_answer_ends_with_the_context(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    r->params.n_ctx = 20;
    rig_script(r, 'A', 18, "ab");
    rig_script(r, 'B', 20, "");
    rig_script(r, 'C', 21, "");
    rig_start(r);
    known_costs(r);
    int32_t n_ctx = r->engine->params.n_ctx;
    assert_int_equal(n_ctx, 20);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 100; /* there is room for two: one after the first */
    weir_forecast f = forecast(r, &request);
    assert_true(f.fits);
    assert_int_equal(f.finish_ns - f.ttft_ns, 1000000 + 10000 + 19 * 1000);
    request = rig_ask(r, 'B');
    request.max_tokens = 0;
    assert_true(forecast(r, &request).fits);
    request.max_tokens = 1;
    assert_false(forecast(r, &request).fits);
    request = rig_ask(r, 'C');
    request.max_tokens = 0;
    assert_false(forecast(r, &request).fits);
}

static void busy_says_when_to_try_again(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    char want[64];
    r->params.n_slots = 1;
    r->params.queue_limit = 1;
    rig_script(r, 'A', 2, "abc");
    rig_start(r);
    atomic_store(&r->fake->tick_us, 2000);
    rig_submit_key(r, 'A');
    rig_run(r);
    weir_request request = rig_ask(r, 'A');
    rig_submit_key(r, 'A');
    rig_tick(r);
    assert_false(forecast(r, &request).busy);
    rig_submit_key(r, 'A');
    weir_forecast f = forecast(r, &request);
    assert_true(f.busy);
    assert_true(f.retry_ns >= 4 * 2 * WEIR__NS_PER_MS); /* an answer of four passes */
    weir_stream *stream = rig_stream(r);
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &stream, &error), WEIR_BUSY);
    assert_int_equal(rig_stats(r).retry_ns, f.retry_ns);
    snprintf(want, sizeof want, "try again in about %lld ms", (long long)(f.retry_ns / WEIR__NS_PER_MS));
    assert_non_null(strstr(error.message, want));
    rig_run(r);
}

static void a_dry_run_refuses_as_submit_does(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_forecast f = {.size = sizeof f};
    rig_script(r, 'A', 2, "abc");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.priority = 101;
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].priority");
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, &error), WEIR_INVALID);
    request.priority = -100;
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, NULL), WEIR_OK);
    assert_int_equal(weir_engine_plan_request(NULL, &request, &f, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_plan_request(r->engine, NULL, &f, &error), WEIR_INVALID);
    assert_string_equal(error.field, "request");
    assert_int_equal(weir_engine_plan_request(r->engine, &request, NULL, &error), WEIR_INVALID);
    f.size = 1;
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, &error), WEIR_INVALID);
    f.size = sizeof f;
    for (long n = 0;; n++) {
        long live = weir__mem_live();
        weir__mem_fail_after(n);
        weir_status status = weir_engine_plan_request(r->engine, &request, &f, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
        assert_int_equal(status, WEIR_NO_MEMORY);
    }
    weir_engine_stop(r->engine);
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, NULL), WEIR_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_dry_run_reports_place_and_fit_and_starts_nothing),
        RIG_TEST(times_come_from_what_was_measured),
        RIG_TEST(times_are_sums_of_what_ticks_cost),
        RIG_TEST(chunks_are_those_of_the_strategy),
        RIG_TEST(an_answer_ends_with_the_context),
        RIG_TEST(busy_says_when_to_try_again),
        RIG_TEST(a_dry_run_refuses_as_submit_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
