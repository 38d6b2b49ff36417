/* schema_object.c: objects and their properties.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A property is listed by its name, in `properties` or `required`, or it is another one. Names of others are
 * divided by the patterns of patternProperties that they match, and the values of each part satisfy the
 * schemas of these patterns, or additionalProperties. */
#include "grammar/schema_walk.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/pattern.h"
#include "grammar/regular.h"

/* Each doubles the number of classes of names. */
#define PATTERNS_MAX 6

/* Places of one object whose properties are counted: see schema_members.c. */
#define COUNTED_MAX 4000

typedef struct object {
    weir__schema_walk *w;
    const json_t *schema;
    json_t *others; /* what additionalProperties says; NULL: anything */
    json_t *names;  /* patterns of all names, an array of strings, or null: there are none; NULL: any */
    struct pattern {
        char *text; /* rewritten */
        json_t *schema;
    } patterns[PATTERNS_MAX];
    size_t n_patterns;
    json_t *known; /* all listed names, even those that nothing satisfies */
    bool closed;   /* no others but those of patterns */
    bool narrowed; /* others are left out, because their names would make the grammar too large */
} object;

/* ---- Names ---- */

/* "^…$" of the names. */
static char *pattern_of_names(weir__schema_walk *w, const json_t *names)
{
    weir__text text = {0};
    const char *name, *before = "^(";
    json_t *value;
    json_object_foreach((json_t *)names, name, value)
    {
        weir__text_add_string(&text, before);
        weir__regular_add_name(&text, name);
        before = "|";
    }
    weir__text_add_string(&text, ")$");
    if (!text.failed) return text.bytes;
    weir__text_fini(&text);
    weir__schema_no_memory(w);
    return NULL;
}

/* Says if the text matches the rewritten pattern. UNCLEAR: it has a control character, or a failure. */
static enum weir__schema_verdict match(weir__schema_walk *w, const char *name, const char *pattern)
{
    weir__text text = {0};
    /* Rewritten patterns match no character that only \u can write in JSON, and no DEL. */
    for (const char *c = name; *c != '\0'; c++)
        if (((unsigned char)*c < 0x20 && strchr("\b\t\n\f\r", *c) == NULL) || *c == 0x7F)
            return WEIR__SCHEMA_UNCLEAR;
    weir__text_add_string(&text, "^");
    weir__regular_add_name(&text, name);
    weir__text_add_string(&text, "$");
    const weir__regular_part parts[] = {{text.bytes, false}, {pattern, false}};
    const size_t elements = w->work->elements;
    bool too_large = false;
    w->work->elements = WEIR__SCHEMA_ELEMENTS_MAX; /* no grammar gets this automaton */
    json_t *both =
        text.failed ? weir__schema_no_memory(w) : weir__schema_product(w, "pattern", parts, 2, &too_large);
    w->work->elements = elements;
    const bool matches = both != NULL && !json_is_false(both);
    json_decref(both);
    weir__text_fini(&text);
    if (too_large || w->status != WEIR_OK) return WEIR__SCHEMA_UNCLEAR;
    return matches ? WEIR__SCHEMA_SATISFIED : WEIR__SCHEMA_VIOLATED;
}

/* True if the name matches the pattern, which is the keyword's; false also after a failure. */
static bool matches_pattern(weir__schema_walk *w, const char *name, const char *keyword, const char *pattern)
{
    const enum weir__schema_verdict v = match(w, name, pattern);
    if (v == WEIR__SCHEMA_UNCLEAR)
        weir__schema_refuse(w, keyword,
                            "a listed name has a control character, or is too long, so that it cannot be "
                            "applied");
    return v == WEIR__SCHEMA_SATISFIED;
}

