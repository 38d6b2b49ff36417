/* context.c: the fake's passes and their rows.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row is made from a hash of all tokens before it, so that it tells whether the memory held what it should.
 * Batches are checked as strictly as the contract allows, and a misuse is remembered as a fault that tests
 * ask for. Embeddings are vectors made from the same hashes, pooled as llama.cpp pools them. */
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fake/internal.h"

#define ABORT_POLL_US 1000 /* how often a slow pass asks for an abort */

/* Context sizes are rounded up to it, as in llama.cpp. */
#define ROUND 256

/* Memory of a context per cell and sequence. */
#define ENTRY_BYTES 40

/* ---- Life ----------------------------------------------------------------------------------------- */

static void set_sizes(const weir__bmodel *model, const weir_context_params *params, weir_context_info *info)
{
    int32_t round = model->options.exact ? 1 : ROUND;
    int32_t wanted = params->n_ctx < INT32_MAX - ROUND ? params->n_ctx : INT32_MAX - ROUND;
    int32_t n_ctx = (wanted + round - 1) / round * round;
    int32_t n_ctx_seq = n_ctx;
    if (params->layout == WEIR_LAYOUT_PER_SLOT) {
        n_ctx_seq = (n_ctx / params->n_seq_max + round - 1) / round * round;
        n_ctx = n_ctx_seq * params->n_seq_max;
    }
    info->n_ctx = n_ctx;
    info->n_ctx_seq = n_ctx_seq;
    info->n_batch = params->n_batch < n_ctx ? params->n_batch : n_ctx;
    info->n_ubatch = params->n_ubatch < info->n_batch ? params->n_ubatch : info->n_batch;
    info->n_seq_max = params->n_seq_max;
    info->n_threads = params->n_threads;
    info->layout = params->layout;
    info->batch_invariant = true;
    info->pooling = params->pooling == WEIR_POOLING_UNSPECIFIED ? WEIR_POOLING_MEAN : params->pooling;
}

void weir__fake_context_free(weir__bcontext *context)
{
    if (context == NULL) return;
    if (context->rows != NULL) {
        weir__fake_clear(context);
        for (int32_t i = 0; i < context->info.n_batch; i++) weir__mem_free(context->rows[i].logits);
    }
    weir__mem_free(context->pooled);
    weir__mem_free(context->pools);
    weir__mem_free(context->vectors);
    weir__mem_free(context->row_of);
    weir__mem_free(context->rows);
    weir__mem_free(context->unused);
    weir__mem_free(context->refs);
    weir__mem_free(context->hashes);
    weir__mem_free(context->ints);
    pthread_mutex_destroy(&context->logits_lock);
    atomic_fetch_sub(&context->model->hooks.n_contexts, 1);
    weir__mem_free(context);
}

