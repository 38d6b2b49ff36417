/* name.c: the model that a request names. SPDX-License-Identifier: Apache-2.0 */
#include "name.h"

#include <string.h>

#include "catalog.h"
#include "server/request/call.h"

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
