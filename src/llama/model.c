/* model.c: llama.cpp's models and their vocabularies.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A load checks the file (gguf/), chooses devices and workers, fills in llama.cpp's parameters, and lets
 * buffers of weir's take the weights (hook/weights.cpp), mapped from an optimized file where there is one.
 * Then it reads once what other parts ask of a model: its kind, its special tokens, the length of the longest
 * piece. A mapped file that has changed meanwhile is found by its stamps. An outline has everything but the
 * weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/words.h"
#include "gguf/gguf.h"
#include "hook/hook.h"
#include "llama/internal.h"

/* ---- Metadata of a file --------------------------------------------------------------------------- */

static bool meta_is(const weir__bmodel *model, const char *name, const char *value)
{
    char key[128], text[32];
    snprintf(key, sizeof key, "%s.%s", model->architecture, name);
    return weir__llama_model_meta(model, key, text, sizeof text) > 0 && strcmp(text, value) == 0;
}

/* Derives properties that llama.h does not report from the architecture's name. */
static void classify_model(weir__bmodel *m)
{
    static const char *const without_memory[] = {
        "wavtokenizer-dec", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1"};
    static const char *const heads[] = {"eagle3", "dflash", "gemma4-assistant"};
    static const char *const with_positions[] = {"bert", "gpt2", "mpt", "starcoder"};
    bool no_memory =
        strstr(m->architecture, "bert") != NULL ||
        weir__words_have(without_memory, sizeof without_memory / sizeof *without_memory, m->architecture);
    m->head = weir__words_have(heads, sizeof heads / sizeof *heads, m->architecture);
    m->encoder_only = no_memory || (llama_model_has_encoder(m->model) && !llama_model_has_decoder(m->model));
    m->encoder_decoder = llama_model_has_encoder(m->model) && !m->encoder_only && !m->head;
    m->causal = !no_memory && !meta_is(m, "attention.causal", "false");
    enum llama_rope_type rope = llama_model_rope_type(m->model);
    m->m_rope = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    m->whole_sequences = llama_model_is_recurrent(m->model) || llama_model_is_hybrid(m->model);
    m->n_positions =
        weir__words_have(with_positions, sizeof with_positions / sizeof *with_positions, m->architecture)
            ? llama_model_n_ctx_train(m->model)
            : INT32_MAX;
}

/* "llama 134.5M Q4_1". llama_model_desc has the name of a size class instead, which differs from the number
 * of parameters. */
static void name_model(weir__bmodel *m)
{
    double n = (double)llama_model_n_params(m->model);
    snprintf(m->description, sizeof m->description, "%s %.1f%s %s", m->architecture,
             n / (n < 1e9 ? 1e6 : 1e9), n < 1e9 ? "M" : "B", llama_ftype_name(llama_model_ftype(m->model)));
}

static void fill_info(weir__bmodel *m)
{
    const struct llama_model *model = m->model;
    const struct llama_vocab *vocab = m->vocab;
    weir_model_info *info = &m->info;
    name_model(m);
    info->description = m->description;
    info->architecture = m->architecture;
    info->n_params = llama_model_n_params(model);
    info->n_bytes = llama_model_size(model);
    info->n_vocab = llama_vocab_n_tokens(vocab);
    info->n_ctx_train = llama_model_n_ctx_train(model);
    info->n_embd = llama_model_n_embd(model);
    info->n_embd_out = llama_model_n_embd_out(model);
    info->n_layer = llama_model_n_layer(model);
    if (info->n_layer > 0) { /* otherwise the next two abort */
        info->n_head = llama_model_n_head(model);
        info->n_head_kv = llama_model_n_head_kv(model);
    }
    info->n_swa = llama_model_n_swa(model);
    info->token_bos = llama_vocab_bos(vocab);
    info->token_eos = llama_vocab_eos(vocab);
    info->token_eot = llama_vocab_eot(vocab);
    info->token_nl = llama_vocab_nl(vocab);
    info->token_fim_prefix = llama_vocab_fim_pre(vocab);
    info->token_fim_suffix = llama_vocab_fim_suf(vocab);
    info->token_fim_middle = llama_vocab_fim_mid(vocab);
    info->token_fim_repo = llama_vocab_fim_rep(vocab);
    info->token_fim_file = llama_vocab_fim_sep(vocab);
    info->add_bos = llama_vocab_get_add_bos(vocab);
    info->add_eos = llama_vocab_get_add_eos(vocab);
    info->token_sep = llama_vocab_sep(vocab);
    info->add_sep = llama_vocab_get_add_sep(vocab);
    info->has_encoder = m->encoder_only || m->encoder_decoder;
    info->has_decoder = !m->encoder_only && !m->head;
    info->is_draft_head = m->head;
    info->ranks = meta_is(m, "pooling_type", "4"); /* LLAMA_POOLING_TYPE_RANK */
    info->n_layer_mtp = m->vocab_only ? 0 : weir__llama_mtp_layers(model);
    info->is_recurrent = llama_model_is_recurrent(model);
    info->is_hybrid = llama_model_is_hybrid(model);
    info->kernels = weir__hook_kernels();
}

/* The length of the longest piece; 0 = there is none. Only vocabularies whose tokens hold each byte of a text
 * have one: others drop some bytes, or make one unknown token of a whole word. */
static int32_t measure_pieces(const weir__bmodel *m)
{
    char kind[16];
    int32_t longest = 0;
    if (weir__llama_model_meta(m, "tokenizer.ggml.model", kind, sizeof kind) <= 0) return 0;
    if (strcmp(kind, "gpt2") != 0 && strcmp(kind, "llama") != 0) return 0;
    for (int32_t id = 0; id < m->info.n_vocab; id++) {
        int attributes = (int)llama_vocab_get_attr(m->vocab, id);
        if ((attributes & (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP)) != 0) return 0;
        /* The vocabulary's own text if it is longer: in some vocabularies other spaces count as spaces. */
        int32_t n = (int32_t)strlen(llama_vocab_get_text(m->vocab, id));
        int32_t n_piece = -weir__llama_piece(m, id, true, NULL, 0);
        if (n_piece > n) n = n_piece;
        if (n > longest) longest = n;
    }
    return longest;
}

/* Lists the tokens that samplers need. */
static weir_status list_tokens(weir__bmodel *m, weir_error *error)
{
    int32_t n_vocab = m->info.n_vocab;
    int32_t n_suppress = 0;
    const llama_token *suppress = llama_vocab_get_suppress_tokens(m->vocab, &n_suppress);
    for (int32_t id = 0; id < n_vocab; id++) m->n_eog += llama_vocab_is_eog(m->vocab, id);
    m->eog = weir__mem_calloc(m->n_eog, sizeof *m->eog);
    m->banned = weir__mem_calloc((size_t)n_suppress, sizeof *m->banned);
    if (m->eog == NULL || m->banned == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the model's lists of tokens");
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++)
        if (llama_vocab_is_eog(m->vocab, id)) m->eog[n++] = id;
    m->info.longest_piece = measure_pieces(m);
    for (int32_t i = 0; i < n_suppress; i++)
        if (suppress[i] >= 0 && suppress[i] < n_vocab)
            m->banned[m->n_banned++] = (weir_logit_bias){suppress[i], -INFINITY};
    return WEIR_OK;
}

/* ---- Load ----------------------------------------------------------------------------------------- */

/* One load. Owns split and optimized; the progress callback gets it. */
typedef struct loading {
    const char *path;
    const weir_model_params *params;
    bool outline; /* tensors get no memory */
    bool aborted; /* by the progress callback */
    weir__gguf_info file;
    float *split; /* [llama_max_devices()], NULL = llama.cpp's default */
    weir__optimized_file *optimized;
    struct llama_model_params how;
    ggml_backend_dev_t devices[WEIR__DEVICES_MAX + 1]; /* if `chosen`; ends with NULL */
    size_t n_devices;
    bool chosen; /* by name, by workers, or none at all; else llama.cpp chooses */
} loading;

static bool is_gpu(ggml_backend_dev_t device)
{
    enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

static bool has_gpu(void)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++)
        if (is_gpu(ggml_backend_dev_get(i))) return true;
    return false;
}

