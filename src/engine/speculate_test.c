/* speculate_test.c: drafts change no text, no chunk's rules and nobody's place; with a drafter that knows the
 * answer, or pretends to, in place of the engine's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/dice.h"
#include "support/effort.h"
#include "support/engine/draft.h"

/* ---- Rig ---------------------------------------------------------------------------------------------- */

/* Starts the engine with a drafter that is right so often. */
static void start(rig *r, guess *g, int32_t right, int32_t wrong)
{
    rig_start(r);
    assert_true(guess_install(g, r->engine, r->model, right, wrong));
}

/* ---- Bursts ------------------------------------------------------------------------------------------- */

static void a_burst_is_one_chunk(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    r->params.n_draft_max = 4;
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 4, 0);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_tick(r);
    assert_int_equal(sink_take(&got, stream), 1);
    assert_string_equal(got.text, "a"); /* no draft before the first token */
    weir_report report = draft_tick(r);
    assert_int_equal(report.n_decode, 1);
    assert_int_equal(report.n_drafted, 4);
    assert_int_equal(sink_take(&got, stream), 1);
    assert_int_equal(got.last_tokens, 5);
    assert_int_equal(got.n_generated, 6);
    assert_string_equal(got.text, "abcdef");
    draft_tick(r);
    assert_int_equal(sink_take(&got, stream), 1);
    assert_string_equal(got.text, "abcdefghijk");
    draft_tick(r); /* l, m and the end, which nobody drafts */
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdefghijklm");
    weir_usage usage = weir_stream_usage(stream);
    assert_int_equal(usage.n_generated, 14);
    assert_int_equal(usage.n_drafted, 10);
    assert_int_equal(usage.n_accepted, 10);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.n_drafted, 10);
    assert_int_equal(stats.n_accepted, 10);
    assert_int_equal(stats.n_generated_tokens, 14);
    assert_int_equal(stats.n_ticks, 4);
    assert_int_equal(got.n_generated, 14);
    assert_int_equal(stats.itl_seconds.count, 3);       /* between chunks; */
    assert_int_equal(stats.tpot_seconds.count, 13 - 1); /* that of all tokens after the first */
    assert_true(fabs(stats.tpot_seconds.sum - stats.itl_seconds.sum) <= 1e-12);
}

static void rejected_draft_tokens_are_cut_off(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    for (int lanes = 0; lanes < 2; lanes++) {
        memset(&got, 0, sizeof got);
        r->params.layout = lanes ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        rig_script(r, 'A', 6, "abcdefghijklm");
        start(r, &g, 2, 3);
        weir_stream *stream = rig_submit_key(r, 'A');
        draft_tick(r);
        draft_tick(r);
        sink_take(&got, stream);
        assert_string_equal(got.text, "abcd"); /* two were right, and the row behind them gave one */
        assert_int_equal(rig_stats(r).n_kv_used, 6 + 3);
        assert_int_equal(atomic_load(&r->fake->n_cells), 6 + 3);
        assert_int_equal(g.last_drafted, 5);
        assert_int_equal(g.last_right, 2);
        draft_run(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_END, "abcdefghijklm");
        rig_stop(r);
    }
}

static void drafts_stay_within_the_answers_length(void **state)
{
    rig *r = *state;
    static guess g;
    rig_script(r, 'A', 6, "abcdefghijklmnopqrstuvwxyz");
    r->params.n_ctx = 20;
    r->params.n_kv = 80;
    rig_load(r, "fake:exact=1");
    start(r, &g, 16, 0);
    for (int32_t most = 1; most <= 16; most++) {
        sink got = {0};
        weir_request request = rig_ask(r, 'A');
        request.max_tokens = most == 16 ? -1 : most; /* the context's end comes after 14 */
        int32_t n = most > 14 ? 14 : most;
        weir_stream *stream = rig_submit(r, &request);
        draft_run(r);
        sink_take(&got, stream);
        assert_int_equal(got.reason, WEIR_REASON_LENGTH);
        assert_int_equal(got.n_tokens, n);
        assert_memory_equal(got.text, "abcdefghijklmnopqrstuvwxyz", (size_t)n);
        assert_int_equal(weir_stream_usage(stream).n_accepted, n > 2 ? n - 2 : 0);
        assert_int_equal(weir_stream_usage(stream).n_drafted, n > 2 ? n - 2 : 0);
    }
}

