/* schema_not.c: replaces `not` by the types or values that remain.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "grammar/schema_walk.h"

static bool is_excluded(const json_t *value, const json_t *excluded)
{
    const json_t *only = json_object_get(excluded, "const"), *list = json_object_get(excluded, "enum");
    if (only != NULL && !weir__schema_equal(value, only)) return false;
    return list == NULL ? only != NULL : weir__schema_has_value(list, value);
}

/* The values of enum or const that are not excluded. */
static json_t *remaining_values(weir__schema_walk *w, const json_t *schema, const json_t *excluded)
{
    json_t *only = json_object_get(schema, "const"), *given = json_object_get(schema, "enum"), *value;
    json_t *list = json_array();
    size_t i;
    if (!weir__schema_spend(w, (json_array_size(given) + 1) *
                                   (json_array_size(json_object_get(excluded, "enum")) + 1)))
        given = only = NULL;
    if (given == NULL && only != NULL && !is_excluded(only, excluded))
        weir__schema_append(w, list, json_incref(only));
    json_array_foreach(given, i, value)
    {
        if (!is_excluded(value, excluded)) weir__schema_append(w, list, json_incref(value));
    }
    return list;
}

static json_t *refuse_not(weir__schema_walk *w)
{
    return weir__schema_refuse(w, "not",
                               "a grammar cannot exclude what a schema matches; only types, and values of an "
                               "enum or const beside it, are left out");
}

json_t *weir__schema_without_not(weir__schema_walk *w, const json_t *schema)
{
    static const char *const nothing[] = {NULL}, *const type[] = {"type", NULL};
    static const char *const values[] = {"const", "enum", NULL};
    const json_t *excluded = json_object_get(schema, "not");
    const bool is_object = json_is_object(excluded);
    const char *keyword = NULL;
    json_t *rest = NULL;
    if (json_is_true(excluded) || (is_object && weir__schema_other_constraint(excluded, nothing) == NULL))
        return json_false();
    if (is_object && weir__schema_other_constraint(excluded, type) == NULL) {
        unsigned mask = weir__schema_declared_types(w, schema),
                 out = weir__schema_declared_types(w, excluded);
        if (mask == 0 || out == 0) return NULL;
        mask &= ~out;
        if ((mask & TYPE_NUMBER) == TYPE_FRACTION) return refuse_not(w);
        keyword = "type";
        rest = weir__schema_type_array(w, mask);
    } else if (is_object && weir__schema_other_constraint(excluded, values) == NULL &&
               weir__schema_has_any(schema, values)) {
        keyword = "enum";
        rest = remaining_values(w, schema, excluded);
    } else if (!json_is_false(excluded)) {
        return refuse_not(w);
    }
    if (keyword != NULL && w->status == WEIR_OK && json_array_size(rest) == 0) {
        json_decref(rest);
        return json_false();
    }
    json_t *less = weir__schema_without(w, schema, "not");
    if (keyword != NULL) weir__schema_set(w, less, keyword, rest);
    return weir__schema_made(w, less);
}
