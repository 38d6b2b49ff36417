/* ask_tools.c: the tools of a request: functions, custom ones, and the choice among them. A custom tool
 * becomes a function with one string, whose pattern is its format's; of an answer, its input is decoded again
 * as it is generated. Tools of other types are left out by foreign.c. When all fields are known, the tools
 * that may be called are chosen from the list, with their places in the request, which errors name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "error.h"
#include "field.h"
#include "foreign.h"
#include "lark.h"
#include "server/request/call.h"

/* ---- Tools ---- */

const char *serve_ask_tool_name(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_string_value(
        json_object_get(function != NULL ? function : json_object_get(tool, "custom"), "name"));
}

/* Notes the number of each tool that has none yet by its name. False: out of memory, and the call has its
 * answer. */
static bool number_tools(serve_ask *ask)
{
    const size_t n = json_array_size(ask->tools);
    if (ask->numbers == NULL) ask->numbers = json_object();
    for (; ask->n_numbered < n; ask->n_numbered++) {
        const char *name = serve_ask_tool_name(json_array_get(ask->tools, ask->n_numbered));
        if (name != NULL && json_object_get(ask->numbers, name) == NULL &&
            json_object_set_new(ask->numbers, name, json_integer((json_int_t)ask->n_numbered)) != 0)
            return serve_call_no_memory(ask->call);
    }
    return ask->numbers != NULL || serve_call_no_memory(ask->call);
}

/* The number of the first tool of this name; that of all tools: there is none. */
static size_t find_tool(const serve_ask *ask, const char *name)
{
    const json_t *number = name != NULL ? json_object_get(ask->numbers, name) : NULL;
    return number != NULL ? (size_t)json_integer_value(number) : json_array_size(ask->tools);
}

/* Namespaces give each of their tools a copy of their description. */
static bool has_tool_room(serve_ask *ask, const json_t *name, const json_t *description)
{
    ask->tool_bytes += json_string_length(name) + json_string_length(description);
    if (json_array_size(ask->made_tools) == SERVE_TOOLS_MAX)
        return serve_field_refuse(ask->call, "tools", "an array of at most " SERVE_TOOLS_TEXT " tools");
    return ask->tool_bytes <= SERVE_FORM_BYTES ||
           serve_field_refuse(ask->call, "tools",
                              "tools of at most 2 MiB, with a namespace's description before that of each");
}

bool serve_ask_add_tool(serve_ask *ask, const char *place, const json_t *name, const json_t *description,
                        const json_t *schema, const json_t *strict)
{
    if (ask->made_tools == NULL) ask->tools = ask->made_tools = json_array();
    if (!has_tool_room(ask, name, description)) return false;
    json_t *function = json_pack("{s:O*,s:O*,s:O*,s:O*}", "name", name, "description", description,
                                 "parameters", schema, "strict", strict);
    json_t *tool = json_pack("{s:s,s:o}", "type", "function", "function", function);
    return ((json_array_append_new(ask->made_tools, tool) == 0 &&
             serve_places_add(&ask->call->terms.tools, place)) ||
            serve_call_no_memory(ask->call)) &&
           number_tools(ask);
}

bool serve_ask_bring_tool(serve_ask *ask, const char *place, json_t *tool)
{
    if (ask->brought == NULL) ask->brought = json_array();
    return (json_array_append(ask->brought, tool) == 0 && serve_places_add(&ask->places, place)) ||
           serve_call_no_memory(ask->call);
}

bool serve_ask_read_brought(serve_ask *ask, serve_reader *each)
{
    ask->again = true;
    for (size_t i = 0; i < json_array_size(ask->brought); i++)
        if (!serve_call_goes_on(ask->call) ||
            !each(ask->call, ask, ask->places.at[i], json_array_get(ask->brought, i)))
            return false;
    return true;
}

bool serve_ask_is_brought(const serve_ask *ask, const json_t *name)
{
    return ask->again && find_tool(ask, json_string_value(name)) < json_array_size(ask->tools);
}

/* ---- Members ---- */

/* Tools of other types are read below, once all fields are known. */
static bool check_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    (void)to;
    const char *type = serve_field_type(tool);
    return (type != NULL && !serve_ask_is(type, "function")) ||
           (serve_field_only(call, place, tool, SERVE_OBJECT_CHAT_TOOL) &&
            serve_field_only_in(call, place, tool, "function", SERVE_OBJECT_CHAT_FUNCTION));
}

bool serve_ask_tools(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->tools = value;
    if (json_array_size(value) > SERVE_TOOLS_MAX)
        return serve_field_refuse(call, name, "an array of at most " SERVE_TOOLS_TEXT " tools");
    return serve_field_each(call, to, name, value, check_tool);
}