enum weir__schema_verdict weir__schema_match(weir__schema_walk *w, const char *pattern, const char *text)
{
    char *rewritten = NULL;
    uint64_t shortest, longest;
    if (weir__pattern_may_narrow(pattern) ||
        !weir__schema_spend(w, strnlen(pattern, WEIR__PATTERN_BYTES_MAX) / 4 + 1))
        return WEIR__SCHEMA_UNCLEAR;
    const char *why = weir__pattern_rewrite(pattern, &rewritten, &shortest, &longest);
    if (why == weir__pattern_no_memory) weir__schema_no_memory(w);
    if (why != NULL) return WEIR__SCHEMA_UNCLEAR;
    const enum weir__schema_verdict v = match(w, text, rewritten);
    weir__mem_free(rewritten);
    return v;
}

bool weir__schema_rewrite_pattern(weir__schema_walk *w, const char *keyword, const char *pattern, char **text)
{
    uint64_t shortest, longest;
    if (weir__pattern_may_narrow(pattern))
        return weir__schema_refuse(w, keyword, "'%.80s' has counts above 999", pattern) != NULL;
    if (!weir__schema_spend(w, strnlen(pattern, WEIR__PATTERN_BYTES_MAX) / 4 + 1)) return false;
    const char *why = weir__pattern_rewrite(pattern, text, &shortest, &longest);
    if (why == weir__pattern_no_memory) return weir__schema_no_memory(w) != NULL;
    return why == NULL || weir__schema_refuse(w, keyword, "%s", why) != NULL;
}

bool weir__schema_matches(weir__schema_walk *w, const json_t *patterns, const char *name)
{
    const char *pattern;
    json_t *schema;
    bool any = false;
    json_object_foreach((json_t *)patterns, pattern, schema)
    {
        char *text = NULL;
        if (any || !weir__schema_rewrite_pattern(w, "patternProperties", pattern, &text)) break;
        any = matches_pattern(w, name, "patternProperties", text);
        weir__mem_free(text);
    }
    return any;
}

/* Adds the strings of a rewritten schema, as alternatives. */
static void add_strings(weir__schema_walk *w, weir__text *text, const json_t *schema, int depth)
{
    const json_t *defined = weir__schema_defined(w, schema);
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *list = json_object_get(schema, "anyOf"), *values = json_object_get(schema, "enum");
    if (depth > 8 || !json_is_object(schema) || json_object_get(schema, WEIR__SCHEMA_STATES) != NULL) {
        weir__schema_refuse(w, "propertyNames", "names are described in too complex a way");
        return;
    }
    if (defined != schema) {
        add_strings(w, text, defined, depth + 1);
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        add_strings(w, text, json_array_get(list, i), depth + 1);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const char *value = json_string_value(json_array_get(values, i));
        if (value == NULL) continue;
        weir__text_add_string(text, text->n > 0 ? "|(" : "(");
        weir__regular_add_name(text, value);
        weir__text_add_string(text, ")");
    }
    if (list != NULL || values != NULL || (type != NULL && strcmp(type, "string") != 0)) return;
    char *any = NULL;
    if (pattern == NULL && weir__schema_rewrite_pattern(w, "propertyNames", "^[^]*$", &any)) pattern = any;
    if (pattern != NULL) {
        weir__text_add_string(text, text->n > 0 ? "|" : "");
        weir__text_add(text, pattern + 1, strlen(pattern) - 2);
    }
    weir__mem_free(any);
}

/* Reads propertyNames into o->names. False: a failure. */
static bool read_names(object *o)
{
    weir__schema_walk *w = o->w;
    json_t *names = json_object_get(o->schema, "propertyNames");
    weir__text text = {0};
    if (names == NULL || json_is_true(names)) return true;
    json_t *string = weir__schema_pack(w, "{s:s}", "type", "string");
    json_t *both = string != NULL ? weir__schema_both(w, names, string) : NULL;
    json_t *made = both != NULL ? weir__schema_below(w, "propertyNames", NULL, both, true) : NULL;
    const json_t *target = made, *defined;
    while ((defined = weir__schema_defined(w, target)) != target) target = defined;
    json_t *patterns = json_object_get(target, WEIR__SCHEMA_PATTERNS);
    if (made != NULL && !json_is_false(made) && patterns == NULL) add_strings(w, &text, target, 0);
    if (text.failed) weir__schema_no_memory(w);
    if (w->status == WEIR_OK)
        o->names = weir__schema_made(w, patterns != NULL ? json_incref(patterns)
                                        : text.n > 0 ? json_pack("[o]", json_sprintf("^(%s)$", text.bytes))
                                                     : json_null());
    weir__text_fini(&text);
    json_decref(made);
    json_decref(both);
    json_decref(string);
    return w->status == WEIR_OK;
}

