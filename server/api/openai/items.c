/* items.c: items of a conversation: what is kept of them, and items of a request that only name kept ones:
 * {"type": "item_reference", "id": "msg_…"}. An id that this server made has its response's id in it, so most
 * items are found at once. Others may have come with a later request, such as those of a response that is not
 * kept any more: kept responses are searched for them, the newest first, up to SEARCH_MOST bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "openai.h"
#include "server/access/keys.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/foreign.h"
#include "server/api/common/records.h"
#include "server/request/call.h"

#define SEARCH_MOST ((size_t)64 << 20) /* bytes of kept responses: less than a second, if all are parsed */
#define ID_MAX      64                 /* of an item that is kept, with the zero at its end */

/* The records that the call's key may read, and the items that its request names. */
typedef struct search {
    serve_call *call;
    serve_record **records; /* [n] held, the newest first */
    size_t n, left;         /* left: ids that are not found yet */
    size_t n_bytes;         /* of the texts that were read */
    json_t *numbers;        /* {"resp_TOKEN" and "item_TOKEN": the record's number, or null once its response
                             * or its input was read}; owned */
    json_t *items;          /* {id: item, or null while it is not found}; owned */
} search;

static const char *id_of(const json_t *item)
{
    return json_string_value(json_object_get(item, "id"));
}

/* True if an item is a reference: without a type, an object with an id and neither a role nor a content. */
static bool is_reference(const json_t *item)
{
    const char *type = serve_field_type(item);
    if (type != NULL) return strcmp(type, "item_reference") == 0;
    return json_object_get(item, "id") != NULL && json_object_get(item, "role") == NULL &&
           json_object_get(item, "content") == NULL;
}

/* ---- Records ---- */

static bool take_item(search *s, json_t *item)
{
    const char *id = id_of(item);
    if (id == NULL || !json_is_null(json_object_get(s->items, id))) return true;
    s->left--;
    return json_object_set(s->items, id, item) == 0;
}

static bool take_items(search *s, const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)items, i, item)
    {
        if (!serve_call_goes_on(s->call) || !take_item(s, item)) return false;
    }
    return true;
}

/* Takes the wanted items from a text of a record: an array without its brackets, or a response. */
static weir_status read_text(search *s, const weir__text *text, bool response)
{
    weir_error error = {0};
    weir__text all = {0};
    json_t *value = NULL;
    if (s->n_bytes >= SEARCH_MOST) return WEIR_OK;
    s->n_bytes += text->n;
    weir__text_printf(&all, response ? "%s" : "[%s]", text->n > 0 ? text->bytes : "");
    weir_status status =
        all.failed ? WEIR_NO_MEMORY
                   : weir__json_parse_texts(all.bytes, all.n, "input", WEIR_INVALID, &value, &error);
    if (status == WEIR_OK && !take_items(s, response ? json_object_get(value, "output") : value))
        status = WEIR_NO_MEMORY;
    json_decref(value);
    weir__text_fini(&all);
    return status;
}

static weir_status read_record(search *s, const serve_record *record)
{
    weir_status status = read_text(s, &record->response, true);
    if (status == WEIR_OK && s->left > 0) status = read_text(s, &record->input, false);
    if (status == WEIR_OK && s->left > 0) status = read_text(s, &record->before, false);
    return status;
}

/* True if a text has a member "id" that is wanted. Quotes within strings are escaped. */
static bool names_wanted(const search *s, const weir__text *text)
{
    static const char key[] = "\"id\":\"";
    if (text->n == 0) return false;
    const char *at = text->bytes, *end = at + text->n;
    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1)) != NULL) {
        at += sizeof key - 1;
        const char *close = memchr(at, '"', (size_t)(end - at));
        char id[ID_MAX];
        if (close == NULL) return false;
        snprintf(id, sizeof id, "%.*s", (int)(close - at < ID_MAX ? close - at : 0), at);
        if (json_is_null(json_object_get(s->items, id))) return true;
        at = close;
    }
    return false;
}

/* ---- Finding ---- */

/* Reads the response whose id is within an id such as "msg_TOKEN_0", or of "item_TOKEN_0" its input. */
static weir_status read_maker(search *s, const char *id)
{
    char maker[SERVE_RECORD_ID];
    const char *token = strchr(id, '_'), *end = strrchr(id, '_');
    bool of_input = strncmp(id, "item_", 5) == 0;
    if (token == NULL || end <= token || (size_t)(end - token) + 5 > sizeof maker) return WEIR_OK;
    snprintf(maker, sizeof maker, "%s%.*s", of_input ? "item" : "resp", (int)(end - token), token);
    const json_t *number = json_object_get(s->numbers, maker);
    if (!json_is_integer(number)) return WEIR_OK;
    const serve_record *record = s->records[json_integer_value(number)];
    if (json_object_set_new(s->numbers, maker, json_null()) != 0) return WEIR_NO_MEMORY;
    return read_text(s, of_input ? &record->input : &record->response, !of_input);
}

