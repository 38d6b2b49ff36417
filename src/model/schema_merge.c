/* schema_merge.c: several schemas that meet, by allOf, anyOf or oneOf.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/schema_walk.h"

#include <string.h>

/* ---- allOf, and what stands beside anyOf ---- */

static const char *const array_items[] = {"items", "prefixItems", "additionalItems", NULL};

/* Whether the object says what properties beyond its own may be. */
static bool is_closing(const json_t *schema)
{
    const json_t *additional = json_object_get(schema, "additionalProperties");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
    return (additional != NULL && !json_is_true(additional)) ||
           (unevaluated != NULL && !json_is_true(unevaluated));
}

/* Adds the members of src, which dst must hold or not know. */
static bool merge_members(weir__schema_walk *w, json_t *dst, json_t *src, const char *keyword)
{
    const char *name;
    json_t *value;
    json_object_foreach(src, name, value)
    {
        const json_t *known = json_object_get(dst, name);
        if (known != NULL && !json_equal(known, value))
            return weir__schema_refuse(w, "allOf",
                                       "the schemas that meet here give '%.60s' in '%s' in different ways",
                                       name, keyword) != NULL;
        if (known == NULL && json_object_set(dst, name, value) != 0) return weir__schema_no_memory(w) != NULL;
    }
    return true;
}

static bool merge_required(weir__schema_walk *w, json_t *dst, const json_t *src)
{
    for (size_t i = 0; i < json_array_size(src); i++) {
        json_t *name = json_array_get(src, i);
        size_t k = 0;
        while (k < json_array_size(dst) && !json_equal(json_array_get(dst, k), name)) k++;
        if (k == json_array_size(dst) && json_array_append(dst, name) != 0)
            return weir__schema_no_memory(w) != NULL;
    }
    return true;
}

static bool merge_types(weir__schema_walk *w, json_t *dst, const json_t *src)
{
    unsigned mask = weir__schema_declared_types(w, dst), other = weir__schema_declared_types(w, src);
    if (mask == 0 || other == 0) return false;
    json_t *types = weir__schema_type_array(mask & other);
    if (types == NULL) return weir__schema_no_memory(w) != NULL;
    if (json_array_size(types) == 0) {
        json_decref(types);
        return weir__schema_refuse(w, "type", "the schemas that meet here have no type in common") != NULL;
    }
    return json_object_set_new(dst, "type", types) == 0 || weir__schema_no_memory(w) != NULL;
}

/* dst, a copy of the walk's own, becomes the conjunction of dst and src. */
static bool merge(weir__schema_walk *w, json_t *dst, const json_t *src)
{
    const char *name;
    json_t *value;
    if ((is_closing(dst) && weir__schema_has_any(src, weir__schema_named_properties)) ||
        (is_closing(src) && weir__schema_has_any(dst, weir__schema_named_properties)))
        return weir__schema_refuse(w, "additionalProperties",
                                   "it meets properties of another schema of an allOf or anyOf, "
                                   "which it does not know") != NULL;
    if (weir__schema_has_any(dst, array_items) && weir__schema_has_any(src, array_items))
        return weir__schema_refuse(w, "items", "several schemas of an allOf or anyOf have it") != NULL;
    json_object_foreach((json_t *)src, name, value)
    {
        json_t *known = json_object_get(dst, name);
        if (weir__schema_family_of(name) == ANNOTATION) continue;
        if (strncmp(name, "exclusive", 9) == 0 && json_is_boolean(value))
            return weir__schema_refuse(w, name, "it must be a number in a schema of an allOf or anyOf") !=
                   NULL;
        bool ok = true;
        if (known == NULL) {
            json_t *copy = json_deep_copy(value);
            ok = copy != NULL && json_object_set_new(dst, name, copy) == 0;
            if (!ok) return weir__schema_no_memory(w) != NULL;
        } else if (strcmp(name, "type") == 0) {
            ok = merge_types(w, dst, src);
        } else if (strcmp(name, "properties") == 0 && json_is_object(known) && json_is_object(value)) {
            ok = merge_members(w, known, value, name);
        } else if (strcmp(name, "required") == 0 && json_is_array(known) && json_is_array(value)) {
            ok = merge_required(w, known, value);
        } else if (!json_equal(known, value)) {
            return weir__schema_refuse(
                       w, name, "the schemas that meet here, by allOf or anyOf, give it different values") !=
                   NULL;
        }
        if (!ok) return false;
    }
    return true;
}