static bool on_progress(float done, void *user)
{
    loading *l = user;
    if (l->params->progress != NULL && !l->aborted && !l->params->progress(done, l->params->progress_user))
        l->aborted = true;
    return !l->aborted;
}

/* True if weights stay in the file's pages. */
static bool maps_file(const weir_model_params *params, bool outline)
{
    return params->use_mmap && !params->use_direct_io && !params->vocab_only && !outline;
}

/* Creates a model without its weights. NULL: no memory. */
static weir__bmodel *create_model(const weir_model_params *params, bool outline, weir_error *error)
{
    weir__bmodel *m = weir__mem_calloc(1, sizeof *m);
    if (m == NULL) goto no_model;
    if (pthread_mutex_init(&m->scratch_lock, NULL) != 0) goto no_lock;
    if (pthread_mutex_init(&m->adapter_lock, NULL) != 0) goto one_lock;
    m->grammars = weir__llama_grammars_create();
    if (maps_file(params, outline)) m->files = weir__stamps_create();
    if (m->grammars != NULL && (m->files != NULL || !maps_file(params, outline))) return m;
    weir__llama_grammars_destroy(m->grammars);
    weir__stamps_destroy(m->files);
    pthread_mutex_destroy(&m->adapter_lock);
one_lock:
    pthread_mutex_destroy(&m->scratch_lock);
no_lock:
    weir__mem_free(m);
no_model:
    weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a model");
    return NULL;
}

