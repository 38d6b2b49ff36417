/* schema_condition.c: writes conditions as alternatives, and `not` as the types or values that remain.
 * SPDX-License-Identifier: Apache-2.0
 *
 * `if`, `then` and `else` mean (if and then) or (not if and else). A property on which others depend is
 * absent, or what depends on it holds. The opposite of a schema is known where it is about types, listed
 * values, bounds, lengths, counts, patterns, items, properties that satisfy a schema or are there, and where
 * it combines such schemas by anyOf, allOf, oneOf, not, if or dependencies. */
#include <string.h>

#include "base/words.h"
#include "grammar/pattern.h"
#include "grammar/schema_walk.h"

static const char *const dependencies[] = {"dependentRequired", "dependentSchemas", "dependencies", NULL};

/* {"properties": {name: schema}}; with is_required, {"required": [name]} too. Takes over the schema. */
static json_t *property_is(weir__schema_walk *w, const char *name, json_t *schema, bool is_required)
{
    if (schema == NULL) return weir__schema_no_memory(w);
    return is_required ? weir__schema_pack(w, "{s:{s:o},s:[s]}", "properties", name, schema, "required", name)
                       : weir__schema_pack(w, "{s:{s:o}}", "properties", name, schema);
}

/* Steps of one opposite, which takes about 1.5 kB, however small the schema is. */
#define OPPOSITE_STEPS 64

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

/* The opposite of {"properties": …, "required": …}: a property violates its schema, or is missing. */
static json_t *other_object(weir__schema_walk *w, const json_t *schema, int depth)
{
    const json_t *required = json_object_get(schema, "required");
    const char *name;
    /* A schema that fails evaluates no property, but its opposite evaluates those that it names. Where the
     * document asks for unevaluated ones, the opposite can only be that a required property is missing. */
    if (w->unevaluated && json_array_size(required) == 0) return NULL;
    json_t *list = json_array(), *value;
    json_object_foreach(w->unevaluated ? NULL : json_object_get(schema, "properties"), name, value)
    {
        json_t *other = opposite(w, value, depth);
        if (other == NULL) {
            json_decref(list);
            return NULL;
        }
        weir__schema_append(w, list, of_object(w, property_is(w, name, other, true)));
    }
    for (size_t i = 0; i < json_array_size(required) && weir__schema_spend(w, OPPOSITE_STEPS); i++) {
        name = json_string_value(json_array_get(required, i));
        if (name != NULL)
            weir__schema_append(w, list, of_object(w, property_is(w, name, json_false(), false)));
    }
    return weir__schema_any_of(w, list);
}

/* Keywords and what contradicts them: a value that violates `keyword` is of the type, and satisfies `other`
 * with the same number, or with one greater by `more`. */
static const struct contrary {
    const char *keyword, *type, *other;
    int more;
} contraries[] = {
    {"minimum", "number", "exclusiveMaximum", 0},
    {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0},
    {"exclusiveMaximum", "number", "minimum", 0},
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
};

/* Adds what contradicts a bound to the list. False: it is none, or its value is odd. */
static bool add_contrary(weir__schema_walk *w, json_t *list, const char *keyword, json_t *value)
{
    const struct contrary *c = contraries;
    const size_t n = sizeof contraries / sizeof *contraries;
    size_t i = 0;
    while (i < n && strcmp(c[i].keyword, keyword) != 0) i++;
    if (i == n || !json_is_number(value)) return false;
    if (c[i].more == 0)
        return weir__schema_append(w, list,
                                   weir__schema_pack(w, "{s:s,s:O}", "type", c[i].type, c[i].other, value));
    const double bound = json_number_value(value);
    if (bound < 0 || bound > 1e9 || bound != (double)(json_int_t)bound) return false;
    json_int_t other = (json_int_t)bound + c[i].more;
    return other < 0 || weir__schema_append(
                            w, list, weir__schema_pack(w, "{s:s,s:I}", "type", c[i].type, c[i].other, other));
}

