/* SPDX-License-Identifier: Apache-2.0 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/json.h"

/* ---- Describing ---- */

static void add_json(serve_text *text, const json_t *value)
{
    char *bytes = weir__json_dump(value);
    if (bytes != NULL)
        serve_text_puts(text, bytes);
    else
        text->failed = true;
    weir__mem_free(bytes);
}

/* A message's content, a string or parts. */
static void add_content(serve_text *text, const json_t *content)
{
    if (json_is_string(content)) serve_text_puts(text, json_string_value(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const char *part = json_string_value(json_object_get(json_array_get(content, i), "text"));
        if (part != NULL) serve_text_printf(text, "%s%s", i > 0 ? "\n" : "", part);
    }
}

static void add_instructions(serve_text *text, const json_t *tools, serve_talk talk, const json_t *form)
{
    serve_text_puts(text, "You can call these functions:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        add_json(text, json_object_get(json_array_get(tools, i), "function"));
        serve_text_puts(text, "\n");
    }
    serve_text_puts(
        text, "To call one, answer with JSON and nothing else: {\"name\": its name, \"arguments\": {…}}.");
    if (talk == SERVE_TALK_WORDS)
        serve_text_puts(text,
                        " To answer in words, answer with {\"response\": \"your answer\"} and nothing else.");
    if (talk == SERVE_TALK_FORM) {
        serve_text_puts(text,
                        " To answer without a call, answer with {\"response\": …} and nothing else, where … "
                        "follows this JSON Schema:\n");
        add_json(text, form);
    }
}

static void add_message(serve_text *text, const char *role, const serve_text *content)
{
    serve_text_puts(text, text->n > 1 ? ",{\"role\":" : "{\"role\":");
    serve_text_json_puts(text, role);
    serve_text_puts(text, ",\"content\":");
    serve_text_json(text, content->bytes != NULL ? content->bytes : "", content->n);
    serve_text_puts(text, "}");
    text->failed = text->failed || content->failed;
}

/* Calls as the answers that they were. */
static void add_calls(serve_text *text, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        const char *name = json_string_value(json_object_get(function, "name"));
        serve_text_puts(text, i > 0 ? "\n{\"name\":" : "{\"name\":");
        serve_text_json_puts(text, name != NULL ? name : "");
        serve_text_puts(text, ",\"arguments\":");
        if (json_is_string(arguments))
            serve_text_puts(text, json_string_value(arguments));
        else if (arguments != NULL)
            add_json(text, arguments);
        else
            serve_text_puts(text, "{}");
        serve_text_puts(text, "}");
    }
}

static void rewrite(serve_text *text, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *calls = json_object_get(message, "tool_calls");
    serve_text content = {0};
    if (role != NULL && strcmp(role, "tool") == 0) {
        serve_text_puts(&content, "Result of the function: ");
        add_content(&content, json_object_get(message, "content"));
        add_message(text, "user", &content);
    } else if (json_array_size(calls) > 0) {
        add_calls(&content, calls);
        add_message(text, "assistant", &content);
    } else {
        serve_text_puts(text, text->n > 1 ? "," : "");
        add_json(text, message);
    }
    serve_text_fini(&content);
}

static bool is_among(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

/* A schema that stands at `to` in another one: references into it begin there. named: its keys are the
 * author's names of schemas, and no keywords. NULL: out of memory. */
static json_t *moved(const json_t *schema, const char *to, bool named)
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
            if (json_array_append_new(copy, moved(value, to, false)) != 0) goto failed;
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
                          : moved(value, to, !named && is_among(key, names));
        if (json_object_set_new(copy, key, one) != 0) goto failed;
    }
    return copy;
failed:
    json_decref(copy);
    return NULL;
}

static void add_moved(serve_text *text, const json_t *schema, size_t branch, const char *property)
{
    char to[64];
    snprintf(to, sizeof to, "#/anyOf/%zu/properties/%s", branch, property);
    json_t *copy = moved(schema, to, false);
    if (json_is_object(copy)) json_object_del(copy, "$id"); /* names the whole document */
    if (copy != NULL)
        add_json(text, copy);
    else
        text->failed = true;
    json_decref(copy);
}

