/* context.cpp: llama.cpp's contexts: made, estimated and freed. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A context is made with llama.cpp's parameters after checks of all that llama.cpp would only assert, and of
 * the memory it will need. An outline makes the same context without memory, to estimate it. */
#include "hook/hook.h"
#include "llama/guard.h"
#include "llama/internal.h"

/* Headers that llama.cpp does not install: the sizes of an outline, and of a model's heads. */
#include <../src/llama-context.h>
#include <../src/llama-model.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "base/cpu.h"
#include "base/error.h"
#include "base/largest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/words.h"
}

using weir::allocate;
using weir::capture;
using weir::guard;
using weir::refuse_memory;
using weir::refuse_unknown;

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
    const auto *c = static_cast<const weir__bcontext *>(user);
    return c->abort_fn != nullptr && c->abort_fn(c->abort_user);
}

void weir__llama_context_close(weir__bcontext *c)
{
    if (c->context != nullptr) weir__hook_detach(c->context);
    if (c->context != nullptr) llama_free(c->context);
    if (c->pool != nullptr) ggml_threadpool_free(c->pool);
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
    if (model->head && target == nullptr)
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                               "this model ('%s') only drafts for another model and cannot generate: pass it "
                               "as `draft_model` to an engine of that model",
                               model->architecture);
    if (model->encoder_only && !params->embeddings)
        return weir__error_set(error, WEIR_UNSUPPORTED, "embeddings", "this model computes embeddings only");
    if (model->encoder_decoder && !params->embeddings)
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                               "encoder-decoder models cannot generate yet");
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
    if (target != nullptr) p.ctx_other = target->context;
    if (target != nullptr && target->model == model) p.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
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
    if (wanted != nullptr && strcmp(wanted, "off") == 0) return false;
    if (wanted != nullptr && *wanted != '\0' && strcmp(wanted, "on") != 0)
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
    c->pool = room ? pool_create(n) : nullptr;
    if (c->pool == nullptr && n == 1)
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for a pool of threads");
    if (c->pool == nullptr)
        return weir__error_set(error, WEIR_NO_MEMORY, "n_threads", "cannot start %d threads; use fewer",
                               n - 1);
    llama_attach_threadpool(c->context, c->pool, nullptr);
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

static weir_status check_heads(const char *name, ggml_type type, uint32_t size, weir_error *error)
{
    if (size % ggml_blck_size(type) == 0) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, name,
                           "this model's heads of %u numbers do not fit into blocks of %s: give f16", size,
                           ggml_type_name(type));
}