static weir_status read_makers(search *s)
{
    const char *id;
    json_t *item;
    void *next;
    weir_status status = WEIR_OK;
    json_object_foreach_safe(s->items, next, id, item)
    {
        if (!serve_call_goes_on(s->call)) return WEIR_ABORTED;
        if (status == WEIR_OK && json_is_null(item)) status = read_maker(s, id);
    }
    return status;
}

static weir_status read_others(search *s)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && s->left > 0 && i < s->n && s->n_bytes < SEARCH_MOST; i++) {
        const serve_record *record = s->records[i];
        if (weir_interrupt_asked()) return WEIR_ABORTED;
        s->n_bytes += record->before.n + record->input.n + record->response.n;
        if (names_wanted(s, &record->response) || names_wanted(s, &record->input) ||
            names_wanted(s, &record->before))
            status = read_record(s, record);
    }
    return status;
}

static bool number_record(search *s, size_t i)
{
    char of_input[SERVE_RECORD_ID + 1];
    const char *id = s->records[i]->id, *token = strchr(id, '_');
    snprintf(of_input, sizeof of_input, "item%s", token != NULL ? token : "");
    return json_object_set_new(s->numbers, id, json_integer((json_int_t)i)) == 0 &&
           json_object_set_new(s->numbers, of_input, json_integer((json_int_t)i)) == 0;
}

static weir_status find_items(search *s)
{
    serve_records *records = s->call->server->records;
    weir_status status =
        serve_records_hold(records, serve_keys_salt(s->call->server->keys, s->call->key), &s->records, &s->n);
    for (size_t i = 0; status == WEIR_OK && i < s->n; i++)
        if (!number_record(s, i)) status = WEIR_NO_MEMORY;
    if (status == WEIR_OK) status = read_makers(s);
    return status == WEIR_OK ? read_others(s) : status;
}

/* ---- References ---- */

/* Lists the ids. An item is there once: an id is refused if the conversation has its item. */
static bool list_references(search *s, const json_t *input)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)input, i, item)
    {
        serve_place place = serve_place_at("input", i);
        const char *id = id_of(item);
        if (!serve_call_goes_on(s->call)) return false;
        if (!is_reference(item)) continue;
        serve_place at = serve_place_of(place.text, "id");
        if (!serve_field_only(s->call, place.text, item, SERVE_OBJECT_ITEM_REFERENCE)) return false;
        if (id == NULL) return serve_field_refuse(s->call, at.text, "a string: an item's id");
        if (json_object_get(s->items, id) != NULL)
            return serve_call_refuse(
                s->call, 400, at.text, "invalid_value",
                "%s names an item that the conversation has already; leave out one of both", at.text);
        if (json_object_set_new(s->items, id, json_null()) != 0) return serve_call_no_memory(s->call);
        s->left++;
    }
    return true;
}

/* Marks the ids that the conversation has already as known. */
static bool list_items(search *s, const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)items, i, item)
    {
        const char *id = !is_reference(item) ? id_of(item) : NULL;
        if (!serve_call_goes_on(s->call)) return false;
        if (id != NULL && json_object_set_new(s->items, id, json_true()) != 0)
            return serve_call_no_memory(s->call);
    }
    return true;
}

static bool replace_references(const search *s, json_t *input)
{
    serve_call *call = s->call;
    size_t i;
    json_t *item;
    json_array_foreach(input, i, item)
    {
        if (!serve_call_goes_on(call)) return false;
        if (!is_reference(item)) continue;
        json_t *found = json_object_get(s->items, id_of(item));
        serve_place place = serve_place_of(serve_place_at("input", i).text, "id");
        if (!json_is_object(found))
            return serve_call_refuse(call, 400, place.text, "item_not_found",
                                     "%s is \"%.63s\", and no kept response that this key may continue has "
                                     "such an item: those with \"store\": false are not kept, and others for "
                                     "%d s, as far as there is room; give the item itself",
                                     place.text, id_of(item), call->response_s);
        if (json_array_set(input, i, found) != 0) return serve_call_no_memory(call);
    }
    return true;
}

bool serve_ask_references(serve_ask *ask)
{
    json_t *input = json_object_get(ask->json, "input");
    search s = {.call = ask->call};
    size_t i = 0;
    while (i < json_array_size(input) && !is_reference(json_array_get(input, i))) i++;
    if (i >= json_array_size(input)) return true;
    s.items = json_object();
    s.numbers = json_object();
    bool ok = (s.items != NULL && s.numbers != NULL) || serve_call_no_memory(ask->call);
    ok = ok && list_items(&s, ask->previous) && list_items(&s, input) && list_references(&s, input);
    if (ok && s.left > 0) {
        weir_error error = {0};
        weir_status status = find_items(&s);
        if (status != WEIR_OK && !ask->call->begun) serve_call_passes(ask->call, status, &error);
        ok = status == WEIR_OK;
    }
    ok = ok && replace_references(&s, input);
    while (s.n > 0) serve_record_release(s.records[--s.n]);
    weir__mem_free(s.records);
    json_decref(s.numbers);
    json_decref(s.items);
    return ok;
}

