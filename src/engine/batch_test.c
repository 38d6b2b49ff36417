/* Plans: the view of a caller or a strategy, and the effect of its plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

/* Two slots generate (0 and 1), one prefills with 20 tokens left (2), one is idle (3). */
static void start_mixed(rig *r, weir_stream *streams[3])
{
    r->params.chunk_size = 10;
    r->params.n_batch = r->params.n_ubatch = 11;
    rig_script(r, 'A', 2, "aaaaaaaa");
    rig_script(r, 'B', 3, "bbbbbbbb");
    rig_script(r, 'C', 24, "cccc");
    rig_start(r);
    streams[0] = rig_submit_key(r, 'A');
    streams[1] = rig_submit_key(r, 'B');
    rig_tick(r);
    streams[2] = rig_submit_key(r, 'C');
    static const weir_plan_entry plan[] = {{2, 4}};
    const weir_view *view;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK); /* admits the third */
    assert_int_equal(weir_engine_step(r->engine, plan, 1, NULL, NULL), WEIR_OK);
}

static void finish_mixed(rig *r, weir_stream *streams[3])
{
    static const char *const want[] = {"aaaaaaaa", "bbbbbbbb", "cccc"};
    rig_run(r);
    for (int i = 0; i < 3; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, want[i]);
    }
}

static weir_report step(rig *r, const weir_plan_entry *plan, size_t n)
{
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, plan, n, &report, NULL), WEIR_OK);
    return report;
}

static void a_plan_is_done_to_the_letter(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    start_mixed(r, streams);
    static const weir_plan_entry plan[] = {{2, 7}, {1, 1}};
    weir_report report = step(r, plan, 2);
    assert_false(report.bad_plan || report.idle);
    assert_int_equal(report.n_prefill, 7);
    assert_int_equal(report.n_decode, 1);
    assert_int_equal(report.n_active, 3);
    assert_int_equal(report.queue_depth, 0);
    assert_int_equal(weir_stream_usage(streams[0]).n_generated, 1); /* left out */
    assert_int_equal(weir_stream_usage(streams[1]).n_generated, 2);
    assert_int_equal(rig_stats(r).n_bad_plans, 0);
    finish_mixed(r, streams);
}

static void a_plan_of_the_whole_budget_is_good_and_one_more_token_is_not(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    start_mixed(r, streams);
    static const weir_plan_entry full[] = {{0, 1}, {2, 10}}, over[] = {{0, 1}, {1, 1}, {2, 10}};
    assert_true(step(r, over, 3).bad_plan);
    weir_report report = step(r, full, 2);
    assert_false(report.bad_plan);
    assert_int_equal(report.n_prefill + report.n_decode, 11);
    finish_mixed(r, streams);
}

static void bad_plans_are_replaced_and_counted(void **state)
{
    rig *r = *state;
    static const struct {
        weir_plan_entry plan[5];
        size_t n;
    } bad[] = {
        {{{-1, 1}}, 1},                                /* no such slot */
        {{{4, 1}}, 1},                                 /* nor this */
        {{{INT32_MAX, 1}}, 1},                         /* nor this */
        {{{3, 1}}, 1},                                 /* an idle slot */
        {{{0, 2}}, 1},                                 /* two tokens for a generating slot */
        {{{0, -1}}, 1},                                /* a negative number */
        {{{0, 1}, {0, 1}}, 2},                         /* a slot twice */
        {{{2, 11}}, 1},                                /* more than chunk_size */
        {{{2, INT32_MAX}, {0, 1}}, 2},                 /* sums that overflow */
        {{{0, 1}, {1, 1}, {2, 10}}, 3},                /* over budget */
        {{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {0, 0}}, 5}, /* more entries than slots */
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        weir_stream *streams[3];
        start_mixed(r, streams);
        weir_report report = step(r, bad[i].plan, bad[i].n);
        if (!report.bad_plan) fail_msg("plan %zu was taken", i);
        assert_int_equal(report.n_decode, 2); /* decode-maximal's */
        assert_int_equal(report.n_prefill, 9);
        assert_int_equal(rig_stats(r).n_bad_plans, 1);
        finish_mixed(r, streams);
        rig_stop(r);
    }
}

