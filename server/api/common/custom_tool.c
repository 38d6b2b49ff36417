/* SPDX-License-Identifier: Apache-2.0 */
#include "custom_tool.h"

#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/mem.h"
#include "error.h"
#include "field.h"
#include "lark.h"
#include "server/request/call.h"

/* ---- The format of an input ---- */

#define DEFINITION_MAX ((size_t)512 << 10) /* grammars have fewer elements */

/* Whether the library enforces the pattern. False: the call has its answer. */
static bool check_pattern(serve_call *call, const char *place, const char *pattern)
{
    json_t *schema = json_pack("{s:s,s:s}", "type", "string", "pattern", pattern);
    char *dump = schema != NULL ? weir__json_dump(schema) : NULL, *grammar = NULL;
    weir_error error = {0};
    weir_status status =
        dump != NULL ? weir_grammar_from_json_schema(dump, strlen(dump), &grammar, &error) : WEIR_NO_MEMORY;
    weir_free(grammar);
    weir__mem_free(dump);
    json_decref(schema);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(call);
    if (status == WEIR_UNSUPPORTED) return serve_call_passes(call, status, &error);
    return status == WEIR_OK || serve_call_refuse(call, 400, place, "invalid_value",
                                                  "%s cannot be enforced here: %.300s", place, error.message);
}

/* An expression without the anchors at its ends: inputs match as a whole anyway. */
static void add_inner(const char *regex, weir__text *pattern)
{
    size_t n = strlen(regex), from = regex[0] == '^', escapes = 0;
    bool anchored = n > from && regex[n - 1] == '$';
    while (anchored && n - 1 - escapes > from && regex[n - 2 - escapes] == '\\') escapes++;
    anchored = anchored && escapes % 2 == 0;
    weir__text_add(pattern, regex + from, n - from - anchored);
}

/* A definition as an expression. False: the call has its answer. */
static bool add_definition(serve_call *call, const char *place, const char *syntax, const char *definition,
                           weir__text *pattern)
{
    char why[SERVE_LARK_WHY_MAX];
    if (definition == NULL || strlen(definition) > DEFINITION_MAX)
        return serve_field_refuse(call, place, "a text of at most 512 KiB: the grammar of an input");
    if (strcmp(syntax, "regex") == 0) {
        add_inner(definition, pattern);
        return check_pattern(call, place, definition);
    }
    return serve_lark_pattern(definition, pattern, why) ||
           serve_call_refuse(
               call, 400, place, "invalid_value",
               "%s cannot be enforced here: %s; give a grammar whose rules do not contain themselves, or "
               "a function with a JSON Schema",
               place, why);
}

/* The pattern of a whole input, freed with json_decref; NULL: the call has its answer. */
static json_t *read_pattern(serve_call *call, const char *place, const json_t *format)
{
    static const char *const members[] = {"type", "syntax", "definition", NULL};
    const char *syntax = json_string_value(json_object_get(format, "syntax"));
    const char *definition = json_string_value(json_object_get(format, "definition"));
    serve_place at = serve_place_of(place, "definition");
    weir__text text = {0};
    if (!serve_field_only(call, place, format, members)) return NULL;
    if (!serve_ask_is(syntax, "regex") && !serve_ask_is(syntax, "lark")) {
        serve_field_refuse(call, serve_place_of(place, "syntax").text, "\"regex\" or \"lark\"");
        return NULL;
    }
    weir__text_add_string(&text, "^(?:");
    bool ok = add_definition(call, at.text, syntax, definition, &text);
    weir__text_add_string(&text, ")$");
    json_t *pattern = ok && !text.failed ? json_stringn(text.bytes, text.n) : NULL;
    weir__text_fini(&text);
    if (ok && pattern == NULL) serve_call_no_memory(call);
    if (pattern != NULL && check_pattern(call, at.text, json_string_value(pattern))) return pattern;
    json_decref(pattern);
    return NULL;
}

json_t *serve_custom_tool_schema(serve_call *call, const char *place, const json_t *format)
{
    const char *type = serve_field_type(format);
    json_t *pattern = NULL;
    if (serve_ask_is(type, "grammar")) {
        pattern = read_pattern(call, place, format);
        if (pattern == NULL) return NULL;
    } else if (format != NULL && !json_is_null(format) && !serve_ask_is(type, "text")) {
        serve_field_refuse_type(call, place, format, "text, grammar");
        return NULL;
    }
    json_t *schema =
        json_pack("{s:s,s:{s:{s:s,s:o*}},s:[s],s:b}", "type", "object", "properties", "input", "type",
                  "string", "pattern", pattern, "required", "input", "additionalProperties", 0);
    if (schema == NULL) serve_call_no_memory(call);
    return schema;
}

bool serve_custom_tool_name(serve_ask *ask, const json_t *name)
{
    if (name == NULL) return true; /* the library refuses the tool */
    if (ask->customs == NULL) ask->customs = json_array();
    return json_array_append(ask->customs, (json_t *)name) == 0 || serve_call_no_memory(ask->call);
}

/* ---- Inputs ---- */

/* Where the input's text begins, behind the quotation mark; 0: that was not generated yet; SIZE_MAX: the
 * arguments have another form. */
static size_t find_start(const char *bytes, size_t n)
{
    static const char *const words[] = {"{", "\"input\"", ":", "\""};
    size_t at = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (const char *c = words[i]; *c != '\0'; c++, at++) {
            while (c == words[i] && at < n && strchr(" \t\r\n", bytes[at]) != NULL) at++;
            if (at == n) return 0;
            if (bytes[at] != *c) return SIZE_MAX;
        }
    }
    return at;
}

/* Bytes of a character of a JSON string, or of an escape; 0: it is not complete. */
static size_t measure(const char *bytes, size_t n)
{
    char digits[5] = "";
    if (bytes[0] != '\\') return 1;
    if (n < 2) return 0;
    if (bytes[1] != 'u') return 2;
    if (n < 6) return 0;
    memcpy(digits, bytes + 2, 4);
    bool pair = (strtoul(digits, NULL, 16) & 0xFC00) == 0xD800;
    return !pair ? 6 : n < 12 ? 0 : 12;
}

static void add_decoded(const char *bytes, size_t n, weir__text *input)
{
    weir__text quoted = {0};
    weir__text_add_string(&quoted, "\"");
    weir__text_add(&quoted, bytes, n);
    weir__text_add_string(&quoted, "\"");
    json_t *text =
        quoted.failed ? NULL : json_loadb(quoted.bytes, quoted.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (text != NULL)
        weir__text_add(input, json_string_value(text), json_string_length(text));
    else
        weir__text_add(input, bytes, n); /* no JSON after all */
    json_decref(text);
    weir__text_fini(&quoted);
}

void serve_custom_tool_read(const weir__text *arguments, size_t *at, weir__text *input)
{
    const char *bytes = arguments->bytes != NULL ? arguments->bytes : "";
    size_t n = arguments->n, start = find_start(bytes, n);
    if (start == 0) return;
    if (start == SIZE_MAX) {
        weir__text_add(input, bytes + *at, n - *at);
        *at = n;
        return;
    }
    if (*at < start) *at = start;
    size_t end = *at, step = 1;
    while (end < n && bytes[end] != '"' && (step = measure(bytes + end, n - end)) > 0) end += step;
    if (end > *at) add_decoded(bytes + *at, end - *at, input);
    *at = end;
}