static void add_schema(serve_text *text, const json_t *tools, serve_talk talk, const json_t *form)
{
    serve_text_puts(text, "{\"anyOf\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *parameters = json_object_get(function, "parameters");
        const char *name = json_string_value(json_object_get(function, "name"));
        serve_text_puts(text, i > 0 ? "," : "");
        serve_text_puts(text, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
        serve_text_json_puts(text, name != NULL ? name : "");
        serve_text_puts(text, "},\"arguments\":");
        if (json_is_object(parameters) && json_object_size(parameters) > 0)
            add_moved(text, parameters, i, "arguments");
        else
            serve_text_puts(text, "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}");
        serve_text_puts(text, "},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}");
    }
    if (talk != SERVE_TALK_NONE) {
        serve_text_puts(text, ",{\"type\":\"object\",\"properties\":{\"response\":");
        if (talk == SERVE_TALK_FORM)
            add_moved(text, form, json_array_size(tools), "response");
        else
            serve_text_puts(text, "{\"type\":\"string\"}");
        serve_text_puts(text, "},\"required\":[\"response\"],\"additionalProperties\":false}");
    }
    serve_text_puts(text, "]}");
}

static weir_status check_schema(const json_t *schema, const char *place, weir_error *error)
{
    char *text = weir__json_dump(schema), *grammar = NULL, pointer[sizeof error->field];
    if (text == NULL) return WEIR_NO_MEMORY;
    weir_status status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, error);
    if (status != WEIR_OK) {
        snprintf(pointer, sizeof pointer, "%s", error->field);
        snprintf(error->field, sizeof error->field, "%s%s", place, pointer[0] == '/' ? pointer : "");
    }
    weir_free(grammar);
    weir__mem_free(text);
    return status;
}

weir_status serve_tools_check(const json_t *tools, const json_t *form, const char *form_place,
                              weir_error *error)
{
    weir_status status = form != NULL ? check_schema(form, form_place, error) : WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *parameters = json_object_get(function, "parameters");
        char place[48];
        snprintf(place, sizeof place, "tools/%zu/function/parameters", i);
        if (parameters != NULL && !json_is_null(parameters)) status = check_schema(parameters, place, error);
    }
    return status;
}

bool serve_tools_describe(const json_t *messages, const json_t *tools, serve_talk talk, const json_t *form,
                          char **messages_text, char **schema_text)
{
    serve_text text = {0}, schema = {0}, system = {0};
    const json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool has_system = role != NULL && strcmp(role, "system") == 0;
    if (has_system) {
        add_content(&system, json_object_get(first, "content"));
        serve_text_puts(&system, "\n\n");
    }
    add_instructions(&system, tools, talk, form);
    serve_text_puts(&text, "[");
    add_message(&text, "system", &system);
    for (size_t i = has_system; i < json_array_size(messages); i++)
        rewrite(&text, json_array_get(messages, i));
    serve_text_puts(&text, "]");
    add_schema(&schema, tools, talk, form);
    serve_text_fini(&system);
    bool ok = !text.failed && !schema.failed;
    if (ok) {
        *messages_text = text.bytes;
        *schema_text = schema.bytes;
        return true;
    }
    serve_text_fini(&text);
    serve_text_fini(&schema);
    return false;
}

/* ---- Reading ---- */

enum {
    BEFORE,    /* the outer bracket */
    KEYS,      /* a key, a comma or the end */
    KEY,       /* inside a key */
    COLON,     /* after a key */
    VALUE,     /* before a value */
    NAME,      /* inside the name */
    ARGUMENTS, /* inside the arguments */
    RESPONSE,  /* inside the text */
    FORM,      /* inside a response that is JSON */
    DONE,      /* after the end: nothing is expected */
    PLAIN,     /* this is not the form: all is content */
};

