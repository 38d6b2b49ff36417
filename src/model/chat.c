/* chat.c: conversations, rendered.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/chat.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/deep.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"
#include "model/chat_calls.h"
#include "model/chat_message.h"
#include "model/chat_template.h"
#include "params/members.h"

#define ARGS_MAX 64 /* templates know a handful of variables; each is copied for each rendering */

/* Immutable but for refs. With llama.cpp, prompt and the texts of stops lie in `reader`. */
struct weir_chat {
    _Atomic int refs;
    weir_model *model;       /* held */
    weir__shim_chat *reader; /* NULL in a build without llama.cpp */
    bool plain;              /* the answer is all content: reader is for its texts only */
    bool continues;
    bool calls;       /* the content has the form of chat_calls.h; so has the next */
    bool form;        /* and its response is JSON */
    char *own_prompt; /* NULL, or the prompt where reader does not hold it */
    const char *prompt;
    size_t prompt_length;
    bool constrained;
    weir__grammar grammar;
    char *grammar_text;      /* grammar.text */
    weir__trigger *triggers; /* [grammar.n_triggers] */
    const char **stops;      /* [n_stops] */
    size_t n_stops;
    int32_t *preserved; /* [n_preserved], ascending */
    size_t n_preserved;
    weir__chat_mark *marks; /* [n_messages] */
    size_t n_messages;
    char *relaxed;                /* NULL or lines */
    weir_special_content special; /* what holds */
    weir__spans spans;            /* of contents in the prompt, while it is made */
    weir__parts parts;            /* of the prompt */
};

/* ---- What a chat tells ---- */

weir_model *weir__chat_model(const weir_chat *chat)
{
    return chat->model;
}

const weir__grammar *weir__chat_grammar(const weir_chat *chat)
{
    return chat->constrained ? &chat->grammar : NULL;
}

const char *const *weir__chat_stops(const weir_chat *chat, size_t *n)
{
    *n = chat->n_stops;
    return chat->stops;
}

const int32_t *weir__chat_preserved(const weir_chat *chat, size_t *n)
{
    *n = chat->n_preserved;
    return chat->preserved;
}

const weir__shim_chat *weir__chat_reader(const weir_chat *chat)
{
    return chat->plain ? NULL : chat->reader;
}

const weir__chat_mark *weir__chat_places(const weir_chat *chat, size_t *n)
{
    *n = chat->n_messages;
    return chat->marks;
}

const weir__parts *weir__chat_parts(const weir_chat *chat)
{
    return &chat->parts;
}

bool weir__chat_continues(const weir_chat *chat)
{
    return chat->continues;
}

bool weir__chat_calls(const weir_chat *chat, bool *form)
{
    *form = chat->form;
    return chat->calls;
}

const char *weir_chat_relaxed(const weir_chat *chat)
{
    return chat != NULL && chat->relaxed != NULL ? chat->relaxed : "";
}

const char *weir_chat_prompt(const weir_chat *chat, size_t *length)
{
    if (length != NULL) *length = chat != NULL ? chat->prompt_length : 0;
    return chat != NULL ? chat->prompt : "";
}

weir_special_content weir_chat_special_content(const weir_chat *chat)
{
    return chat != NULL ? chat->special : WEIR_SPECIAL_TRUSTED;
}

weir_status weir_chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity, size_t *n_tokens,
                               weir_error *error)
{
    if (chat == NULL) return weir__error_set(error, WEIR_INVALID, "chat", "chat is NULL");
    if (tokens == NULL && capacity > 0)
        return weir__error_set(error, WEIR_INVALID, "tokens", "tokens is NULL and capacity is %zu", capacity);
    if (n_tokens == NULL) return weir__error_set(error, WEIR_INVALID, "n_tokens", "n_tokens is NULL");
    if (chat->prompt_length > WEIR__TEXT_MAX)
        return weir__error_set(error, WEIR_INVALID, "chat", "the prompt has %zu bytes; allowed: 0 to %d",
                               chat->prompt_length, WEIR__TEXT_MAX);
    return weir__chat_tokens(chat->model, chat->prompt, chat->prompt_length, &chat->parts, tokens, capacity,
                             n_tokens, error);
}

weir_chat *weir_chat_hold(weir_chat *chat)
{
    if (chat != NULL) atomic_fetch_add_explicit(&chat->refs, 1, memory_order_relaxed);
    return chat;
}