/* ---- Custom tools: the format of an input ---- */

#define DEFINITION_MAX ((size_t)512 << 10) /* grammars have fewer elements */

/* True if the library enforces the pattern. False: the call has its answer. */
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
    return status == WEIR_OK ||
           serve_call_refuse(call, 400, place, "invalid_value", "%s cannot be enforced here: %.300s", place,
                             weir__error_words(&error).text);
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
    const char *syntax = json_string_value(json_object_get(format, "syntax"));
    const char *definition = json_string_value(json_object_get(format, "definition"));
    serve_place at = serve_place_of(place, "definition");
    weir__text text = {0};
    if (!serve_field_only(call, place, format, SERVE_OBJECT_GRAMMAR)) return NULL;
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

json_t *serve_ask_custom_schema(serve_call *call, const char *place, const json_t *format)
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

bool serve_ask_custom_name(serve_ask *ask, const json_t *name)
{
    if (!json_is_string(name)) return true; /* the library refuses the tool */
    if (ask->customs == NULL) ask->customs = json_object();
    return json_object_set_new(ask->customs, json_string_value(name), json_true()) == 0 ||
           serve_call_no_memory(ask->call);
}

/* ---- Custom tools: inputs ---- */

/* The place where the input's text begins, behind the quotation mark; 0: that was not generated yet;
 * SIZE_MAX: the arguments have another form. */
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
static size_t character_bytes(const char *bytes, size_t n)
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
    json_t *text = NULL;
    weir_error error = {0};
    weir__text_add_string(&quoted, "\"");
    weir__text_add(&quoted, bytes, n);
    weir__text_add_string(&quoted, "\"");
    weir_status status =
        quoted.failed ? WEIR_NO_MEMORY
                      : weir__json_parse_texts(quoted.bytes, quoted.n, "input", WEIR_INVALID, &text, &error);
    if (status == WEIR_OK)
        weir__text_add(input, json_string_value(text), json_string_length(text));
    else if (status == WEIR_INVALID)
        weir__text_add(input, bytes, n); /* no JSON after all */
    else
        input->failed = true;
    json_decref(text);
    weir__text_fini(&quoted);
}

void serve_ask_custom_input(const weir__text *arguments, size_t *at, weir__text *input)
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
    while (end < n && bytes[end] != '"' && (step = character_bytes(bytes + end, n - end)) > 0) end += step;
    if (end > *at) add_decoded(bytes + *at, end - *at, input);
    *at = end;
}

/* ---- Tools of other types in chat completions ---- */

/* True if a tool is a function; its type may be left out. */
static bool is_function(const json_t *tool)
{
    const char *type = serve_field_type(tool);
    return type == NULL || serve_ask_is(type, "function");
}

/* Responses' format: its members are not in one of their own. NULL: the call has its answer. */
static json_t *flatten_format(serve_call *call, const char *place, const json_t *format)
{
    const json_t *grammar = json_object_get(format, "grammar");
    if (!serve_ask_is(serve_field_type(format), "grammar")) return json_incref((json_t *)format);
    if (!serve_field_only(call, place, format, SERVE_OBJECT_CHAT_FORMAT)) return NULL;
    if (!json_is_object(grammar)) {
        serve_field_refuse(call, serve_place_of(place, "grammar").text,
                           "an object with a syntax and a definition");
        return NULL;
    }
    json_t *flat = weir__json_copy(grammar);
    if (flat != NULL && json_object_set_new(flat, "type", json_string("grammar")) == 0) return flat;
    json_decref(flat);
    serve_call_no_memory(call);
    return NULL;
}

/* Adds a custom tool as a function with one parameter. */
static bool add_custom(serve_ask *ask, const char *place, const json_t *tool)
{
    const json_t *custom = json_object_get(tool, "custom"), *format = json_object_get(custom, "format");
    serve_place at = serve_place_of(place, "custom"), of_format = serve_place_of(at.text, "format");
    if (!serve_field_only(ask->call, place, tool, SERVE_OBJECT_CHAT_CUSTOM_TOOL)) return false;
    if (!json_is_object(custom)) return serve_field_refuse(ask->call, at.text, "an object with a name");
    if (!serve_field_only(ask->call, at.text, custom, SERVE_OBJECT_CHAT_CUSTOM)) return false;
    bool given = format != NULL && !json_is_null(format);
    json_t *flat = given ? flatten_format(ask->call, of_format.text, format) : NULL, *schema = NULL;
    if (given && flat == NULL) return false;
    if (serve_ask_is(serve_field_type(format), "grammar"))
        of_format = serve_place_of(of_format.text, "grammar");
    schema = serve_ask_custom_schema(ask->call, of_format.text, flat);
    json_decref(flat);
    bool ok =
        schema != NULL && serve_ask_add_tool(ask, at.text, json_object_get(custom, "name"),
                                             json_object_get(custom, "description"), schema, json_true());
    json_decref(schema);
    return ok && serve_ask_custom_name(ask, json_object_get(custom, "name"));
}