static void a_stop_string_within_a_burst_ends_it(void **state)
{
    rig *r = *state;
    static guess g;
    static const char *const stops[] = {"ef"};
    r->params.cache_sequences = 2;
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 8, 0);
    for (int round = 0; round < 2; round++) {
        sink got = {0};
        weir_request request = rig_ask(r, 'A');
        request.stop = stops;
        request.n_stop = 1;
        weir_stream *stream = rig_submit(r, &request);
        draft_run(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_STOP_WORDS, "abcd");
        assert_int_equal(got.n_tokens, 6);
        assert_int_equal(weir_stream_usage(stream).n_generated, 6);
        assert_int_equal(weir_stream_usage(stream).n_accepted, 5);
    }
    /* The cached text ends where the answer ended: a request that continues from there gets the right
     * text. */
    assert_int_equal(rig_stats(r).n_kv_used, 6 + 5);
    sink got = {0};
    weir_request request = rig_ask(r, 'A');
    int32_t tokens[10];
    memcpy(tokens, request.tokens, 6 * sizeof *tokens);
    for (int i = 0; i < 4; i++) tokens[6 + i] = 'a' + i;
    request.tokens = tokens;
    request.n_tokens = 10;
    weir_stream *stream = rig_submit(r, &request);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "efghijklm");
    assert_int_equal(weir_stream_usage(stream).n_cached, 9);
}

typedef struct cancels {
    weir_stream *stream;
    uint64_t at; /* passes */
    weir__fake *fake;
} cancels;

static void cancel_in_pass(void *user, const weir__batch *batch)
{
    const cancels *c = user;
    (void)batch;
    if (atomic_load(&c->fake->n_passes) == c->at) weir_stream_cancel(c->stream);
}

static void a_cancel_in_a_burst_takes_none_of_it(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    cancels c = {.at = 2, .fake = r->fake};
    r->params.cache_sequences = 2;
    r->fake->before_decode = cancel_in_pass;
    r->fake->before_decode_user = &c;
    rig_script(r, 'A', 6, "abcdefghijklm");
    rig_script(r, 'B', 6, "nopqrstuvwxyz");
    start(r, &g, 3, 1);
    c.stream = rig_submit_key(r, 'A');
    weir_stream *other = rig_submit_key(r, 'B');
    draft_run(r);
    sink_take(&got, c.stream);
    assert_sink(got, WEIR_REASON_CANCELLED, "abcde");
    assert_int_equal(weir_stream_usage(c.stream).n_accepted, 3);
    assert_int_equal(g.last_right, 3); /* tokens that were not sampled were not judged either */
    sink rest = {0};
    sink_take(&rest, other);
    assert_sink(rest, WEIR_REASON_END, "nopqrstuvwxyz");
    /* The prefixes that are left are those of the texts. */
    sink again = {0};
    weir_stream *second = rig_submit_key(r, 'A');
    draft_run(r);
    sink_take(&again, second);
    assert_sink(again, WEIR_REASON_END, "abcdefghijklm");
}

static void a_failure_in_a_burst_comes_after_what_was_sampled(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 4, 0);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_tick(r);
    atomic_store(&r->fake->fail_sample_at, 2);
    draft_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_ERROR, "abc");
    assert_int_equal(rig_stats(r).n_kv_used, 0);
}

static void a_grammar_refuses_drafts_as_it_refuses_tokens(void **state)
{
    rig *r = *state;
    static guess g;
    weir_sampler_params sampler = r->greedy;
    sampler.grammar = "root ::= \"abcdefgh\" | \"abcxyz\"";
    rig_script(r, 'A', 6, "abcdqqqq"); /* the model's text, and the drafter's guess */
    start(r, &g, 6, 0);
    sink got = {0};
    weir_request request = rig_ask(r, 'A');
    request.sampler = &sampler;
    weir_stream *stream = rig_submit(r, &request);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdefgh");
    weir_usage usage = weir_stream_usage(stream);
    assert_true(usage.n_accepted >= 3 && usage.n_accepted < usage.n_drafted);
}

/* ---- The same text ------------------------------------------------------------------------------------ */

