/* ask_members.c: the members that messages and tools of chat completions may have. Some are not read: clients
 * send an answer back as they got it, with all that their library or another server has put there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "base/mem.h"
#include "field.h"
#include "server/request/call.h"

/* Whether a member of an object, itself an object, has no members but these. */
static bool check_inner(serve_call *call, const char *place, const json_t *object, const char *name,
                        const char *const *members)
{
    return serve_field_only(call, serve_place_of(place, name).text, json_object_get(object, name), members);
}

/* ---- Messages ---- */

/* Makes a refusal a text: both are the assistant's words. */
static bool read_refusal(serve_call *call, const char *place, json_t *part)
{
    json_t *words = json_object_get(part, "refusal");
    if (!json_is_string(words)) return serve_field_refuse(call, place, "a part with a refusal, a string");
    return (json_object_set(part, "text", words) == 0 &&
            json_object_set_new(part, "type", json_string("text")) == 0) ||
           serve_call_no_memory(call);
}

static bool check_part(serve_call *call, void *to, const char *place, const json_t *part)
{
    (void)to;
    static const char *const members[] = {"type", "text",          "image_url",   "input_audio",
                                          "uuid", "cache_control", "annotations", "index",
                                          "id",   "citations",     "refusal",     NULL};
    static const char *const of_image[] = {"url", "format", NULL};
    static const char *const of_sound[] = {"data", "format", NULL};
    return serve_field_only(call, place, part, members) &&
           (!serve_ask_is(serve_field_type(part), "refusal") || read_refusal(call, place, (json_t *)part)) &&
           check_inner(call, place, part, "image_url", of_image) &&
           check_inner(call, place, part, "input_audio", of_sound);
}

/* Makes a custom tool's call one of a function, whose arguments have the input. */
static bool read_custom_call(serve_call *call, const char *place, json_t *tool_call)
{
    static const char *const members[] = {"name", "input", NULL};
    const json_t *custom = json_object_get(tool_call, "custom"), *name = json_object_get(custom, "name"),
                 *input = json_object_get(custom, "input");
    serve_place at = serve_place_of(place, "custom");
    if (!serve_field_only(call, at.text, custom, members)) return false;
    if (!json_is_string(name) || !json_is_string(input))
        return serve_field_refuse(call, at.text, "an object with a name and an input, both of them strings");
    json_t *arguments = json_pack("{s:O}", "input", input);
    char *text = arguments != NULL ? weir__json_dump(arguments) : NULL;
    json_t *function = text != NULL ? json_pack("{s:O,s:s}", "name", name, "arguments", text) : NULL;
    weir__mem_free(text);
    json_decref(arguments);
    bool ok = function != NULL && json_object_set_new(tool_call, "function", function) == 0 &&
              json_object_set_new(tool_call, "type", json_string("function")) == 0;
    json_object_del(tool_call, "custom");
    return ok || serve_call_no_memory(call);
}

static bool check_tool_call(serve_call *call, void *to, const char *place, const json_t *tool_call)
{
    (void)to;
    static const char *const members[] = {
        "id", "type", "function", "custom", "index", "extra_content", "provider_specific_fields", NULL};
    static const char *const of_function[] = {"name", "arguments", "parsed_arguments",
                                              "provider_specific_fields", NULL};
    if (!serve_field_only(call, place, tool_call, members)) return false;
    return serve_ask_is(serve_field_type(tool_call), "custom")
               ? read_custom_call(call, place, (json_t *)tool_call)
               : check_inner(call, place, tool_call, "function", of_function);
}

/* Whether a message of the assistant's has neither words nor calls. */
static bool is_silent(const json_t *message, const json_t *content)
{
    if (!serve_ask_is(json_string_value(json_object_get(message, "role")), "assistant") ||
        json_array_size(json_object_get(message, "tool_calls")) > 0)
        return false;
    return content == NULL || json_is_null(content) ||
           (json_is_string(content) && json_string_length(content) == 0) ||
           (json_is_array(content) && json_array_size(content) == 0);
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
    json_t *refusal = json_object_get(message, "refusal");
    if (old != NULL && !json_is_null(old))
        return serve_call_refuse(call, 400, serve_place_of(place, "function_call").text, "unsupported_field",
                                 "%s.function_call is not supported: give the call in tool_calls, and its "
                                 "result in a message of role tool",
                                 place);
    if (!serve_field_only(call, place, message, members)) return false;
    if (json_is_string(refusal) && is_silent(message, content)) {
        if (json_object_set((json_t *)message, "content", refusal) != 0) return serve_call_no_memory(call);
        content = refusal; /* the former one is freed */
    }
    return serve_field_each(call, to, serve_place_of(place, "content").text, content, check_part) &&
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

/* ask_tools.c reads tools of other types. */
static bool check_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    (void)to;
    static const char *const members[] = {"type", "function", "cache_control", NULL};
    /* return: of functions in Python as Hugging Face's libraries describe them; type: Open WebUI's */
    static const char *const of_function[] = {"name",          "description", "parameters", "strict",
                                              "cache_control", "return",      "type",       NULL};
    const char *type = serve_field_type(tool);
    return (type != NULL && !serve_ask_is(type, "function")) ||
           (serve_field_only(call, place, tool, members) &&
            check_inner(call, place, tool, "function", of_function));
}

bool serve_ask_tools(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->tools = value;
    if (json_array_size(value) > SERVE_TOOLS_MAX)
        return serve_field_refuse(call, name, "an array of at most 256 tools");
    return serve_field_each(call, to, name, value, check_tool);
}