typedef struct output {
    serve_delta_fn take;
    void *user;
} output;

static bool deliver(const output *out, weir_delta_kind kind, int32_t index, const char *bytes, size_t n,
                    const char *id)
{
    const weir_delta delta = {.kind = kind, .index = index, .text = bytes, .length = n, .id = id};
    return n == 0 || out->take(out->user, &delta);
}

static bool begin_call(serve_caller *caller, const output *out)
{
    char id[48];
    snprintf(id, sizeof id, "call_%012llx%02x", (unsigned long long)caller->number, (unsigned)caller->index);
    caller->seen.n = 0;
    return deliver(out, WEIR_DELTA_TOOL_CALL, 0, caller->word.bytes, caller->word.n, id);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Everything that was not delivered becomes content, and so does what comes. */
static bool give_up(serve_caller *caller, const output *out)
{
    caller->state = PLAIN;
    bool ok = deliver(out, WEIR_DELTA_CONTENT, -1, caller->seen.bytes, caller->seen.n, NULL);
    caller->seen.n = 0;
    return ok;
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
    return deliver(out, WEIR_DELTA_CONTENT, -1, bytes, n, NULL);
}

/* One character of an escape; caller->word has those before it, from the backslash on. */
static bool read_escape(serve_caller *caller, char c, const output *out)
{
    static const char letters[] = "bfnrt", values[] = "\b\f\n\r\t";
    serve_text_add(&caller->word, &c, 1);
    if (caller->word.failed) return false;
    if (caller->word.bytes[1] != 'u') {
        const char *letter = strchr(letters, c);
        caller->escaped = false;
        return deliver_code_point(out, letter != NULL ? (unsigned char)values[letter - letters]
                                                      : (unsigned char)c);
    }
    if (caller->word.n < 6) return true;
    uint32_t code = (uint32_t)strtoul(caller->word.bytes + 2, NULL, 16), high = caller->high;
    caller->escaped = false;
    caller->high = 0;
    if (code >= 0xD800 && code < 0xDC00) {
        caller->high = code;
        return true;
    }
    if (code >= 0xDC00 && code < 0xE000)
        code = high != 0 ? 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) : 0xFFFD;
    return deliver_code_point(out, code);
}

/* The frame: one character. */
static bool read_frame(serve_caller *caller, char c, const output *out)
{
    serve_text_add(&caller->seen, &c, 1);
    if (caller->seen.failed) return false;
    switch (caller->state) {
    case BEFORE:
        if (is_space(c)) return true;
        caller->state = KEYS;
        return c == '{' || give_up(caller, out);
    case KEYS:
        if (is_space(c) || c == ',') return true;
        caller->word.n = 0;
        caller->state = c == '}' ? DONE : KEY;
        return c == '}' || c == '"' || give_up(caller, out);
    case KEY:
        if (c != '"') {
            serve_text_add(&caller->word, &c, 1);
            return !caller->word.failed;
        }
        caller->key = caller->word.n > 0 ? caller->word.bytes[0] : '\0';
        caller->state = COLON;
        return strchr("nar", caller->key) != NULL || give_up(caller, out);
    case COLON:
        if (is_space(c)) return true;
        caller->state = VALUE;
        return c == ':' || give_up(caller, out);
    case VALUE:
        if (is_space(c)) return true;
        caller->word.n = 0;
        caller->escaped = caller->quoted = false;
        caller->state = caller->key == 'n' ? NAME : caller->key == 'a' ? ARGUMENTS : RESPONSE;
        if (c != (caller->key == 'a' ? '{' : '"')) return give_up(caller, out);
        caller->seen.n = 0;
        caller->depth = 1;
        return true;
    default: return is_space(c) || give_up(caller, out); /* DONE */
    }
}