static void drafts_change_no_text_and_no_probability(void **state)
{
    rig *r = *state;
    uint64_t n_accepted = 0, n_refused = 0;
    for (int i = 0; i < 12; i++) {
        texts without;
        static guess g;
        char path[64];
        snprintf(path, sizeof path, "fake:exact=1,seed=%d,eos_every=%d", i, i % 2 ? 60 : 0);
        rig_load(r, path);
        r->params.layout = i % 3 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 1 + i % 5;
        r->params.n_kv = i % 3 == 0 ? 260 : 0; /* so few that requests are suspended */
        r->params.cache_sequences = i % 4 == 0 ? 2 : 0;
        texts_without_drafts(r, NULL, &without);
        weir_engine_stats stats = texts_compare(r, &g, 1 + i, NULL, &without);
        n_accepted += stats.n_accepted;
        n_refused += stats.n_drafted - stats.n_accepted;
        rig_stop(r);
    }
    assert_true(n_accepted > 500 && n_refused > 500);
}

/* One row of the model, by the low level. */
static void row_after(rig *r, const int32_t *tokens, size_t n, double temp, double *p, int32_t n_vocab)
{
    weir_context *context = NULL;
    const float *logits;
    double sum = 0;
    assert_int_equal(weir_context_create(r->model, NULL, &context, NULL), WEIR_OK);
    assert_int_equal(weir_prefill(context, tokens, n, 0, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_logits(context, -1, &logits, NULL), WEIR_OK);
    for (int32_t i = 0; i < n_vocab; i++) sum += p[i] = exp(logits[i] / temp);
    for (int32_t i = 0; i < n_vocab; i++) p[i] /= sum;
    weir_context_destroy(context);
}

/* Pearson's, over cells that expect 5 or more and one for the others, less its mean, by its deviation. */
static double deviations(const int *seen, const double *p, int32_t n_vocab, int n)
{
    double sum = 0, rest_p = 0;
    int rest = 0, cells = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double want = p[i] * n;
        if (want < 5) {
            rest += seen[i];
            rest_p += p[i];
            continue;
        }
        sum += (seen[i] - want) * (seen[i] - want) / want;
        cells++;
    }
    if (rest_p * n > 5) {
        sum += (rest - rest_p * n) * (rest - rest_p * n) / (rest_p * n);
        cells++;
    }
    return (sum - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

/* Draws answers of three tokens. For the quarter that begins with the same token, the likeliest next token is
 * the draft. Tokens drawn in the draft's row and in the row after it have the model's distribution. */
static void draws_with_drafts_have_the_models_distribution(void **state)
{
    enum { N_VOCAB = 260, N = EFFORT(100000, 10000), BATCH = 1000 };
    rig *r = *state;
    static weir_request requests[BATCH];
    static weir_result results[BATCH];
    static weir_sampler_params samplers[BATCH];
    static int first[N_VOCAB], behind[N_VOCAB];
    static double p[N_VOCAB];
    int32_t prompt[3] = {'p', 'q', 0};
    static guess g;
    int n_first = 0, n_behind = 0;
    rig_load(r, "fake:n_vocab=260,seed=11");
    r->fake->next = NULL;
    int32_t t0 = weir__fake_next(r->model, prompt, 2);
    prompt[2] = t0;
    int32_t likeliest = weir__fake_next(r->model, prompt, 3);
    r->params.n_slots = 1;
    r->params.n_ctx = 16;
    r->params.queue_limit = 0;
    start(r, &g, 1, 0);
    g.token = likeliest;
    for (int i = 0; i < BATCH; i++) {
        samplers[i] = weir_sampler_params_default();
        samplers[i].temp = 0.9F;
        requests[i] = weir_request_default();
        requests[i].tokens = prompt;
        requests[i].n_tokens = 2;
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = 3;
    }
    for (int at = 0; at < N; at += BATCH) {
        for (int i = 0; i < BATCH; i++) samplers[i].seed = (uint32_t)(at + i);
        assert_int_equal(weir_generate(r->engine, requests, BATCH, NULL, results, NULL), WEIR_OK);
        for (int i = 0; i < BATCH; i++) {
            const int32_t *t = results[i].tokens;
            /* Others wait for their last token, so some ticks are too long for drafts. */
            if (results[i].usage.n_drafted == 1 && results[i].n_tokens > 1 && t[0] == t0) {
                first[t[1]]++;
                n_first++;
                assert_int_equal(results[i].usage.n_accepted, t[1] == likeliest);
                if (results[i].n_tokens > 2 && t[1] == likeliest) {
                    behind[t[2]]++;
                    n_behind++;
                }
            }
            weir_result_fini(&results[i]);
        }
    }
    assert_true(n_first > N / 5 && n_behind > N / 25);
    /* An end token is not among an answer's. */
    row_after(r, prompt, 3, 0.9, p, N_VOCAB);
    double ends = p[WEIR__FAKE_EOS] + p[WEIR__FAKE_EOT];
    for (int i = 0; i < N_VOCAB; i++)
        p[i] = i == WEIR__FAKE_EOS || i == WEIR__FAKE_EOT ? 0 : p[i] / (1 - ends);
    double off = deviations(first, p, N_VOCAB, n_first);
    const int32_t longer[4] = {prompt[0], prompt[1], t0, likeliest};
    row_after(r, longer, 4, 0.9, p, N_VOCAB);
    ends = p[WEIR__FAKE_EOS] + p[WEIR__FAKE_EOT];
    for (int i = 0; i < N_VOCAB; i++)
        p[i] = i == WEIR__FAKE_EOS || i == WEIR__FAKE_EOT ? 0 : p[i] / (1 - ends);
    double off_behind = deviations(behind, p, N_VOCAB, n_behind);
    print_message("%d and %d draws: %.1f and %.1f standard deviations off\n", n_first, n_behind, off,
                  off_behind);
    assert_true(fabs(off) < 5 && fabs(off_behind) < 5);
}

/* ---- Nobody's place ----------------------------------------------------------------------------------- */

static void drafts_take_free_cells_only(void **state)
{
    rig *r = *state;
    for (int tight = 0; tight < 2; tight++) {
        uint64_t n_evicted[2], n_suspensions[2];
        for (int on = 0; on < 2; on++) {
            static guess g;
            rig_load(r, "fake:exact=1");
            r->params.layout = WEIR_LAYOUT_UNIFIED;
            r->params.n_kv = tight ? 64 : 100;
            r->params.n_ctx = 60;
            r->params.cache_sequences = 4;
            r->params.n_slots = 2;
            r->params.n_draft_max = on ? 16 : 0;
            for (int k = 0; k < 4; k++) rig_script(r, 'A' + k, 12, "abcdefghijklmnopqrstuvwxyz");
            if (on)
                start(r, &g, 1, 15);
            else
                rig_start(r);
            /* One after the other, so that evictions do not depend on timing. */
            for (int k = 0; k < 4; k++) {
                sink got = {0};
                weir_stream *stream = rig_submit_key(r, 'A' + k);
                while (!got.finished) {
                    draft_tick(r);
                    sink_take(&got, stream);
                    assert_true(rig_stats(r).n_kv_used <= r->params.n_kv);
                }
                assert_sink(got, WEIR_REASON_END, "abcdefghijklmnopqrstuvwxyz");
            }
            weir_engine_stats stats = rig_stats(r);
            n_evicted[on] = stats.n_evicted;
            n_suspensions[on] = stats.n_suspensions;
            assert_true(on == (stats.n_drafted > 0));
            rig_stop(r);
        }
        assert_int_equal(n_evicted[0], n_evicted[1]);
        assert_int_equal(n_suspensions[0], n_suspensions[1]);
    }
}

static void a_pass_without_cells_goes_on_without_drafts(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 4, 0);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_tick(r);
    atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
    atomic_store(&r->fake->fail_decode_at, 0);
    draft_tick(r);
    for (int i = 0; i < 3; i++) assert_int_equal(draft_tick(r).n_drafted, 0);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdefghijklm"); /* alone it would have failed */
    sink again = {0};
    stream = rig_submit_key(r, 'A'); /* a request has ended */
    draft_run(r);
    sink_take(&again, stream);
    assert_true(weir_stream_usage(stream).n_accepted > 0);
}

static void plans_say_how_much_of_a_draft_is_computed(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    const weir_view *view;
    rig_script(r, 'A', 6, "abcdefghijklmnop");
    start(r, &g, 4, 1);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_tick(r);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->slots[0].n_draft, 5);
    weir_plan_entry plan = {.slot = 0, .n_tokens = 3};
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
    assert_int_equal(g.n_calls, 1); /* a view's draft is the step's */
    assert_false(report.bad_plan);
    assert_int_equal(report.n_drafted, 2);
    sink_take(&got, stream);
    assert_string_equal(got.text, "abcd");
    plan.n_tokens = 1;
    assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
    assert_int_equal(report.n_drafted, 0);
    sink_take(&got, stream);
    assert_string_equal(got.text, "abcde");
    plan.n_tokens = 7; /* one more than there is: the standard plan computes all */
    assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
    assert_true(report.bad_plan);
    assert_int_equal(report.n_drafted, 5);
    sink_take(&got, stream);
    assert_string_equal(got.text, "abcdefghij");
    draft_run(r);
}

