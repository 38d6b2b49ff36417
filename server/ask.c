/* ask.c: every field that a request may have. SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/member.h"
#include "keys.h"

#define BOTH (SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS)

typedef struct reader {
    serve_ask *ask;
    serve_call *call;
    unsigned where;
} reader;

typedef enum kind {
    BOOL,
    INT32,
    VALUE,  /* the JSON itself */
    MEMBER, /* of the sampler or the request, as the library's row says */
    OTHER,  /* `read` */
    NEVER,  /* what weir does not do; `why` */
} kind;

typedef struct field {
    const char *name;
    unsigned where; /* bits of SERVE_ASK_* */
    kind kind;
    size_t target;      /* offset in serve_ask */
    double least, most; /* in place of a member's own, where they differ */
    const char *of;     /* the library's member that it sets: "sampler" or "request"; NULL = none */
    const char *member;
    bool (*read)(reader *r, const char *name, const json_t *value);
    const char *why;
} field;

static bool refuse(reader *r, const char *name, const char *what)
{
    serve_call_refuse(r->call, 400, name, "invalid_value", "%s must be %s", name, what);
    return false;
}

static bool no_memory(reader *r)
{
    serve_call_no_memory(r->call);
    return false;
}

/* ---- Fields that are read by hand ---- */

static bool read_model(reader *r, const char *name, const json_t *value)
{
    (void)name;
    return serve_call_read_model(r->call, value, &r->ask->adapter);
}

static bool read_stream_options(reader *r, const char *name, const json_t *value)
{
    const char *key;
    json_t *option;
    if (!json_is_object(value)) return refuse(r, name, "an object");
    json_object_foreach((json_t *)value, key, option)
    {
        bool usage = strcmp(key, "include_usage") == 0;
        if (!usage && strcmp(key, "include_obfuscation") != 0) {
            serve_call_refuse(r->call, 400, name, "unknown_parameter",
                              "stream_options has an unknown field \"%.60s\"; known: include_usage", key);
            return false;
        }
        if (!json_is_boolean(option))
            return refuse(r, usage ? "stream_options.include_usage" : name, "true or false");
        if (usage)
            r->ask->include_usage = json_is_true(option);
        else if (json_is_true(option))
            return refuse(r, "stream_options.include_obfuscation", "false: events are not padded here");
    }
    return true;
}

static bool read_stop(reader *r, const char *name, const json_t *value)
{
    serve_ask *ask = r->ask;
    bool many = json_is_array(value);
    size_t n = many ? json_array_size(value) : 1;
    if ((!many && !json_is_string(value)) || n > SERVE_STOP_MAX)
        return refuse(r, name, "a string or an array of at most 64 strings");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = many ? json_array_get(value, i) : value;
        if (!json_is_string(one)) return refuse(r, name, "a string or an array of at most 64 strings");
        if (json_string_length(one) == 0 && many)
            return refuse(r, name, "without empty strings: one would end every answer before it begins");
        if (json_string_length(one) == 0) continue; /* some clients send "" for none */
        ask->stop[ask->n_stop] = json_string_value(one);
        ask->stop_length[ask->n_stop++] = json_string_length(one);
    }
    return true;
}

static bool add_bias(reader *r, const char *name, double token, const json_t *bias)
{
    serve_ask *ask = r->ask;
    float value = json_is_false(bias) ? -INFINITY : (float)json_number_value(bias);
    if (!(token >= 0 && token <= INT32_MAX) || (!json_is_number(bias) && !json_is_false(bias)))
        return refuse(r, name, "an object of token ids with numbers");
    if (value != -INFINITY && !(value >= -100 && value <= 100))
        return refuse(r, name, "an object of token ids with numbers from -100 to 100");
    ask->biases[ask->sampler.n_logit_bias++] =
        (weir_logit_bias){.token = (int32_t)token, .bias = value <= -100 ? -INFINITY : value};
    return true;
}

/* {"15043": -100}, or as llama-server has it [[15043, -100], [15044, false]]. */
static bool read_logit_bias(reader *r, const char *name, const json_t *value)
{
    serve_ask *ask = r->ask;
    const char *key;
    json_t *one;
    size_t i, n = json_is_object(value) ? json_object_size(value) : json_array_size(value);
    if (!json_is_object(value) && !json_is_array(value))
        return refuse(r, name, "an object of token ids with numbers");
    ask->biases = weir__mem_calloc(n, sizeof *ask->biases);
    if (ask->biases == NULL) return no_memory(r);
    ask->sampler.logit_bias = ask->biases;
    ask->sampler.n_logit_bias = 0;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, one)
        {
            char *end;
            double token = strtod(key, &end);
            if (end == key || *end != '\0' || token != floor(token)) token = -1;
            if (!add_bias(r, name, token, one)) return false;
        }
    } else {
        json_array_foreach((json_t *)value, i, one)
        {
            const json_t *token = json_array_get(one, 0);
            if (json_array_size(one) != 2 || !json_is_integer(token))
                return refuse(r, name, "an array of pairs of a token id and a number");
            if (!add_bias(r, name, (double)json_integer_value(token), json_array_get(one, 1))) return false;
        }
    }
    return true;
}

