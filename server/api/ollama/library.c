/* library.c: GET /api/tags, /api/ps and /api/version, POST /api/show and /api/pull, as Ollama has them. A
 * model's object has its name and the size of its files; its properties, too, while it is in memory, where
 * the catalog keeps it meanwhile. Of several models /api/tags lists all, and /api/ps those in memory. A pull
 * is prepared here by a worker, and pull.c downloads.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ollama.h"
#include "server/api/common/field.h"
#include "server/models/catalog.h"
#include "server/models/pull.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define SPOKEN_VERSION "0.12.6" /* of Ollama, whose API this is: clients refuse older ones */

/* Ollama's names have a tag. */
static void add_name(const char *member, const char *name, weir__text *text)
{
    char full[1024];
    snprintf(full, sizeof full, "%s%s", name, strchr(name, ':') != NULL ? "" : ":latest");
    weir__json_string(text, member, full);
}

/* "135M" */
static void add_size(uint64_t n, weir__text *text)
{
    char size[32];
    if (n >= 1000000000)
        snprintf(size, sizeof size, "%.1fB", (double)n / 1e9);
    else
        snprintf(size, sizeof size, "%.1fM", (double)n / 1e6);
    weir__json_string(text, "parameter_size", size);
}

/* The last word of a description "llama 135M Q4_1". */
static const char *quantization_of(const weir_model_info *info)
{
    const char *space = info->description != NULL ? strchr(info->description, ' ') : NULL;
    const char *next = space != NULL ? strchr(space + 1, ' ') : NULL;
    return next != NULL ? next + 1 : "unknown";
}

static void add_details(const weir_model_info *info, weir__text *text)
{
    const char *family = info->architecture != NULL ? info->architecture : "";
    weir__json_key(text, "details");
    weir__text_add_string(text, "{\"parent_model\":\"\",\"format\":\"gguf\"");
    weir__json_string(text, "family", family);
    weir__text_add_string(text, ",\"families\":[");
    weir__json_quote(text, family, strlen(family));
    weir__text_add_string(text, "]");
    add_size(info->n_params, text);
    weir__json_string(text, "quantization_level", quantization_of(info));
    weir__text_add_string(text, "}");
}

/* An id of 64 digits, which clients expect: of the model's name and size, not of its file. */
static void add_digest(const char *name, uint64_t n_bytes, weir__text *text)
{
    weir__sha256 state;
    char hex[65];
    weir__sha256_init(&state);
    weir__sha256_feed(&state, name, strlen(name));
    weir__sha256_feed(&state, &n_bytes, sizeof n_bytes);
    weir__sha256_hex(&state, hex);
    weir__json_string(text, "digest", hex);
}

/* A model's properties; loaded: NULL while it is not in memory. Its size is that of its files, where they are
 * known. */
static void begin_model(const serve_model *model, const char *name, const serve_loaded *loaded,
                        weir__text *text)
{
    weir_model_info info = {.size = sizeof info};
    uint64_t n_bytes = model->file_bytes;
    if (loaded != NULL) weir_model_describe(loaded->model, &info);
    if (n_bytes == 0) n_bytes = info.n_bytes;
    weir__json_next(text);
    weir__text_add_string(text, "{");
    add_name("name", name, text);
    add_name("model", name, text);
    weir__text_printf(text, ",\"size\":%llu", (unsigned long long)n_bytes);
    add_digest(name, n_bytes, text);
    add_details(&info, text);
}

static void add_tag(const serve_server *server, const serve_model *model, const char *name,
                    const serve_loaded *loaded, weir__text *text)
{
    begin_model(model, name, loaded, text);
    serve_ollama_add_time(text, "modified_at", server->created_s);
    weir__text_add_string(text, "}");
}

static void add_tags(const serve_server *server, const serve_model *model, const serve_loaded *loaded,
                     weir__text *text)
{
    for (size_t i = 0; i <= model->params.n_names; i++) {
        const char *name = i == 0 ? model->name : model->params.names[i - 1];
        if (i == 0 || (name != model->name && strcmp(name, SERVE_ANY_NAME) != 0))
            add_tag(server, model, name, loaded, text);
    }
}

/* expires_at: a model may stay loaded as long as the server runs. */
static void add_running(const serve_model *model, const serve_loaded *loaded, weir__text *text)
{
    begin_model(model, model->name, loaded, text);
    weir__text_printf(text, ",\"size_vram\":0,\"context_length\":%d", serve_loaded_context(loaded));
    weir__json_string(text, "expires_at", "9999-12-31T23:59:59Z");
    weir__text_add_string(text, "}");
}

/* Adds one of several models. */
static void add_pooled(serve_server *server, const serve_model *model, bool running, weir__text *text)
{
    weir_pool_info info = {.size = sizeof info};
    if (weir_pool_find(serve_catalog_pool(server->catalog), model->name, &info) != WEIR_OK) return;
    const serve_loaded *loaded = serve_catalog_lock(server->catalog, model);
    if (!running)
        add_tags(server, model, loaded, text);
    else if (loaded != NULL)
        add_running(model, loaded, text);
    serve_catalog_unlock(server->catalog);
}