static bool read_patterns(object *o)
{
    json_t *given = json_object_get(o->schema, "patternProperties"), *schema;
    const char *pattern;
    if (given != NULL && !json_is_object(given))
        return weir__schema_refuse_finally(o->w, "patternProperties", "it must be an object") != NULL;
    if (json_object_size(given) > PATTERNS_MAX)
        return weir__schema_refuse(o->w, "patternProperties", "at most %d patterns are supported",
                                   PATTERNS_MAX) != NULL;
    json_object_foreach(given, pattern, schema)
    {
        struct pattern *one = &o->patterns[o->n_patterns];
        if (!weir__schema_rewrite_pattern(o->w, "patternProperties", pattern, &one->text)) return false;
        one->schema = schema;
        o->n_patterns++;
    }
    return true;
}

/* ---- Listed properties ---- */

/* Both schemas; takes over the first, which may be NULL: none yet. */
static json_t *conjunction(weir__schema_walk *w, json_t *first, json_t *second)
{
    json_t *both = first != NULL ? weir__schema_both(w, first, second) : json_incref(second);
    json_decref(first);
    return both;
}

/* The schema of a listed property, with those of patterns that its name matches; `false`: propertyNames does
 * not allow the name. given NULL: only `required` names it. */
static json_t *listed_schema(object *o, const char *name, json_t *given)
{
    json_t *whole = json_incref(given);
    bool allowed = !json_is_null(o->names);
    for (size_t i = 0; i < json_array_size(o->names) && allowed; i++)
        allowed =
            matches_pattern(o->w, name, "propertyNames", json_string_value(json_array_get(o->names, i)));
    if (!allowed) {
        json_decref(whole);
        return json_false();
    }
    for (size_t i = 0; i < o->n_patterns && o->w->status == WEIR_OK; i++)
        if (matches_pattern(o->w, name, "patternProperties", o->patterns[i].text))
            whole = conjunction(o->w, whole, o->patterns[i].schema);
    if (whole == NULL) whole = o->others != NULL ? json_incref(o->others) : json_true();
    return whole;
}

/* Adds a property to the result's properties and, perhaps, to its required ones. False: it is required and
 * nothing satisfies it, or a refusal. */
static bool add_property(object *o, const char *name, json_t *given, bool is_required, json_t *listed,
                         json_t *required)
{
    weir__schema_walk *w = o->w;
    if (strlen(name) > WEIR__SCHEMA_NAME_MAX)
        weir__schema_refuse(w, "properties", "the name '%.40s...' has more than 256 bytes", name);
    if (strcmp(name, "*") == 0) weir__schema_refuse(w, "properties", "a property cannot be named '*'");
    if (!weir__schema_take(w, "properties", strlen(name) + 20)) return false;
    json_t *property = listed_schema(o, name, given);
    json_t *one = w->status == WEIR_OK ? weir__schema_below(w, "properties", name, property, true) : NULL;
    json_decref(property);
    if (json_is_false(one)) return !is_required;
    return weir__schema_set(w, listed, name, one) &&
           (!is_required || weir__schema_append(w, required, json_string(name)));
}

/* Adds the properties that `properties` and `required` name. False: nothing satisfies one that is required,
 * or a refusal. */