static bool read_seed(reader *r, const char *name, const json_t *value)
{
    if (!json_is_integer(value)) return refuse(r, name, "a whole number");
    uint64_t seed = (uint64_t)json_integer_value(value);
    r->ask->sampler.seed = (uint32_t)(seed ^ seed >> 32);
    if (json_integer_value(value) == -1)
        r->ask->sampler.seed = WEIR_SEED_RANDOM;
    else if (r->ask->sampler.seed == WEIR_SEED_RANDOM)
        r->ask->sampler.seed = 1;
    return true;
}

static bool read_breakers(reader *r, const char *name, const json_t *value)
{
    serve_ask *ask = r->ask;
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > 64) return refuse(r, name, "an array of at most 64 strings");
    ask->breakers = weir__mem_calloc(n, sizeof *ask->breakers);
    if (ask->breakers == NULL) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        ask->breakers[i] = json_string_value(json_array_get(value, i));
        if (ask->breakers[i] == NULL) return refuse(r, name, "an array of at most 64 strings");
    }
    ask->sampler.dry_breakers = ask->breakers;
    ask->sampler.n_dry_breakers = n;
    return true;
}

/* "top_k;temperature" or ["top_k", "temperature"]. */
static bool read_samplers(reader *r, const char *name, const json_t *value)
{
    weir__text text = {0};
    if (json_is_string(value)) {
        weir__text_add_string(&text, json_string_value(value));
    } else {
        if (!json_is_array(value)) return refuse(r, name, "a string or an array of strings");
        weir__text_add_string(&text, "");
        for (size_t i = 0; i < json_array_size(value); i++) {
            const char *one = json_string_value(json_array_get(value, i));
            if (one == NULL) {
                weir__text_fini(&text);
                return refuse(r, name, "a string or an array of strings");
            }
            if (i > 0) weir__text_add_string(&text, ";");
            weir__text_add_string(&text, one);
        }
    }
    weir__mem_free(r->ask->order);
    r->ask->order = text.bytes;
    r->ask->sampler.order = text.bytes;
    return text.failed ? no_memory(r) : true;
}

/* place: of the schema in the request. */
static bool set_schema(reader *r, const char *name, const char *place, const json_t *schema)
{
    if (r->ask->schema != NULL) {
        serve_call_refuse(r->call, 400, name, "invalid_value",
                          "json_schema and response_format exclude each other; give one");
        return false;
    }
    r->ask->schema = weir__json_dump(schema);
    r->call->schema_field = place;
    return r->ask->schema != NULL || no_memory(r);
}

static bool read_json_schema(reader *r, const char *name, const json_t *value)
{
    if (!json_is_object(value)) return refuse(r, name, "a JSON Schema");
    return set_schema(r, name, "json_schema", value);
}

static bool read_response_format(reader *r, const char *name, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type != NULL && strcmp(type, "text") == 0) return true;
    if (type != NULL && strcmp(type, "json_object") == 0) {
        const json_t *schema = json_object_get(value, "schema"); /* as llama-server has it */
        json_t *any = json_pack("{s:s}", "type", "object");
        if (schema != NULL && !json_is_null(schema) && !json_is_object(schema)) {
            json_decref(any);
            return refuse(r, "response_format.schema", "an object, a JSON Schema, or left out");
        }
        if (!json_is_object(schema)) schema = any;
        bool ok = any != NULL ? set_schema(r, name, "response_format/schema", schema) : no_memory(r);
        json_decref(any);
        return ok;
    }
    if (type == NULL || strcmp(type, "json_schema") != 0)
        return refuse(r, "response_format.type", "\"text\", \"json_object\" or \"json_schema\"");
    const json_t *given = json_object_get(value, "json_schema"), *schema = json_object_get(given, "schema");
    const json_t *strict = json_object_get(given, "strict");
    if (!json_is_object(schema))
        return refuse(r, "response_format.json_schema.schema", "an object: a JSON Schema");
    if (strict != NULL && !json_is_boolean(strict) && !json_is_null(strict))
        return refuse(r, "response_format.json_schema.strict", "true or false");
    r->ask->strict_schema = json_is_true(strict);
    return set_schema(r, name, "response_format/json_schema/schema", schema);
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [{"type": "function",
 * "function": {"name": …}}, …]}} */
