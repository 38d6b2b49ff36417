/* llama.h: shared by the tests of the llama backend: the model of WEIR_TEST_MODEL, contexts of the
 * backend itself, below the public functions, and a plain llama.h loop to compare with.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_LLAMA_H
#define WEIR_SUPPORT_LLAMA_H

#include <math.h>
#include <stdlib.h>

#include "llama/internal.h"
#include "model.h"

static const weir__backend *const ops = &weir__backend_llama;
static weir__bmodel *model;      /* that the tests are about; NULL = none is loaded */
static weir_model_info model_is; /* its properties */

static inline const char *model_path(void)
{
    const char *path = getenv("WEIR_TEST_MODEL");
    return path != NULL && *path != '\0' ? path : NULL;
}

/* In place of the one before. */
static inline void use_model(const char *path)
{
    weir_model_params params = weir_model_params_default();
    ops->model_free(model);
    model = NULL;
    assert_ok(ops->model_load(path, &params, false, &model, error));
    ops->model_describe(model, &model_is);
}

static inline int load_model(void **state)
{
    (void)state;
    use_model(model_path());
    return 0;
}

static inline int free_model(void **state)
{
    (void)state;
    ops->model_free(model);
    model = NULL;
    assert_int_equal(weir__mem_live(), 0);
    return 0;
}

/* Runs the tests, or none where there is no model. */
#define RUN_MODEL_TESTS_WITH(tests, begin, end)                                                              \
    (model_path() != NULL ? cmocka_run_group_tests(tests, begin, end)                                        \
                          : (puts("skipped: WEIR_TEST_MODEL is not set"), 0))
#define RUN_MODEL_TESTS(tests) RUN_MODEL_TESTS_WITH(tests, load_model, free_model)

typedef struct rig {
    weir__bcontext *context;
    weir_context_info info;
    weir__batch batch;
} rig;

static inline weir_context_params rig_params(int32_t n_ctx, int32_t n_seq, weir_layout layout)
{
    weir_context_params params = weir_context_params_default();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_ubatch = 512;
    params.n_seq_max = n_seq;
    params.n_threads = params.n_threads_batch = 1; /* ggml's threads wait for each other busily */
    params.layout = layout;
    return params;
}

static inline void rig_init_with(rig *r, const weir_context_params *params)
{
    *r = (rig){.context = NULL};
    assert_ok(ops->context_create(model, params, &r->context, &r->info, error));
    assert_ok(weir__batch_init(&r->batch, r->info.n_batch, error));
}

static inline void rig_init(rig *r, int32_t n_ctx, int32_t n_seq, weir_layout layout)
{
    weir_context_params params = rig_params(n_ctx, n_seq, layout);
    rig_init_with(r, &params);
}

static inline void rig_fini(rig *r)
{
    weir__batch_fini(&r->batch);
    ops->context_free(r->context);
}

/* Of a text that is another one for each `first`, in any vocabulary of 420 tokens and more. */
static inline void some_tokens(int32_t *ids, int32_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) ids[i] = 20 + (first + (int32_t)i * 37) % 400;
}

static inline size_t tokens_of(const char *text, bool special, int32_t *tokens, size_t capacity)
{
    size_t n = 0;
    assert_ok(ops->tokenize(model, text, strlen(text), special, special, tokens, capacity, &n, error));
    return n;
}

/* Appends tokens to a sequence in one pass; the last row keeps logits. */
static inline weir_status feed(rig *r, int32_t seq, const int32_t *tokens, size_t n, weir_error *error)
{
    int32_t pos = ops->seq_pos_max(r->context, seq) + 1;
    r->batch.n = 0;
    for (size_t i = 0; i < n; i++) weir__batch_add(&r->batch, tokens[i], pos + (int32_t)i, seq, i + 1 == n);
    return ops->decode(r->context, &r->batch, error);
}

static inline void feed_text(rig *r, int32_t seq, const char *text)
{
    int32_t tokens[512];
    size_t n = tokens_of(text, false, tokens, N_ELEMENTS(tokens));
    assert_ok(feed(r, seq, tokens, n, error));
}

static inline int32_t plain_argmax(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < model_is.n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The logits of the last row. */
static inline int32_t chosen(rig *r)
{
    const float *logits = ops->logits(r->context, -1);
    assert_non_null(logits);
    return plain_argmax(logits);
}

/* A copy of the last row, for the caller to free. */
static inline float *row_copy(rig *r, int32_t row)
{
    const float *logits = ops->logits(r->context, row);
    assert_non_null(logits);
    float *copy = malloc((size_t)model_is.n_vocab * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, logits, (size_t)model_is.n_vocab * sizeof *copy);
    return copy;
}

static inline void assert_row_is(rig *r, int32_t row, const float *want)
{
    const float *logits = ops->logits(r->context, row);
    assert_non_null(logits);
    assert_memory_equal(logits, want, (size_t)model_is.n_vocab * sizeof *want);
}

/* Feeds a token and looks at its row. */
static inline void check_next(rig *r, int32_t seq, int32_t next, const float *want)
{
    assert_ok(feed(r, seq, &next, 1, error));
    assert_row_is(r, -1, want);
}

/* Greedy tokens after a prompt by llama.h alone, in a context like the rig's. */
static inline void plain_greedy(const char *prompt, int32_t n_ctx, int32_t n_seq, bool unified,
                                int32_t n_threads, int32_t *out, size_t n_out)
{
    int32_t tokens[512];
    int32_t n = (int32_t)tokens_of(prompt, true, tokens, N_ELEMENTS(tokens));
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)n_ctx;
    params.n_batch = (uint32_t)n_ctx;
    params.n_seq_max = (uint32_t)n_seq;
    params.kv_unified = unified;
    params.n_threads = params.n_threads_batch = n_threads;
    struct llama_context *context = llama_init_from_model(model->model, params);
    assert_non_null(context);
    assert_int_equal(llama_decode(context, llama_batch_get_one(tokens, n)), 0);
    for (size_t i = 0; i < n_out; i++) {
        out[i] = plain_argmax(llama_get_logits_ith(context, -1));
        assert_int_equal(llama_decode(context, llama_batch_get_one(&out[i], 1)), 0);
    }
    llama_free(context);
}

static inline weir_sampler_params complete_params(void)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    weir_sampler_params params = weir_sampler_params_default();
    params.order = WEIR_SAMPLERS_DEFAULT;
    params.dry_breakers = breakers;
    params.n_dry_breakers = N_ELEMENTS(breakers);
    params.seed = 1;
    return params;
}

static inline weir_sampler_params greedy_params(void)
{
    weir_sampler_params params = complete_params();
    params.temp = 0;
    return params;
}

static inline weir__bsampler *sampler_of(const weir_sampler_params *params, const weir__grammar *grammar)
{
    weir__bsampler *sampler = NULL;
    assert_ok(ops->sampler_create(model, params, grammar, &sampler, error));
    return sampler;
}

#endif
