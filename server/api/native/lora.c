/* lora.c: which adapters there are, as llama-server and vLLM are asked: GET and POST /lora-adapters, POST
 * /v1/load_lora_adapter and /v1/unload_lora_adapter. Requests that change them are operators', and need
 * --lora-dir as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "native.h"
#include "server/api/common/field.h"
#include "server/api/common/lease.h"
#include "server/models/catalog.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/request/mask.h"

void serve_lora_list(serve_call *call)
{
    weir__text text = {0};
    serve_adapters_list(call->loaded->adapters, &text);
    serve_call_answer_json(call, &text);
}

static bool is_allowed(serve_call *call)
{
    if (call->server->params.lora_dir != NULL) return true;
    return serve_call_refuse(
        call, 403, NULL, "not_allowed",
        "adapters cannot be changed by requests here: start weir serve with --lora-dir FOLDER to "
        "allow it");
}

void serve_lora_scale(serve_call *call)
{
    serve_adapter_set set = {0};
    json_t *json = NULL;
    if (!is_allowed(call) || !serve_call_read_any(call, &json)) return;
    if (serve_lora_read(call, NULL, json, &set)) {
        serve_adapters_set_standard(call->loaded->adapters, &set);
        serve_call_answer(call, 200, "application/json", "{\"success\":true}\n", 17);
    }
    serve_adapter_set_fini(&set);
    json_decref(json);
}

typedef struct names {
    const char *name, *path;
    const char *model; /* NULL: no adapter's name */
    const json_t *number;
} names;

#define LOAD   1u
#define UNLOAD 2u

static const serve_field fields[] = {
    SERVE_FIELD("model", LOAD | UNLOAD, MODEL, names, model),
    SERVE_FIELD("lora_name", LOAD | UNLOAD, STRING, names, name),
    SERVE_FIELD("lora_path", LOAD, STRING, names, path),
    SERVE_FIELD("lora_int_id", LOAD | UNLOAD, VALUE, names, number), /* vLLM's clients may send it */
};

static const serve_field_table table = SERVE_FIELD_TABLE(fields);

static bool read_names(serve_call *call, unsigned where, json_t **json, names *to)
{
    *to = (names){0};
    if (!is_allowed(call) || !serve_call_read_json(call, json) ||
        !serve_fields_read(call, &table, where, *json, to))
        return false;
    const char *missing = to->name == NULL                    ? "lora_name"
                          : to->path == NULL && where == LOAD ? "lora_path"
                                                              : NULL;
    return missing == NULL ||
           serve_call_refuse(call, 400, missing, "invalid_value", "%s is missing", missing);
}

static void tell_success(serve_call *call, const char *name, const char *done)
{
    weir__text text = {0};
    weir__text_printf(&text, "Success: LoRA adapter '%s' %s successfully.", name, done);
    serve_call_answer_text(call, 200, "text/plain; charset=utf-8", &text);
}

static void load_adapter(serve_call *call, const char *name, const char *wanted)
{
    const serve_loaded *loaded = call->loaded;
    weir_adapter *adapter = NULL;
    weir_error error = {0};
    weir_status status = WEIR_OK;
    char *path = serve_adapters_path(call->server->params.lora_dir, wanted);
    if (path == NULL) {
        serve_call_refuse(call, 404, "lora_path", "not_found",
                          "there is no file \"%.100s\" in the folder that adapters may be loaded from",
                          wanted);
        return;
    }
    if (serve_catalog_names(call->server->catalog, name))
        status =
            weir__error_set(&error, WEIR_INVALID, "lora_name", "\"%.100s\" is the model's own name", name);
    if (status == WEIR_OK) status = weir_adapter_load(loaded->model, path, &adapter, &error);
    if (status == WEIR_OK) status = serve_adapters_add(loaded->adapters, name, adapter, 0.0f, false, &error);
    weir__words words = weir__error_words(&error);
    serve_mask_paths(words.text);
    if (status == WEIR_OK)
        tell_success(call, name, "added");
    else
        serve_call_refuse(call, status == WEIR_NO_MEMORY || status == WEIR_IO ? 500 : 400,
                          strcmp(error.field, "lora_name") == 0 ? "lora_name" : "lora_path", "invalid_value",
                          "%s", words.text);
    weir_adapter_release(adapter);
    free(path);
}

void serve_lora_load(serve_call *call)
{
    names given;
    json_t *json = NULL;
    if (read_names(call, LOAD, &json, &given)) load_adapter(call, given.name, given.path);
    json_decref(json);
}

void serve_lora_unload(serve_call *call)
{
    names given;
    json_t *json = NULL;
    if (read_names(call, UNLOAD, &json, &given)) {
        weir_status status = serve_adapters_remove(call->loaded->adapters, given.name);
        if (status == WEIR_OK)
            tell_success(call, given.name, "removed");
        else if (status == WEIR_STATE)
            serve_call_refuse(
                call, 403, "lora_name", "not_allowed",
                "the adapter \"%.100s\" came with the model (--lora) and stays: only those that "
                "requests have loaded are unloaded; POST /lora-adapters sets its scale",
                given.name);
        else
            serve_call_refuse(call, 404, "lora_name", "not_found", "there is no adapter \"%.100s\" here",
                              given.name);
    }
    json_decref(json);
}
