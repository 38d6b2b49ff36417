/* Slots, their lanes and their cells: one request's end does not touch the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/slot.h"

#include "support/engine/engine.h"

/* ---- A slot by itself ----------------------------------------------------------------------------- */

static void the_first_reason_stays(void **state)
{
    (void)state;
    weir__slot slot;
    weir__slot_init(&slot, 3);
    assert_int_equal(slot.index, 3);
    assert_int_equal(slot.reason, WEIR_REASON_NOT_FINISHED);
    weir__slot_latch(&slot, WEIR_REASON_CANCELLED);
    weir__slot_latch(&slot, WEIR_REASON_END);
    weir__slot_fail(&slot, WEIR_BACKEND, NULL);
    assert_int_equal(slot.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(slot.error.code, WEIR_OK);
}

static void a_failure_keeps_its_cause_or_gets_one(void **state)
{
    (void)state;
    weir__slot slot;
    const weir_error cause = {.code = WEIR_NO_SPACE, .message = "full"}, none = {0};
    weir__slot_init(&slot, 0);
    weir__slot_fail(&slot, WEIR_BACKEND, &cause);
    weir__slot_latch(&slot, WEIR_REASON_END);
    weir__slot_fail(&slot, WEIR_STOPPED, NULL);
    assert_int_equal(slot.reason, WEIR_REASON_ERROR);
    assert_int_equal(slot.error.code, WEIR_NO_SPACE);
    assert_string_equal(slot.error.message, "full");
    weir__slot_init(&slot, 0);
    weir__slot_fail(&slot, WEIR_BACKEND, &none); /* a backend that says nothing */
    assert_int_equal(slot.error.code, WEIR_BACKEND);
    assert_string_not_equal(slot.error.message, "");
}

static void starting_again_forgets_the_former_request(void **state)
{
    (void)state;
    weir__slot slot;
    weir__request request = {.history = {.n_prompt = 7, .n_tokens = 7}};
    weir__slot_init(&slot, 0);
    weir__slot_fail(&slot, WEIR_BACKEND, NULL);
    slot.n_past = slot.n_planned = slot.row = slot.n_burst = slot.draft.n = 5;
    slot.failed = WEIR_BACKEND;
    weir__slot_start(&slot, &request, 34);
    assert_int_equal(slot.state, WEIR_SLOT_PREFILLING);
    assert_int_equal(slot.reason, WEIR_REASON_NOT_FINISHED);
    assert_int_equal(slot.error.code, WEIR_OK);
    assert_int_equal(slot.n_past + slot.n_planned, 0);
    assert_int_equal(slot.row, -1);
    assert_int_equal(slot.n_burst + slot.draft.n + (int)slot.failed, 0);
    assert_int_equal(request.admit_ns, 34);
}

static void a_token_that_finds_no_memory_changes_nothing(void **state)
{
    (void)state;
    weir__slot slot;
    weir__request request = {.history = {.n_prompt = 2, .capacity = 2, .n_tokens = 2}};
    request.history.tokens = weir__mem_calloc(2, sizeof *request.history.tokens);
    assert_non_null(request.history.tokens);
    weir__slot_init(&slot, 0);
    weir__slot_start(&slot, &request, 0);
    weir__mem_fail_after(0);
    const weir__sampled sampled = {.token = 5};
    assert_false(weir__slot_append(&slot, &sampled));
    assert_int_equal(request.history.n_tokens, 2);
    assert_true(weir__slot_append(&slot, &sampled));
    assert_int_equal(weir__request_n_output(&request), 1);
    assert_int_equal(request.history.tokens[2], 5);
    weir__mem_free(request.history.tokens);
}

/* ---- Evicting ------------------------------------------------------------------------------------- */

#define N 6

static const char *const answers[N] = {
    "alpha alpha alpha alpha", "beta beta beta beta bet", "gamma gamma gamma gamma",
    "delta delta delta delta", "epsilon epsilon epsilon", "zeta zeta zeta zeta zet",
};

/* The engine counts the same cells as used as the backend. */
static void check_cells(rig *r)
{
    assert_int_equal(rig_stats(r).n_kv_used, atomic_load(&r->fake->n_cells));
}

/* Each pass of the log is in lane order; between lanes, on n_lanes consecutive ones exactly. */
static void check_lanes(const rig *r, int32_t n_lanes)
{
    size_t n;
    const weir__fake_entry *log = weir__fake_log(r->model, &n);
    int32_t lowest = 0;
    assert_true(n_lanes == 0 || n > 0);
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || log[i - 1].pass != log[i].pass;
        bool last = i + 1 == n || log[i + 1].pass != log[i].pass;
        if (!first) assert_true(log[i].seq >= log[i - 1].seq);
        if (r->params.layout != WEIR_LAYOUT_PER_SLOT) continue;
        if (first) lowest = log[i].seq;
        if (!first) assert_true(log[i].seq - log[i - 1].seq <= 1);
        if (last) assert_int_equal(log[i].seq, lowest + n_lanes - 1);
    }
}