void weir_chat_release(weir_chat *chat)
{
    if (chat == NULL || atomic_fetch_sub_explicit(&chat->refs, 1, memory_order_acq_rel) > 1) return;
    for (size_t i = 0; i < chat->grammar.n_triggers; i++) weir__mem_free(chat->triggers[i].value);
    weir__mem_free(chat->triggers);
    weir__mem_free(chat->grammar_text);
    weir__mem_free(chat->relaxed);
    weir__mem_free(chat->marks);
    weir__mem_free(chat->parts.at);
    weir__spans_fini(&chat->spans);
    weir__mem_free(chat->preserved);
    weir__mem_free((void *)chat->stops);
    weir__mem_free(chat->own_prompt);
#ifndef WEIR_NO_LLAMA
    weir__shim_chat_destroy(chat->reader);
#endif
    weir_model_release(chat->model);
    weir__mem_free(chat);
}

/* ---- Parameters ---- */

void weir_chat_params_init(weir_chat_params *params, size_t size)
{
    weir__members_init(&weir__chat_members, params, size);
}

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat");
}

static weir_status check_params(const weir_chat_params *params, const weir__chat_tools *tools,
                                weir_error *error)
{
    if (params->tool_choice != WEIR_TOOLS_AUTO && params->tool_choice != WEIR_TOOLS_REQUIRED &&
        params->tool_choice != WEIR_TOOLS_NONE)
        return weir__error_set(error, WEIR_INVALID, "tool_choice",
                               "tool_choice is %d; allowed: 0 (auto), 1 (required), 2 (none)",
                               (int)params->tool_choice);
    if (params->special_content != WEIR_SPECIAL_TRUSTED && params->special_content != WEIR_SPECIAL_NONE &&
        params->special_content != WEIR_SPECIAL_ALL)
        return weir__error_set(error, WEIR_INVALID, "special_content",
                               "special_content is %d; allowed: 0 (trusted), 1 (none), 2 (all)",
                               (int)params->special_content);
    if (params->tool_choice == WEIR_TOOLS_REQUIRED && tools->shown == NULL)
        return weir__error_set(error, WEIR_INVALID, "tool_choice",
                               "tool_choice asks for a call, but there are no tools in tools_json");
    if (params->n_args > 0 && params->args == NULL)
        return weir__error_set(error, WEIR_INVALID, "args", "args is NULL and n_args is %zu", params->n_args);
    if (params->n_args > ARGS_MAX)
        return weir__error_set(error, WEIR_INVALID, "n_args", "n_args is %zu; allowed: 0 to %d",
                               params->n_args, ARGS_MAX);
    if (params->now < 0)
        return weir__error_set(error, WEIR_INVALID, "now",
                               "now is %lld; allowed: 0 (the present time) and up", (long long)params->now);
    return WEIR_OK;
}

/* Of json_schema. */
static weir__schema_terms schema_terms(const weir_chat_params *params, weir__text *relaxed)
{
    return (weir__schema_terms){
        .where = "json_schema", .tag = "w", .relax = !params->strict_schema, .relaxed = relaxed};
}

/* Which of the prompt [length] are contents that are to stay text, and what of special_content that
 * leaves. */
static weir_status find_content(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                                bool deletes, const char *prompt, size_t length, weir__chat_render_fn again,
                                void *user, weir_error *error)
{
    const weir__controls *controls;
    weir_status status = weir__controls_get(chat->model, &controls, error);
    if (status == WEIR_OK)
        status = weir__chat_content_find(controls, messages, params->special_content, deletes, prompt, length,
                                         again, user, &chat->spans, error);
    chat->special = chat->spans.known ? params->special_content : WEIR_SPECIAL_ALL;
    return status;
}

#ifdef WEIR_NO_LLAMA

/* ---- Without llama.cpp: ChatML, for the fake model ---- */

static bool add_string(weir__text *t, const json_t *string)
{
    return weir__text_add(t, json_string_value(string), json_string_length(string));
}

static bool add_content(weir__text *t, const json_t *content)
{
    bool ok = true;
    if (json_is_string(content)) return add_string(t, content);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        if (i > 0) ok = weir__text_add(t, "\n", 1);
        ok = ok && add_string(t, json_object_get(json_array_get(content, i), "text"));
    }
    return ok;
}