static bool read_allowed_tools(reader *r, const json_t *value)
{
    const json_t *allowed = json_object_get(value, "allowed_tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    r->ask->tools_allowed = json_object_get(allowed, "tools");
    if (mode == NULL || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return refuse(r, "tool_choice.allowed_tools.mode", "\"auto\" or \"required\"");
    r->ask->tool_choice = strcmp(mode, "auto") == 0 ? SERVE_TOOLS_AUTO : SERVE_TOOLS_REQUIRED;
    return json_array_size(r->ask->tools_allowed) > 0 ||
           refuse(r, "tool_choice.allowed_tools.tools", "an array of at least one function");
}

static bool read_tool_choice(reader *r, const char *name, const json_t *value)
{
    static const char expected[] =
        "\"auto\", \"none\", \"required\", or an object that names a function or allowed_tools";
    serve_ask *ask = r->ask;
    const char *word = json_string_value(value), *type = json_string_value(json_object_get(value, "type"));
    if (json_is_object(value)) {
        if (type != NULL && strcmp(type, "allowed_tools") == 0) return read_allowed_tools(r, value);
        ask->tool_choice = SERVE_TOOLS_NAMED;
        ask->tool_name = json_string_value(json_object_get(json_object_get(value, "function"), "name"));
        return (ask->tool_name != NULL && (type == NULL || strcmp(type, "function") == 0)) ||
               refuse(r, name, expected);
    }
    if (word == NULL) return refuse(r, name, expected);
    if (strcmp(word, "auto") == 0)
        ask->tool_choice = SERVE_TOOLS_AUTO;
    else if (strcmp(word, "none") == 0)
        ask->tool_choice = SERVE_TOOLS_NONE;
    else if (strcmp(word, "required") == 0)
        ask->tool_choice = SERVE_TOOLS_REQUIRED;
    else
        return refuse(r, name, expected);
    return true;
}

static bool read_reasoning_effort(reader *r, const char *name, const json_t *value)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    const char *word = json_string_value(value);
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        r->ask->reasoning_effort = words[i];
        return true;
    }
    return refuse(r, name, "\"none\", \"minimal\", \"low\", \"medium\", \"high\" or \"xhigh\"");
}

static bool read_special_content(reader *r, const char *name, const json_t *value)
{
    static const char *const words[] = {"trusted", "none", "all"};
    const char *word = json_string_value(value);
    for (int i = 0; word != NULL && i < 3; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        r->ask->special_content = (weir_special_content)i;
        return true;
    }
    return refuse(r, name, "\"trusted\", \"none\" or \"all\"");
}

/* Where nothing is said, the answer can be forked for a while. */
static bool read_store(reader *r, const char *name, const json_t *value)
{
    r->ask->unkept = true;
    return json_is_false(value) || refuse(r, name, "false or left out: answers are kept for forks only");
}

/* What is accepted because weir does just that, and refused otherwise. */
static bool read_tier(reader *r, const char *name, const json_t *value)
{
    const char *word = json_string_value(value);
    return (word != NULL && (strcmp(word, "auto") == 0 || strcmp(word, "default") == 0)) ||
           refuse(r, name, "\"auto\" or \"default\"; to go before others, give a priority");
}

static bool read_modalities(reader *r, const char *name, const json_t *value)
{
    const char *word = json_string_value(json_array_get(value, 0));
    return (json_array_size(value) == 1 && word != NULL && strcmp(word, "text") == 0) ||
           refuse(r, name, "[\"text\"]");
}

static bool read_verbosity(reader *r, const char *name, const json_t *value)
{
    const char *word = json_string_value(value);
    return (word != NULL && strcmp(word, "medium") == 0) ||
           refuse(r, name, "\"medium\"; ask for length in words");
}

/* Chat says whether, completions how many of the likeliest. */
static bool read_logprobs(reader *r, const char *name, const json_t *value)
{
    if (json_is_boolean(value) && (r->where & SERVE_ASK_CHAT) != 0) {
        r->ask->request.logprobs = json_is_true(value);
        return true;
    }
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || (r->where & SERVE_ASK_COMPLETIONS) == 0 ||
        !weir__member_allows(weir_member_find("request", "n_logprobs"), (double)n))
        return refuse(r, name, r->where == SERVE_ASK_CHAT ? "true or false" : "a whole number from 0 to 20");
    r->ask->request.logprobs = true;
    r->ask->request.n_logprobs = (int32_t)n;
    return true;
}