static bool add_properties(object *o, json_t *listed, json_t *required)
{
    json_t *given = json_object_get(o->schema, "properties"), *property;
    const json_t *asked = json_object_get(o->schema, "required");
    const size_t n_asked = json_array_size(asked);
    const char *name;
    bool possible = true;
    o->known = weir__schema_made(o->w, json_object());
    json_object_foreach(given, name, property)
    {
        if (!weir__schema_spend(o->w, n_asked / 2) || !weir__schema_set(o->w, o->known, name, json_true()))
            break;
    }
    for (size_t i = 0; i < n_asked && weir__schema_spend(o->w, 1); i++)
        weir__schema_set(o->w, o->known, json_string_value(json_array_get(asked, i)), json_true());
    if (json_object_size(o->known) > WEIR__SCHEMA_PROPERTIES_MAX)
        weir__schema_refuse(o->w, "properties", "an object can have at most %d", WEIR__SCHEMA_PROPERTIES_MAX);
    json_object_foreach(o->known, name, property)
    {
        if (o->w->status != WEIR_OK || !weir__schema_spend(o->w, n_asked / 2)) break;
        possible &= add_property(o, name, json_object_get(given, name),
                                 weir__schema_is_required(o->schema, name), listed, required);
    }
    return possible;
}

/* ---- Other properties ---- */

/* The names of other properties that match the chosen patterns, a bit for each, and no others; `false`: there
 * are none. */
static json_t *other_names(object *o, unsigned chosen, const char *known)
{
    weir__regular_part parts[WEIR__REGULAR_PARTS_MAX];
    size_t n = 0;
    char *any = NULL;
    for (size_t i = 0; i < json_array_size(o->names); i++)
        parts[n++] = (weir__regular_part){json_string_value(json_array_get(o->names, i)), false};
    for (size_t i = 0; i < o->n_patterns; i++)
        parts[n++] = (weir__regular_part){o->patterns[i].text, (chosen >> i & 1) == 0};
    if (known != NULL) parts[n++] = (weir__regular_part){known, true};
    if (n == 0) return weir__schema_pack(o->w, "{s:s}", "type", "string");
    if (o->names == NULL && chosen == 0) {
        if (!weir__schema_rewrite_pattern(o->w, "patternProperties", "^[^]*$", &any)) return NULL;
        parts[n++] = (weir__regular_part){any, false};
    }
    json_t *made =
        weir__schema_product(o->w, o->n_patterns > 0 ? "patternProperties" : "additionalProperties", parts, n,
                             chosen == 0 ? &o->narrowed : NULL);
    weir__mem_free(any);
    return made;
}

/* The values of properties whose names match the chosen patterns. */
static json_t *other_values(object *o, unsigned chosen)
{
    json_t *whole = NULL;
    for (size_t i = 0; i < o->n_patterns && o->w->status == WEIR_OK; i++)
        if ((chosen >> i & 1) != 0) whole = conjunction(o->w, whole, o->patterns[i].schema);
    if (o->w->status != WEIR_OK) {
        json_decref(whole);
        return NULL;
    }
    if (whole == NULL && o->others == NULL) return weir__schema_made(o->w, json_object());
    const char *keyword = whole != NULL ? "patternProperties" : "additionalProperties";
    if (whole == NULL) whole = json_incref(o->others);
    json_t *made = weir__schema_below(o->w, keyword, NULL, whole, true);
    json_decref(whole);
    return made;
}

/* Pairs of names and values. */
static json_t *other_properties(object *o)
{
    json_t *pairs = weir__schema_made(o->w, json_array());
    char *known = json_object_size(o->known) > 0 ? pattern_of_names(o->w, o->known) : NULL;
    for (unsigned chosen = 0; chosen < 1u << o->n_patterns && o->w->status == WEIR_OK; chosen++) {
        const bool closed = chosen == 0 && (o->closed || json_is_false(o->others));
        if (closed || json_is_null(o->names)) continue;
        json_t *names = other_names(o, chosen, known);
        json_t *values = names != NULL && !json_is_false(names) ? other_values(o, chosen) : NULL;
        if (values == NULL || json_is_false(values)) {
            json_decref(names);
            json_decref(values);
            continue;
        }
        weir__schema_append(o->w, pairs, weir__schema_pack(o->w, "[o,o]", names, values));
    }
    weir__mem_free(known);
    return pairs;
}

