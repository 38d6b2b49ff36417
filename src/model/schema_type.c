/* schema_type.c: what each type can be restricted to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/schema_walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/pattern.h"

/* The converter's integers have at most 16 digits. */
#define INTEGER_MAX INT64_C(9999999999999999)

/* ---- Values ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The most of the texts [n], sorted, that go on differently after the same beginning. Beginnings are told
 * apart by their length, since in this order one ends before the next of its length begins. */
static size_t most_forks(const char *const *texts, size_t n, size_t *forks, size_t longest)
{
    size_t most = 1;
    for (size_t i = 0; i <= longest; i++) forks[i] = 1;
    for (size_t i = 1; i < n; i++) {
        size_t alike = 0;
        while (texts[i][alike] != '\0' && texts[i][alike] == texts[i - 1][alike]) alike++;
        /* to the beginning of a character */
        while (alike > 0 && ((unsigned char)texts[i][alike] & 0xC0) == 0x80) alike--;
        for (size_t k = alike + 1; k <= strlen(texts[i - 1]); k++) forks[k] = 1;
        if (++forks[alike] > most) most = forks[alike];
    }
    return most;
}

/* Whether so many values go on differently at one place that not all of them could be followed. */
static bool check_forks(weir__schema_walk *w, const json_t *list)
{
    size_t n = json_array_size(list), longest = 0, n_texts = 0;
    if (n <= WEIR__SCHEMA_FORKS_MAX) return true;
    char **texts = weir__mem_calloc(n, sizeof *texts);
    while (texts != NULL && n_texts < n) {
        texts[n_texts] = weir__json_dump(json_array_get(list, n_texts));
        if (texts[n_texts] == NULL) break;
        size_t length = strlen(texts[n_texts++]);
        if (length > longest) longest = length;
    }
    size_t *forks = n_texts == n ? weir__mem_calloc(longest + 1, sizeof *forks) : NULL;
    bool ok = forks != NULL || weir__schema_no_memory(w) != NULL;
    if (ok) {
        qsort(texts, n, sizeof *texts, compare_texts);
        size_t most = most_forks((const char *const *)texts, n, forks, longest);
        ok = most <= WEIR__SCHEMA_FORKS_MAX ||
             weir__schema_refuse(
                 w, "enum",
                 "%zu of its values go on differently after the same beginning; at most %d can "
                 "be told apart at one place",
                 most, WEIR__SCHEMA_FORKS_MAX) != NULL;
    }
    weir__mem_free(forks);
    while (n_texts > 0) weir__mem_free(texts[--n_texts]);
    weir__mem_free(texts);
    return ok;
}

