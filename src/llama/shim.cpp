/* shim.cpp: llama.cpp's start and log, and what throws of its models and contexts. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function calls one of llama.cpp's and turns exceptions and logged errors into a status, by guard.h.
 * Memory that ran out is noticed by a handler of operator new. */
#include "llama/shim.h"
#include "hook/hook.h"
#include "llama/guard.h"

/* Headers that llama.cpp does not install: llama.h has no pending copies and no hidden states. */
#include <../src/llama-context.h>
#include <../src/llama-ext.h>
#include <../src/llama-model.h>

#include <ggml-cpu.h>

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "gguf/gguf.h"
}

using weir::attempt;
using weir::capture;
using weir::guard;
using weir::refuse_memory;
using weir::refuse_unknown;

namespace
{
thread_local capture *current_capture = nullptr;
thread_local bool is_starving = false;

std::new_handler next_handler = nullptr;

/* Notes the failure and does what operator new does without a handler. */
void on_no_memory(void)
{
    is_starving = true;
    if (next_handler == nullptr) throw std::bad_alloc();
    next_handler();
}

pthread_once_t watching = PTHREAD_ONCE_INIT;

void watch_memory(void)
{
    next_handler = std::set_new_handler(on_no_memory);
}
} // namespace

weir::starving::starving() : before(is_starving)
{
    pthread_once(&watching, watch_memory);
    is_starving = false;
}

weir::starving::~starving()
{
    is_starving = is_starving || before;
}

bool weir::starving::is_known()
{
    return is_starving;
}

weir::capture::capture() : outer(current_capture)
{
    text[0] = '\0';
    current_capture = this;
}

weir::capture::~capture()
{
    current_capture = outer;
}

/* Drops the name of the logging function. */
void weir::capture::add(const char *line)
{
    std::size_t name = std::strspn(line, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (name > 0 && std::strncmp(line + name, ": ", 2) == 0) line += name + 2;
    std::size_t n = std::strlen(line);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (n == 0) return;
    if (length > 0 && length + 2 < sizeof text) {
        std::memcpy(text + length, "; ", 2);
        length += 2;
    }
    if (n > sizeof text - 1 - length) n = sizeof text - 1 - length;
    std::memcpy(text + length, line, n);
    length += n;
    text[length] = '\0';
}

bool weir::capture::starved() const
{
    static const char *const parts[] = {
        "failed to allocate",
        "unable to allocate",
        "failed to reserve",
        "insufficient memory",
        "out of memory",
        "Cannot allocate memory", /* errno's */
        "Out of memory",
        "OutOfDeviceMemory",
        "OutOfHostMemory",
        "memory allocation of",
        "failed to init ggml context",
        "failed to initialize ggml context",
        "failed to create ggml context",
        "bad_alloc",
    };
    for (const char *part : parts)
        if (says(part)) return true;
    return false;
}

unsigned long long weir::capture::starved_bytes() const
{
    const char *at;
    double mib;
    if ((at = std::strstr(text, "of size ")) != nullptr) return std::strtoull(at + 8, nullptr, 10);
    if ((at = std::strstr(text, "attempted to allocate ")) != nullptr)
        at += 22;
    else if ((at = std::strstr(text, "allocating ")) != nullptr)
        at += 11;
    mib = at != nullptr ? std::strtod(at, nullptr) : 0;
    return mib > 0 ? static_cast<unsigned long long>(mib * 1048576.0) : 0;
}

weir_status weir::refuse_memory(weir_error *error, const char *field, const capture &said, const char *what,
                                const char *advice)
{
    const unsigned long long bytes = said.starved_bytes();
    char size[80] = "";
    if (bytes > 0)
        std::snprintf(size, sizeof size, ", where an allocation of %llu %s failed",
                      bytes >= 1048576 ? bytes >> 20 : bytes, bytes >= 1048576 ? "MiB" : "bytes");
    return weir__error_set(error, WEIR_NO_MEMORY, field, "no memory for %s%s: %s", what, size, advice);
}

namespace
{

void on_log(ggml_log_level level, const char *text, void *user)
{
    (void)user;
    thread_local ggml_log_level continued = GGML_LOG_LEVEL_INFO;
    if (level == GGML_LOG_LEVEL_CONT) level = continued;
    continued = level;
    weir_log_level to = WEIR_LOG_INFO;
    if (level == GGML_LOG_LEVEL_DEBUG) to = WEIR_LOG_DEBUG;
    if (current_capture != nullptr) {
        if (current_capture->mute && level != GGML_LOG_LEVEL_ERROR) return;
        if (level == GGML_LOG_LEVEL_ERROR) current_capture->add(text);
        if (current_capture->watch != nullptr) current_capture->watch(text, current_capture->watch_user);
    } else {
        if (level == GGML_LOG_LEVEL_WARN) to = WEIR_LOG_WARN;
        if (level == GGML_LOG_LEVEL_ERROR) to = WEIR_LOG_ERROR;
    }
    weir__log(to, "%s", text);
}

pthread_once_t started = PTHREAD_ONCE_INIT;

void start_llama(void)
{
    llama_log_set(on_log, nullptr);
    llama_backend_init();
    weir__hook_install();
    weir::watch_tokenizing();
}

/* The instructions that ggml was compiled for and so needs. */
struct demand {
    int (*compiled)(void);
    weir__cpu_feature feature;
    const char *name;
};
const demand demands[] = {
    {ggml_cpu_has_avx2, WEIR__CPU_AVX2, "AVX2"},
    {ggml_cpu_has_fma, WEIR__CPU_FMA, "FMA"},
    {ggml_cpu_has_f16c, WEIR__CPU_F16C, "F16C"},
    {ggml_cpu_has_bmi2, WEIR__CPU_BMI2, "BMI2"},
    {ggml_cpu_has_avx512, WEIR__CPU_AVX512, "AVX-512"},
    {ggml_cpu_has_avx512_vbmi, WEIR__CPU_AVX512_VBMI, "AVX-512 VBMI"},
    {ggml_cpu_has_avx512_vnni, WEIR__CPU_AVX512_VNNI, "AVX-512 VNNI"},
    {ggml_cpu_has_avx512_bf16, WEIR__CPU_AVX512_BF16, "AVX-512 BF16"},
};

} // namespace

weir_status weir__shim_start(weir_error *error)
{
    uint32_t features = weir__cpu_features();
    for (const demand &d : demands)
        if (d.compiled() != 0 && (features & d.feature) == 0)
            return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                                   "this build of weir needs a processor with %s, which this one lacks; %s",
                                   d.name,
                                   d.feature < WEIR__CPU_AVX512
                                       ? "all that are called x86-64-v3 have it"
                                       : "it was built with GGML_NATIVE on another one, so build it without");
    pthread_once(&started, start_llama);
    return WEIR_OK;
}

