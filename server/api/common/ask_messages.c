/* ask_messages.c: the messages of a conversation: how many it may have, the members of each, and the lines
 * that are left out of the prompt. All parts are counted before any is read, since each is at least a token.
 * Members are checked where they stand in the JSON, and some are changed there into what the library reads.
 * Lines are dropped afterwards: a message of which nothing is left goes, too, unless it is the last one or a
 * call's result, and the places of the others in the request move with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "base/mem.h"
#include "error.h"
#include "field.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

/* ---- Room ---- */

#define PARTS_FEW 1024

size_t serve_ask_room(const serve_call *call)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (weir_engine_get_stats(call->loaded->engine, &stats) != WEIR_OK) return SIZE_MAX;
    return stats.n_ctx > PARTS_FEW ? (size_t)stats.n_ctx : PARTS_FEW;
}

bool serve_ask_has_room(const serve_ask *ask, size_t n)
{
    return n <= ask->most_parts ||
           serve_call_too_long(ask->call, serve_ask_conversation(ask),
                               "the messages have more than %zu texts, images and calls, each of which is at "
                               "least a token: there is no room for so many",
                               ask->most_parts);
}

/* ---- Members ---- */

/* Some members are not read: clients send an answer back as they got it, with all that their library or
 * another server has put there. */

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
    return serve_field_only(call, place, part, SERVE_OBJECT_CHAT_PART) &&
           (!serve_ask_is(serve_field_type(part), "refusal") || read_refusal(call, place, (json_t *)part)) &&
           serve_field_only_in(call, place, part, "image_url", SERVE_OBJECT_CHAT_IMAGE) &&
           serve_field_only_in(call, place, part, "input_audio", SERVE_OBJECT_CHAT_SOUND);
}

/* Makes a custom tool's call one of a function, whose arguments have the input. */
static bool read_custom_call(serve_call *call, const char *place, json_t *tool_call)
{
    const json_t *custom = json_object_get(tool_call, "custom"), *name = json_object_get(custom, "name"),
                 *input = json_object_get(custom, "input");
    serve_place at = serve_place_of(place, "custom");
    if (!serve_field_only(call, at.text, custom, SERVE_OBJECT_CHAT_CALL_CUSTOM)) return false;
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
    if (!serve_field_only(call, place, tool_call, SERVE_OBJECT_CHAT_CALL)) return false;
    return serve_ask_is(serve_field_type(tool_call), "custom")
               ? read_custom_call(call, place, (json_t *)tool_call)
               : serve_field_only_in(call, place, tool_call, "function", SERVE_OBJECT_CHAT_CALL_FUNCTION);
}

/* True if a message of the assistant's has neither words nor calls. */
static bool is_silent(const json_t *message, const json_t *content)
{
    if (!serve_ask_has_role(message, "assistant") ||
        json_array_size(json_object_get(message, "tool_calls")) > 0)
        return false;
    return content == NULL || json_is_null(content) ||
           (json_is_string(content) && json_string_length(content) == 0) ||
           (json_is_array(content) && json_array_size(content) == 0);
}