/* ---- The whole ---- */

/* Sets the least and most properties, as far as the object does not imply them. False: nothing satisfies
 * them, or a refusal. */
static bool set_counts(object *o, json_t *result, bool open)
{
    weir__schema_walk *w = o->w;
    const size_t n = json_object_size(json_object_get(result, "properties"));
    const size_t n_required = json_array_size(json_object_get(result, "required"));
    uint64_t least = 0, most = UINT64_MAX;
    if (!weir__schema_count(w, o->schema, "minProperties", &least) ||
        !weir__schema_count(w, o->schema, "maxProperties", &most) || least > most || most < n_required)
        return false;
    if (least <= n_required) least = 0;
    if (least > n && !open && !o->narrowed && !w->relax) return false;
    if (least > n && !open && w->relax)
        return weir__schema_refuse(w, "minProperties", "it is more than the properties that are listed") !=
               NULL;
    if (least > n + open)
        return weir__schema_refuse(w, "minProperties",
                                   "a grammar cannot tell if names that are not listed differ, so it counts "
                                   "one of them at most") != NULL;
    const uint64_t places = (n + 1) * (least + 1), fit = COUNTED_MAX / places;
    if (!open && most >= n) most = UINT64_MAX;
    if (most < UINT64_MAX && most >= fit) most = fit > 0 ? fit - 1 : 0;
    if (most < least || most < n_required || fit == 0)
        return weir__schema_refuse(w, most < UINT64_MAX ? "maxProperties" : "minProperties",
                                   "to count so many properties takes too large a grammar") != NULL;
    if (least == 0 && most == UINT64_MAX) return true;
    weir__schema_take(w, most < UINT64_MAX ? "maxProperties" : "minProperties",
                      30 * places * (most < UINT64_MAX ? most + 1 : 1));
    if (least > 0) weir__schema_set(w, result, WEIR__SCHEMA_LEAST, json_integer((json_int_t)least));
    if (most != UINT64_MAX) weir__schema_set(w, result, WEIR__SCHEMA_MOST, json_integer((json_int_t)most));
    return w->status == WEIR_OK;
}

/* A map: any names, and values that satisfy one schema. */
static json_t *map(weir__schema_walk *w, json_t *values)
{
    if (json_object_size(values) > 0)
        return weir__schema_pack(w, "{s:s,s:O}", "type", "object", "additionalProperties", values);
    return weir__schema_pack(w, "{s:s}", "type", "object");
}

static json_t *make_object(object *o)
{
    weir__schema_walk *w = o->w;
    json_t *listed = json_object(), *required = json_array(), *pairs = NULL, *result = NULL;
    bool possible = read_names(o) && read_patterns(o) && add_properties(o, listed, required);
    if (possible && w->status == WEIR_OK) pairs = other_properties(o);
    const json_t *pair = json_array_get(pairs, 0), *names = json_array_get(pair, 0);
    const bool counted = json_object_get(o->schema, "minProperties") != NULL ||
                         json_object_get(o->schema, "maxProperties") != NULL;
    if (json_array_size(pairs) == 1 && json_object_size(o->known) == 0 && !counted &&
        json_object_get(names, WEIR__SCHEMA_STATES) == NULL && json_object_get(names, "pattern") == NULL) {
        result = map(w, json_array_get(pair, 1));
    } else if (possible && w->status == WEIR_OK) {
        result = weir__schema_pack(w, "{s:s,s:O,s:O}", "type", "object", "properties", listed, "required",
                                   required);
        const bool open = json_array_size(pairs) > 0;
        possible = set_counts(o, result, open);
        if (open)
            weir__schema_set(w, result, WEIR__SCHEMA_OTHERS, json_incref(pairs));
        else
            weir__schema_set(w, result, "additionalProperties", json_false());
    }
    json_decref(pairs);
    json_decref(required);
    json_decref(listed);
    if (w->status == WEIR_OK && possible) return weir__schema_made(w, result);
    json_decref(result);
    return w->status == WEIR_OK ? json_false() : NULL;
}