/* A tool among others that are no functions. */
static bool add_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    serve_ask *ask = to;
    if (serve_ask_is(serve_field_type(tool), "custom")) return add_custom(ask, place, tool);
    if (!is_function(tool)) return serve_foreign_tool(ask, place, tool, "function, custom");
    serve_place at = serve_place_of(place, "function");
    return (json_array_append(ask->made_tools, (json_t *)tool) == 0 &&
            serve_places_add(&call->terms.tools, at.text)) ||
           serve_call_no_memory(call);
}

static bool are_functions(const json_t *tools)
{
    size_t i = 0;
    while (i < json_array_size(tools) && is_function(json_array_get(tools, i))) i++;
    return i == json_array_size(tools);
}

/* Makes a list of functions, without the tools that are left out. */
static bool replace_tools(serve_ask *ask)
{
    const json_t *given = ask->tools;
    ask->tools = ask->made_tools = json_array();
    ask->call->terms.parameters = "parameters";
    return (ask->made_tools != NULL || serve_call_no_memory(ask->call)) &&
           serve_field_each(ask->call, ask, "tools", given, add_tool);
}

/* ---- The choice, as a request has it ---- */

bool serve_ask_allow_tool(serve_ask *ask, json_t *name)
{
    return json_array_append_new(ask->tools_allowed, name) == 0 || serve_call_no_memory(ask->call);
}

bool serve_ask_allow_tools(serve_ask *ask, const char *place, const json_t *allowed, serve_reader *each)
{
    const json_t *tools = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    serve_place list = serve_place_of(place, "tools");
    size_t n = json_array_size(tools);
    bool required = serve_ask_is(mode, "required");
    if (!required && !serve_ask_is(mode, "auto"))
        return serve_field_refuse(ask->call, serve_place_of(place, "mode").text, "\"auto\" or \"required\"");
    if (n == 0 || n > SERVE_TOOLS_MAX)
        return serve_field_refuse(ask->call, list.text,
                                  "an array of at least one function, and at most " SERVE_TOOLS_TEXT);
    ask->chat.tool_choice = required ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO;
    ask->tools_allowed = json_array();
    if (!serve_field_each(ask->call, ask, list.text, tools, each)) return false;
    if (json_array_size(ask->tools_allowed) > 0) return true;
    /* The allowed tools all run on another server. */
    json_decref(ask->tools_allowed);
    ask->tools_allowed = NULL;
    ask->chat.tool_choice = WEIR_TOOLS_NONE;
    return !required || serve_field_refuse_type(ask->call, serve_place_at(list.text, 0).text,
                                                json_array_get(tools, 0), "function, custom");
}

/* {"type": "function", "function": {"name": …}}, or a custom tool; the type may be left out. */
static bool read_allowed_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    const char *type = serve_field_type(tool), *name = serve_ask_tool_name(tool);
    if (type != NULL && !serve_ask_is(type, "function") && !serve_ask_is(type, "custom"))
        return serve_foreign_skip(to, place, tool, "function, custom");
    if (name == NULL) return serve_field_refuse(call, place, "a tool with its name, a string");
    return serve_ask_allow_tool(to, json_string(name));
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": […]}} */
static bool read_allowed_tools(serve_ask *ask, const json_t *value)
{
    const json_t *allowed = json_object_get(value, "allowed_tools");
    return serve_field_only(ask->call, "tool_choice.allowed_tools", allowed, SERVE_OBJECT_CHAT_ALLOWED) &&
           serve_ask_allow_tools(ask, "tool_choice.allowed_tools", allowed, read_allowed_tool);
}

