/* turns.c: a conversation of another dialect, rewritten as messages of chat completions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"

#include <string.h>

#include "field.h"
#include "server/request/call.h"

static void check_turns(serve_turns *turns, bool ok)
{
    turns->failed = turns->failed || !ok;
}

/* Counts one more part. False: there is no room for it. */
static bool count_part(serve_turns *turns)
{
    return !turns->ask->call->begun && serve_ask_has_room(turns->ask, ++turns->n_parts);
}

void serve_turns_begin(serve_turns *turns, const char *role, const char *place)
{
    if (!serve_ask_has_room(turns->ask, json_array_size(turns->messages) + 1)) return;
    if (turns->messages == NULL) turns->messages = json_array();
    turns->last = json_pack("{s:s,s:[]}", "role", role, "content");
    check_turns(turns, turns->last != NULL && json_array_append_new(turns->messages, turns->last) == 0);
    check_turns(turns, serve_places_add(&turns->ask->call->terms.messages, place));
    if (turns->failed) turns->last = NULL;
}

void serve_turns_go_on(serve_turns *turns, const char *role, const char *place)
{
    if (!serve_ask_has_role(turns->last, role)) serve_turns_begin(turns, role, place);
}

/* Adds a value to an array of the last message. Takes the value. */
static void append_value(serve_turns *turns, const char *name, json_t *value)
{
    if (!count_part(turns)) {
        json_decref(value);
        return;
    }
    if (json_object_get(turns->last, name) == NULL)
        check_turns(turns, json_object_set_new(turns->last, name, json_array()) == 0);
    check_turns(turns, json_array_append_new(json_object_get(turns->last, name), value) == 0);
}

void serve_turns_add_text(serve_turns *turns, const json_t *text)
{
    append_value(turns, "content", json_pack("{s:s,s:O}", "type", "text", "text", text));
}

void serve_turns_add_image(serve_turns *turns, const char *place, const json_t *url)
{
    append_value(
        turns, "content",
        json_pack("{s:s,s:{s:O,s:s}}", "type", "image_url", "image_url", "url", url, "place", place));
}

/* The texts are joined at the end: joining them one by one would take quadratic time. */
void serve_turns_add_reasoning(serve_turns *turns, const json_t *text)
{
    append_value(turns, "reasoning_content", json_incref((json_t *)text));
}

void serve_turns_add_call(serve_turns *turns, const json_t *id, const json_t *name, const json_t *arguments)
{
    append_value(turns, "tool_calls",
                 json_pack("{s:s,s:O,s:{s:O,s:O}}", "type", "function", "id", id, "function", "name", name,
                           "arguments", arguments));
}

void serve_turns_set_call(serve_turns *turns, const json_t *id)
{
    check_turns(turns, json_object_set(turns->last, "tool_call_id", (json_t *)id) == 0);
}

bool serve_turns_read_content(serve_turns *turns, const char *place, const json_t *content,
                              serve_reader *each, const char *expected)
{
    serve_call *call = turns->ask->call;
    if (json_is_array(content)) return serve_field_each(call, turns, place, content, each);
    if (!json_is_string(content)) return serve_field_refuse(call, place, expected);
    serve_turns_add_text(turns, content);
    return true;
}

bool serve_turns_read_text(serve_turns *turns, const char *place, const json_t *item, serve_object of,
                           const char *name, const char *expected,
                           void (*add)(serve_turns *turns, const json_t *text))
{
    serve_call *call = turns->ask->call;
    const json_t *text = json_object_get(item, name);
    if (!serve_field_only(call, place, item, of)) return false;
    if (!json_is_string(text)) return serve_field_refuse(call, place, expected);
    add(turns, text);
    return true;
}

void serve_turns_cut(serve_turns *turns, size_t n)
{
    if (json_array_size(turns->messages) <= n) return;
    while (json_array_size(turns->messages) > n)
        json_array_remove(turns->messages, json_array_size(turns->messages) - 1);
    serve_places_cut(&turns->ask->call->terms.messages, n);
    turns->last = NULL;
}

void serve_turns_drop_empty(serve_turns *turns)
{
    bool empty = json_array_size(json_object_get(turns->last, "content")) == 0 &&
                 json_object_get(turns->last, "reasoning_content") == NULL &&
                 json_object_get(turns->last, "tool_calls") == NULL;
    if (empty && (serve_ask_has_role(turns->last, "assistant") || serve_ask_has_role(turns->last, "system")))
        serve_turns_cut(turns, json_array_size(turns->messages) - 1);
}

static json_t *join_lines(const json_t *texts)
{
    weir__text all = {0};
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        if (i > 0) weir__text_add_string(&all, "\n");
        weir__text_add(&all, json_string_value(text), json_string_length(text));
    }
    json_t *joined = all.failed ? NULL : json_stringn(all.bytes != NULL ? all.bytes : "", all.n);
    weir__text_fini(&all);
    return joined;
}

/* One text is a string, which every template takes; a message that only calls tools has none. */
static bool simplify_message(json_t *message)
{
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    if (reasoning != NULL && json_object_set_new(message, "reasoning_content", join_lines(reasoning)) != 0)
        return false;
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
    if (turns->ask->call->begun) return false;
    json_array_foreach(turns->messages, i, message) check_turns(turns, simplify_message(message));
    if (turns->failed) return serve_call_no_memory(turns->ask->call);
    turns->ask->made_messages = turns->messages;
    turns->ask->messages = turns->messages;
    turns->messages = NULL;
    return true;
}

void serve_turns_continue(serve_ask *ask)
{
    const json_t *last = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    if (!serve_ask_has_role(last, "assistant") || json_object_get(last, "tool_calls") != NULL) return;
    for (size_t i = 0; i < json_array_size(content); i++)
        if (json_object_get(json_array_get(content, i), "text") == NULL) return;
    ask->chat.continue_final = true;
    ask->chat.add_generation_prompt = false;
}

void serve_turns_fini(serve_turns *turns)
{
    json_decref(turns->messages);
    turns->messages = NULL;
}
