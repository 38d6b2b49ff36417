/* context.c: llama.cpp's contexts: passes and rows.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A context is made with llama.cpp's parameters after checks of all that llama.cpp would only assert, and of
 * the memory it will need. A pass runs on a pool of threads of its own and returns before its rows are read;
 * the first question about a row waits for them. An outline makes the same context without memory, to
 * estimate it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/largest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/words.h"
#include "hook/hook.h"
#include "llama/internal.h"

/* ---- Context -------------------------------------------------------------------------------------- */

static enum ggml_type kv_type(weir_kv_type type)
{
    switch (type) {
    case WEIR_KV_F32: return GGML_TYPE_F32;
    case WEIR_KV_BF16: return GGML_TYPE_BF16;
    case WEIR_KV_Q8_0: return GGML_TYPE_Q8_0;
    case WEIR_KV_Q4_0: return GGML_TYPE_Q4_0;
    default: return GGML_TYPE_F16;
    }
}

/* The bytes of a cell in all layers, exact if these are equal. If their numbers of heads differ, the first
 * layer's counts; layers without KV (hybrid models, shared layers) and compressed KV (MLA) count like the
 * others, which is too much. */
uint64_t weir__llama_cell_bytes(const weir__bmodel *model, weir_kv_type type_k, weir_kv_type type_v)
{
    const weir_model_info *info = &model->info;
    if (info->is_recurrent || info->n_head <= 0 || model->encoder_only) return 0;
    int64_t head = info->n_embd / info->n_head;
    int64_t k = info->n_head_kv * weir__llama_meta_number(model, "attention.key_length", head);
    int64_t v = info->n_head_kv * weir__llama_meta_number(model, "attention.value_length", head);
    enum ggml_type tk = kv_type(type_k), tv = kv_type(type_v);
    uint64_t k_bytes = (uint64_t)k * ggml_type_size(tk) / (uint64_t)ggml_blck_size(tk);
    uint64_t v_bytes = (uint64_t)v * ggml_type_size(tv) / (uint64_t)ggml_blck_size(tv);
    return (uint64_t)info->n_layer * (k_bytes + v_bytes);
}

/* A thread pool saves starting and ending threads in each pass. After a pass its threads poll for a while
 * before they sleep (poll 1 of 100: 0.1 ms with scripts/llama.patch, some milliseconds without). */
static struct ggml_threadpool *pool_create(int32_t n_threads)
{
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    params.poll = 1;
    sigset_t before;
    weir__thread_quiet(&before);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    weir__thread_restore(&before);
    return pool;
}

static bool asks_abort(void *user)
{
    const weir__bcontext *c = user;
    return c->abort_fn != NULL && c->abort_fn(c->abort_user);
}

void weir__llama_context_close(weir__bcontext *c)
{
    if (c->context != NULL) weir__hook_detach(c->context);
    if (c->context != NULL) llama_free(c->context);
    if (c->pool != NULL) ggml_threadpool_free(c->pool);
    weir__mem_free(c->row_of);
    weir__mem_free(c->seqs);
    weir__mem_free(c->places);
    weir__mem_free(c->ones);
    weir__mem_free(c);
}

