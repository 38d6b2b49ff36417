/* context.c: the low-level API: passes, rows, samples.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arguments are checked here, since llama.cpp only asserts them; a backend then gets a batch that it can
 * compute. A prefill that fails is undone: its sequence is cut back to the tokens that it had, or is empty
 * where memory cannot be cut. A batch that fails may leave some of its entries. Rows stay valid until the
 * next pass. All runs on the caller's thread, whose interrupt is asked before each pass, and by the backend
 * during it. */
#include "model/context.h"

#include <stddef.h>
#include <string.h>

#include "base/budget.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "model/adapter.h"
#include "model/sampler.h"
#include "params/members.h"

/* llama.cpp rounds sizes up in int32_t; this leaves room for that. */
#define SIZE_LIMIT (1 << 30)

/* The context of a model without a training length. */
#define CTX_DEFAULT 2048

void weir_context_params_init(weir_context_params *params, size_t size)
{
    weir__members_init(&weir__context_members, params, size);
}

/* ---- Life ----------------------------------------------------------------------------------------- */

/* Replaces values that mean a default. */
static void complete_params(const weir_model *model, weir_context_params *params)
{
    if (params->n_ctx == 0) params->n_ctx = model->info.n_ctx_train;
    if (params->n_ctx <= 0) params->n_ctx = CTX_DEFAULT;
    if (params->n_batch == 0) params->n_batch = params->n_ctx;
    /* an embedding needs its whole text in one micro-batch */
    if (params->n_ubatch > params->n_batch || params->embeddings) params->n_ubatch = params->n_batch;
    if (params->n_threads == 0) params->n_threads = weir__cpu_count();
    if (params->n_threads_batch == 0) params->n_threads_batch = params->n_threads;
    /* lanes are faster (ADR 0008), but texts to embed can share a pass over them only if they have equal
     * lengths */
    if (params->layout == WEIR_LAYOUT_AUTO)
        params->layout = params->embeddings ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
}

/* Passes call it, on the thread that computes. */
static bool is_interrupted(void *user)
{
    (void)user;
    return weir_interrupt_asked();
}

weir_status weir_context_create(weir_model *model, const weir_context_params *params, weir_context **context,
                                weir_error *error)
{
    weir_context_params full = weir_context_params_default();
    if (model == NULL) return weir__error_null(error, "model");
    if (context == NULL) return weir__error_null(error, "context");
    weir_status status = weir__sized_take(&full, sizeof full, params, "params", error);
    if (status == WEIR_OK) status = weir__members_check(&weir__context_members, &full, "", error);
    if (status != WEIR_OK) return status;
    if (!full.embeddings && !model->info.has_decoder)
        return weir__error_set(error, WEIR_UNSUPPORTED, "embeddings",
                               "this model cannot generate: set embeddings and use weir_embed");
    complete_params(model, &full);

    weir_context *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a context");
    made->model = weir_model_hold(model);
    made->params = full;
    made->info.size = sizeof made->info;
    status = model->ops->context_create(model->model, &full, &made->context, &made->info, error);
    if (status == WEIR_OK) status = weir__batch_init(&made->batch, made->info.n_batch, error);
    if (status != WEIR_OK) {
        weir_context_destroy(made);
        return status;
    }
    model->ops->set_abort(made->context, is_interrupted, NULL);
    *context = made;
    return WEIR_OK;
}

weir_status weir__context_estimate(const weir_model *model, const weir_context_params *params,
                                   weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes,
                                   weir_error *error)
{
    const weir__backend *ops = model->ops;
    weir__bcontext *made = NULL;
    if (ops->context_estimate != NULL)
        return ops->context_estimate(model->model, params, info, kv_bytes, compute_bytes, error);
    weir_status status = ops->context_create(model->model, params, &made, info, error);
    if (made != NULL) ops->context_free(made);
    *kv_bytes = (uint64_t)info->n_ctx * ops->cell_bytes(model->model, params->type_k, params->type_v);
    *compute_bytes = 0;
    return status;
}

