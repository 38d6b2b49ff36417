/* ask_readers.c: readers of fields whose values need more than a row of ask_fields.c. A reader checks the
 * value, in the request's words, and writes it into the sampler's or request's parameters, or keeps it in the
 * serve_ask for later; false means that the call has its answer. Memory that it allocates belongs to the
 * serve_ask.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/member.h"
#include "field.h"
#include "hint.h"
#include "server/access/keys.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/settings/effort.h"

/* ---- Where an answer stops, and how it is chosen ---- */

#define WORD_MAX     4096 /* bytes of a breaker, and of the samplers' names */
#define BREAKERS_MAX 64

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

/* An array of at most `most` texts of at most `longest` bytes, as a list that is freed with weir__mem_free.
 * what: such an array in words. NULL: the call has its answer. */
static const char **read_words(serve_call *call, const char *name, const json_t *value, size_t most,
                               size_t longest, const char *what)
{
    size_t n = json_array_size(value), i = 0;
    bool few = json_is_array(value) && n <= most;
    const char **words = few ? weir__mem_calloc(n, sizeof *words) : NULL;
    for (; words != NULL && i < n; i++) {
        const json_t *word = json_array_get(value, i);
        words[i] = json_string_value(word);
        size_t length = json_string_length(word);
        if (words[i] == NULL || length > longest || strlen(words[i]) != length) break;
    }
    if (words != NULL && i == n) return words;
    if (few && words == NULL)
        serve_call_no_memory(call);
    else
        serve_field_refuse(call, name, what);
    weir__mem_free((void *)words);
    return NULL;
}

