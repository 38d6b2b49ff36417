/* message.c: the messages and tools of a conversation, checked and normalized.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Messages come as structs or as JSON, and become one JSON array whose members are all of the kinds that
 * templates expect. The arguments of a call are kept twice, as a text and as an object, since a template may
 * want either; all such objects of a conversation share a limit of values. A tool is kept twice, too: as the
 * template shows it, and with its schema rewritten as the grammar enforces it. Names that would become one
 * rule of the grammar are refused. Each error names the place in the caller's terms. */
#include "chat/message.h"

#include <stdio.h>
#include <string.h>

#include "backend/chat.h"
#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/schema.h"

#define NAME_MAX_ 64   /* bytes of a function's name, as in OpenAI's API */
#define TOOLS_MAX 1024 /* each becomes rules of one grammar, whose size has a limit, too; OpenAI allows 128 */

/* Work that was interrupted ends like this, too. */
static weir_status no_memory(weir_error *error)
{
    if (weir_interrupt_asked()) return weir__interrupt_error(error);
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the messages of a chat");
}

/* A field such as "messages[3].tool_calls[0].function", cut if it does not fit. */
typedef struct place {
    char text[64];
} place;

static place place_at(const char *list, size_t i, const char *rest)
{
    place p;
    snprintf(p.text, sizeof p.text, "%s[%zu]%s", list, i, rest);
    return p;
}

static weir_status must_be(weir_error *error, place p, const char *what)
{
    return weir__invalid(error, WEIR_ERROR_FORM, p.text, "`%s` must be %s", p.text, what);
}

/* ---- Messages given as structs ---- */

static weir_status read_text(const char *text, place p, bool may_be_empty, weir_error *error)
{
    if (text == NULL) return weir__error_null(error, p.text);
    if (!may_be_empty && text[0] == '\0')
        return weir__invalid(
            error, WEIR_ERROR_MISSING, p.text,
            "`%s` is empty; give \"system\", \"user\", \"assistant\" or another role of the template",
            p.text);
    if (!weir__utf8_valid(text, strlen(text)))
        return weir__invalid(error, WEIR_ERROR_FORM, p.text, "`%s` is not well-formed UTF-8", p.text);
    return WEIR_OK;
}

static weir_status from_structs(const weir_message *given, size_t n, json_t **messages, weir_error *error)
{
    *messages = json_array();
    for (size_t i = 0; i < n; i++) {
        weir_status status = read_text(given[i].role, place_at("messages", i, ".role"), false, error);
        if (status == WEIR_OK)
            status = read_text(given[i].content, place_at("messages", i, ".content"), true, error);
        if (status != WEIR_OK) return status;
        json_t *one = json_pack("{s:s,s:s}", "role", given[i].role, "content", given[i].content);
        if (json_array_append_new(*messages, one) != 0) return no_memory(error);
    }
    return WEIR_OK;
}

/* ---- Messages given as JSON ---- */

weir__part_kind weir__chat_part_kind(const json_t *part)
{
    static const struct {
        const char *type;
        weir__part_kind kind;
    } kinds[] = {
        {"text", WEIR__PART_TEXT},         {"image_url", WEIR__PART_IMAGE}, {"image", WEIR__PART_IMAGE},
        {"input_audio", WEIR__PART_SOUND}, {"audio", WEIR__PART_SOUND},     {"media", WEIR__PART_MEDIA},
    };
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type != NULL && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].kind;
    return WEIR__PART_UNKNOWN;
}

static weir_status check_content(const json_t *content, size_t i, weir_error *error)
{
    if (json_is_string(content) || json_is_null(content)) return WEIR_OK;
    if (!json_is_array(content))
        return must_be(error, place_at("messages", i, ".content"), "a string, null or an array of parts");
    for (size_t k = 0; k < json_array_size(content); k++) {
        char rest[32];
        snprintf(rest, sizeof rest, ".content[%zu]", k);
        place p = place_at("messages", i, rest);
        const json_t *part = json_array_get(content, k);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type == NULL) return must_be(error, p, "an object with a type");
        weir__part_kind kind = weir__chat_part_kind(part);
        if (kind == WEIR__PART_UNKNOWN)
            return weir__error_set(
                error, WEIR_UNSUPPORTED, p.text,
                "`%s` is of type \"%.40s\"; known: text, image_url, input_audio, image, audio, media", p.text,
                type);
        if (kind == WEIR__PART_TEXT && !json_is_string(json_object_get(part, "text")))
            return must_be(error, p, "a part with a text");
    }
    return WEIR_OK;
}

