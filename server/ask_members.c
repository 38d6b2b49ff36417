/* ask_members.c: the members that messages and tools of chat completions may have. Some are not read: clients
 * send an answer back as they got it, with all that their library or another server has put there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "field.h"

/* Whether a member of an object, itself an object, has no members but these. */
static bool check_inner(serve_call *call, const char *place, const json_t *object, const char *name,
                        const char *const *members)
{
    return serve_field_only(call, serve_place_of(place, name).text, json_object_get(object, name), members);
}

/* ---- Messages ---- */

static bool check_part(serve_call *call, void *to, const char *place, const json_t *part)
{
    (void)to;
    static const char *const members[] = {"type", "text",          "image_url",   "input_audio",
                                          "uuid", "cache_control", "annotations", "index",
                                          "id",   "citations",     NULL};
    static const char *const of_image[] = {"url", "format", NULL};
    static const char *const of_sound[] = {"data", "format", NULL};
    return serve_field_only(call, place, part, members) &&
           check_inner(call, place, part, "image_url", of_image) &&
           check_inner(call, place, part, "input_audio", of_sound);
}

static bool check_tool_call(serve_call *call, void *to, const char *place, const json_t *tool_call)
{
    (void)to;
    static const char *const members[] = {
        "id", "type", "function", "index", "extra_content", "provider_specific_fields", NULL};
    static const char *const of_function[] = {"name", "arguments", "parsed_arguments",
                                              "provider_specific_fields", NULL};
    return serve_field_only(call, place, tool_call, members) &&
           check_inner(call, place, tool_call, "function", of_function);
}

static bool check_message(serve_call *call, void *to, const char *place, const json_t *message)
{
    static const char *const members[] = {"role", "id", "content", "name", "tool_calls", "tool_call_id",
                                          "reasoning_content", "function_call", /* see below */
                                          /* OpenAI's answers, and what its libraries add */
                                          "refusal", "annotations", "parsed",
                                          /* reasoning as other servers and gateways have it */
                                          "reasoning", "reasoning_details", "thinking", "thinking_blocks",
                                          "tool_plan", "cache_control", "provider_specific_fields", NULL};
    const json_t *old = json_object_get(message, "function_call"),
                 *content = json_object_get(message, "content"),
                 *calls = json_object_get(message, "tool_calls");
    if (old != NULL && !json_is_null(old))
        return serve_call_refuse(call, 400, serve_place_of(place, "function_call").text, "unsupported_field",
                                 "%s.function_call is not supported: give the call in tool_calls, and its "
                                 "result in a message of role tool",
                                 place);
    return serve_field_only(call, place, message, members) &&
           serve_field_each(call, to, serve_place_of(place, "content").text, content, check_part) &&
           serve_field_each(call, to, serve_place_of(place, "tool_calls").text, calls, check_tool_call);
}

static size_t at_least_one(size_t n)
{
    return n > 0 ? n : 1;
}

/* Before any of them is looked at. */
static bool count_parts(const serve_ask *ask, const json_t *messages)
{
    size_t i, n = json_array_size(messages);
    json_t *message;
    if (!serve_ask_has_room(ask, n)) return false;
    n = 0;
    json_array_foreach((json_t *)messages, i, message) n +=
        at_least_one(json_array_size(json_object_get(message, "content"))) +
        json_array_size(json_object_get(message, "tool_calls"));
    return serve_ask_has_room(ask, n);
}

bool serve_ask_chat_messages(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->messages = value;
    if (!count_parts(to, value)) return false;
    return serve_field_each(call, to, name, value, check_message);
}

/* ---- Tools ---- */

/* The library refuses tools of another type. */
static bool check_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    (void)to;
    static const char *const members[] = {"type", "function", "cache_control", NULL};
    /* return: of functions in Python as Hugging Face's libraries describe them; type: Open WebUI's */
    static const char *const of_function[] = {"name",          "description", "parameters", "strict",
                                              "cache_control", "return",      "type",       NULL};
    const char *type = serve_field_type(tool);
    if (type != NULL && !serve_ask_is(type, "function")) return true;
    return serve_field_only(call, place, tool, members) &&
           check_inner(call, place, tool, "function", of_function);
}

bool serve_ask_tools(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->tools = value;
    if (json_array_size(value) > SERVE_TOOLS_MAX)
        return serve_field_refuse(call, name, "an array of at most 256 tools");
    return serve_field_each(call, to, name, value, check_tool);
}