/* A request that comes between view and step does not get cells that the draft in the plan is to have. */
static void a_plan_may_use_the_draft_shown_in_its_view(void **state)
{
    rig *r = *state;
    static guess g;
    sink got = {0};
    const weir_view *view;
    rig_load(r, "fake:exact=1");
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.n_slots = 2;
    r->params.n_kv = r->params.n_ctx = 64;
    r->params.n_draft_max = 30;
    rig_script(r, 'A', 6, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop");
    rig_script(r, 'B', 40, "xyz");
    start(r, &g, 30, 0);
    weir_stream *stream = rig_submit_key(r, 'A');
    draft_tick(r);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 1);
    assert_int_equal(view->slots[0].n_draft, 30);
    weir_request other = rig_ask(r, 'B');
    other.max_tokens = 2;
    rig_submit(r, &other);
    const weir_plan_entry plan = {.slot = 0, .n_tokens = 31};
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
    assert_false(report.bad_plan);
    assert_int_equal(report.n_active, 1);
    assert_int_equal(report.queue_depth, 1);
    assert_int_equal(report.n_drafted, 30);
    assert_int_equal(rig_stats(r).n_suspensions, 0);
    draft_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop");
}

static void drafts_take_what_the_budget_leaves(void **state)
{
    rig *r = *state;
    static guess g;
    r->params.n_batch = 5;
    r->params.n_slots = 3;
    for (int k = 0; k < 3; k++) rig_script(r, 'A' + k, 1, "abcdefghijklm");
    start(r, &g, 4, 0);
    for (int k = 0; k < 3; k++) rig_submit_key(r, 'A' + k);
    draft_tick(r);
    assert_int_equal(rig_stats(r).n_slots_generating, 3);
    weir_report report = draft_tick(r);
    assert_int_equal(report.n_decode, 3);
    assert_int_equal(report.n_drafted, 2);
    assert_false(report.bad_plan);
    draft_run(r);
}