weir_status weir_context_estimate(const weir_model *model, const weir_context_params *params,
                                  uint64_t *n_bytes, weir_error *error)
{
    weir_context_params full = weir_context_params_default();
    weir_context_info info = {.size = sizeof info};
    weir_model *outline = NULL;
    uint64_t kv_bytes = 0, compute_bytes = 0;
    if (model == NULL || n_bytes == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, model == NULL ? "model" : NULL, "a pointer is NULL");
    weir_status status = weir__sized_take(&full, sizeof full, params, "params", error);
    if (status == WEIR_OK) status = weir__members_check(&weir__context_members, &full, "", error);
    if (status == WEIR_OK) status = weir__model_outline(model->path, NULL, &outline, error);
    if (status != WEIR_OK) return status;
    complete_params(model, &full);
    status = weir__context_estimate(outline, &full, &info, &kv_bytes, &compute_bytes, error);
    weir_model_release(outline);
    if (status == WEIR_OK) *n_bytes = kv_bytes + compute_bytes;
    return status;
}

void weir_context_destroy(weir_context *context)
{
    if (context == NULL) return;
    weir_model *model = context->model;
    weir__batch_fini(&context->batch);
    if (context->context != NULL) model->ops->context_free(context->context);
    weir__adapters_fini(&context->adapters);
    weir__mem_free(context);
    weir_model_release(model);
}

weir_status weir_context_set_adapters(weir_context *context, const weir_adapter_use *uses, size_t n,
                                      weir_error *error)
{
    weir__adapters wanted;
    if (context == NULL) return weir__error_null(error, "context");
    weir_status status = weir__adapters_take(&wanted, context->model, uses, n, "", error);
    if (status != WEIR_OK) return status;
    status = weir__adapters_set(context->model, context->context, &context->adapters, &wanted, error);
    weir__adapters_fini(&wanted);
    return status;
}

weir_status weir_context_describe(const weir_context *context, weir_context_info *info)
{
    if (context == NULL || info == NULL) return WEIR_INVALID;
    return weir__sized_give(info, &context->info, sizeof context->info, "info", NULL);
}

void weir__context_clear(weir_context *context)
{
    context->model->ops->clear(context->context);
    context->n_rows = 0;
}

weir_status weir_context_clear(weir_context *context, weir_error *error)
{
    if (context == NULL) return weir__error_null(error, "context");
    weir__context_clear(context);
    return WEIR_OK;
}

/* ---- Checks --------------------------------------------------------------------------------------- */

weir_status weir__context_check_seq(const weir_context *context, int32_t seq, const char *field,
                                    weir_error *error)
{
    if (context == NULL) return weir__error_null(error, "context");
    if (seq >= 0 && seq < context->info.n_seq_max) return WEIR_OK;
    return weir__error_range(error, WEIR_INVALID, field, seq, 0, context->info.n_seq_max - 1, "`%s` is %d",
                             field, seq);
}

weir_status weir__context_check_tokens(const weir_context *context, const int32_t *tokens, size_t n_tokens,
                                       weir_error *error)
{
    if (n_tokens == 0) return weir__invalid(error, WEIR_ERROR_MISSING, "n_tokens", "there are no tokens");
    if (tokens == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and there are %zu",
                             n_tokens);
    for (size_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= context->model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "tokens", (double)tokens[i], 0,
                                     (double)(context->model->info.n_vocab - 1), "token %zu is %d", i,
                                     tokens[i]);
    return WEIR_OK;
}

static weir_status check_generates(const weir_context *context, weir_error *error)
{
    if (context == NULL) return weir__error_null(error, "context");
    if (!context->params.embeddings) return WEIR_OK;
    return weir__error_set(
        error, WEIR_STATE, "context",
        "the context was made for embeddings and has no logits: use weir_embed, or make one "
        "without `embeddings`");
}

