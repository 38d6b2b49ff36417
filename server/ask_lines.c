/* ask_lines.c: lines of system messages that change from request to request, which would make every prompt
 * new to the cache. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"

/* Lines that agents are known to send. */
static const char *const known[] = {"x-anthropic-billing-header:"};

static bool is_dropped(const serve_params *params, const char *line)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(line, known[i], strlen(known[i])) == 0) return true;
    for (size_t i = 0; i < params->n_drop_lines; i++)
        if (strncmp(line, params->drop_lines[i], strlen(params->drop_lines[i])) == 0) return true;
    return false;
}

/* A text without its dropped lines, freed with json_decref; NULL: no line is dropped, or memory ran out. */
static json_t *without_lines(serve_ask *ask, const char *text)
{
    weir__text left = {0};
    int32_t n = 0;
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        length += line[length] == '\n';
        bool drop = is_dropped(&ask->call->server->params, line);
        if (!drop) weir__text_add(&left, line, length);
        n += drop;
        line += length;
        if (drop && *line == '\0' && left.n > 0 && line[-1] != '\n')
            left.n--; /* the line before is now the last one */
    }
    json_t *made = n > 0 && !left.failed ? json_stringn(left.bytes != NULL ? left.bytes : "", left.n) : NULL;
    if (made != NULL) ask->n_dropped += n;
    weir__text_fini(&left);
    return made;
}

/* Whether nothing is left of the text that `owner` has under `name`. */
static bool drop_within(serve_ask *ask, json_t *owner, const char *name)
{
    const char *text = json_string_value(json_object_get(owner, name));
    json_t *left = text != NULL ? without_lines(ask, text) : NULL;
    bool empty = left != NULL && strspn(json_string_value(left), " \n") == json_string_length(left);
    if (left != NULL) json_object_set_new(owner, name, left);
    return empty;
}

static void cut_array(json_t *array, size_t n)
{
    while (json_array_size(array) > n) json_array_remove(array, json_array_size(array) - 1);
}

/* Whether nothing is left of the message. */
static bool drop_from_message(serve_ask *ask, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_array(content)) return drop_within(ask, message, "content");
    size_t n = json_array_size(content), n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *part = json_array_get(content, i);
        if (drop_within(ask, part, "text")) continue;
        if (n_kept < i) json_array_set(content, n_kept, part);
        n_kept++;
    }
    cut_array(content, n_kept);
    return n > 0 && n_kept == 0;
}

static bool is_of_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return serve_ask_is(role, "system") || serve_ask_is(role, "developer");
}

void serve_ask_drop_lines(serve_ask *ask)
{
    json_t *messages = (json_t *)ask->messages;
    serve_places *places = &ask->call->terms.messages;
    size_t n = json_array_size(messages), n_kept = 0;
    bool leading = true;
    for (size_t i = 0; i < n; i++) {
        json_t *message = json_array_get(messages, i);
        leading = leading && is_of_system(message);
        bool is_last = i + 1 == n && n_kept == 0; /* a request has at least one message */
        if (leading && drop_from_message(ask, message) && !is_last) continue;
        if (n_kept < i) {
            json_array_set(messages, n_kept, message);
            serve_places_move(places, i, n_kept);
        }
        n_kept++;
    }
    cut_array(messages, n_kept);
    serve_places_cut(places, n_kept);
}
