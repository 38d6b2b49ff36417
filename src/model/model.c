/* model.c: models: load, count, describe, quantize.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A path that begins with "fake:" belongs to the fake backend, any other path to llama.cpp. A load checks the
 * parameters, lets the backend read the file, and then loads the projector. Any thread may hold, release and
 * describe a model; the last release frees it. Parsed chat templates are kept for reuse under a lock of their
 * own, the most recently used first. The list of control tokens is made when it is first asked for: if two
 * threads make it at once, one of the two lists stays. Quantization writes a file beside `out` and renames it
 * when it is complete. */
#include "model/model.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/cpu.h"
#include "base/deep.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/member.h"
#include "params/members.h"

/* ---- Parsed chat templates ---- */

/* False: no memory. */
static bool init_templates(weir__chat_templates *templates)
{
    templates->n = 0;
    return pthread_mutex_init(&templates->lock, NULL) == 0;
}

/* False: no memory. */
static void fini_templates(weir__chat_templates *templates)
{
#ifndef WEIR_NO_LLAMA
    for (size_t i = 0; i < templates->n; i++) weir__chat_template_release(templates->at[i]);
#endif
    pthread_mutex_destroy(&templates->lock);
}

#ifndef WEIR_NO_LLAMA

/* The nesting of a source of this many bytes fits on any stack. */
#define SHORT_SOURCE 1024

static void run_destroy(void *parsed)
{
    weir__llama_template_destroy(parsed);
}

void weir__chat_template_release(weir__chat_template *t)
{
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1) return;
    /* Destruction recurses as deep as the expressions do. Without that stack the template leaks. */
    if (strlen(t->source) <= SHORT_SOURCE)
        weir__llama_template_destroy(t->parsed);
    else
        (void)weir__deep_run(run_destroy, t->parsed, WEIR__CHAT_STACK_GIVEN, NULL);
    weir__mem_free(t->source);
    weir__mem_free(t);
}

weir__chat_template *weir__chat_templates_find(weir__chat_templates *templates, const char *source)
{
    size_t i = 0;
    weir__chat_template *t = NULL;
    pthread_mutex_lock(&templates->lock);
    while (i < templates->n && strcmp(templates->at[i]->source, source) != 0) i++;
    if (i < templates->n) {
        t = templates->at[i];
        memmove(templates->at + 1, templates->at, i * sizeof *templates->at);
        templates->at[0] = t;
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&templates->lock);
    return t;
}

void weir__chat_templates_add(weir__chat_templates *templates, weir__chat_template *t)
{
    weir__chat_template *dropped = NULL;
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&templates->lock);
    if (templates->n == WEIR__CHAT_TEMPLATES) dropped = templates->at[--templates->n];
    memmove(templates->at + 1, templates->at, templates->n * sizeof *templates->at);
    templates->at[0] = t;
    templates->n++;
    pthread_mutex_unlock(&templates->lock);
    weir__chat_template_release(dropped);
}

#endif

/* ---- Models ---- */

static const char fake_prefix[] = "fake:";

const char *weir_version(void)
{
    return WEIR_VERSION;
}

void weir_model_params_init(weir_model_params *params, size_t size)
{
    weir__members_init(&weir__model_members, params, size);
}

/* True if the first n characters are HOST:PORT. */
static bool is_worker(const char *name, size_t n)
{
    const char *colon = memchr(name, ':', n);
    return colon != NULL && colon != name && weir__ascii_port(colon + 1, (size_t)(name + n - colon - 1)) != 0;
}

static weir_status check_workers(const char *list, weir_error *error)
{
    for (size_t n; list != NULL; list = list[n] == ',' ? list + n + 1 : NULL) {
        n = strcspn(list, ",");
        if (!is_worker(list, n))
            return weir__invalid(
                error, WEIR_ERROR_FORM, "rpc",
                "\"%.*s\" is not HOST:PORT; give the workers as HOST:PORT,…, with ports from 1 to 65535",
                n < 64 ? (int)n : 64, list);
    }
    return WEIR_OK;
}