static void more_prompt_than_is_left_is_a_bad_plan(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    start_mixed(r, streams);
    static const weir_plan_entry ten[] = {{2, 10}}, three[] = {{2, 3}};
    step(r, ten, 1);
    step(r, three, 1); /* 7 left */
    assert_true(step(r, ten, 1).bad_plan);
    finish_mixed(r, streams);
}

/* The plan was right when it was made: nobody's mistake. */
static void slots_that_ended_since_the_view_are_left_out(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    const weir_view *view;
    static const weir_plan_entry plan[] = {{0, 1}, {1, 1}, {2, 9}}, one[] = {{0, 1}};
    start_mixed(r, streams);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    weir_stream_cancel(streams[0]);
    weir_report report = step(r, plan, 3);
    assert_false(report.bad_plan || report.idle);
    assert_int_equal(report.n_decode, 1);
    assert_int_equal(report.n_prefill, 9);
    assert_int_equal(rig_stats(r).n_bad_plans, 0);

    assert_true(step(r, one, 1).bad_plan); /* the view held for one tick */
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_true(step(r, one, 1).bad_plan); /* this view does not have it */
    assert_int_equal(rig_stats(r).n_bad_plans, 2);

    streams[0] = rig_submit_key(r, 'A');
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 3);
    weir_stream_cancel(streams[0]);
    assert_true(step(r, (weir_plan_entry[]){{0, 3}}, 1).bad_plan); /* too much even for its former state */
    rig_run(r);
    sink got[3] = {{0}};
    for (int i = 0; i < 3; i++) sink_take(&got[i], streams[i]);
    assert_int_equal(got[0].reason, WEIR_REASON_CANCELLED);
    assert_sink(got[1], WEIR_REASON_END, "bbbbbbbb");
    assert_sink(got[2], WEIR_REASON_END, "cccc");
}

/* All that the view had. */
static void a_plan_for_what_is_gone_lets_the_tick_pass(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    const weir_view *view;
    static const weir_plan_entry plan[] = {{0, 1}, {1, 1}, {2, 9}};
    start_mixed(r, streams);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    for (int i = 0; i < 3; i++) weir_stream_cancel(streams[i]);
    weir_report report = step(r, plan, 3);
    assert_true(report.idle);
    assert_false(report.bad_plan);
    assert_int_equal(report.n_active, 0);
}

static void an_empty_plan_lets_the_tick_pass(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    start_mixed(r, streams);
    uint64_t n_ticks = rig_stats(r).n_ticks;
    static const weir_plan_entry none[] = {{0, 0}, {2, 0}};
    for (size_t n = 0; n < 3; n += 2) {
        weir_report report = step(r, none, n);
        assert_true(report.idle);
        assert_false(report.bad_plan);
        assert_int_equal(report.n_active, 3);
    }
    assert_int_equal(rig_stats(r).n_ticks, n_ticks);
    finish_mixed(r, streams);
}

static void a_failed_pass_does_not_concern_who_was_left_out_of_the_plan(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    sink got = {0};
    start_mixed(r, streams);
    static const weir_plan_entry plan[] = {{0, 1}, {2, 3}};
    atomic_store(&r->fake->fail_decode_at, 0);
    step(r, plan, 2);
    assert_int_equal(weir_stream_reason(streams[0]), WEIR_REASON_ERROR);
    assert_int_equal(weir_stream_reason(streams[2]), WEIR_REASON_ERROR);
    assert_false(weir_stream_finished(streams[1]));
    rig_run(r);
    sink_take(&got, streams[1]);
    assert_sink(got, WEIR_REASON_END, "bbbbbbbb");
}

