/* Logprobs of answers and prompts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "model/logprob.h"
#include "support/engine/engine.h"

#define MOST 256

/* ---- Logprobs -------------------------------------------------------------------------------------- */

/* Everything that came of one stream, or in one result. */
typedef struct scores {
    int32_t tokens[MOST];
    float logprobs[MOST];
    weir_logprob tops[MOST * WEIR__LOGPROBS_MAX];
    size_t n;
    int32_t n_top;
    bool finished;
} scores;

static void add(scores *to, const weir_chunk *chunk, int32_t n_top)
{
    to->finished = chunk->finished;
    if (chunk->n_tokens == 0) {
        assert_null(chunk->logprobs);
        assert_null(chunk->top_logprobs);
        return;
    }
    assert_non_null(chunk->logprobs);
    assert_int_equal(chunk->n_top_logprobs, n_top);
    assert_true((chunk->top_logprobs != NULL) == (n_top > 0));
    assert_true(to->n + chunk->n_tokens <= MOST);
    memcpy(to->tokens + to->n, chunk->tokens, chunk->n_tokens * sizeof *chunk->tokens);
    memcpy(to->logprobs + to->n, chunk->logprobs, chunk->n_tokens * sizeof *chunk->logprobs);
    if (n_top > 0)
        memcpy(to->tops + to->n * (size_t)n_top, chunk->top_logprobs,
               chunk->n_tokens * (size_t)n_top * sizeof *chunk->top_logprobs);
    to->n += chunk->n_tokens;
    to->n_top = n_top;
}

static void take(scores *to, weir_stream *stream, int32_t n_top)
{
    weir_chunk chunk;
    while (weir_stream_try_next(stream, &chunk) == WEIR_OK) add(to, &chunk, n_top);
}

static double naive(const float *logits, int32_t n, int32_t token)
{
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) max = fmax(max, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return (double)logits[token] - max - log(sum);
}

/* Compares with the rows that a context of its own computes for the same tokens. */
static void judge(rig *r, const char *prompt, const scores *got, bool special)
{
    weir_context *context = NULL;
    weir_model_info info = {.size = sizeof info};
    int32_t history[2 * MOST];
    size_t n = 0;
    assert_int_equal(weir_model_describe(r->model, &info), WEIR_OK);
    assert_int_equal(weir_context_create(r->model, NULL, &context, NULL), WEIR_OK);
    assert_int_equal(weir_tokenize(r->model, prompt, WEIR_NUL, special, true, history, MOST, &n, NULL),
                     WEIR_OK);
    for (size_t i = 0; i < got->n; i++) {
        const float *logits = NULL;
        assert_int_equal(weir_context_clear(context, NULL), WEIR_OK);
        assert_int_equal(weir_prefill(context, history, n, 0, NULL, NULL), WEIR_OK);
        assert_int_equal(weir_logits(context, -1, &logits, NULL), WEIR_OK);
        assert_true(fabs((double)got->logprobs[i] - naive(logits, info.n_vocab, got->tokens[i])) < 1e-5);
        for (int32_t k = 0; k < got->n_top; k++) {
            const weir_logprob *top = &got->tops[i * (size_t)got->n_top + (size_t)k];
            int32_t n_above = 0; /* the tokens ahead of it */
            for (int32_t t = 0; t < info.n_vocab; t++)
                n_above +=
                    logits[t] > logits[top->token] || (logits[t] == logits[top->token] && t < top->token);
            assert_int_equal(n_above, k);
            assert_true(fabs((double)top->logprob - naive(logits, info.n_vocab, top->token)) < 1e-5);
        }
        history[n++] = got->tokens[i];
    }
    weir_context_destroy(context);
}

static void each_token_of_a_stream_has_its_logprobs(void **state)
{
    rig *r = *state;
    static const int32_t n_tops[] = {0, 1, 5, 20};
    rig_load(r, "fake:seed=5,eos_every=0");
    weir_sampler_params hot = weir_sampler_params_default();
    weir_logit_bias bias = {'e', 3};
    hot.temp = 2;
    hot.seed = 11;
    hot.ignore_eos = true;
    hot.logit_bias = &bias; /* logprobs do not know of it */
    hot.n_logit_bias = 1;
    rig_start(r);
    for (int late = 0; late < 2; late++) {
        weir_stream *streams[COUNT(n_tops)];
        static scores got[COUNT(n_tops)];
        memset(got, 0, sizeof got);
        for (size_t i = 0; i < COUNT(n_tops); i++) {
            weir_request request = rig_ask_text(r, "tell", 70);
            request.sampler = i % 2 == 0 ? &r->greedy : &hot;
            request.logprobs = true;
            request.n_logprobs = n_tops[i];
            request.interval = 1 + (int32_t)i;
            streams[i] = rig_submit(r, &request);
        }
        for (int tick = 0; tick < 100; tick++) {
            rig_tick(r);
            for (size_t i = 0; !late && i < COUNT(n_tops); i++) take(&got[i], streams[i], n_tops[i]);
        }
        for (size_t i = 0; i < COUNT(n_tops); i++) {
            take(&got[i], streams[i], n_tops[i]); /* late: all of it, merged */
            assert_true(got[i].finished);
            assert_int_equal(got[i].n, 70);
            judge(r, "tell", &got[i], true);
        }
    }
}