/* Six requests run for n_ticks; those of the subset are cancelled at once. */
static void evict(rig *r, unsigned subset, int n_ticks)
{
    weir_stream *streams[N];
    weir_request requests[N];
    sink got[N] = {0};
    int32_t n_left = 0;
    rig_start(r);
    for (int i = 0; i < N; i++) {
        streams[i] = rig_stream(r);
        requests[i] = rig_ask(r, 'A' + i);
        requests[i].max_tokens = 20;
        n_left += !(subset >> i & 1);
    }
    assert_int_equal(weir_engine_submit(r->engine, requests, N, streams, NULL), WEIR_OK);
    rig_ticks(r, n_ticks);
    check_cells(r);
    for (int i = 0; i < N; i++) {
        sink_take(&got[i], streams[i]);
        if (subset >> i & 1) weir_stream_cancel(streams[i]);
    }

    rig_tick(r);
    check_cells(r);
    for (int i = 0; i < N; i++) {
        size_t before = got[i].n_tokens;
        int n = sink_take(&got[i], streams[i]);
        assert_int_equal(got[i].finished, subset >> i & 1);
        if (!(subset >> i & 1)) continue;
        assert_int_equal(n, 1);
        assert_int_equal(got[i].reason, WEIR_REASON_CANCELLED);
        assert_int_equal(got[i].n_tokens, before); /* nothing was held back */
    }
    const weir_view *view;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, n_left);
    for (int i = 0, at = 0; i < N; i++)
        if (!(subset >> i & 1)) assert_int_equal(view->slots[at++].slot, i);

    rig_ticks(r, 3); /* one move a tick closes each gap of six */
    weir__fake_log_start(r->model);
    rig_ticks(r, 4);
    check_lanes(r, n_left);
    check_cells(r);
    rig_run(r);
    for (int i = 0; i < N; i++) {
        sink_take(&got[i], streams[i]);
        assert_int_equal(weir_stream_index(streams[i]), i);
        assert_int_equal(got[i].n_tokens, got[i].n_text);
        assert_memory_equal(got[i].text, answers[i], got[i].n_text);
        for (size_t t = 0; t < got[i].n_tokens; t++) assert_int_equal(got[i].tokens[t], answers[i][t]);
        if (!(subset >> i & 1)) {
            assert_int_equal(got[i].reason, WEIR_REASON_LENGTH);
            assert_int_equal(got[i].n_text, 20);
        }
        rig_release(r, streams[i]);
    }
    r->n_streams = 0;
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    rig_stop(r);
}

static void evict_every_subset(rig *r, weir_layout layout, int32_t n_prompt, int32_t chunk_size, int n_ticks)
{
    r->params.n_slots = N;
    r->params.layout = layout;
    r->params.chunk_size = chunk_size;
    for (int i = 0; i < N; i++) rig_script(r, 'A' + i, n_prompt + i, answers[i]);
    for (unsigned subset = 0; subset < 1U << N; subset++) evict(r, subset, n_ticks);
}

static void evicting_any_subset_while_generating_leaves_the_rest_alone_per_slot(void **state)
{
    evict_every_subset(*state, WEIR_LAYOUT_PER_SLOT, 3, 64, 5);
}

static void evicting_any_subset_while_generating_leaves_the_rest_alone_unified(void **state)
{
    evict_every_subset(*state, WEIR_LAYOUT_UNIFIED, 3, 64, 5);
}

static void evicting_any_subset_while_prefilling_leaves_the_rest_alone_per_slot(void **state)
{
    evict_every_subset(*state, WEIR_LAYOUT_PER_SLOT, 50, 4, 3);
}

static void evicting_any_subset_while_prefilling_leaves_the_rest_alone_unified(void **state)
{
    evict_every_subset(*state, WEIR_LAYOUT_UNIFIED, 50, 4, 3);
}

/* ---- Lanes ---------------------------------------------------------------------------------------- */