/* ---- Strategies ----------------------------------------------------------------------------------- */

typedef struct seen {
    int calls;
    size_t n_slots;
    weir_plan_entry plan;
    size_t n_plan;
} seen;

static size_t as_told(const weir_view *view, weir_plan_entry *plan, void *user)
{
    seen *s = user;
    s->calls++;
    s->n_slots = view->n_slots;
    assert_true(view->n_slots > 0);
    plan[0] = s->plan;
    return s->n_plan;
}

static void a_strategy_of_the_callers_makes_the_plans(void **state)
{
    rig *r = *state;
    seen s = {.plan = {0, 3}, .n_plan = 1};
    weir_strategy strategy = {.name = "told", .plan = as_told, .user = &s};
    sink got = {0};
    r->params.strategy = &strategy;
    rig_script(r, 'A', 9, "ab");
    rig_start(r);
    rig_tick(r);
    assert_int_equal(s.calls, 0); /* there is nothing to plan */
    weir_stream *stream = rig_submit_key(r, 'A');
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_tick(r).n_prefill, 3);
        assert_int_equal(s.calls, i + 1);
    }
    s.plan.n_tokens = 1;
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "ab");
    assert_int_equal(rig_stats(r).n_bad_plans, 0);
}

static void a_strategy_that_plans_rubbish_or_nothing_stops_nobody(void **state)
{
    rig *r = *state;
    static const struct {
        weir_plan_entry plan;
        size_t n;
    } bad[] = {{{7, 1}, 1}, {{0, 0}, 1}, {{0, 0}, 0}, {{0, 1}, SIZE_MAX}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        seen s = {.plan = bad[i].plan, .n_plan = bad[i].n};
        weir_strategy strategy = {.name = "bad", .plan = as_told, .user = &s};
        sink got = {0};
        r->params.strategy = &strategy;
        rig_script(r, 'A', 9, "ab");
        rig_start(r);
        weir_stream *stream = rig_submit_key(r, 'A');
        int n_ticks = rig_run(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_END, "ab");
        assert_int_equal(n_ticks, 3);
        assert_int_equal(rig_stats(r).n_bad_plans, 3);
        rig_stop(r);
    }
}

/* ---- The view ------------------------------------------------------------------------------------- */

static void the_view_tells_what_a_plan_may_hold(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    const weir_view *view;
    start_mixed(r, streams);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->budget, 11);
    assert_int_equal(view->chunk_size, 10);
    assert_int_equal(view->queue_depth, 0);
    assert_int_equal(view->n_slots, 3);
    static const struct {
        weir_slot_state state;
        int32_t n_prompt_left, n_prompt, n_generated;
    } want[] = {
        {WEIR_SLOT_GENERATING, 0, 2, 1}, {WEIR_SLOT_GENERATING, 0, 3, 1}, {WEIR_SLOT_PREFILLING, 20, 24, 0}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view->slots[i].slot, i);
        assert_int_equal(view->slots[i].state, want[i].state);
        assert_int_equal(view->slots[i].n_prompt_left, want[i].n_prompt_left);
        assert_int_equal(view->slots[i].n_prompt, want[i].n_prompt);
        assert_int_equal(view->slots[i].n_generated, want[i].n_generated);
        assert_true(view->slots[i].waited_ns > 0);
    }
    assert_true(view->slots[0].waited_ns >= view->slots[2].waited_ns);
    rig_tick(r);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->slots[0].n_prompt_left, 0); /* its answer is no prompt */
    assert_int_equal(view->slots[0].n_generated, 2);
    finish_mixed(r, streams);
}

/* Divides a batch between lanes as llama.cpp does: in one pass it takes equal numbers of rows of the first
 * lane that is left and of those that follow in the batch with the next number. Returns the passes; *n_reads:
 * in how many passes each lane is, added up. */