static void a_last_chunk_without_tokens_has_none(void **state)
{
    rig *r = *state;
    static scores got;
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.n_logprobs = 2;
    weir_stream *stream = rig_submit(r, &request);
    for (int tick = 0; tick < 10; tick++) {
        rig_tick(r);
        take(&got, stream, 2);
    }
    assert_true(got.finished);
    assert_int_equal(got.n, 6);
}

static void a_request_without_logprobs_has_none(void **state)
{
    rig *r = *state;
    weir_chunk chunk;
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_run(r);
    while (weir_stream_try_next(stream, &chunk) == WEIR_OK) {
        assert_null(chunk.logprobs);
        assert_null(chunk.top_logprobs);
        assert_int_equal(chunk.n_top_logprobs, 0);
    }
}

static void a_result_has_them_and_n_logprobs_implies_them(void **state)
{
    rig *r = *state;
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    weir_request requests[2] = {rig_ask_text(r, "tell", 9), rig_ask_text(r, "tell", 9)};
    weir_result results[2];
    requests[0].n_logprobs = 3;
    assert_int_equal(weir_generate(r->engine, requests, 2, NULL, results, NULL), WEIR_OK);
    static scores got;
    weir_chunk all = {.tokens = results[0].tokens,
                      .n_tokens = results[0].n_tokens,
                      .logprobs = results[0].logprobs,
                      .top_logprobs = results[0].top_logprobs,
                      .n_top_logprobs = results[0].n_top_logprobs};
    memset(&got, 0, sizeof got);
    add(&got, &all, 3);
    assert_int_equal(got.n, 9);
    judge(r, "tell", &got, true);
    assert_null(results[1].logprobs);
    assert_null(results[1].top_logprobs);
    for (int i = 0; i < 2; i++) weir_result_fini(&results[i]);
    assert_null(results[0].logprobs);
}

/* Cells are too few for all: some wait, suspended, and their logprobs with them. */
static void a_suspension_loses_none(void **state)
{
    rig *r = *state;
    static scores got[4];
    weir_stream *streams[4];
    memset(got, 0, sizeof got);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.n_kv = 256;
    r->params.cache_bytes = 0; /* all is computed again */
    rig_start(r);
    for (int i = 0; i < 4; i++) {
        weir_request request = rig_ask_text(r, "tell", 100);
        request.n_logprobs = 2;
        streams[i] = rig_submit(r, &request);
    }
    rig_run(r);
    assert_true(rig_stats(r).n_suspensions > 0);
    for (int i = 0; i < 4; i++) {
        take(&got[i], streams[i], 2);
        assert_int_equal(got[i].n, 100);
        judge(r, "tell", &got[i], true);
    }
}

static void more_logprobs_than_allowed_are_refused(void **state)
{
    rig *r = *state;
    static const int32_t wrong[] = {-1, WEIR__LOGPROBS_MAX + 1, INT32_MIN, INT32_MAX};
    rig_start(r);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        weir_error error = {0};
        weir_request request = rig_ask_text(r, "tell", 5);
        request.n_logprobs = wrong[i];
        assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, &error), WEIR_INVALID);
        assert_string_equal(error.field, "requests[0].n_logprobs");
        assert_non_null(strstr(error.message, "0 to 20"));
    }
}

