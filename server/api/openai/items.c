/* items.c: items of a conversation, as they are kept. SPDX-License-Identifier: Apache-2.0 */
#include "items.h"

#include <string.h>

#include "server/api/common/foreign.h"

#define ID_MAX   63 /* bytes of an id, and of a status or phase, that are repeated; no prompt has them */
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
        {"type", SIZE_MAX},      {"id", ID_MAX},        {"status", WORD_MAX}, {"phase", WORD_MAX},
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