weir_status weir__fake_context_create(weir__bmodel *model, const weir_context_params *params,
                                      weir__bcontext **context, weir_context_info *info, weir_error *error)
{
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "vocab_only",
                               "the model was loaded with `vocab_only` and cannot compute");
    if (params->embeddings) weir__fake_wait(model->embedder_us);
    if (params->embeddings && atomic_fetch_sub(&model->failing_embedders, 1) > 0)
        return weir__error_set(error, WEIR_BACKEND, NULL, "the fake model fails to create this context");
    weir__bcontext *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL || pthread_mutex_init(&made->logits_lock, NULL) != 0) {
        weir__mem_free(made);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a context of the fake model");
    }
    made->model = model;
    made->embeddings = params->embeddings;
    atomic_fetch_add(&model->hooks.n_contexts, 1);
    set_sizes(model, params, &made->info);
    if (made->info.n_ctx_seq == 0) {
        weir__fake_context_free(made);
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "n_ctx",
                             "`n_ctx` is %d: too little for %d sequences", params->n_ctx, params->n_seq_max);
    }

    uint64_t available = weir__cpu_memory_available();
    if (available > 0 &&
        (uint64_t)made->info.n_ctx_seq * (uint64_t)made->info.n_seq_max > available / ENTRY_BYTES) {
        weir__fake_context_free(made);
        return weir__error_set(error, WEIR_NO_MEMORY, "n_ctx",
                               "there is not enough memory for %d KV cells; use fewer", params->n_ctx);
    }

    size_t n_seq = (size_t)made->info.n_seq_max, cap = (size_t)made->info.n_ctx_seq;
    size_t n_batch = (size_t)made->info.n_batch, n_ctx = (size_t)made->info.n_ctx;
    bool unified = made->info.layout == WEIR_LAYOUT_UNIFIED;
    made->ints = weir__mem_calloc(n_seq * cap, 3 * sizeof *made->ints);
    made->hashes = weir__mem_calloc(n_seq * cap, 2 * sizeof *made->hashes);
    made->refs = weir__mem_calloc(unified ? n_ctx : 1, sizeof *made->refs);
    made->unused = weir__mem_calloc(unified ? n_ctx : 1, sizeof *made->unused);
    made->row_of = weir__mem_calloc(n_batch, sizeof *made->row_of);
    made->vectors = weir__mem_calloc(made->embeddings ? n_batch : 1, WEIR__FAKE_WIDTH * sizeof(float));
    made->pools = weir__mem_calloc(n_seq, WEIR__FAKE_WIDTH * sizeof(float));
    made->pooled = weir__mem_calloc(n_seq, sizeof *made->pooled);
    if (made->ints != NULL && made->hashes != NULL && made->refs != NULL && made->unused != NULL &&
        made->row_of != NULL && made->vectors != NULL && made->pools != NULL && made->pooled != NULL)
        made->rows = weir__mem_calloc(n_batch, sizeof *made->rows);
    if (made->rows == NULL) {
        weir__fake_context_free(made);
        return weir__error_set(error, WEIR_NO_MEMORY, "n_ctx", "no memory for a context of %zu tokens",
                               n_ctx);
    }
    for (size_t i = 0; i < n_seq; i++) {
        made->seqs[i].token = made->ints + 3 * i * cap;
        made->seqs[i].pos = made->seqs[i].token + cap;
        made->seqs[i].cell = made->seqs[i].pos + cap;
        made->seqs[i].hash = made->hashes + 2 * i * cap;
        made->seqs[i].adapters = made->seqs[i].hash + cap;
    }
    weir__fake_clear(made);

    size_t size = info->size;
    *info = made->info;
    info->size = size;
    *context = made;
    return WEIR_OK;
}

/* ---- A pass --------------------------------------------------------------------------------------- */

static weir_status inject_fault(weir__bcontext *context, uint32_t bit, weir_error *error, const char *message)
{
    atomic_fetch_or(&context->model->hooks.faults, bit);
    return weir__error_set(error, WEIR_BACKEND, NULL, "the fake backend was misused: %s", message);
}

/* Checks positions and room; does not change the memory. */
static weir_status batch_check(weir__bcontext *context, const weir__batch *batch, bool cells,
                               weir_error *error)
{
    int32_t next[WEIR__SEQ_MAX], count[WEIR__SEQ_MAX];
    memset(count, 0, (size_t)context->info.n_seq_max * sizeof *count);
    bool lanes = context->info.layout == WEIR_LAYOUT_PER_SLOT, full = false;

    if (batch->n < 1 || batch->n > context->info.n_batch)
        return inject_fault(context, WEIR__FAKE_BAD_BATCH, error, "the batch is empty or over n_batch");
    for (int32_t i = 0; i < batch->n; i++) {
        int32_t seq = batch->seq[i];
        if (seq < 0 || seq >= context->info.n_seq_max)
            return inject_fault(context, WEIR__FAKE_BAD_BATCH, error, "no such sequence");
        if (cells ? batch->token[i] >= 0
                  : batch->token[i] < 0 || batch->token[i] >= context->model->options.n_vocab)
            return inject_fault(context, WEIR__FAKE_BAD_BATCH, error, "no such token");
        const weir__fake_seq *at = &context->seqs[seq];
        if (count[seq] == 0) next[seq] = at->n > 0 ? weir__fake_seq_next(at, at->n - 1) : 0;
        if (batch->pos[i] != next[seq])
            return inject_fault(context, WEIR__FAKE_BAD_POSITION, error,
                                "a position does not continue its sequence");
        next[seq] += cells ? weir__fake_cell_step(batch->token[i]) : 1;
        count[seq]++;
        if (context->seqs[seq].n + count[seq] > context->info.n_ctx_seq) full = true;
    }
    if (full || (!lanes && batch->n > context->n_unused))
        return weir__error_set(error, WEIR_NO_SPACE, NULL, "no KV cells are left for %d tokens", batch->n);
    return WEIR_OK;
}

