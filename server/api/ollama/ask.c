/* ask.c: a request in the format of Ollama's API. Its conversation and options become those of chat
 * completions. Messages, or the prompt of /api/generate, are read into turns. Calls of tools may have no id
 * here, so each gets one, and a result finds its call by its id, else by its tool's name, else it is that of
 * the first call that waits.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/words.h"
#include "ollama.h"
#include "server/api/common/field.h"
#include "server/api/common/hint.h"
#include "server/api/common/turns.h"
#include "server/models/catalog.h"
#include "server/request/call.h"
#include "server/settings/effort.h"

/* A call of the last message of the assistant. */
typedef struct open_call {
    json_t *id;       /* owned; NULL: it has a result */
    const char *tool; /* its name */
    size_t next;      /* the tool's next call; 0: none */
} open_call;

/* The turns, and the calls of the last message of the assistant. A result finds its call without a look at
 * the others: its tool's first one that waits has its number in `first`. */
typedef struct reading {
    serve_turns turns;
    open_call *calls; /* [n], owned */
    size_t n, capacity;
    size_t at;            /* the calls before have results */
    json_t *first, *last; /* numbers of calls that wait, by their tools' names; owned */
} reading;

/* ---- Messages ---- */

static bool read_image(serve_call *call, void *to, const char *place, const json_t *image)
{
    reading *r = to;
    if (!json_is_string(image)) return serve_field_refuse(call, place, "base64");
    json_t *url = json_sprintf("data:image/*;base64,%s", json_string_value(image));
    serve_turns_add_image(&r->turns, place, url);
    json_decref(url);
    return true;
}

/* Empties the list: the copies are dropped once they are decoded. */
static bool read_images(reading *r, const char *place, json_t *images)
{
    serve_call *call = r->turns.ask->call;
    if (images == NULL || json_is_null(images)) return true;
    if (!json_is_array(images)) return serve_field_refuse(call, place, "an array of base64");
    if (!serve_field_each(call, r, place, images, read_image)) return false;
    json_array_clear(images);
    return true;
}

/* ---- Calls and their results ---- */

static void close_calls(reading *r)
{
    for (size_t i = 0; i < r->n; i++) json_decref(r->calls[i].id);
    r->n = r->at = 0;
    json_object_clear(r->first);
    json_object_clear(r->last);
}

static void free_calls(reading *r)
{
    close_calls(r);
    json_decref(r->first);
    json_decref(r->last);
    weir__mem_free(r->calls);
}

static bool set_number(json_t *of, const char *tool, size_t number)
{
    return json_object_set_new(of, tool, json_integer((json_int_t)number)) == 0;
}

/* Takes the id. False: out of memory. */
static bool open_tool_call(reading *r, json_t *id, const char *tool)
{
    size_t number = r->n;
    if (id == NULL || !weir__mem_grow(&r->calls, &r->capacity, number + 1, sizeof *r->calls)) {
        json_decref(id);
        return false;
    }
    r->calls[r->n++] = (open_call){.id = id, .tool = tool};
    const json_t *last = json_object_get(r->last, tool);
    if (last != NULL) r->calls[json_integer_value(last)].next = number;
    return (last != NULL || set_number(r->first, tool, number)) && set_number(r->last, tool, number);
}

/* A call, its tool's first one that waits, has its result. False: out of memory. */
static bool close_tool_call(reading *r, size_t number)
{
    open_call *call = &r->calls[number];
    json_decref(call->id);
    call->id = NULL;
    if (call->next > 0) return set_number(r->first, call->tool, call->next);
    json_object_del(r->first, call->tool);
    json_object_del(r->last, call->tool);
    return true;
}

/* The first call of a tool that waits, else the first of all; n: there is none. */
static size_t find_call(reading *r, const char *tool)
{
    const json_t *first = tool != NULL ? json_object_get(r->first, tool) : NULL;
    if (first != NULL) return (size_t)json_integer_value(first);
    while (r->at < r->n && r->calls[r->at].id == NULL) r->at++;
    return r->at;
}
/* Ollama's calls may have no id, which many templates want. */
static bool read_tool_call(serve_call *of, void *to, const char *place, const json_t *call)
{
    reading *r = to;
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name"),
                 *arguments = json_object_get(function, "arguments"), *given = json_object_get(call, "id");
    if (!serve_field_only(of, place, call, SERVE_OBJECT_OLLAMA_CALL) ||
        !serve_field_only(of, place, function, SERVE_OBJECT_OLLAMA_CALL_FUNCTION))
        return false;
    if (!json_is_string(name) || (!json_is_object(arguments) && !json_is_string(arguments)))
        return serve_field_refuse(of, place, "an object with a function that has name and arguments");
    json_t *id =
        json_string_length(given) > 0 ? json_incref((json_t *)given) : json_sprintf("call%05zu", r->n);
    serve_turns_add_call(&r->turns, id, name, arguments);
    return open_tool_call(r, id, json_string_value(name)) || serve_call_no_memory(of);
}

