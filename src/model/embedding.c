/* embedding.c: embeddings of texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/context.h"

static weir_status check_embeds(const weir_context *context, weir_error *error)
{
    if (context == NULL) return weir__error_null(error, "context");
    if (context->params.embeddings) return WEIR_OK;
    return weir__error_set(error, WEIR_STATE, "context",
                           "the context was made without `embeddings`: make another");
}

static weir_status check_normalize(weir_normalize normalize, weir_error *error)
{
    if (normalize == WEIR_NORMALIZE_NONE || normalize == WEIR_NORMALIZE_MAX_ABS ||
        normalize == WEIR_NORMALIZE_L2)
        return WEIR_OK;
    return weir__error_numbers(error, WEIR_INVALID, "normalize", normalize, -1, 2,
                               "`normalize` is %d; allowed: -1 (none), 0 (max-abs) and 2 (L2)",
                               (int)normalize);
}

size_t weir_embedding_width(const weir_context *context)
{
    if (context == NULL || !context->params.embeddings) return 0;
    return (size_t)context->model->ops->embedding_width(context->context);
}

/* Normalizes; a vector of zeros stays as it is. */
static void write_vector(const weir_context *context, const float *from, size_t width,
                         weir_normalize normalize, float *out)
{
    double size = 0.0;
    if (context->info.pooling == WEIR_POOLING_RANK) normalize = WEIR_NORMALIZE_NONE;
    for (size_t i = 0; i < width; i++) {
        double value = (double)from[i];
        if (normalize == WEIR_NORMALIZE_L2)
            size += value * value;
        else if (fabs(value) > size)
            size = fabs(value);
    }
    if (normalize == WEIR_NORMALIZE_L2) size = sqrt(size);
    if (normalize == WEIR_NORMALIZE_NONE || size == 0.0) size = 1.0;
    for (size_t i = 0; i < width; i++) out[i] = (float)((double)from[i] / size);
}

/* The most tokens of one input: those of a pass and of a sequence. */
static size_t input_limit(const weir_context *context)
{
    int32_t limit =
        context->info.n_batch < context->info.n_ctx_seq ? context->info.n_batch : context->info.n_ctx_seq;
    return (size_t)limit;
}

static weir_status check_input(const weir_context *context, const int32_t *tokens, size_t n_tokens,
                               weir_error *error)
{
    if (n_tokens > input_limit(context))
        return weir__error_numbers(error, WEIR_INVALID, "n_tokens", (double)n_tokens, 1,
                                   (double)input_limit(context),
                                   "there are %zu tokens, and a text to embed may have %zu: the context's "
                                   "`n_batch`, or the cells of one sequence",
                                   n_tokens, input_limit(context));
    return weir__context_check_tokens(context, tokens, n_tokens, error);
}

/* check_input for each; the error names the input. */
static weir_status check_inputs(const weir_context *context, const weir_tokens *inputs, size_t n_inputs,
                                weir_error *error)
{
    if (n_inputs == 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "n_inputs", "there is nothing to embed");
    if (inputs == NULL) return weir__error_null(error, "inputs");
    for (size_t i = 0; i < n_inputs; i++) {
        weir_error detail;
        weir_status status = check_input(context, inputs[i].ids, inputs[i].n, &detail);
        if (status != WEIR_OK)
            return weir__error_wrap(error, &detail, status, "inputs", "`inputs[%zu]`: ", i);
    }
    return WEIR_OK;
}

/* ---- One text ------------------------------------------------------------------------------------- */

static void batch_add(weir_context *context, const int32_t *tokens, size_t n_tokens, int32_t seq)
{
    for (size_t i = 0; i < n_tokens; i++) weir__batch_add(&context->batch, tokens[i], (int32_t)i, seq, true);
}

weir_status weir_embed_decode(weir_context *context, const int32_t *tokens, size_t n_tokens, int32_t seq,
                              weir_error *error)
{
    weir_status status = check_embeds(context, error);
    if (status == WEIR_OK) status = weir__context_check_seq(context, seq, "seq", error);
    if (status == WEIR_OK) status = check_input(context, tokens, n_tokens, error);
    if (status == WEIR_OK) status = weir_sequence_remove(context, seq, -1, -1, error);
    if (status != WEIR_OK) return status;
    context->batch.n = 0;
    batch_add(context, tokens, n_tokens, seq);
    return weir__context_decode(context, error);
}