/* The fake's windows let go of all that llama.cpp may overwrite, at once. */
static void windows_hold_what_rejected_drafts_need(void **state)
{
    rig *r = *state;
    uint64_t n_accepted = 0, n_refused = 0;
    for (int i = 0; i < 32; i++) {
        texts without;
        static guess g;
        char path[64];
        snprintf(path, sizeof path, "fake:exact=1,seed=%d,n_swa=%d", i, 1 + i * 5 % 23);
        rig_load(r, path);
        r->params.layout = i % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 1 + i % 7;
        r->params.n_kv = i % 8 == 0 ? 260 : 0; /* so few that requests are suspended */
        r->params.n_ubatch = i % 3 == 0 ? 1 + i % 14 : 64;
        r->params.chunk_size = 1 + i * 3 % 40;
        texts_without_drafts(r, NULL, &without);
        weir_engine_stats stats = texts_compare(r, &g, 1 + i % 12, NULL, &without);
        assert_int_equal(atomic_load(&r->fake->n_uncut), 0);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        n_accepted += stats.n_accepted;
        n_refused += stats.n_drafted - stats.n_accepted;
        rig_stop(r);
    }
    assert_true(n_accepted > 500 && n_refused > 500);
}

static void a_draft_that_cannot_be_removed_costs_no_answer(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 8; i++) {
        texts without;
        static guess g;
        rig_load(r, i % 4 < 2 ? "fake:exact=1,n_swa=20" : "fake:exact=1");
        r->params.layout = i % 2 ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED;
        r->params.n_slots = 4;
        r->params.cache_sequences = i < 4 ? -1 : 0;
        texts_without_drafts(r, NULL, &without);
        assert_int_equal(atomic_load(&r->fake->n_uncut), 0);
        atomic_store(&r->fake->fail_cut, true);
        weir_engine_stats stats = texts_compare(r, &g, 6, NULL, &without);
        assert_true(stats.n_drafted > stats.n_accepted);
        assert_true(atomic_load(&r->fake->n_uncut) > 0);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        rig_stop(r);
    }
}

