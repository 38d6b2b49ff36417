/* schema_relax.c: leaves out keywords that cannot be enforced, and lists them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "grammar/schema_walk.h"

/* True if the text has this line. */
static bool has_line(const weir__text *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *at = text->bytes; at != NULL && (at = strstr(at, line)) != NULL; at += n)
        if ((at == text->bytes || at[-1] == '\n') && at[n] == '\n') return true;
    return false;
}

/* Notes that a keyword of the current schema was left out. */
static bool note_keyword(weir__schema_walk *w, const char *keyword)
{
    static const char more[] = "...";
    weir__text *t = w->relaxed, line = {0};
    if (t == NULL) return true;
    weir__text_printf(&line, "%s%s: %s", w->where, weir__schema_path(w), keyword);
    for (char *c = line.bytes; !line.failed && *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    const char *text = t->n + line.n + sizeof more < WEIR__SCHEMA_RELAXED_MAX ? line.bytes : more;
    if (!line.failed && !has_line(t, text)) weir__text_printf(t, "%s\n", text);
    bool failed = t->failed || line.failed;
    weir__text_fini(&line);
    return !failed || weir__schema_no_memory(w) != NULL;
}

/* A schema with the types only. */
static json_t *types_only(weir__schema_walk *w, const json_t *schema)
{
    const weir_status status = w->status;
    unsigned mask = weir__schema_possible_types(w, schema);
    if (w->final) return NULL;
    w->status = status; /* a reference to another document allows all types */
    if ((mask & TYPE_FRACTION) != 0) mask |= TYPE_INTEGER;
    if (mask == TYPE_ANY || mask == 0) return weir__schema_made(w, json_object());
    json_t *list = json_array();
    for (size_t i = 0; i < WEIR__SCHEMA_TYPES; i++)
        if (weir__schema_has_type(mask, i))
            weir__schema_append(w, list, json_pack("{s:s}", "type", weir__schema_types[i].name));
    return weir__schema_any_of(w, list);
}

/* The keyword to leave out after a refusal; NULL: none would help. The refused keyword may be in a schema
 * that was merged into this one. */
static const char *to_leave_out(const weir__schema_walk *w, const json_t *schema, size_t path_length)
{
    static const char *const merging[] = {"allOf", "anyOf", "oneOf"};
    const bool own = w->refused[0] != '\0' && json_object_get(schema, w->refused) != NULL;
    if (own && w->refused_at == path_length) return w->refused;
    for (size_t i = 0; i < sizeof merging / sizeof *merging; i++)
        if (json_object_get(schema, merging[i]) != NULL) return merging[i];
    return own ? w->refused : NULL;
}

/* Removes the keyword. A oneOf whose branches overlap becomes an anyOf. */
static bool leave_out(weir__schema_walk *w, json_t *schema, const char *keyword)
{
    json_t *branches = json_object_get(schema, "oneOf");
    if (!note_keyword(w, keyword)) return false;
    if (strcmp(keyword, "oneOf") == 0 && json_object_get(schema, "anyOf") == NULL &&
        json_array_size(branches) > 0 && !weir__schema_set(w, schema, "anyOf", json_incref(branches)))
        return false;
    return json_object_del(schema, keyword) == 0;
}

/* The schema without keywords that are null, as some clients write those that they leave out. NULL: out of
 * memory. */
static json_t *without_nulls(weir__schema_walk *w, const json_t *schema)
{
    json_t *rest = json_incref((json_t *)schema), *value;
    const char *key;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!json_is_null(value) || strcmp(key, "const") == 0 || strcmp(key, "default") == 0) continue;
        if (rest == schema) {
            json_decref(rest);
            rest = weir__schema_made(w, weir__json_copy(schema));
        }
        if (rest != NULL && note_keyword(w, key) && json_object_del(rest, key) == 0) continue;
        json_decref(rest);
        return NULL;
    }
    return rest;
}

json_t *weir__schema_relax(weir__schema_walk *w, const json_t *schema)
{
    const int depth = w->depth, level = w->level;
    const size_t path_length = w->path.n;
    json_t *given = without_nulls(w, schema), *result;
    if (given == NULL) return NULL;
    while ((result = weir__schema_enforce(w, given)) == NULL && w->status == WEIR_GRAMMAR && !w->final) {
        char keyword[sizeof w->refused];
        const char *found = to_leave_out(w, given, path_length);
        w->status = WEIR_OK;
        w->depth = depth;
        w->level = level;
        weir__schema_leave(w, path_length);
        if (found == NULL) {
            if (note_keyword(w, w->refused[0] != '\0' ? w->refused : "all of it"))
                result = types_only(w, given);
            break;
        }
        snprintf(keyword, sizeof keyword, "%s", found);
        if (given == schema) { /* one copy for all keywords: a schema may have many that are left out */
            given = weir__schema_made(w, weir__json_copy(schema));
            json_decref((json_t *)schema);
        }
        if (given == NULL || !leave_out(w, given, keyword)) break;
    }
    json_decref(given);
    return result;
}

json_t *weir__schema_relax_object(weir__schema_walk *w, const json_t *schema)
{
    static const char *const wider[] = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "type"};
    const json_t *target = weir__schema_dereference(w, schema);
    json_t *result = NULL;
    if (target == NULL && (w->final || w->status != WEIR_GRAMMAR)) return NULL;
    w->status = WEIR_OK;
    if (target == NULL && !note_keyword(w, "$ref")) return NULL;
    if (target != NULL) {
        result = weir__schema_relax(w, target);
        if (result == NULL || weir__schema_is_object(result)) return result;
    }
    if (json_is_false(result)) {
        note_keyword(w, "all of it");
        return weir__schema_pack(w, "{s:s}", "type", "object");
    }
    json_decref(result);
    json_t *less = json_is_object(target) ? weir__json_copy(target) : json_object();
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++)
        if (json_object_del(less, wider[i]) == 0) note_keyword(w, wider[i]);
    weir__schema_set(w, less, "type", json_string("object"));
    result = w->status == WEIR_OK ? weir__schema_relax(w, less) : NULL;
    json_decref(less);
    if (result == NULL || weir__schema_is_object(result)) return result;
    json_decref(result);
    return weir__schema_pack(w, "{s:s}", "type", "object");
}