/* The schema without its allOf, whose members are merged into it; `false` when one of them is that. */
json_t *weir__schema_flatten(weir__schema_walk *w, const json_t *schema)
{
    const json_t *all = json_object_get(schema, "allOf");
    json_t *flat = NULL;
    if (++w->depth > WEIR__SCHEMA_DEPTH_MAX)
        return weir__schema_refuse(w, "allOf", "schemas are nested deeper than %d", WEIR__SCHEMA_DEPTH_MAX);
    flat = json_deep_copy(schema);
    if (flat == NULL) return weir__schema_no_memory(w);
    json_object_del(flat, "allOf");
    if (all != NULL && (!json_is_array(all) || json_array_size(all) == 0)) {
        weir__schema_refuse(w, "allOf", "it must be an array of schemas, and not empty");
        goto fail;
    }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *member = weir__schema_dereference(w, json_array_get(all, i));
        if (member == NULL) goto fail;
        if (json_is_true(member)) continue;
        if (json_is_false(member)) {
            json_decref(flat);
            w->depth--;
            return json_false();
        }
        size_t before = weir__schema_enter_index(w, "allOf", i);
        bool ok = json_is_object(member) ||
                  weir__schema_refuse(w, NULL, "a schema must be an object or a boolean") != NULL;
        ok = ok && weir__schema_check_keywords(w, member);
        json_t *part = ok ? weir__schema_flatten(w, member) : NULL;
        ok = part != NULL && (json_is_false(part) || merge(w, flat, part));
        bool impossible = json_is_false(part);
        json_decref(part);
        weir__schema_leave(w, before);
        if (!ok) goto fail;
        if (impossible) {
            json_decref(flat);
            w->depth--;
            return json_false();
        }
    }
    w->depth--;
    return flat;
fail:
    json_decref(flat);
    return NULL;
}

/* ---- anyOf and oneOf ---- */

/* A superset of the types of what satisfies the schema. Asks for no refusals: what cannot be read allows all.
 */
unsigned weir__schema_possible_types(weir__schema_walk *w, const json_t *schema, int depth)
{
    if (json_is_false(schema)) return 0;
    if (!json_is_object(schema) || depth > 16) return TYPE_ANY;
    const json_t *list = json_object_get(schema, "enum");
    unsigned mask = TYPE_ANY;
    if (json_object_get(schema, "type") != NULL && w->status == WEIR_OK)
        mask = weir__schema_declared_types(w, schema);
    if (json_object_get(schema, "const") != NULL)
        mask &= weir__schema_type_of(json_object_get(schema, "const"));
    if (json_is_array(list)) {
        unsigned of_values = 0;
        for (size_t i = 0; i < json_array_size(list); i++)
            of_values |= weir__schema_type_of(json_array_get(list, i));
        mask &= of_values;
    }
    const json_t *reference = json_object_get(schema, "$ref");
    if (reference != NULL && w->status == WEIR_OK) {
        const json_t *target = weir__schema_resolve(w, reference);
        if (target != NULL) mask &= weir__schema_possible_types(w, target, depth + 1);
    }
    for (int k = 0; k < 2; k++) {
        const json_t *branches = json_object_get(schema, k == 0 ? "anyOf" : "oneOf");
        if (!json_is_array(branches)) continue;
        unsigned any = 0;
        for (size_t i = 0; i < json_array_size(branches); i++)
            any |= weir__schema_possible_types(w, json_array_get(branches, i), depth + 1);
        mask &= any;
    }
    return mask;
}

/* The values that the schema is restricted to, as a new array, or NULL. */
static json_t *listed_values(const json_t *schema)
{
    json_t *only = json_object_get(schema, "const");
    if (only != NULL) return json_pack("[O]", only);
    json_t *list = json_object_get(schema, "enum");
    return json_is_array(list) ? json_incref(list) : NULL;
}

/* Equal as JSON Schema has it: 1 and 1.0 are. */
static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) || (json_typeof(a) == json_typeof(b) && (json_is_array(a) || json_is_object(a)));
}

static bool values_differ(const json_t *a, const json_t *b)
{
    json_t *first = listed_values(a), *second = listed_values(b);
    bool differ = first != NULL && second != NULL;
    for (size_t i = 0; differ && i < json_array_size(first); i++)
        for (size_t k = 0; differ && k < json_array_size(second); k++)
            differ = !same_value(json_array_get(first, i), json_array_get(second, k));
    json_decref(first);
    json_decref(second);
    return differ;
}

/* Whether b asks for a property that no object made for a has: such objects hold a's own properties only. */
static bool lacks_required(const json_t *a, const json_t *b)
{
    static const char *const wider[] = {"anyOf", "oneOf", "allOf", NULL};
    const json_t *required = json_object_get(b, "required");
    if (!weir__schema_has_any(a, weir__schema_named_properties) || weir__schema_has_any(a, wider))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name != NULL && json_object_get(json_object_get(a, "properties"), name) == NULL &&
            !weir__schema_is_required(a, name))
            return true;
    }
    return false;
}

