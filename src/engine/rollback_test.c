/* rollback_test.c: drafts where memory cannot be cut: rejected ones are taken back by the state before the
 * pass, and no text, no bill and nobody's place changes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/dice.h"
#include "support/effort.h"
#include "support/engine/draft.h"

/* The state of the second is a part beside cells, that of the first is all there is. */
static const char *const kinds[] = {"recurrent=1", "hybrid=1"};

static void load(rig *r, size_t kind, const char *more)
{
    char path[80];
    snprintf(path, sizeof path, "fake:exact=1,%s%s", kinds[kind], more);
    rig_load(r, path);
}

static void start(rig *r, guess *g, int32_t right, int32_t wrong)
{
    rig_start(r);
    assert_true(guess_install(g, r->engine, r->model, right, wrong));
}

/* A request whose answer is "abcdefghijklm" behind a prompt of 6 tokens. */
static weir_stream *submit_letters(rig *r, guess *g, int32_t right, int32_t wrong)
{
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, g, right, wrong);
    return rig_submit_key(r, 'A');
}

static void finish_letters(rig *r, weir_stream *stream, sink *got)
{
    draft_run(r);
    sink_take(got, stream);
    assert_sink(*got, WEIR_REASON_END, "abcdefghijklm");
}

static int32_t past_of(const rig *r, int32_t slot)
{
    return r->engine->driver.slots.first[slot].n_past;
}

/* ---- Ticks ------------------------------------------------------------------------------------------ */

static void right_tokens_of_a_rejected_draft_are_computed_again(void **state)
{
    rig *r = *state;
    static guess g;
    for (size_t kind = 0; kind < COUNT(kinds); kind++)
        for (int lanes = 0; lanes < 2; lanes++) {
            sink got = {0};
            load(r, kind, "");
            r->params.layout = lanes ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
            weir_stream *stream = submit_letters(r, &g, 2, 3);
            draft_tick(r);
            if (past_of(r, 0) < 6) draft_tick(r); /* the prompt's checkpoint ends a chunk */
            weir_report report = draft_tick(r);
            assert_int_equal(report.n_decode, 1);
            assert_int_equal(report.n_drafted, 5);
            sink_take(&got, stream);
            assert_string_equal(got.text, "abcd");
            assert_int_equal(g.last_right, 2);
            assert_int_equal(rig_stats(r).n_kv_used, 6); /* as before the pass */
            assert_int_equal(rig_stats(r).n_slots_generating, 1);
            assert_int_equal(rig_stats(r).n_slots_prefilling, 0);
            assert_int_equal(atomic_load(&r->fake->n_cells), 6);
            report = draft_tick(r);
            assert_int_equal(report.n_decode, 4); /* a, b, c, and d for the first time */
            assert_int_equal(report.n_prefill, 0);
            assert_int_equal(report.n_drafted, 0);
            sink_take(&got, stream);
            assert_string_equal(got.text, "abcde");
            assert_int_equal(draft_tick(r).n_drafted, 5);
            finish_letters(r, stream, &got);
            assert_int_equal(weir_stream_usage(stream).n_generated, 14);
            assert_int_equal(rig_stats(r).n_prompt_tokens, 6);
            assert_int_equal(atomic_load(&r->fake->faults), 0);
            assert_int_equal(atomic_load(&r->fake->n_uncut), 0);
            rig_stop(r);
        }
}

static void right_drafts_cost_no_token_twice(void **state)
{
    rig *r = *state;
    static guess g;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        sink got = {0};
        load(r, kind, "");
        finish_letters(r, submit_letters(r, &g, 4, 0), &got);
        assert_int_equal(rig_stats(r).n_accepted, 10);
        assert_int_equal(atomic_load(&r->fake->n_tokens), 6 + 13);
        rig_stop(r);
    }
}

