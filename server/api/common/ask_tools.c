/* ask_tools.c: the tools of a request: those that are no functions, and which may be called.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "base/mem.h"
#include "custom_tool.h"
#include "field.h"
#include "foreign.h"
#include "server/request/call.h"

/* ---- Tools of other types in chat completions ---- */

/* Its type may be left out. */
static bool is_function(const json_t *tool)
{
    const char *type = serve_field_type(tool);
    return type == NULL || serve_ask_is(type, "function");
}

/* Responses' format: its members are not in one of their own. NULL: the call has its answer. */
static json_t *flatten(serve_call *call, const char *place, const json_t *format)
{
    static const char *const members[] = {"type", "grammar", NULL};
    const json_t *grammar = json_object_get(format, "grammar");
    if (!serve_ask_is(serve_field_type(format), "grammar")) return json_incref((json_t *)format);
    if (!serve_field_only(call, place, format, members)) return NULL;
    if (!json_is_object(grammar)) {
        serve_field_refuse(call, serve_place_of(place, "grammar").text,
                           "an object with a syntax and a definition");
        return NULL;
    }
    json_t *flat = json_copy((json_t *)grammar);
    if (flat != NULL && json_object_set_new(flat, "type", json_string("grammar")) == 0) return flat;
    json_decref(flat);
    serve_call_no_memory(call);
    return NULL;
}

/* As a function with one parameter. */
static bool add_custom(serve_ask *ask, const char *place, const json_t *tool)
{
    static const char *const members[] = {"type", "custom", "cache_control", NULL};
    static const char *const of_custom[] = {"name", "description", "format", NULL};
    const json_t *custom = json_object_get(tool, "custom"), *format = json_object_get(custom, "format");
    serve_place at = serve_place_of(place, "custom"), of_format = serve_place_of(at.text, "format");
    if (!serve_field_only(ask->call, place, tool, members)) return false;
    if (!json_is_object(custom)) return serve_field_refuse(ask->call, at.text, "an object with a name");
    if (!serve_field_only(ask->call, at.text, custom, of_custom)) return false;
    bool given = format != NULL && !json_is_null(format);
    json_t *flat = given ? flatten(ask->call, of_format.text, format) : NULL, *schema = NULL;
    if (given && flat == NULL) return false;
    if (serve_ask_is(serve_field_type(format), "grammar"))
        of_format = serve_place_of(of_format.text, "grammar");
    schema = serve_custom_tool_schema(ask->call, of_format.text, flat);
    json_decref(flat);
    bool ok =
        schema != NULL && serve_ask_add_tool(ask, at.text, json_object_get(custom, "name"),
                                             json_object_get(custom, "description"), schema, json_true());
    json_decref(schema);
    return ok && serve_custom_tool_name(ask, json_object_get(custom, "name"));
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

/* ---- The choice ---- */

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

static bool is_among(const json_t *tools, const json_t *tool)
{
    size_t i = 0;
    while (i < json_array_size(tools) && json_array_get(tools, i) != tool) i++;
    return i < json_array_size(tools);
}

/* Adds a tool to the chosen ones, with its place in the request. */
static bool choose_tool(const serve_ask *ask, const char *name, json_t *chosen, serve_places *places)
{
    const serve_places *all = &ask->call->terms.tools;
    size_t n = json_array_size(ask->tools), i = serve_ask_find_tool(ask->tools, name);
    if (i == n && name != NULL)
        i = serve_ask_find_tool(ask->tools, json_string_value(json_object_get(ask->plain, name)));
    if (i == n) return refuse_tool(ask, name);
    if (is_among(chosen, json_array_get(ask->tools, i))) return true;
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
    *tools = json_array();
    bool ok = ask->tools_allowed != NULL || choose_tool(ask, ask->tool_name, *tools, &places);
    for (size_t i = 0; ok && i < json_array_size(ask->tools_allowed); i++)
        ok = choose_tool(ask, json_string_value(json_array_get(ask->tools_allowed, i)), *tools, &places);
    weir__mem_free(terms->tools.at);
    terms->tools = places;
    if (terms->parameters == NULL) terms->parameters = "parameters";
    return ok;
}