void weir__llama_model_free(weir__bmodel *model)
{
    if (model == NULL) return;
    weir__llama_scratch_free(model->scratch);
    weir__llama_grammars_destroy(model->grammars);
    weir__mem_free(model->banned);
    weir__mem_free(model->eog);
    if (model->model != NULL) llama_model_free(model->model);
    weir__llama_workers_close(model->workers);
    weir__stamps_destroy(model->files);
    pthread_mutex_destroy(&model->adapter_lock);
    pthread_mutex_destroy(&model->scratch_lock);
    weir__mem_free(model);
}

static weir_status add_device(loading *l, ggml_backend_dev_t device, weir_error *error)
{
    if (l->n_devices == WEIR__DEVICES_USED_MAX)
        return weir__error_numbers(error, WEIR_INVALID, "devices", NAN, 0, WEIR__DEVICES_USED_MAX,
                                   "the model would use more than %d devices", WEIR__DEVICES_USED_MAX);
    l->devices[l->n_devices++] = device;
    return WEIR_OK;
}

/* Workers come first, as in llama.cpp, and all local ones after them. */
static weir_status add_workers(loading *l, weir__bmodel *m, weir_error *error)
{
    const weir_model_params *p = l->params;
    weir_status status = weir__llama_workers_open(p->rpc, p->rpc_timeout_ms, &m->workers, error);
    if (status != WEIR_OK) return status;
    l->n_devices = weir__llama_workers_devices(m->workers, l->devices, WEIR__DEVICES_MAX);
    bool all = p->devices == NULL || *p->devices == '\0';
    for (size_t i = 0; all && status == WEIR_OK && i < ggml_backend_dev_count(); i++)
        if (is_gpu(ggml_backend_dev_get(i))) status = add_device(l, ggml_backend_dev_get(i), error);
    return status;
}

/* The devices that the parameters name. */
static weir_status choose_devices(loading *l, weir__bmodel *m, weir_error *error)
{
    const char *rest = l->params->devices;
    bool named = rest != NULL && *rest != '\0', remote = l->params->rpc != NULL && *l->params->rpc != '\0';
    l->chosen = named || remote;
    weir_status status = remote ? add_workers(l, m, error) : WEIR_OK;
    if (status != WEIR_OK || !named || strcmp(rest, "none") == 0) return status;
    for (;;) {
        char name[sizeof((weir_device *)0)->name];
        size_t length = strcspn(rest, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, rest);
        ggml_backend_dev_t device = ggml_backend_dev_by_name(name);
        if (device == NULL || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU)
            return weir__invalid(error, WEIR_ERROR_UNKNOWN, "devices",
                                 "`devices` names \"%.*s\"; expected: GPUs of this build and machine, or "
                                 "none, which uses the CPU alone",
                                 (int)(length < 64 ? length : 64), rest);
        status = add_device(l, device, error);
        if (status != WEIR_OK || rest[length] == '\0') return status;
        rest += length + 1;
    }
}