/* A stream that computes tokens again is still a stream: nothing holds it back, and a cancel finds it so. */
static void a_stream_is_one_after_a_rejection_as_well(void **state)
{
    rig *r = *state;
    static guess g;
    for (int i = 0; i < 8; i++) {
        int n_again = 0;
        load(r, (size_t)i % 2, "");
        r->params.layout = i / 2 % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 2;
        r->params.chunk_size = 8;
        rig_script(r, 'A', 6, "abcdefghijklmnopqrst");
        rig_script(r, 'B', 200, "high");
        start(r, &g, 2, 3);
        weir_stream *low = rig_submit_key(r, 'A');
        while (rig_stats(r).n_drafted == 0) draft_tick(r);
        const weir__slot *slot = r->engine->driver.slots.first;
        if (i / 4 == 1) {
            weir_stream_cancel(low);
            draft_run(r);
            assert_int_equal(rig_stats(r).n_cancelled_generating, 1);
            assert_int_equal(rig_stats(r).n_cancelled_prefilling, 0);
            rig_stop(r);
            continue;
        }
        weir_request high = rig_ask(r, 'B');
        high.priority = 1;
        rig_submit(r, &high);
        while (slot->state != WEIR_SLOT_IDLE) {
            n_again += slot->state == WEIR_SLOT_PREFILLING;
            draft_tick(r);
            assert_true(slot->state == WEIR_SLOT_IDLE || slot->n_planned > 0);
        }
        assert_true(n_again > 1);
        assert_int_equal(r->engine->driver.slots.first[1].state, WEIR_SLOT_PREFILLING); /* all the time */
        draft_run(r);
        assert_int_equal(rig_stats(r).n_prompt_tokens, 206);
        rig_stop(r);
    }
}

/* Streams that share a prompt's cells do so after rejections, too. */
static void a_shared_prompt_stays_shared(void **state)
{
    enum { N_PROMPT = 100 };
    rig *r = *state;
    static guess g;
    weir_error error = {0};
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        load(r, kind, "");
        r->params.layout = WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 3;
        rig_script(r, 'A', N_PROMPT, "abcdefghijklm");
        start(r, &g, 2, 3);
        weir_stream *source = rig_submit_key(r, 'A');
        while (rig_stats(r).n_drafted == 0) draft_tick(r);
        for (int i = 0; i < 2; i++) {
            weir_request request = rig_ask(r, 'A');
            request.tokens = NULL;
            request.n_tokens = 0;
            weir_stream *fork = rig_stream(r);
            if (weir_engine_fork(r->engine, source, 2 + i, &request, fork, &error) != WEIR_OK)
                fail_msg("%s: %s", error.field, error.message);
        }
        uint64_t n_before = rig_stats(r).n_drafted;
        while (!draft_tick(r).idle) {
            assert_true(rig_stats(r).n_kv_used < 2 * N_PROMPT);
            assert_int_equal(atomic_load(&r->fake->n_cells), rig_stats(r).n_kv_used);
        }
        weir_engine_stats stats = rig_stats(r);
        assert_true(stats.n_drafted > n_before + 10 && stats.n_accepted < stats.n_drafted);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        rig_stop(r);
    }
}

/* ---- Texts ------------------------------------------------------------------------------------------ */

/* Streams of all lengths, few cells and micro-batches of any size: also suspensions right after a draft was
 * rejected. */
static void answers_are_those_without_drafts(void **state)
{
    rig *r = *state;
    uint64_t n_accepted = 0, n_refused = 0, n_suspensions = 0;
    for (int i = 0; i < 48; i++) {
        texts without;
        static guess g;
        char more[48];
        snprintf(more, sizeof more, ",seed=%d,n_swa=%d", i, i % 5 == 0 ? 1 + i % 23 : 0);
        load(r, (size_t)i % 2, more);
        r->params.layout = i / 2 % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 1 + i % 7;
        r->params.n_kv = i % 4 < 2 ? 260 : 0; /* so few that requests are suspended */
        r->params.n_ubatch = i % 3 == 0 ? 1 + i % 14 : 64;
        r->params.chunk_size = 1 + i * 3 % 40;
        r->params.cache_bytes = i % 3 == 1 ? 0 : WEIR_AUTO;
        texts_without_drafts(r, NULL, &without);
        weir_engine_stats stats = texts_compare(r, &g, 1 + i % 12, NULL, &without);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        n_accepted += stats.n_accepted;
        n_refused += stats.n_drafted - stats.n_accepted;
        n_suspensions += stats.n_suspensions;
        rig_stop(r);
    }
    assert_true(n_accepted > 500 && n_refused > 500 && n_suspensions > 0);
}