bool serve_ask_breakers(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    ask->breakers = read_words(call, name, value, BREAKERS_MAX, WORD_MAX,
                               "an array of at most 64 strings of at most 4096 bytes each");
    ask->sampler.dry_breakers = ask->breakers;
    ask->sampler.n_dry_breakers = json_array_size(value);
    return ask->breakers != NULL;
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

/* ---- vLLM's fields about tokens ---- */

#define STOPS_MAX   256
#define ALLOWED_MAX (1 << 20)
#define BAD_MAX     128

bool serve_ask_stop_ids(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    if (!json_is_array(value) || json_array_size(value) > STOPS_MAX)
        return serve_field_refuse(call, name, "an array of at most 256 token ids");
    if (!serve_call_read_ids(call, name, value, &ask->stop_ids, &ask->request.n_stop_tokens)) return false;
    ask->request.stop_tokens = ask->stop_ids;
    return true;
}

bool serve_ask_allowed_ids(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    size_t n = json_array_size(value); /* 0: no array */
    if (n < 1 || n > ALLOWED_MAX) return serve_field_refuse(call, name, "an array of 1 to 1048576 token ids");
    if (!serve_call_read_ids(call, name, value, &ask->allowed_ids, &ask->request.n_allowed_tokens))
        return false;
    ask->request.allowed_tokens = ask->allowed_ids;
    return true;
}

bool serve_ask_bad_words(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    ask->bad_words = read_words(call, name, value, BAD_MAX, SIZE_MAX, "an array of at most 128 strings");
    ask->request.bad_words = ask->bad_words;
    ask->request.n_bad_words = json_array_size(value);
    return ask->bad_words != NULL;
}

bool serve_ask_truncate(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    json_int_t n;
    if (!serve_json_whole(value, &n) || n < -1 || n == 0 || n > INT32_MAX)
        return serve_field_refuse(call, name,
                                  "-1, as many tokens as leave room for the answer, or a whole number from 1 "
                                  "to 2147483647");
    ask->request.truncate_prompt = (int32_t)n;
    return true;
}

void serve_ask_widen_penalty(serve_ask *ask)
{
    weir_engine_stats stats = {.size = sizeof stats};
    const weir_member *member = weir_member_find("sampler", "penalty_last_n");
    if (serve_ask_given(ask, "repetition_penalty") == NULL || serve_ask_given(ask, "repeat_last_n") != NULL)
        return;
    if (weir_engine_get_stats(ask->call->loaded->engine, &stats) != WEIR_OK) return;
    ask->sampler.penalty_last_n = stats.n_ctx < (int32_t)member->max ? stats.n_ctx : (int32_t)member->max;
}

/* ---- The form of the answer ---- */

bool serve_ask_set_schema(serve_ask *ask, const char *name, const char *place, const json_t *schema)
{
    if (ask->schema != NULL)
        return serve_call_refuse(ask->call, 400, name, "invalid_value",
                                 "json_schema and response_format exclude each other; give one");
    bool longer = false;
    ask->schema = weir__json_dump_most(schema, SERVE_FORM_BYTES, &longer);
    ask->call->terms.schema_field = place;
    if (longer) return serve_field_refuse(ask->call, name, "a schema of at most 2 MiB");
    return ask->schema != NULL || serve_call_no_memory(ask->call);
}

bool serve_ask_set_any_object(serve_ask *ask, const char *name, const char *place)
{
    json_t *any = json_pack("{s:s}", "type", "object");
    bool ok = any != NULL ? serve_ask_set_schema(ask, name, place, any) : serve_call_no_memory(ask->call);
    json_decref(any);
    return ok;
}

bool serve_ask_json_schema(serve_call *call, void *to, const char *name, const json_t *value)
{
    if (!json_is_object(value)) return serve_field_refuse(call, name, "a JSON Schema");
    return serve_ask_set_schema(to, name, "json_schema", value);
}

/* llama-server's clients may give a schema here, too. */
static bool read_json_object(serve_ask *ask, const char *name, const json_t *value)
{
    const json_t *schema = json_object_get(value, "schema");
    if (json_is_object(schema)) return serve_ask_set_schema(ask, name, "response_format/schema", schema);
    if (schema != NULL && !json_is_null(schema))
        return serve_field_refuse(ask->call, "response_format.schema",
                                  "an object, a JSON Schema, or left out");
    return serve_ask_set_any_object(ask, name, "response_format/schema");
}

bool serve_ask_response_format(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!serve_field_only(call, name, value, SERVE_OBJECT_RESPONSE_FORMAT)) return false;
    if (serve_ask_is(type, "text")) return true;
    if (serve_ask_is(type, "json_object")) return read_json_object(ask, name, value);
    if (!serve_ask_is(type, "json_schema"))
        return serve_field_refuse(call, "response_format.type",
                                  "\"text\", \"json_object\" or \"json_schema\"");
    const json_t *given = json_object_get(value, "json_schema"), *schema = json_object_get(given, "schema");
    const json_t *strict = json_object_get(given, "strict");
    if (!serve_field_only(call, "response_format.json_schema", given, SERVE_OBJECT_RESPONSE_SCHEMA))
        return false;
    if (!json_is_object(schema))
        return serve_field_refuse(call, "response_format.json_schema.schema", "an object: a JSON Schema");
    if (strict != NULL && !json_is_boolean(strict) && !json_is_null(strict))
        return serve_field_refuse(call, "response_format.json_schema.strict", "true or false");
    ask->chat.strict_schema = json_is_true(strict);
    return serve_ask_set_schema(ask, name, "response_format/json_schema/schema", schema);
}

/* ---- Other fields ---- */

/* A flag of an object, which may be left out. */
static bool read_flag(serve_call *call, const char *place, const json_t *object, const char *name, bool *flag)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL) return true;
    if (!json_is_boolean(value))
        return serve_field_refuse(call, serve_place_of(place, name).text, "true or false");
    *flag = json_is_true(value);
    return true;
}

bool serve_ask_stream_options(serve_call *call, void *to, const char *name, const json_t *value)
{
    /* The second one as vLLM has it. Events of other dialects have the usage anyway. */
    serve_ask *ask = to;
    bool both = (ask->where & (SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS)) != 0;
    if (!json_is_object(value)) return serve_field_refuse(call, name, "an object");
    return serve_field_only(call, name, value, both ? SERVE_OBJECT_STREAM : SERVE_OBJECT_ITEM_STREAM) &&
           (!both || (read_flag(call, name, value, "include_usage", &ask->include_usage) &&
                      read_flag(call, name, value, "continuous_usage_stats", &ask->continuous_usage)));
}