/* Decides how all contexts of the model compute attention. */
static void decide_attention(const weir_model_params *params, weir__bmodel *m)
{
    static const enum llama_flash_attn_type flash[] = {
        [WEIR_FLASH_ATTN_AUTO] = LLAMA_FLASH_ATTN_TYPE_AUTO,
        [WEIR_FLASH_ATTN_OFF] = LLAMA_FLASH_ATTN_TYPE_DISABLED,
        [WEIR_FLASH_ATTN_ON] = LLAMA_FLASH_ATTN_TYPE_ENABLED,
    };
    static const enum llama_rope_scaling_type scalings[] = {
        [WEIR_ROPE_MODEL] = LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
        [WEIR_ROPE_NONE] = LLAMA_ROPE_SCALING_TYPE_NONE,
        [WEIR_ROPE_LINEAR] = LLAMA_ROPE_SCALING_TYPE_LINEAR,
        [WEIR_ROPE_YARN] = LLAMA_ROPE_SCALING_TYPE_YARN,
    };
    struct llama_context_params *p = &m->attention;
    *p = llama_context_default_params();
    p->flash_attn_type = flash[params->flash_attn];
    p->rope_scaling_type = scalings[params->rope_scaling];
    p->rope_freq_base = params->rope_freq_base;
    p->rope_freq_scale = params->rope_freq_scale;
    p->yarn_ext_factor = params->yarn_ext_factor;
    p->yarn_attn_factor = params->yarn_attn_factor;
    p->yarn_beta_fast = params->yarn_beta_fast;
    p->yarn_beta_slow = params->yarn_beta_slow;
    p->yarn_orig_ctx = (uint32_t)params->yarn_orig_ctx;
}