static void a_draft_model_may_be_behind_it(void **state)
{
    rig *r = *state;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        texts without;
        weir_model *model = NULL;
        load(r, kind, ",seed=3");
        assert_int_equal(weir_model_load("fake:exact=1,seed=3", NULL, &model, NULL), WEIR_OK);
        r->params.prompt_lookup = false;
        texts_without_drafts(r, NULL, &without);
        r->params.draft_model = model;
        weir_engine_stats stats = texts_compare(r, NULL, 5, NULL, &without);
        assert_string_equal(stats.drafters, "model");
        assert_true(stats.n_accepted > 0);
        rig_stop(r);
        r->params.draft_model = NULL;
        r->params.prompt_lookup = true;
        weir_model_release(model);
    }
}

/* ---- Faults ----------------------------------------------------------------------------------------- */

static void a_state_that_cannot_be_kept_leaves_the_draft_out(void **state)
{
    rig *r = *state;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        texts without;
        static guess g;
        load(r, kind, "");
        texts_without_drafts(r, NULL, &without);
        atomic_store(&r->fake->fail_state_save, true);
        assert_int_equal(texts_compare(r, &g, 6, NULL, &without).n_drafted, 0);
        assert_true(g.n_calls > 0);
        atomic_store(&r->fake->fail_state_save, false);
        rig_stop(r);
    }
}

static void a_state_that_cannot_be_loaded_costs_no_answer(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 8; i++) {
        texts without;
        static guess g;
        load(r, (size_t)i % 2, "");
        r->params.layout = i / 2 % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 4;
        r->params.cache_sequences = i < 4 ? -1 : 0;
        texts_without_drafts(r, NULL, &without);
        atomic_store(&r->fake->fail_state_load, true);
        weir_engine_stats stats = texts_compare(r, &g, 6, NULL, &without);
        assert_true(stats.n_drafted > stats.n_accepted);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        atomic_store(&r->fake->fail_state_load, false);
        rig_stop(r);
    }
}

/* No cut other than that to the mark succeeds: neither behind it, to the right tokens, nor before it. */
static void there_is_no_way_back_but_to_the_mark(void **state)
{
    rig *r = *state;
    static guess g;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        sink got = {0};
        load(r, kind, "");
        weir_stream *stream = submit_letters(r, &g, 2, 0);
        while (rig_stats(r).n_drafted == 0) draft_tick(r);
        weir__driver *driver = &r->engine->driver;
        weir__slot *slot = driver->slots.first;
        assert_int_equal(slot->n_past, 6 + 3);
        for (int32_t n = 1; n < slot->n_past; n++)
            assert_false(weir__memory_cut(&driver->memory, slot->lane, n, n));
        slot->n_past--; /* as if the last token had been wrong */
        assert_true(weir__rollback_undo(&driver->speculate.rollback, slot));
        assert_int_equal(slot->n_past, 6);
        assert_int_equal(driver->memory.n[slot->lane], 6);
        slot->state = WEIR_SLOT_PREFILLING;
        finish_letters(r, stream, &got);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        rig_stop(r);
    }
}

static void a_state_that_was_taken_back_is_forked_twice(void **state)
{
    rig *r = *state;
    static guess g;
    weir_error error = {0};
    for (size_t kind = 0; kind < COUNT(kinds); kind++)
        for (int lanes = 0; lanes < 2; lanes++) {
            sink whole = {0}, parts[2];
            weir_stream *forks[2];
            memset(parts, 0, sizeof parts);
            load(r, kind, "");
            r->params.layout = lanes ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
            r->params.n_slots = 3;
            rig_script(r, 'A', 6, "abcdefghijklm");
            start(r, &g, 2, 3);
            weir_stream *source = rig_submit_key(r, 'A');
            while (rig_stats(r).n_drafted == 0) draft_tick(r);
            assert_int_equal(past_of(r, 0), 6);
            sink_take(&whole, source);
            for (int i = 0; i < 2; i++) {
                weir_request request = rig_ask(r, 'A');
                request.tokens = NULL;
                request.n_tokens = 0;
                forks[i] = rig_stream(r);
                if (weir_engine_fork(r->engine, source, 2 + i, &request, forks[i], &error) != WEIR_OK)
                    fail_msg("%s: %s", error.field, error.message);
            }
            draft_run(r);
            sink_take(&whole, source);
            assert_sink(whole, WEIR_REASON_END, "abcdefghijklm");
            for (int i = 0; i < 2; i++) {
                sink_take(&parts[i], forks[i]);
                assert_sink(parts[i], WEIR_REASON_END, &"abcdefghijklm"[2 + i]);
            }
            assert_int_equal(atomic_load(&r->fake->faults), 0);
            rig_stop(r);
        }
}