/* vLLM's: how many of the likeliest in each place. */
static bool read_prompt_logprobs(reader *r, const char *name, const json_t *value)
{
    const weir_member *member = weir_member_find("request", "n_prompt_logprobs");
    json_int_t n = json_integer_value(value);
    bool boolean = json_is_boolean(value);
    if (!boolean && (!json_is_integer(value) || !weir__member_allows(member, (double)n)))
        return refuse(r, name, "true, false or a whole number from 0 to 20");
    r->ask->request.prompt_logprobs = !json_is_false(value);
    r->ask->request.n_prompt_logprobs = boolean ? 0 : (int32_t)n;
    return true;
}

/* Whole, or not at all: one that was cut would be another tenant's. */
static bool read_cache_salt(reader *r, const char *name, const json_t *value)
{
    r->ask->cache_salt = json_string_value(value);
    return (json_is_string(value) && json_string_length(value) <= SERVE_SALT_OWN) ||
           refuse(r, name, "a string of at most 256 bytes");
}

static bool read_fork(reader *r, const char *name, const json_t *value)
{
    r->ask->fork = value;
    return json_is_object(value) || refuse(r, name, "an object: {\"id\": …, \"index\": 0, \"at\": …}");
}

static bool read_generation_prompt(reader *r, const char *name, const json_t *value)
{
    if (!json_is_boolean(value)) return refuse(r, name, "true or false");
    r->ask->generation_prompt = json_is_true(value) ? SERVE_PROMPT_WANTED : SERVE_PROMPT_UNWANTED;
    return true;
}

static bool read_priority(reader *r, const char *name, const json_t *value)
{
    int32_t most = serve_keys_priority(r->call->server->keys, r->call->key);
    const weir_member *member = weir_member_find("request", "priority");
    json_int_t n = json_integer_value(value);
    if (json_is_integer(value) && n >= (json_int_t)member->min && n <= most) {
        r->ask->request.priority = (int32_t)n;
        return true;
    }
    serve_call_refuse(r->call, 400, name, "invalid_value", "priority must be a whole number from %d to %d%s",
                      (int)member->min, most,
                      most < (int32_t)member->max ? "; the operator of this server allows no more" : "");
    return false;
}

/* llama-server's, where they ask for what happens anyway: off, nothing, any slot. */
static bool read_native(reader *r, const char *name, const json_t *value)
{
    double number = json_number_value(value);
    bool off = json_is_false(value) || (json_is_number(value) && (number == 0 || number == -1));
    if (off) return true;
    if (strcmp(name, "n_probs") == 0) return refuse(r, name, "0: /v1/completions has logprobs");
    if (strcmp(name, "t_max_predict_ms") == 0)
        return refuse(r, name, "0: deadline_ms bounds the whole request");
    return refuse(r, name, "left out: it is not done here");
}

static bool read_text_idle(reader *r, const char *name, const json_t *value)
{
    return json_is_string(value) || refuse(r, name, "a string");
}

static bool read_suffix(reader *r, const char *name, const json_t *value)
{
    return (json_is_string(value) && json_string_length(value) == 0) ||
           refuse(r, name, "left out: text is continued at its end only");
}

static bool read_metadata(reader *r, const char *name, const json_t *value)
{
    return json_is_object(value) || refuse(r, name, "an object");
}

/* ---- The table ---- */

#define AT(member) offsetof(serve_ask, member)

/* clang-format off */
#define TAKE(n, w, k, at) {.name = (n), .where = (w), .kind = (k), .target = (at)}
#define NUMBER(n, w, at, l, m) {.name = (n), .where = (w), .kind = INT32, .target = (at), .least = (l), .most = (m)}
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a member's place */
#define OF(o, m) .of = #o, .member = #m, .target = offsetof(serve_ask, o.m)
#define SETS(n, w, o, m) {.name = (n), .where = (w), .kind = MEMBER, OF(o, m)}
#define SETS_IN(n, w, o, m, l, u) \
    {.name = (n), .where = (w), .kind = MEMBER, OF(o, m), .least = (l), .most = (u)}
#define HAND(n, w, r) {.name = (n), .where = (w), .kind = OTHER, .read = (r)}
#define HAND_SETS(n, w, r, o, m) {.name = (n), .where = (w), .kind = OTHER, .read = (r), OF(o, m)}
#define NO(n, w, y) {.name = (n), .where = (w), .kind = NEVER, .why = (y)}

/* Numbers and flags of the sampler that have no line are fields, too, under their own names. Of a member's
 * lines the first has the name that messages give it. */
