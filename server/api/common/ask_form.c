/* ask_form.c: the fields about the form of an answer: a schema, or a call of tools.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "field.h"
#include "foreign.h"
#include "server/request/call.h"

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
    static const char *const members[] = {"type", "schema", "json_schema", NULL};
    static const char *const of_schema[] = {"name", "description", "schema", "strict", NULL};
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!serve_field_only(call, name, value, members)) return false;
    if (serve_ask_is(type, "text")) return true;
    if (serve_ask_is(type, "json_object")) return read_json_object(ask, name, value);
    if (!serve_ask_is(type, "json_schema"))
        return serve_field_refuse(call, "response_format.type",
                                  "\"text\", \"json_object\" or \"json_schema\"");
    const json_t *given = json_object_get(value, "json_schema"), *schema = json_object_get(given, "schema");
    const json_t *strict = json_object_get(given, "strict");
    if (!serve_field_only(call, "response_format.json_schema", given, of_schema)) return false;
    if (!json_is_object(schema))
        return serve_field_refuse(call, "response_format.json_schema.schema", "an object: a JSON Schema");
    if (strict != NULL && !json_is_boolean(strict) && !json_is_null(strict))
        return serve_field_refuse(call, "response_format.json_schema.strict", "true or false");
    ask->chat.strict_schema = json_is_true(strict);
    return serve_ask_set_schema(ask, name, "response_format/json_schema/schema", schema);
}

/* ---- Tools ---- */

const char *serve_ask_tool_name(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_string_value(
        json_object_get(function != NULL ? function : json_object_get(tool, "custom"), "name"));
}

size_t serve_ask_find_tool(const json_t *tools, const char *name)
{
    size_t i = 0, n = json_array_size(tools);
    while (i < n && (name == NULL || !serve_ask_is(serve_ask_tool_name(json_array_get(tools, i)), name))) i++;
    return i;
}

bool serve_ask_add_tool(serve_ask *ask, const char *place, const json_t *name, const json_t *description,
                        const json_t *schema, const json_t *strict)
{
    if (ask->made_tools == NULL) ask->tools = ask->made_tools = json_array();
    if (json_array_size(ask->made_tools) == SERVE_TOOLS_MAX)
        return serve_field_refuse(ask->call, "tools", "an array of at most 256 tools");
    json_t *function = json_pack("{s:O*,s:O*,s:O*,s:O*}", "name", name, "description", description,
                                 "parameters", schema, "strict", strict);
    json_t *tool = json_pack("{s:s,s:o}", "type", "function", "function", function);
    return (json_array_append_new(ask->made_tools, tool) == 0 &&
            serve_places_add(&ask->call->terms.tools, place)) ||
           serve_call_no_memory(ask->call);
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
    return ask->again &&
           serve_ask_find_tool(ask->tools, json_string_value(name)) < json_array_size(ask->tools);
}

/* ---- The choice ---- */

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
        return serve_field_refuse(ask->call, list.text, "an array of at least one function, and at most 256");
    ask->chat.tool_choice = required ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO;
    ask->tools_allowed = json_array();
    if (!serve_field_each(ask->call, ask, list.text, tools, each)) return false;
    if (json_array_size(ask->tools_allowed) > 0) return true;
    /* All run on another server. */
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
    (void)call;
    if (type != NULL && !serve_ask_is(type, "function") && !serve_ask_is(type, "custom"))
        return serve_foreign_skip(to, place, tool, "function, custom");
    return serve_ask_allow_tool(to, name != NULL ? json_string(name) : json_null());
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": […]}} */
static bool read_allowed_tools(serve_ask *ask, const json_t *value)
{
    static const char *const members[] = {"mode", "tools", NULL};
    const json_t *allowed = json_object_get(value, "allowed_tools");
    return serve_field_only(ask->call, "tool_choice.allowed_tools", allowed, members) &&
           serve_ask_allow_tools(ask, "tool_choice.allowed_tools", allowed, read_allowed_tool);
}

bool serve_ask_tool_choice(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_ask *ask = to;
    static const char *const members[] = {"type", "function", "custom", "allowed_tools", NULL};
    static const char *const of_function[] = {"name", NULL};
    const char *word = json_string_value(value), *type = serve_field_type(value);
    bool custom = serve_ask_is(type, "custom");
    if (type == NULL || custom || serve_ask_is(type, "function") || serve_ask_is(type, "allowed_tools")) {
        const json_t *function = json_object_get(value, custom ? "custom" : "function");
        if (!serve_field_only(call, name, value, members) ||
            !serve_field_only(call, custom ? "tool_choice.custom" : "tool_choice.function", function,
                              of_function))
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