/* Starts six requests in lanes of their own and generates a little. */
static void start_six(rig *r, weir_stream *streams[N])
{
    r->params.n_slots = N;
    r->params.layout = WEIR_LAYOUT_PER_SLOT;
    for (int i = 0; i < N; i++) rig_script(r, 'A' + i, 3 + i, answers[i]);
    rig_start(r);
    for (int i = 0; i < N; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_ticks(r, 3);
}

static void check_text(rig *r, weir_stream *stream, int i, weir_reason reason)
{
    sink got = {0};
    (void)r;
    sink_take(&got, stream);
    assert_true(got.finished);
    assert_int_equal(got.reason, reason);
    if (reason == WEIR_REASON_END)
        assert_string_equal(got.text, answers[i]);
    else
        assert_memory_equal(got.text, answers[i], got.n_text);
}

static void one_lane_moves_in_a_tick(void **state)
{
    rig *r = *state;
    weir_stream *streams[N];
    start_six(r, streams);
    for (int i = 1; i < 4; i++) weir_stream_cancel(streams[i]);
    for (uint64_t moved = 1; moved <= 2; moved++) {
        rig_tick(r);
        assert_int_equal(atomic_load(&r->fake->n_shares), moved);
    }
    rig_run(r);
    assert_int_equal(atomic_load(&r->fake->n_shares), 2); /* and none without need */
    for (int i = 4; i < N; i++) check_text(r, streams[i], i, WEIR_REASON_END);
}

static void a_unified_pool_moves_nothing(void **state)
{
    rig *r = *state;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3 + i, answers[i]);
    rig_start(r);
    weir_stream *first = rig_submit_key(r, 'A');
    rig_submit_key(r, 'B');
    rig_ticks(r, 3);
    weir_stream_cancel(first);
    rig_run(r);
    assert_int_equal(atomic_load(&r->fake->n_shares), 0);
}

static void several_moves_before_a_pass_do_not_mix_lanes(void **state)
{
    rig *r = *state;
    weir_stream *streams[N];
    const weir_view *view;
    start_six(r, streams);
    for (int i = 0; i < 3; i++) weir_stream_cancel(streams[i]);
    for (int i = 0; i < 4; i++) assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    weir_stream_cancel(streams[5]); /* was moved, its copy is still pending */
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    check_cells(r);
    rig_run(r);
    for (int i = 0; i < N; i++)
        check_text(r, streams[i], i, i == 3 || i == 4 ? WEIR_REASON_END : WEIR_REASON_CANCELLED);
}

static void a_move_that_fails_leaves_the_gap_and_the_text(void **state)
{
    rig *r = *state;
    weir_stream *streams[N];
    start_six(r, streams);
    atomic_store(&r->fake->fail_share, true);
    weir_stream_cancel(streams[1]);
    rig_ticks(r, 3);
    check_cells(r);
    rig_tick(r);
    atomic_store(&r->fake->fail_share, false);
    rig_tick(r); /* tries again */
    assert_int_equal(atomic_load(&r->fake->n_shares), 1);
    rig_run(r);
    for (int i = 0; i < N; i++)
        check_text(r, streams[i], i, i == 1 ? WEIR_REASON_CANCELLED : WEIR_REASON_END);
}

static void a_waiting_request_takes_the_freed_lane_without_a_move(void **state)
{
    rig *r = *state;
    weir_stream *streams[N];
    start_six(r, streams);
    rig_script(r, 'X', 5, "newcomer");
    weir_stream *late = rig_submit_key(r, 'X');
    weir_stream_cancel(streams[2]);
    rig_tick(r); /* ends the third and starts the seventh, on its lane */
    weir__fake_log_start(r->model);
    rig_ticks(r, 2);
    check_lanes(r, N);
    assert_int_equal(atomic_load(&r->fake->n_shares), 0);
    rig_run(r);
    sink got = {0};
    sink_take(&got, late);
    assert_sink(got, WEIR_REASON_END, "newcomer");
    for (int i = 0; i < N; i++)
        check_text(r, streams[i], i, i == 2 ? WEIR_REASON_CANCELLED : WEIR_REASON_END);
}

/* ---- Passes --------------------------------------------------------------------------------------- */

static void a_prompt_is_computed_in_chunks_once_and_in_order(void **state)
{
    rig *r = *state;
    size_t n;
    r->params.chunk_size = 7;
    rig_script(r, 'A', 23, "ok");
    rig_start(r);
    weir__fake_log_start(r->model);
    weir_stream *stream = rig_submit_key(r, 'A');
    static const int32_t want[] = {7, 7, 7, 2};
    for (size_t i = 0; i < COUNT(want); i++) assert_int_equal(rig_tick(r).n_prefill, want[i]);
    const weir__fake_entry *log = weir__fake_log(r->model, &n);
    assert_int_equal(n, 23);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(log[i].pos, i);
        assert_int_equal(log[i].token, r->scripts[0].prompt[i]);
        assert_int_equal(log[i].logits, i == 22); /* only the row that is sampled from */
    }
    sink got = {0};
    sink_take(&got, stream); /* the first token comes with the last chunk of the prompt */
    assert_string_equal(got.text, "o");
    rig_run(r);
}