static const field fields[] = {
    HAND("model", BOTH, read_model),
    TAKE("messages", SERVE_ASK_CHAT, VALUE, AT(messages)),
    TAKE("prompt", SERVE_ASK_COMPLETIONS, VALUE, AT(prompt)),
    TAKE("stream", BOTH, BOOL, AT(stream)),
    HAND("stream_options", BOTH, read_stream_options),
    TAKE("resume", BOTH, BOOL, AT(resume)),
    TAKE("share", BOTH, BOOL, AT(share)),
    NUMBER("n", BOTH, AT(n), 1, SERVE_N_MAX),
    NUMBER("best_of", SERVE_ASK_COMPLETIONS, AT(best_of), 1, SERVE_N_MAX),
    HAND("stop", BOTH, read_stop),
    SETS("max_tokens", BOTH, request, max_tokens),
    SETS("max_completion_tokens", SERVE_ASK_CHAT, request, max_tokens),
    SETS("n_predict", BOTH, request, max_tokens),
    HAND("logprobs", BOTH, read_logprobs),
    SETS("top_logprobs", SERVE_ASK_CHAT, request, n_logprobs),
    HAND_SETS("prompt_logprobs", BOTH, read_prompt_logprobs, request, n_prompt_logprobs),
    HAND_SETS("fork", BOTH, read_fork, request, source),
    HAND("store", BOTH, read_store),
    HAND_SETS("logit_bias", BOTH, read_logit_bias, sampler, logit_bias),
    HAND_SETS("seed", BOTH, read_seed, sampler, seed),
    SETS("temperature", BOTH, sampler, temp),
    SETS_IN("top_k", BOTH, sampler, top_k, -1, INT32_MAX), /* -1: off, as llama-server has it */
    SETS("frequency_penalty", BOTH, sampler, penalty_freq),
    SETS("presence_penalty", BOTH, sampler, penalty_present),
    SETS("repeat_penalty", BOTH, sampler, penalty_repeat),
    SETS("repetition_penalty", BOTH, sampler, penalty_repeat),
    SETS("repeat_last_n", BOTH, sampler, penalty_last_n),
    HAND_SETS("dry_sequence_breakers", BOTH, read_breakers, sampler, dry_breakers),
    HAND_SETS("samplers", BOTH, read_samplers, sampler, order),
    SETS("grammar", BOTH, sampler, grammar),
    HAND("json_schema", BOTH, read_json_schema),
    HAND("response_format", BOTH, read_response_format),
    TAKE("lora", BOTH, VALUE, AT(lora)), /* as llama-server has it */
    SETS("cache_prompt", BOTH, request, cache_prompt),
    HAND("cache_salt", BOTH, read_cache_salt),
    HAND("priority", BOTH, read_priority),
    SETS_IN("deadline_ms", BOTH, request, deadline_ms, 0, 1e12),
    SETS("speculative.n_max", BOTH, request, n_draft_max), /* as llama-server has it */
    TAKE("tools", SERVE_ASK_CHAT, VALUE, AT(tools)),
    HAND("tool_choice", SERVE_ASK_CHAT, read_tool_choice),
    TAKE("parallel_tool_calls", SERVE_ASK_CHAT, BOOL, AT(parallel_tool_calls)),
    HAND("reasoning_effort", SERVE_ASK_CHAT, read_reasoning_effort),
    TAKE("chat_template_kwargs", SERVE_ASK_CHAT, VALUE, AT(kwargs)),
    HAND("special_content", SERVE_ASK_CHAT, read_special_content),
    TAKE("continue_final_message", SERVE_ASK_CHAT, BOOL, AT(continue_final)),
    HAND("add_generation_prompt", SERVE_ASK_CHAT, read_generation_prompt), /* as vLLM has it */
    TAKE("echo", SERVE_ASK_COMPLETIONS, BOOL, AT(echo)),
    NUMBER("n_cmpl", SERVE_ASK_NATIVE, AT(n), 1, SERVE_N_MAX),
    HAND("n_probs", SERVE_ASK_NATIVE, read_native),
    HAND("post_sampling_probs", SERVE_ASK_NATIVE, read_native),
    HAND("return_tokens", SERVE_ASK_NATIVE, read_native),
    HAND("timings_per_token", SERVE_ASK_NATIVE, read_native),
    HAND("return_progress", SERVE_ASK_NATIVE, read_native),
    HAND("id_slot", SERVE_ASK_NATIVE, read_native),
    HAND("n_keep", SERVE_ASK_NATIVE, read_native),
    HAND("n_discard", SERVE_ASK_NATIVE, read_native),
    HAND("n_indent", SERVE_ASK_NATIVE, read_native),
    HAND("n_cache_reuse", SERVE_ASK_NATIVE, read_native),
    HAND("t_max_predict_ms", SERVE_ASK_NATIVE, read_native),
    HAND("user", BOTH, read_text_idle),
    HAND("safety_identifier", SERVE_ASK_CHAT, read_text_idle),
    HAND("prompt_cache_key", SERVE_ASK_CHAT, read_text_idle),
    HAND("metadata", SERVE_ASK_CHAT, read_metadata),
    HAND("service_tier", SERVE_ASK_CHAT, read_tier),
    HAND("modalities", SERVE_ASK_CHAT, read_modalities),
    HAND("verbosity", SERVE_ASK_CHAT, read_verbosity),
    NO("functions", SERVE_ASK_CHAT, "give tools instead"),
    NO("function_call", SERVE_ASK_CHAT, "give tool_choice instead"),
    NO("audio", SERVE_ASK_CHAT, "answers are text here"),
    NO("prediction", SERVE_ASK_CHAT, "predicted outputs are not known here"),
    NO("web_search_options", SERVE_ASK_CHAT, "nothing is searched here"),
    NO("prompt_cache_retention", SERVE_ASK_CHAT, "what is cached is decided by the server"),
    HAND("suffix", SERVE_ASK_COMPLETIONS, read_suffix),
};
/* clang-format on */

