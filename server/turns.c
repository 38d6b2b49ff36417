/* SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"

#include <string.h>

static void check(serve_turns *turns, bool ok)
{
    turns->failed = turns->failed || !ok;
}

void serve_turns_begin(serve_turns *turns, const char *role, const char *place)
{
    if (turns->messages == NULL) turns->messages = json_array();
    turns->last = json_pack("{s:s,s:[]}", "role", role, "content");
    check(turns, turns->last != NULL && json_array_append_new(turns->messages, turns->last) == 0);
    check(turns, serve_places_add(&turns->ask->call->terms.messages, place));
    if (turns->failed) turns->last = NULL;
}

static bool has_role(const json_t *message, const char *role)
{
    return serve_ask_is(json_string_value(json_object_get(message, "role")), role);
}

void serve_turns_go_on(serve_turns *turns, const char *role, const char *place)
{
    if (!has_role(turns->last, role)) serve_turns_begin(turns, role, place);
}

void serve_turns_add_text(serve_turns *turns, const json_t *text)
{
    json_t *part = json_pack("{s:s,s:O}", "type", "text", "text", text);
    check(turns, json_array_append_new(json_object_get(turns->last, "content"), part) == 0);
}

void serve_turns_add_image(serve_turns *turns, const json_t *url)
{
    json_t *part = json_pack("{s:s,s:{s:O}}", "type", "image_url", "image_url", "url", url);
    check(turns, json_array_append_new(json_object_get(turns->last, "content"), part) == 0);
}

void serve_turns_add_reasoning(serve_turns *turns, const json_t *text)
{
    const json_t *before = json_object_get(turns->last, "reasoning_content");
    json_t *whole = json_sprintf("%s%s%s", before != NULL ? json_string_value(before) : "",
                                 before != NULL ? "\n" : "", json_string_value(text));
    check(turns, json_object_set_new(turns->last, "reasoning_content", whole) == 0);
}

void serve_turns_add_call(serve_turns *turns, const json_t *id, const json_t *name, const json_t *arguments)
{
    json_t *calls = json_object_get(turns->last, "tool_calls");
    if (calls == NULL) {
        calls = json_array();
        check(turns, json_object_set_new(turns->last, "tool_calls", calls) == 0);
    }
    json_t *call = json_pack("{s:s,s:O,s:{s:O,s:O}}", "type", "function", "id", id, "function", "name", name,
                             "arguments", arguments);
    check(turns, call != NULL && json_array_append_new(calls, call) == 0);
}

void serve_turns_set_call(serve_turns *turns, const json_t *id)
{
    check(turns, json_object_set(turns->last, "tool_call_id", (json_t *)id) == 0);
}

/* One text is a string, which every template takes; a message that only calls tools has none. */
static bool simplify(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    if (json_array_size(content) > 1 || (json_array_size(content) == 1 && text == NULL)) return true;
    json_t *value = text != NULL                                     ? json_incref(text)
                    : json_object_get(message, "tool_calls") != NULL ? json_null()
                                                                     : json_string("");
    return json_object_set_new(message, "content", value) == 0;
}

bool serve_turns_end(serve_turns *turns)
{
    size_t i;
    json_t *message;
    json_array_foreach(turns->messages, i, message) check(turns, simplify(message));
    if (turns->failed) return serve_call_no_memory(turns->ask->call);
    turns->ask->made_messages = turns->messages;
    turns->ask->messages = turns->messages;
    turns->messages = NULL;
    return true;
}

void serve_turns_fini(serve_turns *turns)
{
    json_decref(turns->messages);
    turns->messages = NULL;
}
