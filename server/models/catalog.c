/* catalog.c: the models that requests may name, and those of them that are in memory. With a pool the models
 * come from the parameters, and a reload replaces them all; the server's part of one (loaded.h) is made with
 * the first lease, and goes when the pool takes the memory back. Without a pool there is one model, which the
 * caller loaded, and a request's model may be any of its names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "catalog.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "server/request/call.h"
#include "server/system/log.h"

#define NAMES_LISTED 16 /* in a message */

struct serve_catalog {
    weir_pool *pool;       /* NULL: one model, which the caller loaded */
    pthread_mutex_t mutex; /* the rest; the pool is never called while it is held */
    serve_model **models;  /* [n]; with a pool */
    size_t n;
    serve_loaded *loaded;
    /* Constant: the publisher of changes to the loaded engines; NULL = none */
    serve_kv_events *events;
    serve_catalog_joined *joined;
    serve_catalog_left *left;
};

/* ---- Those in memory ---- */

/* Forgets a model that nobody leases, and whose memory is wanted. The pool's thread. */
static void forget_model(weir_model *model, void *user)
{
    serve_catalog *catalog = user;
    pthread_mutex_lock(&catalog->mutex);
    serve_loaded **at = &catalog->loaded;
    while (*at != NULL && (*at)->model != model) at = &(*at)->next;
    serve_loaded *gone = *at;
    if (gone != NULL) *at = gone->next;
    pthread_mutex_unlock(&catalog->mutex);
    if (gone != NULL && gone->engine != NULL && catalog->events != NULL)
        catalog->left(catalog->events, gone->engine);
    serve_loaded_destroy(gone);
}

static void warn_of_context(const serve_model *model, const weir_lease *lease)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(weir_lease_model(lease), &info);
    if (weir_lease_engine(lease) != NULL && info.n_ctx_train > 0 &&
        model->params.asked_ctx > info.n_ctx_train)
        serve_log("warning", "context",
                  "%s: -c %d is longer than the %d tokens that the model was trained for: answers beyond "
                  "them may be poor",
                  model->name, model->params.asked_ctx, info.n_ctx_train);
}

static serve_loaded *make_loaded(serve_catalog *catalog, const serve_model *model, const weir_lease *lease)
{
    serve_loaded *loaded =
        serve_loaded_create(model->name, weir_lease_model(lease), weir_lease_engine(lease));
    if (loaded != NULL) loaded->embedder.pool = catalog->pool;
    for (size_t i = 0; loaded != NULL && i < model->params.n_adapters; i++) {
        const serve_adapter_params *adapter = &model->params.adapters[i];
        weir_adapter *file = weir_lease_adapter(lease, i);
        if (file == NULL) break;
        if (serve_adapters_add(loaded->adapters, adapter->name, file, adapter->scale, true, NULL) == WEIR_OK)
            continue;
        serve_loaded_destroy(loaded);
        return NULL;
    }
    return loaded;
}

serve_loaded *serve_catalog_enter(serve_catalog *catalog, const serve_model *model, const weir_lease *lease)
{
    bool is_new = false;
    pthread_mutex_lock(&catalog->mutex);
    serve_loaded *loaded = catalog->loaded;
    while (loaded != NULL && loaded->model != weir_lease_model(lease)) loaded = loaded->next;
    if (loaded == NULL && (loaded = make_loaded(catalog, model, lease)) != NULL) {
        loaded->next = catalog->loaded;
        catalog->loaded = loaded;
        is_new = true;
        if (loaded->engine != NULL) (void)serve_catalog_join(catalog, model->name, loaded->engine);
    }
    pthread_mutex_unlock(&catalog->mutex);
    if (is_new) warn_of_context(model, lease);
    return loaded;
}

/* The mutex is held. */
static serve_loaded *find_loaded(const serve_catalog *catalog, const char *name)
{
    serve_loaded *loaded = catalog->loaded;
    while (loaded != NULL && loaded->name != NULL && strcmp(loaded->name, name) != 0) loaded = loaded->next;
    return loaded;
}

/* Enters a model that the pool has loaded for no lease: a pinned one, or by weir_pool_load. */
static void enter_loaded(serve_catalog *catalog, const weir_pool_info *info)
{
    weir_lease *lease = NULL;
    if (info->state != WEIR_POOL_LOADED) return;
    pthread_mutex_lock(&catalog->mutex);
    bool known = find_loaded(catalog, info->name) != NULL;
    pthread_mutex_unlock(&catalog->mutex);
    if (known) return;
    serve_model *model = serve_catalog_find(catalog, info->name);
    if (model != NULL && strcmp(model->name, info->name) == 0 &&
        weir_lease_create(catalog->pool, info->name, 0, &lease, NULL) == WEIR_OK &&
        weir_lease_wait(lease, 0, NULL) == WEIR_OK)
        (void)serve_catalog_enter(catalog, model, lease);
    weir_lease_release(lease);
    serve_model_release(model);
}

static void enter_all_loaded(serve_catalog *catalog)
{
    weir_pool_info info = {.size = sizeof info};
    for (size_t i = 0; weir_pool_get(catalog->pool, i, &info) == WEIR_OK; i++) enter_loaded(catalog, &info);
}

