/* ask_lines.c: lines that change from request to request, which would make every prompt new to the cache: of
 * the system messages at the beginning, and behind the texts of later messages.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "server/request/call.h"

#define PLACES_BYTES 2048 /* of the report; the answer's header has no more */

/* Lines that agents are known to send: how those of system messages begin, and last lines. */
static const char *const known[] = {"x-anthropic-billing-header:"};
static const char *const known_last[] = {"<total_tokens># tokens left</total_tokens>"};

/* Whether the pattern, in which # stands for digits, is the line [n]. */
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

/* line [n], with its newline if it has one. */
static bool is_dropped(const serve_params *params, const char *line, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(line, known[i], strlen(known[i])) == 0) return true;
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

/* The same for the last lines of a text. Each is looked at once. */
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

/* Whether nothing is left of the text that `owner` has under `name`. */
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

/* Whether nothing is left of the message at the beginning. */
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

/* Whether nothing is left of the later message. */
static bool drop_behind(serve_ask *ask, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_array(content)) return drop_within(ask, message, "content", true);
    size_t n = json_array_size(content), n_kept = n;
    while (n_kept > 0 && drop_within(ask, json_array_get(content, n_kept - 1), "text", true)) n_kept--;
    cut_array(content, n_kept);
    return n > 0 && n_kept == 0;
}

static bool has_role(const json_t *message, const char *role)
{
    return serve_ask_is(json_string_value(json_object_get(message, "role")), role);
}

/* Notes where lines were dropped, in the request's terms. False: out of memory. */
static bool note_message(serve_ask *ask, size_t i)
{
    const serve_place place = serve_places_message(&ask->call->terms.messages, i);
    return ask->dropped.n > PLACES_BYTES || weir__text_printf(&ask->dropped, "%s\n", place.text);
}

/* Before messages change their numbers. False: out of memory. */
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
        bool system = has_role(message, "system") || has_role(message, "developer"), gone = false;
        bool result = has_role(message, "tool"), users = behind_result && has_role(message, "user");
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
