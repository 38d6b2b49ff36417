/* models.c: GET /v1/models and /v1/models/ID; where several models share a pool, also POST /v1/models/load
 * and /v1/models/unload, which are operators', and the pool's state. A server of one model lists it under all
 * its names, and its adapters; of a pool each model has its state, and its properties while it is in memory,
 * where the catalog keeps it meanwhile. Anthropic's clients get the same list in their API's form.
 * SPDX-License-Identifier: Apache-2.0 */
#include "openai.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "server/api/anthropic/anthropic.h"
#include "server/api/common/embedder.h"
#include "server/api/common/field.h"
#include "server/api/common/lease.h"
#include "server/models/catalog.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/request/mask.h"

/* ---- One model ---- */

/* The longest request, as OpenRouter's and vLLM's lists have it. */
static void add_context(int32_t n_ctx, weir__text *text)
{
    if (n_ctx > 0) weir__text_printf(text, ",\"context_length\":%d,\"max_model_len\":%d", n_ctx, n_ctx);
}

/* Adds the model's properties once it is in memory. */
static void add_meta(const serve_loaded *loaded, weir__text *text)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(loaded->model, &info);
    weir__text_add_string(text, ",\"meta\":{");
    weir__json_string(text, "description", info.description != NULL ? info.description : "");
    weir__text_printf(
        text,
        ",\"n_params\":%llu,\"size\":%llu,\"n_vocab\":%d,\"n_embd\":%d,\"n_ctx_train\":%d,\"n_ctx\":%d},"
        "\"architecture\":{\"input_modalities\":[\"text\"%s%s],\"output_modalities\":[\"text\"]}",
        (unsigned long long)info.n_params, (unsigned long long)info.n_bytes, info.n_vocab, info.n_embd,
        info.n_ctx_train, serve_loaded_context(loaded), info.reads_images ? ",\"image\"" : "",
        info.reads_sounds ? ",\"audio\"" : "");
    weir__text_add_string(text, ",\"abilities\":");
    serve_loaded_add_abilities(loaded, false, text);
}

static void begin_model(const serve_server *server, const char *name, weir__text *text)
{
    weir__json_next(text);
    weir__text_add_string(text, "{");
    weir__json_string(text, "id", name);
    weir__text_printf(text, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weir\"",
                      (long long)server->created_s);
}

static void add_own(const serve_call *call, const char *name, weir__text *text)
{
    begin_model(call->server, name, text);
    add_context(serve_loaded_context(call->loaded), text);
    add_meta(call->loaded, text);
    weir__text_add_string(text, "}");
}

/* ---- A server of one model ---- */

static void list_own(serve_call *call, weir__text *text)
{
    const serve_model *model = call->model;
    add_own(call, model->name, text);
    for (size_t i = 0; i < model->params.n_names; i++) {
        const char *name = model->params.names[i];
        if (name == model->name || strcmp(name, SERVE_ANY_NAME) == 0) continue;
        add_own(call, name, text);
    }
    serve_adapters_list_models(call->loaded->adapters, NULL, model->name, call->server->created_s,
                               serve_loaded_context(call->loaded), text);
}

static bool add_named(serve_call *call, const char *name, weir__text *text)
{
    if (serve_adapters_list_models(call->loaded->adapters, name, call->model->name, call->server->created_s,
                                   serve_loaded_context(call->loaded), text))
        return true;
    if (!serve_catalog_has(call->server->catalog, name)) return false;
    add_own(call, name, text);
    return true;
}

/* ---- Several models ---- */

static void add_state(const weir_pool_info *info, weir__text *text)
{
    weir__json_string(text, "state", weir_pool_state_name(info->state));
    weir__json_string(text, "kind", weir_pool_kind_name(info->kind));
    if (info->state == WEIR_POOL_LOADING) weir__json_number(text, "progress", (double)info->progress, 3);
    if (info->state == WEIR_POOL_FAILED) {
        char message[sizeof info->message];
        snprintf(message, sizeof message, "%s", info->message);
        serve_mask_paths(message);
        weir__json_string(text, "error", message);
    }
    weir__text_printf(text, ",\"bytes\":%llu,\"pinned\":%s,\"running\":%d,\"waiting\":%d",
                      (unsigned long long)info->n_bytes, info->pinned ? "true" : "false", info->n_leases,
                      info->n_waiting);
}

static void add_aliases(const serve_model *model, weir__text *text)
{
    weir__text_add_string(text, ",\"aliases\":[");
    for (size_t i = 0; i < model->params.n_names; i++) {
        weir__json_next(text);
        weir__json_quote(text, model->params.names[i], strlen(model->params.names[i]));
    }
    weir__text_add_string(text, "]");
}

static void add_model(serve_server *server, const serve_model *model, weir__text *text)
{
    weir_pool_info info = {.size = sizeof info};
    if (weir_pool_find(serve_catalog_pool(server->catalog), model->name, &info) != WEIR_OK) return;
    begin_model(server, model->name, text);
    add_aliases(model, text);
    add_state(&info, text);
    add_context(info.n_ctx, text);
    const serve_loaded *loaded = serve_catalog_lock(server->catalog, model);
    if (loaded != NULL) add_meta(loaded, text);
    serve_catalog_unlock(server->catalog);
    weir__text_add_string(text, "}");
}