static int32_t divide(const weir__fake_entry *log, size_t n, int32_t *n_reads)
{
    int32_t left[8] = {0}, n_passes = 0;
    for (size_t i = 0; i < n; i++) left[log[i].seq]++;
    for (*n_reads = 0;; n_passes++) {
        int32_t lanes[8], n_lanes = 0, least = INT32_MAX;
        for (size_t i = 0; i < n; i++) {
            int32_t lane = log[i].seq;
            if (left[lane] == 0 || (n_lanes > 0 && lane != lanes[n_lanes - 1] + 1)) continue;
            lanes[n_lanes++] = lane;
            if (left[lane] < least) least = left[lane];
        }
        if (n_lanes == 0) return n_passes;
        for (int32_t i = 0; i < n_lanes; i++) left[lanes[i]] -= least;
        *n_reads += n_lanes;
    }
}

/* Three requests in lanes 0 to 2. rows: their rows in a tick. */
static void check_order(rig *r, const char *keys, const int32_t rows[3], const char *order, int32_t n_passes,
                        int32_t n_reads)
{
    weir_plan_entry plan[3];
    const weir_view *view;
    char seqs[64] = "";
    size_t n;
    int32_t reads;
    r->params.layout = WEIR_LAYOUT_PER_SLOT;
    r->params.chunk_size = 10;
    rig_start(r);
    for (int32_t i = 0; i < 3; i++) {
        rig_script(r, keys[i], keys[i] < 'P' ? 2 : 24, "aaaa");
        rig_submit_key(r, keys[i]);
        plan[i] = (weir_plan_entry){i, keys[i] < 'P' ? 2 : 4};
        if (rows[i] == 0) plan[i].n_tokens = 0;
    }
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK); /* admits them */
    step(r, plan, 3);
    for (int32_t i = 0; i < 3; i++) plan[i].n_tokens = rows[i];
    weir__fake_log_start(r->model);
    uint64_t passes = (uint64_t)rig_stats(r).passes.sum;
    assert_false(step(r, plan, 3).bad_plan);
    const weir__fake_entry *log = weir__fake_log(r->model, &n);
    for (size_t i = 0; i < n; i++) seqs[i] = (char)('0' + log[i].seq);
    assert_string_equal(seqs, order);
    assert_int_equal(divide(log, n, &reads), n_passes);
    assert_int_equal(reads, n_reads);
    assert_int_equal((uint64_t)rig_stats(r).passes.sum - passes, n_passes);
    rig_run(r);
    rig_stop(r);
}

static void a_lane_is_in_one_pass_if_that_takes_no_more_passes(void **state)
{
    rig *r = *state;
    check_order(r, "ABP", (const int32_t[]){1, 1, 7}, "222222201", 2, 3);
    check_order(r, "PBC", (const int32_t[]){7, 1, 1}, "120000000", 2, 3);
    check_order(r, "PQC", (const int32_t[]){5, 5, 1}, "20000011111", 2, 3);
    check_order(r, "PQR", (const int32_t[]){2, 4, 6}, "222222111100", 3, 3);
    check_order(r, "ABC", (const int32_t[]){1, 1, 1}, "012", 1, 3);
    check_order(r, "APC", (const int32_t[]){1, 7, 1}, "011111112", 2, 4); /* apart they would be 3 */
    check_order(r, "ABP", (const int32_t[]){1, 0, 7}, "22222220", 2, 2);
}

static void the_view_tells_what_a_tick_costs(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    const weir_view *view;
    r->params.itl_target_ms = 70;
    start_mixed(r, streams);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_ubatch, 11);
    assert_int_equal(view->layout, rig_stats(r).layout);
    assert_int_equal(view->itl_target_ns, 70000000);
    assert_int_equal(view->cost.n_ticks, 2);
    assert_true(weir_cost_tick_ns(&view->cost, 1, 2, 5, 0) > 0);
    static const int32_t n_past[] = {2, 3, 4};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view->slots[i].n_past, n_past[i]);
        assert_int_equal(view->slots[i].lane, i);
        assert_int_equal(view->slots[i].n_draft, 0);
        assert_true((view->slots[i].idle_ns > 0) == (i < 2));
        assert_true(view->slots[i].deadline_ns == INT64_MAX);
    }
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_tick(r); /* fails, and teaches nothing */
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->cost.n_ticks, 2);
}