/* The most branches of a oneOf whose pairs are part of its opposite. */
#define PAIRED_MAX 4

/* The opposite of oneOf: no branch is satisfied, or two are. */
static json_t *none_or_two(weir__schema_walk *w, const json_t *branches, int depth)
{
    const size_t n = json_array_size(branches);
    json_t *none = opposites(w, branches, "allOf", depth);
    if (none == NULL) return NULL;
    json_t *list = json_array();
    weir__schema_append(w, list, none);
    for (size_t i = 0; i < n && n <= PAIRED_MAX && !w->unevaluated; i++)
        for (size_t k = i + 1; k < n; k++)
            weir__schema_append(w, list,
                                weir__schema_pack(w, "{s:[O,O]}", "allOf", json_array_get(branches, i),
                                                  json_array_get(branches, k)));
    return weir__schema_any_of(w, list);
}

/* Adds {"allOf": [condition, what contradicts the consequence]}; takes over the condition. */
static bool add_violation(weir__schema_walk *w, json_t *list, json_t *condition, const json_t *consequence,
                          int depth)
{
    json_t *other = condition != NULL ? opposite(w, consequence, depth) : NULL;
    if (other != NULL)
        return weir__schema_append(w, list, weir__schema_pack(w, "{s:[o,o]}", "allOf", condition, other));
    json_decref(condition);
    return false;
}

/* The opposite of if, then and else. */
static json_t *other_case(weir__schema_walk *w, const json_t *schema, int depth)
{
    json_t *condition = json_object_get(schema, "if"), *list = json_array();
    const json_t *then = json_object_get(schema, "then"), *otherwise = json_object_get(schema, "else");
    if ((then == NULL || (!w->unevaluated && add_violation(w, list, json_incref(condition), then, depth))) &&
        (otherwise == NULL || add_violation(w, list, opposite(w, condition, depth), otherwise, depth)))
        return weir__schema_any_of(w, list);
    json_decref(list);
    return NULL;
}

/* The opposite of dependencies: a property is there, and what depends on it does not hold. */
static json_t *independent(weir__schema_walk *w, const json_t *given, int depth)
{
    json_t *list = json_array(), *value;
    const char *name;
    bool known = true;
    json_object_foreach((json_t *)given, name, value)
    {
        for (size_t i = 0; i < json_array_size(value) && known; i++) {
            const char *asked = json_string_value(json_array_get(value, i));
            known = asked != NULL && weir__schema_spend(w, OPPOSITE_STEPS) &&
                    weir__schema_append(w, list,
                                        weir__schema_pack(w, "{s:s,s:[s],s:{s:b}}", "type", "object",
                                                          "required", name, "properties", asked, 0));
        }
        if (known && !json_is_array(value))
            known = add_violation(w, list,
                                  weir__schema_pack(w, "{s:s,s:[s]}", "type", "object", "required", name),
                                  value, depth);
    }
    if (known) return weir__schema_any_of(w, list);
    json_decref(list);
    return NULL;
}

/* The opposite of schemas for the first items: one of these items violates its schema. */
static json_t *other_tuple(weir__schema_walk *w, const json_t *prefix, int depth)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(prefix); i++) {
        json_t *other = opposite(w, json_array_get(prefix, i), depth);
        if (json_is_false(other)) continue; /* every item satisfies it */
        if (other == NULL || i >= WEIR__SCHEMA_ITEMS_MAX || !weir__schema_spend(w, i + OPPOSITE_STEPS)) {
            json_decref(other);
            json_decref(list);
            return NULL;
        }
        json_t *items = json_array();
        for (size_t k = 0; k < i; k++) weir__schema_append(w, items, json_true());
        weir__schema_append(w, items, other);
        weir__schema_append(w, list,
                            weir__schema_pack(w, "{s:s,s:I,s:o}", "type", "array", "minItems",
                                              (json_int_t)i + 1, "prefixItems", items));
    }
    return weir__schema_any_of(w, list);
}

/* The opposite of one of the patternProperties, or (pattern NULL) of additionalProperties: an object has such
 * a property, and it violates the schema. */