static void every_allocation_of_a_scored_request_may_fail(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 5, "some text that is long enough to grow");
    rig_start(r);
    for (long n = 0;; n++) {
        weir_request request = rig_ask(r, 'A');
        weir_result result = {0};
        weir_stream *stream = NULL;
        assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
        request.n_logprobs = 4;
        request.n_prompt_logprobs = 2;
        weir__mem_fail_after(n);
        weir_status status = weir_generate(r->engine, &request, 1, &stream, &result, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        bool failed = status != WEIR_OK || result.reason == WEIR_REASON_ERROR;
        if (failed && status == WEIR_OK) assert_int_equal(result.error.code, WEIR_NO_MEMORY);
        if (!failed) {
            assert_int_equal(result.n_prompt_tokens, 5);
            assert_true(result.prompt_tokens != NULL && result.prompt_logprobs != NULL);
            assert_true(result.prompt_top_logprobs != NULL && result.top_logprobs != NULL);
        }
        if (status != WEIR_OK) assert_int_equal(status, WEIR_NO_MEMORY);
        weir_result_fini(&result);
        weir_stream_release(stream);
        rig_run(r);
        if (pending) {
            assert_false(failed);
            break;
        }
    }
}

/* ---- The prompt's logprobs ------------------------------------------------------------------------- */

#define LONG_PROMPT 200

/* The rows of a separate context give the expected logprob of each token of the prompt. */
static void judge_prompt(rig *r, const int32_t *prompt, size_t n, const weir_chunk *got, int32_t n_top)
{
    weir_context *context = NULL;
    weir_model_info info = {.size = sizeof info};
    assert_int_equal(got->n_tokens, n);
    assert_memory_equal(got->tokens, prompt, n * sizeof *prompt);
    assert_int_equal(got->n_top_logprobs, n_top);
    assert_string_equal(got->text, "");
    assert_true(isnan(got->logprobs[0]));
    for (int32_t k = 0; k < n_top; k++) assert_int_equal(got->top_logprobs[k].token, -1);
    assert_int_equal(weir_model_describe(r->model, &info), WEIR_OK);
    assert_int_equal(weir_context_create(r->model, NULL, &context, NULL), WEIR_OK);
    for (size_t i = 1; i < n; i++) {
        const float *logits = NULL;
        assert_int_equal(weir_prefill(context, &prompt[i - 1], 1, 0, NULL, NULL), WEIR_OK);
        assert_int_equal(weir_logits(context, -1, &logits, NULL), WEIR_OK);
        assert_true(fabs((double)got->logprobs[i] - naive(logits, info.n_vocab, prompt[i])) < 1e-5);
        for (int32_t k = 0; k < n_top; k++) {
            const weir_logprob *top = &got->top_logprobs[i * (size_t)n_top + (size_t)k];
            int32_t n_above = 0;
            for (int32_t t = 0; t < info.n_vocab; t++)
                n_above +=
                    logits[t] > logits[top->token] || (logits[t] == logits[top->token] && t < top->token);
            assert_int_equal(n_above, k);
            assert_true(fabs((double)top->logprob - naive(logits, info.n_vocab, top->token)) < 1e-5);
        }
    }
    weir_context_destroy(context);
}

static void fill_prompt(int32_t *prompt, int first)
{
    for (int i = 0; i < LONG_PROMPT; i++) prompt[i] = 'a' + (first + i * i) % 23;
}

static weir_request ask_tokens(rig *r, const int32_t *prompt, int32_t max_tokens)
{
    weir_request request = weir_request_default();
    request.tokens = prompt;
    request.n_tokens = LONG_PROMPT;
    request.sampler = &r->greedy;
    request.max_tokens = max_tokens;
    return request;
}

/* Prompts are scored in both layouts, with a part of them cached, beside one that is not scored, and with few
 * rows in each tick. */
static void each_token_of_a_prompt_has_its_logprob(void **state)
{
    rig *r = *state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    static const int32_t n_tops[] = {0, 1, 5, 20};
    int32_t prompt[LONG_PROMPT];
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.cache_sequences = -1;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        weir_stream *streams[COUNT(n_tops)];
        r->params.layout = layouts[l];
        rig_start(r);
        weir_request first = ask_tokens(r, prompt, 3);
        rig_submit(r, &first);
        rig_run(r);
        for (size_t i = 0; i < COUNT(n_tops); i++) {
            weir_request request = ask_tokens(r, prompt, i % 2 == 0 ? 0 : 5);
            request.prompt_logprobs = true;
            request.n_prompt_logprobs = n_tops[i];
            streams[i] = rig_submit(r, &request);
        }
        uint64_t rows = atomic_load(&r->fake->n_rows);
        for (bool idle = false; !idle;) {
            weir_report report = rig_tick(r);
            uint64_t now = atomic_load(&r->fake->n_rows);
            assert_true(now - rows <= 64 + (uint64_t)r->params.n_slots);
            rows = now;
            idle = report.n_active == 0;
        }
        for (size_t i = 0; i < COUNT(n_tops); i++) {
            weir_chunk got;
            assert_int_equal(weir_stream_prompt_logprobs(streams[i], &got), WEIR_OK);
            judge_prompt(r, prompt, LONG_PROMPT, &got, n_tops[i]);
            assert_int_equal(weir_stream_usage(streams[i]).n_cached, 0);
            assert_int_equal(weir_stream_usage(streams[i]).miss, WEIR_MISS_OFF);
        }
        /* their cells serve others */
        weir_request last = ask_tokens(r, prompt, 3);
        weir_stream *stream = rig_submit(r, &last);
        rig_run(r);
        assert_int_equal(weir_stream_usage(stream).n_cached, LONG_PROMPT - 1);
        rig_stop(r);
    }
}

