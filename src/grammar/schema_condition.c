/* schema_condition.c: writes conditions as alternatives, and `not` as the types or values that remain.
 * SPDX-License-Identifier: Apache-2.0
 *
 * `if`, `then` and `else` mean (if and then) or (not if and else). A property on which others depend is
 * absent, or what depends on it holds. The opposite of a condition is known where it is about types, listed
 * values, and properties that have them or are there. */
#include <string.h>

#include "grammar/schema_walk.h"

static const char *const dependencies[] = {"dependentRequired", "dependentSchemas", "dependencies", NULL};

/* {"properties": {name: schema}}; with is_required, {"required": [name]} too. Takes over the schema. */
static json_t *property_is(weir__schema_walk *w, const char *name, json_t *schema, bool is_required)
{
    if (schema == NULL) return weir__schema_no_memory(w);
    return is_required ? weir__schema_pack(w, "{s:{s:o},s:[s]}", "properties", name, schema, "required", name)
                       : weir__schema_pack(w, "{s:{s:o}}", "properties", name, schema);
}

static json_t *opposite(weir__schema_walk *w, const json_t *schema, int depth);

/* The opposites of all schemas of a list. NULL: one of them is unknown. */
static json_t *opposites(weir__schema_walk *w, const json_t *schemas, const char *keyword, int depth)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(schemas); i++) {
        json_t *one = opposite(w, json_array_get(schemas, i), depth);
        if (one == NULL) {
            json_decref(list);
            return NULL;
        }
        weir__schema_append(w, list, one);
    }
    return weir__schema_pack(w, "{s:o}", keyword, list);
}

/* The schema, of objects alone. */
static json_t *of_object(weir__schema_walk *w, json_t *schema)
{
    if (schema != NULL) weir__schema_set(w, schema, "type", json_string("object"));
    return schema;
}

/* The opposite of {"properties": …, "required": …}: a property is there and not so, or is missing. */
static json_t *other_object(weir__schema_walk *w, const json_t *schema, int depth)
{
    json_t *list = json_array(), *value;
    const json_t *required = json_object_get(schema, "required");
    const char *name;
    if (json_object_get(schema, "type") != NULL)
        weir__schema_append(w, list,
                            weir__schema_pack(w, "{s:o}", "type",
                                              weir__schema_type_array(w, TYPE_ANY & ~(unsigned)TYPE_OBJECT)));
    json_object_foreach(json_object_get(schema, "properties"), name, value)
    {
        json_t *other = opposite(w, value, depth);
        if (other == NULL) {
            json_decref(list);
            return NULL;
        }
        weir__schema_append(w, list, of_object(w, property_is(w, name, other, true)));
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (name != NULL)
            weir__schema_append(w, list, of_object(w, property_is(w, name, json_false(), false)));
    }
    return weir__schema_any_of(w, list);
}

/* A schema that is satisfied only by values that do not satisfy the given one; not by all of them, where
 * the opposite has other types, too. NULL: it is unknown, or a failure. */
static json_t *opposite(weir__schema_walk *w, const json_t *schema, int depth)
{
    static const char *const values[] = {"const", "enum", NULL}, *const type[] = {"type", NULL};
    static const char *const object[] = {"type", "properties", "required", NULL};
    static const char *const not [] = {"not", NULL}, *const any[] = {"anyOf", NULL},
                                 *const all[] = {"allOf", NULL};
    schema = weir__schema_dereference(w, schema);
    if (schema == NULL || depth > 8 || !weir__schema_spend(w, 4)) return NULL;
    if (json_is_boolean(schema)) return json_boolean(json_is_false(schema));
    if (!json_is_object(schema)) return NULL;
    if (weir__schema_other_constraint(schema, values) == NULL ||
        weir__schema_other_constraint(schema, type) == NULL)
        return weir__schema_pack(w, "{s:O}", "not", schema);
    if (weir__schema_other_constraint(schema, object) == NULL &&
        (json_object_get(schema, "type") == NULL || weir__schema_is_object(schema)))
        return other_object(w, schema, depth + 1);
    if (weir__schema_other_constraint(schema, not ) == NULL)
        return json_incref(json_object_get(schema, "not"));
    if (weir__schema_other_constraint(schema, any) == NULL)
        return opposites(w, json_object_get(schema, "anyOf"), "allOf", depth + 1);
    if (weir__schema_other_constraint(schema, all) == NULL)
        return opposites(w, json_object_get(schema, "allOf"), "anyOf", depth + 1);
    return NULL;
}