static json_t *other_property(weir__schema_walk *w, const json_t *schema, const char *pattern, json_t *value,
                              int depth)
{
    json_t *names = json_object_get(schema, "properties"), *ignored;
    json_t *patterns = json_object_get(schema, "patternProperties");
    const char *known;
    json_object_foreach(pattern == NULL ? patterns : NULL, known, ignored)
    {
        if (weir__pattern_may_narrow(known)) return NULL;
    }
    json_t *other = opposite(w, value, depth);
    if (other == NULL || json_is_false(other)) return other;
    json_t *one = pattern != NULL ? weir__schema_pack(w, "{s:s,s:{s:b},s:o}", "keyword", w->opposing, "only",
                                                      pattern, 1, "value", other)
                                  : weir__schema_pack(w, "{s:s,s:O*,s:O*,s:o}", "keyword", w->opposing,
                                                      "names", names, "patterns", patterns, "value", other);
    return weir__schema_pack(w, "{s:s,s:[o]}", "type", "object", WEIR__SCHEMA_BEYOND, one);
}

static json_t *other_patterns(weir__schema_walk *w, const json_t *schema, json_t *patterns, int depth)
{
    json_t *list = json_array(), *value;
    const char *pattern;
    bool known = json_is_object(patterns);
    json_object_foreach(patterns, pattern, value)
    {
        json_t *one = known ? other_property(w, schema, pattern, value, depth) : NULL;
        known = one != NULL && (json_is_false(one) || weir__schema_append(w, list, one));
    }
    if (known) return weir__schema_any_of(w, list);
    json_decref(list);
    return NULL;
}

/* What contradicts a keyword that combines other schemas. NULL: it is unknown. */
static json_t *other_combination(weir__schema_walk *w, const json_t *schema, const char *keyword,
                                 json_t *value, int depth)
{
    if (strcmp(keyword, "anyOf") == 0) return opposites(w, value, "allOf", depth);
    if (strcmp(keyword, "allOf") == 0) return opposites(w, value, "anyOf", depth);
    if (strcmp(keyword, "oneOf") == 0) return none_or_two(w, value, depth);
    if (strcmp(keyword, "if") == 0) return other_case(w, schema, depth);
    if (weir__words_have(dependencies, 3, keyword)) return independent(w, value, depth);
    if (w->unevaluated) return NULL;
    if (strcmp(keyword, "additionalProperties") == 0) return other_property(w, schema, NULL, value, depth);
    if (strcmp(keyword, "patternProperties") == 0) return other_patterns(w, schema, value, depth);
    const bool is_tuple =
        strcmp(keyword, "prefixItems") == 0 || (strcmp(keyword, "items") == 0 && json_is_array(value));
    return is_tuple ? other_tuple(w, value, depth) : NULL;
}