/* Reads the arguments, and keeps them beside their text, as a template may want either. Those that are no
 * JSON object come from a call that broke off and that a client sends back. Templates need an object: the
 * prompt has one with the text in it. So it has where the conversation's calls hold more values than *left.
 */
static weir_status read_arguments(json_t *function, size_t *left, weir_error *error)
{
    json_t *given = json_object_get(function, "arguments"), *parsed = NULL;
    char *text = NULL;
    bool ok = true;
    weir_status status = weir__json_parse_texts(json_string_value(given), json_string_length(given), "",
                                                WEIR_INVALID, &parsed, NULL);
    if (status == WEIR_NO_MEMORY || status == WEIR_ABORTED) return no_memory(error);
    if (!json_is_object(parsed) || !weir__json_spend(parsed, left)) {
        json_decref(parsed);
        parsed = json_pack("{sO}", "arguments", given);
        text = parsed != NULL ? weir__json_dump(parsed) : NULL;
        ok = text != NULL && json_object_set_new(function, "arguments", json_string(text)) == 0;
        weir__mem_free(text);
    }
    ok = json_object_set_new(function, WEIR__CHAT_PARSED, parsed) == 0 && ok;
    return ok ? WEIR_OK : no_memory(error);
}

/* Adds members that may be left out: type, arguments. */
static weir_status check_call(json_t *call, size_t i, size_t k, size_t *left, weir_error *error)
{
    char rest[40];
    snprintf(rest, sizeof rest, ".tool_calls[%zu]", k);
    place p = place_at("messages", i, rest);
    json_t *function = json_object_get(call, "function");
    const json_t *type = json_object_get(call, "type"), *id = json_object_get(call, "id");
    if (!json_is_object(function)) return must_be(error, p, "an object with a function");
    if (type == NULL) {
        if (json_object_set_new(call, "type", json_string("function")) != 0) return no_memory(error);
    } else if (json_string_value(type) == NULL || strcmp(json_string_value(type), "function") != 0) {
        return must_be(error, p, "of type \"function\"");
    }
    if (json_is_null(id))
        json_object_del(call, "id");
    else if (id != NULL && !json_is_string(id))
        return must_be(error, p, "a call whose id is a string");
    const json_t *name = json_object_get(function, "name");
    if (!json_is_string(name) || json_string_length(name) == 0)
        return must_be(error, p, "a call whose function has a name");
    const json_t *arguments = json_object_get(function, "arguments");
    json_object_del(function, WEIR__CHAT_PARSED);
    if (json_is_object(arguments)) return WEIR_OK;
    if (arguments != NULL && !json_is_string(arguments))
        return must_be(error, p, "a call whose arguments are JSON text or an object");
    if (json_string_length(arguments) == 0 &&
        json_object_set_new(function, "arguments", json_string("{}")) != 0)
        return no_memory(error);
    return read_arguments(function, left, error);
}

static weir_status check_message(json_t *message, size_t i, size_t *left, weir_error *error)
{
    static const char *const texts[] = {"reasoning_content", "name", "tool_call_id"};
    weir_status status;
    if (!json_is_object(message)) return must_be(error, place_at("messages", i, ""), "an object");
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    json_t *calls = json_object_get(message, "tool_calls");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return must_be(error, place_at("messages", i, ".role"), "a string that is not empty");
    if (json_is_null(calls)) {
        json_object_del(message, "tool_calls");
        calls = NULL;
    }
    if (calls != NULL && !json_is_array(calls))
        return must_be(error, place_at("messages", i, ".tool_calls"), "an array of calls");
    if (content == NULL && json_array_size(calls) == 0)
        return must_be(error, place_at("messages", i, ".content"),
                       "given, unless the message has tool_calls");
    if (content != NULL && (status = check_content(content, i, error)) != WEIR_OK) return status;
    if (json_is_null(content) && json_array_size(calls) == 0 &&
        strcmp(json_string_value(role), "assistant") != 0)
        return must_be(error, place_at("messages", i, ".content"), "a string or an array of parts");
    for (size_t k = 0; k < json_array_size(calls); k++)
        if ((status = check_call(json_array_get(calls, k), i, k, left, error)) != WEIR_OK) return status;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        const json_t *text = json_object_get(message, texts[k]);
        char rest[32];
        snprintf(rest, sizeof rest, ".%s", texts[k]);
        if (json_is_null(text))
            json_object_del(message, texts[k]);
        else if (text != NULL && !json_is_string(text))
            return must_be(error, place_at("messages", i, rest), "a string");
    }
    return WEIR_OK;
}