static void a_prompts_logprobs_are_known_before_the_first_chunk(void **state)
{
    rig *r = *state;
    weir_chunk chunk, prompt;
    rig_script(r, 'A', 100, "abc");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    weir_stream *plain = rig_submit(r, &request);
    request.n_prompt_logprobs = 1; /* implies them */
    weir_stream *stream = rig_submit(r, &request);
    request.stop = (const char *[]){"c"};
    request.n_stop = 1;
    weir_stream *cancelled = rig_submit(r, &request);
    assert_int_equal(weir_stream_prompt_logprobs(stream, &prompt), WEIR_TIMEOUT);
    rig_tick(r);
    assert_int_equal(weir_stream_prompt_logprobs(stream, &prompt), WEIR_TIMEOUT);
    weir_stream_cancel(cancelled);
    while (weir_stream_try_next(stream, &chunk) != WEIR_OK) rig_tick(r);
    assert_false(chunk.finished);
    assert_int_equal(weir_stream_prompt_logprobs(stream, &prompt), WEIR_OK);
    judge_prompt(r, request.tokens, request.n_tokens, &prompt, 1);
    rig_run(r);
    assert_int_equal(weir_stream_prompt_logprobs(plain, &prompt), WEIR_STATE);
    assert_int_equal(weir_stream_prompt_logprobs(cancelled, &prompt), WEIR_END);
    assert_int_equal(weir_stream_prompt_logprobs(rig_stream(r), &prompt), WEIR_STATE);
    assert_int_equal(weir_stream_prompt_logprobs(NULL, &prompt), WEIR_INVALID);
    assert_int_equal(weir_stream_prompt_logprobs(plain, NULL), WEIR_INVALID);
}

