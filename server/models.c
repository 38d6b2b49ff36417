/* models.c: what the model is called, GET /v1/models and /v1/models/ID.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/utf8.h"
#include "serve.h"

bool serve_models_named(const serve_server *server, const char *name)
{
    if (strcmp(name, "default") == 0) return true;
    if (name[0] != '\0' && strcmp(name, server->file_name) == 0) return true;
    for (size_t i = 0; i < server->params.n_names; i++)
        if (strcmp(name, server->params.names[i]) == 0) return true;
    return false;
}

bool serve_models_accept(const serve_server *server, const char *name)
{
    if (name[0] == '\0' || serve_models_named(server, name)) return true;
    for (size_t i = 0; i < server->params.n_names; i++)
        if (strcmp(server->params.names[i], SERVE_ANY_NAME) == 0) return true;
    return false;
}

static void add_model(const serve_server *server, const char *name, weir__text *text)
{
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    weir_model_describe(server->model, &info);
    weir_engine_get_stats(server->engine, &stats);
    weir__text_add_string(text, "{");
    weir__json_string(text, "id", name);
    weir__text_printf(text, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weir\",\"meta\":{",
                      (long long)server->created_s);
    weir__json_string(text, "description", info.description != NULL ? info.description : "");
    weir__text_printf(
        text,
        ",\"n_params\":%llu,\"size\":%llu,\"n_vocab\":%d,\"n_embd\":%d,\"n_ctx_train\":%d,\"n_ctx\":%d},"
        "\"architecture\":{\"input_modalities\":[\"text\"%s%s],\"output_modalities\":[\"text\"]}}",
        (unsigned long long)info.n_params, (unsigned long long)info.n_bytes, info.n_vocab, info.n_embd,
        info.n_ctx_train, stats.n_ctx, info.reads_images ? ",\"image\"" : "",
        info.reads_sounds ? ",\"audio\"" : "");
}

void serve_models(serve_call *call)
{
    static const char prefix[] = "/models/";
    const char *path = serve_route_path(call->path);
    const serve_server *server = call->server;
    weir__text text = {0};
    if (strncmp(path, prefix, sizeof prefix - 1) == 0) {
        const char *name = path + sizeof prefix - 1;
        bool adapter =
            serve_adapters_list_models(server->adapters, name, server->name, server->created_s, &text);
        bool known = weir__utf8_valid(name, strlen(name)) && serve_models_accept(server, name);
        if (!adapter && !known) {
            serve_call_refuse(call, 404, "model", "model_not_found", "there is no model \"%.200s\" here",
                              name);
            return;
        }
        if (!adapter) add_model(server, name, &text);
    } else {
        weir__text_add_string(&text, "{\"object\":\"list\",\"data\":[");
        add_model(server, server->name, &text);
        for (size_t i = 0; i < server->params.n_names; i++) {
            const char *name = server->params.names[i];
            if (name == server->name || strcmp(name, SERVE_ANY_NAME) == 0) continue;
            weir__json_next(&text);
            add_model(server, name, &text);
        }
        serve_adapters_list_models(server->adapters, NULL, server->name, server->created_s, &text);
        weir__text_add_string(&text, "]}");
    }
    weir__text_add_string(&text, "\n");
    serve_call_answer_text(call, 200, "application/json", &text);
}