static void requests_may_do_without_or_with_fewer(void **state)
{
    rig *r = *state;
    static guess g;
    weir_error error = {0};
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 4, 0);
    for (int32_t most = -1; most < 3; most++) {
        weir_request request = rig_ask(r, 'A');
        request.n_draft_max = most;
        weir_stream *stream = rig_submit(r, &request);
        draft_tick(r);
        assert_int_equal(draft_tick(r).n_drafted, most < 0 ? 4 : most);
        draft_run(r);
        assert_int_equal(weir_stream_usage(stream).n_generated, 14);
    }
    weir_request request = rig_ask(r, 'A');
    for (int32_t wrong = -2; wrong < 40; wrong += 35) {
        request.n_draft_max = wrong;
        assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, &error), WEIR_INVALID);
        assert_string_equal(error.field, "requests[0].n_draft_max");
    }
    rig_stop(r);
    r->params.n_draft_max = 33;
    assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n_draft_max");
}

static void ticks_and_parts_tell_of_drafts(void **state)
{
    rig *r = *state;
    static guess g;
    weir_tick ticks[16];
    weir_tick_slot parts[16];
    size_t n;
    rig_script(r, 'A', 6, "abcdefghijklm");
    start(r, &g, 2, 3);
    rig_submit_key(r, 'A');
    draft_run(r);
    assert_int_equal(weir_engine_ticks(r->engine, 0, ticks, COUNT(ticks), &n), WEIR_OK);
    uint64_t n_drafted = 0, n_accepted = 0;
    for (size_t i = 0; i < n; i++) {
        n_drafted += (uint64_t)ticks[i].n_drafted;
        n_accepted += (uint64_t)ticks[i].n_accepted;
    }
    assert_int_equal(n_drafted, rig_stats(r).n_drafted);
    assert_int_equal(n_accepted, rig_stats(r).n_accepted);
    assert_int_equal(weir_engine_tick_slots(r->engine, 0, parts, COUNT(parts), &n), WEIR_OK);
    assert_int_equal(parts[1].n_tokens, 6);
    assert_int_equal(parts[1].n_drafted, 5);
    assert_int_equal(parts[1].n_accepted, 2);
    assert_int_equal(parts[1].n_generated, 4);
    assert_true(parts[n - 1].end_ns > 0);
    assert_true(parts[n - 1].n_accepted <= parts[n - 1].n_drafted);
}

static void drafts_wait_where_others_would(void **state)
{
    rig *r = *state;
    static guess g;
    rig_script(r, 'A', 6, "abcdefghijklmnopqrstuvwxyz");
    rig_script(r, 'B', 6, "abcdefghijklmnopqrstuvwxyz");
    start(r, &g, 16, 0);
    rig_submit_key(r, 'A');
    weir_request request = rig_ask(r, 'B');
    request.n_draft_max = 0;
    rig_submit(r, &request);
    draft_tick(r);
    weir_report report = draft_tick(r);
    assert_int_equal(report.n_decode, 2);
    assert_true(report.n_drafted <= 2); /* 20 + 2 * 5 ms alone, and a quarter of that for drafts */
    draft_run(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRAFT_TEST(a_burst_is_one_chunk),
        DRAFT_TEST(rejected_draft_tokens_are_cut_off),
        DRAFT_TEST(drafts_stay_within_the_answers_length),
        DRAFT_TEST(a_stop_string_within_a_burst_ends_it),
        DRAFT_TEST(a_cancel_in_a_burst_takes_none_of_it),
        DRAFT_TEST(a_failure_in_a_burst_comes_after_what_was_sampled),
        DRAFT_TEST(a_grammar_refuses_drafts_as_it_refuses_tokens),
        DRAFT_TEST(drafts_change_no_text_and_no_probability),
        DRAFT_TEST(draws_with_drafts_have_the_models_distribution),
        DRAFT_TEST(drafts_take_free_cells_only),
        DRAFT_TEST(a_pass_without_cells_goes_on_without_drafts),
        DRAFT_TEST(plans_say_how_much_of_a_draft_is_computed),
        DRAFT_TEST(a_plan_may_use_the_draft_shown_in_its_view),
        DRAFT_TEST(drafts_take_what_the_budget_leaves),
        DRAFT_TEST(windows_hold_what_rejected_drafts_need),
        DRAFT_TEST(a_draft_that_cannot_be_removed_costs_no_answer),
        DRAFT_TEST(requests_may_do_without_or_with_fewer),
        DRAFT_TEST(ticks_and_parts_tell_of_drafts),
        DRAFT_TEST(drafts_wait_where_others_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