/* const and enum: the values that `type` allows. */
json_t *weir__schema_values(weir__schema_walk *w, const json_t *schema)
{
    static const char *const allowed[] = {"const", "enum", "type", NULL};
    const json_t *given = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    const char *other = weir__schema_other_constraint(schema, allowed);
    unsigned types = weir__schema_declared_types(w, schema);
    if (types == 0) return NULL;
    if (other != NULL)
        return weir__schema_refuse(
            w, other, "it stands beside %s, which would win; leave out the values it excludes instead",
            given != NULL ? "enum" : "const");
    if (given != NULL && (!json_is_array(given) || json_array_size(given) == 0))
        return weir__schema_refuse(w, "enum", "it must be an array of values, and not empty");
    size_t n = given != NULL ? json_array_size(given) : 1;
    if (!weir__schema_spend(w, n)) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < n; i++) {
        json_t *value = given != NULL ? json_array_get(given, i) : (json_t *)only;
        if ((weir__schema_type_of(value) & types) == 0 ||
            (given != NULL && only != NULL && !json_equal(value, only)))
            continue;
        if (!weir__schema_take(w, given != NULL ? "enum" : "const",
                               json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 2)) {
            json_decref(list);
            return NULL;
        }
        if (json_array_append(list, value) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    if (list == NULL) return weir__schema_no_memory(w);
    if (json_array_size(list) == 0 || !check_forks(w, list)) {
        json_decref(list);
        return w->status == WEIR_OK ? json_false() : NULL;
    }
    json_t *result = json_pack("{s:o}", "enum", list);
    return result != NULL ? result : weir__schema_no_memory(w);
}

/* ---- Numbers ---- */

/* Reads one bound into *bound when it is tighter. sign: +1 for a lower bound, -1 for an upper one. */
static bool integer_bound(weir__schema_walk *w, const json_t *schema, const char *keyword, bool exclusive,
                          int sign, int64_t *bound)
{
    const json_t *value = json_object_get(schema, keyword);
    if (value == NULL) return true;
    if (!json_is_number(value)) return weir__schema_refuse(w, keyword, "it must be a number") != NULL;
    /* Mirrored for upper bounds, so that both are "at least". */
    double d = sign * json_number_value(value);
    int64_t least;
    if (fabs(d) > (double)INTEGER_MAX)
        least = d > 0 ? INTEGER_MAX + 1 : -INTEGER_MAX;
    else if (json_is_integer(value))
        least = sign * (int64_t)json_integer_value(value) + exclusive;
    else
        least = (int64_t)(exclusive ? floor(d) + 1 : ceil(d));
    if (least > sign * *bound) *bound = sign * least;
    return true;
}

json_t *weir__schema_integer(weir__schema_walk *w, const json_t *schema)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", NULL};
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const json_t *below_minimum = json_object_get(schema, "exclusiveMinimum");
    const json_t *above_maximum = json_object_get(schema, "exclusiveMaximum");
    const char *format = json_string_value(json_object_get(schema, "format"));
    int64_t low = -INTEGER_MAX, high = INTEGER_MAX;
    bool bounded = weir__schema_has_any(schema, bounds);

    if (multiple != NULL && !(json_is_number(multiple) && json_number_value(multiple) == 1))
        return weir__schema_refuse(w, "multipleOf", "a grammar cannot divide; only 1 is honoured");
    if (format != NULL && strcmp(format, "int32") == 0) {
        bounded = true;
        low = INT32_MIN;
        high = INT32_MAX;
    } else if (format != NULL && strcmp(format, "int64") != 0) {
        return weir__schema_refuse(w, "format", "'%.40s' is not known for integers; honoured: int32, int64",
                                   format);
    }
    /* Draft 4 says with a boolean that the other bound is exclusive. */
    if (!integer_bound(w, schema, "minimum", json_is_true(below_minimum), 1, &low) ||
        !integer_bound(w, schema, "maximum", json_is_true(above_maximum), -1, &high))
        return NULL;
    if (!json_is_boolean(below_minimum) && !integer_bound(w, schema, "exclusiveMinimum", true, 1, &low))
        return NULL;
    if (!json_is_boolean(above_maximum) && !integer_bound(w, schema, "exclusiveMaximum", true, -1, &high))
        return NULL;
    if (low > INTEGER_MAX || high < -INTEGER_MAX)
        return weir__schema_refuse(w, low > INTEGER_MAX ? "minimum" : "maximum",
                                   "integers of more than 16 digits cannot be made");
    if (low > high) return json_false();
    /* The converter is right about two bounds, about a lower one up to 9 and about an upper one from 0; about
     * others it is not, and a lower bound of 105 lets it make 15. */
    json_t *result = json_pack("{s:s}", "type", "integer");
    bool ok = result != NULL;
    bool lower = bounded && (low > -INTEGER_MAX || high < 0);
    bool upper = bounded && (high < INTEGER_MAX || low > 9);
    if (ok && lower) ok = json_object_set_new(result, "minimum", json_integer(low)) == 0;
    if (ok && upper) ok = json_object_set_new(result, "maximum", json_integer(high)) == 0;
    if (ok) return result;
    json_decref(result);
    return weir__schema_no_memory(w);
}

