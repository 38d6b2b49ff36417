/* model.c: a model that requests may name: its names and the defaults of their parameters. All that it has of
 * these is copied into blocks of its own, and constant, so calls that hold the model read it without a lock
 * while a reload puts another one in its place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "base/words.h"

/* ---- Copies ---- */

struct serve_block {
    struct serve_block *next;
    max_align_t bytes[];
};

/* A copy that the model owns; NULL: out of memory, or there was nothing to copy. */
static void *keep_bytes(serve_model *model, const void *from, size_t size, bool *ok)
{
    if (from == NULL || size == 0) return NULL;
    struct serve_block *block = weir__mem_alloc(sizeof *block + size);
    if (block == NULL) {
        *ok = false;
        return NULL;
    }
    block->next = model->blocks;
    model->blocks = block;
    memcpy(block->bytes, from, size);
    return block->bytes;
}

static const char *keep_string(serve_model *model, const char *from, bool *ok)
{
    return keep_bytes(model, from, from != NULL ? strlen(from) + 1 : 0, ok);
}

static const char *const *keep_strings(serve_model *model, const char *const *from, size_t n, bool *ok)
{
    const char **copies = keep_bytes(model, from, n * sizeof *from, ok);
    for (size_t i = 0; copies != NULL && i < n; i++) copies[i] = keep_string(model, from[i], ok);
    return copies;
}

static const weir_sampler_params *keep_sampler(serve_model *model, const weir_sampler_params *from, bool *ok)
{
    if (from == NULL) return NULL;
    weir_sampler_params sampler = *from;
    sampler.dry_breakers = keep_strings(model, from->dry_breakers, from->n_dry_breakers, ok);
    sampler.logit_bias =
        keep_bytes(model, from->logit_bias, from->n_logit_bias * sizeof *from->logit_bias, ok);
    sampler.order = keep_string(model, from->order, ok);
    sampler.grammar = keep_string(model, from->grammar, ok);
    sampler.grammar_root = keep_string(model, from->grammar_root, ok);
    sampler.json_schema = keep_string(model, from->json_schema, ok);
    return keep_bytes(model, &sampler, sizeof sampler, ok);
}

static const serve_adapter_params *keep_adapters(serve_model *model, const serve_model_params *params,
                                                 bool *ok)
{
    serve_adapter_params *copies =
        keep_bytes(model, params->adapters, params->n_adapters * sizeof *params->adapters, ok);
    for (size_t i = 0; copies != NULL && i < params->n_adapters; i++)
        copies[i].name = keep_string(model, params->adapters[i].name, ok);
    return copies;
}

/* ---- Files ---- */

static uint64_t bytes_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
}

/* Bytes of a model's file, of a split model those of all its files; 0: one is missing. */
static uint64_t bytes_of_files(const char *first)
{
    static const char tail[] = "-00001-of-00003.gguf";
    char path[4096];
    size_t n = strlen(first), n_tail = sizeof tail - 1;
    int number = 0, n_files = 0, used = 0;
    uint64_t sum = 0;
    bool split = n > n_tail && n < sizeof path &&
                 sscanf(first + n - n_tail, "-%5d-of-%5d.gguf%n", &number, &n_files, &used) == 2 &&
                 (size_t)used == n_tail && number == 1;
    if (!split) return bytes_of(first);
    for (int i = 1; i <= n_files; i++) {
        snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", (int)(n - n_tail), first, i, n_files);
        uint64_t bytes = bytes_of(path);
        if (bytes == 0) return 0; /* a part is missing; the name may promise any number of them */
        sum += bytes;
    }
    return sum;
}

/* ---- Life ---- */

serve_model *serve_model_create(const serve_model_params *params)
{
    serve_model *model = weir__mem_calloc(1, sizeof *model);
    bool ok = true;
    if (model == NULL) return NULL;
    serve_model_params *own = &model->params;
    *own = *params;
    atomic_init(&model->n_holders, 1);
    own->entry = NULL; /* the pool has its copy */
    own->adapters = keep_adapters(model, params, &ok);
    own->names = keep_strings(model, params->names, params->n_names, &ok);
    own->sampler = keep_sampler(model, params->sampler, &ok);
    own->template_source = keep_string(model, params->template_source, &ok);
    own->reasoning_budget = keep_string(model, params->reasoning_budget, &ok);
    own->system = keep_string(model, params->system, &ok);
    own->settings = keep_string(model, params->settings, &ok);
    if (ok && params->entry != NULL) model->name = keep_string(model, params->entry->name, &ok);
    if (params->entry != NULL) model->file_bytes = bytes_of_files(params->entry->path);
    if (ok) return model;
    serve_model_release(model);
    return NULL;
}

serve_model *serve_model_hold(serve_model *model)
{
    if (model != NULL) atomic_fetch_add_explicit(&model->n_holders, 1, memory_order_relaxed);
    return model;
}

void serve_model_release(serve_model *model)
{
    if (model == NULL || atomic_fetch_sub_explicit(&model->n_holders, 1, memory_order_acq_rel) > 1) return;
    for (struct serve_block *block = model->blocks, *next; block != NULL; block = next) {
        next = block->next;
        weir__mem_free(block);
    }
    weir__mem_free(model);
}

/* ---- Names ---- */

void serve_model_call(serve_model *model, const char *file_name)
{
    const serve_model_params *params = &model->params;
    weir__utf8_copy(model->file_name, sizeof model->file_name, file_name, strlen(file_name));
    model->name = model->file_name;
    for (size_t i = params->n_names; i > 0; i--)
        if (strcmp(params->names[i - 1], SERVE_ANY_NAME) != 0) model->name = params->names[i - 1];
}

bool serve_model_named(const serve_model *model, const char *name)
{
    if (name[0] != '\0' && strcmp(name, model->name) == 0) return true;
    if (name[0] != '\0' && strcmp(name, model->file_name) == 0) return true;
    return weir__words_have(model->params.names, model->params.n_names, name);
}

bool serve_model_has_adapter(const serve_model *model, const char *name)
{
    for (size_t i = 0; i < model->params.n_adapters; i++)
        if (strcmp(name, model->params.adapters[i].name) == 0) return true;
    return false;
}