/* Adds to all what holds where a property is there: a list of required ones, or a schema. */
static void add_dependency(weir__schema_walk *w, json_t *all, const char *keyword, const char *name,
                           const json_t *dependent)
{
    json_t *absent = property_is(w, name, json_false(), false);
    json_t *present = json_is_array(dependent) ? weir__schema_pack(w, "{s:O}", "required", dependent)
                                               : json_incref((json_t *)dependent);
    if (!json_is_array(dependent) && !json_is_object(dependent) && !json_is_boolean(dependent))
        weir__schema_refuse_finally(w, keyword, "its members must be schemas or lists of names");
    weir__schema_append(
        w, all,
        weir__schema_pack(w, "{s:[o,{s:[{s:[s]},o]}]}", "anyOf", absent, "allOf", "required", name, present));
}

static bool add_dependencies(weir__schema_walk *w, const json_t *schema, json_t *all)
{
    for (size_t i = 0; dependencies[i] != NULL; i++) {
        const json_t *given = json_object_get(schema, dependencies[i]);
        const char *name;
        json_t *dependent;
        if (given != NULL && !json_is_object(given))
            return weir__schema_refuse_finally(w, dependencies[i], "it must be an object") != NULL;
        json_object_foreach((json_t *)given, name, dependent)
            add_dependency(w, all, dependencies[i], name, dependent);
    }
    return w->status == WEIR_OK;
}

static bool add_condition(weir__schema_walk *w, const json_t *schema, json_t *all)
{
    json_t *condition = json_object_get(schema, "if"), *then = json_object_get(schema, "then"),
           *otherwise = json_object_get(schema, "else");
    if (condition == NULL || (then == NULL && otherwise == NULL)) return true;
    json_t *other = opposite(w, condition, 0);
    if (other == NULL)
        return weir__schema_refuse(
                   w, "if",
                   "a grammar has no conditions but on types, listed values, and properties that "
                   "have them or are there; write the cases as oneOf") != NULL;
    json_t *no = weir__schema_pack(w, "{s:[o]}", "allOf", other);
    if (otherwise != NULL && no != NULL)
        weir__schema_append(w, json_object_get(no, "allOf"), json_incref(otherwise));
    json_t *yes = weir__schema_pack(w, "{s:[O]}", "allOf", condition);
    if (then != NULL && yes != NULL) weir__schema_append(w, json_object_get(yes, "allOf"), json_incref(then));
    return weir__schema_append(w, all, weir__schema_pack(w, "{s:[o,o]}", "anyOf", yes, no));
}

/* Keywords that are written as alternatives. */
static const char *const conditional[] = {
    "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", NULL};

bool weir__schema_has_condition(const json_t *schema)
{
    return weir__schema_has_any(schema, conditional);
}

void weir__schema_drop_conditions(json_t *schema)
{
    for (size_t i = 0; conditional[i] != NULL; i++) json_object_del(schema, conditional[i]);
}

/* The most properties of all alternatives of one schema, each of which has all of them. */
#define ALTERNATIVES_MAX 1024

/* Refuses more conditions than their alternatives, which double with each, can have. */
static bool check_number(weir__schema_walk *w, const json_t *schema)
{
    size_t n_properties = json_object_size(json_object_get(schema, "properties")) + 1, n = 0;
    const char *keyword = "if";
    n += json_object_get(schema, keyword) != NULL;
    for (size_t i = 0; dependencies[i] != NULL; i++) {
        size_t more = json_object_size(json_object_get(schema, dependencies[i]));
        if (more > 0) keyword = dependencies[i];
        n += more;
    }
    return (n < 10 && n_properties << n <= ALTERNATIVES_MAX) ||
           weir__schema_refuse(w, keyword, "%zu conditions on %zu properties have too many alternatives", n,
                               n_properties - 1) != NULL;
}

json_t *weir__schema_conditions(weir__schema_walk *w, const json_t *schema)
{
    json_t *all = json_array();
    if (check_number(w, schema) && add_dependencies(w, schema, all)) add_condition(w, schema, all);
    return weir__schema_made(w, all);
}

/* ---- not ---- */

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