/* ---- What is kept ---- */

#define ID_MOST  63 /* bytes of an id, and of a status or phase, that are repeated; no prompt has them */
#define WORD_MAX 31

static bool is_type(const json_t *item, const char *type)
{
    const char *given = json_string_value(json_object_get(item, "type"));
    return given != NULL && strcmp(given, type) == 0;
}

/* A string of at most `most` bytes. */
static bool copy_string(json_t *lean, const json_t *item, const char *name, size_t most)
{
    json_t *value = json_object_get(item, name);
    return !json_is_string(value) || json_string_length(value) > most ||
           json_object_set(lean, name, value) == 0;
}

/* A part's type and text; clients expect annotations of an answer's. */
static json_t *lean_part(const json_t *part)
{
    json_t *lean = json_object();
    bool ok = copy_string(lean, part, "type", SIZE_MAX) && copy_string(lean, part, "text", SIZE_MAX) &&
              copy_string(lean, part, "refusal", SIZE_MAX);
    if (is_type(part, "output_text")) ok = ok && json_object_set_new(lean, "annotations", json_array()) == 0;
    if (ok) return lean;
    json_decref(lean);
    return NULL;
}

static bool copy_parts(json_t *lean, const json_t *item, const char *name)
{
    const json_t *parts = json_object_get(item, name);
    json_t *list = json_is_array(parts) ? json_array() : NULL, *part;
    size_t i;
    if (!json_is_array(parts)) return true;
    bool ok = list != NULL;
    json_array_foreach((json_t *)parts, i, part) ok = ok && json_array_append_new(list, lean_part(part)) == 0;
    return json_object_set_new(lean, name, list) == 0 && ok;
}

/* A message's text is a part of it. */
static bool copy_content(json_t *lean, const json_t *item)
{
    json_t *text = json_object_get(item, "content");
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!json_is_string(text)) return copy_parts(lean, item, "content");
    bool answer = role != NULL && strcmp(role, "assistant") == 0;
    json_t *part = json_pack("{s:s,s:O}", "type", answer ? "output_text" : "input_text", "text", text);
    json_t *list = json_pack("[o]", lean_part(part));
    json_decref(part);
    return json_object_set_new(lean, "content", list) == 0;
}

/* Tools that an item brings. */
static bool copy_tools(json_t *lean, const json_t *item)
{
    json_t *tools = json_object_get(item, "tools");
    if (!is_type(item, "tool_search_output") && !is_type(item, "additional_tools")) return true;
    return tools == NULL || json_object_set(lean, "tools", tools) == 0;
}

/* A prompt has a summary only where there is nothing else. */
static bool copy_summary(json_t *lean, const json_t *item)
{
    if (!is_type(item, "reasoning")) return true;
    if (json_array_size(json_object_get(item, "content")) == 0 &&
        json_is_array(json_object_get(item, "summary")))
        return copy_parts(lean, item, "summary");
    return json_object_set_new(lean, "summary", json_array()) == 0;
}

json_t *serve_item_lean(const json_t *item, const char *id)
{
    static const struct {
        const char *name;
        size_t most;
    } members[] = {
        {"type", SIZE_MAX},      {"id", ID_MOST},       {"status", WORD_MAX}, {"phase", WORD_MAX},
        {"role", SIZE_MAX},      {"call_id", SIZE_MAX}, {"name", SIZE_MAX},   {"namespace", SIZE_MAX},
        {"arguments", SIZE_MAX}, {"input", SIZE_MAX},   {"output", SIZE_MAX},
    };
    json_t *lean = json_object();
    bool ok = lean != NULL;
    for (size_t i = 0; ok && i < sizeof members / sizeof *members; i++)
        ok = copy_string(lean, item, members[i].name, members[i].most);
    if (json_object_get(lean, "type") == NULL)
        ok = ok && json_object_set_new(lean, "type", json_string("message")) == 0;
    if (json_object_get(lean, "id") == NULL) ok = ok && json_object_set_new(lean, "id", json_string(id)) == 0;
    ok = ok && copy_content(lean, item) && copy_parts(lean, item, "output") && copy_summary(lean, item) &&
         copy_tools(lean, item) && serve_foreign_keep(lean, item);
    if (ok) return lean;
    json_decref(lean);
    return NULL;
}