/* ---- Ends ------------------------------------------------------------------------------------------- */

/* What is kept of a text that ends with a rejected draft is a prefix that the next turn is served from. */
static void an_answer_that_ends_with_a_rejected_draft_is_kept(void **state)
{
    rig *r = *state;
    static guess g;
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        sink got = {0}, next = {0};
        int32_t tokens[RIG_PROMPT];
        load(r, kind, "");
        r->params.cache_sequences = -1;
        r->params.cache_bytes = 100000;
        rig_script(r, 'A', 20, "abcdefghijklm");
        start(r, &g, 4, 3);
        weir_request request = rig_ask(r, 'A');
        request.max_tokens = 8;
        weir_stream *stream = rig_submit(r, &request);
        draft_run(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_LENGTH, "abcdefgh");
        memcpy(tokens, request.tokens, request.n_tokens * sizeof *tokens);
        for (int i = 0; i < 8; i++) tokens[20 + i] = "abcdefgh"[i];
        request.tokens = tokens;
        request.n_tokens = 28;
        request.max_tokens = 5;
        weir_stream *second = rig_submit(r, &request);
        draft_run(r);
        sink_take(&next, second);
        assert_sink(next, WEIR_REASON_LENGTH, "ijklm");
        assert_true(weir_stream_usage(second).n_cached >= 20);
        rig_stop(r);
    }
}

/* One stream ends with a rejected draft; another, with the same prompt, starts again in that tick. */
static void an_ended_text_lends_nothing_that_it_has_lost(void **state)
{
    rig *r = *state;
    static guess g;
    for (int i = 0; i < 16; i++) {
        sink got[2] = {0};
        weir_stream *streams[2];
        const int ended = i / 8;
        const char *stop = i / 4 % 2 == 0 ? "b" : "c";
        load(r, (size_t)i % 2, "");
        r->params.layout = i / 2 % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 2;
        r->params.cache_sequences = 2;
        r->params.cache_bytes = 1000;
        rig_script(r, 'A', 40, "abcdefghijklm");
        start(r, &g, 1, 3);
        for (int k = 0; k < 2; k++) {
            weir_request request = rig_ask(r, 'A');
            request.stop = &stop;
            request.n_stop = k == ended;
            streams[k] = rig_submit(r, &request);
        }
        for (int n = 0; n < 2; n++) draft_tick(r);
        uint64_t before = rig_stats(r).n_drafted;
        atomic_store(&r->fake->fail_part_load, true);
        draft_tick(r);
        atomic_store(&r->fake->fail_part_load, false);
        assert_true(rig_stats(r).n_drafted > before + 4); /* both */
        assert_true(weir_stream_finished(streams[ended]));
        draft_run(r);
        for (int k = 0; k < 2; k++) sink_take(&got[k], streams[k]);
        assert_int_equal(got[ended].reason, WEIR_REASON_STOP_WORDS);
        assert_sink(got[1 - ended], WEIR_REASON_END, "abcdefghijklm");
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        rig_stop(r);
    }
}

/* ---- Worth ------------------------------------------------------------------------------------------ */

/* Drafts of prompt lookup in the ticks of a text that repeats itself, if a mark and its undoing take so
 * long. */
static uint64_t drafted_at(rig *r, double mark_ns, double undo_ns)
{
    load(r, 1, "");
    rig_script(r, 'A', 6, "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc");
    rig_start(r);
    rig_submit_key(r, 'A');
    weir__rollback *rollback = &r->engine->driver.speculate.rollback;
    for (int n = 0; n < 1000; n++) {
        rollback->mark_ns = mark_ns;
        rollback->undo_ns = undo_ns;
        weir_report report = draft_tick(r);
        if (report.idle && report.n_active == 0) break;
    }
    uint64_t n = rig_stats(r).n_drafted;
    rig_stop(r);
    return n;
}