static void vector_make(uint64_t hash, float *vector)
{
    for (int32_t i = 0; i < WEIR__FAKE_WIDTH; i++) vector[i] = weir__fake_logit(hash, -1, i);
}

/* Adds a token's vector to its sequence's pool. */
static void pool_add(weir__bcontext *context, int32_t seq, const float *vector)
{
    float *pool = context->pools + (size_t)seq * WEIR__FAKE_WIDTH;
    int32_t n = ++context->pooled[seq];
    for (int32_t i = 0; i < WEIR__FAKE_WIDTH; i++) {
        switch (context->info.pooling) {
        case WEIR_POOLING_CLS:
            if (n == 1) pool[i] = vector[i];
            break;
        case WEIR_POOLING_MEAN:
            pool[i] = n == 1 ? vector[i] : pool[i] + (vector[i] - pool[i]) / (float)n;
            break;
        default: pool[i] = vector[i];
        }
    }
}

/* The start of the part of a pass over which a sequence of `count` tokens is pooled. Lanes are computed in
 * parts of equal length, as in llama.cpp: 7, 8 and 7 tokens are three times 7, then once 1. */
static int32_t pool_start(const weir__bcontext *context, const int32_t *counts, int32_t count)
{
    int32_t start = 0;
    if (context->info.layout != WEIR_LAYOUT_PER_SLOT) return 0;
    for (int32_t i = 0; i < context->info.n_seq_max; i++)
        if (counts[i] < count && counts[i] > start) start = counts[i];
    return start;
}

static void vectors_make(weir__bcontext *context, const weir__batch *batch)
{
    int32_t counts[WEIR__SEQ_MAX] = {0}, seen[WEIR__SEQ_MAX] = {0};
    for (int32_t i = 0; i < batch->n; i++) counts[batch->seq[i]]++;
    for (int32_t i = 0; i < batch->n; i++) {
        int32_t id = batch->seq[i];
        const weir__fake_seq *seq = &context->seqs[id];
        float *vector = context->vectors + (size_t)i * WEIR__FAKE_WIDTH;
        vector_make(seq->hash[seq->n - counts[id] + seen[id]], vector);
        if (seen[id]++ >= pool_start(context, counts, counts[id])) pool_add(context, id, vector);
    }
}

static void row_make(weir__bcontext *context, int32_t i, const weir__fake_seq *seq)
{
    weir__bmodel *model = context->model;
    weir__fake_row *row = &context->rows[context->n_kept];
    context->row_of[i] = context->n_kept++;
    row->hash = seq->hash[seq->n - 1];
    row->filled = false;
    row->chosen = -1;
    if (model->hooks.next != NULL) {
        row->chosen = model->hooks.next(model->hooks.next_user, seq->token, seq->n);
        if (row->chosen >= model->options.n_vocab || row->chosen < -1) {
            atomic_fetch_or(&model->hooks.faults, WEIR__FAKE_BAD_NEXT);
            row->chosen = -1;
        }
    }
    if (row->chosen < 0) row->chosen = weir__fake_choose(model, row->hash);
}

