/* pace_test.c: prompts beside requests of higher priority. SPDX-License-Identifier: Apache-2.0 */
#include "support/dice.h"
#include "support/engine/pace.h"

#define PACE_TEST(name) cmocka_unit_test_setup_teardown(name, pace_setup, pace_teardown)

static weir_stream *submit_at(rig *r, int32_t key, int32_t priority)
{
    weir_request request = rig_ask(r, key);
    request.priority = priority;
    return rig_submit(r, &request);
}

/* Tokens that the next tick computes of the request with this prompt; 0 = it is not in the view. */
static int32_t tokens_of(rig *r, int32_t n_prompt)
{
    const weir_view *view;
    weir_plan_entry plan[16];
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    size_t n = weir_strategy_decode_maximal()->plan(view, plan, NULL);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < view->n_slots; k++)
            if (view->slots[k].slot == plan[i].slot && view->slots[k].n_prompt == n_prompt)
                return plan[i].n_tokens;
    return 0;
}

/* Runs n ticks, and checks in each the tokens of the request with this prompt. */
static void expect_tokens(rig *r, int32_t n_prompt, const int32_t *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tokens_of(r, n_prompt), wanted[i]);
        rig_tick(r);
    }
}

/* ---- Forecasts ------------------------------------------------------------------------------------- */

/* The cost of ticks, by the engine's guess, until the stream has its first token. */
static double first_token_ns(rig *r, weir_stream *stream)
{
    weir_report report = {.size = sizeof report};
    double ns = 0;
    weir_cost guess = weir__cost_get(&r->engine->driver.cost);
    for (int i = 0; i < 5000 && weir_stream_usage(stream).n_generated == 0; i++) {
        assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, NULL), WEIR_OK);
        ns += weir_cost_tick_ns(&guess, 1, report.n_decode, report.n_prefill, 0);
        weir__clock_stand(START + (int64_t)ns); /* prompts that were outranked speed up with time */
    }
    return ns;
}

/* The forecast of a request of this priority, and then the cost of its ticks. */
static void compare_forecast(rig *r, int32_t key, int32_t priority, double tolerance)
{
    weir_request request = rig_ask(r, key);
    weir_forecast f = {.size = sizeof f};
    request.priority = priority;
    r->engine->shared.rates.cost = weir__cost_get(&r->engine->driver.cost);
    r->engine->shared.rates.cost.n_ticks = 1; /* as if it were measured */
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, NULL), WEIR_OK);
    assert_int_equal(f.queue_place, 0);
    double took = first_token_ns(r, rig_submit(r, &request)), told = (double)f.ttft_ns;
    if (told < took * (1 - tolerance) || told > took * (1 + tolerance))
        fail_msg("priority %d: %.0f ms were told, and it took %.0f ms", priority, told / 1e6, took / 1e6);
}

/* Compares the forecast of A beside B, of priority 1, whose first tick has run, and sets up anew. */
static void compare_beside(void **state, int32_t max_tokens, int32_t priority, double part)
{
    rig *r = *state;
    rig_start(r);
    weir_request high = rig_ask(r, 'B');
    high.priority = 1;
    high.max_tokens = max_tokens;
    rig_submit(r, &high);
    rig_tick(r);
    compare_forecast(r, 'A', priority, part);
    rig_run(r);
    pace_teardown(state);
    pace_setup(state);
}