#define N_FIELDS (sizeof fields / sizeof *fields)

static const field *find(const char *name, unsigned where)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if ((fields[i].where & where) != 0 && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

const char *serve_ask_name(const char *of, const char *member, size_t n)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        if (f->of == NULL || (of != NULL && strcmp(f->of, of) != 0)) continue;
        if (strlen(f->member) == n && memcmp(f->member, member, n) == 0) return f->name;
    }
    return NULL;
}

/* The sampler's member that is a field without a line in the table; NULL: there is none. */
static const weir_member *find_plain(const char *name)
{
    const weir_member *member = weir_member_find("sampler", name);
    bool plain = member != NULL && member->type < WEIR_MEMBER_CHOICE;
    return plain && serve_ask_name("sampler", name, strlen(name)) == NULL ? member : NULL;
}

static bool refuse_number(reader *r, const char *name, const weir_member *member, bool whole)
{
    bool joined = member->or_minus_one && whole && member->min == 0; /* -1 is next to the others */
    serve_call_refuse(r->call, 400, name, "invalid_value", "%s must be a %snumber from %.10g to %.13g%s",
                      name, whole ? "whole " : "", joined ? -1 : member->min, member->max,
                      member->or_minus_one && !joined ? ", or -1" : "");
    return false;
}

/* of: the struct that has the member. */
static bool read_member(reader *r, const char *name, const weir_member *member, void *of, const json_t *value)
{
    bool whole = member->type != WEIR_MEMBER_FLOAT && member->type != WEIR_MEMBER_DOUBLE;
    double number = json_number_value(value);
    if (member->type == WEIR_MEMBER_BOOL) {
        if (!json_is_boolean(value)) return refuse(r, name, "true or false");
        number = json_is_true(value);
    } else if (member->type == WEIR_MEMBER_STRING) {
        if (!json_is_string(value)) return refuse(r, name, "a string");
        *(const char **)(void *)((char *)of + member->offset) = json_string_value(value);
        return true;
    } else if (!json_is_number(value) || !weir__member_allows(member, number) ||
               (whole && number != floor(number))) {
        return refuse_number(r, name, member, whole);
    }
    weir__member_set(member, of, number);
    return true;
}

static bool read_row(reader *r, const field *f, const json_t *value)
{
    const weir_member *member = weir_member_find(f->of, f->member);
    if (member == NULL) return refuse(r, f->name, "left out"); /* every member has a row */
    weir_member row = *member;
    row.offset = f->target;
    if (f->least < f->most) {
        row.min = f->least;
        row.max = f->most;
    }
    return read_member(r, f->name, &row, r->ask, value);
}

static bool read_field(reader *r, const field *f, const json_t *value)
{
    weir_member own = {
        .type = f->kind == BOOL ? WEIR_MEMBER_BOOL : WEIR_MEMBER_INT32,
        .offset = f->target,
        .min = f->least,
        .max = f->most,
    };
    switch (f->kind) {
    case VALUE: *(const json_t **)(void *)((char *)r->ask + f->target) = value; return true;
    case MEMBER: return read_row(r, f, value);
    case OTHER: return f->read(r, f->name, value);
    case NEVER:
        serve_call_refuse(r->call, 400, f->name, "unsupported_field", "%s is not supported: %s", f->name,
                          f->why);
        return false;
    default: return read_member(r, f->name, &own, r->ask, value);
    }
}