static bool add_messages(weir__text *t, const weir_chat_params *params, const json_t *messages)
{
    static const char begin[] = "<|im_start|>", end[] = "<|im_end|>\n", answer[] = "<|im_start|>assistant\n";
    bool ok = true;
    size_t n = json_array_size(messages);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        ok = weir__text_add(t, begin, sizeof begin - 1) && add_string(t, json_object_get(message, "role")) &&
             weir__text_add(t, "\n", 1) && add_content(t, json_object_get(message, "content")) &&
             ((params->continue_final && i + 1 == n) || weir__text_add(t, end, sizeof end - 1));
    }
    if (params->add_generation_prompt && !params->continue_final)
        ok = ok && weir__text_add(t, answer, sizeof answer - 1);
    return ok;
}

static weir_status render_again(void *user, const json_t *messages, weir__text *prompt, weir_error *error)
{
    return add_messages(prompt, user, messages) ? WEIR_OK : no_memory(error);
}

static weir_status render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                          const weir__chat_tools *tools, weir__text *relaxed, weir_error *error)
{
    (void)relaxed;
    weir__text t = {0};
    if (strcmp(chat->model->ops->name, "fake") != 0 || params->template_source != NULL ||
        tools->shown != NULL || params->json_schema != NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED,
                               params->template_source ? "template_source"
                               : tools->shown          ? "tools_json"
                               : params->json_schema   ? "json_schema"
                                                       : NULL,
                               "this build has no llama.cpp, which templates, tools and schemas need");
    bool ok = add_messages(&t, params, messages);
    chat->own_prompt = t.bytes;
    if (!ok) return no_memory(error);
    chat->prompt = t.bytes;
    chat->prompt_length = t.n;
    chat->plain = true;
    return find_content(chat, params, messages, false, t.bytes, t.n, render_again, (void *)params, error);
}

#else

/* ---- Arguments of the template ---- */

/* Keys and JSON values for the template. Owns what it made: values[0 .. n). */
typedef struct arguments {
    const char *keys[ARGS_MAX + 2];
    char *values[ARGS_MAX + 2];
    size_t n;
} arguments;

static void arguments_fini(arguments *a)
{
    while (a->n > 0) weir__mem_free(a->values[--a->n]);
}

static bool has_key(const arguments *a, const char *key)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->keys[i], key) == 0) return true;
    return false;
}

static weir_status add_argument(arguments *a, const char *key, json_t *value, weir_error *error)
{
    char *text = value != NULL ? weir__json_dump(value) : NULL;
    json_decref(value);
    if (text == NULL) return no_memory(error);
    a->keys[a->n] = key;
    a->values[a->n++] = text;
    return WEIR_OK;
}

static weir_status add_given(arguments *a, const weir_template_arg *given, size_t i, bool *enable_thinking,
                             weir_error *error)
{
    static const char *const reserved[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                           "eos_token"};
    char field[32];
    json_t *value = NULL;
    snprintf(field, sizeof field, "args[%zu]", i);
    if (given->key == NULL || given->key[0] == '\0' || given->value == NULL)
        return weir__error_set(error, WEIR_INVALID, field, "%s must have a key and a value", field);
    if (!weir__utf8_valid(given->key, strlen(given->key)) ||
        !weir__utf8_valid(given->value, strlen(given->value)))
        return weir__error_set(error, WEIR_INVALID, field, "%s is not well-formed UTF-8", field);
    for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
        if (strcmp(given->key, reserved[k]) == 0)
            return weir__error_set(error, WEIR_INVALID, field, "%s: the key \"%s\" is given by weir itself",
                                   field, given->key);
    if (has_key(a, given->key))
        return weir__error_set(error, WEIR_INVALID, field, "%s: the key \"%.60s\" is given twice", field,
                               given->key);
    weir_status status = weir__json_parse(given->value, WEIR_NUL, field, WEIR_INVALID, &value, NULL);
    if (status == WEIR_NO_MEMORY) return no_memory(error);
    if (status != WEIR_OK) value = json_string(given->value);
    if (strcmp(given->key, "enable_thinking") == 0) {
        if (!json_is_boolean(value)) {
            json_decref(value);
            return weir__error_set(error, WEIR_INVALID, field, "%s: enable_thinking must be true or false",
                                   field);
        }
        *enable_thinking = json_is_true(value);
    }
    return add_argument(a, given->key, value, error);
}

/* Date texts as common makes them, from the caller's time. */
static weir_status add_date(arguments *a, const char *key, const char *format, time_t now, weir_error *error)
{
    char text[64];
    struct tm local;
    if (has_key(a, key)) return WEIR_OK;
    if (localtime_r(&now, &local) == NULL || strftime(text, sizeof text, format, &local) == 0)
        return weir__error_set(error, WEIR_INVALID, "now", "now is no date that can be printed");
    return add_argument(a, key, json_string(text), error);
}