/* ---- Model ---------------------------------------------------------------------------------------- */

/* Refuses options that the devices cannot serve; only llama.cpp knows which ones it uses. OK: none. */
static weir_status refuse_option(const capture &said, const llama_model_params &params, weir_error *error)
{
    static const char count[] = "available devices: ";
    const char *at = said.says("invalid value for main_gpu") ? std::strstr(said.text, count) : nullptr;
    const long n = at != nullptr ? std::strtol(at + sizeof count - 1, nullptr, 10) : 0;
    if (n > 0)
        return weir__error_range(error, WEIR_INVALID, "main_gpu", params.main_gpu, 0,
                                 static_cast<double>(n - 1), "`main_gpu` is %d, and there %s %ld device%s",
                                 params.main_gpu, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    if (said.says("does not support split buffers"))
        return weir__error_of(error, WEIR_UNSUPPORTED, WEIR_ERROR_CONFLICT, "split_mode",
                              "`split_mode` is row, and a device of the model cannot hold rows of a tensor: "
                              "give layer");
    return WEIR_OK;
}

weir_status weir__shim_model_load(const char *path, llama_model_params params, llama_model **model,
                                  weir_error *error)
{
    capture said;
    const weir_status status = guard(error, WEIR_BACKEND, "the model cannot be loaded", [&] {
        *model = llama_model_load_from_file(path, params);
        return *model != nullptr ? WEIR_OK : said.starved() ? WEIR_NO_MEMORY : WEIR_FORMAT;
    });
    if (status == WEIR_FORMAT) {
        const weir_status refused = refuse_option(said, params, error);
        return refused != WEIR_OK ? refused : weir__gguf_refused(path, said.text, "cannot be loaded", error);
    }
    if (status != WEIR_NO_MEMORY) return status;
    return refuse_memory(error, "path", said, "the model's weights",
                         params.no_host
                             ? "free memory, or give a smaller model or one in a smaller quantization"
                             : "give the GPU fewer layers, free memory, or give a smaller model or one in "
                               "a smaller quantization");
}

weir_status weir__shim_template_text(const llama_model *model, const char **text, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the model's chat template cannot be read", [&] {
        *text = llama_model_chat_template(model, nullptr);
        return WEIR_OK;
    });
}

/* ---- Context -------------------------------------------------------------------------------------- */

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