bool serve_ask_tool_choice(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    const char *word = json_string_value(value), *type = serve_field_type(value);
    bool custom = serve_ask_is(type, "custom");
    if (type == NULL || custom || serve_ask_is(type, "function") || serve_ask_is(type, "allowed_tools")) {
        const json_t *function = json_object_get(value, custom ? "custom" : "function");
        if (!serve_field_only(call, name, value, SERVE_OBJECT_CHAT_CHOICE) ||
            !serve_field_only(call, custom ? "tool_choice.custom" : "tool_choice.function", function,
                              SERVE_OBJECT_CHAT_CHOSEN))
            return false;
    }
    if (serve_ask_is(type, "allowed_tools")) return read_allowed_tools(ask, value);
    ask->tool_name = serve_ask_tool_name(value);
    if (serve_ask_is(word, "auto"))
        ask->chat.tool_choice = WEIR_TOOLS_AUTO;
    else if (serve_ask_is(word, "none"))
        ask->chat.tool_choice = WEIR_TOOLS_NONE;
    else if (serve_ask_is(word, "required") ||
             (ask->tool_name != NULL && (type == NULL || custom || serve_ask_is(type, "function"))))
        ask->chat.tool_choice = WEIR_TOOLS_REQUIRED;
    else if (type != NULL && !custom && !serve_ask_is(type, "function"))
        return serve_field_refuse_type(call, name, value, "function, custom, allowed_tools");
    else
        return serve_field_refuse(
            call, name,
            "\"auto\", \"none\", \"required\", or an object that names a function, a custom tool or "
            "allowed_tools");
    return true;
}

/* ---- The tools that may be called ---- */

static bool check_no_tools(const serve_ask *ask)
{
    const char *name = serve_foreign_left_out(ask, NULL);
    if (ask->chat.tool_choice != WEIR_TOOLS_REQUIRED) return true;
    return name == NULL
               ? serve_field_refuse(ask->call, "tool_choice", "left out where there are no tools")
               : serve_call_refuse(ask->call, 400, "tool_choice", "invalid_value",
                                   "tool_choice asks for a call, but \"%.64s\" is a tool that this server "
                                   "does not run, and there is no other; give a function",
                                   name);
}

static bool refuse_tool(const serve_ask *ask, const char *name)
{
    const char *why = "but there is no such tool in tools";
    if (name == NULL)
        name = "";
    else if (json_object_get(ask->plain, name) != NULL)
        why = "which several namespaces have; name the namespace, too";
    else if (serve_foreign_left_out(ask, name) != NULL)
        why = "a tool that this server does not run";
    return serve_call_refuse(ask->call, 400, "tool_choice", "invalid_value",
                             "tool_choice names \"%.64s\", %s", name, why);
}

/* Adds a tool to the chosen ones, with its place in the request, unless it is there already. */
static bool choose_tool(const serve_ask *ask, const char *name, json_t *chosen, bool *is_chosen,
                        serve_places *places)
{
    const serve_places *all = &ask->call->terms.tools;
    size_t n = json_array_size(ask->tools), i = find_tool(ask, name);
    if (i == n && name != NULL) i = find_tool(ask, json_string_value(json_object_get(ask->plain, name)));
    if (i == n) return refuse_tool(ask, name);
    if (is_chosen[i]) return true;
    is_chosen[i] = true;
    serve_place place = serve_place_of(serve_place_at("tools", i).text, "function");
    return (json_array_append(chosen, json_array_get(ask->tools, i)) == 0 &&
            serve_places_add(places, i < all->n ? all->at[i] : place.text)) ||
           serve_call_no_memory(ask->call);
}

bool serve_ask_choose_tools(serve_ask *ask, json_t **tools)
{
    serve_terms *terms = &ask->call->terms;
    serve_places places = {0};
    if (ask->tools != NULL && !json_is_array(ask->tools))
        return serve_field_refuse(ask->call, "tools", "an array");
    if (ask->made_tools == NULL && !are_functions(ask->tools) && !replace_tools(ask)) return false;
    if (json_array_size(ask->tools) == 0) return check_no_tools(ask);
    if (ask->tool_name == NULL && ask->tools_allowed == NULL) {
        *tools = json_incref((json_t *)ask->tools);
        return true;
    }
    bool *is_chosen = weir__mem_calloc(json_array_size(ask->tools), sizeof *is_chosen);
    *tools = json_array();
    if (is_chosen == NULL) return serve_call_no_memory(ask->call);
    bool ok = number_tools(ask) &&
              (ask->tools_allowed != NULL || choose_tool(ask, ask->tool_name, *tools, is_chosen, &places));
    for (size_t i = 0; ok && i < json_array_size(ask->tools_allowed); i++)
        ok = choose_tool(ask, json_string_value(json_array_get(ask->tools_allowed, i)), *tools, is_chosen,
                         &places);
    weir__mem_free(is_chosen);
    weir__mem_free(terms->tools.at);
    terms->tools = places;
    if (terms->parameters == NULL) terms->parameters = "parameters";
    return ok;
}