/* strftime_now("…") in a template asks for the present time. With a time of the caller's, these calls are
 * replaced by what they give: *dated, freed with weir__mem_free, or NULL when there are none. */
static weir_status date_source(const char *source, time_t now, char **dated, weir_error *error)
{
    static const char call[] = "strftime_now(";
    const char *at = strstr(source, call);
    char *out = NULL;
    size_t n = 0, capacity = 0;
    struct tm local;
    *dated = NULL;
    if (at == NULL) return WEIR_OK;
    if (localtime_r(&now, &local) == NULL)
        return weir__error_set(error, WEIR_INVALID, "now", "now is no date that can be printed");
    for (const char *from = source;; at = strstr(at, call)) {
        const char *end = at == NULL ? source + strlen(source) : at;
        char format[64], text[160] = "";
        const char *rest = end;
        if (at != NULL) {
            const char *open = at + sizeof call - 1;
            open += strspn(open, " ");
            const char *close = *open == '"' || *open == '\'' ? strchr(open + 1, *open) : NULL;
            const char *last = close != NULL ? close + 1 + strspn(close + 1, " ") : NULL;
            if (last == NULL || *last != ')' || (size_t)(close - open) > sizeof format) {
                at += sizeof call - 1;
                continue;
            }
            char date[128];
            memcpy(format, open + 1, (size_t)(close - open) - 1);
            format[close - open - 1] = '\0';
            if (strftime(date, sizeof date, format, &local) == 0) date[0] = '\0';
            if (strpbrk(date, "\"\\") != NULL) date[0] = '\0';
            snprintf(text, sizeof text, "\"%s\"", date);
            rest = last + 1;
        }
        size_t kept = (size_t)(end - from), added = strlen(text);
        if (!weir__mem_grow(&out, &capacity, n + kept + added + 1, 1)) {
            weir__mem_free(out);
            return no_memory(error);
        }
        memcpy(out + n, from, kept);
        memcpy(out + n + kept, text, added + 1);
        n += kept + added;
        if (at == NULL) break;
        from = at = rest;
    }
    *dated = out;
    return WEIR_OK;
}

/* ---- Rendering ---- */

enum { MESSAGES, TOOLS, ENFORCED, SCHEMA, N_TEXTS };

/* One rendering: what was given, what is made of it on the way (owned, but for `out`), and what came out. */
typedef struct rendering {
    const weir_chat_params *params;
    const json_t *messages;
    const weir__chat_tools *tools;
    weir__text *relaxed; /* lines about the schema; may be NULL */
    time_t now;
    bool enable_thinking;
    weir__chat_template *template;
    json_t *schema;
    arguments args;
    char *texts[N_TEXTS]; /* JSON */
    weir__shim_chat *out; /* NULL unless status is WEIR_OK */
    weir__text *text;     /* where a prompt goes that is rendered alone */
    weir_status status;
    weir_error error;
} rendering;

static void rendering_fini(rendering *r)
{
    for (size_t i = 0; i < N_TEXTS; i++) weir__mem_free(r->texts[i]);
    json_decref(r->schema);
    arguments_fini(&r->args);
    weir__chat_template_release(r->template);
}

/* The template, with the caller's time where it asks for the present one. */
static weir_status find_template(rendering *r, weir_model *model, weir_error *error)
{
    char *dated = NULL;
    bool with_tools = r->tools->shown != NULL;
    weir_status status =
        weir__chat_template_get(model, r->params->template_source, with_tools, &r->template, error);
    if (status != WEIR_OK) return status;
    if (with_tools && !weir__shim_template_knows_tools(weir__chat_template_parsed(r->template)))
        return weir__error_set(error, WEIR_UNSUPPORTED, "tools_json",
                               "the chat template does not know tools");
    if (r->params->now == 0) return WEIR_OK;
    status = date_source(weir__chat_template_source(r->template), r->now, &dated, error);
    if (status != WEIR_OK || dated == NULL) return status;
    weir__chat_template_release(r->template);
    r->template = NULL;
    status = weir__chat_template_get(model, dated, false, &r->template, error);
    weir__mem_free(dated);
    return status;
}

