/* draft.h: for tests: an engine with drafts, and its answers with and without them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_DRAFT_H
#define WEIR_SUPPORT_ENGINE_DRAFT_H

#include "engine.h"
#include "support/guess.h"

static inline int draft_setup(void **state)
{
    if (rig_setup(state) != 0) return -1;
    weir__clock_stand(-1); /* a test that failed may have left it standing */
    ((rig *)*state)->params.n_draft_max = weir_engine_params_default().n_draft_max;
    return 0;
}

#define DRAFT_TEST(name) cmocka_unit_test_setup_teardown(name, draft_setup, rig_teardown)

/* A tick on a machine on which a row takes a fifth of a pass and drafting nothing, whatever this one does. */
static inline weir_report draft_tick(rig *r)
{
    weir__cost_init(&r->engine->driver.cost);
    weir__clock_stand(weir__clock_now_ns());
    weir_report report = rig_tick(r);
    weir__clock_stand(-1);
    return report;
}

static inline void draft_run(rig *r)
{
    for (int n = 0; n < 100000; n++) {
        weir_report report = draft_tick(r);
        if (report.idle && report.n_active == 0 && report.queue_depth == 0) return;
    }
    fail_msg("the engine does not come to rest");
}

#define N_TEXTS 12

typedef struct texts {
    weir_result results[N_TEXTS];
} texts;

/* Answers of the fake's own to prompts of several lengths, some greedy, some drawn, all scored. use: every
 * third has this adapter; NULL: none. */
static inline void texts_answer(rig *r, const weir_adapter_use *use, texts *out)
{
    static int32_t prompts[N_TEXTS][60];
    weir_request requests[N_TEXTS];
    weir_sampler_params samplers[N_TEXTS];
    for (int i = 0; i < N_TEXTS; i++) {
        int32_t n = 1 + 5 * i;
        for (int32_t at = 0; at < n; at++) prompts[i][at] = 'a' + (i + at * at) % 26;
        samplers[i] = weir_sampler_params_default();
        samplers[i].temp = i % 3 == 0 ? 0 : 0.3F * (float)(i % 3);
        samplers[i].seed = (uint32_t)i;
        requests[i] = weir_request_default();
        requests[i].sampler = &samplers[i];
        requests[i].tokens = prompts[i];
        requests[i].n_tokens = (size_t)n;
        requests[i].max_tokens = 20 + 7 * i;
        requests[i].n_logprobs = i % 4;
        requests[i].logprobs = true;
        requests[i].priority = i % 2;
        requests[i].adapters = use;
        requests[i].n_adapters = use != NULL && i % 3 == 0;
    }
    weir__ticket ticket = {.remaining = N_TEXTS};
    assert_int_equal(pthread_mutex_init(&ticket.mutex, NULL), 0);
    assert_int_equal(pthread_cond_init(&ticket.cond, NULL), 0);
    memset(out, 0, sizeof *out);
    assert_int_equal(
        weir__engine_submit(r->engine, requests, N_TEXTS, false, NULL, out->results, &ticket, NULL), WEIR_OK);
    draft_run(r);
    assert_int_equal(ticket.remaining, 0);
    pthread_cond_destroy(&ticket.cond);
    pthread_mutex_destroy(&ticket.mutex);
}

static inline void texts_assert_same(const texts *a, const texts *b)
{
    for (int i = 0; i < N_TEXTS; i++) {
        const weir_result *x = &a->results[i], *y = &b->results[i];
        assert_int_equal(x->reason, y->reason);
        assert_string_equal(x->text, y->text);
        assert_int_equal(x->n_tokens, y->n_tokens);
        if (x->n_tokens == 0) continue;
        assert_memory_equal(x->tokens, y->tokens, x->n_tokens * sizeof *x->tokens);
        assert_memory_equal(x->logprobs, y->logprobs, x->n_tokens * sizeof *x->logprobs);
        size_t n_top = x->n_tokens * (size_t)x->n_top_logprobs;
        if (n_top > 0) assert_memory_equal(x->top_logprobs, y->top_logprobs, n_top * sizeof *x->top_logprobs);
        assert_int_equal(x->usage.n_generated, y->usage.n_generated);
    }
}

static inline void texts_fini(texts *t)
{
    for (int i = 0; i < N_TEXTS; i++) weir_result_fini(&t->results[i]);
}

/* The answers of an engine without drafts, which is then stopped. */
static inline void texts_without_drafts(rig *r, const weir_adapter_use *use, texts *out)
{
    r->params.n_draft_max = 0;
    rig_start(r);
    texts_answer(r, use, out);
    assert_int_equal(rig_stats(r).n_drafted, 0);
    rig_stop(r);
}

/* Starts an engine with drafts of at most so many tokens, whose answers must be these; frees them. g: the
 * drafter, right and wrong at random; NULL: the engine's own. */
static inline weir_engine_stats texts_compare(rig *r, guess *g, int32_t n_draft_max,
                                              const weir_adapter_use *use, texts *without)
{
    texts with;
    r->params.n_draft_max = n_draft_max;
    rig_start(r);
    if (g != NULL) assert_true(guess_install(g, r->engine, r->model, -1, -1));
    texts_answer(r, use, &with);
    texts_assert_same(without, &with);
    texts_fini(without);
    texts_fini(&with);
    return rig_stats(r);
}

#endif