/* The schema with the properties that a list of all names adds to those that it has, and no others. */
static json_t *with_names(weir__schema_walk *w, const json_t *schema, const json_t *list)
{
    const json_t *given = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const size_t n = json_array_size(required);
    json_t *others = json_object_get(schema, "additionalProperties");
    if (others == NULL) others = json_object_get(schema, "unevaluatedProperties");
    json_t *properties = json_object(), *less = weir__schema_without(w, schema, "propertyNames"), *value;
    const char *key;
    if (!weir__schema_spend(w, json_object_size(given) * (json_array_size(list) + 1))) given = list = NULL;
    json_object_foreach((json_t *)given, key, value)
    {
        json_t *name = json_string(key);
        const bool allowed = weir__schema_has_value(list, name);
        json_decref(name);
        weir__schema_set(w, properties, key, allowed ? json_incref(value) : json_false());
    }
    /* Required properties come first, in their order. */
    for (size_t i = 0; i < n + json_array_size(list); i++) {
        const char *name =
            json_string_value(i < n ? json_array_get(required, i) : json_array_get(list, i - n));
        if (name == NULL || json_object_get(properties, name) != NULL ||
            json_object_get(given, name) != NULL || (w->relax && given != NULL))
            continue;
        weir__schema_set(w, properties, name, others != NULL ? json_incref(others) : json_true());
    }
    weir__schema_set(w, less, "properties", properties);
    weir__schema_set(w, less, "additionalProperties", json_false());
    return less;
}

/* True if propertyNames is a list of names and nothing else. */
static bool lists_names(const json_t *schema)
{
    static const char *const list_alone[] = {"type", "enum", NULL}, *const strings[] = {"type", NULL};
    const json_t *names = json_object_get(schema, "propertyNames");
    const char *type = json_string_value(json_object_get(names, "type"));
    return json_is_array(json_object_get(names, "enum")) &&
           weir__schema_other_constraint(names, list_alone) == NULL &&
           (!weir__schema_has_any(names, strings) || (type != NULL && strcmp(type, "string") == 0)) &&
           json_object_get(schema, "patternProperties") == NULL;
}

/* An object whose names are listed. */
static json_t *named_object(weir__schema_walk *w, const json_t *schema)
{
    const json_t *list = json_object_get(json_object_get(schema, "propertyNames"), "enum");
    const json_t *required = json_object_get(schema, "required");
    if (!weir__schema_spend(w, json_array_size(required) * (json_array_size(list) + 1) / 4)) return NULL;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!weir__schema_has_value(list, json_array_get(required, i))) return json_false();
    json_t *less = with_names(w, schema, list);
    json_t *result = w->status == WEIR_OK ? weir__schema_object(w, less) : NULL;
    json_decref(less);
    return result;
}

/* True if a property of this name may satisfy the condition. */
static bool is_beyond(weir__schema_walk *w, const json_t *condition, const char *name)
{
    const json_t *only = json_object_get(condition, "only");
    if (only != NULL) return weir__schema_matches(w, only, name);
    return json_object_get(json_object_get(condition, "names"), name) == NULL &&
           !weir__schema_matches(w, json_object_get(condition, "patterns"), name);
}