static weir_status read_schema(rendering *r, weir_error *error)
{
    const weir__schema_terms terms = schema_terms(r->params, r->relaxed);
    json_t *given = NULL;
    if (r->params->json_schema == NULL) return WEIR_OK;
    weir_status status =
        weir__json_parse(r->params->json_schema, WEIR_NUL, "json_schema", WEIR_GRAMMAR, &given, error);
    if (status == WEIR_OK) status = weir__schema_rewrite(given, &terms, &r->schema, error);
    json_decref(given);
    return status;
}

static weir_status read_args(rendering *r, weir_error *error)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < r->params->n_args; i++)
        status = add_given(&r->args, &r->params->args[i], i, &r->enable_thinking, error);
    if (status == WEIR_OK) status = add_date(&r->args, "datetime", "%b %d %Y", r->now, error);
    if (status == WEIR_OK) status = add_date(&r->args, "date_string", "%d %b %Y", r->now, error);
    return status;
}

static weir_status write_texts(rendering *r, weir_error *error)
{
    const json_t *const values[N_TEXTS] = {
        [MESSAGES] = r->messages,
        [TOOLS] = r->tools->shown,
        [ENFORCED] = r->tools->enforced,
        [SCHEMA] = r->schema,
    };
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (values[i] == NULL) continue;
        r->texts[i] = weir__json_dump(values[i]);
        if (r->texts[i] == NULL) return no_memory(error);
    }
    return WEIR_OK;
}

static weir__shim_render shim_render(const rendering *r)
{
    return (weir__shim_render){
        .messages = r->texts[MESSAGES],
        .tools = r->texts[TOOLS],
        .enforced_tools = r->texts[ENFORCED],
        .json_schema = r->texts[SCHEMA],
        .tool_choice = r->params->tool_choice,
        .arg_keys = r->args.keys,
        .arg_values = (const char *const *)r->args.values,
        .n_args = r->args.n,
        .parallel_tool_calls = r->params->parallel_tool_calls,
        .add_generation_prompt = r->params->add_generation_prompt,
        .enable_thinking = r->enable_thinking,
        .continue_final = r->params->continue_final,
        .parse_reasoning = r->params->parse_reasoning,
    };
}

static void run_template(void *user)
{
    rendering *r = user;
    const weir__shim_render in = shim_render(r);
    r->status = weir__shim_chat_create(weir__chat_template_parsed(r->template), &in, &r->out, &r->error);
}

static bool add_prompt(void *user, const char *prompt, size_t n)
{
    return weir__text_add(user, prompt, n);
}

static void run_prompt(void *user)
{
    rendering *r = user;
    const weir__shim_render in = shim_render(r);
    r->status =
        weir__shim_chat_prompt(weir__chat_template_parsed(r->template), &in, add_prompt, r->text, &r->error);
}

/* Templates recurse. */
static weir_status run(rendering *r, void (*fn)(void *user), weir_error *error)
{
    size_t stack = r->params->template_source != NULL ? WEIR__CHAT_STACK_GIVEN : WEIR__CHAT_STACK;
    weir_status status = weir__deep_run(fn, r, stack, error);
    return status == WEIR_OK && r->status != WEIR_OK ? weir__error_copy(error, &r->error) : status;
}

static weir_status render_again(void *user, const json_t *messages, weir__text *prompt, weir_error *error)
{
    rendering *r = user;
    char *text = weir__json_dump(messages);
    if (text == NULL) return no_memory(error);
    weir__mem_free(r->texts[MESSAGES]);
    r->texts[MESSAGES] = text;
    r->text = prompt;
    return run(r, run_prompt, error);
}

/* Whether the template has words with which text is taken out of a text. */
static bool deletes(const rendering *r)
{
    static const char *const words[] = {"replace", "split", "join"};
    const char *source = weir__chat_template_source(r->template);
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) found |= strstr(source, words[i]) != NULL;
    return found;
}

/* Whether bytes from..to of the prompt have a byte of a content. */
static bool is_content(const weir_chat *chat, size_t from, size_t to)
{
    for (size_t i = 0; i < chat->spans.n; i++)
        if (chat->spans.at[i].from < to && from < chat->spans.at[i].to) return true;
    return false;
}

/* What begins the prompt is taken off; so all spans begin earlier. */
static void cut_front(weir_chat *chat, size_t n)
{
    chat->prompt += n;
    chat->prompt_length -= n;
    for (size_t i = 0; i < chat->spans.n; i++) {
        chat->spans.at[i].from -= n;
        chat->spans.at[i].to -= n;
    }
}