/* Checks conditions that llama.cpp would only assert. */
static weir_status check_params(const weir__bmodel *model, const weir_context_params *params,
                                const weir__bcontext *target, weir_error *error)
{
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "vocab_only",
                               "the model was loaded with `vocab_only` and cannot compute");
    if (model->head && target == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "this model ('%s') only drafts for another model and cannot generate: pass it "
                               "as `draft_model` to an engine of that model",
                               model->architecture);
    if (model->encoder_only && !params->embeddings)
        return weir__error_set(error, WEIR_UNSUPPORTED, "embeddings", "this model computes embeddings only");
    if (model->encoder_decoder && !params->embeddings)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "encoder-decoder models cannot generate yet");
    if (params->n_seq_max > 1 && strcmp(model->architecture, "plamo2") == 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, "n_seq_max",
                               "llama.cpp computes several sequences of a PLaMo 2 model wrongly; allowed: 1");
    if (params->n_threads < 1 || params->n_threads > WEIR__CPU_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_threads", (double)params->n_threads, 1,
                                 WEIR__CPU_MAX, "`n_threads` is %d", params->n_threads);
    if (params->n_threads_batch < 1 || params->n_threads_batch > WEIR__CPU_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_threads_batch", (double)params->n_threads_batch, 1,
                                 WEIR__CPU_MAX, "`n_threads_batch` is %d", params->n_threads_batch);
    if (params->n_seq_max < 1 || (size_t)params->n_seq_max > llama_max_parallel_sequences())
        return weir__error_range(error, WEIR_INVALID, "n_seq_max", (double)params->n_seq_max, 1,
                                 (double)llama_max_parallel_sequences(), "`n_seq_max` is %d",
                                 params->n_seq_max);
    if (params->embeddings && params->pooling == WEIR_POOLING_RANK &&
        weir__llama_meta_number(model, "pooling_type", -1) != LLAMA_POOLING_TYPE_RANK)
        return weir__error_set(error, WEIR_UNSUPPORTED, "pooling", "this model has no head that ranks");
    return WEIR_OK;
}

/* Rounds the batch to equal shares of the sequences: up, if that fits. When llama.cpp plans its memory, it
 * rounds a pass of all sequences up to equal shares, but not the rows that pooling reads, and aborts if the
 * two differ. */
static int64_t equal_shares(int64_t n_batch, int64_t n_seq_max, int64_t n_ctx)
{
    int64_t up = (n_batch + n_seq_max - 1) / n_seq_max * n_seq_max;
    return up <= n_ctx ? up : n_batch / n_seq_max * n_seq_max;
}

static struct llama_context_params params_of(weir__bcontext *c, const weir_context_params *params,
                                             const weir__bcontext *target)
{
    const weir__bmodel *model = c->model;
    struct llama_context_params p = model->attention;
    /* llama.cpp cuts n_batch to n_ctx before it rounds n_ctx; a batch must hold a token of each sequence. */
    int64_t n_ctx = (weir__max(params->n_ctx, params->n_seq_max) + 255) / 256 * 256;
    int64_t n_batch = weir__max(weir__min(params->n_batch, n_ctx), params->n_seq_max);
    bool at_once = params->embeddings || !model->causal;
    if (at_once) n_batch = equal_shares(n_batch, params->n_seq_max, n_ctx);
    p.n_ctx = (uint32_t)weir__min(n_ctx, INT32_MAX - 255);
    p.n_batch = (uint32_t)n_batch;
    p.n_ubatch = (uint32_t)(at_once ? n_batch : weir__max(params->n_ubatch, 1));
    p.n_seq_max = (uint32_t)params->n_seq_max;
    p.n_threads = params->n_threads;
    p.n_threads_batch = params->n_threads_batch;
    p.type_k = kv_type(params->type_k);
    p.type_v = kv_type(params->type_v);
    p.embeddings = params->embeddings;
    if (params->embeddings) p.pooling_type = (enum llama_pooling_type)params->pooling;
    p.kv_unified = c->unified;
    p.no_perf = true;
    p.abort_callback = asks_abort;
    p.abort_callback_data = c;
    if (target != NULL) p.ctx_other = target->context;
    if (target != NULL && target->model == model) p.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    return p;
}

/* Bytes per cell that llama.cpp needs beside K and V: position, sequences, where it is used. */
#define CELL_BOOK_BYTES 64

/* Scratch memory of the attention kernels if all cells of a lane are in use. */
static uint64_t scratch_bytes(const weir__bmodel *model, const weir_context_params *params, uint64_t lane)
{
    const weir_model_info *info = &model->info;
    if (info->is_recurrent || info->n_head_kv <= 0 || info->n_head < info->n_head_kv) return 0;
    int64_t size = weir__llama_meta_number(model, "attention.value_length", info->n_embd / info->n_head);
    return weir__hook_scratch(lane, info->n_head / info->n_head_kv, info->n_head_kv, size,
                              (int32_t)weir__max(params->n_threads, params->n_threads_batch));
}

