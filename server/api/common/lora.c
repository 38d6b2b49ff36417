/* lora.c: the adapters that a request asks for. SPDX-License-Identifier: Apache-2.0 */
#include "lora.h"

#include "server/models/loaded.h"
#include "server/request/body.h"
#include "server/request/call.h"

static bool refuse_list(serve_call *call, const char *field)
{
    return serve_call_refuse(
        call, 400, field, "invalid_value",
        "%s must be an array of objects with an id and a scale from -100 to 100, at most %d of them "
        "with a scale that is not 0 (GET /lora-adapters lists the ids)",
        field != NULL ? field : "the body", WEIR_ADAPTERS_MAX);
}

bool serve_lora_read(serve_call *call, const char *field, const json_t *value, serve_adapter_set *set)
{
    if (!json_is_array(value)) return refuse_list(call, field);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i), *id = json_object_get(one, "id"),
                     *scale = json_object_get(one, "scale");
        double number = scale != NULL ? json_number_value(scale) : 1;
        json_int_t n;
        if (!serve_call_goes_on(call)) return false;
        if (!serve_json_whole(id, &n) || (scale != NULL && !json_is_number(scale)) ||
            !(number >= -100 && number <= 100) || json_object_size(one) != (scale != NULL ? 2 : 1))
            return refuse_list(call, field);
        if (!serve_adapters_numbered(call->loaded->adapters, n, (float)number, set)) {
            if (set->n == WEIR_ADAPTERS_MAX) return refuse_list(call, field);
            return serve_call_refuse(call, 404, field, "not_found", "there is no adapter %lld here",
                                     (long long)n);
        }
    }
    return true;
}

bool serve_lora_choose(serve_call *call, const char *adapter, const json_t *list, serve_adapter_set *set)
{
    serve_adapters *adapters = call->loaded->adapters;
    if (list != NULL) return serve_lora_read(call, "lora", list, set);
    if (adapter == NULL)
        serve_adapters_standard(adapters, set);
    else if (!serve_adapters_named(adapters, adapter, set)) { /* it was unloaded just now */
        return serve_call_refuse(call, 404, "model", "model_not_found", "there is no model \"%.100s\" here",
                                 adapter);
    }
    return true;
}