static bool read_tool_calls(reading *r, const char *place, const json_t *calls)
{
    close_calls(r);
    if (calls == NULL || json_is_null(calls)) return true;
    if (!json_is_array(calls)) return serve_field_refuse(r->turns.ask->call, place, "an array");
    return serve_field_each(r->turns.ask->call, r, place, calls, read_tool_call);
}

/* The call whose result a message is: by its id, else the first one of this tool, else the first one. */
static bool set_call(reading *r, const json_t *message)
{
    const json_t *given = json_object_get(message, "tool_call_id");
    if (json_string_length(given) > 0) {
        serve_turns_set_call(&r->turns, given);
        return true;
    }
    size_t i = find_call(r, json_string_value(json_object_get(message, "tool_name")));
    if (i == r->n) return true;
    serve_turns_set_call(&r->turns, r->calls[i].id);
    return close_tool_call(r, i) || serve_call_no_memory(r->turns.ask->call);
}

static bool read_texts(reading *r, const char *place, const json_t *message)
{
    const json_t *content = json_object_get(message, "content"),
                 *thinking = json_object_get(message, "thinking");
    bool none = content == NULL || json_is_null(content);
    if (!none && !json_is_string(content))
        return serve_field_refuse(r->turns.ask->call, serve_place_of(place, "content").text, "a string");
    if (!none && (json_string_length(content) > 0 || json_object_get(message, "tool_calls") == NULL))
        serve_turns_add_text(&r->turns, content);
    if (json_string_length(thinking) > 0) serve_turns_add_reasoning(&r->turns, thinking);
    return true;
}

static bool read_message(serve_call *call, void *to, const char *place, const json_t *message)
{
    reading *r = to;
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!json_is_object(message)) return serve_field_refuse(call, place, "an object");
    if (!serve_field_only(call, place, message, SERVE_OBJECT_OLLAMA_MESSAGE)) return false;
    if (role == NULL || !weir__words_have(roles, sizeof roles / sizeof *roles, role))
        return serve_field_refuse(call, serve_place_of(place, "role").text,
                                  "\"system\", \"user\", \"assistant\" or \"tool\"");
    serve_turns_begin(&r->turns, role, place);
    if (!read_images(r, serve_place_of(place, "images").text, json_object_get(message, "images")) ||
        !read_texts(r, place, message))
        return false;
    if (strcmp(role, "tool") == 0 && !set_call(r, message)) return false;
    return strcmp(role, "assistant") != 0 || read_tool_calls(r, serve_place_of(place, "tool_calls").text,
                                                             json_object_get(message, "tool_calls"));
}

static bool read_messages(reading *r, const json_t *messages)
{
    if (messages != NULL && !json_is_array(messages))
        return serve_field_refuse(r->turns.ask->call, "messages", "an array");
    return serve_field_each(r->turns.ask->call, r, "messages", messages, read_message);
}

/* The fields of /api/generate in place of messages. */
static bool read_prompt(reading *r)
{
    serve_ask *ask = r->turns.ask;
    const json_t *system = serve_ask_given(ask, "system");
    if (json_string_length(system) > 0) {
        serve_turns_begin(&r->turns, "system", "system");
        serve_turns_add_text(&r->turns, system);
    }
    json_t *images = json_object_get(ask->json, "images");
    serve_turns_begin(&r->turns, "user", json_array_size(images) > 0 ? "images" : "prompt");
    if (!read_images(r, "images", images)) return false;
    if (ask->prompt != NULL) serve_turns_add_text(&r->turns, ask->prompt);
    return true;
}

static bool make_messages(serve_ask *ask, bool chat)
{
    reading r = {.turns = {.ask = ask}, .first = json_object(), .last = json_object()};
    bool ok = (r.first != NULL && r.last != NULL) || serve_call_no_memory(ask->call);
    ok = ok && (chat ? read_messages(&r, serve_ask_given(ask, "messages")) : read_prompt(&r)) &&
         (r.turns.messages == NULL || serve_turns_end(&r.turns));
    if (ok && chat) serve_turns_continue(ask); /* as Ollama does */
    serve_turns_fini(&r.turns);
    free_calls(&r);
    return ok;
}

/* ---- Options ---- */

/* True if a schema has no type or a known one. With another one, such as OpenAI's "json_object", it would
 * allow any value. */
