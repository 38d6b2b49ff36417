/* schema_value.c: says if a value that a schema lists satisfies what stands beside it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A validator of single values, keyword by keyword, within the steps of the schema's work. It knows neither
 * formats of strings, whose patterns are narrower, nor what is left unevaluated. What it cannot say is
 * UNCLEAR, and no failure. Keywords that depend on each other are judged once, at the first of them. */
#include <math.h>
#include <string.h>

#include "base/words.h"
#include "grammar/schema_walk.h"

typedef enum weir__schema_verdict verdict;

#define NO      WEIR__SCHEMA_VIOLATED
#define YES     WEIR__SCHEMA_SATISFIED
#define UNCLEAR WEIR__SCHEMA_UNCLEAR

/* Schemas within schemas. */
#define DEPTH_MAX 16

static verdict judge_noting(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth,
                            const char **unclear);

static verdict judge(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth)
{
    return judge_noting(w, schema, value, depth, NULL);
}

static verdict verdict_of(bool satisfied)
{
    return satisfied ? YES : NO;
}

static verdict both(verdict a, verdict b)
{
    if (a == NO || b == NO) return NO;
    return a == YES && b == YES ? YES : UNCLEAR;
}

static verdict opposite_of(verdict v)
{
    return v == UNCLEAR ? UNCLEAR : verdict_of(v == NO);
}

/* The steps that it costs to look at a value: one for four elements or members, or 32 bytes. */
static size_t steps_of(const json_t *value)
{
    if (json_is_string(value)) return json_string_length(value) / 32;
    return (json_is_array(value) ? json_array_size(value) : json_object_size(value)) / 4;
}

/* The verdict where `least` to `most` things are satisfied, of which `yes` are, and `unclear` may be. */
static verdict counted(size_t yes, size_t unclear, size_t least, size_t most)
{
    if (yes > most || yes + unclear < least) return NO;
    return yes >= least && yes + unclear <= most ? YES : UNCLEAR;
}

/* The verdict where `least` to `most` schemas of a list are satisfied. */
static verdict judge_list(weir__schema_walk *w, const json_t *schemas, const json_t *value, size_t least,
                          size_t most, int depth)
{
    size_t yes = 0, unclear = 0;
    if (!json_is_array(schemas)) return UNCLEAR;
    for (size_t i = 0; i < json_array_size(schemas); i++) {
        const verdict v = judge(w, json_array_get(schemas, i), value, depth);
        yes += v == YES;
        unclear += v == UNCLEAR;
    }
    return counted(yes, unclear, least, most);
}

static verdict judge_pattern(weir__schema_walk *w, const json_t *pattern, const char *text)
{
    return json_is_string(pattern) ? weir__schema_match(w, json_string_value(pattern), text) : UNCLEAR;
}

/* The verdict where a text matches all patterns, or none of them. */
static verdict judge_patterns(weir__schema_walk *w, const json_t *patterns, const char *text, bool matches)
{
    verdict v = YES;
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const verdict one = judge_pattern(w, json_array_get(patterns, i), text);
        v = both(v, matches ? one : opposite_of(one));
    }
    return v;
}

/* ---- Objects ---- */

/* The verdict of all properties. */
static verdict judge_properties(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth)
{
    const json_t *listed = json_object_get(schema, "properties"),
                 *patterns = json_object_get(schema, "patternProperties"),
                 *others = json_object_get(schema, "additionalProperties");
    const char *name, *pattern;
    json_t *property, *given;
    verdict v = YES;
    json_object_foreach((json_t *)value, name, property)
    {
        const json_t *own = json_object_get(listed, name);
        bool known = own != NULL;
        if (own != NULL) v = both(v, judge(w, own, property, depth));
        json_object_foreach((json_t *)patterns, pattern, given)
        {
            const verdict matches = weir__schema_match(w, pattern, name);
            if (matches == UNCLEAR) return UNCLEAR;
            if (matches == NO) continue;
            known = true;
            v = both(v, judge(w, given, property, depth));
        }
        if (!known && others != NULL) v = both(v, judge(w, others, property, depth));
    }
    return v;
}

static verdict judge_required(const json_t *names, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name == NULL) return UNCLEAR;
        if (json_object_get(value, name) == NULL) return NO;
    }
    return json_is_array(names) ? YES : UNCLEAR;
}

static verdict judge_names(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth)
{
    const char *name;
    json_t *property;
    verdict v = YES;
    json_object_foreach((json_t *)value, name, property)
    {
        json_t *text = weir__schema_made(w, json_string(name));
        v = text != NULL ? both(v, judge(w, schema, text, depth)) : UNCLEAR;
        json_decref(text);
    }
    return v;
}

static verdict judge_dependencies(weir__schema_walk *w, const json_t *given, const json_t *value, int depth)
{
    const char *name;
    json_t *dependent;
    verdict v = json_is_object(given) ? YES : UNCLEAR;
    json_object_foreach((json_t *)given, name, dependent)
    {
        if (json_object_get(value, name) == NULL) continue;
        v = both(v, json_is_array(dependent) ? judge_required(dependent, value)
                                             : judge(w, dependent, value, depth));
    }
    return v;
}