static bool read_fields(reader *r, unsigned where)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->ask->json, key, value)
    {
        const field *f = find(key, where);
        const weir_member *plain = f == NULL ? find_plain(key) : NULL;
        if (plain != NULL) {
            if (!json_is_null(value) && !read_member(r, key, plain, &r->ask->sampler, value)) return false;
            continue;
        }
        if (f == NULL) {
            bool other = find(key, BOTH | SERVE_ASK_NATIVE) != NULL;
            serve_call_refuse(r->call, 400, strlen(key) < 64 ? key : NULL, "unknown_parameter",
                              other ? "\"%.64s\" is a field of another kind of request"
                                    : "there is no field \"%.64s\" in this request",
                              key);
            return false;
        }
        if (!json_is_null(value) && !read_field(r, f, value)) return false;
    }
    return true;
}

/* A fork's prompt, or messages, and what belongs to them are its source's. */
static bool check_fork(reader *r)
{
    const serve_ask *ask = r->ask;
    const bool chat = r->where == SERVE_ASK_CHAT; /* a dry run may be of either */
    if (ask->fork == NULL) return true;
    const char *other = ask->prompt != NULL                      ? "prompt"
                        : ask->messages != NULL                  ? "messages"
                        : ask->echo                              ? "echo"
                        : ask->tools != NULL                     ? "tools"
                        : ask->tool_choice != SERVE_TOOLS_UNSAID ? "tool_choice"
                        : ask->kwargs != NULL                    ? "chat_template_kwargs"
                        : json_is_string(json_object_get(ask->json, "special_content")) ? "special_content"
                        : ask->reasoning_effort != NULL                                 ? "reasoning_effort"
                        : ask->continue_final          ? "continue_final_message"
                        : ask->generation_prompt != 0  ? "add_generation_prompt"
                        : ask->request.prompt_logprobs ? "prompt_logprobs"
                        : ask->lora != NULL            ? "lora"
                        : chat && ask->schema != NULL  ? "response_format"
                                                       : NULL;
    return other == NULL || refuse(r, other, "left out of a fork: the prompt is the source's");
}

bool serve_ask_read(serve_ask *ask, serve_call *call, unsigned where)
{
    const serve_params *params = &call->server->params;
    reader r = {ask, call, where};
    memset(ask, 0, sizeof *ask);
    ask->sampler = params->sampler != NULL ? *params->sampler : weir_sampler_params_default();
    ask->special_content = params->special_content;
    ask->request = weir_request_default();
    ask->request.max_tokens = params->max_tokens;
    ask->n = 1;
    ask->parallel_tool_calls = true;
    if (!serve_call_read_json(call, &ask->json) || !read_fields(&r, where)) return false;
    const json_t *newer = json_object_get(ask->json, "max_completion_tokens");
    if (json_is_number(newer))
        ask->request.max_tokens = (int32_t)json_number_value(newer); /* whichever comes last */
    if (ask->sampler.top_k < 0) ask->sampler.top_k = 0;
    if (ask->best_of == 0) ask->best_of = ask->n;
    if (ask->best_of < ask->n) return refuse(&r, "best_of", "n or more");
    if (ask->best_of > ask->n && ask->stream)
        return refuse(&r, "best_of", "left out of a stream: which answers are the best is known in the end");
    if (ask->request.prompt_logprobs && ask->stream)
        return refuse(&r, "prompt_logprobs", "left out of a stream");
    if (!check_fork(&r)) return false;
    if ((where & SERVE_ASK_NATIVE) != 0 && (ask->request.logprobs || ask->request.prompt_logprobs))
        return refuse(&r, ask->request.logprobs ? "logprobs" : "prompt_logprobs",
                      "left out: /v1/completions has it");
    if ((where & SERVE_ASK_NATIVE) != 0 && (ask->echo || ask->resume))
        return refuse(&r, ask->echo ? "echo" : "resume", "left out: /v1/completions has it");
    if (ask->continue_final && ask->generation_prompt == SERVE_PROMPT_WANTED)
        return refuse(&r, "add_generation_prompt", "false or left out beside continue_final_message");
    if (ask->request.n_logprobs > 0 && !ask->request.logprobs)
        return refuse(&r, "top_logprobs", "left out without logprobs");
    if (ask->include_usage && !ask->stream) return refuse(&r, "stream_options", "left out without stream");
    if (ask->resume && !ask->stream) return refuse(&r, "resume", "left out without stream");
    if (ask->resume && params->grace_s == 0)
        return refuse(&r, "resume", "left out: this server keeps no streams (--resume-grace 0)");
    if (ask->schema != NULL && ask->sampler.grammar != NULL)
        return refuse(&r, "grammar", "left out where the answer has another form");
    return ask->fork != NULL || serve_lora_choose(call, ask->adapter, ask->lora, &ask->adapters);
}