/* Adds what contradicts a keyword of the schema to the list. False: it is unknown. */
static bool add_opposite(weir__schema_walk *w, json_t *list, const json_t *schema, const char *keyword,
                         json_t *value, int depth)
{
    static const char *const contained[] = {"minContains", "maxContains", NULL};
    /* Read with `properties` and `if`. */
    static const char *const with_others[] = {"required", "then", "else"};
    json_t *one = NULL;
    if (weir__schema_kind_of(keyword) == ANNOTATION || weir__words_have(with_others, 3, keyword)) return true;
    if (add_contrary(w, list, keyword, value)) return true;
    if (strcmp(keyword, "type") == 0) {
        const unsigned mask = TYPE_ANY & ~weir__schema_declared_types(w, schema);
        if (mask == 0 || w->status != WEIR_OK) return w->status == WEIR_OK;
        one = weir__schema_pack(w, "{s:o}", "type", weir__schema_type_array(w, mask));
    } else if (weir__words_have(weir__schema_listed_values, 2, keyword)) {
        one = weir__schema_pack(w, "{s:{s:O}}", "not", keyword, value);
    } else if (strcmp(keyword, "pattern") == 0 && json_is_string(value)) {
        one = weir__schema_pack(w, "{s:s,s:[O]}", "type", "string", WEIR__SCHEMA_NOT_PATTERNS, value);
    } else if (strcmp(keyword, "properties") == 0) {
        one = other_object(w, schema, depth + 1);
    } else if (strcmp(keyword, "not") == 0 && !w->unevaluated) {
        one = json_incref(value);
    } else if (strcmp(keyword, "contains") == 0 && !w->unevaluated &&
               !weir__schema_has_any(schema, contained)) {
        json_t *none = opposite(w, value, depth + 1);
        if (none != NULL) one = weir__schema_pack(w, "{s:s,s:o}", "type", "array", "items", none);
    } else if (strcmp(keyword, "items") == 0 && !w->unevaluated && !json_is_array(value) &&
               json_object_get(schema, "prefixItems") == NULL) {
        json_t *none = opposite(w, value, depth + 1);
        if (none != NULL) one = weir__schema_pack(w, "{s:s,s:o}", "type", "array", "contains", none);
    } else {
        one = other_combination(w, schema, keyword, value, depth + 1);
    }
    if (json_is_false(one)) { /* nothing contradicts it */
        json_decref(one);
        return true;
    }
    return one != NULL && weir__schema_append(w, list, one);
}

static json_t *opposite(weir__schema_walk *w, const json_t *schema, int depth)
{
    json_t *list, *value;
    const char *keyword;
    schema = weir__schema_judged(w, schema);
    if (schema == NULL || depth > 8 || !weir__schema_spend(w, OPPOSITE_STEPS)) return NULL;
    if (json_is_boolean(schema)) return json_boolean(json_is_false(schema));
    if (!json_is_object(schema)) return NULL;
    list = weir__schema_made(w, json_array());
    bool known = list != NULL;
    json_object_foreach((json_t *)schema, keyword, value) known =
        known && add_opposite(w, list, schema, keyword, value, depth);
    if (known && json_object_get(schema, "properties") == NULL &&
        json_object_get(schema, "required") != NULL) {
        json_t *other = other_object(w, schema, depth + 1);
        known = other != NULL && weir__schema_append(w, list, other);
    }
    if (known && w->status == WEIR_OK) return weir__schema_any_of(w, list);
    json_decref(list);
    return NULL;
}