/* Linux overcommits, and kills a process that uses more memory than there is. So a context that cannot fit is
 * refused first. */
static weir_status check_memory(const weir__bmodel *model, const weir_context_params *params,
                                const struct llama_context_params *p, weir_error *error)
{
    int32_t n_parts = p->ctx_type == LLAMA_CONTEXT_TYPE_MTP ? model->info.n_layer : 1; /* an MTP head has one
                                                                                        * layer */
    uint64_t lane = p->kv_unified ? p->n_ctx : (p->n_ctx / p->n_seq_max + 255) / 256 * 256;
    uint64_t cells = p->kv_unified ? lane : lane * p->n_seq_max;
    uint64_t each = CELL_BOOK_BYTES +
                    (model->offloads ? 0 : weir__llama_cell_bytes(model, params->type_k, params->type_v)) /
                        (uint64_t)n_parts;
    uint64_t available = weir__cpu_memory_available(), scratch = scratch_bytes(model, params, lane);
    if (available == 0 || (scratch <= available && cells <= (available - scratch) / each)) return WEIR_OK;
    return weir__error_set(
        error, WEIR_NO_MEMORY, "n_ctx",
        "%llu KV cells of %llu bytes, and %llu MiB for attention by %d threads, do not fit into the %llu MiB "
        "that are available; use fewer cells or threads, or a smaller KV type",
        (unsigned long long)cells, (unsigned long long)each, (unsigned long long)(scratch >> 20),
        (int)weir__max(p->n_threads, p->n_threads_batch), (unsigned long long)(available >> 20));
}

static bool kernels_attend(const weir__bcontext *c)
{
    return !c->model->offloads && weir__hook_attends(c->context);
}

/* Adapting is off for ggml's own attention, whose sums can depend on the number of threads (it divides the
 * cells of a single query among them), and on a GPU, where it matters little. */
static bool may_adapt(const weir__bcontext *c)
{
    const char *wanted = getenv("WEIR_ADAPT");
    if (wanted != NULL && strcmp(wanted, "off") == 0) return false;
    if (wanted != NULL && *wanted != '\0' && strcmp(wanted, "on") != 0)
        weir__log(WEIR_LOG_WARN, "WEIR_ADAPT is '%.40s'; expected: on or off. It is on", wanted);
    return kernels_attend(c);
}

/* Recurrent layers compute their rows one after another, on weir's kernels or ggml's. Those of these
 * architectures have been compared (tests/invariance_model_test.c), or have the same operations. */
static bool recurs_evenly(const weir__bmodel *model)
{
    static const char *const compared[] = {"falcon-h1", "granitehybrid", "jamba",    "lfm2",
                                           "lfm2moe",   "mamba",         "mamba2",   "nemotron_h",
                                           "qwen35",    "qwen35moe",     "qwen3next"};
    return weir__words_have(compared, sizeof compared / sizeof *compared, model->architecture);
}

static bool is_invariant(const weir__bcontext *c)
{
    const weir__bmodel *model = c->model;
    return (!model->info.is_recurrent ? kernels_attend(c)
                                      : !model->offloads && *weir__hook_kernels() != '\0') &&
           (!model->whole_sequences || recurs_evenly(model)) && weir__hook_multiplies(model->model);
}

static weir_status start_pool(weir__bcontext *c, const weir_context_params *params, weir_error *error)
{
    int32_t n = (int32_t)weir__max(params->n_threads, params->n_threads_batch);
    bool room = weir__thread_room(n - 1);
    c->pool = room ? pool_create(n) : NULL;
    if (c->pool == NULL && n == 1)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a pool of threads");
    if (c->pool == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "n_threads", "cannot start %d threads; use fewer",
                               n - 1);
    llama_attach_threadpool(c->context, c->pool, NULL);
    weir__hook_attach(c->context);
    weir__team_init(&c->teams[0], params->n_threads);
    weir__team_init(&c->teams[1], params->n_threads_batch);
    c->adapts = may_adapt(c);
    return WEIR_OK;
}

