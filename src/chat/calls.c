/* calls.c: a form of tool calls for templates without one.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Describing adds a system message with the tools and makes a schema of all answers, from which the grammar
 * comes. Reading is a machine of states over the answer's characters: it knows the frame {"name": …,
 * "arguments": …} or {"response": …} and delivers the rest as it comes. An answer that leaves the frame
 * becomes content, with all that was held back. */
#include "chat/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"

/* ---- Describing ---- */

static bool append_json(weir__text *t, const json_t *value)
{
    char *bytes = weir__json_dump(value);
    bool ok = bytes != NULL && weir__text_add_string(t, bytes);
    t->failed = t->failed || !ok;
    weir__mem_free(bytes);
    return ok;
}

/* The function's name, and its other fields if they are not empty. */
static bool append_function(weir__text *t, const json_t *function)
{
    static const char *const keys[] = {"name", "description", "parameters"};
    json_t *told = json_object();
    bool ok = told != NULL;
    for (size_t i = 0; ok && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(function, keys[i]);
        if (json_string_length(value) > 0 || json_object_size(value) > 0)
            ok = json_object_set(told, keys[i], value) == 0;
    }
    ok = ok && append_json(t, told) && weir__text_add_string(t, "\n");
    json_decref(told);
    return ok;
}

static bool append_instructions(weir__text *t, const json_t *tools, weir__chat_calls_talk talk,
                                const json_t *form)
{
    bool ok = weir__text_add_string(t, "You can call these functions:\n");
    for (size_t i = 0; ok && i < json_array_size(tools); i++)
        ok = append_function(t, json_object_get(json_array_get(tools, i), "function"));
    ok =
        ok && weir__text_add_string(t, "To call one, answer with JSON and nothing else: {\"name\": its name, "
                                       "\"arguments\": {…}}.");
    if (talk == WEIR__TALK_WORDS)
        ok = ok &&
             weir__text_add_string(t, " To answer in words, answer with {\"response\": \"your answer\"} and "
                                      "nothing else.");
    if (talk == WEIR__TALK_FORM)
        ok = ok &&
             weir__text_add_string(
                 t, " To answer without a call, answer with {\"response\": …} and nothing else, where "
                    "… follows this JSON Schema:\n") &&
             append_json(t, form);
    return ok;
}

/* Writes calls as the answers that they were. */
static bool append_calls(weir__text *t, const json_t *calls)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        ok = weir__text_add_string(t, i > 0 ? "\n{\"name\":" : "{\"name\":") &&
             append_json(t, json_object_get(function, "name")) && weir__text_add_string(t, ",\"arguments\":");
        if (arguments == NULL)
            ok = ok && weir__text_add_string(t, "{}");
        else
            ok = ok && (json_is_string(arguments) ? weir__text_add_string(t, json_string_value(arguments))
                                                  : append_json(t, arguments));
        ok = ok && weir__text_add_string(t, "}");
    }
    return ok;
}

/* Takes the content. NULL: out of memory. */
static json_t *make_message(const char *role, weir__text *content)
{
    json_t *words = content->failed ? NULL : json_stringn(content->n > 0 ? content->bytes : "", content->n);
    weir__text_fini(content);
    return json_pack("{s:s,s:o}", "role", role, "content", words);
}

json_t *weir__chat_calls_write(json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *calls = json_object_get(message, "tool_calls"),
                 *words = json_object_get(message, "content");
    weir__text content = {0};
    if (strcmp(role, "tool") == 0) {
        weir__text_add_string(&content, "Result of the function: ");
        weir__chat_add_content(&content, words);
        return make_message("user", &content);
    }
    if (json_array_size(calls) == 0) return json_incref(message);
    weir__chat_add_content(&content, words);
    if (content.n > 0) weir__text_add_string(&content, "\n");
    append_calls(&content, calls);
    return make_message("assistant", &content);
}

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
}