weir_status weir__shim_context_create(llama_model *model, llama_context_params params,
                                      llama_context **context, weir_error *error)
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

weir_status weir__shim_context_bytes(const llama_context *context, uint64_t *memory, uint64_t *compute,
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

static const char pass_advice[] =
    "free memory, or start with fewer slots, threads or KV cells, or with a smaller batch";

weir_status weir__shim_decode(llama_context *context, llama_batch batch, bool encode, bool *began,
                              weir_error *error)
{
    *began = false;
    const weir_status status = guard(error, WEIR_BACKEND, "the pass failed", [&] {
        capture said;
        int32_t code = encode ? llama_encode(context, batch) : llama_decode(context, batch);
        *began = code != -1;
        switch (weir__hook_fault()) {
        case WEIR_OK: break;
        case WEIR_NO_MEMORY: return refuse_memory(error, nullptr, said, "attention", pass_advice);
        default:
            return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                                   "the model uses its weights in a way that weir's kernels do not know; set "
                                   "WEIR_KERNELS=off");
        }
        switch (code) {
        case 0: return WEIR_OK;
        case 1:
            return weir__error_set(error, WEIR_NO_SPACE, nullptr, "no KV cells are left for %d tokens",
                                   batch.n_tokens);
        case 2: return weir__error_set(error, WEIR_ABORTED, nullptr, "the pass was aborted");
        case -2: return refuse_memory(error, nullptr, said, "the pass", pass_advice);
        case -1:
            return weir__invalid(error, WEIR_ERROR_CONFLICT, "batch",
                                 "the batch is not sound: its positions contradict each other or the cells");
        default:
            if (said.starved()) return refuse_memory(error, nullptr, said, "the pass", pass_advice);
            weir__log(WEIR_LOG_ERROR, "a pass failed: %s",
                      said.length > 0 ? said.text : "llama.cpp gives no reason");
            return refuse_unknown(error, WEIR_BACKEND, nullptr, "the pass failed", said.length > 0);
        }
    });
    /* Cells were taken for tokens that were not computed if an exception ended the pass. */
    if (status == WEIR_NO_MEMORY && llama_get_memory(context) != nullptr)
        for (int32_t i = 0; i < batch.n_tokens; i++)
            weir__shim_seq_remove(context, batch.seq_id[i][0], batch.pos[i], -1);
    return status;
}

weir_status weir__shim_outputs(llama_context *context, float **logits, float **embeddings, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the pass cannot be read", [&] {
        *logits = llama_get_logits(context);
        *embeddings = llama_get_embeddings(context);
        return WEIR_OK;
    });
}

const float *weir__shim_pooled(llama_context *context, int32_t seq)
{
    return attempt<const float *>(nullptr, [&] { return llama_get_embeddings_seq(context, seq); });
}

bool weir__shim_seq_remove(llama_context *context, int32_t seq, int32_t from, int32_t to)
{
    weir__hook_changes(context, seq, from);
    return attempt(false, [&] {
        llama_memory_t memory = llama_get_memory(context);
        bool removed = llama_memory_seq_rm(memory, seq, from, to);
        /* The next token comes into a hole before `from`, if there was one. */
        weir__hook_changes(context, seq, llama_memory_seq_pos_max(memory, seq) + 1);
        return removed;
    });
}

bool weir__shim_seq_copy(llama_context *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    weir__hook_changes(context, to_seq, 0);
    return attempt(false, [&] {
        llama_memory_t memory = llama_get_memory(context);
        llama_memory_seq_cp(memory, seq, to_seq, from, to);
        if (from <= 0) weir__hook_repeats(context, seq, to_seq, llama_memory_seq_pos_max(memory, to_seq) + 1);
        return true;
    });
}

void weir__shim_clear(llama_context *context)
{
    weir__hook_changes(context, -1, 0);
    attempt(false, [&] {
        llama_memory_clear(llama_get_memory(context), false);
        return true;
    });
}

void weir__shim_set_causal(llama_context *context, bool causal, pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    attempt(false, [&] {
        llama_set_causal_attn(context, causal);
        context->sched_reserve();
        return true;
    });
    pthread_mutex_unlock(lock);
}

weir_status weir__shim_flush(llama_context *context, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "pending copies failed", [&] {
        llama_synchronize(context);
        context->memory_update(false);
        return WEIR_OK;
    });
}

int32_t weir__shim_window_start(const llama_model *model, int32_t pos)
{
    const auto window = static_cast<int32_t>(model->hparams.n_swa);
    switch (model->hparams.swa_type) {
    case LLAMA_SWA_TYPE_CHUNKED: return pos / window * window;
    case LLAMA_SWA_TYPE_SYMMETRIC: return pos - window / 2;
    default: return pos - window + 1;
    }
}