/* Fills in the members that an outline has, too; the others are those of a context that was made. */
static void fill_info(const weir__bcontext *c, weir_context_info *info)
{
    info->n_ctx = (int32_t)llama_n_ctx(c->context);
    info->n_ctx_seq = (int32_t)weir__min(llama_n_ctx_seq(c->context), c->model->n_positions);
    info->n_batch = c->n_batch;
    info->n_seq_max = c->n_seq_max;
    info->layout = c->unified ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
}

weir_status weir__llama_context_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext **out,
                                     weir_context_info *info, weir_error *error)
{
    weir_status status = check_params(model, params, target, error);
    if (status != WEIR_OK) return status;
    weir__bcontext *c = weir__mem_calloc(1, sizeof *c);
    if (c == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a context");
    c->model = model;
    c->embeddings = params->embeddings;
    c->unified = params->layout == WEIR_LAYOUT_UNIFIED;
    struct llama_context_params p = params_of(c, params, target);
    status = check_memory(model, params, &p, error);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&model->adapter_lock);
        status = weir__shim_context_create(model->model, p, &c->context, error);
        pthread_mutex_unlock(&model->adapter_lock);
    }
    if (status == WEIR_OK) status = start_pool(c, params, error);
    if (status == WEIR_OK)
        status = weir__llama_model_check(model, error); /* a context may have another connection */
    if (status != WEIR_OK) goto fail;

    c->has_memory = llama_get_memory(c->context) != NULL;
    c->n_batch = (int32_t)llama_n_batch(c->context);
    c->n_seq_max = (int32_t)llama_n_seq_max(c->context);
    c->pooling = llama_pooling_type(c->context);
    c->width = c->pooling == LLAMA_POOLING_TYPE_RANK ? (int32_t)llama_model_n_cls_out(model->model)
                                                     : llama_model_n_embd_out(model->model);
    c->ones = weir__mem_calloc((size_t)c->n_batch, sizeof *c->ones);
    c->seqs = weir__mem_calloc((size_t)c->n_batch, sizeof *c->seqs);
    c->row_of = weir__mem_calloc((size_t)c->n_batch, sizeof *c->row_of);
    if (c->ones == NULL || c->seqs == NULL || c->row_of == NULL) {
        status =
            weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for batches of %d tokens", c->n_batch);
        goto fail;
    }
    for (int32_t i = 0; i < c->n_batch; i++) c->ones[i] = 1;

    fill_info(c, info);
    info->n_ubatch = (int32_t)llama_n_ubatch(c->context);
    info->n_threads = params->n_threads;
    info->pooling = (weir_pooling)c->pooling;
    info->batch_invariant = is_invariant(c);
    info->attention_kernels = kernels_attend(c);
    *out = c;
    return WEIR_OK;

fail:
    weir__llama_context_close(c);
    return status;
}

weir_status weir__llama_context_create(weir__bmodel *model, const weir_context_params *params,
                                       weir__bcontext **out, weir_context_info *info, weir_error *error)
{
    return weir__llama_context_open(model, params, NULL, out, info, error);
}

weir_status weir__llama_outline_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext *c, weir_error *error)
{
    weir_status status = check_params(model, params, target, error);
    if (status != WEIR_OK) return status;
    *c = (weir__bcontext){
        .model = model,
        .embeddings = params->embeddings,
        .unified = params->layout == WEIR_LAYOUT_UNIFIED,
    };
    status = weir__shim_context_create(model->model, params_of(c, params, target), &c->context, error);
    if (status != WEIR_OK) return status;
    c->n_batch = (int32_t)llama_n_batch(c->context);
    c->n_seq_max = (int32_t)llama_n_seq_max(c->context);
    return WEIR_OK;
}