static weir_status check_entries(const weir_context *context, const weir_batch_entry *entries,
                                 size_t n_entries, weir_error *error)
{
    int32_t next[WEIR__SEQ_MAX];
    bool seen[WEIR__SEQ_MAX] = {false};
    if (n_entries == 0 || n_entries > (size_t)context->info.n_batch)
        return weir__error_range(error, WEIR_INVALID, "n_entries", (double)n_entries, 1,
                                 context->info.n_batch, "`n_entries` is %zu, in a context with `n_batch` %d",
                                 n_entries, context->info.n_batch);
    if (entries == NULL) return weir__error_null(error, "entries");
    for (size_t i = 0; i < n_entries; i++) {
        const weir_batch_entry *entry = &entries[i];
        if (entry->seq < 0 || entry->seq >= context->info.n_seq_max)
            return weir__error_range(error, WEIR_INVALID, "seq", entry->seq, 0, context->info.n_seq_max - 1,
                                     "`entries[%zu].seq` is %d", i, entry->seq);
        if (entry->token < 0 || entry->token >= context->model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "token", (double)entry->token, 0,
                                     (double)(context->model->info.n_vocab - 1), "`entries[%zu].token` is %d",
                                     i, entry->token);
        if (!seen[entry->seq])
            next[entry->seq] = context->model->ops->seq_pos_max(context->context, entry->seq) + 1;
        seen[entry->seq] = true;
        if (entry->pos != next[entry->seq])
            return weir__invalid(error, WEIR_ERROR_CONFLICT, "pos",
                                 "`entries[%zu].pos` is %d; sequence %d continues at %d", i, entry->pos,
                                 entry->seq, next[entry->seq]);
        next[entry->seq]++;
    }
    return WEIR_OK;
}

/* ---- Passes --------------------------------------------------------------------------------------- */

weir_status weir__context_decode(weir_context *context, weir_error *error)
{
    const weir__backend *ops = context->model->ops;
    context->n_rows = 0;
    /* not every backend asks during a pass */
    if (weir_interrupt_asked()) return weir__interrupt_error(error);
    weir_status status = ops->decode(context->context, &context->batch, error);
    if (status == WEIR_ABORTED) return weir__interrupt_error(error);
    if (status != WEIR_OK) return status;
    ops->logits_ready(context->context);
    context->n_rows = context->batch.n;
    return WEIR_OK;
}

/* Cuts a sequence back to its first n tokens after a failure. If the memory cannot be cut, the sequence is
 * lost, and the error says so. */
static weir_status cut_back(weir_context *context, int32_t seq, int32_t n, weir_status status,
                            weir_error *error)
{
    const weir__backend *ops = context->model->ops;
    if (ops->seq_remove(context->context, seq, n, -1)) return status;
    ops->seq_remove(context->context, seq, 0, -1);
    if (error == NULL) return status;
    return weir__error_wrap(error, error, status, error->field,
                            "sequence %d is empty now, since this model's memory cannot be cut: ", seq);
}

weir_status weir_prefill(weir_context *context, const int32_t *tokens, size_t n_tokens, int32_t seq,
                         int32_t *n_past, weir_error *error)
{
    weir_status status = check_generates(context, error);
    if (status == WEIR_OK) status = weir__context_check_seq(context, seq, "seq", error);
    if (status != WEIR_OK) return status;
    int32_t start = context->model->ops->seq_pos_max(context->context, seq) + 1;
    int32_t room = context->info.n_ctx_seq - start;
    if (n_tokens > (size_t)(room > 0 ? room : 0))
        return weir__error_set(
            error, WEIR_TOO_LONG, "n_tokens",
            "%zu tokens do not fit behind the %d that sequence %d has: it holds at most %d", n_tokens, start,
            seq, context->info.n_ctx_seq);
    status = weir__context_check_tokens(context, tokens, n_tokens, error);
    if (status != WEIR_OK) return status;

    for (size_t done = 0; done < n_tokens;) {
        context->batch.n = 0;
        while (context->batch.n < context->batch.capacity && done < n_tokens) {
            weir__batch_add(&context->batch, tokens[done], start + (int32_t)done, seq, done + 1 == n_tokens);
            done++;
        }
        status = weir__context_decode(context, error);
        if (status != WEIR_OK) return cut_back(context, seq, start, status, error);
    }
    if (n_past != NULL) *n_past = start + (int32_t)n_tokens;
    return WEIR_OK;
}

weir_status weir_batch_eval(weir_context *context, const weir_batch_entry *entries, size_t n_entries,
                            weir_error *error)
{
    weir_status status = check_generates(context, error);
    if (status == WEIR_OK) status = check_entries(context, entries, n_entries, error);
    if (status != WEIR_OK) return status;
    context->batch.n = 0;
    for (size_t i = 0; i < n_entries; i++)
        weir__batch_add(&context->batch, entries[i].token, entries[i].pos, entries[i].seq, entries[i].logits);
    return weir__context_decode(context, error);
}