void serve_ask_fini(serve_ask *ask)
{
    serve_adapter_set_fini(&ask->adapters);
    weir__mem_free(ask->schema);
    weir__mem_free(ask->order);
    weir__mem_free((void *)ask->breakers);
    weir__mem_free(ask->biases);
    json_decref(ask->json);
    memset(ask, 0, sizeof *ask);
}

void serve_ask_request(serve_ask *ask, const serve_call *call, char *salt, weir_request *request)
{
    const char *key = serve_keys_salt(call->server->keys, call->key);
    const weir_request *asked = &ask->request;
    *request = *asked;
    request->sampler = &ask->sampler;
    request->stop = ask->stop;
    request->stop_length = ask->stop_length;
    request->n_stop = ask->n_stop;
    request->adapters = ask->adapters.uses;
    request->n_adapters = ask->adapters.n;
    request->logprobs = asked->logprobs || ask->best_of > ask->n;
    request->prompt_logprobs = asked->prompt_logprobs || (ask->echo && asked->logprobs);
    if (ask->echo && asked->n_logprobs > asked->n_prompt_logprobs)
        request->n_prompt_logprobs = asked->n_logprobs;
    snprintf(salt, SERVE_SALT_MAX, "%s%s%s", key, ask->cache_salt != NULL ? "/" : "",
             ask->cache_salt != NULL ? ask->cache_salt : "");
    request->cache_salt = salt;
}

void serve_ask_answer(const serve_ask *ask, serve_answer *answer)
{
    answer->stream = ask->stream;
    answer->include_usage = ask->include_usage;
    answer->n_each = ask->best_of;
    answer->n_told = ask->n;
    /* Which choice is which is known only where all are told. */
    answer->kept = !ask->unkept && ask->best_of == ask->n;
    answer->resume = ask->resume;
    answer->share = ask->share;
    answer->tells_scores = ask->request.logprobs;
    answer->echoes_scores = ask->request.logprobs && ask->echo;
    answer->tells_prompt = ask->request.prompt_logprobs;
    answer->shows_prompt = ask->fork == NULL;
    answer->shows_cached =
        ask->fork == NULL && (ask->cache_salt != NULL || !serve_server_is_open(answer->call->server));
    answer->n_top = ask->request.n_logprobs;
}

/* ---- Forks ---- */

bool serve_ask_fork(serve_ask *ask, serve_call *call, const char *salt, weir_request *request,
                    serve_kept_choice *choice)
{
    static const char form[] = "an object: {\"id\": a completion's, \"index\": a choice's, \"at\": tokens}";
    reader r = {ask, call, BOTH};
    const char *key, *id = NULL;
    int32_t index = 0;
    json_t *value;
    request->source_at = -1;
    json_object_foreach((json_t *)ask->fork, key, value)
    {
        bool is_index = strcmp(key, "index") == 0, is_at = strcmp(key, "at") == 0;
        json_int_t n = json_integer_value(value);
        if (strcmp(key, "id") == 0 && json_is_string(value))
            id = json_string_value(value);
        else if ((is_index || is_at) && json_is_integer(value) && n >= (is_at ? -1 : 0) && n <= INT32_MAX)
            *(is_index ? &index : &request->source_at) = (int32_t)n;
        else
            return refuse(&r, "fork", form);
    }
    if (id == NULL) return refuse(&r, "fork", form);
    weir_status status = serve_kept_find(call->server->kept, id, salt, index, choice);
    if (status == WEIR_NO_MEMORY) {
        serve_call_no_memory(call);
        return false;
    }
    if (status != WEIR_OK) {
        serve_call_refuse(
            call, 404, "fork", "not_found",
            "there is no choice %d of an answer \"%.64s\" here that this key may fork: the last %d "
            "answers are kept, but for those of best_of and with store false",
            index, id, SERVE_KEPT_MOST);
        return false;
    }
    if (ask->adapter != NULL && (choice->adapter == NULL || strcmp(choice->adapter, ask->adapter) != 0))
        return refuse(&r, "model", "left out of a fork: it is the source's");
    ask->adapter = choice->adapter;
    request->source = choice->stream;
    return true;
}