static bool has_known_type(const json_t *schema)
{
    static const char *const types[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type == NULL || weir__words_have(types, sizeof types / sizeof *types, type);
}

static bool read_format(serve_ask *ask)
{
    static const char name[] = "format";
    const json_t *format = serve_ask_given(ask, name);
    const char *word = json_string_value(format);
    if (format == NULL || serve_ask_is(word, "")) return true;
    if (serve_ask_is(word, "json")) return serve_ask_set_any_object(ask, name, name);
    if (!json_is_object(format)) return serve_field_refuse(ask->call, name, "\"json\" or a JSON Schema");
    if (!has_known_type(format))
        return serve_field_refuse(
            ask->call, "format.type",
            "\"object\", \"array\", \"string\", \"number\", \"integer\", \"boolean\" or "
            "\"null\"; without a schema, format is \"json\"");
    return serve_ask_set_schema(ask, name, name, format);
}

static bool read_think(serve_ask *ask)
{
    const json_t *think = serve_ask_given(ask, "think");
    const char *word = json_string_value(think);
    if (think == NULL) return true;
    if (json_is_boolean(think) || serve_effort_word(word) != NULL)
        ask->chat.enable_thinking = !json_is_false(think);
    if (json_is_boolean(think)) return true;
    static const char what[] =
        "true, false, \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
    return serve_ask_is(word, "none") ? serve_field_refuse(ask->call, "think", what)
                                      : serve_ask_effort(ask, "think", think, what);
}

/* Seconds, which may have units: "1h30m", "2.5s", "300", as Ollama has it. False: another form. */
static bool read_time(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    bool minus = *text == '-';
    const char *first = text += minus || *text == '+';
    *seconds = 0;
    do {
        char number[32], unit[4];
        size_t n = strspn(text, "0123456789."), n_unit = strspn(text + n, "nusmh"), i = 0;
        if (n == 0 || n >= sizeof number || n_unit >= sizeof unit) return false;
        snprintf(number, sizeof number, "%.*s", (int)n, text);
        snprintf(unit, sizeof unit, "%.*s", (int)n_unit, text + n);
        char *end;
        double value = strtod(number, &end);
        while (i < sizeof units / sizeof *units && strcmp(units[i].name, unit) != 0) i++;
        bool bare = n_unit == 0 && text == first && text[n] == '\0';
        if (*end != '\0' || (i == sizeof units / sizeof *units && !bare)) return false;
        *seconds += value * (bare ? 1 : units[i].seconds);
        text += n + n_unit;
    } while (*text != '\0');
    if (minus) *seconds = -*seconds;
    return true;
}

static bool is_pinned(const serve_call *call, weir_pool *pool)
{
    weir_pool_info info = {.size = sizeof info};
    return weir_pool_find(pool, call->model->name, &info) == WEIR_OK && info.pinned;
}

bool serve_ollama_keep_alive(serve_call *call, const json_t *value, bool *unmet)
{
    weir_pool *pool = serve_catalog_pool(call->server->catalog);
    double seconds = json_number_value(value);
    *unmet = false;
    if (value == NULL || json_is_null(value)) return true;
    bool is_short = json_string_length(value) <= 64;
    if (!json_is_number(value) &&
        (!json_is_string(value) || !is_short || !read_time(json_string_value(value), &seconds)))
        return serve_field_refuse(call, "keep_alive",
                                  "a number of seconds, or a time such as \"5m\"; 0 unloads, -1 keeps");
    bool stays = pool == NULL || is_pinned(call, pool);
    call->unloads =
        seconds == 0 && !stays && call->operates; /* others may use the model, or fork its answers */
    *unmet = !call->unloads && !(seconds < 0 && stays);
    return true;
}

static bool read_keep_alive(serve_ask *ask)
{
    bool unmet;
    return serve_ollama_keep_alive(ask->call, serve_ask_given(ask, "keep_alive"), &unmet) &&
           (!unmet || serve_hint_name(ask->call, "keep_alive"));
}

static bool read_settings(serve_ask *ask)
{
    if (serve_ask_given(ask, "stream") == NULL) ask->stream = true;
    if (!ask->request.logprobs) ask->request.n_logprobs = 0; /* top_logprobs alone asks for nothing */
    return read_format(ask) && read_think(ask) && read_keep_alive(ask);
}

bool serve_ask_ollama(serve_ask *ask)
{
    return read_settings(ask) && make_messages(ask, true);
}

static bool check_text(const serve_ask *ask, const char *name)
{
    const json_t *text = serve_ask_given(ask, name);
    return text == NULL || json_is_string(text) || serve_field_refuse(ask->call, name, "a string");
}

static bool read_images_of_text(const serve_ask *ask)
{
    return json_array_size(serve_ask_given(ask, "images")) == 0 ||
           serve_field_refuse(ask->call, "images", "left out with raw or suffix");
}

bool serve_ask_generate(serve_ask *ask)
{
    const json_t *raw = serve_ask_given(ask, "raw");
    if (!check_text(ask, "prompt") || !check_text(ask, "system") || !read_settings(ask)) return false;
    if (raw != NULL && !json_is_boolean(raw)) return serve_field_refuse(ask->call, "raw", "true or false");
    if (json_is_true(raw) || json_string_length(ask->suffix) > 0) return read_images_of_text(ask);
    bool empty = json_string_length(ask->prompt) == 0 && json_array_size(serve_ask_given(ask, "images")) == 0;
    return empty || make_messages(ask, false);
}
