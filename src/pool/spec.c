/* spec.c: copies a description with all that it points to, checks it, and makes a key that compares two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/spec.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/words.h"
#include "model/model.h"
#include "params/members.h"

#define ALIASES_MAX  64
#define ADAPTERS_MAX 64

struct weir__spec_block {
    weir__spec_block *next;
    max_align_t bytes[];
};

void weir_pool_model_init(weir_pool_model *model, size_t size)
{
    weir__members_init(&weir__pool_model_members, model, size);
}

/* ---- Copies ---- */

/* NULL: out of memory. */
static void *keep_bytes(weir__spec *spec, const void *bytes, size_t n)
{
    weir__spec_block *block = weir__mem_alloc(sizeof *block + n);
    if (block == NULL) return NULL;
    block->next = spec->blocks;
    spec->blocks = block;
    if (n > 0) memcpy(block->bytes, bytes, n);
    return block->bytes;
}

static bool keep_text(weir__spec *spec, const char **text)
{
    return *text == NULL || (*text = keep_bytes(spec, *text, strlen(*text) + 1)) != NULL;
}

static bool keep_list(weir__spec *spec, const char *const **list, size_t n)
{
    if (*list == NULL) return true;
    const char **own = keep_bytes(spec, *list, n * sizeof *own);
    if (own == NULL) return false;
    for (size_t i = 0; i < n; i++)
        if (!keep_text(spec, &own[i])) return false;
    *list = own;
    return true;
}

static bool keep_all(weir__spec *spec)
{
    weir_pool_model *given = &spec->given;
    weir_model_params *model = &spec->model;
    if (model->tensor_split != NULL)
        model->tensor_split =
            keep_bytes(spec, model->tensor_split, model->n_tensor_split * sizeof *model->tensor_split);
    return (model->tensor_split != NULL || model->n_tensor_split == 0) &&
           keep_text(spec, &model->optimized) && keep_text(spec, &model->projector) &&
           keep_text(spec, &model->devices) && keep_text(spec, &model->rpc) &&
           keep_text(spec, &given->name) && keep_text(spec, &given->path) &&
           keep_text(spec, &given->draft_path) && keep_text(spec, &given->template_source) &&
           keep_list(spec, &given->aliases, given->n_aliases) &&
           keep_list(spec, &given->adapters, given->n_adapters);
}

/* Adds everything that weir__members_key leaves out: lists of numbers, handles. */
static bool add_rest(const weir__spec *spec, weir__text *key)
{
    const weir_model_params *model = &spec->model;
    const weir_pool_model *given = &spec->given;
    weir_pool_model load = weir_pool_model_default(); /* with the members that a load depends on */
    load.path = given->path;
    load.draft_path = given->draft_path;
    load.template_source = given->template_source;
    load.adapters = given->adapters;
    load.n_adapters = given->n_adapters;
    return weir__members_key(&weir__pool_model_members, &load, key) &&
           weir__text_add(key, (const char *)&model->n_tensor_split, sizeof model->n_tensor_split) &&
           (model->tensor_split == NULL ||
            weir__text_add(key, (const char *)model->tensor_split,
                           model->n_tensor_split * sizeof *model->tensor_split)) &&
           weir__text_add(key, (const char *)&spec->engine.strategy, sizeof spec->engine.strategy);
}

static bool make_key(weir__spec *spec)
{
    weir__text key = {0};
    bool made = weir__members_key(&weir__model_members, &spec->model, &key) &&
                weir__members_key(&weir__engine_members, &spec->engine, &key) && add_rest(spec, &key);
    spec->key = key.bytes;
    spec->n_key = key.n;
    return made;
}

/* ---- Checks ---- */

static weir_status refuse_spec(const char *prefix, const char *member, weir_error_kind kind, const char *why,
                               weir_error *error)
{
    char field[64];
    int n = snprintf(field, sizeof field, "%s%s", prefix, member);
    (void)n; /* a longer one is cut */
    return weir__invalid(error, kind, field, "`%s` %s", member, why);
}

/* The error of a struct that the description points to. */
static weir_status refuse_within(const char *prefix, const char *member, const weir_error *why,
                                 weir_error *error)
{
    char field[sizeof error->field];
    snprintf(field, sizeof field, "%.20s%s.%.200s", prefix, member, why->field);
    return weir__error_as(error, why, WEIR_INVALID, field);
}

static weir_status check_name(const char *name, const char *prefix, const char *member, weir_error *error)
{
    if (name != NULL && *name != '\0' && strlen(name) <= WEIR_POOL_NAME_MAX) return WEIR_OK;
    return refuse_spec(prefix, member, WEIR_ERROR_MISSING, "is empty, or longer than 255 bytes; give a name",
                       error);
}