/* The adapters that it has in memory; name: that one alone. False: there is none. */
static bool add_adapters(serve_server *server, const serve_model *model, const char *name, weir__text *text)
{
    const serve_loaded *loaded = serve_catalog_lock(server->catalog, model);
    bool any =
        loaded != NULL && serve_adapters_list_models(loaded->adapters, name, model->name, server->created_s,
                                                     serve_loaded_context(loaded), text);
    serve_catalog_unlock(server->catalog);
    return any;
}

static void list_model(serve_server *server, const serve_model *model, weir__text *text)
{
    add_model(server, model, text);
    add_adapters(server, model, NULL, text);
}

/* Adds each model of the pool. */
static void each_model(serve_server *server, weir__text *text,
                       void (*add)(serve_server *server, const serve_model *model, weir__text *text))
{
    serve_model **models;
    size_t n;
    if (!serve_catalog_list(server->catalog, &models, &n)) {
        text->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) add(server, models[i], text);
    serve_catalog_list_fini(models, n);
}

static bool add_pooled(serve_server *server, const char *name, weir__text *text)
{
    serve_model *model = serve_catalog_find(server->catalog, name);
    if (model == NULL) return false;
    if (serve_model_named(model, name) || !add_adapters(server, model, name, text))
        add_model(server, model, text);
    serve_model_release(model);
    return true;
}

/* The list, or the model that the address names. False: there is no such model. */
static bool add_models(serve_call *call, weir__text *text)
{
    serve_server *server = call->server;
    const char *name = call->name;
    bool pooled = serve_catalog_pool(server->catalog) != NULL;
    if (name[0] != '\0')
        return weir__utf8_valid(name, strlen(name)) &&
               (pooled ? add_pooled(server, name, text) : add_named(call, name, text));
    weir__text_add_string(text, "{\"object\":\"list\",\"data\":[");
    if (pooled)
        each_model(server, text, list_model);
    else
        list_own(call, text);
    weir__text_add_string(text, "]}");
    return true;
}

void serve_models(serve_call *call)
{
    weir__text text = {0};
    if (!add_models(call, &text)) {
        serve_call_refuse(call, 404, "model", "model_not_found", "there is no model \"%.200s\" here",
                          call->name);
        weir__text_fini(&text);
    } else if (call->error != NULL) {
        serve_anthropic_models(call, &text);
    } else {
        serve_call_answer_json(call, &text);
    }
}

/* ---- The pool's state ---- */

static void add_brief(serve_server *server, const serve_model *model, weir__text *text)
{
    weir_pool_info info = {.size = sizeof info};
    if (weir_pool_find(serve_catalog_pool(server->catalog), model->name, &info) != WEIR_OK) return;
    weir__json_next(text);
    weir__text_add_string(text, "{");
    weir__json_string(text, "name", model->name);
    add_state(&info, text);
    weir__text_add_string(text, "}");
}

void serve_models_add_states(serve_server *server, weir__text *text)
{
    if (serve_catalog_pool(server->catalog) == NULL) return;
    weir__text_add_string(text, ",\"models\":[");
    each_model(server, text, add_brief);
    weir__text_add_string(text, "]");
}

/* ---- Operators ---- */

typedef struct wish {
    const char *name;
} wish;

static const serve_field fields[] = {SERVE_FIELD("model", 1, STRING, wish, name)};

static const serve_field_table table = SERVE_FIELD_TABLE(fields);

/* Held, or NULL after an answer. */
static serve_model *read_model(serve_call *call, json_t **json)
{
    wish w = {0};
    serve_catalog *catalog = call->server->catalog;
    if (!serve_call_read_json(call, json) || !serve_fields_read(call, &table, 1, *json, &w)) return NULL;
    if (w.name == NULL) {
        serve_call_refuse(call, 400, "model", "invalid_value", "model is missing");
    } else if (serve_catalog_pool(catalog) == NULL) {
        serve_call_refuse(
            call, 501, NULL, "not_supported",
            "this server has one model, which stays loaded; weir serve --models FILE has several");
    } else {
        serve_model *model = serve_catalog_find(catalog, w.name);
        if (model == NULL) serve_lease_refuse_name(call, w.name);
        return model;
    }
    return NULL;
}

static void change_model(serve_call *call,
                         weir_status (*act)(weir_pool *pool, const char *name, weir_error *error))
{
    json_t *json = NULL;
    weir_error error = {0};
    serve_model *model = read_model(call, &json);
    if (model != NULL) {
        weir_status status = act(serve_catalog_pool(call->server->catalog), model->name, &error);
        if (status == WEIR_OK)
            serve_call_answer(call, 200, "application/json", "{\"success\":true}\n", 17);
        else
            serve_lease_refuse(call, model->name, status, &error);
    }
    serve_model_release(model);
    json_decref(json);
}

void serve_models_load(serve_call *call)
{
    change_model(call, weir_pool_load);
}

void serve_models_unload(serve_call *call)
{
    change_model(call, weir_pool_unload);
}