static weir_status cut_back(weir_chat *chat, size_t n, weir_error *error)
{
    size_t length = chat->prompt_length - n;
    char *prompt = weir__mem_calloc(length + 1, 1);
    if (prompt == NULL) return no_memory(error);
    memcpy(prompt, chat->prompt, length);
    chat->prompt = chat->own_prompt = prompt;
    chat->prompt_length = length;
    return WEIR_OK;
}

/* The tokenizer adds BOS and EOS where the model wants them, so the text must not have them too. */
static weir_status strip_specials(weir_chat *chat, weir_error *error)
{
    const weir_model *model = chat->model;
    const int32_t tokens[2] = {model->info.add_bos ? model->info.token_bos : -1,
                               model->info.add_eos ? model->info.token_eos : -1};
    for (int i = 0; i < 2; i++) {
        char piece[128];
        int32_t size =
            tokens[i] < 0 ? 0 : model->ops->piece(model->model, tokens[i], true, piece, sizeof piece);
        if (size <= 0 || (size_t)size > chat->prompt_length) continue;
        size_t n = (size_t)size, at = i == 0 ? 0 : chat->prompt_length - n;
        if (memcmp(chat->prompt + at, piece, n) != 0 || is_content(chat, at, at + n)) continue;
        if (i == 0)
            cut_front(chat, n);
        else if (cut_back(chat, n, error) != WEIR_OK)
            return WEIR_NO_MEMORY;
    }
    return WEIR_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t first = *(const int32_t *)a, second = *(const int32_t *)b;
    return (first > second) - (first < second);
}

/* *token is the one token that the text is, or -1. */
static weir_status single_token(const weir_model *model, const char *text, int32_t *token, weir_error *error)
{
    int32_t tokens[2];
    size_t n = 0;
    weir_status status =
        model->ops->tokenize(model->model, text, strlen(text), false, true, tokens, 2, &n, NULL);
    *token = status == WEIR_OK && n == 1 ? tokens[0] : -1;
    return status == WEIR_NO_MEMORY ? no_memory(error) : WEIR_OK;
}

static weir_status read_lists(weir_chat *chat, const weir__shim_chat_view *view, weir_error *error)
{
    chat->stops = weir__mem_calloc(view->n_stops, sizeof *chat->stops);
    chat->preserved = weir__mem_calloc(view->n_preserved, sizeof *chat->preserved);
    if (chat->stops == NULL || chat->preserved == NULL) return no_memory(error);
    for (size_t i = 0; i < view->n_stops; i++) {
        const char *stop = weir__shim_chat_stop(chat->reader, i);
        if (stop[0] != '\0') chat->stops[chat->n_stops++] = stop;
    }
    for (size_t i = 0; i < view->n_preserved; i++) {
        int32_t token;
        weir_status status =
            single_token(chat->model, weir__shim_chat_preserved(chat->reader, i), &token, error);
        if (status != WEIR_OK) return status;
        if (token >= 0) chat->preserved[chat->n_preserved++] = token;
    }
    qsort(chat->preserved, chat->n_preserved, sizeof *chat->preserved, compare_ids);
    size_t n = 0;
    for (size_t i = 0; i < chat->n_preserved; i++)
        if (n == 0 || chat->preserved[n - 1] != chat->preserved[i]) chat->preserved[n++] = chat->preserved[i];
    chat->n_preserved = n;
    return WEIR_OK;
}

/* Words that are one token of the model trigger as that token. */
static weir_status read_triggers(weir_chat *chat, const weir__shim_chat_view *view, weir_error *error)
{
    chat->triggers = weir__mem_calloc(view->n_triggers, sizeof *chat->triggers);
    if (chat->triggers == NULL) return no_memory(error);
    for (size_t i = 0; i < view->n_triggers; i++) {
        weir__trigger *t = &chat->triggers[i];
        const char *value = weir__shim_chat_trigger(chat->reader, i, &t->kind);
        t->token = -1;
        if (t->kind == 0 || t->kind == 3) {
            weir_status status = single_token(chat->model, value, &t->token, error);
            if (status != WEIR_OK) return status;
        }
        if (t->token >= 0)
            t->kind = 3;
        else if (t->kind == 3)
            t->kind = 0;
        t->value = weir__mem_strdup(value);
        if (t->value == NULL) return no_memory(error);
        chat->grammar.n_triggers = i + 1;
    }
    chat->grammar.triggers = chat->triggers;
    return WEIR_OK;
}