weir_status weir__chat_too_wide(const char *field, weir_status code, weir_error *error)
{
    return weir__error_of(error, code, WEIR_ERROR_RANGE, field,
                          "`%s` has objects of too many members; one alone may have some 8,000", field);
}

/* A value of the caller's is copied as far as it is changed here and later. */
static weir_status from_json(const weir_chat_params *params, json_t **messages, weir_error *error)
{
    const json_t *given = params->messages_value;
    static const char field[] = "messages_json";
    size_t left = WEIR__JSON_VALUES_MAX;
    weir_status status = given != NULL ? weir__json_check(given, field, error)
                                       : weir__json_parse_texts(params->messages_json, WEIR_NUL, field,
                                                                WEIR_INVALID, messages, error);
    if (status == WEIR_OK && given != NULL && (*messages = weir__json_own(given)) == NULL)
        status = no_memory(error);
    if (status == WEIR_OK && json_array_size(*messages) == 0)
        status = weir__invalid(error, json_is_array(*messages) ? WEIR_ERROR_MISSING : WEIR_ERROR_FORM, field,
                               "`%s` must be an array of at least one message", field);
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(*messages); i++)
        status = check_message(json_array_get(*messages, i), i, &left, error);
    if (status == WEIR_OK && !weir__json_is_narrow(*messages)) /* the arguments of calls, too */
        status = weir__chat_too_wide(field, WEIR_INVALID, error);
    return status;
}

/* A template can continue only the assistant's text. */
static weir_status check_last(const json_t *messages, weir_error *error)
{
    size_t last = json_array_size(messages) - 1;
    const json_t *message = json_array_get(messages, last);
    const char *role = json_string_value(json_object_get(message, "role"));
    if (strcmp(role, "assistant") != 0)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "continue_final",
                             "the last message is of role \"%.40s\"; only one of \"assistant\" can go on",
                             role);
    if (json_array_size(json_object_get(message, "tool_calls")) > 0)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "continue_final",
                             "the last message calls tools; such a message cannot go on");
    const json_t *content = json_object_get(message, "content");
    for (size_t k = 0; k < json_array_size(content); k++)
        if (weir__chat_part_kind(json_array_get(content, k)) != WEIR__PART_TEXT)
            return weir__invalid(error, WEIR_ERROR_CONFLICT, "continue_final",
                                 "the last message holds an image or a sound; such a message cannot go on");
    return WEIR_OK;
}

weir_status weir__chat_messages(const weir_chat_params *params, json_t **messages, weir_error *error)
{
    *messages = NULL;
    const int n_ways =
        (params->messages != NULL) + (params->messages_json != NULL) + (params->messages_value != NULL);
    if (n_ways > 1)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "messages",
                             "give one of `messages`, `messages_json` and `messages_value`");
    if (n_ways == 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "messages",
                             "there are no messages; give `messages`, `messages_json` or `messages_value`");
    if (params->messages != NULL && params->n_messages == 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "n_messages",
                             "`n_messages` is 0; give at least one message");
    weir_status status = params->messages != NULL
                             ? from_structs(params->messages, params->n_messages, messages, error)
                             : from_json(params, messages, error);
    return status == WEIR_OK && params->continue_final ? check_last(*messages, error) : status;
}