serve_loaded *serve_catalog_lock(serve_catalog *catalog, const serve_model *model)
{
    weir_pool_info info = {.size = sizeof info};
    if (catalog->pool != NULL && model == NULL) enter_all_loaded(catalog);
    if (catalog->pool != NULL && model != NULL &&
        weir_pool_find(catalog->pool, model->name, &info) == WEIR_OK)
        enter_loaded(catalog, &info);
    pthread_mutex_lock(&catalog->mutex);
    return model != NULL ? find_loaded(catalog, model->name) : NULL;
}

void serve_catalog_unlock(serve_catalog *catalog)
{
    pthread_mutex_unlock(&catalog->mutex);
}

serve_loaded *serve_catalog_loaded(serve_catalog *catalog)
{
    return catalog->loaded;
}

/* ---- Those that may be named ---- */

/* The next three functions are called with the mutex held. */

static serve_model *find_own(const serve_catalog *catalog, const char *name)
{
    for (size_t i = 0; i < catalog->n; i++)
        if (serve_model_named(catalog->models[i], name)) return catalog->models[i];
    return NULL;
}

static bool has_adapter(const serve_catalog *catalog, const serve_model *model, const char *name)
{
    assert(model != NULL);
    if (serve_model_has_adapter(model, name)) return true;
    for (serve_loaded *loaded = catalog->loaded; loaded != NULL; loaded = loaded->next)
        if (loaded->name != NULL && strcmp(loaded->name, model->name) == 0)
            return serve_adapters_has(loaded->adapters, name);
    return false;
}

static serve_model *find_model(const serve_catalog *catalog, const char *name)
{
    serve_model *model = name != NULL ? find_own(catalog, name) : NULL;
    if (model != NULL || catalog->n == 0) return model;
    if (name == NULL || name[0] == '\0' || strcmp(name, SERVE_DEFAULT_NAME) == 0) return catalog->models[0];
    for (size_t i = 0; i < catalog->n; i++)
        if (has_adapter(catalog, catalog->models[i], name)) return catalog->models[i];
    return find_own(catalog, SERVE_ANY_NAME);
}

serve_model *serve_catalog_find(serve_catalog *catalog, const char *name)
{
    pthread_mutex_lock(&catalog->mutex);
    serve_model *model = serve_model_hold(find_model(catalog, name));
    pthread_mutex_unlock(&catalog->mutex);
    return model;
}

bool serve_catalog_has(serve_catalog *catalog, const char *name)
{
    serve_model *model = serve_catalog_find(catalog, name);
    serve_model_release(model);
    return model != NULL;
}

bool serve_catalog_names(serve_catalog *catalog, const char *name)
{
    pthread_mutex_lock(&catalog->mutex);
    bool named = strcmp(name, SERVE_DEFAULT_NAME) == 0 || find_own(catalog, name) != NULL;
    pthread_mutex_unlock(&catalog->mutex);
    return named;
}

void serve_catalog_add_names(serve_catalog *catalog, weir__text *text)
{
    pthread_mutex_lock(&catalog->mutex);
    for (size_t i = 0; i < catalog->n && i < NAMES_LISTED; i++)
        weir__text_printf(text, "%s\"%.64s\"", i > 0 ? ", " : "", catalog->models[i]->name);
    if (catalog->n > NAMES_LISTED) weir__text_add_string(text, ", …");
    pthread_mutex_unlock(&catalog->mutex);
}

bool serve_catalog_list(serve_catalog *catalog, serve_model ***models, size_t *n)
{
    pthread_mutex_lock(&catalog->mutex);
    *n = catalog->n;
    *models = weir__mem_dup(catalog->models, *n * sizeof **models);
    for (size_t i = 0; *models != NULL && i < *n; i++) serve_model_hold((*models)[i]);
    pthread_mutex_unlock(&catalog->mutex);
    return *models != NULL;
}

void serve_catalog_list_fini(serve_model **models, size_t n)
{
    for (size_t i = 0; models != NULL && i < n; i++) serve_model_release(models[i]);
    weir__mem_free(models);
}

weir_pool *serve_catalog_pool(const serve_catalog *catalog)
{
    return catalog->pool;
}

/* ---- Lists ---- */

static weir_status copy_models(const serve_params *params, serve_model ***models, weir_error *error)
{
    *models = weir__mem_calloc(params->n_models, sizeof **models);
    bool ok = *models != NULL;
    for (size_t i = 0; ok && i < params->n_models; i++)
        ok = ((*models)[i] = serve_model_create(&params->models[i])) != NULL;
    if (ok) return WEIR_OK;
    serve_catalog_list_fini(*models, *models != NULL ? params->n_models : 0);
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the models");
}