static void forecasts_know_the_streams_of_higher_priority(void **state)
{
    static const struct {
        int32_t priority, itl_target_ms;
    } cases[] = {{1, 50}, {0, 50}, {0, 20}, {0, 1000}, {1, 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig *r = *state;
        r->params.n_slots = 2;
        r->params.layout = WEIR_LAYOUT_UNIFIED; /* a tick is a pass */
        r->params.itl_target_ms = cases[i].itl_target_ms;
        rig_script(r, 'A', 100, "low");
        rig_script(r, 'B', 5, "a stream of forty letters or a few more, who counts them");
        compare_beside(state, 50, cases[i].priority, 0.1);
    }
}

static void forecasts_know_the_prompts_of_higher_priority(void **state)
{
    static const struct {
        int32_t n_high, n_low; /* tokens of the prompts */
    } cases[] = {{31 * CHUNK, 6 * CHUNK}, {8 * CHUNK, LONG}, {30 * CHUNK, 20 * CHUNK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig *r = *state;
        r->params.n_slots = 2;
        r->params.layout = WEIR_LAYOUT_UNIFIED;
        rig_script(r, 'A', cases[i].n_low, "low");
        rig_script(r, 'B', cases[i].n_high, "high");
        compare_beside(state, 4, 0, 0.2);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------------- */

static void a_prompt_waits_for_one_of_higher_priority(void **state)
{
    rig *r = *state;
    sink got[2] = {0};
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', 8 * CHUNK, "high");
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    rig_tick(r);
    weir_stream *high = submit_at(r, 'B', 1);
    /* The low prompt has as much time as the other one in one tick of four. */
    expect_tokens(r, LONG, (const int32_t[]){0, 0, 0, CHUNK, 0, 0, 0}, 7);
    assert_int_equal(rig_stats(r).n_prompt_tokens, CHUNK + 7 * CHUNK + CHUNK);
    rig_run_out(r, high, &got[1]);
    sink_take(&got[0], low);
    assert_sink(got[0], WEIR_REASON_END, "low");
    assert_sink(got[1], WEIR_REASON_END, "high");
}

/* A cost that is learned may be 0. */
static void it_waits_even_if_prompts_seem_to_take_no_time(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', 8 * CHUNK, "high");
    rig_start(r);
    r->engine->driver.cost.ns[WEIR__COST_PREFILL] = r->engine->driver.cost.ns[WEIR__COST_CONTEXT] = 0;
    submit_at(r, 'A', 0);
    rig_tick(r);
    submit_at(r, 'B', 1);
    expect_tokens(r, LONG, (const int32_t[]){0, 0, 0, CHUNK, 0, 0, 0}, 7);
    rig_run(r);
}

static void the_oldest_has_its_turn_whatever_comes_between(void **state)
{
    rig *r = *state;
    r->params.n_slots = 3;
    rig_script(r, 'A', LONG, "oldest");
    rig_script(r, 'B', LONG - 1, "middle");
    rig_script(r, 'C', LONG - 2, "high");
    rig_start(r);
    submit_at(r, 'A', 0);
    submit_at(r, 'B', 1);
    submit_at(r, 'C', 2);
    for (int i = 0; i < 3; i++) {
        expect_tokens(r, LONG, (const int32_t[]){0, 0, 0}, 3);
        assert_int_equal(tokens_of(r, LONG - 1), 0);
        assert_in_range(tokens_of(r, LONG), CHUNK - 1, CHUNK);
        rig_tick(r);
    }
    rig_run(r);
}

static void a_callers_plan_has_the_limits_of_its_view(void **state)
{
    rig *r = *state;
    const weir_view *view;
    weir_report report = {.size = sizeof report};
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', LONG - 1, "high");
    rig_start(r);
    submit_at(r, 'A', 0);
    submit_at(r, 'B', 1);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->n_slots, i % 4 == 3 ? 2 : 1);
        const weir_plan_entry plan[] = {{0, CHUNK}, {1, CHUNK}}; /* the higher one was admitted first */
        assert_int_equal(weir_engine_step(r->engine, plan, view->n_slots, &report, NULL), WEIR_OK);
        assert_false(report.bad_plan);
        assert_in_range(report.n_prefill, i % 4 == 3 ? 2 * CHUNK - 1 : CHUNK, i % 4 == 3 ? 2 * CHUNK : CHUNK);
    }
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    const weir_plan_entry hidden = {1, CHUNK};
    assert_int_equal(weir_engine_step(r->engine, &hidden, 1, &report, NULL), WEIR_OK);
    assert_true(report.bad_plan);
    rig_run(r);
}

static void beside_a_stream_of_higher_priority_it_has_what_the_target_leaves(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 2; i++) {
        r->params.layout = i == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
        rig_script(r, 'A', LONG, "low");
        rig_script(r, 'B', 5, "of higher priority");
        rig_start(r);
        submit_at(r, 'A', 0);
        rig_tick(r);
        submit_at(r, 'B', 1);
        expect_tokens(r, LONG, (const int32_t[]){0}, 1);
        if (i == 0)
            expect_tokens(r, LONG, (const int32_t[]){3, 3, 3, 3}, 4);
        else /* two passes and the stream's token take 45 ms: nothing is left, but a turn of four has one */
            expect_tokens(r, LONG, (const int32_t[]){0, 0, 1, 0, 0, 0, 1}, 7);
        rig_run(r);
        rig_stop(r);
    }
}

static void equals_and_lower_ones_change_nothing(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', LONG, "long");
    rig_script(r, 'B', 5, "of no higher priority");
    for (int32_t priority = -1; priority <= 0; priority++) {
        rig_start(r);
        submit_at(r, 'A', 0);
        submit_at(r, 'B', priority);
        expect_tokens(r, LONG, (const int32_t[]){CHUNK, CHUNK, CHUNK, CHUNK}, 4);
        rig_run(r);
        rig_stop(r);
    }
}

/* Age counts as for preemption: one level for each ageing_ms since submit. */
static void an_older_prompt_is_not_outranked(void **state)
{
    rig *r = *state;
    r->params.ageing_ms = 100;
    rig_script(r, 'A', LONG, "old");
    rig_script(r, 'B', LONG - 1, "new");
    rig_start(r);
    submit_at(r, 'A', 0);
    rig_tick(r);
    weir__clock_stand(START + 100 * WEIR__NS_PER_MS);
    submit_at(r, 'B', 1);
    expect_tokens(r, LONG, (const int32_t[]){CHUNK, CHUNK}, 2);
    rig_run(r);
}

static void expect_after(rig *r, int64_t ms, int32_t wanted)
{
    weir__clock_stand(START + ms * WEIR__NS_PER_MS);
    expect_tokens(r, LONG, &wanted, 1);
}

/* The limit becomes a quarter of the time since then, if that is more than the target. */
static void the_limit_grows_when_the_others_have_gone(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', 5, "h");
    rig_start(r);
    submit_at(r, 'A', 0);
    expect_tokens(r, LONG, (const int32_t[]){CHUNK}, 1);
    submit_at(r, 'B', 1);
    expect_tokens(r, LONG, (const int32_t[]){0, 0}, 2);
    expect_after(r, 0, 4);
    expect_after(r, 200, 4);
    expect_after(r, 400, 12);
    expect_after(r, 600, CHUNK);
    expect_after(r, 600, CHUNK);
    rig_run(r);
}

/* The other one cannot go on without it. */
static void a_prompt_goes_on_for_a_request_that_waits_for_its_prefix(void **state)
{
    rig *r = *state;
    weir_request request;
    sink got = {0};
    rig_script(r, 'A', LONG, "shared");
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    submit_at(r, 'A', 0);
    rig_tick(r);
    request = rig_ask(r, 'A');
    request.priority = 1;
    weir_stream *high = rig_submit(r, &request);
    expect_tokens(r, LONG, (const int32_t[]){CHUNK, CHUNK, CHUNK}, 3);
    rig_run_out(r, high, &got);
    assert_sink(got, WEIR_REASON_END, "shared");
    assert_int_equal(rig_stats(r).n_joined, 1);
}

/* Prompts of higher priority without end: the long one needs at most four ticks for each of its own. */
static void an_endless_row_of_prompts_does_not_starve_it(void **state)
{
    rig *r = *state;
    int n_ticks = 0;
    sink got = {0};
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', 3 * CHUNK, "h");
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    while (!got.finished) {
        weir_stream *high = submit_at(r, 'B', 1);
        for (int i = 0; i < 3; i++, n_ticks++) rig_tick(r);
        sink_take(&got, low);
        rig_release(r, high); /* cancels the rest */
        r->n_streams--;
        assert_true(n_ticks < 4 * LONG);
    }
    assert_sink(got, WEIR_REASON_END, "low");
    rig_run(r);
}

/* ---- Abandoned passes ------------------------------------------------------------------------------ */

/* A request that arrives during a pass, and how long after that the backend asks whether to go on. */
typedef struct arrivals {
    rig *r;
    int at;      /* the pass, counted down; below 0: none any more */
    int32_t key; /* of the prompt */
    int32_t priority;
    int64_t pass_ms;
    weir_stream *stream;
} arrivals;

static void arrive(void *user, const weir__batch *batch)
{
    arrivals *a = user;
    (void)batch;
    if (a->at-- != 0) return;
    a->stream = submit_at(a->r, a->key, a->priority);
    weir__clock_stand(weir__clock_now_ns() + a->pass_ms * WEIR__NS_PER_MS);
}

static void set_arrivals(rig *r, arrivals *a)
{
    a->r = r;
    a->pass_ms = 2;
    r->fake->before_decode = arrive;
    r->fake->before_decode_user = a;
    r->params.n_slots = 2;
    rig_script(r, 'A', LONG, "low");
    rig_script(r, 'B', 5, "high");
}

static void a_pass_ends_for_a_request_of_higher_priority(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'B', .priority = 1};
    sink got[2] = {0};
    weir_tick tick;
    size_t n;
    set_arrivals(r, &a);
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    rig_ticks(r, 2);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
    assert_int_equal(rig_stats(r).n_failed_ticks, 0);
    assert_int_equal(rig_stats(r).n_prompt_tokens, CHUNK);
    assert_int_equal(rig_stats(r).n_kv_used, CHUNK);
    assert_int_equal(weir_engine_ticks(r->engine, 1, &tick, 1, &n), WEIR_OK);
    assert_true(tick.abandoned && !tick.failed && tick.work_ns == 0 && tick.n_prefill == 0);
    rig_tick(r); /* alone */
    sink_take(&got[1], a.stream);
    assert_string_equal(got[1].text, "h");
    assert_int_equal(rig_stats(r).n_prompt_tokens, CHUNK + 5);
    rig_run_out(r, low, &got[0]);
    sink_take(&got[1], a.stream);
    assert_sink(got[0], WEIR_REASON_END, "low");
    assert_sink(got[1], WEIR_REASON_END, "high");
    assert_int_equal(rig_stats(r).n_prompt_tokens, LONG + 5);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
}