static void a_result_has_the_prompts_logprobs_of_the_first_answer(void **state)
{
    rig *r = *state;
    int32_t prompt[LONG_PROMPT];
    weir_result results[2];
    fill_prompt(prompt, 3);
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    weir_request requests[2] = {ask_tokens(r, prompt, 4), ask_tokens(r, prompt, 4)};
    requests[0].n_prompt_logprobs = 2;
    requests[1].n_tokens = 1;
    requests[1].prompt_logprobs = true;
    assert_int_equal(weir_generate(r->engine, requests, 2, NULL, results, NULL), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        const weir_chunk got = {.tokens = results[i].prompt_tokens,
                                .n_tokens = results[i].n_prompt_tokens,
                                .text = "",
                                .logprobs = results[i].prompt_logprobs,
                                .top_logprobs = results[i].prompt_top_logprobs,
                                .n_top_logprobs = results[i].n_prompt_top_logprobs};
        judge_prompt(r, prompt, requests[i].n_tokens, &got, i == 0 ? 2 : 0);
        weir_result_fini(&results[i]);
        assert_null(results[i].prompt_logprobs);
    }
    weir_stream *streams[2] = {rig_stream(r), rig_stream(r)};
    weir_chunk chunk;
    assert_int_equal(weir_engine_submit_n(r->engine, requests, 2, streams, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(weir_stream_prompt_logprobs(streams[0], &chunk), WEIR_OK);
    assert_int_equal(weir_stream_prompt_logprobs(streams[1], &chunk), WEIR_STATE);
    weir_error error = {0};
    requests[0].n_prompt_logprobs = 21;
    assert_int_equal(weir_engine_submit(r->engine, requests, 1, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].n_prompt_logprobs");
}

/* Tokens that a plan gives beyond the limit are not computed: neither the tick's figures nor the learned
 * costs count them. */
static void a_tick_counts_the_tokens_that_it_took(void **state)
{
    rig *r = *state;
    int32_t prompt[LONG_PROMPT];
    weir_tick tick;
    size_t n;
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.n_ubatch = 64;
    rig_start(r);
    weir_request request = ask_tokens(r, prompt, 1);
    request.prompt_logprobs = true;
    rig_submit(r, &request);
    const weir_view *view;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    const weir_plan_entry plan = {.slot = 0, .n_tokens = LONG_PROMPT};
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
    assert_false(report.bad_plan);
    assert_int_equal(report.n_prefill, 64);
    assert_int_equal(weir_engine_ticks(r->engine, 0, &tick, 1, &n), WEIR_OK);
    assert_int_equal(tick.n_passes, 1);
    rig_run(r);
}

/* Cells run out in the middle of prompts, and nothing is saved: scored tokens are only computed again. */
static void a_suspension_scores_no_token_twice(void **state)
{
    rig *r = *state;
    enum { N_STREAMS = 3 };
    int32_t prompts[N_STREAMS][LONG_PROMPT];
    weir_stream *streams[N_STREAMS];
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.n_kv = 512;
    r->params.cache_bytes = 0;
    rig_start(r);
    for (int i = 0; i < N_STREAMS; i++) {
        fill_prompt(prompts[i], i);
        weir_request request = ask_tokens(r, prompts[i], i == 2 ? 10 : 50);
        request.n_prompt_logprobs = 3;
        request.priority = i;
        streams[i] = rig_submit(r, &request);
        rig_ticks(r, 2);
    }
    rig_run(r);
    assert_true(rig_stats(r).n_suspensions > 0);
    assert_int_equal(atomic_load(&r->fake->n_rows),
                     N_STREAMS * (LONG_PROMPT - 1) + atomic_load(&r->fake->n_samples));
    for (int i = 0; i < N_STREAMS; i++) {
        weir_chunk got;
        assert_int_equal(weir_stream_prompt_logprobs(streams[i], &got), WEIR_OK);
        judge_prompt(r, prompts[i], LONG_PROMPT, &got, 3);
    }
}

/* The first answer has them, and is seldom the best. */
static void the_best_answer_has_the_prompts_logprobs(void **state)
{
    rig *r = *state;
    enum { BEST_OF = 6 };
    int32_t prompt[LONG_PROMPT];
    uint32_t n_others = 0;
    fill_prompt(prompt, 4);
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    for (uint32_t seed = 0; seed < 5; seed++) {
        weir_result best[2], first;
        weir_sampler_params sampler = rig_hot(10 * seed);
        weir_request request = ask_tokens(r, prompt, 10);
        request.sampler = &sampler;
        request.n_prompt_logprobs = 2;
        assert_int_equal(weir_generate_best(r->engine, &request, BEST_OF, 2, best, NULL), WEIR_OK);
        assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &first, NULL), WEIR_OK);
        n_others += strcmp(best[0].text, first.text) != 0;
        const weir_chunk got = {.tokens = best[0].prompt_tokens,
                                .n_tokens = best[0].n_prompt_tokens,
                                .text = "",
                                .logprobs = best[0].prompt_logprobs,
                                .top_logprobs = best[0].prompt_top_logprobs,
                                .n_top_logprobs = best[0].n_prompt_top_logprobs};
        assert_int_equal(best[0].n_prompt_tokens, LONG_PROMPT);
        judge_prompt(r, prompt, LONG_PROMPT, &got, 2);
        assert_null(best[1].prompt_logprobs);
        weir_result_fini(&best[0]);
        weir_result_fini(&best[1]);
        weir_result_fini(&first);
    }
    assert_true(n_others > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_token_of_a_stream_has_its_logprobs),
        RIG_TEST(a_last_chunk_without_tokens_has_none),
        RIG_TEST(a_request_without_logprobs_has_none),
        RIG_TEST(a_result_has_them_and_n_logprobs_implies_them),
        RIG_TEST(a_suspension_loses_none),
        RIG_TEST(more_logprobs_than_allowed_are_refused),
        RIG_TEST(every_allocation_of_a_scored_request_may_fail),
        RIG_TEST(each_token_of_a_prompt_has_its_logprob),
        RIG_TEST(a_prompts_logprobs_are_known_before_the_first_chunk),
        RIG_TEST(a_result_has_the_prompts_logprobs_of_the_first_answer),
        RIG_TEST(a_tick_counts_the_tokens_that_it_took),
        RIG_TEST(a_suspension_scores_no_token_twice),
        RIG_TEST(the_best_answer_has_the_prompts_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