weir_status weir_embeddings(weir_context *context, int32_t seq, weir_normalize normalize, float *out,
                            size_t capacity, weir_error *error)
{
    weir_status status = check_embeds(context, error);
    if (status == WEIR_OK) status = weir__context_check_seq(context, seq, "seq", error);
    if (status == WEIR_OK) status = check_normalize(normalize, error);
    if (status != WEIR_OK) return status;
    size_t width = weir_embedding_width(context);
    if (out == NULL) return weir__error_null(error, "out");
    if (capacity < width)
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "an embedding has %zu floats, there is room for %zu", width, capacity);
    int32_t last = context->n_rows - 1;
    while (last >= 0 && context->batch.seq[last] != seq) last--;
    if (last < 0)
        return weir__error_set(error, WEIR_STATE, "seq",
                               "sequence %d was not in the last pass: call weir_embed_decode first", seq);
    const float *vector = context->model->ops->embedding(
        context->context, context->info.pooling == WEIR_POOLING_NONE ? last : -1, seq);
    if (vector == NULL)
        return weir__error_set(error, WEIR_BACKEND, "seq", "the backend has no embedding of sequence %d",
                               seq);
    write_vector(context, vector, width, normalize, out);
    return WEIR_OK;
}

/* ---- Many texts ----------------------------------------------------------------------------------- */

/* True if the next input can share the pass of those before it. llama.cpp splits a pass over lanes into parts
 * of equal length, and pools each sequence over its last part. So there, only texts of one length share a
 * pass. */
static bool joins_pass(const weir_context *context, const weir_tokens *inputs, size_t n)
{
    bool pools_parts =
        context->info.layout == WEIR_LAYOUT_PER_SLOT && context->info.pooling != WEIR_POOLING_NONE;
    return n < (size_t)context->info.n_seq_max &&
           inputs[n].n <= (size_t)(context->batch.capacity - context->batch.n) &&
           !(pools_parts && inputs[n].n != inputs[0].n);
}

/* Computes as many inputs as fit into one pass: *n_done of them, *n_written floats. */
static weir_status embed_some(weir_context *context, const weir_tokens *inputs, size_t n_inputs,
                              weir_normalize normalize, float *out, size_t *n_done, size_t *n_written,
                              weir_error *error)
{
    const weir__backend *ops = context->model->ops;
    size_t n = 0, width = weir_embedding_width(context), written = 0;
    weir__context_clear(context);
    context->batch.n = 0;
    while (n < n_inputs && joins_pass(context, inputs, n)) {
        batch_add(context, inputs[n].ids, inputs[n].n, (int32_t)n);
        n++;
    }
    weir_status status = weir__context_decode(context, error);
    if (status != WEIR_OK) return status;

    bool each = context->info.pooling == WEIR_POOLING_NONE;
    int32_t n_vectors = each ? context->n_rows : (int32_t)n;
    for (int32_t i = 0; i < n_vectors; i++, written += width) {
        const float *vector = ops->embedding(context->context, each ? i : -1, each ? 0 : i);
        if (vector == NULL)
            return weir__error_set(error, WEIR_BACKEND, NULL,
                                   "the backend gave no embedding for %s %d of the pass",
                                   each ? "token" : "text", i);
        write_vector(context, vector, width, normalize, out + written);
    }
    *n_done = n;
    *n_written = written;
    return WEIR_OK;
}

weir_status weir_embed(weir_context *context, const weir_tokens *inputs, size_t n_inputs,
                       weir_normalize normalize, float *out, size_t capacity, size_t *n_floats,
                       weir_error *error)
{
    weir_status status = check_embeds(context, error);
    if (status == WEIR_OK) status = check_normalize(normalize, error);
    if (status == WEIR_OK) status = check_inputs(context, inputs, n_inputs, error);
    if (status != WEIR_OK) return status;
    if (out == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "out", "`out` is NULL and capacity is %zu", capacity);

    size_t width = weir_embedding_width(context), need = 0;
    for (size_t i = 0; i < n_inputs; i++)
        need += context->info.pooling == WEIR_POOLING_NONE ? inputs[i].n * width : width;
    if (n_floats != NULL && need > capacity) *n_floats = need;
    if (need > capacity)
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "the embeddings have %zu floats, there is room for %zu", need, capacity);
    for (size_t i = 0, at = 0; i < n_inputs;) {
        size_t n_done = 0, n_written = 0;
        status =
            embed_some(context, inputs + i, n_inputs - i, normalize, out + at, &n_done, &n_written, error);
        if (status != WEIR_OK) return status;
        i += n_done;
        at += n_written;
    }
    if (n_floats != NULL) *n_floats = need;
    return WEIR_OK;
}
