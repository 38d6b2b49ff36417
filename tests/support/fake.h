/* fake.h: shared by the tests of the fake: a context of the backend itself, below the public functions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_FAKE_H
#define WEIR_SUPPORT_FAKE_H

#include "model.h"

typedef struct rig {
    weir_model *model;
    weir__fake *fake;
    const weir__backend *ops;
    weir__bcontext *context;
    weir_context_info info;
    weir__batch batch;
} rig;

static inline void rig_init(rig *r, const char *options, int32_t n_ctx, int32_t n_seq, weir_layout layout)
{
    weir_context_params params = weir_context_params_default();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_seq_max = n_seq;
    params.layout = layout;
    *r = (rig){.model = fake_load(options)};
    r->fake = weir__fake_of(r->model);
    r->ops = r->model->ops;
    assert_ok(r->ops->context_create(r->model->model, &params, &r->context, &r->info, error));
    assert_ok(weir__batch_init(&r->batch, 64, error));
}

static inline void rig_fini(rig *r)
{
    weir__batch_fini(&r->batch);
    r->ops->context_free(r->context);
    assert_int_equal(atomic_load(&r->fake->n_contexts), 0);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    weir_model_release(r->model);
}

/* Appends text to a sequence in one pass; the last row keeps logits. */
static inline weir_status append(rig *r, int32_t seq, const char *text)
{
    int32_t pos = r->ops->seq_pos_max(r->context, seq) + 1;
    r->batch.n = 0;
    for (size_t i = 0; text[i] != '\0'; i++)
        weir__batch_add(&r->batch, (unsigned char)text[i], pos + (int32_t)i, seq, text[i + 1] == '\0');
    return r->ops->decode(r->context, &r->batch, NULL);
}

static inline int32_t expected(const rig *r, const char *text)
{
    int32_t history[64], n = 0;
    for (; text[n] != '\0'; n++) history[n] = (unsigned char)text[n];
    return weir__fake_next(r->model, history, n);
}

static inline int32_t argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The logits of the last row. */
static inline int32_t chosen(rig *r)
{
    const float *logits = r->ops->logits(r->context, -1);
    assert_non_null(logits);
    return argmax(logits, r->model->info.n_vocab);
}

static inline weir__bsampler *sampler_of(rig *r, const weir_sampler_params *params)
{
    weir__bsampler *sampler = NULL;
    assert_ok(r->ops->sampler_create(r->model->model, params, NULL, &sampler, error));
    return sampler;
}

static inline uint32_t take_faults(rig *r)
{
    return atomic_exchange(&r->fake->faults, 0);
}

#endif
