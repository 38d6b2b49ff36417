/* ask_members.c: the members that messages and tools of chat completions may have. Some are not read: clients
 * send an answer back as they got it, with all that their library or another server has put there.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ask.h"
#include "field.h"

#define PLACE_MAX 64

/* Checks the items of a list; place: the list's. */
static bool check_each(serve_call *call, const char *place, const json_t *list,
                       bool (*check)(serve_call *call, const char *place, const json_t *one))
{
    char at[PLACE_MAX];
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(at, sizeof at, "%.40s[%zu]", place, i);
        if (!check(call, at, json_array_get(list, i))) return false;
    }
    return true;
}

/* ---- Messages ---- */

static bool check_part(serve_call *call, const char *place, const json_t *part)
{
    static const char *const members[] = {"type", "text",          "image_url",   "input_audio",
                                          "uuid", "cache_control", "annotations", "index",
                                          "id",   "citations",     NULL};
    static const char *const of_image[] = {"url", "detail", "format", NULL};
    static const char *const of_sound[] = {"data", "format", NULL};
    char at[PLACE_MAX];
    if (!serve_field_only(call, place, part, members)) return false;
    snprintf(at, sizeof at, "%.40s.image_url", place);
    if (!serve_field_only(call, at, json_object_get(part, "image_url"), of_image)) return false;
    snprintf(at, sizeof at, "%.40s.input_audio", place);
    return serve_field_only(call, at, json_object_get(part, "input_audio"), of_sound);
}

static bool check_tool_call(serve_call *call, const char *place, const json_t *tool_call)
{
    static const char *const members[] = {
        "id", "type", "function", "index", "extra_content", "provider_specific_fields", NULL};
    static const char *const of_function[] = {"name", "arguments", "parsed_arguments",
                                              "provider_specific_fields", NULL};
    char at[PLACE_MAX];
    snprintf(at, sizeof at, "%.40s.function", place);
    return serve_field_only(call, place, tool_call, members) &&
           serve_field_only(call, at, json_object_get(tool_call, "function"), of_function);
}

static bool check_message(serve_call *call, const char *place, const json_t *message)
{
    static const char *const members[] = {"role", "id", "content", "name", "tool_calls", "tool_call_id",
                                          "reasoning_content", "function_call", /* see below */
                                          /* OpenAI's answers, and what its libraries add */
                                          "refusal", "annotations", "parsed",
                                          /* reasoning as other servers and gateways have it */
                                          "reasoning", "reasoning_details", "thinking", "thinking_blocks",
                                          "tool_plan", "cache_control", "provider_specific_fields", NULL};
    char at[PLACE_MAX];
    const json_t *old = json_object_get(message, "function_call");
    if (old != NULL && !json_is_null(old)) {
        snprintf(at, sizeof at, "%.40s.function_call", place);
        return serve_call_refuse(call, 400, at, "unsupported_field",
                                 "%s is not supported: give the call in tool_calls, and its result in a "
                                 "message of role tool",
                                 at);
    }
    if (!serve_field_only(call, place, message, members)) return false;
    snprintf(at, sizeof at, "%.24s.content", place);
    if (!check_each(call, at, json_object_get(message, "content"), check_part)) return false;
    snprintf(at, sizeof at, "%.24s.tool_calls", place);
    return check_each(call, at, json_object_get(message, "tool_calls"), check_tool_call);
}

bool serve_ask_chat_messages(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->messages = value;
    return check_each(call, name, value, check_message);
}

/* ---- Tools ---- */

/* The library refuses tools of another type. */
static bool check_tool(serve_call *call, const char *place, const json_t *tool)
{
    static const char *const members[] = {"type", "function", "cache_control", NULL};
    /* return: of functions in Python as Hugging Face's libraries describe them; type: Open WebUI's */
    static const char *const of_function[] = {"name",          "description", "parameters", "strict",
                                              "cache_control", "return",      "type",       NULL};
    char at[PLACE_MAX];
    const char *type = serve_field_type(tool);
    if (type != NULL && !serve_ask_is(type, "function")) return true;
    snprintf(at, sizeof at, "%.40s.function", place);
    return serve_field_only(call, place, tool, members) &&
           serve_field_only(call, at, json_object_get(tool, "function"), of_function);
}

bool serve_ask_tools(serve_call *call, void *to, const char *name, const json_t *value)
{
    ((serve_ask *)to)->tools = value;
    return check_each(call, name, value, check_tool);
}
