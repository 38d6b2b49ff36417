/* schema_not.c: what a schema excludes, said as what remains.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "grammar/schema_walk.h"

/* Equal as JSON Schema has it: 1 and 1.0 are. */
static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_excluded(const json_t *value, const json_t *excluded)
{
    const json_t *only = json_object_get(excluded, "const"), *list = json_object_get(excluded, "enum");
    if (only != NULL && !same(value, only)) return false;
    if (list == NULL) return only != NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (same(value, json_array_get(list, i))) return true;
    return false;
}

/* The values of enum or const without those that are excluded; an empty list when none remain. */
static json_t *remaining_values(weir__schema_walk *w, const json_t *schema, const json_t *excluded)
{
    json_t *only = json_object_get(schema, "const"), *given = json_object_get(schema, "enum"), *value;
    json_t *list = json_array();
    size_t i;
    if (list == NULL) return weir__schema_no_memory(w);
    if (!weir__schema_spend(w, (json_array_size(given) + 1) *
                                   (json_array_size(json_object_get(excluded, "enum")) + 1)))
        goto failed;
    if (given == NULL && !is_excluded(only, excluded) && json_array_append(list, only) != 0) goto full;
    json_array_foreach(given, i, value)
    {
        if (!is_excluded(value, excluded) && json_array_append(list, value) != 0) goto full;
    }
    return list;
full:
    weir__schema_no_memory(w);
failed:
    json_decref(list);
    return NULL;
}

static json_t *refuse_not(weir__schema_walk *w)
{
    return weir__schema_refuse(w, "not",
                               "a grammar cannot exclude what a schema matches; only types, and values of an "
                               "enum or const beside it, are left out");
}

json_t *weir__schema_without_not(weir__schema_walk *w, const json_t *schema)
{
    static const char *const type_alone[] = {"type", NULL};
    static const char *const values_alone[] = {"const", "enum", NULL};
    static const char *const values[] = {"const", "enum", NULL};
    json_t *excluded = json_object_get(schema, "not"), *rest = NULL, *less;
    const char *keyword = "type";
    if (json_is_true(excluded) ||
        (json_is_object(excluded) && weir__schema_other_constraint(excluded, &type_alone[1]) == NULL))
        return json_false();
    if (json_is_object(excluded) && json_object_get(excluded, "type") != NULL &&
        weir__schema_other_constraint(excluded, type_alone) == NULL) {
        unsigned mask = weir__schema_declared_types(w, schema),
                 out = weir__schema_declared_types(w, excluded);
        if (mask == 0 || out == 0) return NULL;
        mask &= ~out;
        if (mask == 0) return json_false();
        if ((mask & TYPE_FRACTION) != 0 && (mask & TYPE_INTEGER) == 0) return refuse_not(w);
        if ((rest = weir__schema_type_array(mask)) == NULL) return weir__schema_no_memory(w);
    } else if (json_is_object(excluded) && weir__schema_other_constraint(excluded, values_alone) == NULL &&
               weir__schema_has_any(schema, values)) {
        keyword = "enum";
        if ((rest = remaining_values(w, schema, excluded)) == NULL) return NULL;
        if (json_array_size(rest) == 0) {
            json_decref(rest);
            return json_false();
        }
    } else if (!json_is_false(excluded)) {
        return refuse_not(w);
    }
    less = json_copy((json_t *)schema);
    bool ok = less != NULL && json_object_del(less, "not") == 0 &&
              (rest == NULL || json_object_set(less, keyword, rest) == 0);
    json_decref(rest);
    if (ok) return less;
    json_decref(less);
    return weir__schema_no_memory(w);
}