static void a_small_budget_is_shared_and_never_exceeded(void **state)
{
    rig *r = *state;
    weir_stream *streams[4];
    sink got[4] = {0};
    r->params.n_batch = r->params.n_ubatch = 5;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 9 + i, answers[i]);
    rig_start(r);
    for (int i = 0; i < 4; i++) streams[i] = rig_submit_key(r, 'A' + i);
    for (;;) {
        weir_report report = rig_tick(r);
        assert_true(report.n_prefill + report.n_decode <= 5);
        if (report.idle) break;
    }
    for (int i = 0; i < 4; i++) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_END, answers[i]);
    }
}

/* Texts that the fake's hash decides: any slip in tokens, positions or lanes gives another text. */
static void a_text_is_the_same_alone_and_in_company_however_it_is_chunked(void **state)
{
    rig *r = *state;
    static const int32_t chunks[] = {1, 5, 512};
    static const char *const prompts[] = {"Hi", "A longer question, to be chunked", "x", "what else is new?",
                                          "one two three four five six seven eight nine ten"};
    enum { N_TEXTS = COUNT(prompts) };
    rig_load(r, "fake:eos_every=30,any=1,seed=11");
    int32_t want[N_TEXTS][128];
    int32_t n_want[N_TEXTS];
    for (int i = 0; i < N_TEXTS; i++) {
        int32_t history[256];
        size_t n_prompt;
        assert_int_equal(
            weir_tokenize(r->model, prompts[i], WEIR_NUL, true, true, history, 128, &n_prompt, NULL),
            WEIR_OK);
        for (n_want[i] = 0; n_want[i] < 100; n_want[i]++) {
            int32_t n = (int32_t)n_prompt + n_want[i];
            history[n] = weir__fake_next(r->model, history, n);
            if (weir_is_eog(r->model, history[n])) break;
            want[i][n_want[i]] = history[n];
        }
    }
    for (int round = 0; round < 12; round++) {
        weir_request request = weir_request_default();
        weir_stream *streams[N_TEXTS];
        r->params.layout = round % 2 == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
        r->params.chunk_size = chunks[round / 2 % 3];
        r->params.n_slots = round < 6 ? 1 : 4;
        rig_start(r);
        request.sampler = &r->greedy;
        request.max_tokens = 100;
        for (int i = 0; i < N_TEXTS; i++) {
            request.text = prompts[i];
            streams[i] = rig_submit(r, &request);
            if (i % 2 == 1) rig_ticks(r, 3);
        }
        rig_run(r);
        for (int i = 0; i < N_TEXTS; i++) {
            static sink got;
            char text[4096];
            size_t length;
            got = (sink){0};
            sink_take(&got, streams[i]);
            assert_int_equal(got.n_tokens, n_want[i]);
            assert_memory_equal(got.tokens, want[i], (size_t)n_want[i] * sizeof *want[i]);
            assert_int_equal(weir_detokenize(r->model, want[i], (size_t)n_want[i], false, text, sizeof text,
                                             &length, NULL),
                             WEIR_OK);
            assert_int_equal(got.n_text, length);
            assert_memory_equal(got.text, text, length);
            rig_release(r, streams[i]);
        }
        r->n_streams = 0;
        rig_stop(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_reason_stays),
        cmocka_unit_test(a_failure_keeps_its_cause_or_gets_one),
        cmocka_unit_test(starting_again_forgets_the_former_request),
        cmocka_unit_test(a_token_that_finds_no_memory_changes_nothing),
        RIG_TEST(evicting_any_subset_while_generating_leaves_the_rest_alone_per_slot),
        RIG_TEST(evicting_any_subset_while_generating_leaves_the_rest_alone_unified),
        RIG_TEST(evicting_any_subset_while_prefilling_leaves_the_rest_alone_per_slot),
        RIG_TEST(evicting_any_subset_while_prefilling_leaves_the_rest_alone_unified),
        RIG_TEST(one_lane_moves_in_a_tick),
        RIG_TEST(a_unified_pool_moves_nothing),
        RIG_TEST(several_moves_before_a_pass_do_not_mix_lanes),
        RIG_TEST(a_move_that_fails_leaves_the_gap_and_the_text),
        RIG_TEST(a_waiting_request_takes_the_freed_lane_without_a_move),
        RIG_TEST(a_prompt_is_computed_in_chunks_once_and_in_order),
        RIG_TEST(a_small_budget_is_shared_and_never_exceeded),
        RIG_TEST(a_text_is_the_same_alone_and_in_company_however_it_is_chunked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