static void a_tick_keeps_to_the_least_target_of_the_streams(void **state)
{
    rig *r = *state;
    /* ms of two streams, 0 = the engine's 80; the view's value */
    static const int32_t cases[][3] = {{0, 0, 80},      {30, 0, 30}, {0, 30, 30}, {200, 0, 80},
                                       {200, 300, 200}, {20, 0, 20}, {19, 0, 20}, {1, 300, 20}};
    r->params.itl_target_ms = 80;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const weir_view *view;
        rig_script(r, 'A', 2, "aaaa");
        rig_script(r, 'B', 3, "bbbb");
        rig_start(r);
        for (int s = 0; s < 2; s++) {
            weir_request request = rig_ask(r, s == 0 ? 'A' : 'B');
            request.itl_target_ms = cases[i][s];
            rig_submit(r, &request);
        }
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->itl_target_ns, 80 * WEIR__NS_PER_MS); /* none generates yet */
        rig_tick(r);
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->itl_target_ns, cases[i][2] * WEIR__NS_PER_MS);
        rig_run(r);
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->itl_target_ns, 80 * WEIR__NS_PER_MS);
        rig_stop(r);
    }
}

static void the_view_tells_what_is_left_of_deadlines(void **state)
{
    rig *r = *state;
    const weir_view *view;
    rig_script(r, 'A', 9, "ab");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = 100000;
    rig_submit(r, &request);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_true(view->slots[0].deadline_ns > 0 && view->slots[0].deadline_ns <= INT64_C(100000000000));
    rig_run(r);
}

static void each_strategy_finishes_all(void **state)
{
    rig *r = *state;
    for (size_t i = 0; weir_strategy_get(i) != NULL; i++) {
        weir_stream *streams[3];
        r->params.strategy = weir_strategy_get(i);
        start_mixed(r, streams);
        finish_mixed(r, streams);
        assert_int_equal(rig_stats(r).n_bad_plans, 0);
        rig_stop(r);
    }
}

static void the_view_admits_and_lists_the_oldest_first(void **state)
{
    rig *r = *state;
    const weir_view *view;
    weir_stream *streams[6];
    for (int i = 0; i < 6; i++) rig_script(r, 'A' + i, 3 + i, "aaaaaaaa");
    rig_start(r);
    for (int i = 0; i < 4; i++) streams[i] = rig_submit_key(r, 'A' + i);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(view->slots[i].n_prompt, 3 + i);
    weir_stream_cancel(streams[1]);
    for (int i = 4; i < 6; i++) streams[i] = rig_submit_key(r, 'A' + i);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 4);
    assert_int_equal(view->queue_depth, 1);
    static const int32_t n_prompt[] = {3, 5, 6, 7}, slot[] = {0, 2, 3, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(view->slots[i].n_prompt, n_prompt[i]);
        assert_int_equal(view->slots[i].slot, slot[i]);
    }
    assert_true(weir_stream_finished(streams[1])); /* the view collects cancels */
    assert_int_equal(atomic_load(&r->fake->n_passes), 0);
    rig_run(r);
}

static void a_plan_made_from_the_view_is_good_at_the_next_step(void **state)
{
    rig *r = *state;
    const weir_view *view;
    weir_plan_entry plan[4];
    sink got = {0};
    rig_script(r, 'A', 30, "abcdef");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    do {
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        for (size_t i = 0; i < view->n_slots; i++)
            plan[i] = (weir_plan_entry){view->slots[i].slot, view->slots[i].state == WEIR_SLOT_GENERATING ? 1
                                                             : view->slots[i].n_prompt_left > 13
                                                                 ? 13
                                                                 : view->slots[i].n_prompt_left};
        assert_false(step(r, plan, view->n_slots).bad_plan);
    } while (view->n_slots > 0);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdef");
    assert_int_equal(rig_stats(r).n_ticks, 3 + 6);
}