json_t *weir__schema_number(weir__schema_walk *w, const json_t *schema)
{
    static const char *const bounds[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf", NULL};
    const char *format = json_string_value(json_object_get(schema, "format"));
    for (size_t i = 0; bounds[i] != NULL; i++)
        if (json_object_get(schema, bounds[i]) != NULL)
            return weir__schema_refuse(w, bounds[i],
                                       "a grammar cannot compare fractions; type integer can have bounds");
    if (format != NULL && strcmp(format, "float") != 0 && strcmp(format, "double") != 0)
        return weir__schema_refuse(w, "format", "'%.40s' is not known for numbers; honoured: float, double",
                                   format);
    json_t *result = json_pack("{s:s}", "type", "number");
    return result != NULL ? result : weir__schema_no_memory(w);
}

/* ---- Strings ---- */

/* A count such as minItems. False after a refusal. */
static bool count(weir__schema_walk *w, const json_t *schema, const char *keyword, uint64_t *value)
{
    const json_t *given = json_object_get(schema, keyword);
    if (given == NULL) return true;
    double d = json_number_value(given);
    if (!json_is_number(given) || d < 0 || floor(d) != d)
        return weir__schema_refuse(w, keyword, "it must be an integer of at least 0") != NULL;
    *value = d > 1e15 ? UINT64_C(1000000000000000) : (uint64_t)d;
    return true;
}

static json_t *pattern_schema(weir__schema_walk *w, char *pattern, const char *keyword)
{
    if (!weir__schema_take(w, keyword, weir__pattern_elements(pattern))) {
        weir__mem_free(pattern);
        return NULL;
    }
    json_t *result = json_pack("{s:s,s:s}", "type", "string", "pattern", pattern);
    weir__mem_free(pattern);
    return result != NULL ? result : weir__schema_no_memory(w);
}

static json_t *string_of_length(weir__schema_walk *w, uint64_t least, uint64_t most)
{
    char *pattern = NULL;
    if (least > most) return json_false();
    if (most == 0) {
        json_t *result = json_pack("{s:[s]}", "enum", "");
        return result != NULL ? result : weir__schema_no_memory(w);
    }
    const char *why = weir__pattern_of_length(least, most, &pattern);
    if (why == weir__pattern_no_memory) return weir__schema_no_memory(w);
    if (why != NULL) return weir__schema_refuse(w, "minLength", "%s", why);
    return pattern_schema(w, pattern, most != WEIR__PATTERN_ENDLESS ? "maxLength" : "minLength");
}

json_t *weir__schema_string(weir__schema_walk *w, const json_t *schema)
{
    static const char *const formats[] = {"date", "time", "date-time", "uuid"};
    static const char *const lengths[] = {"minLength", "maxLength", NULL};
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    uint64_t least = 0, most = WEIR__PATTERN_ENDLESS;

    if (!count(w, schema, "minLength", &least) || !count(w, schema, "maxLength", &most)) return NULL;
    if (format != NULL) {
        const char *name = json_string_value(format);
        size_t i = 0;
        while (name != NULL && i < sizeof formats / sizeof *formats && strcmp(formats[i], name) != 0) i++;
        if (name == NULL || i == sizeof formats / sizeof *formats)
            return weir__schema_refuse(
                w, "format",
                "'%.40s' is not known for strings; honoured: date, time, date-time, uuid; "
                "write others as a pattern",
                name != NULL ? name : "(no string)");
        if (pattern != NULL || weir__schema_has_any(schema, lengths))
            return weir__schema_refuse(w, "format", "it stands beside %s; only one of them can be honoured",
                                       pattern != NULL ? "pattern" : "a length");
        json_t *result = json_pack("{s:s,s:s}", "type", "string", "format", name);
        return result != NULL ? result : weir__schema_no_memory(w);
    }
    if (pattern != NULL) {
        char *rewritten = NULL;
        uint64_t shortest = 0, longest = 0;
        if (!json_is_string(pattern)) return weir__schema_refuse(w, "pattern", "it must be a string");
        const char *why = weir__pattern_rewrite(json_string_value(pattern), json_string_length(pattern),
                                                &rewritten, &shortest, &longest);
        if (why == weir__pattern_no_memory) return weir__schema_no_memory(w);
        if (why != NULL)
            return weir__schema_refuse(w, "pattern", "'%.80s': %s", json_string_value(pattern), why);
        if (shortest < least || longest > most) {
            weir__mem_free(rewritten);
            return weir__schema_refuse(
                w, shortest < least ? "minLength" : "maxLength",
                "it stands beside pattern, which matches %s strings; write the length into the pattern",
                shortest < least ? "shorter" : "longer");
        }
        return pattern_schema(w, rewritten, "pattern");
    }
    if (least > 0 || most != WEIR__PATTERN_ENDLESS) return string_of_length(w, least, most);
    json_t *result = json_pack("{s:s}", "type", "string");
    return result != NULL ? result : weir__schema_no_memory(w);
}

/* ---- Arrays ---- */

/* Exactly the items that prefixItems lists, as far as maxItems allows. */
static json_t *tuple(weir__schema_walk *w, const json_t *prefix, const char *keyword, uint64_t least,
                     uint64_t most)
{
    size_t n = json_array_size(prefix);
    if (most < n) n = (size_t)most;
    json_t *items = json_array();
    if (items == NULL) return weir__schema_no_memory(w);
    for (size_t i = 0; i < n; i++) {
        json_t *item = weir__schema_below_index(w, keyword, i, json_array_get(prefix, i), true);
        if (item == NULL || (!json_is_false(item) && json_array_append_new(items, item) != 0)) {
            json_decref(items);
            return item == NULL ? NULL : weir__schema_no_memory(w);
        }
        if (json_is_false(item)) n = i; /* no array reaches beyond it */
    }
    if (least > n) {
        json_decref(items);
        return weir__schema_refuse(w, "minItems", "it asks for more items than %s gives", keyword);
    }
    json_t *result = n == 0 ? json_pack("{s:[[]]}", "enum")
                            : json_pack("{s:s,s:O}", "type", "array", "prefixItems", items);
    json_decref(items);
    return result != NULL ? result : weir__schema_no_memory(w);
}

json_t *weir__schema_array(weir__schema_walk *w, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedItems");
    uint64_t least = 0, most = UINT64_MAX;
    json_t *item, *result;

    if (!count(w, schema, "minItems", &least) || !count(w, schema, "maxItems", &most)) return NULL;
    if (least > most) return json_false();
    if (prefix != NULL && !json_is_array(prefix))
        return weir__schema_refuse(w, "prefixItems", "it must be an array of schemas");
    bool listed = prefix != NULL || json_is_array(items);
    if (!json_is_false(json_object_get(schema, "uniqueItems")) &&
        json_object_get(schema, "uniqueItems") != NULL && most > 1)
        return weir__schema_refuse(w, "uniqueItems",
                                   "a grammar cannot compare items; only false is honoured, or at most one "
                                   "item");
    if (unevaluated != NULL && !json_is_true(unevaluated) && !(json_is_false(unevaluated) && listed))
        return weir__schema_refuse(w, "unevaluatedItems", "only false beside prefixItems is honoured");
    if (listed) return tuple(w, prefix ? prefix : items, prefix ? "prefixItems" : "items", least, most);

    item = items == NULL ? json_object() : weir__schema_below(w, "items", NULL, items, true);
    if (item == NULL) return items == NULL ? weir__schema_no_memory(w) : NULL;
    if (json_is_false(item)) most = 0;
    if (least > most) return json_false();
    if (most == 0) {
        json_decref(item);
        result = json_pack("{s:[[]]}", "enum");
        return result != NULL ? result : weir__schema_no_memory(w);
    }
    if (least > WEIR__SCHEMA_ITEMS_MAX) {
        json_decref(item);
        return weir__schema_refuse(w, "minItems", "at most %d items can be asked for",
                                   WEIR__SCHEMA_ITEMS_MAX);
    }
    if (most != UINT64_MAX && most > WEIR__SCHEMA_ITEMS_MAX) most = WEIR__SCHEMA_ITEMS_MAX;
    if (!weir__schema_take(w, most != UINT64_MAX ? "maxItems" : "minItems",
                           4 * (most != UINT64_MAX ? most : least) + 4)) {
        json_decref(item);
        return NULL;
    }
    result = json_pack("{s:s,s:o}", "type", "array", "items", item);
    bool ok = result != NULL;
    if (ok && least > 0) ok = json_object_set_new(result, "minItems", json_integer((json_int_t)least)) == 0;
    if (ok && most != UINT64_MAX)
        ok = json_object_set_new(result, "maxItems", json_integer((json_int_t)most)) == 0;
    if (ok) return result;
    json_decref(result);
    return weir__schema_no_memory(w);
}

/* ---- Objects ---- */

/* Properties that are required but not listed join the listed ones, with the schema of the others. */
static json_t *all_properties(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    const json_t *given = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    json_t *properties = given != NULL ? json_copy((json_t *)given) : json_object();
    if (properties == NULL) return weir__schema_no_memory(w);
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (json_object_get(properties, name) != NULL) continue;
        int failed = others != NULL ? json_object_set(properties, name, (json_t *)others)
                                    : json_object_set_new(properties, name, json_true());
        if (failed) {
            json_decref(properties);
            return weir__schema_no_memory(w);
        }
    }
    return properties;
}