/* Refuses types of KV cells that llama.cpp would refuse in terms of its own parameters. */
static weir_status check_types(const llama_model *model, const llama_context_params &p, weir_error *error)
{
    const bool flash = p.flash_attn_type != LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (ggml_is_quantized(p.type_v) && !flash)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "type_v",
                             "`type_v` is %s, which needs flash attention: give f16, or allow `flash_attn`",
                             ggml_type_name(p.type_v));
    if ((model->hparams.is_mla() || model->arch == LLM_ARCH_DEEPSEEK4) && p.type_k != p.type_v)
        return weir__error_of(error, WEIR_UNSUPPORTED, WEIR_ERROR_CONFLICT, "type_v",
                              "`type_v` is %s and `type_k` is %s; this model needs one type for both",
                              ggml_type_name(p.type_v), ggml_type_name(p.type_k));
    for (uint32_t i = 0; flash && i < model->hparams.n_layer(); i++) {
        weir_status status = check_heads("type_k", p.type_k, model->hparams.n_embd_head_k(i), error);
        if (status == WEIR_OK)
            status = check_heads("type_v", p.type_v, model->hparams.n_embd_head_v(i), error);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static weir_status create_context(llama_model *model, llama_context_params params, llama_context **context,
                                  weir_error *error)
{
    capture said;
    char what[120];
    std::snprintf(what, sizeof what, "a context of %u KV cells and passes of %u tokens", params.n_ctx,
                  params.n_ubatch);
    const weir_status fits = check_types(model, params, error);
    if (fits != WEIR_OK) return fits;
    const weir_status status = guard(error, WEIR_BACKEND, "the context cannot be made", [&] {
        *context = llama_init_from_model(model, params);
        if (*context != nullptr) return WEIR_OK;
        if (said.starved()) return WEIR_NO_MEMORY;
        return refuse_unknown(error, WEIR_BACKEND, nullptr, "the context cannot be made", said.length > 0);
    });
    if (status != WEIR_NO_MEMORY) return status;
    return refuse_memory(
        error, "n_ctx", said, what,
        "lower the length of the context, the slots or the batch, or give a smaller KV type or "
        "model");
}

weir_status weir__llama_context_bytes(const llama_context *context, uint64_t *memory, uint64_t *compute,
                                      weir_error *error)
{
    *memory = *compute = 0;
    return guard(error, WEIR_BACKEND, "the size of the context cannot be determined", [&] {
        for (const auto &[type, bytes] : context->memory_breakdown()) {
            *memory += bytes.context;
            *compute += bytes.compute;
        }
        return WEIR_OK;
    });
}

static bool make_rows(weir__bcontext *c)
{
    const auto n = static_cast<size_t>(c->n_batch);
    return allocate(c->ones, n) && allocate(c->seqs, n) && allocate(c->row_of, n);
}

weir_status weir__llama_context_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext **out,
                                     weir_context_info *info, weir_error *error)
{
    weir_status status = check_params(model, params, target, error);
    if (status != WEIR_OK) return status;
    weir__bcontext *c = nullptr;
    if (!allocate(c, 1)) return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for a context");
    c->model = model;
    c->embeddings = params->embeddings;
    c->unified = params->layout == WEIR_LAYOUT_UNIFIED;
    struct llama_context_params p = params_of(c, params, target);
    status = check_memory(model, params, &p, error);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&model->adapter_lock);
        status = create_context(model->model, p, &c->context, error);
        pthread_mutex_unlock(&model->adapter_lock);
    }
    if (status == WEIR_OK) status = start_pool(c, params, error);
    if (status == WEIR_OK)
        status = weir__llama_model_check(model, error); /* a context may have another connection */
    if (status != WEIR_OK) goto fail;

    c->has_memory = llama_get_memory(c->context) != nullptr;
    c->n_batch = (int32_t)llama_n_batch(c->context);
    c->n_seq_max = (int32_t)llama_n_seq_max(c->context);
    c->pooling = llama_pooling_type(c->context);
    c->width = c->pooling == LLAMA_POOLING_TYPE_RANK ? (int32_t)llama_model_n_cls_out(model->model)
                                                     : llama_model_n_embd_out(model->model);
    if (!make_rows(c)) {
        status =
            weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for batches of %d tokens", c->n_batch);
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
    return weir__llama_context_open(model, params, nullptr, out, info, error);
}

weir_status weir__llama_outline_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext *c, weir_error *error)
{
    weir_status status = check_params(model, params, target, error);
    if (status != WEIR_OK) return status;
    *c = weir__bcontext();
    c->model = model;
    c->embeddings = params->embeddings;
    c->unified = params->layout == WEIR_LAYOUT_UNIFIED;
    status = create_context(model->model, params_of(c, params, target), &c->context, error);
    if (status != WEIR_OK) return status;
    c->n_batch = (int32_t)llama_n_batch(c->context);
    c->n_seq_max = (int32_t)llama_n_seq_max(c->context);
    return WEIR_OK;
}

weir_status weir__llama_outline_bytes(const weir__bcontext *c, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error)
{
    weir_status status = weir__llama_context_bytes(c->context, kv_bytes, compute_bytes, error);
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
    weir_status status = weir__llama_outline_open(model, params, nullptr, &c, error);
    if (status != WEIR_OK) return status;
    status = weir__llama_outline_bytes(&c, params, kv_bytes, compute_bytes, error);
    fill_info(&c, info);
    llama_free(c.context);
    return status;
}