namespace
{

llama_state_seq_flags flags_of(bool part)
{
    return part ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : LLAMA_STATE_SEQ_FLAGS_NONE;
}

} // namespace

size_t weir__shim_state_size(llama_context *context, int32_t seq, bool part)
{
    capture said;
    return attempt<size_t>(0, [&] { return llama_state_seq_get_size_ext(context, seq, flags_of(part)); });
}

size_t weir__shim_state_save(llama_context *context, int32_t seq, bool part, void *bytes, size_t capacity)
{
    capture said;
    return attempt<size_t>(0, [&] {
        return llama_state_seq_get_data_ext(context, static_cast<uint8_t *>(bytes), capacity, seq,
                                            flags_of(part));
    });
}

weir_status weir__shim_state_load(llama_context *context, int32_t seq, bool part, const void *bytes,
                                  size_t length, weir_error *error)
{
    weir__hook_changes(context, seq, 0);
    return guard(error, WEIR_FORMAT, "the state cannot be loaded", [&] {
        capture said;
        if (llama_state_seq_set_data_ext(context, static_cast<const uint8_t *>(bytes), length, seq,
                                         flags_of(part)) != 0)
            return WEIR_OK;
        if (said.says("available cells"))
            return weir__error_set(error, WEIR_NO_SPACE, nullptr,
                                   "the state cannot be loaded: no KV cells are left");
        return refuse_unknown(error, WEIR_FORMAT, "bytes", "the state cannot be loaded", said.length > 0);
    });
}

uint64_t weir__shim_recurrent_bytes(const llama_model *model)
{
    const llama_hparams &has = model->hparams;
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < has.n_layer(); layer++)
        n += llama_model_is_recurrent(model) || has.is_recr(layer) ? has.n_embd_r() + has.n_embd_s() : 0;
    return n * sizeof(float);
}

/* ---- Heads ---------------------------------------------------------------------------------------- */

int32_t weir__shim_mtp_layers(const llama_model *model)
{
    return attempt<int32_t>(0, [&] {
        /* Each graph asserts on tensors of its own; for these architectures they are known. */
        const llama_hparams &has = model->hparams;
        bool glm = model->arch == LLM_ARCH_GLM4_MOE, hy = model->arch == LLM_ARCH_HY_V3,
             deepseek = model->arch == LLM_ARCH_DEEPSEEK2;
        if ((!glm && !hy && !deepseek) || has.n_layer_nextn != 1) return 0;
        const llama_layer &layer = model->layers[has.n_layer()];
        const llama_layer_nextn &nextn = layer.nextn;
        bool heads = (layer.wqkv || (layer.wq && layer.wk && layer.wv)) &&
                     (glm || (layer.attn_q_norm && layer.attn_k_norm));
        bool low_rank = has.is_mla() && has.f_attn_temp_scale == 0.0f && has.n_lora_q > 0 && layer.wq_a &&
                        layer.attn_q_a_norm && layer.wq_b && layer.wkv_a_mqa && layer.attn_kv_a_norm &&
                        layer.wk_b && layer.wv_b;
        bool experts = layer.ffn_gate_inp && layer.ffn_down_exps &&
                       (layer.ffn_gate_up_exps || (layer.ffn_up_exps && layer.ffn_gate_exps));
        bool shared = layer.ffn_gate_shexp && layer.ffn_down_shexp && layer.ffn_up_shexp;
        bool dense = hy && !layer.ffn_gate_inp && layer.ffn_up && layer.ffn_gate && layer.ffn_down;
        bool whole = nextn.eh_proj && nextn.enorm && nextn.hnorm && layer.wo && layer.attn_norm &&
                     (glm ? layer.attn_post_norm : layer.ffn_norm) && (deepseek ? low_rank : heads) &&
                     ((experts && (glm || shared)) || dense) && has.n_layer() >= has.n_layer_dense_lead;
        return whole ? 1 : 0;
    });
}

namespace
{

/* True if the target's graph can return the inputs of its layers. */
bool keeps_layer_inputs(const llama_model *model)
{
    return model->arch == LLM_ARCH_LLAMA || model->arch == LLM_ARCH_QWEN3 ||
           model->arch == LLM_ARCH_QWEN3MOE || model->arch == LLM_ARCH_MINIMAX_M2;
}

/* True if the head's map of logits to tokens is valid. */
bool are_tokens(const ggml_tensor *d2t, int64_t n_vocab)
{
    std::vector<int64_t> ids(static_cast<std::size_t>(ggml_nelements(d2t)));
    ggml_backend_tensor_get(d2t, ids.data(), 0, ggml_nbytes(d2t));
    return std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id >= 0 && id < n_vocab; });
}

} // namespace