static weir_status read_grammar(weir_chat *chat, const weir__shim_chat_view *view, const json_t *schema,
                                weir_error *error)
{
    weir_status status;
    bool given = view->grammar[0] != '\0';
    if (schema != NULL && (!given || view->lazy)) {
        /* The template's handler knows no forms of answers: then the answer is the JSON text and nothing
         * else. */
        chat->plain = true;
        if ((status = weir__grammar_from_schema(schema, &chat->grammar_text, error)) != WEIR_OK)
            return status;
    } else if (!given) {
        return WEIR_OK;
    } else {
        chat->grammar_text = weir__mem_strdup(view->grammar);
        if (chat->grammar_text == NULL) return no_memory(error);
        chat->grammar.lazy = view->lazy;
        if (view->lazy && view->n_triggers == 0) return WEIR_OK; /* it could never begin */
        if (view->lazy && (status = read_triggers(chat, view, error)) != WEIR_OK) return status;
        if ((status = weir__grammar_check_ending(chat->grammar_text, error)) != WEIR_OK) return status;
        if (!view->lazy && view->generation_prompt[0] != '\0')
            chat->grammar.prefill = view->generation_prompt;
    }
    chat->grammar.text = chat->grammar_text;
    chat->constrained = true;
    return WEIR_OK;
}

/* Some templates have calls whose arguments stand one by one and unquoted; their texts are not constrained.
 */
static weir_status check_enforcement(const weir_chat *chat, const rendering *r, weir_error *error)
{
    weir__shim_form form;
    if (r->tools->shown == NULL || r->params->tool_choice == WEIR_TOOLS_NONE) return WEIR_OK;
    weir__shim_chat_form(chat->reader, &form);
    if (chat->constrained && !form.loose_arguments) return WEIR_OK;
    if (r->tools->strict)
        return weir__error_set(error, WEIR_UNSUPPORTED, "tools_json",
                               "the chat template's form of calls cannot be enforced to the letter");
    if (weir__chat_template_warn_once(r->template))
        weir__log(WEIR_LOG_WARN,
                  "in the form of calls that this chat template has, parameters of tools are not "
                  "enforced in full; check arguments before use");
    return WEIR_OK;
}

/* What the chat is, from what the template's handler gave. */
static weir_status read_chat(weir_chat *chat, rendering *r, weir_error *error)
{
    weir__shim_chat_view view;
    weir__shim_chat_look(chat->reader, &view);
    chat->continues = r->params->continue_final;
    chat->prompt = view.prompt;
    chat->prompt_length = view.prompt_length;
    weir_status status = find_content(chat, r->params, r->messages, deletes(r), view.prompt,
                                      view.prompt_length, render_again, r, error);
    if (status == WEIR_OK) status = strip_specials(chat, error);
    if (status == WEIR_OK) status = read_lists(chat, &view, error);
    if (status == WEIR_OK) status = read_grammar(chat, &view, r->schema, error);
    if (status == WEIR_OK) status = check_enforcement(chat, r, error);
    return status;
}

static weir_status render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                          const weir__chat_tools *tools, weir__text *relaxed, weir_error *error)
{
    rendering r = {
        .params = params,
        .messages = messages,
        .tools = tools,
        .relaxed = relaxed,
        .now = params->now != 0 ? (time_t)params->now : time(NULL),
        .enable_thinking = params->enable_thinking,
    };
    weir_status status = find_template(&r, chat->model, error);
    if (status == WEIR_OK) status = read_schema(&r, error);
    if (status == WEIR_OK) status = read_args(&r, error);
    if (status == WEIR_OK) status = write_texts(&r, error);
    if (status == WEIR_OK) status = run(&r, run_template, error);
    if (status == WEIR_OK) {
        chat->reader = r.out;
        status = read_chat(chat, &r, error);
    }
    rendering_fini(&r);
    return status;
}

#endif

/* The prompt is complete: how it is tokenized. */
static weir_status cut(weir_chat *chat, weir_error *error)
{
    const weir__controls *controls;
    weir_status status = weir__controls_get(chat->model, &controls, error);
    if (status == WEIR_OK)
        status =
            weir__chat_cut(controls, chat->prompt, chat->prompt_length, &chat->spans, &chat->parts, error);
    weir__spans_fini(&chat->spans);
    return status;
}