/* True if the keyword is the first one of a group [n] that the schema has. */
static bool is_first(const json_t *schema, const char *const *group, size_t n, const char *keyword)
{
    size_t i = 0;
    while (i < n && json_object_get(schema, group[i]) == NULL) i++;
    return i < n && strcmp(group[i], keyword) == 0;
}

static verdict judge_object(weir__schema_walk *w, const json_t *schema, const char *keyword,
                            const json_t *given, const json_t *value, int depth)
{
    static const char *const dependencies[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    /* Patterns come first: a refusal names the first of these keywords, and a pattern is the most likely
     * one to be unclear. */
    static const char *const together[] = {"patternProperties", "properties", "additionalProperties"};
    if (weir__words_have(together, 3, keyword))
        return is_first(schema, together, 3, keyword) ? judge_properties(w, schema, value, depth) : YES;
    if (weir__words_have(dependencies, 3, keyword)) return judge_dependencies(w, given, value, depth);
    if (strcmp(keyword, "required") == 0) return judge_required(given, value);
    if (strcmp(keyword, "propertyNames") == 0) return judge_names(w, given, value, depth);
    if (strcmp(keyword, "unevaluatedProperties") == 0 && json_is_true(given)) return YES;
    return UNCLEAR;
}

/* ---- Arrays ---- */

/* The verdict of all items: the first ones, and those after them. */
static verdict judge_items(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth)
{
    const json_t *items = json_object_get(schema, "items"), *rest = items;
    const json_t *first = json_object_get(schema, "prefixItems");
    verdict v = YES;
    if (json_is_array(items)) {
        first = items;
        rest = json_object_get(schema, "additionalItems");
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = i < json_array_size(first) ? json_array_get(first, i) : rest;
        if (one != NULL) v = both(v, judge(w, one, json_array_get(value, i), depth));
    }
    return v;
}

static verdict judge_contains(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth)
{
    const json_t *contains = json_object_get(schema, "contains");
    uint64_t least = 1, most = UINT64_MAX;
    size_t yes = 0, unclear = 0;
    if (contains == NULL) return YES;
    if (!weir__schema_count(w, schema, "minContains", &least) ||
        !weir__schema_count(w, schema, "maxContains", &most))
        return UNCLEAR;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const verdict one = judge(w, contains, json_array_get(value, i), depth);
        yes += one == YES;
        unclear += one == UNCLEAR;
    }
    return counted(yes, unclear, (size_t)least, most < SIZE_MAX ? (size_t)most : SIZE_MAX);
}

static verdict judge_unique(weir__schema_walk *w, const json_t *value)
{
    const size_t n = json_array_size(value);
    if (!weir__schema_spend(w, n * n)) return UNCLEAR;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            if (weir__schema_equal(json_array_get(value, i), json_array_get(value, k))) return NO;
    return YES;
}

static verdict judge_array(weir__schema_walk *w, const json_t *schema, const char *keyword,
                           const json_t *given, const json_t *value, int depth)
{
    static const char *const together[] = {"items", "prefixItems", "additionalItems"};
    static const char *const contained[] = {"contains", "minContains", "maxContains"};
    if (weir__words_have(together, 3, keyword))
        return is_first(schema, together, 3, keyword) ? judge_items(w, schema, value, depth) : YES;
    if (weir__words_have(contained, 3, keyword))
        return is_first(schema, contained, 3, keyword) ? judge_contains(w, schema, value, depth) : YES;
    if (strcmp(keyword, "uniqueItems") == 0)
        return json_is_true(given) ? judge_unique(w, value) : verdict_of(json_is_false(given));
    if (strcmp(keyword, "unevaluatedItems") == 0 && json_is_true(given)) return YES;
    return UNCLEAR;
}

/* ---- The whole ---- */

static verdict judge_string(weir__schema_walk *w, const char *keyword, const json_t *given,
                            const json_t *value)
{
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value)) return UNCLEAR;
    if (strcmp(keyword, "pattern") == 0) return judge_pattern(w, given, text);
    if (strcmp(keyword, WEIR__SCHEMA_PATTERNS) == 0) return judge_patterns(w, given, text, true);
    if (strcmp(keyword, WEIR__SCHEMA_NOT_PATTERNS) == 0) return judge_patterns(w, given, text, false);
    if (strcmp(keyword, WEIR__SCHEMA_NOT_STRINGS) == 0)
        return verdict_of(!weir__schema_has_value(given, value));
    return UNCLEAR;
}

/* The verdict of multiples: exact where both numbers have at most 15 digits. */
static verdict judge_multiple(const json_t *given, const json_t *value)
{
    const double step = json_number_value(given), number = json_number_value(value);
    if (!(step > 0)) return UNCLEAR;
    if (json_is_integer(given) && json_is_integer(value))
        return verdict_of(json_integer_value(value) % json_integer_value(given) == 0);
    double power = 1;
    for (int places = 0; places <= 15; places++, power *= 10) {
        const double a = rint(number * power), b = rint(step * power);
        if (fabs(a) > 1e15 || b > 1e15) break;
        if (a / power == number && b / power == step) return verdict_of(fmod(a, b) == 0);
    }
    return UNCLEAR;
}