weir_status weir_decode_token(weir_context *context, int32_t token, int32_t pos, int32_t seq,
                              weir_error *error)
{
    weir_batch_entry entry = {.token = token, .pos = pos, .seq = seq, .logits = true};
    return weir_batch_eval(context, &entry, 1, error);
}

/* ---- Rows ----------------------------------------------------------------------------------------- */

/* INVALID unless the last pass kept logits for entry `index`; -1: for any entry. */
static weir_status check_row(const weir_context *context, int32_t index, weir_error *error)
{
    if (context->n_rows == 0)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "index",
                             "there are no logits: run a pass first (a failed one leaves none)");
    if (index < -1 || index >= context->n_rows)
        return weir__error_numbers(error, WEIR_INVALID, "index", index, -1, context->n_rows - 1,
                                   "`index` is %d; the last pass had entries 0 to %d, and -1 is its last row",
                                   index, context->n_rows - 1);
    bool kept = index >= 0 && context->batch.logits[index] != 0;
    for (int32_t i = 0; i < context->n_rows && index == -1 && !kept; i++)
        kept = context->batch.logits[i] != 0;
    if (kept) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_CONFLICT, "index",
                         "`index` is %d: the last pass kept no logits for it; set the entry's `logits`",
                         index);
}

weir_status weir_logits(weir_context *context, int32_t index, const float **logits, weir_error *error)
{
    weir_status status = check_generates(context, error);
    if (status == WEIR_OK) status = check_row(context, index, error);
    if (status != WEIR_OK) return status;
    if (logits == NULL) return weir__error_null(error, "logits");
    const float *row = context->model->ops->logits(context->context, index);
    if (row == NULL)
        return weir__error_set(error, WEIR_BACKEND, NULL, "the backend cannot give the logits of row %d",
                               index);
    *logits = row;
    return WEIR_OK;
}

static weir_status check_sampler(const weir_sampler *sampler, const weir_context *context, weir_error *error)
{
    if (sampler == NULL) return weir__error_null(error, "sampler");
    if (sampler->model == context->model) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_CONFLICT, "sampler", "the sampler was made for another model");
}

weir_status weir_sample_at(weir_sampler *sampler, weir_context *context, int32_t index, int32_t *token,
                           weir_error *error)
{
    weir_status status = check_generates(context, error);
    if (status == WEIR_OK) status = check_sampler(sampler, context, error);
    if (status == WEIR_OK) status = check_row(context, index, error);
    if (status != WEIR_OK) return status;
    if (token == NULL) return weir__error_null(error, "token");
    int32_t chosen;
    status = context->model->ops->sample(sampler->chain, context->context, index, NULL, &chosen, error);
    if (status == WEIR_OK) *token = chosen;
    return status;
}

weir_status weir_sample(weir_sampler *sampler, weir_context *context, int32_t *token, weir_error *error)
{
    return weir_sample_at(sampler, context, -1, token, error);
}

weir_status weir_decode_batch(weir_context *context, const weir_batch_entry *entries, size_t n_entries,
                              weir_sampler *const *samplers, int32_t *sampled, weir_error *error)
{
    weir_status status = check_generates(context, error);
    if (status == WEIR_OK) status = check_entries(context, entries, n_entries, error);
    if (status != WEIR_OK) return status;
    if (sampled == NULL && samplers != NULL) return weir__error_null(error, "sampled");
    for (size_t i = 0; samplers != NULL && i < n_entries && status == WEIR_OK; i++)
        if (samplers[i] != NULL) status = check_sampler(samplers[i], context, error);
    if (status == WEIR_OK) status = weir_batch_eval(context, entries, n_entries, error);
    if (status != WEIR_OK) return status;

    for (size_t i = 0; i < n_entries && sampled != NULL; i++) sampled[i] = -1;
    for (size_t i = 0; i < n_entries && samplers != NULL; i++) {
        if (!entries[i].logits || samplers[i] == NULL) continue;
        status = weir_sample_at(samplers[i], context, (int32_t)i, &sampled[i], error);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}