/* From messages and tools as they are given here, whatever params says of them. */
static weir_status create(weir_model *model, const weir_chat_params *params, const json_t *messages,
                          const weir__chat_tools *tools, weir__text *relaxed, weir_chat **out,
                          weir_error *error)
{
    weir_chat *chat = weir__mem_calloc(1, sizeof *chat);
    if (chat == NULL) return no_memory(error);
    atomic_init(&chat->refs, 1);
    chat->model = weir_model_hold(model);
    weir_status status = render(chat, params, messages, tools, relaxed, error);
    if (status == WEIR_OK) status = cut(chat, error);
    if (status == WEIR_OK)
        *out = chat;
    else
        weir_chat_release(chat);
    return status;
}

/* Whether it is for want of a form of calls that a chat cannot be made. */
static bool is_of_tools(const weir_error *error)
{
    return strcmp(error->field, "tools_json") == 0 || strcmp(error->field, "tool_choice") == 0 ||
           strcmp(error->field, "json_schema") == 0;
}

/* Tools with a template that knows none, or none that it could be held to. */
static weir_status create_described(weir_model *model, weir_chat_params params, const json_t *messages,
                                    weir__chat_tools *tools, weir_chat **out, weir_error *error)
{
    static const weir__chat_tools none = {0};
    json_t *form = NULL, *described = NULL;
    char *schema = NULL;
    weir_chat *chat = NULL;
    weir_status status = WEIR_OK;
    if (params.tool_choice == WEIR_TOOLS_NONE) /* not to be called anyway */
        return create(model, &params, messages, &none, &tools->relaxed, out, error);
    weir__chat_calls_talk talk = params.tool_choice == WEIR_TOOLS_REQUIRED ? WEIR__TALK_NONE
                                 : params.json_schema != NULL              ? WEIR__TALK_FORM
                                                                           : WEIR__TALK_WORDS;
    if (talk == WEIR__TALK_FORM)
        status = weir__json_parse(params.json_schema, WEIR_NUL, "json_schema", WEIR_GRAMMAR, &form, error);
    if (status == WEIR_OK) {
        const weir__schema_terms terms = schema_terms(&params, &tools->relaxed);
        status = weir__chat_calls_describe(messages, tools, talk, form, &terms, &described, &schema, error);
    }
    if (status == WEIR_OK) {
        params.tool_choice = WEIR_TOOLS_AUTO;
        params.json_schema = schema;
        params.strict_schema = false; /* what is to be refused was; what is left out has been told */
        status = create(model, &params, described, &none, NULL, &chat, error);
        if (status == WEIR_GRAMMAR) snprintf(error->field, sizeof error->field, "tools_json");
    }
    if (status == WEIR_UNSUPPORTED) snprintf(error->field, sizeof error->field, "tools_json");
    if (chat != NULL) {
        chat->calls = true;
        chat->form = talk == WEIR__TALK_FORM;
        *out = chat;
    }
    weir__mem_free(schema);
    json_decref(described);
    json_decref(form);
    return status;
}

weir_status weir_chat_create(weir_model *model, const weir_chat_params *given, weir_chat **out,
                             weir_error *error)
{
    weir_chat_params params;
    weir__chat_tools tools = {0};
    json_t *messages = NULL;
    weir_chat *chat = NULL;
    weir_error own = {0};
    if (error == NULL) error = &own; /* it is asked for the field */
    weir_chat_params_init(&params, sizeof params);
    if (model == NULL) return weir__error_set(error, WEIR_INVALID, "model", "model is NULL");
    if (out == NULL) return weir__error_set(error, WEIR_INVALID, "chat", "chat is NULL");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = weir__chat_messages(&params, &messages, error);
    if (status == WEIR_OK)
        status =
            weir__chat_tools_init(params.tools_json, params.tool_choice != WEIR_TOOLS_NONE, &tools, error);
    if (status == WEIR_OK) status = check_params(&params, &tools, error);
    if (status != WEIR_OK) goto out;

    status = create(model, &params, messages, &tools, &tools.relaxed, &chat, error);
    if (status == WEIR_UNSUPPORTED && tools.shown != NULL && is_of_tools(error))
        status = create_described(model, params, messages, &tools, &chat, error);
    if (chat == NULL) goto out; /* status says why */
    chat->relaxed = tools.relaxed.bytes;
    tools.relaxed = (weir__text){0};
    chat->n_messages = json_array_size(messages);
    chat->marks = weir__chat_marks(messages, chat->prompt, chat->prompt_length);
    if (chat->marks == NULL) {
        weir_chat_release(chat);
        status = no_memory(error);
        goto out;
    }
    *out = chat;
out:
    weir__chat_tools_fini(&tools);
    json_decref(messages);
    return status;
}