static void answer_list(serve_call *call, bool running)
{
    serve_server *server = call->server;
    weir__text text = {0};
    serve_model **models = NULL;
    size_t n = 0;
    weir__text_add_string(&text, "{\"models\":[");
    if (serve_catalog_pool(server->catalog) == NULL) {
        if (running)
            add_running(call->model, call->loaded, &text);
        else
            add_tags(server, call->model, call->loaded, &text);
    } else if (serve_catalog_list(server->catalog, &models, &n)) {
        for (size_t i = 0; i < n; i++) add_pooled(server, models[i], running, &text);
        serve_catalog_list_fini(models, n);
    } else {
        text.failed = true;
    }
    weir__text_add_string(&text, "]}");
    serve_call_answer_json(call, &text);
}

void serve_ollama_tags(serve_call *call)
{
    answer_list(call, false);
}

void serve_ollama_ps(serve_call *call)
{
    answer_list(call, true);
}

void serve_ollama_version(serve_call *call)
{
    weir__text text = {0};
    weir__text_add_string(&text, "{");
    weir__json_string(&text, "version", SPOKEN_VERSION);
    weir__json_string(&text, "weir", weir_version());
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
}

/* ---- POST /api/pull ---- */

typedef struct pulled {
    const char *name;
    bool stream, insecure;
} pulled;

/* A model that is served needs no download. False: there is none of that name. */
static bool is_there(const serve_call *call, const char *name)
{
    char plain[WEIR_POOL_NAME_MAX + 1];
    size_t n = serve_name_untagged(name);
    if (n == 0 || n >= sizeof plain) return serve_catalog_has(call->server->catalog, name);
    snprintf(plain, sizeof plain, "%.*s", (int)n, name);
    return serve_catalog_has(call->server->catalog, plain);
}

static void begin_pull(serve_call *call, const pulled *p)
{
    static const char done[] = "{\"status\":\"success\"}\n";
    if (p->name == NULL || p->name[0] == '\0')
        serve_call_refuse(call, 400, "model", "invalid_value", "model is missing");
    else if (p->insecure)
        serve_field_refuse(call, "insecure", "false or left out");
    else if (is_there(call, p->name))
        serve_call_answer(call, 200, p->stream ? "application/x-ndjson" : "application/json", done,
                          sizeof done - 1);
    else if (call->server->params.pull == NULL)
        serve_call_refuse(
            call, 501, NULL, "not_supported",
            "this server downloads no models for clients: start it with --pull, or run weir pull");
    else
        serve_pull_prepare(call, p->name, p->stream);
}

void serve_ollama_pull(serve_call *call)
{
    static const serve_field fields[] = {
        SERVE_FIELD("model", 1, STRING, pulled, name),
        SERVE_FIELD("name", 1, STRING, pulled, name), /* as older clients call it */
        SERVE_FIELD("stream", 1, BOOL, pulled, stream),
        SERVE_FIELD("insecure", 1, BOOL, pulled, insecure),
    };
    static const serve_field_table table = SERVE_FIELD_TABLE(fields);
    pulled p = {.stream = true};
    json_t *json = NULL;
    if (serve_call_read_json(call, &json) && serve_fields_read(call, &table, 1, json, &p))
        begin_pull(call, &p);
    json_decref(json);
}

void serve_ollama_refuse(serve_call *call)
{
    serve_call_refuse(call, 501, NULL, "not_supported",
                      "%s is not supported: this server has the models that its operator gives it (weir pull "
                      "NAME fetches one)",
                      call->path);
}

/* ---- POST /api/show ---- */

typedef struct shown {
    json_t *json;
    bool verbose;
    const char *adapter;
} shown;

static bool read_shown(serve_call *call, shown *s)
{
    static const serve_field fields[] = {
        SERVE_FIELD("model", 1, MODEL, shown, adapter),
        SERVE_FIELD("name", 1, MODEL, shown, adapter), /* as older clients call it */
        SERVE_FIELD("verbose", 1, BOOL, shown, verbose),
    };
    static const serve_field_table table = SERVE_FIELD_TABLE(fields);
    return serve_call_read_json(call, &s->json) && serve_fields_read(call, &table, 1, s->json, s);
}

/* The context is that of requests here, which clients fit their conversations into. */
static void add_model_info(const serve_call *call, const weir_model_info *info, weir__text *text)
{
    const char *family = info->architecture != NULL ? info->architecture : "";
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {
        {"context_length", serve_loaded_context(call->loaded)},
        {"embedding_length", info->n_embd},
        {"block_count", info->n_layer},
        {"attention.head_count", info->n_head},
        {"attention.head_count_kv", info->n_head_kv},
    };
    char key[128];
    weir__json_key(text, "model_info");
    weir__text_add_string(text, "{");
    weir__json_string(text, "general.architecture", family);
    weir__text_printf(text, ",\"general.parameter_count\":%llu", (unsigned long long)info->n_params);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", family, numbers[i].name);
        weir__json_key(text, key);
        weir__text_printf(text, "%d", numbers[i].value);
    }
    weir__text_add_string(text, "}");
}

void serve_ollama_show(serve_call *call)
{
    weir_model_info info = {.size = sizeof info};
    weir__text text = {.quota = &call->answers};
    shown s = {0};
    if (read_shown(call, &s)) {
        weir_model_describe(call->loaded->model, &info);
        weir__text_add_string(&text, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\"");
        weir__json_string(&text, "template", info.chat_template != NULL ? info.chat_template : "");
        add_details(&info, &text);
        add_model_info(call, &info, &text);
        weir__json_key(&text, "capabilities");
        serve_loaded_add_abilities(call->loaded, true, &text);
        serve_ollama_add_time(&text, "modified_at", call->server->created_s);
        weir__text_add_string(&text, "}");
        serve_call_answer_json(call, &text);
    }
    json_decref(s.json);
}