static void log_add(weir__bcontext *context, const weir__batch *batch)
{
    weir__bmodel *model = context->model;
    if (!model->log_on || !weir__mem_grow(&model->log, &model->log_capacity, model->n_log + (size_t)batch->n,
                                          sizeof *model->log))
        return;
    for (int32_t i = 0; i < batch->n; i++)
        model->log[model->n_log++] = (weir__fake_entry){.pass = atomic_load(&model->hooks.n_passes),
                                                        .token = batch->token[i],
                                                        .pos = batch->pos[i],
                                                        .seq = batch->seq[i],
                                                        .logits = batch->logits[i] != 0};
}

void weir__fake_set_abort(weir__bcontext *context, bool (*fn)(void *user), void *user)
{
    context->abort = fn;
    context->abort_user = user;
}

static bool is_aborted(const weir__bcontext *context)
{
    return context->abort != NULL && context->abort(context->abort_user);
}

/* cells: the batch's tokens are cells of a segment. */
static weir_status run_pass(weir__bcontext *context, const weir__batch *batch, bool cells, weir_error *error)
{
    weir__fake *hooks = &context->model->hooks;
    context->n_kept = 0;
    context->n_entries = 0;
    memset(context->pooled, 0, (size_t)context->info.n_seq_max * sizeof *context->pooled);
    weir__fake_settle(context, NULL);

    if (hooks->before_decode != NULL) hooks->before_decode(hooks->before_decode_user, batch);
    weir_status status = batch_check(context, batch, cells, error);
    if (status == WEIR_OK) status = weir__fake_model_check(context->model, error);
    if (status != WEIR_OK) return status;

    if (weir__fake_fails(&hooks->fail_decode_at, &hooks->fail_decode_more)) {
        status = (weir_status)atomic_load(&hooks->fail_decode_status);
        int32_t keep = status == WEIR_NO_SPACE ? 0 : atomic_load(&hooks->fail_decode_keep);
        if (status == WEIR_NO_SPACE) weir__fake_slide_in_vain(context, batch);
        for (int32_t i = 0; i < keep && i < batch->n; i++)
            weir__fake_seq_append(context, batch->seq[i], batch->token[i], batch->pos[i], context->adapters);
        return weir__error_set(error, status, NULL, "the test asked for this pass to fail");
    }

    int64_t us = atomic_load(&hooks->tick_us) + atomic_load(&hooks->token_us) * batch->n;
    for (; us > 0 && !is_aborted(context); us -= ABORT_POLL_US)
        weir__fake_wait(us < ABORT_POLL_US ? us : ABORT_POLL_US);
    if (!weir__fake_has_windows(context, batch)) atomic_fetch_or(&hooks->faults, WEIR__FAKE_NO_WINDOW);
    weir__fake_slide(context, batch);
    for (int32_t i = 0; i < batch->n; i++) {
        if (is_aborted(context))
            return weir__error_set(error, WEIR_ABORTED, NULL, "the pass was interrupted");
        weir__fake_seq *seq = &context->seqs[batch->seq[i]];
        weir__fake_seq_append(context, batch->seq[i], batch->token[i], batch->pos[i], context->adapters);
        context->row_of[i] = -1;
        if (!context->embeddings && batch->logits[i] != 0) row_make(context, i, seq);
    }
    if (context->embeddings) vectors_make(context, batch);
    context->n_entries = batch->n;
    log_add(context, batch);
    atomic_fetch_add(&hooks->n_passes, 1);
    atomic_fetch_add(&hooks->n_tokens, (uint64_t)batch->n);
    atomic_fetch_add(&hooks->n_rows, (uint64_t)context->n_kept);
    return WEIR_OK;
}

weir_status weir__fake_decode(weir__bcontext *context, const weir__batch *batch, weir_error *error)
{
    return run_pass(context, batch, false, error);
}