bool serve_ask_effort(serve_ask *ask, const char *name, const json_t *value, const char *what)
{
    const char *text = json_string_value(value);
    ask->reasoning_effort = serve_effort_word(text);
    return serve_hint_word(ask->call, name, text, serve_effort_words(), what);
}

bool serve_ask_reasoning_effort(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const char *word = json_string_value(value);
    (void)call;
    if (serve_effort_word(word) != NULL || serve_ask_is(word, "none"))
        ask->chat.enable_thinking = !serve_ask_is(word, "none");
    return serve_ask_effort(ask, name, value,
                            "\"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
}

/* The answer can be forked for a while, and a server that records keeps it, where nothing is said. */
bool serve_ask_store(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    bool responses = (ask->where & SERVE_ASK_RESPONSES) != 0, none = call->server->params.response_bytes == 0;
    ask->unkept = !responses || json_is_false(value);
    ask->unrecorded = json_is_false(value);
    if (!json_is_boolean(value)) return serve_field_refuse(call, name, "true or false");
    if (json_is_false(value) || (responses && !none)) return true;
    return serve_hint_take(call, name,
                           responses ? "false or left out: this server keeps none (--response-memory 0)"
                                     : "false or left out: answers are kept for forks only");
}

/* Chat says whether, completions how many of the likeliest. */
bool serve_ask_logprobs(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    if (json_is_boolean(value) &&
        (ask->where & (SERVE_ASK_CHAT | SERVE_ASK_OLLAMA | SERVE_ASK_GENERATE)) != 0) {
        ask->request.logprobs = json_is_true(value);
        return true;
    }
    json_int_t n;
    if (!serve_json_whole(value, &n) || (ask->where & SERVE_ASK_COMPLETIONS) == 0 ||
        !weir__member_allows(weir_member_find("request", "n_logprobs"), (double)n))
        return serve_field_refuse(call, name,
                                  (ask->where & SERVE_ASK_COMPLETIONS) == 0 ? "true or false"
                                                                            : "a whole number from 0 to 20");
    ask->request.logprobs = true;
    ask->request.n_logprobs = (int32_t)n;
    return true;
}

/* The text of a part of a content; NULL: it is none. */
static const json_t *text_of(const json_t *part)
{
    const json_t *text = json_object_get(part, "text");
    return serve_ask_is(serve_field_type(part), "text") && json_is_string(text) ? text : NULL;
}

/* Reads OpenAI's prediction: what the answer is expected to repeat, a text or parts of one. */
bool serve_ask_prediction(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    static const char what[] =
        "{\"type\": \"content\", \"content\": …} with a text, or an array of parts of the "
        "type \"text\"";
    static const char *const types[] = {"content", NULL};
    const json_t *content = json_object_get(value, "content");
    const char *type = serve_field_type(value);
    bool ok = serve_ask_is(type, types[0]) && (json_is_string(content) || json_is_array(content));
    if (type != NULL && strcmp(type, types[0]) != 0) return serve_hint_word(call, name, type, types, what);
    if (json_is_object(value) && !serve_field_only(call, name, value, SERVE_OBJECT_PREDICTION)) return false;
    if (json_is_string(content))
        weir__text_add(&ask->prediction, json_string_value(content), json_string_length(content));
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *text = text_of(json_array_get(content, i));
        ok = text != NULL;
        if (ok) weir__text_add(&ask->prediction, json_string_value(text), json_string_length(text));
    }
    if (!ok) return serve_field_refuse(call, name, what);
    if (ask->prediction.failed) return serve_call_no_memory(call);
    ask->request.prediction = ask->prediction.n > 0 ? ask->prediction.bytes : NULL;
    ask->request.prediction_length = ask->prediction.n;
    return true;
}

/* Reads vLLM's number of the likeliest in each place. */
bool serve_ask_prompt_logprobs(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const weir_member *member = weir_member_find("request", "n_prompt_logprobs");
    json_int_t n;
    bool boolean = json_is_boolean(value), whole = serve_json_whole(value, &n);
    if (!boolean && (!whole || !weir__member_allows(member, (double)n)))
        return serve_field_refuse(call, name, "true, false or a whole number from 0 to 20");
    ask->request.prompt_logprobs = !json_is_false(value);
    ask->request.n_prompt_logprobs = boolean ? 0 : (int32_t)n;
    return true;
}