static bool check_message(serve_call *call, void *to, const char *place, const json_t *message)
{
    const json_t *content = json_object_get(message, "content"),
                 *calls = json_object_get(message, "tool_calls");
    json_t *refusal = json_object_get(message, "refusal");
    if (!serve_field_only(call, place, message, SERVE_OBJECT_CHAT_MESSAGE)) return false;
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

/* Counts the parts of all messages before any of them is looked at. */
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

/* ---- Lines ---- */

/* Lines that change from request to request would make every prompt new to the cache: those of the system
 * messages at the beginning, and behind the texts of later messages. */

#define PLACES_BYTES 2048 /* of the report; the answer's header has no more */

/* Lines that agents are known to send: how those of system messages begin, and last lines. */
static const char *const known_first[] = {"x-anthropic-billing-header:"};
static const char *const known_last[] = {"<total_tokens># tokens left</total_tokens>"};

/* True if the pattern, in which # stands for digits, is the line [n]. */
static bool is_line(const char *pattern, const char *line, size_t n)
{
    size_t i = 0;
    for (; *pattern != '\0'; pattern++) {
        size_t digits = 0;
        while (*pattern == '#' && i + digits < n && line[i + digits] >= '0' && line[i + digits] <= '9')
            digits++;
        if (*pattern == '#' ? digits == 0 : i >= n || line[i] != *pattern) return false;
        i += *pattern == '#' ? digits : 1;
    }
    return i == n;
}

static bool is_last_line(const serve_params *params, const char *line, size_t n)
{
    for (size_t i = 0; i < sizeof known_last / sizeof *known_last; i++)
        if (is_line(known_last[i], line, n)) return true;
    for (size_t i = 0; i < params->n_drop_last_lines; i++)
        if (is_line(params->drop_last_lines[i], line, n)) return true;
    return false;
}

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t without_white(const char *text, size_t n)
{
    while (n > 0 && is_white(text[n - 1])) n--;
    return n;
}

/* True if a line [n], with its newline if it has one, is to be dropped. */
static bool is_dropped(const serve_params *params, const char *line, size_t n)
{
    for (size_t i = 0; i < sizeof known_first / sizeof *known_first; i++)
        if (strncmp(line, known_first[i], strlen(known_first[i])) == 0) return true;
    for (size_t i = 0; i < params->n_drop_lines; i++)
        if (strncmp(line, params->drop_lines[i], strlen(params->drop_lines[i])) == 0) return true;
    return is_last_line(params, line, without_white(line, n));
}

/* A text without its dropped lines, freed with json_decref; NULL: no line is dropped, or memory ran out. */
static json_t *without_lines(serve_ask *ask, const char *text)
{
    weir__text left = {0};
    const char *kept = text; /* from here on nothing was dropped */
    int32_t n = 0;
    for (const char *line = text, *next; *line != '\0'; line = next) {
        const char *end = strchr(line, '\n');
        next = end != NULL ? end + 1 : line + strlen(line);
        if (!serve_call_goes_on(ask->call)) break;
        if (!is_dropped(&ask->call->server->params, line, (size_t)(next - line))) continue;
        weir__text_add(&left, kept, (size_t)(line - kept));
        if (*next == '\0' && end == NULL && left.n > 0) left.n--; /* the line before is now the last one */
        kept = next;
        n++;
    }
    if (n > 0) weir__text_add_string(&left, kept);
    json_t *made = n > 0 && !left.failed ? json_stringn(left.bytes != NULL ? left.bytes : "", left.n) : NULL;
    if (made != NULL) ask->n_dropped += n;
    weir__text_fini(&left);
    return made;
}

/* A copy of a text without its last lines, likewise. Each is looked at once. */
static json_t *without_last_lines(serve_ask *ask, const char *text)
{
    size_t length = strlen(text), kept = length;
    int32_t n = 0;
    for (;;) {
        size_t end = without_white(text, kept), begin = end;
        while (begin > 0 && text[begin - 1] != '\n') begin--;
        if (end == 0 || !is_last_line(&ask->call->server->params, text + begin, end - begin)) break;
        kept = begin;
        n++;
    }
    if (n == 0) return NULL;
    if (kept > 0 && text[length - 1] != '\n') kept--; /* the line before is now the last one */
    json_t *made = json_stringn(text, kept);
    if (made != NULL) ask->n_dropped += n;
    return made;
}

/* Drops lines of the text that `owner` has under `name`. True: nothing is left of it. */
static bool drop_within(serve_ask *ask, json_t *owner, const char *name, bool last)
{
    const char *text = json_string_value(json_object_get(owner, name));
    json_t *left = text == NULL ? NULL : last ? without_last_lines(ask, text) : without_lines(ask, text);
    bool empty = left != NULL && strspn(json_string_value(left), " \n") == json_string_length(left);
    if (left != NULL) json_object_set_new(owner, name, left);
    return empty;
}

static void cut_array(json_t *array, size_t n)
{
    while (json_array_size(array) > n) json_array_remove(array, json_array_size(array) - 1);
}

/* Drops lines of a message at the beginning. True: nothing is left of it. */
static bool drop_from_message(serve_ask *ask, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_array(content)) return drop_within(ask, message, "content", false);
    size_t n = json_array_size(content), n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *part = json_array_get(content, i);
        if (drop_within(ask, part, "text", false)) continue;
        if (n_kept < i) json_array_set(content, n_kept, part);
        n_kept++;
    }
    cut_array(content, n_kept);
    return n > 0 && n_kept == 0;
}

/* Drops the last lines of a later message. True: nothing is left of it. */
static bool drop_behind(serve_ask *ask, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_array(content)) return drop_within(ask, message, "content", true);
    size_t n = json_array_size(content), n_kept = n;
    while (n_kept > 0 && drop_within(ask, json_array_get(content, n_kept - 1), "text", true)) n_kept--;
    cut_array(content, n_kept);
    return n > 0 && n_kept == 0;
}

/* Notes where lines were dropped, in the request's terms. False: out of memory. */
static bool note_message(serve_ask *ask, size_t i)
{
    const serve_place place = serve_places_message(&ask->call->terms.messages, i);
    return ask->dropped.n > PLACES_BYTES || weir__text_printf(&ask->dropped, "%s\n", place.text);
}

/* Names the messages before they change their numbers. False: out of memory. */
static bool name_messages(serve_places *places, size_t n)
{
    bool ok = true;
    for (size_t i = places->n; i < n && ok; i++)
        ok = serve_places_add(places, serve_place_at("messages", i).text);
    return ok;
}

bool serve_ask_drop_lines(serve_ask *ask)
{
    json_t *messages = (json_t *)ask->messages;
    serve_places *places = &ask->call->terms.messages;
    size_t n = json_array_size(messages), n_kept = 0;
    bool leading = true, behind_result = false;
    for (size_t i = 0; i < n; i++) {
        json_t *message = json_array_get(messages, i);
        bool system = serve_ask_has_role(message, "system") || serve_ask_has_role(message, "developer"),
             gone = false;
        bool result = serve_ask_has_role(message, "tool"),
             users = behind_result && serve_ask_has_role(message, "user");
        bool is_last = i + 1 == n && n_kept == 0; /* a request has at least one message */
        int32_t n_dropped = ask->n_dropped;
        leading = leading && system;
        if (leading)
            gone = drop_from_message(ask, message);
        else if (system || result || users)
            gone = drop_behind(ask, message) && !result; /* a call keeps its result */
        behind_result = result || (behind_result && system);
        if (ask->call->begun) return false; /* the work ends here */
        if (ask->n_dropped > n_dropped && !note_message(ask, i)) return serve_call_no_memory(ask->call);
        if (gone && !is_last) {
            if (n_kept == i && places->n < n && !name_messages(places, n))
                return serve_call_no_memory(ask->call);
            continue;
        }
        if (n_kept < i) {
            json_array_set(messages, n_kept, message);
            serve_places_move(places, i, n_kept);
        }
        n_kept++;
    }
    cut_array(messages, n_kept);
    serve_places_cut(places, n_kept);
    return true;
}