static void cells_of_an_abandoned_pass_are_removed(void **state)
{
    rig *r = *state;
    sink got = {0};
    rig_script(r, 'A', LONG, "low");
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    rig_tick(r);
    atomic_store(&r->fake->fail_decode_status, WEIR_ABORTED);
    atomic_store(&r->fake->fail_decode_keep, 5);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_tick(r);
    assert_int_equal(atomic_load(&r->fake->n_cells), CHUNK);
    rig_run_out(r, low, &got);
    assert_sink(got, WEIR_REASON_END, "low");
}

static void a_pass_is_abandoned_for_a_slot_as_well(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'B', .priority = 1};
    sink got[2] = {0};
    set_arrivals(r, &a);
    r->params.n_slots = 1;
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    rig_ticks(r, 3);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    sink_take(&got[1], a.stream);
    assert_string_equal(got[1].text, "h");
    rig_run_out(r, low, &got[0]);
    sink_take(&got[1], a.stream);
    assert_sink(got[0], WEIR_REASON_END, "low");
    assert_sink(got[1], WEIR_REASON_END, "high");
}

static void expect_no_abandoned_pass(rig *r, arrivals *a, int32_t key)
{
    set_arrivals(r, a);
    rig_start(r);
    submit_at(r, key, 0);
    rig_run(r);
    assert_true(a->at < 0);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 0);
    rig_stop(r);
}