/* Reads the salt whole, or not at all: one that was cut would be another tenant's. */
bool serve_ask_cache_salt(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    ask->cache_salt = json_string_value(value);
    return (json_is_string(value) && json_string_length(value) <= SERVE_SALT_OWN) ||
           serve_field_refuse(call, name, "a string of at most 256 bytes");
}

bool serve_ask_fork(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    ask->fork = value;
    return json_is_object(value) ||
           serve_field_refuse(call, name, "an object: {\"id\": …, \"index\": 0, \"at\": …}");
}

bool serve_ask_priority(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    int32_t most = serve_keys_priority(call->server->keys, call->key);
    const weir_member *member = weir_member_find("request", "priority");
    json_int_t n;
    if (serve_json_whole(value, &n) && n >= (json_int_t)member->min && n <= most) {
        ask->request.priority = (int32_t)n;
        return true;
    }
    return serve_call_refuse(
        call, 400, name, "invalid_value", "priority must be a whole number from %d to %d%s", (int)member->min,
        most, most < (int32_t)member->max ? "; the operator of this server allows no more" : "");
}

/* llama-server's fields. Editors send some with every request: these are never refused. */
bool serve_ask_native(serve_call *call, void *to, const char *name, const json_t *value)
{
    static const char *const of_editors[] = {"id_slot", "n_indent", "t_max_prompt_ms", "t_max_predict_ms",
                                             "response_fields"};
    const serve_ask *ask = to;
    double number = json_number_value(value);
    bool off = json_is_false(value) || (json_is_number(value) && (number == 0 || number == -1));
    if (off) return true; /* weir's own behaviour: nothing, any slot */
    for (size_t i = 0; i < sizeof of_editors / sizeof *of_editors; i++)
        if ((ask->where & (SERVE_ASK_INFILL | SERVE_ASK_CHAT)) != 0 && strcmp(name, of_editors[i]) == 0)
            return serve_hint_name(call, name);
    return serve_hint_take(call, name,
                           strcmp(name, "n_probs") == 0 ? "0: /v1/completions has logprobs"
                           : strcmp(name, "t_max_predict_ms") == 0
                               ? "0: deadline_ms bounds the whole request"
                               : "left out: this server does not support it");
}

/* Prompts are cached anyway. */
bool serve_ask_cache_control(serve_call *call, void *to, const char *name, const json_t *value)
{
    (void)to;
    static const char *const types[] = {"ephemeral", NULL};
    const char *type = serve_field_type(value);
    if (type == NULL) return serve_field_refuse(call, name, "an object with the type \"ephemeral\"");
    return serve_hint_word(call, "cache_control.type", type, types, "\"ephemeral\"");
}

bool serve_ask_metadata(serve_call *call, void *to, const char *name, const json_t *value)
{
    (void)to;
    return json_is_object(value) || serve_field_refuse(call, name, "an object");
}

/* The context is at least that large, or this has no effect. */
bool serve_ask_num_ctx(serve_call *call, void *to, const char *name, const json_t *value)
{
    weir_engine_stats stats = {.size = sizeof stats};
    json_int_t n;
    (void)to;
    bool met = serve_json_whole(value, &n) &&
               weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK && n <= stats.n_ctx;
    return met || serve_hint_name(call, name);
}

/* -1 and -2: as many as there is room for. */
bool serve_ask_num_predict(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    if (json_is_number(value) && json_number_value(value) == -2) {
        ask->request.max_tokens = -1;
        return true;
    }
    return serve_field_member(call, name, weir_member_find("request", "max_tokens"), &ask->request, value);
}

/* The last -1 tokens are all of them: as many as can be looked at. */
bool serve_ask_repeat_last_n(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const weir_member *member = weir_member_find("sampler", "penalty_last_n");
    if (json_is_number(value) && json_number_value(value) == -1) {
        ask->sampler.penalty_last_n = (int32_t)member->max;
        return true;
    }
    return serve_field_member(call, name, member, &ask->sampler, value);
}