static weir_status copy_split(loading *l, weir_error *error)
{
    size_t n = l->params->n_tensor_split, n_devices = llama_max_devices();
    if (n > n_devices)
        return weir__error_range(error, WEIR_INVALID, "n_tensor_split", (double)n, 0, (double)n_devices,
                                 "`n_tensor_split` is %zu", n);
    if (n == 0) return WEIR_OK;
    l->split = weir__mem_calloc(n_devices, sizeof *l->split);
    if (l->split == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the tensor split");
    memcpy(l->split, l->params->tensor_split, n * sizeof *l->split);
    return WEIR_OK;
}

/* Fills l->how. offloads: layers go to a GPU. */
static void decide_offload(loading *l, bool offloads)
{
    const weir_model_params *params = l->params;
    struct llama_model_params *p = &l->how;
    *p = llama_model_default_params();
    p->tensor_split = l->split;
    if (l->chosen) p->devices = l->devices;
    p->n_gpu_layers = params->n_gpu_layers;
    p->main_gpu = params->main_gpu;
    p->split_mode = params->split_mode == WEIR_SPLIT_NONE    ? LLAMA_SPLIT_MODE_NONE
                    : params->split_mode == WEIR_SPLIT_LAYER ? LLAMA_SPLIT_MODE_LAYER
                                                             : LLAMA_SPLIT_MODE_ROW;
    p->load_mode = params->use_direct_io                   ? LLAMA_LOAD_MODE_DIRECT_IO
                   : params->use_mmap && params->use_mlock ? LLAMA_LOAD_MODE_MMAP_MLOCK
                   : params->use_mmap                      ? LLAMA_LOAD_MODE_MMAP
                   : params->use_mlock                     ? LLAMA_LOAD_MODE_MLOCK
                                                           : LLAMA_LOAD_MODE_NONE;
    p->vocab_only = params->vocab_only;
    p->load_mtp = weir__llama_has_mtp(l->file.architecture);
    p->progress_callback = on_progress;
    p->progress_callback_user_data = l;
    p->no_host = !offloads; /* a GPU's host buffers would take precedence over weir's */
    if (l->outline) {       /* as in llama.cpp's own estimates: no mapping, no kernels */
        p->no_alloc = true;
        p->load_mode = LLAMA_LOAD_MODE_NONE;
        p->use_extra_bufts = false;
    }
}

static weir_status read_weights(loading *l, weir__bmodel *m, weir_error *error)
{
    bool mapped = l->how.load_mode == LLAMA_LOAD_MODE_MMAP;
    weir_status status = WEIR_OK;
    if (mapped && !l->how.vocab_only && !m->offloads)
        l->optimized = weir__llama_optimized_open(l->path, l->params->optimized, l->file.identity);
    if (l->optimized != NULL) status = weir__optimized_file_watch(l->optimized, m->files, error);
    if (status != WEIR_OK) return status;
    weir__hook_load how = {.mapped = mapped, .locked = l->params->use_mlock, .from = l->optimized};
    if (!weir__hook_begin(&how))
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the threads that pack weights");
    status = weir__llama_file_load(l->path, l->how, &m->model, error);
    m->info.n_bytes_kernels = weir__hook_end(m->model, &m->info.n_bytes_mapped);
    if (status != WEIR_OK)
        return l->aborted
                   ? weir__error_set(error, WEIR_ABORTED, "progress", "the progress callback ended the load")
                   : status;
    if (l->optimized != NULL && m->info.n_bytes_mapped < m->info.n_bytes_kernels)
        weir__log(WEIR_LOG_WARN,
                  "The optimized file of %.200s was written by another build of weir, and weights are packed "
                  "anew; `weir optimize` writes one that fits",
                  l->path);
    return WEIR_OK;
}

/* Fills in the members that are known once llama.cpp has the model. */
static weir_status describe_model(const loading *l, weir__bmodel *m, weir_error *error)
{
    m->vocab = llama_model_get_vocab(m->model);
    m->vocab_only = l->params->vocab_only;
    m->identity = l->file.identity;
    decide_attention(l->params, m);
    weir__llama_model_meta(m, "general.architecture", m->architecture, sizeof m->architecture);
    classify_model(m);
    weir_status status = weir__llama_template_text(m->model, &m->info.chat_template, error);
    if (status != WEIR_OK) return status;
    fill_info(m);
    m->info.fingerprint = l->file.fingerprint;
    return list_tokens(m, error);
}

weir_status weir__llama_model_load(const char *path, const weir_model_params *params, bool outline,
                                   weir__bmodel **out, weir_error *error)
{
    loading own = {.path = path, .params = params, .outline = outline}, *l = &own;
    weir__bmodel *m = NULL;
    weir_status status = weir__llama_start(error);
    if (status == WEIR_OK) status = copy_split(l, error);
    if (status == WEIR_OK && (m = create_model(params, outline, error)) == NULL) status = WEIR_NO_MEMORY;
    if (status == WEIR_OK) status = weir__gguf_check(l->path, m->files, &l->file, error);
    if (status == WEIR_OK) status = choose_devices(l, m, error);
    if (status != WEIR_OK) goto out;
    m->offloads = l->params->n_gpu_layers != 0 && (l->chosen ? l->n_devices > 0 : has_gpu());
    decide_offload(l, m->offloads);
    status = read_weights(l, m, error);
    if (status == WEIR_OK && m->files != NULL) status = weir__stamps_settle(m->files, error);
    if (status == WEIR_OK) status = weir__llama_model_check(m, error);
    if (status == WEIR_OK) status = describe_model(l, m, error);
    if (status != WEIR_OK) goto out;
    *out = m;
    m = NULL;
out:
    weir__optimized_file_close(l->optimized);
    weir__mem_free(l->split);
    weir__llama_model_free(m);
    return status;
}

/* ---- Information ---------------------------------------------------------------------------------- */

void weir__llama_model_describe(const weir__bmodel *model, weir_model_info *info)
{
    size_t size = info->size;
    const char *backend = info->backend;
    *info = model->info;
    info->size = size;
    info->backend = backend;
}

uint64_t weir__llama_model_identity(const weir__bmodel *model)
{
    return model->identity;
}

weir_status weir__llama_model_weights(const weir__bmodel *model, size_t i, weir_model_weights *weights)
{
    return weir__hook_weights(model->model, i, weights);
}

weir_status weir__llama_device_get(size_t i, weir_device *device)
{
    weir_status status = weir__llama_start(NULL);
    if (status != WEIR_OK) return status;
    if (i >= ggml_backend_dev_count()) return WEIR_END;
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(ggml_backend_dev_get(i), &props);
    static const char *const types[] = {
        [GGML_BACKEND_DEVICE_TYPE_CPU] = "cpu",
        [GGML_BACKEND_DEVICE_TYPE_GPU] = "gpu",
        [GGML_BACKEND_DEVICE_TYPE_IGPU] = "igpu",
        [GGML_BACKEND_DEVICE_TYPE_ACCEL] = "accel",
    };
    size_t type = (size_t)props.type;
    bool known = type < sizeof types / sizeof types[0] && types[type] != NULL;
    snprintf(device->name, sizeof device->name, "%s", props.name != NULL ? props.name : "");
    snprintf(device->description, sizeof device->description, "%s",
             props.description != NULL ? props.description : "");
    snprintf(device->type, sizeof device->type, "%s", known ? types[type] : "accel");
    device->memory_free = props.memory_free;
    device->memory_total = props.memory_total;
    return WEIR_OK;
}