weir_status weir__llama_outline_bytes(const weir__bcontext *c, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error)
{
    weir_status status = weir__shim_context_bytes(c->context, kv_bytes, compute_bytes, error);
    *compute_bytes += scratch_bytes(c->model, params, (uint64_t)llama_n_ctx_seq(c->context));
    if (!params->embeddings)
        *compute_bytes += (uint64_t)c->n_seq_max * (uint64_t)c->model->info.n_vocab * sizeof(float);
    return status;
}

weir_status weir__llama_context_estimate(weir__bmodel *model, const weir_context_params *params,
                                         weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes,
                                         weir_error *error)
{
    weir__bcontext c;
    weir_status status = weir__llama_outline_open(model, params, NULL, &c, error);
    if (status != WEIR_OK) return status;
    status = weir__llama_outline_bytes(&c, params, kv_bytes, compute_bytes, error);
    fill_info(&c, info);
    llama_free(c.context);
    return status;
}

/* ---- Passes --------------------------------------------------------------------------------------- */

/* Notes that no copies between lanes are pending. */
static void end_copies(weir__bcontext *c)
{
    if (c->copy_pending) weir__hook_copied(c->context);
    c->copy_pending = false;
}

/* CPU time of this thread, ns; without waiting for other threads or a processor. 0: unknown. */
static int64_t run_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return 0;
    return t.tv_sec * WEIR__NS_PER_S + t.tv_nsec;
}

/* Waits for the pass, because a worker may be lost during it. */
static weir_status check_workers(weir__bcontext *c, weir_error *error)
{
    weir__llama_logits_ready(c);
    weir_status status = weir__llama_model_check(c->model, error);
    if (status != WEIR_OK) c->n_entries = c->n_rows = 0;
    return status;
}

/* token and embd: one is NULL, except for heads. */
/* NOLINTBEGIN(readability-non-const-parameter): llama_batch has no const */
static weir_status run_pass(weir__bcontext *c, const weir__batch *batch, int32_t *token, float *embd,
                            int32_t *pos, weir_error *error)
/* NOLINTEND(readability-non-const-parameter) */
{
    int32_t n_rows = 0;
    c->n_entries = c->n_rows = 0;
    c->settled = false;
    weir_status status = weir__llama_model_check(c->model, error);
    if (status != WEIR_OK) return status;
    for (int32_t i = 0; i < batch->n; i++) {
        bool kept = c->embeddings || batch->logits[i] != 0;
        c->row_of[i] = kept ? n_rows : -1;
        n_rows += kept;
        c->seqs[i] = &batch->seq[i];
    }
    struct llama_batch b = {
        .n_tokens = batch->n,
        .token = token,
        .embd = embd,
        .pos = pos,
        .n_seq_id = c->ones,
        .seq_id = c->seqs,
        .logits = c->embeddings ? NULL : batch->logits, /* NULL: all rows, for embeddings */
    };
    weir__team *team = &c->teams[c->embeddings || n_rows < batch->n];
    int32_t n_threads = weir__team_size(team, batch->n);
    int64_t ns = c->adapts ? -weir__clock_now_ns() : 0, ran_ns = c->adapts ? -run_ns() : 0;
    bool began;
    llama_set_n_threads(c->context, n_threads, n_threads);
    status =
        weir__shim_decode(c->context, b, c->model->encoder_only || c->model->encoder_decoder, &began, error);
    if (began) end_copies(c);
    if (status != WEIR_OK) { /* a lost worker or a changed file is the better reason */
        weir_status lost = weir__llama_model_check(c->model, error);
        return lost != WEIR_OK ? lost : status;
    }
    if (c->adapts) {
        int64_t now_ns = run_ns();
        bool known = ran_ns != 0 && now_ns != 0;
        ns += weir__clock_now_ns();
        weir__team_took(team, batch->n, ns, known ? weir__max(ns - (ran_ns + now_ns), 0) : 0);
    }
    c->n_entries = batch->n;
    c->n_rows = n_rows;
    return c->model->workers != NULL ? check_workers(c, error) : WEIR_OK;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): llama_batch has no const */
weir_status weir__llama_pass(weir__bcontext *c, const weir__batch *batch, float *embd, weir_error *error)
{
    return run_pass(c, batch, batch->token, embd, batch->pos, error);
}