/* ---- Who may drive -------------------------------------------------------------------------------- */

static void an_engine_with_a_thread_cannot_be_driven(void **state)
{
    rig *r = *state;
    const weir_view *view;
    weir_report report = {.size = sizeof report};
    weir_error error = {0};
    r->params.manual = false;
    rig_start(r);
    assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, &error), WEIR_STATE);
    assert_int_equal(error.code, WEIR_STATE);
    assert_int_equal(weir_engine_view(r->engine, &view, &error), WEIR_STATE);
}

typedef struct within {
    weir_engine *engine;
    weir_status step, view;
} within;

static void drive_again(weir_stream *stream, void *user)
{
    within *w = user;
    const weir_view *view;
    (void)stream;
    w->step = weir_engine_step(w->engine, NULL, 0, NULL, NULL);
    w->view = weir_engine_view(w->engine, &view, NULL);
}

static void a_tick_within_a_tick_is_a_state_error(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 3, "a");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    within w = {.engine = r->engine};
    weir_stream_set_ready(stream, drive_again, &w);
    rig_run(r);
    weir_stream_set_ready(stream, NULL, NULL);
    assert_int_equal(w.step, WEIR_STATE);
    assert_int_equal(w.view, WEIR_STATE);
    assert_int_equal(weir_stream_reason(stream), WEIR_REASON_END);
}

static void missing_pointers_and_sizes_are_told(void **state)
{
    rig *r = *state;
    weir_error error;
    weir_report report = {.size = 1};
    const weir_view *view;
    rig_script(r, 'A', 3, "a");
    rig_start(r);
    rig_submit_key(r, 'A');
    assert_int_equal(weir_engine_step(NULL, NULL, 0, NULL, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_view(NULL, &view, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_view(r->engine, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "view");
    assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, &error), WEIR_INVALID);
    assert_string_equal(error.field, "report");
    assert_int_equal(atomic_load(&r->fake->n_passes), 0); /* and no tick was done */
    assert_int_equal(weir_engine_step(r->engine, NULL, 0, NULL, NULL), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_plan_is_done_to_the_letter),
        RIG_TEST(a_plan_of_the_whole_budget_is_good_and_one_more_token_is_not),
        RIG_TEST(bad_plans_are_replaced_and_counted),
        RIG_TEST(more_prompt_than_is_left_is_a_bad_plan),
        RIG_TEST(slots_that_ended_since_the_view_are_left_out),
        RIG_TEST(a_plan_for_what_is_gone_lets_the_tick_pass),
        RIG_TEST(an_empty_plan_lets_the_tick_pass),
        RIG_TEST(a_failed_pass_does_not_concern_who_was_left_out_of_the_plan),
        RIG_TEST(a_strategy_of_the_callers_makes_the_plans),
        RIG_TEST(a_strategy_that_plans_rubbish_or_nothing_stops_nobody),
        RIG_TEST(the_view_tells_what_a_plan_may_hold),
        RIG_TEST(a_lane_is_in_one_pass_if_that_takes_no_more_passes),
        RIG_TEST(the_view_tells_what_a_tick_costs),
        RIG_TEST(a_tick_keeps_to_the_least_target_of_the_streams),
        RIG_TEST(the_view_tells_what_is_left_of_deadlines),
        RIG_TEST(each_strategy_finishes_all),
        RIG_TEST(the_view_admits_and_lists_the_oldest_first),
        RIG_TEST(a_plan_made_from_the_view_is_good_at_the_next_step),
        RIG_TEST(an_engine_with_a_thread_cannot_be_driven),
        RIG_TEST(a_tick_within_a_tick_is_a_state_error),
        RIG_TEST(missing_pointers_and_sizes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