/* An object that holds these properties and no others. */
static json_t *closed_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    json_t *properties = NULL, *listed = json_object(), *required = json_array(), *result = NULL;
    uint64_t least = 0, most = UINT64_MAX;
    bool impossible = false;
    const char *name;
    json_t *property;

    if (listed == NULL || required == NULL) {
        weir__schema_no_memory(w);
        goto out;
    }
    if (!weir__schema_spend(w, json_array_size(json_object_get(schema, "required")))) goto out;
    if ((properties = all_properties(w, schema, others)) == NULL) goto out;
    if (json_object_size(properties) > WEIR__SCHEMA_PROPERTIES_MAX) {
        weir__schema_refuse(w, "properties", "an object can have at most %d", WEIR__SCHEMA_PROPERTIES_MAX);
        goto out;
    }
    json_object_foreach(properties, name, property)
    {
        if (strlen(name) > WEIR__SCHEMA_NAME_MAX || strcmp(name, "*") == 0) {
            weir__schema_refuse(w, "properties",
                                strcmp(name, "*") == 0 ? "a property cannot be named '%s'"
                                                       : "the name '%.40s...' has more than 256 bytes",
                                name);
            goto out;
        }
        if (!weir__schema_spend(w, json_array_size(json_object_get(schema, "required")) / 2) ||
            !weir__schema_take(w, "properties", strlen(name) + 20))
            goto out;
        json_t *one = weir__schema_below(w, "properties", name, property, true);
        if (one == NULL) goto out;
        if (json_is_false(one)) {
            impossible |= weir__schema_is_required(schema, name);
            continue;
        }
        if (json_object_set_new(listed, name, one) != 0 ||
            (weir__schema_is_required(schema, name) &&
             json_array_append_new(required, json_string(name)) != 0)) {
            weir__schema_no_memory(w);
            goto out;
        }
    }
    if (!count(w, schema, "minProperties", &least) || !count(w, schema, "maxProperties", &most)) goto out;
    if (least > json_array_size(required)) {
        weir__schema_refuse(w, "minProperties",
                            "fewer properties than that are required; list them in required");
    } else if (most < json_object_size(listed)) {
        weir__schema_refuse(w, "maxProperties", "more properties than that are listed");
    } else if (impossible) {
        result = json_false();
    } else {
        result = json_pack("{s:s,s:O,s:O,s:b}", "type", "object", "properties", listed, "required", required,
                           "additionalProperties", 0);
        if (result == NULL) weir__schema_no_memory(w);
    }