/* Positions as llama.cpp wants them for embeddings: one for each cell, or with M-RoPE four lists. */
static void fill_places(weir__bcontext *c, int32_t n, const weir__slice *slice)
{
    const weir__segment *segment = slice->segment;
    for (int32_t i = 0; i < n; i++) {
        int32_t cell = slice->first + i, step = weir__segment_step(segment, cell);
        c->places[i] = slice->pos + step;
        if (!c->model->m_rope) continue;
        const weir__place *place = segment->places != NULL ? &segment->places[cell] : NULL;
        c->places[n + i] = slice->pos + (place != NULL ? place->y : step);
        c->places[2 * n + i] = slice->pos + (place != NULL ? place->x : step);
        c->places[3 * n + i] = place != NULL ? place->z : 0;
    }
}

weir_status weir__llama_pass_segment(weir__bcontext *c, const weir__batch *batch, const weir__slice *slice,
                                     weir_error *error)
{
    const weir__segment *segment = slice->segment;
    int32_t n_ubatch = (int32_t)llama_n_ubatch(c->context);
    c->n_entries = c->n_rows = 0;
    if (!segment->causal && batch->n > n_ubatch)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "an image or sound of %d tokens must be computed at once; `n_ubatch` is %d",
                               batch->n, n_ubatch);
    if (c->places == NULL) c->places = weir__mem_calloc((size_t)c->n_batch, 4 * sizeof *c->places);
    if (c->places == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for positions");
    fill_places(c, batch->n, slice);
    if (!segment->causal) weir__shim_set_causal(c->context, false, &c->model->adapter_lock);
    float *rows =
        segment->embeddings + (size_t)slice->first * (size_t)llama_model_n_embd_inp(c->model->model);
    weir_status status = run_pass(c, batch, NULL, rows, c->places, error);
    if (!segment->causal) weir__shim_set_causal(c->context, true, &c->model->adapter_lock);
    return status;
}

weir_status weir__llama_settle(weir__bcontext *c, weir_error *error)
{
    if (!c->copy_pending) return WEIR_OK;
    weir_status status = weir__shim_flush(c->context, error);
    if (status == WEIR_OK) end_copies(c);
    return status;
}

void weir__llama_set_abort(weir__bcontext *c, bool (*fn)(void *user), void *user)
{
    c->abort_fn = fn;
    c->abort_user = user;
}

/* Waits for the pass, and makes a row an address: llama.cpp is not called again until the next pass. */
void weir__llama_logits_ready(weir__bcontext *c)
{
    if (c->settled) return;
    c->settled = true;
    if (c->n_rows > 0 && weir__shim_outputs(c->context, &c->logits, &c->embedded, NULL) == WEIR_OK) return;
    c->logits = c->embedded = NULL;
    if (c->n_rows == 0) llama_synchronize(c->context);
}

/* -1: none. */
static int32_t find_row(weir__bcontext *c, int32_t row)
{
    weir__llama_logits_ready(c);
    if (row < 0) return c->n_rows - 1;
    return row < c->n_entries ? c->row_of[row] : -1;
}

const float *weir__llama_logits(weir__bcontext *c, int32_t row)
{
    int32_t i = find_row(c, row);
    return i >= 0 && c->logits != NULL ? c->logits + (size_t)i * (size_t)c->model->info.n_vocab : NULL;
}

const float *weir__llama_embedding(weir__bcontext *c, int32_t row, int32_t seq)
{
    if (!c->embeddings || c->n_rows == 0) return NULL;
    if (row < 0) return c->pooling == LLAMA_POOLING_TYPE_NONE ? NULL : weir__shim_pooled(c->context, seq);
    int32_t i = find_row(c, row);
    if (i < 0 || c->embedded == NULL || c->pooling != LLAMA_POOLING_TYPE_NONE) return NULL;
    return c->embedded + (size_t)i * (size_t)c->width;
}

int32_t weir__llama_embedding_width(const weir__bcontext *c)
{
    return c->width;
}