static void drafts_are_left_out_where_taking_them_back_is_dear(void **state)
{
    rig *r = *state;
    assert_true(drafted_at(r, 0, 0) > 20);
    assert_true(drafted_at(r, 1e6, 1e6) > 20); /* a pass takes 20 ms */
    assert_int_equal(drafted_at(r, 1e12, 0), 0);
    assert_int_equal(drafted_at(r, 0, 1e12), 0);
}

/* Rows of recurrent layers are computed in parts with equally many of each sequence, whatever its number. */
static void unequal_drafts_take_parts_of_their_own(void **state)
{
    rig *r = *state;
    static const struct {
        size_t kind;
        weir_layout layout;
        int32_t rows[6], n;
    } cases[] = {
        {1, WEIR_LAYOUT_UNIFIED, {1, 0, 1, 0, 0, 1}, 1}, {1, WEIR_LAYOUT_UNIFIED, {1, 0, 5, 0, 0, 1}, 2},
        {0, WEIR_LAYOUT_UNIFIED, {3, 0, 5, 0, 0, 1}, 3}, {1, WEIR_LAYOUT_PER_SLOT, {1, 0, 1, 0, 0, 1}, 3},
        {2, WEIR_LAYOUT_UNIFIED, {3, 0, 5, 0, 0, 1}, 1}, /* attention alone */
    };
    r->params.n_slots = 6;
    r->params.cache_sequences = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t rows[WEIR__SEQ_MAX] = {0};
        if (cases[i].kind == 2)
            rig_load(r, "fake:");
        else
            load(r, cases[i].kind, "");
        r->params.layout = cases[i].layout;
        rig_start(r);
        memcpy(rows, cases[i].rows, sizeof cases[i].rows);
        assert_int_equal(weir__speculate_passes(&r->engine->driver.speculate, rows), cases[i].n);
        rig_stop(r);
    }
}

static void marks_are_counted(void **state)
{
    rig *r = *state;
    weir_engine_memory with = {.size = sizeof with}, without = {.size = sizeof without};
    r->params.n_slots = 3;
    r->params.n_draft_max = 4;
    assert_int_equal(weir_engine_estimate("fake:hybrid=1", NULL, &r->params, &with, NULL), WEIR_OK);
    r->params.n_draft_max = 0;
    assert_int_equal(weir_engine_estimate("fake:hybrid=1", NULL, &r->params, &without, NULL), WEIR_OK);
    load(r, 1, "");
    uint64_t each = r->model->ops->part_bytes(r->model->model);
    assert_true(each > 0);
    assert_int_equal(with.kv_bytes, without.kv_bytes + 3 * each);
    r->params.n_draft_max = 4;
    r->params.prompt_lookup = false; /* nobody drafts */
    assert_int_equal(weir_engine_estimate("fake:hybrid=1", NULL, &r->params, &with, NULL), WEIR_OK);
    assert_int_equal(with.kv_bytes, without.kv_bytes);
    r->params.prompt_lookup = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRAFT_TEST(right_tokens_of_a_rejected_draft_are_computed_again),
        DRAFT_TEST(right_drafts_cost_no_token_twice),
        DRAFT_TEST(a_stream_is_one_after_a_rejection_as_well),
        DRAFT_TEST(a_shared_prompt_stays_shared),
        DRAFT_TEST(answers_are_those_without_drafts),
        DRAFT_TEST(a_draft_model_may_be_behind_it),
        DRAFT_TEST(a_state_that_cannot_be_kept_leaves_the_draft_out),
        DRAFT_TEST(a_state_that_cannot_be_loaded_costs_no_answer),
        DRAFT_TEST(there_is_no_way_back_but_to_the_mark),
        DRAFT_TEST(a_state_that_was_taken_back_is_forked_twice),
        DRAFT_TEST(an_answer_that_ends_with_a_rejected_draft_is_kept),
        DRAFT_TEST(an_ended_text_lends_nothing_that_it_has_lost),
        DRAFT_TEST(drafts_are_left_out_where_taking_them_back_is_dear),
        DRAFT_TEST(unequal_drafts_take_parts_of_their_own),
        DRAFT_TEST(marks_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