static void nothing_is_abandoned_for_an_equal(void **state)
{
    arrivals a = {.at = 1, .key = 'B'};
    expect_no_abandoned_pass(*state, &a, 'A');
}

static void nothing_is_abandoned_that_ends_soon(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'B', .priority = 1};
    r->params.chunk_size = 5; /* 45 ms */
    expect_no_abandoned_pass(r, &a, 'A');
}

static void nothing_is_abandoned_without_room_for_the_other(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'C', .priority = 1};
    rig_script(r, 'C', 500, "long as well");
    rig_script(r, 'D', LONG, "low");
    r->params.n_ctx = r->params.n_kv = 768;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.n_slots = 2;
    set_arrivals(r, &a);
    rig_start(r);
    submit_at(r, 'D', 2); /* keeps its cells */
    rig_ticks(r, 2);
    submit_at(r, 'B', 0);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 0);
}

/* However often it is interrupted. */
static void a_pass_after_an_abandoned_one_is_not_abandoned(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'B', .priority = 1};
    sink got = {0};
    set_arrivals(r, &a);
    a.pass_ms = 100; /* longer than predicted */
    rig_script(r, 'B', 5, "");
    rig_start(r);
    weir_stream *low = submit_at(r, 'A', 0);
    rig_ticks(r, 2);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
    for (int i = 0; i < 2; i++) {
        rig_tick(r); /* the other one comes and goes */
        a.at = 0;
        rig_tick(r);
        assert_int_equal(rig_stats(r).n_abandoned_ticks, 1 + i);
    }
    rig_run_out(r, low, &got);
    assert_sink(got, WEIR_REASON_END, "low");
}