weir_status weir__model_params_check(const weir_model_params *params, weir_error *error)
{
    weir_status status = weir__members_check(&weir__model_members, params, "", error);
    if (status != WEIR_OK) return status;
    if (params->n_tensor_split > WEIR__DEVICES_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_tensor_split", (double)params->n_tensor_split, 0,
                                 WEIR__DEVICES_MAX, "`n_tensor_split` is %zu", params->n_tensor_split);
    if (params->tensor_split == NULL && params->n_tensor_split > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tensor_split",
                             "`tensor_split` is NULL and `n_tensor_split` is %zu", params->n_tensor_split);
    for (size_t i = 0; i < params->n_tensor_split; i++)
        if (!isfinite(params->tensor_split[i]) || params->tensor_split[i] < 0.0f)
            return weir__error_range(error, WEIR_INVALID, "tensor_split", (double)params->tensor_split[i], 0,
                                     INFINITY, "`tensor_split[%zu]` is %g", i,
                                     (double)params->tensor_split[i]);
    if (params->rpc == NULL || *params->rpc == '\0') return WEIR_OK;
    status = weir__rpc_check(error);
    return status == WEIR_OK ? check_workers(params->rpc, error) : status;
}

/* States that were computed with other values do not fit. */
static uint64_t hash_attention(const weir_model_params *params)
{
    const weir_model_params plain = weir_model_params_default();
    bool same = true;
    double values[2][9];
    for (size_t i = 0; i < 2; i++) {
        const weir_model_params *p = i == 0 ? params : &plain;
        const double all[] = {p->flash_attn,      p->rope_scaling,    p->rope_freq_base,
                              p->rope_freq_scale, p->yarn_ext_factor, p->yarn_attn_factor,
                              p->yarn_beta_fast,  p->yarn_beta_slow,  p->yarn_orig_ctx};
        memcpy(values[i], all, sizeof all);
    }
    for (size_t i = 0; i < sizeof values[0] / sizeof values[0][0]; i++)
        same = same && values[0][i] == values[1][i];
    return same ? 0 : weir__hash(1, values[0], sizeof values[0]);
}

static weir_status check_path(const char *path, weir_error *error)
{
    if (path != NULL && *path != '\0') return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_MISSING, "path", "`path` is %s; give a GGUF file",
                         path == NULL ? "NULL" : "empty");
}

/* The backend that loads this path. UNSUPPORTED: this build has none. */
static weir_status backend_of(const char *path, const weir__backend **ops, weir_error *error)
{
    weir_status status = check_path(path, error);
    *ops = NULL;
    if (status != WEIR_OK) return status;
    if (strncmp(path, fake_prefix, sizeof fake_prefix - 1) == 0) *ops = &weir__backend_fake;
#ifndef WEIR_NO_LLAMA
    if (*ops == NULL) *ops = &weir__backend_llama;
#endif
    if (*ops != NULL) return WEIR_OK;
    weir__error_set(error, WEIR_UNSUPPORTED, "path",
                    "this build has no llama.cpp and loads no files; \"%.200s\" could only be a path that "
                    "begins with \"%s\"",
                    path, fake_prefix);
    return WEIR_UNSUPPORTED;
}

static void free_model(weir_model *model)
{
    fini_templates(&model->templates);
    weir__controls_free(atomic_load(&model->controls));
    if (model->projector != NULL) model->ops->projector_free(model->projector);
    if (model->model != NULL) model->ops->model_free(model->model);
    pthread_mutex_destroy(&model->encoding);
    weir__mem_free(model->path);
    weir__mem_free(model);
}

weir_status weir__model_controls(weir_model *model, const weir__controls **controls, weir_error *error)
{
    weir__controls *known = atomic_load_explicit(&model->controls, memory_order_acquire);
    if (known == NULL) {
        weir__controls *made = weir__controls_create(model->ops, model->model, model->info.n_vocab);
        if (made == NULL)
            return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the control tokens");
        if (atomic_compare_exchange_strong(&model->controls, &known, made))
            known = made;
        else
            weir__controls_free(made); /* another thread was first */
    }
    *controls = known;
    return WEIR_OK;
}

/* Errors of the projector's file name the parameter. */
static weir_status load_projector(weir_model *model, const char *path, bool outline, weir_error *error)
{
    weir_error why = {0};
    if (path == NULL || *path == '\0') return WEIR_OK;
    weir_status status =
        model->ops->projector_load(model->model, path, outline, weir__cpu_count(), &model->projector, &why);
    if (status != WEIR_OK) return weir__error_as(error, &why, status, "projector");
    model->ops->projector_describe(model->projector, &model->projector_info);
    model->info.reads_images = model->projector_info.images;
    model->info.reads_sounds = model->projector_info.sounds;
    model->info.sample_rate = model->projector_info.sample_rate;
    return WEIR_OK;
}

