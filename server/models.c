/* models.c: GET /v1/models and /v1/models/ID.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/utf8.h"
#include "serve.h"

static void add_model(const serve_call *call, const char *name, weir__text *text)
{
    const serve_loaded *loaded = call->loaded;
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    weir_model_describe(loaded->model, &info);
    if (weir_engine_get_stats(loaded->engine, &stats) != WEIR_OK) stats.n_ctx = info.n_ctx_train;
    weir__text_add_string(text, "{");
    weir__json_string(text, "id", name);
    weir__text_printf(text, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weir\",\"meta\":{",
                      (long long)call->server->created_s);
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
    const serve_model *model = call->model;
    int64_t created_s = call->server->created_s;
    weir__text text = {0};
    if (strncmp(path, prefix, sizeof prefix - 1) == 0) {
        const char *name = path + sizeof prefix - 1;
        bool adapter =
            serve_adapters_list_models(call->loaded->adapters, name, model->name, created_s, &text);
        bool known = weir__utf8_valid(name, strlen(name)) && serve_model_accepts(model, name);
        if (!adapter && !known) {
            serve_call_refuse(call, 404, "model", "model_not_found", "there is no model \"%.200s\" here",
                              name);
            return;
        }
        if (!adapter) add_model(call, name, &text);
    } else {
        weir__text_add_string(&text, "{\"object\":\"list\",\"data\":[");
        add_model(call, model->name, &text);
        for (size_t i = 0; i < model->params->n_names; i++) {
            const char *name = model->params->names[i];
            if (name == model->name || strcmp(name, SERVE_ANY_NAME) == 0) continue;
            weir__json_next(&text);
            add_model(call, name, &text);
        }
        serve_adapters_list_models(call->loaded->adapters, NULL, model->name, created_s, &text);
        weir__text_add_string(&text, "]}");
    }
    weir__text_add_string(&text, "\n");
    serve_call_answer_text(call, 200, "application/json", &text);
}