bool weir__chat_add_content(weir__text *text, const json_t *content)
{
    bool ok = !json_is_string(content) || weir__text_add_string(text, json_string_value(content));
    bool after_text = false;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const bool is_text = weir__chat_part_kind(part) == WEIR__PART_TEXT; /* else a marker (media.c) */
        const char *words = json_string_value(json_object_get(part, "text"));
        ok = weir__text_add_string(text, is_text && after_text ? "\n" : "") &&
             weir__text_add_string(text, words != NULL ? words : "");
        after_text = is_text;
    }
    return ok;
}

/* ---- Tools ---- */

static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    return n > 0 && n <= NAME_MAX_ && name[n] == '\0';
}

/* The name as llama.cpp's common writes it in names of rules. */
static void rule_name(const char *name, char out[NAME_MAX_ + 1])
{
    size_t n = 0;
    for (; name[n] != '\0'; n++) out[n] = name[n] == '_' || name[n] == '.' ? '-' : name[n];
    out[n] = '\0';
}

/* True if the rest of a rule's name, behind a tool's name, is one that llama.cpp's common appends. */
static bool is_derived(const char *rest)
{
    return strncmp(rest, "-schema", 7) == 0 || strncmp(rest, "-arg", 4) == 0;
}

/* Keeps the first number of a key. False: out of memory. */
static bool note_number(json_t **numbers, const char *key, size_t i)
{
    if (*numbers == NULL) *numbers = json_object();
    return json_object_get(*numbers, key) != NULL ||
           json_object_set_new(*numbers, key, json_integer((json_int_t)i)) == 0;
}

static void find_least(const json_t *numbers, const char *key, size_t *least)
{
    const json_t *number = json_object_get(numbers, key);
    if (number != NULL && (size_t)json_integer_value(number) < *least)
        *least = (size_t)json_integer_value(number);
}

/* Two names collide if a grammar for both would have two rules of the same name: their own, or the one that
 * is derived from the shorter name. Each name is looked up by itself and by its beginnings before a derived
 * part. */
static weir_status check_name(weir__chat_tools *tools, const char *name, size_t i, weir_error *error)
{
    char rule[NAME_MAX_ + 1];
    size_t k = i;
    rule_name(name, rule);
    find_least(tools->rules, rule, &k);
    find_least(tools->beginnings, rule, &k);
    bool ok = note_number(&tools->rules, rule, i);
    for (size_t n = 0; ok && rule[n] != '\0'; n++) {
        if (n == 0 || !is_derived(rule + n)) continue;
        char beginning[NAME_MAX_ + 1];
        snprintf(beginning, sizeof beginning, "%.*s", (int)n, rule);
        find_least(tools->rules, beginning, &k);
        ok = note_number(&tools->beginnings, beginning, i);
    }
    if (!ok) return no_memory(error);
    if (k == i) return WEIR_OK;
    const json_t *other = json_object_get(json_array_get(tools->shown, k), "function");
    const char *other_name = json_string_value(json_object_get(other, "name"));
    const place p = place_at("tools", i, ".function.name");
    if (strcmp(name, other_name) == 0)
        return weir__invalid(error, WEIR_ERROR_DUPLICATE, p.text,
                             "tools %zu and %zu both have the name \"%s\"; rename one", k, i, name);
    return weir__invalid(error, WEIR_ERROR_DUPLICATE, p.text,
                         "the names \"%s\" and \"%s\" of tools %zu and %zu are too similar: their grammar "
                         "would mix them up; rename one",
                         other_name, name, k, i);
}