static weir_status load_model(const char *path, const weir_model_params *params, bool outline,
                              weir_model **model, weir_error *error)
{
    weir_model_params full = weir_model_params_default();
    weir_status status;
    if (model == NULL) return weir__error_null(error, "model");
    status = weir__sized_take(&full, sizeof full, params, "params", error);
    if (status == WEIR_OK) status = weir__model_params_check(&full, error);
    if (status != WEIR_OK) return status;

    const weir__backend *ops;
    status = backend_of(path, &ops, error);
    if (status != WEIR_OK) return status;

    weir_model *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL || !init_templates(&made->templates)) {
        weir__mem_free(made);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a model");
    }
    made->ops = ops;
    made->attention = hash_attention(&full);
    atomic_init(&made->refs, 1);
    atomic_init(&made->controls, NULL);
    pthread_mutex_init(&made->encoding, NULL);
    made->path = weir__mem_strdup(path);
    status = made->path == NULL ? weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a model")
                                : ops->model_load(path, &full, outline, &made->model, error);
    if (status == WEIR_OK) {
        made->info.size = sizeof made->info;
        ops->model_describe(made->model, &made->info);
        made->info.backend = ops->name;
        status = load_projector(made, full.projector, outline, error);
    }
    if (status != WEIR_OK) {
        free_model(made);
        return status;
    }
    *model = made;
    return WEIR_OK;
}

weir_status weir_model_load(const char *path, const weir_model_params *params, weir_model **model,
                            weir_error *error)
{
    return load_model(path, params, false, model, error);
}

weir_status weir_model_check(const weir_model *model, weir_error *error)
{
    if (model == NULL) return weir__error_null(error, "model");
    return model->ops->model_check(model->model, error);
}

weir_status weir__model_outline(const char *path, const weir_model_params *params, weir_model **model,
                                weir_error *error)
{
    return load_model(path, params, true, model, error);
}

/* Finds the backend of a model to optimize. */
static weir_status optimizer_of(const char *path, const char *file, const weir__backend **ops,
                                weir_error *error)
{
    weir_status status = backend_of(path, ops, error);
    if (status != WEIR_OK) return status;
    if (file != NULL && *file == '\0')
        return weir__invalid(error, WEIR_ERROR_MISSING, "optimized", "the optimized file's path is empty");
    if ((*ops)->model_optimize == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "%.200s has no weights", path);
    return WEIR_OK;
}

weir_status weir_model_optimize(const char *path, const char *out, weir_progress_fn progress,
                                void *progress_user, weir_error *error)
{
    const weir__backend *ops;
    weir_status status = optimizer_of(path, out, &ops, error);
    return status == WEIR_OK ? ops->model_optimize(path, out, progress, progress_user, error) : status;
}

weir_status weir_model_optimize_check(const char *path, const char *optimized, weir_progress_fn progress,
                                      void *progress_user, weir_error *error)
{
    const weir__backend *ops;
    weir_status status = optimizer_of(path, optimized, &ops, error);
    return status == WEIR_OK ? ops->model_optimize_check(path, optimized, progress, progress_user, error)
                             : status;
}

weir_model *weir_model_hold(weir_model *model)
{
    if (model != NULL) atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

void weir_model_release(weir_model *model)
{
    /* Other threads' use of the model happens before the last one frees it. */
    if (model == NULL || atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) > 1) return;
    free_model(model);
}

weir_status weir_model_describe(const weir_model *model, weir_model_info *info)
{
    if (model == NULL || info == NULL) return WEIR_INVALID;
    return weir__sized_give(info, &model->info, sizeof model->info, "info", NULL);
}

weir_status weir_model_meta(const weir_model *model, const char *key, char *text, size_t capacity,
                            size_t *length)
{
    if (model == NULL || key == NULL || (text == NULL && capacity > 0)) return WEIR_INVALID;
    int64_t n = model->ops->model_meta(model->model, key, text, capacity);
    if (n < 0) return WEIR_NOT_FOUND;
    if (length != NULL) *length = (size_t)n;
    return WEIR_OK;
}

weir_status weir_model_meta_key(const weir_model *model, size_t i, char *key, size_t capacity, size_t *length)
{
    if (model == NULL || (key == NULL && capacity > 0)) return WEIR_INVALID;
    int64_t n = model->ops->model_meta_key(model->model, i, key, capacity);
    if (n < 0) return WEIR_END;
    if (length != NULL) *length = (size_t)n;
    return WEIR_OK;
}