/* Whether no text that is made for one of the two satisfies the other. */
static bool exclude_each_other(weir__schema_walk *w, const json_t *a, const json_t *b)
{
    unsigned types_a = weir__schema_possible_types(w, a, 0), types_b = weir__schema_possible_types(w, b, 0);
    if ((types_a & types_b) == 0) return true;
    a = weir__schema_dereference(w, a);
    b = weir__schema_dereference(w, b);
    if (!json_is_object(a) || !json_is_object(b)) return false;
    if (values_differ(a, b)) return true;
    if (types_a != TYPE_OBJECT || types_b != TYPE_OBJECT) return false;
    const char *name;
    json_t *property;
    json_object_foreach(json_object_get(a, "properties"), name, property)
    {
        const json_t *other = json_object_get(json_object_get(b, "properties"), name);
        if (other == NULL || !weir__schema_is_required(a, name) || !weir__schema_is_required(b, name))
            continue;
        const json_t *one = weir__schema_dereference(w, property);
        other = one != NULL ? weir__schema_dereference(w, other) : NULL;
        if (json_is_object(one) && json_is_object(other) && values_differ(one, other)) return true;
    }
    return lacks_required(a, b) && lacks_required(b, a);
}

/* The branches, each merged with what stands beside them. */
static json_t *merged_branches(weir__schema_walk *w, const json_t *schema, const char *keyword)
{
    static const char *const allowed[] = {"anyOf", "oneOf", NULL};
    const json_t *branches = json_object_get(schema, keyword);
    const char *beside = weir__schema_other_constraint(schema, allowed);
    json_t *result = json_array();
    for (size_t i = 0; result != NULL && i < json_array_size(branches); i++) {
        json_t *branch = json_array_get(branches, i), *whole;
        if (beside == NULL) {
            whole = json_incref(branch);
        } else {
            size_t before = weir__schema_enter_index(w, keyword, i);
            const json_t *target = weir__schema_dereference(w, branch);
            whole = json_deep_copy(schema);
            bool ok = target != NULL && whole != NULL && json_object_del(whole, keyword) == 0;
            if (ok && json_is_false(target)) {
                json_decref(whole);
                whole = json_false();
            } else if (ok && json_is_object(target)) {
                json_t *flat =
                    weir__schema_check_keywords(w, target) ? weir__schema_flatten(w, target) : NULL;
                ok = flat != NULL && (json_is_false(flat) || merge(w, whole, flat));
                if (json_is_false(flat)) {
                    json_decref(whole);
                    whole = json_false();
                }
                json_decref(flat);
            } else if (ok && !json_is_true(target)) {
                ok = weir__schema_refuse(w, NULL, "a schema must be an object or a boolean") != NULL;
            }
            weir__schema_leave(w, before);
            if (!ok) {
                if (target != NULL) weir__schema_no_memory(w);
                json_decref(whole);
                json_decref(result);
                return NULL;
            }
        }
        if (json_array_append_new(result, whole) != 0) {
            json_decref(result);
            result = NULL;
        }
    }
    return result != NULL ? result : weir__schema_no_memory(w);
}

json_t *weir__schema_alternatives(weir__schema_walk *w, const json_t *schema)
{
    bool one_of = json_object_get(schema, "oneOf") != NULL;
    const char *keyword = one_of ? "oneOf" : "anyOf";
    const json_t *given = json_object_get(schema, keyword);
    if (one_of && json_object_get(schema, "anyOf") != NULL)
        return weir__schema_refuse(w, "oneOf", "it stands beside anyOf; only one of them can be honoured");
    if (!json_is_array(given) || json_array_size(given) == 0)
        return weir__schema_refuse(w, keyword, "it must be an array of schemas, and not empty");
    json_t *branches = merged_branches(w, schema, keyword);
    if (branches == NULL) return NULL;

    json_t *list = json_array(), *result = NULL;
    if (list == NULL) weir__schema_no_memory(w);
    size_t n = json_array_size(branches);
    for (size_t i = 0; list != NULL && i < n; i++) {
        json_t *branch = json_array_get(branches, i);
        for (size_t k = i + 1; one_of && k < n; k++) {
            if (exclude_each_other(w, branch, json_array_get(branches, k)) && w->status == WEIR_OK) continue;
            weir__schema_refuse(
                w, "oneOf",
                "one value may satisfy both branch %zu and branch %zu; give each a type of its own, or a "
                "required property with distinct const values, or write anyOf",
                i, k);
            goto out;
        }
        json_t *one = weir__schema_below_index(w, keyword, i, branch, false);
        if (one == NULL) goto out;
        if (!json_is_false(one) && json_array_append_new(list, one) != 0) {
            weir__schema_no_memory(w);
            goto out;
        }
    }
    if (list == NULL) goto out;
    if (json_array_size(list) == 0) {
        result = json_false();
    } else {
        result = json_pack("{s:O}", "anyOf", list);
        if (result == NULL) weir__schema_no_memory(w);
    }
out:
    json_decref(list);
    json_decref(branches);
    return result;
}