static weir_status update_pool(weir_pool *pool, const serve_params *params, weir_error *error)
{
    weir_pool_model *entries = weir__mem_calloc(params->n_models, sizeof *entries);
    if (entries == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the models");
    for (size_t i = 0; i < params->n_models; i++) entries[i] = *params->models[i].entry;
    weir_status status = weir_pool_set(pool, entries, params->n_models, error);
    weir__mem_free(entries);
    uint64_t memory = params->pool != NULL ? params->pool->memory_bytes : WEIR_AUTO;
    return status == WEIR_OK ? weir_pool_set_memory(pool, memory, error) : status;
}

weir_status serve_catalog_set(serve_catalog *catalog, const serve_params *params, weir_error *error)
{
    serve_model **models;
    weir_status status = copy_models(params, &models, error);
    if (status != WEIR_OK) return status;
    if (catalog->pool != NULL && (status = update_pool(catalog->pool, params, error)) != WEIR_OK) {
        serve_catalog_list_fini(models, params->n_models);
        return status;
    }
    pthread_mutex_lock(&catalog->mutex);
    serve_model **old = catalog->models;
    size_t n_old = catalog->n;
    catalog->models = models;
    catalog->n = params->n_models;
    pthread_mutex_unlock(&catalog->mutex);
    serve_catalog_list_fini(old, n_old);
    return WEIR_OK;
}

/* ---- Life ---- */

weir_status serve_catalog_create(const serve_params *params, serve_catalog **out, weir_error *error)
{
    serve_catalog *catalog = weir__mem_calloc(1, sizeof *catalog);
    weir_status status = WEIR_OK;
    if (catalog == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the models");
    pthread_mutex_init(&catalog->mutex, NULL);
    if (params->n_models > 0) {
        weir_pool_params pool = params->pool != NULL ? *params->pool : weir_pool_params_default();
        pool.leaving = forget_model;
        pool.leaving_user = catalog;
        status = weir_pool_create(&pool, &catalog->pool, error);
        if (status == WEIR_OK) status = serve_catalog_set(catalog, params, error);
    } else {
        catalog->loaded = serve_loaded_create(NULL, NULL, NULL);
        catalog->models = weir__mem_calloc(1, sizeof *catalog->models);
        if (catalog->models != NULL)
            catalog->n = (catalog->models[0] = serve_model_create(&params->model)) != NULL;
        if (catalog->loaded == NULL || catalog->n == 0)
            status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the models");
    }
    if (status == WEIR_OK)
        *out = catalog;
    else
        serve_catalog_destroy(catalog);
    return status;
}

void serve_catalog_publish(serve_catalog *catalog, serve_kv_events *events, serve_catalog_joined *joined,
                           serve_catalog_left *left)
{
    catalog->events = events;
    catalog->joined = joined;
    catalog->left = left;
}

bool serve_catalog_join(serve_catalog *catalog, const char *name, weir_engine *engine)
{
    return catalog->events == NULL || catalog->joined(catalog->events, name, engine);
}

void serve_catalog_destroy(serve_catalog *catalog)
{
    if (catalog == NULL) return;
    pthread_mutex_lock(&catalog->mutex); /* the pool's loader may still forget one */
    for (serve_loaded *loaded = catalog->loaded; loaded != NULL; loaded = loaded->next)
        serve_loaded_wait(loaded);
    pthread_mutex_unlock(&catalog->mutex);
    (void)weir_pool_destroy(catalog->pool); /* forgets all that it has */
    for (serve_loaded *loaded = catalog->loaded, *next; loaded != NULL; loaded = next) {
        next = loaded->next;
        serve_loaded_destroy(loaded);
    }
    serve_catalog_list_fini(catalog->models, catalog->n);
    pthread_mutex_destroy(&catalog->mutex);
    weir__mem_free(catalog);
}

/* ---- Names in requests ---- */

size_t serve_name_untagged(const char *name)
{
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;
    return n > n_tag && strcmp(name + n - n_tag, tag) == 0 ? n - n_tag : 0;
}

static bool is_known(const serve_call *call, const char *word)
{
    return serve_adapters_has(call->loaded->adapters, word) || serve_catalog_has(call->server->catalog, word);
}

/* An unknown name loses its tag, in `name` itself. False: out of memory. */
static bool untag_name(const serve_call *call, json_t *name)
{
    const char *word = json_string_value(name);
    size_t n = word != NULL && !is_known(call, word) ? serve_name_untagged(word) : 0;
    return n == 0 || json_string_setn(name, word, n) == 0;
}

bool serve_name_read(serve_call *call, const json_t *name, const char **adapter)
{
    *adapter = NULL;
    if (name == NULL || json_is_null(name)) return true;
    if (call->route->tagged && !untag_name(call, (json_t *)name)) return serve_call_no_memory(call);
    const char *word = json_string_value(name);
    if (word != NULL && serve_adapters_has(call->loaded->adapters, word))
        *adapter = word;
    else if (word == NULL)
        serve_call_refuse(call, 400, "model", "invalid_value", "model must be a string");
    else if (!serve_catalog_has(call->server->catalog, word))
        serve_call_refuse(call, 404, "model", "model_not_found",
                          "there is no model \"%.100s\" here; ask for \"%.100s\", or leave model out "
                          "(GET /v1/models lists all names)",
                          word, call->model->name);
    return !call->begun;
}