json_t *weir__schema_opposite(weir__schema_walk *w, const char *keyword, const json_t *schema)
{
    w->opposing = keyword;
    return opposite(w, schema, 0);
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
    json_t *itself = weir__schema_pack(w, "{s:[s]}", "required", name);
    /* Where only this lists the names, what a property needs stands before it. */
    const bool named = json_is_array(dependent);
    weir__schema_append(w, all,
                        weir__schema_pack(w, "{s:[o,{s:[o,o]}]}", "anyOf", absent, "allOf",
                                          named ? present : itself, named ? itself : present));
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

static const char *const unevaluated[] = {"unevaluatedProperties", "unevaluatedItems", NULL};

static bool add_condition(weir__schema_walk *w, const json_t *schema, json_t *all)
{
    json_t *condition = json_object_get(schema, "if"), *then = json_object_get(schema, "then"),
           *otherwise = json_object_get(schema, "else");
    if (condition == NULL) return true;
    /* Alone it allows all, but what it matches is evaluated. */
    if (then == NULL && otherwise == NULL)
        return !weir__schema_has_any(schema, unevaluated) ||
               weir__schema_append(w, all, weir__schema_pack(w, "{s:[O,b]}", "anyOf", condition, 1));
    json_t *other = weir__schema_opposite(w, "if", condition);
    if (other == NULL)
        return weir__schema_refuse(
                   w, "if",
                   "a grammar has no conditions but on types, listed values, bounds, lengths, counts, "
                   "patterns, items and properties; write the cases as oneOf") != NULL;
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
    return weir__schema_refuse(
        w, "not",
        "a grammar cannot exclude what this schema matches; it can exclude types, listed "
        "values, bounds, lengths, counts, patterns, items and properties");
}

/* The schema, which lists no values, without some. Of arrays, objects and booleans none remain if one of them
 * is excluded; if no other type is left, that is refused. */
static json_t *without_values(weir__schema_walk *w, const json_t *schema, const json_t *excluded)
{
    const json_t *only = json_object_get(excluded, "const"), *list = json_object_get(excluded, "enum");
    unsigned mask = weir__schema_declared_types(w, schema) & weir__schema_possible_types(w, schema);
    unsigned left = mask;
    json_t *less = weir__schema_without(w, schema, "not");
    json_t *strings = weir__schema_own_list(w, less, WEIR__SCHEMA_NOT_STRINGS);
    json_t *numbers = weir__schema_own_list(w, less, WEIR__SCHEMA_NOT_NUMBERS);
    if (w->relax && json_object_get(schema, "type") == NULL) left = 0;
    for (size_t i = 0; i < (only != NULL ? 1 : json_array_size(list)) && weir__schema_spend(w, 4); i++) {
        json_t *value = only != NULL ? (json_t *)only : json_array_get(list, i);
        const unsigned type = weir__schema_type_of(value);
        if ((only != NULL && !is_excluded(value, excluded)) || (type & mask) == 0) continue;
        if (type == TYPE_STRING)
            weir__schema_append(w, strings, json_incref(value));
        else if ((type & TYPE_NUMBER) != 0)
            weir__schema_append(w, numbers, json_incref(value));
        else
            left &= ~type;
    }
    if (json_array_size(strings) == 0) json_object_del(less, WEIR__SCHEMA_NOT_STRINGS);
    if (json_array_size(numbers) == 0) json_object_del(less, WEIR__SCHEMA_NOT_NUMBERS);
    if (left == 0 || w->status != WEIR_OK) {
        json_decref(less);
        return refuse_not(w);
    }
    weir__schema_set(w, less, "type", weir__schema_type_array(w, left));
    return weir__schema_made(w, less);
}

/* The schema with what contradicts its `not`. */
static json_t *with_opposite(weir__schema_walk *w, const json_t *schema, const json_t *excluded)
{
    json_t *other = weir__schema_opposite(w, "not", excluded);
    if (other == NULL) return refuse_not(w);
    json_t *less = weir__schema_without(w, schema, "not");
    json_t *whole = less != NULL ? weir__schema_pack(w, "{s:[o,o]}", "allOf", less, other) : NULL;
    if (less == NULL) json_decref(other);
    json_t *flat = whole != NULL ? weir__schema_flatten(w, whole) : NULL;
    json_decref(whole);
    return flat;
}

json_t *weir__schema_without_not(weir__schema_walk *w, const json_t *schema)
{
    static const char *const nothing[] = {NULL}, *const type[] = {"type", NULL};
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
        keyword = "type";
        rest = weir__schema_type_array(w, mask & ~out);
    } else if (is_object && weir__schema_other_constraint(excluded, weir__schema_listed_values) == NULL) {
        const bool listed = weir__schema_has_any(schema, weir__schema_listed_values);
        const bool few =
            (weir__schema_declared_types(w, schema) & ~(unsigned)(TYPE_BOOLEAN | TYPE_NULL)) == 0;
        if (!listed && !few) return without_values(w, schema, excluded);
        json_t *all = listed ? NULL : weir__schema_pack(w, "{s:[b,b,n]}", "enum", 0, 1);
        keyword = "enum";
        rest = remaining_values(w, listed ? schema : all, excluded);
        json_decref(all);
    } else if (!json_is_false(excluded)) {
        return with_opposite(w, schema, excluded);
    }
    if (keyword != NULL && w->status == WEIR_OK && json_array_size(rest) == 0) {
        json_decref(rest);
        return json_false();
    }
    json_t *less = weir__schema_without(w, schema, "not");
    if (keyword != NULL) weir__schema_set(w, less, keyword, rest);
    return weir__schema_made(w, less);
}