/* Writes the text of a message that goes on as the beginning of a response. */
static bool open_response(json_t *list, weir__chat_calls_talk talk)
{
    size_t last = json_array_size(list) - 1;
    json_t *message = weir__json_copy(json_array_get(list, last));
    weir__text text = {0}, content = {0};
    bool ok = message != NULL && weir__chat_add_content(&text, json_object_get(message, "content")) &&
              weir__text_add_string(&content, "{\"response\":");
    if (talk == WEIR__TALK_FORM)
        ok = ok && weir__text_add(&content, text.bytes, text.n);
    else
        weir__json_quote(&content, text.bytes, text.n);
    ok = ok && !content.failed;
    if (ok && talk == WEIR__TALK_WORDS) content.n--; /* the string is open */
    if (ok && text.n > 0)
        ok = json_object_set_new(message, "content", json_stringn(content.bytes, content.n)) == 0;
    weir__text_fini(&text);
    weir__text_fini(&content);
    return json_array_set_new(list, last, message) == 0 && ok;
}

/* NULL: out of memory. */
static json_t *describe_messages(const json_t *messages, const json_t *tools, weir__chat_calls_talk talk,
                                 bool goes_on, const json_t *form)
{
    json_t *list = json_array(), *first = json_array_get(messages, 0);
    weir__text system = {0};
    size_t i = is_system(first);
    if (i == 1) {
        weir__chat_add_content(&system, json_object_get(first, "content"));
        weir__text_add_string(&system, "\n\n");
    }
    append_instructions(&system, tools, talk, form);
    bool ok = json_array_append_new(list, make_message("system", &system)) == 0;
    for (; ok && i < json_array_size(messages); i++)
        ok = json_array_append_new(list, weir__chat_calls_write(json_array_get(messages, i))) == 0;
    if (goes_on && talk != WEIR__TALK_NONE) ok = ok && open_response(list, talk);
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static bool is_among(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

/* Copies a schema that moves to the place `to` in another one, and adjusts its references. named: its keys
 * are names that the author chose, not keywords. NULL: out of memory. */
static json_t *move_references(const json_t *schema, const char *to, bool named)
{
    static const char *const data[] = {"const", "enum", "default", "examples", "example", NULL};
    static const char *const names[] = {"properties",  "patternProperties", "$defs",
                                        "definitions", "dependentSchemas",  NULL};
    json_t *copy, *value;
    const char *key;
    size_t i;
    if (json_is_array(schema)) {
        copy = json_array();
        json_array_foreach((json_t *)schema, i, value)
        {
            if (json_array_append_new(copy, move_references(value, to, false)) != 0) goto failed;
        }
        return copy;
    }
    if (!json_is_object(schema)) return json_incref((json_t *)schema);
    copy = json_object();
    json_object_foreach((json_t *)schema, key, value)
    {
        const char *reference = !named && strcmp(key, "$ref") == 0 ? json_string_value(value) : NULL;
        json_t *one = !named && is_among(key, data) ? json_incref(value)
                      : reference != NULL && reference[0] == '#'
                          ? json_sprintf("%s%s", to, reference + 1)
                          : move_references(value, to, !named && is_among(key, names));
        if (json_object_set_new(copy, key, one) != 0) goto failed;
    }
    return copy;
failed:
    json_decref(copy);
    return NULL;
}

static json_t *moved_to(const json_t *schema, size_t branch, const char *property)
{
    char to[64];
    snprintf(to, sizeof to, "#/anyOf/%zu/properties/%s", branch, property);
    json_t *copy = move_references(schema, to, false);
    if (json_is_object(copy)) json_object_del(copy, "$id"); /* it identifies the whole document */
    return copy;
}

/* NULL: out of memory. */
static json_t *arguments_schema(const json_t *parameters, size_t branch)
{
    if (!json_is_object(parameters)) return json_pack("{s:s}", "type", "object");
    if (json_object_size(parameters) == 0)
        return json_pack("{s:s,s:{},s:b}", "type", "object", "properties", "additionalProperties", 0);
    json_t *arguments = moved_to(parameters, branch, "arguments");
    bool other = json_object_get(arguments, "$ref") != NULL || json_object_get(arguments, "allOf") != NULL;
    /* Arguments are an object, whatever a schema that is not strict says. */
    if (arguments != NULL && !other && json_object_set_new(arguments, "type", json_string("object")) != 0) {
        json_decref(arguments);
        return NULL;
    }
    return arguments;
}

static json_t *call_schema(const json_t *tool, size_t branch)
{
    const json_t *function = json_object_get(tool, "function");
    json_t *arguments = arguments_schema(json_object_get(function, "parameters"), branch);
    return json_pack("{s:s,s:{s:{s:O},s:o},s:[s,s],s:b}", "type", "object", "properties", "name", "const",
                     json_object_get(function, "name"), "arguments", arguments, "required", "name",
                     "arguments", "additionalProperties", 0);
}

/* NULL: out of memory. */
static char *describe_answer(const json_t *tools, weir__chat_calls_talk talk, const json_t *form)
{
    size_t n = json_array_size(tools);
    json_t *branches = json_array();
    bool ok = branches != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(branches, call_schema(json_array_get(tools, i), i)) == 0;
    if (ok && talk != WEIR__TALK_NONE) {
        json_t *response =
            talk == WEIR__TALK_FORM ? moved_to(form, n, "response") : json_pack("{s:s}", "type", "string");
        ok = json_array_append_new(branches, json_pack("{s:s,s:{s:o},s:[s],s:b}", "type", "object",
                                                       "properties", "response", response, "required",
                                                       "response", "additionalProperties", 0)) == 0;
    }
    json_t *schema = ok ? json_pack("{s:O}", "anyOf", branches) : NULL;
    char *dumped = schema != NULL ? weir__json_dump(schema) : NULL;
    json_decref(schema);
    json_decref(branches);
    return dumped;
}

/* Checks that a grammar can be made from the schema. */
static weir_status try_schema(const json_t *rewritten, const char *field, weir_error *error)
{
    char *grammar = NULL;
    weir_status status = weir__grammar_from_schema(rewritten, field, &grammar, error);
    weir_free(grammar);
    return status;
}

static weir_status try_schemas(const weir__chat_tools *tools, const json_t *form,
                               const weir__schema_terms *terms, weir_error *error)
{
    json_t *rewritten = NULL;
    weir_status status = WEIR_OK;
    if (form != NULL) {
        status = weir__schema_rewrite(form, terms, &rewritten, error);
        if (status == WEIR_OK) status = try_schema(rewritten, "json_schema", error);
        json_decref(rewritten);
    }
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(tools->enforced); i++) {
        const json_t *function = json_object_get(json_array_get(tools->enforced, i), "function");
        const json_t *parameters = json_object_get(function, "parameters");
        char place[48];
        snprintf(place, sizeof place, "/%zu/function/parameters", i);
        if (json_object_size(parameters) > 0) status = try_schema(parameters, place, error);
    }
    return status;
}

weir_status weir__chat_calls_describe(const json_t *messages, const weir__chat_tools *tools,
                                      weir__chat_calls_talk talk, bool goes_on, const json_t *form,
                                      const weir__schema_terms *terms, json_t **described, char **schema,
                                      weir_error *error)
{
    weir_status status = try_schemas(tools, form, terms, error);
    if (status != WEIR_OK) return status;
    json_t *list = describe_messages(messages, tools->shown, talk, goes_on, form);
    char *answer = list != NULL ? describe_answer(tools->shown, talk, form) : NULL;
    if (answer == NULL) {
        json_decref(list);
        return weir__error_set(error, WEIR_NO_MEMORY, "tools_json", "out of memory for the tools");
    }
    *described = list;
    *schema = answer;
    return WEIR_OK;
}

void weir__chat_calls_mark(weir__grammar *grammar, weir__chat_calls_talk talk)
{
    /* A call begins with an object that has a name. Within a response, quotes are escaped, or such an object
     * comes after a colon, a comma or a bracket. */
    static const weir__trigger begin = {
        .kind = WEIR__TRIGGER_PATTERN,
        .value = "(?:^|[^\\s:,\\[])\\s*(\\{\\s*\"name\")",
        .token = -1,
    };
    grammar->calls_only = talk == WEIR__TALK_NONE;
    if (grammar->calls_only) return;
    grammar->triggers = &begin;
    grammar->n_triggers = 1;
}

/* ---- Reading ---- */

enum {
    BEFORE,   /* the outer bracket */
    KEYS,     /* a key, a comma or the end */
    KEY,      /* inside a key */
    COLON,    /* after a key */
    VALUE,    /* before a value */
    NAME,     /* inside the name */
    JSON,     /* inside the arguments, or inside a response that is JSON */
    RESPONSE, /* inside the text */
    DONE,     /* after the end */
    PLAIN,    /* the answer does not have the form: all is content */
};

typedef struct output {
    weir__chat_calls_fn take;
    void *user;
} output;

static bool deliver_piece(const output *out, weir_delta_kind kind, const char *bytes, size_t n)
{
    const weir_delta delta = {
        .kind = kind, .index = kind == WEIR_DELTA_CONTENT ? -1 : 0, .text = bytes, .length = n};
    return n == 0 || out->take(out->user, &delta);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Delivers everything held back as content; all that follows is content too. */
static bool give_up(weir__chat_calls_reader *reader, const output *out)
{
    if (!deliver_piece(out, WEIR_DELTA_CONTENT, reader->seen.bytes, reader->seen.n)) return false;
    reader->state = PLAIN;
    reader->seen.n = 0;
    return true;
}

static bool deliver_code_point(const output *out, uint32_t c)
{
    char bytes[4];
    size_t n = 0;
    if (c < 0x80) {
        bytes[n++] = (char)c;
    } else if (c < 0x800) {
        bytes[n++] = (char)(0xC0 | c >> 6);
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        bytes[n++] = (char)(0xE0 | c >> 12);
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        bytes[n++] = (char)(0xF0 | c >> 18);
        bytes[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    }
    return deliver_piece(out, WEIR_DELTA_CONTENT, bytes, n);
}

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* Reads one character of an escape; reader->word has those before it, from the backslash on. An invalid
 * escape stands for itself, and the character is read again. */
static bool read_escape(weir__chat_calls_reader *reader, char c, size_t *used, const output *out)
{
    static const char letters[] = "bfnrt", values[] = "\b\f\n\r\t";
    bool first = reader->word.n == 1;
    if (!is_one_of(c, first ? "\"\\/bfnrtu" : "0123456789abcdefABCDEF")) {
        *used = 0;
        reader->escaped = false;
        return deliver_piece(out, WEIR_DELTA_CONTENT, reader->word.bytes, reader->word.n);
    }
    if (!weir__text_add(&reader->word, &c, 1)) return false;
    if (first && c != 'u') {
        const char *letter = strchr(letters, c);
        reader->escaped = false;
        return deliver_code_point(out, letter != NULL ? (unsigned char)values[letter - letters]
                                                      : (unsigned char)c);
    }
    if (reader->word.n < 6) return true;
    uint32_t code = (uint32_t)strtoul(reader->word.bytes + 2, NULL, 16), high = reader->high;
    reader->escaped = false;
    reader->high = 0;
    if (code >= 0xD800 && code < 0xDC00) {
        reader->high = code;
        return true;
    }
    if (code >= 0xDC00 && code < 0xE000)
        code = high != 0 ? 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) : 0xFFFD;
    return deliver_code_point(out, code);
}

/* True if this character may continue the frame. */
static bool goes_on(const weir__chat_calls_reader *reader, char c)
{
    switch (reader->state) {
    case BEFORE: return c == '{' || is_space(c);
    case KEYS: return c == '"' || c == ',' || c == '}' || is_space(c);
    case KEY: return true;
    case COLON: return c == ':' || is_space(c);
    case VALUE: return (c == '"' && reader->key != 'a') || is_space(c);
    default: return is_space(c); /* DONE */
    }
}

/* Reads one character of the frame. One that does not fit is read again, as content. */
static bool read_frame(weir__chat_calls_reader *reader, char c, size_t *used, const output *out)
{
    if (!goes_on(reader, c)) {
        *used = 0;
        return give_up(reader, out);
    }
    if (!weir__text_add(&reader->seen, &c, 1)) return false;
    if (reader->state != KEY && is_space(c)) return true;
    switch (reader->state) {
    case BEFORE: reader->state = KEYS; return true;
    case KEYS:
        reader->word.n = 0;
        if (c != ',') reader->state = c == '}' ? DONE : KEY;
        return true;
    case KEY:
        if (c != '"') return weir__text_add(&reader->word, &c, 1);
        reader->key = reader->word.n > 0 ? reader->word.bytes[0] : '\0';
        reader->state = COLON;
        return is_one_of(reader->key, "nar") || give_up(reader, out);
    case COLON: reader->state = VALUE; return true;
    case VALUE:
        reader->word.n = 0;
        reader->escaped = false;
        reader->state = reader->key == 'n' ? NAME : RESPONSE;
        reader->seen.n = 0;
        return true;
    default: return true;
    }
}

static bool begins_json(const weir__chat_calls_reader *reader, char c)
{
    return reader->key == 'a' ? c == '{' : reader->key == 'r' && reader->form && !is_space(c);
}

/* Returns how many of these bytes belong to the JSON value. */
static size_t scan_json(weir__chat_calls_reader *reader, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool ends = false;
        if (reader->escaped) {
            reader->escaped = false;
        } else if (reader->quoted) {
            reader->escaped = c == '\\';
            reader->quoted = c != '"';
            ends = c == '"' && reader->depth == 0;
        } else if (reader->depth == 0 && (c == '}' || c == ',' || is_space(c))) {
            reader->state = KEYS; /* a number, true, false or null ended before it */
            return i;
        } else if (c == '"') {
            reader->quoted = true;
        } else if (c == '{' || c == '[') {
            reader->depth++;
        } else if (c == '}' || c == ']') {
            ends = --reader->depth == 0;
        }
        if (ends) {
            reader->state = KEYS;
            return i + 1;
        }
    }
    return n;
}

/* Reads *used bytes, which is 0 if only the state changes. */
static bool read_some(weir__chat_calls_reader *reader, const char *bytes, size_t n, size_t *used,
                      const output *out)
{
    *used = 1;
    switch (reader->state) {
    case NAME:
        if (bytes[0] != '"') return weir__text_add(&reader->word, bytes, 1);
        reader->state = KEYS;
        return deliver_piece(out, WEIR_DELTA_TOOL_CALL, reader->word.bytes, reader->word.n);
    case JSON:
        *used = scan_json(reader, bytes, n);
        return deliver_piece(out, reader->key == 'a' ? WEIR_DELTA_ARGUMENTS : WEIR_DELTA_CONTENT, bytes,
                             *used);
    case VALUE:
        if (!begins_json(reader, bytes[0])) return read_frame(reader, bytes[0], used, out);
        reader->state = JSON;
        reader->depth = 0;
        reader->escaped = reader->quoted = false;
        reader->seen.n = *used = 0;
        return true;
    case RESPONSE:
        if (reader->escaped) return read_escape(reader, bytes[0], used, out);
        if (bytes[0] == '"') {
            reader->state = KEYS;
            return true;
        }
        if (bytes[0] == '\\') {
            reader->escaped = true;
            reader->word.n = 0;
            return weir__text_add(&reader->word, bytes, 1);
        }
        while (*used < n && bytes[*used] != '"' && bytes[*used] != '\\') ++*used;
        return deliver_piece(out, WEIR_DELTA_CONTENT, bytes, *used);
    case PLAIN: *used = n; return deliver_piece(out, WEIR_DELTA_CONTENT, bytes, n);
    default: return read_frame(reader, bytes[0], used, out);
    }
}

bool weir__chat_calls_feed(weir__chat_calls_reader *reader, const char *bytes, size_t n,
                           weir__chat_calls_fn take, void *user, size_t *used)
{
    const output out = {take, user};
    for (*used = 0; *used < n;) {
        const weir__chat_calls_reader before = *reader;
        size_t some;
        const bool ok = read_some(reader, bytes + *used, n - *used, &some, &out);
        if (!ok) {
            /* The texts have only grown since then, or were emptied. */
            weir__text seen = reader->seen, word = reader->word;
            seen.n = before.seen.n;
            word.n = before.word.n;
            *reader = before;
            reader->seen = seen;
            reader->word = word;
            return false;
        }
        *used += some;
    }
    return true;
}

/* True if the answer breaks off before its first key is complete, and that may become a key of the form. */
static bool is_frame(const weir__chat_calls_reader *reader)
{
    const weir__text *word = &reader->word;
    if (reader->state == KEYS) return true;
    return reader->state == KEY && (word->n == 0 || strncmp(word->bytes, "name", word->n) == 0 ||
                                    strncmp(word->bytes, "response", word->n) == 0);
}

bool weir__chat_calls_end(weir__chat_calls_reader *reader, weir__chat_calls_fn take, void *user)
{
    const output out = {take, user};
    if (reader->state == NAME || reader->state >= DONE || reader->key != '\0') return true;
    return is_frame(reader) || give_up(reader, &out);
}

void weir__chat_calls_fini(weir__chat_calls_reader *reader)
{
    weir__text_fini(&reader->word);
    weir__text_fini(&reader->seen);
}