static weir_status check_lists(const weir_pool_model *given, const char *prefix, weir_error *error)
{
    if (given->n_aliases > ALIASES_MAX)
        return refuse_spec(prefix, "n_aliases", WEIR_ERROR_RANGE, "is above 64", error);
    if (given->n_adapters > ADAPTERS_MAX)
        return refuse_spec(prefix, "n_adapters", WEIR_ERROR_RANGE, "is above 64", error);
    if (given->aliases == NULL && given->n_aliases > 0)
        return refuse_spec(prefix, "aliases", WEIR_ERROR_MISSING, "is NULL", error);
    if (given->adapters == NULL && given->n_adapters > 0)
        return refuse_spec(prefix, "adapters", WEIR_ERROR_MISSING, "is NULL", error);
    for (size_t i = 0; i < given->n_aliases; i++)
        if (check_name(given->aliases[i], prefix, "aliases", error) != WEIR_OK) return WEIR_INVALID;
    for (size_t i = 0; i < given->n_adapters; i++)
        if (given->adapters[i] == NULL || *given->adapters[i] == '\0')
            return refuse_spec(prefix, "adapters", WEIR_ERROR_MISSING, "has an empty path", error);
    return WEIR_OK;
}

static weir_status check_spec(const weir__spec *spec, const char *prefix, weir_error *error)
{
    const weir_pool_model *given = &spec->given;
    const weir_engine_params *engine = &spec->engine;
    weir_error why = {0};
    weir_status status = weir__members_check(&weir__pool_model_members, given, prefix, error);
    if (status == WEIR_OK) status = check_name(given->name, prefix, "name", error);
    if (status == WEIR_OK) status = check_lists(given, prefix, error);
    if (status != WEIR_OK) return status;
    if (given->path == NULL || *given->path == '\0')
        return refuse_spec(prefix, "path", WEIR_ERROR_MISSING, "is empty; give a GGUF file", error);
    if (weir__model_params_check(&spec->model, &why) != WEIR_OK)
        return refuse_within(prefix, "model", &why, error);
    if (weir__members_check(&weir__engine_members, engine, "", &why) != WEIR_OK)
        return refuse_within(prefix, "engine", &why, error);
    if (spec->model.progress != NULL)
        return refuse_spec(prefix, "model.progress", WEIR_ERROR_CONFLICT,
                           "must be NULL: weir_pool_find has the progress", error);
    if (spec->model.vocab_only)
        return refuse_spec(prefix, "model.vocab_only", WEIR_ERROR_CONFLICT,
                           "must be false: engines need weights", error);
    if (engine->draft_model != NULL)
        return refuse_spec(prefix, "engine.draft_model", WEIR_ERROR_CONFLICT, "must be NULL: give draft_path",
                           error);
    if (engine->cache_dir != NULL)
        return refuse_spec(prefix, "engine.cache_dir", WEIR_ERROR_CONFLICT,
                           "must be NULL: the pool has the folder", error);
    if (engine->manual)
        return refuse_spec(prefix, "engine.manual", WEIR_ERROR_CONFLICT, "must be false", error);
    return WEIR_OK;
}

/* ---- Life ---- */

weir_status weir__spec_create(const weir_pool_model *given, const char *prefix, weir__spec **made,
                              weir_error *error)
{
    weir__spec *spec = weir__mem_calloc(1, sizeof *spec);
    weir_status status = WEIR_NO_MEMORY;
    if (spec == NULL) goto no_memory;
    atomic_init(&spec->refs, 1);
    spec->given = weir_pool_model_default();
    spec->model = weir_model_params_default();
    spec->engine = weir_engine_params_default();
    status = weir__sized_take(&spec->given, sizeof spec->given, given, "models", error);
    if (status == WEIR_OK)
        status = weir__sized_take(&spec->model, sizeof spec->model, spec->given.model, "model", error);
    if (status == WEIR_OK)
        status = weir__sized_take(&spec->engine, sizeof spec->engine, spec->given.engine, "engine", error);
    spec->given.model = &spec->model;
    spec->given.engine = &spec->engine;
    if (status == WEIR_OK) status = check_spec(spec, prefix, error);
    if (status != WEIR_OK) goto fail;
    status = WEIR_NO_MEMORY;
    if (!keep_all(spec) || !make_key(spec)) goto no_memory;
    *made = spec;
    return WEIR_OK;

no_memory:
    weir__error_set(error, status, "", "out of memory for a model of the list");
fail:
    weir__spec_release(spec);
    return status;
}

weir__spec *weir__spec_hold(weir__spec *spec)
{
    atomic_fetch_add(&spec->refs, 1);
    return spec;
}

void weir__spec_release(weir__spec *spec)
{
    if (spec == NULL || atomic_fetch_sub(&spec->refs, 1) > 1) return;
    for (weir__spec_block *block = spec->blocks, *next; block != NULL; block = next) {
        next = block->next;
        weir__mem_free(block);
    }
    weir__mem_free(spec->key);
    weir__mem_free(spec);
}

bool weir__spec_equal(const weir__spec *a, const weir__spec *b)
{
    return a->n_key == b->n_key && memcmp(a->key, b->key, a->n_key) == 0;
}

bool weir__spec_is(const weir__spec *spec, const char *name)
{
    return strcmp(spec->given.name, name) == 0 ||
           weir__words_have(spec->given.aliases, spec->given.n_aliases, name);
}