static void memory_that_cannot_be_cut_keeps_its_pass(void **state)
{
    rig *r = *state;
    arrivals a = {.at = 1, .key = 'B', .priority = 1};
    rig_load(r, "fake:recurrent=1");
    expect_no_abandoned_pass(r, &a, 'A');
}

/* Texts are checked by the rig's scripts. */
static void random_arrivals_change_no_text(void **state)
{
    rig *r = *state;
    dice d = {dice_environment("WEIR_TEST_SEED", 20261126)};
    uint64_t n_abandoned = 0;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 60; round++) {
        arrivals a = {.at = -1};
        sink got[RIG_STREAMS] = {0};
        weir_stream *streams[24];
        set_arrivals(r, &a);
        a.pass_ms = dice_in(&d, 2, 100);
        r->params.n_slots = dice_in(&d, 1, 4);
        r->params.chunk_size = dice_in(&d, 1, 100);
        r->params.layout = dice_one_in(&d, 2) ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
        r->params.ageing_ms = dice_one_in(&d, 2) ? 0 : 200;
        r->params.strategy = weir_strategy_get((size_t)dice_in(&d, 0, 3));
        for (int32_t key = 'A'; key < 'A' + 24; key++)
            rig_script(r, key, dice_in(&d, 1, dice_one_in(&d, 3) ? 400 : 20), "a text of some tokens");
        rig_start(r);
        for (int i = 0; i < 24; i++) {
            a.at = dice_in(&d, 0, 3);
            a.key = 'A' + i;
            a.priority = dice_in(&d, 0, 3);
            a.stream = NULL;
            for (int k = 0; k < 8 && a.stream == NULL; k++) rig_tick(r);
            streams[i] = a.stream != NULL ? a.stream : submit_at(r, a.key, a.priority);
            a.at = -1;
        }
        rig_run(r);
        for (int i = 0; i < 24; i++) {
            sink_take(&got[i], streams[i]);
            assert_sink(got[i], WEIR_REASON_END, "a text of some tokens");
            rig_release(r, streams[i]);
        }
        r->n_streams = 0;
        n_abandoned += rig_stats(r).n_abandoned_ticks;
        rig_stop(r);
    }
    assert_true(n_abandoned > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PACE_TEST(forecasts_know_the_streams_of_higher_priority),
        PACE_TEST(forecasts_know_the_prompts_of_higher_priority),
        PACE_TEST(a_prompt_waits_for_one_of_higher_priority),
        PACE_TEST(it_waits_even_if_prompts_seem_to_take_no_time),
        PACE_TEST(the_oldest_has_its_turn_whatever_comes_between),
        PACE_TEST(a_callers_plan_has_the_limits_of_its_view),
        PACE_TEST(beside_a_stream_of_higher_priority_it_has_what_the_target_leaves),
        PACE_TEST(equals_and_lower_ones_change_nothing),
        PACE_TEST(an_older_prompt_is_not_outranked),
        PACE_TEST(the_limit_grows_when_the_others_have_gone),
        PACE_TEST(a_prompt_goes_on_for_a_request_that_waits_for_its_prefix),
        PACE_TEST(an_endless_row_of_prompts_does_not_starve_it),
        PACE_TEST(a_pass_ends_for_a_request_of_higher_priority),
        PACE_TEST(cells_of_an_abandoned_pass_are_removed),
        PACE_TEST(a_pass_is_abandoned_for_a_slot_as_well),
        PACE_TEST(nothing_is_abandoned_for_an_equal),
        PACE_TEST(nothing_is_abandoned_that_ends_soon),
        PACE_TEST(nothing_is_abandoned_without_room_for_the_other),
        PACE_TEST(a_pass_after_an_abandoned_one_is_not_abandoned),
        PACE_TEST(memory_that_cannot_be_cut_keeps_its_pass),
        PACE_TEST(random_arrivals_change_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