static verdict judge_number(const char *keyword, const json_t *given, const json_t *value)
{
    if (strcmp(keyword, WEIR__SCHEMA_NOT_NUMBERS) == 0)
        return verdict_of(!weir__schema_has_value(given, value));
    return strcmp(keyword, "multipleOf") == 0 ? judge_multiple(given, value) : UNCLEAR;
}

/* A string is judged only by formats that are annotations, and a number by int32. */
static verdict judge_format(const json_t *given, const json_t *value)
{
    const char *format = json_string_value(given);
    if (format == NULL) return UNCLEAR;
    if (json_is_string(value)) return weir__schema_is_other_format(format) ? YES : UNCLEAR;
    if (weir__schema_type_of(value) != TYPE_INTEGER || strcmp(format, "int32") != 0) return YES;
    return verdict_of(json_number_value(value) >= INT32_MIN && json_number_value(value) <= INT32_MAX);
}

static verdict judge_general(weir__schema_walk *w, const json_t *schema, const char *keyword,
                             const json_t *given, const json_t *value, int depth)
{
    if (strcmp(keyword, "type") == 0)
        return verdict_of((weir__schema_declared_types(w, schema) & weir__schema_type_of(value)) != 0);
    if (strcmp(keyword, "const") == 0) return verdict_of(weir__schema_equal(given, value));
    if (strcmp(keyword, "enum") == 0) return verdict_of(weir__schema_has_value(given, value));
    if (strcmp(keyword, "not") == 0) return opposite_of(judge(w, given, value, depth));
    if (strcmp(keyword, "allOf") == 0)
        return judge_list(w, given, value, json_array_size(given), SIZE_MAX, depth);
    if (strcmp(keyword, "anyOf") == 0) return judge_list(w, given, value, 1, SIZE_MAX, depth);
    if (strcmp(keyword, "oneOf") == 0) return judge_list(w, given, value, 1, 1, depth);
    if (strcmp(keyword, "if") == 0) {
        const verdict condition = judge(w, given, value, depth);
        if (condition == UNCLEAR) return UNCLEAR;
        const json_t *then = json_object_get(schema, condition == YES ? "then" : "else");
        return then != NULL ? judge(w, then, value, depth) : YES;
    }
    return strcmp(keyword, "then") == 0 || strcmp(keyword, "else") == 0 ? YES : UNCLEAR;
}

static verdict judge_keyword(weir__schema_walk *w, const json_t *schema, const char *keyword,
                             const json_t *given, const json_t *value, int depth)
{
    static const unsigned about[] = {
        [OBJECT] = TYPE_OBJECT, [ARRAY] = TYPE_ARRAY, [STRING] = TYPE_STRING, [NUMBER] = TYPE_NUMBER};
    const enum keyword_kind kind = weir__schema_kind_of(keyword);
    if (kind == ANNOTATION) return YES;
    if (strcmp(keyword, "format") == 0) return judge_format(given, value);
    if (kind >= OBJECT && kind <= NUMBER && (about[kind] & weir__schema_type_of(value)) == 0) return YES;
    if (!weir__schema_spend(w, steps_of(given))) return UNCLEAR;
    if (json_is_number(given) && weir__schema_bound_sign(keyword) != 0)
        return verdict_of(weir__schema_within_bounds(value, schema));
    switch (kind) {
    case GENERAL: return judge_general(w, schema, keyword, given, value, depth);
    case OBJECT: return judge_object(w, schema, keyword, given, value, depth);
    case ARRAY: return judge_array(w, schema, keyword, given, value, depth);
    case STRING: return judge_string(w, keyword, given, value);
    case NUMBER: return judge_number(keyword, given, value);
    default: return UNCLEAR;
    }
}

static verdict judge_noting(weir__schema_walk *w, const json_t *schema, const json_t *value, int depth,
                            const char **unclear)
{
    const char *keyword;
    json_t *given;
    verdict v = YES;
    if (depth > DEPTH_MAX || !weir__schema_spend(w, 8 + steps_of(value))) return UNCLEAR;
    if (json_object_get(schema, "$ref") != NULL) {
        if (w->hides) return UNCLEAR; /* it is not known what counts */
        schema = weir__schema_dereference(w, schema);
    }
    if (json_is_boolean(schema)) return verdict_of(json_is_true(schema));
    if (!json_is_object(schema) || !weir__schema_spend(w, json_object_size(schema))) return UNCLEAR;
    json_object_foreach((json_t *)schema, keyword, given)
    {
        if (v == NO || w->status != WEIR_OK) break;
        const verdict one = judge_keyword(w, schema, keyword, given, value, depth + 1);
        if (one == UNCLEAR && unclear != NULL && *unclear == NULL) *unclear = keyword;
        v = both(v, one);
    }
    return w->status == WEIR_OK ? v : UNCLEAR;
}

verdict weir__schema_judge(weir__schema_walk *w, const json_t *schema, const json_t *value,
                           const char **unclear)
{
    if (unclear != NULL) *unclear = NULL;
    return judge_noting(w, schema, value, 0, unclear);
}
