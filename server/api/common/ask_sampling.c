/* ask_sampling.c: fields about how an answer is chosen, and where it stops.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/hash.h"
#include "base/mem.h"
#include "dialect.h"
#include "field.h"
#include "hint.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define WORD_MAX 4096 /* bytes of a breaker, and of the samplers' names */

bool serve_ask_stop(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    bool many = json_is_array(value);
    size_t n = many ? json_array_size(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = many ? json_array_get(value, i) : value;
        if (!json_is_string(one) || n > SERVE_STOP_MAX)
            return serve_field_refuse(call, name, "a string or an array of at most 64 strings");
        if (json_string_length(one) == 0) continue; /* some clients send "" or [""] for none */
        ask->stop[ask->n_stop] = json_string_value(one);
        ask->stop_length[ask->n_stop++] = json_string_length(one);
    }
    return true;
}

static bool add_bias(serve_ask *ask, const char *name, double token, const json_t *bias)
{
    serve_call *call = ask->call;
    if (!serve_call_goes_on(call)) return false;
    float value = json_is_false(bias) ? -INFINITY : (float)json_number_value(bias);
    if (!(token >= 0 && token <= INT32_MAX) || (!json_is_number(bias) && !json_is_false(bias)))
        return serve_field_refuse(call, name, "an object of token ids with numbers");
    if (value != -INFINITY && !(value >= -100 && value <= 100))
        return serve_field_refuse(call, name, "an object of token ids with numbers from -100 to 100");
    ask->biases[ask->sampler.n_logit_bias++] =
        (weir_logit_bias){.token = (int32_t)token, .bias = value <= -100 ? -INFINITY : value};
    return true;
}

/* {"15043": -100}, or as llama-server has it [[15043, -100], [15044, false]]. */
bool serve_ask_logit_bias(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const char *key;
    json_t *one;
    size_t i, n = json_is_object(value) ? json_object_size(value) : json_array_size(value);
    if (!json_is_object(value) && !json_is_array(value))
        return serve_field_refuse(call, name, "an object of token ids with numbers");
    ask->biases = weir__mem_calloc(n, sizeof *ask->biases);
    if (ask->biases == NULL) return serve_call_no_memory(call);
    ask->sampler.logit_bias = ask->biases;
    ask->sampler.n_logit_bias = 0;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, one)
        {
            bool digits = key[0] != '\0' && key[strspn(key, "0123456789")] == '\0';
            if (!add_bias(ask, name, digits ? strtod(key, NULL) : -1, one)) return false;
        }
    } else {
        json_array_foreach((json_t *)value, i, one)
        {
            json_int_t token;
            if (json_array_size(one) != 2 || !serve_json_whole(json_array_get(one, 0), &token))
                return serve_field_refuse(call, name, "an array of pairs of a token id and a number");
            if (!add_bias(ask, name, (double)token, json_array_get(one, 1))) return false;
        }
    }
    return true;
}

bool serve_ask_seed(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    json_int_t n;
    if (!serve_json_whole(value, &n))
        return serve_field_refuse(call, name, "a whole number from -2^63 to 2^63 - 1");
    bool native = (ask->where & SERVE_ASK_NATIVE) != 0; /* where /props shows "random" as this number */
    if (n == -1 || (native && n == (json_int_t)WEIR_SEED_RANDOM))
        ask->sampler.seed = WEIR_SEED_RANDOM;
    else if (n >= 0 && n < (json_int_t)WEIR_SEED_RANDOM)
        ask->sampler.seed = (uint32_t)n;
    else /* samplers have 32 bits */
        ask->sampler.seed = (uint32_t)(weir__hash(0, &n, sizeof n) % WEIR_SEED_RANDOM);
    return true;
}

bool serve_ask_breakers(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    size_t n = json_array_size(value);
    bool strings = json_is_array(value) && n <= 64;
    ask->breakers = strings ? weir__mem_calloc(n, sizeof *ask->breakers) : NULL;
    if (strings && ask->breakers == NULL) return serve_call_no_memory(call);
    for (size_t i = 0; strings && i < n; i++) {
        ask->breakers[i] = json_string_value(json_array_get(value, i));
        strings = ask->breakers[i] != NULL && strlen(ask->breakers[i]) <= WORD_MAX;
    }
    if (!strings)
        return serve_field_refuse(call, name, "an array of at most 64 strings of at most 4096 bytes each");
    ask->sampler.dry_breakers = ask->breakers;
    ask->sampler.n_dry_breakers = n;
    return true;
}

/* "top_k;temperature" or ["top_k", "temperature"]. */
bool serve_ask_samplers(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    weir__text text = {0};
    bool many = json_is_array(value), strings = many || json_is_string(value);
    size_t n = many ? json_array_size(value) : 1;
    bool infill = false;
    weir__text_add_string(&text, "");
    for (size_t i = 0; strings && i < n && serve_call_goes_on(call); i++) {
        const char *one = json_string_value(many ? json_array_get(value, i) : value);
        strings = one != NULL && strlen(one) <= WORD_MAX && text.n <= WORD_MAX;
        if ((ask->where & SERVE_ASK_INFILL) != 0 && serve_ask_is(one, "infill"))
            infill = true; /* llama.cpp's, which editors ask for */
        else if (strings)
            weir__text_printf(&text, text.n > 0 ? ";%s" : "%s", one);
    }
    weir__mem_free(ask->order);
    ask->order = text.bytes;
    ask->sampler.order = text.bytes;
    if (text.failed) return serve_call_no_memory(call);
    if (call->begun || (infill && !serve_hint_name(call, "samplers: infill"))) return false;
    return strings ||
           serve_field_refuse(call, name, "a string or an array of strings, of at most 4096 bytes");
}