out:
    json_decref(required);
    json_decref(listed);
    json_decref(properties);
    return result;
}

/* An object with any properties whose values satisfy `others` (NULL: any). */
static json_t *open_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    static const char *const counts[] = {"minProperties", "maxProperties", NULL};
    json_t *value, *result;
    for (size_t i = 0; counts[i] != NULL; i++)
        if (json_object_get(schema, counts[i]) != NULL)
            return weir__schema_refuse(w, counts[i],
                                       "a grammar cannot count properties that are not listed in properties");
    value =
        others == NULL ? json_object() : weir__schema_below(w, "additionalProperties", NULL, others, true);
    if (value == NULL) return others == NULL ? weir__schema_no_memory(w) : NULL;
    if (json_is_false(value)) return closed_object(w, schema, NULL);
    bool any = json_object_size(value) == 0;
    if (any) json_decref(value);
    result = any ? json_pack("{s:s}", "type", "object")
                 : json_pack("{s:s,s:o}", "type", "object", "additionalProperties", value);
    return result != NULL ? result : weir__schema_no_memory(w);
}

json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
    if (properties != NULL && !json_is_object(properties))
        return weir__schema_refuse(w, "properties", "it must be an object");
    if (required != NULL && !json_is_array(required))
        return weir__schema_refuse(w, "required", "it must be an array of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
            return weir__schema_refuse(w, "required", "it must be an array of names");
    }
    if (others != NULL && !json_is_object(others) && !json_is_boolean(others))
        return weir__schema_refuse(w, "additionalProperties", "it must be a schema or a boolean");
    if (unevaluated != NULL && !json_is_true(unevaluated)) {
        if (!json_is_false(unevaluated) || (others != NULL && !json_is_false(others)))
            return weir__schema_refuse(w, "unevaluatedProperties",
                                       "only false is honoured, without additionalProperties");
        others = unevaluated;
    }
    bool listed = properties != NULL || json_array_size(required) > 0;
    if (!listed && !json_is_false(others)) return open_object(w, schema, others);
    return closed_object(w, schema, others);
}