static weir_status add_tool(weir__chat_tools *tools, const json_t *given, size_t i, weir_error *error)
{
    place p = place_at("tools", i, ".function");
    const json_t *type = json_object_get(given, "type"), *function = json_object_get(given, "function");
    const json_t *description = json_object_get(function, "description");
    json_t *parameters = json_object_get(function, "parameters"), *rewritten = NULL;
    const char *name = json_string_value(json_object_get(function, "name"));
    char where[48], tag[24];
    const json_t *strict = json_object_get(function, "strict");
    const weir__schema_terms terms = {
        .where = where,
        .tag = tag,
        .inline_root = true,
        .relax = !tools->called || !json_is_true(strict),
        .relaxed = tools->called ? &tools->relaxed : NULL,
        .work = &tools->work,
    };
    weir_status status;

    if (type != NULL && (json_string_value(type) == NULL || strcmp(json_string_value(type), "function") != 0))
        return must_be(error, place_at("tools", i, ".type"), "\"function\"");
    if (!json_is_object(function)) return must_be(error, p, "an object");
    if (name == NULL || !is_name(name))
        return must_be(error, place_at("tools", i, ".function.name"),
                       "1 to 64 of the letters, digits and '_', '-', '.'");
    if (description != NULL && !json_is_string(description) && !json_is_null(description))
        return must_be(error, place_at("tools", i, ".function.description"), "a string");
    status = check_name(tools, name, i, error);
    if (status != WEIR_OK) return status;
    if (strict != NULL && !json_is_boolean(strict) && !json_is_null(strict))
        return must_be(error, place_at("tools", i, ".function.strict"), "true or false");
    tools->strict |= json_is_true(strict);
    snprintf(where, sizeof where, "/%zu/function/parameters", i);
    snprintf(tag, sizeof tag, "t%zuw", i);
    if (parameters == NULL || json_is_null(parameters) ||
        (json_is_object(parameters) && json_object_size(parameters) == 0)) {
        parameters = NULL; /* a function without arguments */
    } else {
        json_t *near = weir__json_near(parameters); /* as grammars compare */
        status = near != NULL ? weir__schema_rewrite(near, &terms, &rewritten, error) : no_memory(error);
        json_decref(near);
        if (status != WEIR_OK) return status;
    }
    for (int k = 0; k < 2; k++) {
        json_t *schema = k == 0 ? json_incref(parameters) : rewritten;
        if (schema == NULL) schema = json_object();
        json_t *tool = json_pack(
            "{s:s,s:{s:s,s:s,s:o}}", "type", "function", "function", "name", name, "description",
            json_is_string(description) ? json_string_value(description) : "", "parameters", schema);
        if (tool == NULL || json_array_append_new(k == 0 ? tools->shown : tools->enforced, tool) != 0) {
            if (k == 0) json_decref(rewritten);
            return no_memory(error);
        }
    }
    return WEIR_OK;
}

weir_status weir__chat_tools_init(const weir_chat_params *params, weir__chat_tools *tools, weir_error *error)
{
    static const char field[] = "tools_json";
    json_t *given = json_incref((json_t *)params->tools_value);
    weir_status status = WEIR_OK;
    memset(tools, 0, sizeof *tools);
    tools->called = params->tool_choice != WEIR_TOOLS_NONE;
    if (params->tools_value != NULL && params->tools_json != NULL)
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                               "both `tools_json` and `tools_value` are given; give one");
    else if (given != NULL)
        status = weir__json_check(given, field, error);
    else if (params->tools_json != NULL)
        status = weir__json_parse_exact(params->tools_json, WEIR_NUL, field, WEIR_INVALID, &given, error);
    size_t n = json_array_size(given);
    if (status == WEIR_OK && given != NULL && (!json_is_array(given) || n > TOOLS_MAX))
        status = weir__invalid(error, json_is_array(given) ? WEIR_ERROR_RANGE : WEIR_ERROR_FORM, field,
                               "`%s` must be an array of at most %d tools", field, TOOLS_MAX);
    if (status == WEIR_OK && !weir__json_is_narrow(given))
        status = weir__chat_too_wide(field, WEIR_INVALID, error);
    if (status != WEIR_OK || n == 0) goto out;
    weir__schema_work_init(&tools->work);
    tools->shown = json_array();
    tools->enforced = json_array();
    if (tools->shown == NULL || tools->enforced == NULL) status = no_memory(error);
    for (size_t i = 0; status == WEIR_OK && i < n; i++)
        status = add_tool(tools, json_array_get(given, i), i, error);
out:
    json_decref(given);
    if (status != WEIR_OK) weir__chat_tools_fini(tools);
    return status;
}

void weir__chat_tools_fini(weir__chat_tools *tools)
{
    weir__text_fini(&tools->relaxed);
    json_decref(tools->beginnings);
    json_decref(tools->rules);
    json_decref(tools->enforced);
    json_decref(tools->shown);
    memset(tools, 0, sizeof *tools);
}