weir_status weir_model_weights_get(const weir_model *model, size_t i, weir_model_weights *weights)
{
    weir_model_weights full = {.size = sizeof full};
    if (model == NULL || weights == NULL) return WEIR_INVALID;
    weir_status status = model->ops->model_weights(model->model, i, &full);
    return status == WEIR_OK ? weir__sized_give(weights, &full, sizeof full, "weights", NULL) : status;
}

weir_status weir_device_get(size_t i, weir_device *device)
{
#ifdef WEIR_NO_LLAMA
    const weir__backend *ops = &weir__backend_fake;
#else
    const weir__backend *ops = &weir__backend_llama;
#endif
    weir_device full = {.size = sizeof full};
    if (device == NULL) return WEIR_INVALID;
    weir_status status = ops->device_get(i, &full);
    if (status == WEIR_OK && strcmp(full.type, "cpu") == 0) {
        uint64_t available = weir__cpu_memory_available();
        full.n_processors = weir__cpu_count();
        if (available > 0 && available < full.memory_free) full.memory_free = available;
    }
    return status == WEIR_OK ? weir__sized_give(device, &full, sizeof full, "device", NULL) : status;
}

/* ---- Quantization ---- */

#define TYPE_DEFAULT "Q8_0"

/* Types that need no importance matrix. */
static const char *const types[] = {
    "F32",    "BF16", "F16",  "Q8_0",   "Q6_K",   "Q5_K_M", "Q5_K_S", "Q5_1",   "Q5_0", "Q4_K_M",
    "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
};

void weir_quantize_params_init(weir_quantize_params *params, size_t size)
{
    weir__members_init(&weir__quantize_members, params, size);
    if (params != NULL && size > offsetof(weir_quantize_params, type)) params->type = TYPE_DEFAULT;
}

const char *weir_quantize_type(size_t i)
{
    return i < sizeof types / sizeof *types ? types[i] : NULL;
}

static weir_status check_quantization(const char *path, const char *out, weir_quantize_params *params,
                                      weir_error *error)
{
    struct stat from, to;
    const char *type = NULL, *wanted = params->type != NULL ? params->type : TYPE_DEFAULT;
    if (out == NULL || *out == '\0')
        return weir__invalid(error, WEIR_ERROR_MISSING, "out", "`out` is %s; give the file to write",
                             out == NULL ? "NULL" : "empty");
    weir_status status = weir__members_check(&weir__quantize_members, params, "", error);
    if (status != WEIR_OK) return status;
    for (size_t i = 0; weir_quantize_type(i) != NULL && type == NULL; i++)
        if (strcasecmp(weir_quantize_type(i), wanted) == 0) type = weir_quantize_type(i);
    if (type == NULL)
        return weir__invalid(error, WEIR_ERROR_UNKNOWN, "type",
                             "`type` is \"%.40s\"; allowed: %s, … (weir_quantize_type has them all)", wanted,
                             "Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0");
    bool exists = stat(out, &to) == 0;
    if (exists && !S_ISREG(to.st_mode)) /* the new file would take the place of a device */
        return weir__invalid(error, WEIR_ERROR_FORM, "out",
                             "`out` is not a regular file: name a file to write");
    if (exists && stat(path, &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "out",
                             "`out` is the model itself: write another file");
    params->type = type;
    if (params->n_threads == 0) params->n_threads = weir__cpu_count();
    return WEIR_OK;
}

weir_status weir_model_quantize(const char *path, const char *out, const weir_quantize_params *given,
                                weir_error *error)
{
    weir_quantize_params params = weir_quantize_params_default();
    const weir__backend *ops;
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = backend_of(path, &ops, error);
    if (status == WEIR_OK) status = check_quantization(path, out, &params, error);
    if (status != WEIR_OK) return status;
    if (ops->model_quantize == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "%.200s has no weights", path);
    size_t room = strlen(out) + 48;
    char *part = weir__mem_alloc(room);
    if (part == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a path");
    snprintf(part, room, "%s.%ld.part", out, (long)getpid());
    status = ops->model_quantize(path, part, &params, error);
    if (status == WEIR_OK && rename(part, out) != 0)
        status = weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out, strerror(errno));
    if (status != WEIR_OK) unlink(part);
    weir__mem_free(part);
    return status;
}