/* The schema whose objects have a property of this name that satisfies the first of its conditions. */
static json_t *with_property(weir__schema_walk *w, const json_t *schema, const char *name)
{
    const json_t *conditions = json_object_get(schema, WEIR__SCHEMA_BEYOND);
    json_t *value = json_object_get(json_array_get(conditions, 0), "value");
    json_t *whole = weir__schema_without(w, schema, WEIR__SCHEMA_BEYOND);
    json_t *given = json_object_get(schema, "properties"), *known = json_object_get(given, name);
    json_t *properties = given != NULL ? weir__json_copy(given) : json_object(), *rest = json_array();
    json_t *required = weir__schema_own_list(w, whole, "required");
    if (known == NULL)
        weir__schema_set(w, properties, name, json_incref(value));
    else if (!json_is_true(value))
        weir__schema_set(w, properties, name, weir__schema_both(w, known, value));
    weir__schema_set(w, whole, "properties", properties);
    if (!weir__schema_is_required(whole, name)) weir__schema_append(w, required, json_string(name));
    for (size_t i = 1; i < json_array_size(conditions); i++)
        weir__schema_append(w, rest, json_incref(json_array_get(conditions, i)));
    if (json_array_size(rest) > 0)
        weir__schema_set(w, whole, WEIR__SCHEMA_BEYOND, rest);
    else
        json_decref(rest);
    return weir__schema_made(w, whole);
}

/* The most properties of an object of which one must be there. */
#define BEYOND_MAX 32

/* The objects of the schema that satisfy its conditions: an alternative for each listed property that may
 * satisfy the first. Properties that are not listed are left out. */
static json_t *objects_beyond(weir__schema_walk *w, const json_t *schema)
{
    const json_t *condition = json_array_get(json_object_get(schema, WEIR__SCHEMA_BEYOND), 0);
    const json_t *given = json_object_get(schema, "properties"),
                 *others = json_object_get(schema, "required");
    json_t *names = weir__schema_made(w, json_object()), *list = json_array(), *value;
    const char *name, *keyword = json_string_value(json_object_get(condition, "keyword"));
    json_object_foreach((json_t *)given, name, value)
    {
        if (!json_is_false(value)) weir__schema_set(w, names, name, json_true());
    }
    /* Listing a name that only `required` has would exempt it from additionalProperties. */
    const bool any = json_object_get(schema, "additionalProperties") == NULL &&
                     json_object_get(schema, "unevaluatedProperties") == NULL;
    for (size_t i = 0; i < json_array_size(others) && any; i++)
        weir__schema_set(w, names, json_string_value(json_array_get(others, i)), json_true());
    json_object_foreach(names, name, value)
    {
        if (w->status != WEIR_OK || !is_beyond(w, condition, name)) continue;
        if (json_array_size(list) == BEYOND_MAX)
            weir__schema_refuse(w, keyword, "too many properties may differ");
        json_t *whole = with_property(w, schema, name);
        json_t *one = whole != NULL ? weir__schema_object(w, whole) : NULL;
        json_decref(whole);
        if (!json_is_false(one)) weir__schema_append(w, list, one);
    }
    json_decref(names);
    if (w->status == WEIR_OK && json_array_size(list) == 0 && !weir__schema_is_made_closed(w, schema))
        weir__schema_refuse(w, keyword, "only properties that are not listed would contradict the schema");
    return weir__schema_any_of(w, list);
}

json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
    object o = {.w = w, .schema = schema, .others = json_object_get(schema, "additionalProperties")};
    if (properties != NULL && !json_is_object(properties))
        return weir__schema_refuse_finally(w, "properties", "it must be an object");
    if (required != NULL && !json_is_array(required))
        return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
            return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    }
    if (o.others != NULL && !json_is_object(o.others) && !json_is_boolean(o.others))
        return weir__schema_refuse_finally(w, "additionalProperties", "it must be a schema or a boolean");
    if (json_object_get(schema, WEIR__SCHEMA_BEYOND) != NULL) return objects_beyond(w, schema);
    /* additionalProperties evaluates all others. */
    if (o.others == NULL && unevaluated != NULL) o.others = unevaluated;
    o.closed = w->relax && (properties != NULL || json_array_size(required) > 0 ||
                            (o.others == NULL && json_object_get(schema, "patternProperties") != NULL));
    if (lists_names(schema)) return named_object(w, schema);
    json_t *result = make_object(&o);
    for (size_t i = 0; i < o.n_patterns; i++) weir__mem_free(o.patterns[i].text);
    json_decref(o.known);
    json_decref(o.names);
    return result;
}