/* How many of these bytes belong to the arguments. */
static size_t scan_arguments(serve_caller *caller, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (caller->escaped) {
            caller->escaped = false;
        } else if (caller->quoted) {
            caller->escaped = c == '\\';
            caller->quoted = c != '"';
        } else if (c == '"') {
            caller->quoted = true;
        } else if (c == '{' || c == '[') {
            caller->depth++;
        } else if ((c == '}' || c == ']') && --caller->depth == 0) {
            caller->state = KEYS;
            return i + 1;
        }
    }
    return n;
}

/* How many of these bytes belong to the response's JSON. */
static size_t scan_form(serve_caller *caller, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool ends = false;
        if (caller->escaped) {
            caller->escaped = false;
        } else if (caller->quoted) {
            caller->escaped = c == '\\';
            caller->quoted = c != '"';
            ends = c == '"' && caller->depth == 0;
        } else if (caller->depth == 0 && (c == '}' || c == ',' || is_space(c))) {
            caller->state = KEYS; /* a number, true, false, null ended before it */
            return i;
        } else if (c == '"') {
            caller->quoted = true;
        } else if (c == '{' || c == '[') {
            caller->depth++;
        } else if (c == '}' || c == ']') {
            ends = --caller->depth == 0;
        }
        if (ends) {
            caller->state = KEYS;
            return i + 1;
        }
    }
    return n;
}

/* Some bytes, none where only the state changes: *used. */
static bool read_some(serve_caller *caller, const char *bytes, size_t n, size_t *used, const output *out)
{
    *used = 1;
    switch (caller->state) {
    case NAME:
        if (bytes[0] != '"') {
            serve_text_add(&caller->word, bytes, 1);
            return !caller->word.failed;
        }
        caller->state = KEYS;
        return begin_call(caller, out);
    case ARGUMENTS:
        *used = scan_arguments(caller, bytes, n);
        return deliver(out, WEIR_DELTA_ARGUMENTS, 0, bytes, *used, NULL);
    case FORM:
        *used = scan_form(caller, bytes, n);
        return deliver(out, WEIR_DELTA_CONTENT, -1, bytes, *used, NULL);
    case VALUE:
        if (caller->key != 'r' || !caller->form || is_space(bytes[0]))
            return read_frame(caller, bytes[0], out);
        caller->state = FORM;
        caller->depth = 0;
        caller->escaped = caller->quoted = false;
        caller->seen.n = *used = 0;
        return true;
    case RESPONSE:
        if (caller->escaped) return read_escape(caller, bytes[0], out);
        if (bytes[0] == '"') {
            caller->state = KEYS;
            return true;
        }
        if (bytes[0] == '\\') {
            caller->escaped = true;
            caller->word.n = 0;
            serve_text_add(&caller->word, bytes, 1);
            return !caller->word.failed;
        }
        while (*used < n && bytes[*used] != '"' && bytes[*used] != '\\') ++*used;
        return deliver(out, WEIR_DELTA_CONTENT, -1, bytes, *used, NULL);
    case PLAIN: *used = n; return deliver(out, WEIR_DELTA_CONTENT, -1, bytes, n, NULL);
    default: return read_frame(caller, bytes[0], out);
    }
}

bool serve_caller_feed(serve_caller *caller, const char *bytes, size_t n, serve_delta_fn take, void *user)
{
    const output out = {take, user};
    for (size_t at = 0, used; at < n; at += used) {
        int before = caller->state;
        if (!read_some(caller, bytes + at, n - at, &used, &out)) return false;
        /* The bracket that opened the arguments belongs to them. */
        if (before == VALUE && caller->state == ARGUMENTS &&
            !deliver(&out, WEIR_DELTA_ARGUMENTS, 0, "{", 1, NULL))
            return false;
    }
    return true;
}

bool serve_caller_end(serve_caller *caller, serve_delta_fn take, void *user)
{
    const output out = {take, user};
    if (caller->state == NAME || caller->state >= DONE || caller->key == 'r') return true;
    return caller->key == 'n' || caller->key == 'a' || give_up(caller, &out);
}

void serve_caller_fini(serve_caller *caller)
{
    serve_text_fini(&caller->word);
    serve_text_fini(&caller->seen);
}