int32_t weir__fake_cell_of(const weir__segment *segment, int32_t cell)
{
    const float *row = segment->embeddings + (size_t)cell * WEIR__FAKE_WIDTH;
    uint64_t hash = weir__hash((uint64_t)segment->causal, row, WEIR__FAKE_WIDTH * sizeof *row);
    int32_t next = cell + 1 < segment->n_cells ? weir__segment_step(segment, cell + 1) : segment->n_positions;
    return weir__fake_cell(hash, next - weir__segment_step(segment, cell));
}

weir_status weir__fake_decode_segment(weir__bcontext *context, const weir__batch *batch,
                                      const weir__slice *slice, weir_error *error)
{
    const weir__segment *segment = slice->segment;
    weir__batch own;
    context->n_kept = context->n_entries = 0;
    if (!segment->causal && batch->n > context->info.n_ubatch)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "`n_ubatch` is %d, and the segment has %d cells", context->info.n_ubatch,
                               batch->n);
    if (segment->embeddings == NULL || slice->first < 0 || slice->first + batch->n > segment->n_cells ||
        (!segment->causal && batch->n != segment->n_cells))
        return inject_fault(context, WEIR__FAKE_BAD_BATCH, error, "the segment has no such part");
    weir_status status = weir__batch_init(&own, batch->n, error);
    for (int32_t i = 0; i < batch->n && status == WEIR_OK; i++) {
        int32_t cell = slice->first + i;
        weir__batch_add(&own, weir__fake_cell_of(segment, cell),
                        slice->pos + weir__segment_step(segment, cell), batch->seq[i], batch->logits[i] != 0);
    }
    if (status == WEIR_OK) status = run_pass(context, &own, true, error);
    weir__batch_fini(&own);
    return status;
}

/* ---- Results -------------------------------------------------------------------------------------- */

void weir__fake_logits_ready(weir__bcontext *context)
{
    (void)context;
}

weir__fake_row *weir__fake_row_of(weir__bcontext *context, int32_t row)
{
    int32_t kept = -1;
    if (row == -1)
        kept = context->n_kept - 1;
    else if (row >= 0 && row < context->n_entries)
        kept = context->row_of[row];
    if (kept >= 0) return &context->rows[kept];
    atomic_fetch_or(&context->model->hooks.faults, WEIR__FAKE_BAD_ROW);
    return NULL;
}

const float *weir__fake_logits(weir__bcontext *context, int32_t row)
{
    weir__fake_row *from = weir__fake_row_of(context, row);
    if (from == NULL) return NULL;
    int32_t n_vocab = (int32_t)context->model->options.n_vocab;
    pthread_mutex_lock(&context->logits_lock);
    if (from->logits == NULL) from->logits = weir__mem_calloc((size_t)n_vocab, sizeof *from->logits);
    if (from->logits != NULL && !from->filled) {
        for (int32_t i = 0; i < n_vocab; i++) from->logits[i] = weir__fake_logit(from->hash, from->chosen, i);
        from->filled = true;
    }
    pthread_mutex_unlock(&context->logits_lock);
    return from->logits;
}

const float *weir__fake_embedding(weir__bcontext *context, int32_t row, int32_t seq)
{
    if (!context->embeddings) return NULL;
    if (row >= 0)
        return row < context->n_entries && context->info.pooling == WEIR_POOLING_NONE
                   ? context->vectors + (size_t)row * WEIR__FAKE_WIDTH
                   : NULL;
    bool none = context->info.pooling == WEIR_POOLING_NONE || context->pooled[seq] == 0;
    return none ? NULL : context->pools + (size_t)seq * WEIR__FAKE_WIDTH;
}

int32_t weir__fake_embedding_width(const weir__bcontext *context)
{
    return context->info.pooling == WEIR_POOLING_RANK ? 1 : WEIR__FAKE_WIDTH;
}

uint64_t weir__fake_cell_bytes(const weir__bmodel *model, weir_kv_type type_k, weir_kv_type type_v)
{
    /* one layer and one head; bytes per block of 32 values */
    static const uint64_t block[] = {64, 128, 64, 34, 18};
    (void)model;
    return (block[type_k] + block[type_v]) * WEIR__FAKE_WIDTH / 32;
}