weir_status weir__shim_head_fits(const llama_model *head, const llama_model *target, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the head cannot be read", [&] {
        constexpr const char *field = "draft_model";
        int64_t n_embd = head->hparams.n_embd, n_vocab = head->vocab.n_tokens();
        int32_t n_layer = llama_model_n_layer(target);
        if (head->arch != LLM_ARCH_EAGLE3)
            return weir__error_set(error, WEIR_UNSUPPORTED, field,
                                   "heads of the kind '%s' are not known; EAGLE-3 is (eagle3)",
                                   head->arch_name().c_str());
        if (!keeps_layer_inputs(target))
            return weir__error_set(error, WEIR_UNSUPPORTED, field,
                                   "EAGLE-3 heads are for models of the architectures llama, qwen3, qwen3moe "
                                   "and minimax-m2; this one is %s",
                                   target->arch_name().c_str());
        if (static_cast<int64_t>(head->hparams.n_embd_inp_enc()) !=
            static_cast<int64_t>(head->target_layer_ids.size()) * llama_model_n_embd(target))
            return weir__invalid(
                error, WEIR_ERROR_CONFLICT, field,
                "the head reads hidden states of %u numbers and the model's have %d: it is for another one",
                head->hparams.n_embd_inp_enc() / static_cast<uint32_t>(head->target_layer_ids.size()),
                llama_model_n_embd(target));
        for (int32_t layer : head->target_layer_ids)
            if (layer < 0 || layer >= n_layer)
                return weir__error_set(
                    error, WEIR_UNSUPPORTED, field,
                    "the head reads what goes into layer %d, and the model has layers 0 to "
                    "%d: it is for another one",
                    layer, n_layer - 1);
        bool borrows = head->tok_embd == nullptr || head->output == nullptr;
        if (borrows && (target->hparams.n_embd != n_embd || target->vocab.n_tokens() != n_vocab))
            return weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                                 "the head uses the model's embeddings of tokens, which have %u numbers and "
                                 "%u tokens instead of %lld and %lld: it is for another one",
                                 target->hparams.n_embd, target->vocab.n_tokens(),
                                 static_cast<long long>(n_embd), static_cast<long long>(n_vocab));
        if (borrows && (target->tok_embd == nullptr || target->output == nullptr))
            return weir__error_set(error, WEIR_UNSUPPORTED, field,
                                   "the head uses the model's embeddings and output, and it has not both");
        if (llama_model_n_layer(head) != 1)
            return weir__error_set(error, WEIR_UNSUPPORTED, field, "the head has %d layers; allowed: 1",
                                   llama_model_n_layer(head));
        if (head->tok_embd != nullptr && head->tok_embd->ne[1] < n_vocab)
            return weir__error_set(
                error, WEIR_FORMAT, field, "the head has %lld tokens and embeddings of %lld",
                static_cast<long long>(n_vocab), static_cast<long long>(head->tok_embd->ne[1]));
        if (head->d2t != nullptr &&
            (head->d2t->type != GGML_TYPE_I64 || head->output == nullptr || !are_tokens(head->d2t, n_vocab)))
            return weir__error_set(error, WEIR_FORMAT, field,
                                   "the head's list of tokens (d2t) names some that do not exist");
        return WEIR_OK;
    });
}

int32_t weir__shim_head_taps(const llama_model *head, int32_t *layers, int32_t capacity)
{
    int32_t n = 0;
    for (int32_t layer : head->target_layer_ids)
        if (n < capacity) layers[n++] = layer;
    return n;
}

void weir__shim_keep_hidden(llama_context *context, bool on, bool masked)
{
    llama_set_embeddings_nextn(context, on, masked);
}

void weir__shim_keep_layer_input(llama_context *context, int32_t layer, bool on)
{
    llama_set_embeddings_layer_inp(context, static_cast<uint32_t>(layer), on);
}

weir_status weir__shim_plan(llama_context *context, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "passes cannot be planned", [&] {
        context->sched_reserve();
        return WEIR_OK;
    });
}

const float *weir__shim_hidden(llama_context *context)
{
    return attempt<const float *>(nullptr, [&] { return llama_get_embeddings_nextn(context); });
}

const float *weir__shim_layer_input(llama_context *context, int32_t layer)
{
    return attempt<const float *>(
        nullptr, [&] { return llama_get_embeddings_layer_inp(context, static_cast<uint32_t>(layer)); });
}
