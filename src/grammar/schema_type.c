/* schema_type.c: values, strings, their formats, and arrays.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function takes what a flat schema says of one type, and gives a schema that a grammar enforces. Values
 * of enum and const are filtered by the type and the bounds beside them; other keywords beside them are
 * refused. A string becomes a pattern, its own or its format's, or one made of its length; a length beside a
 * pattern must hold for all texts that the pattern matches. An array is a tuple or a list with bounds. All
 * texts that the pattern of a format matches have the format; unusual texts of the format may not match. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/words.h"
#include "grammar/pattern.h"
#include "grammar/schema_walk.h"

/* ---- Formats ---- */

/* Four digits, but not 0000, which many programs reject. */
#define YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR ":[0-5][0-9])"

/* A label of a host's name: at most 32 characters, without two hyphens in a row. */
#define LABEL "[A-Za-z0-9]{1,10}(-[A-Za-z0-9]{1,10}){0,2}"
#define ATOM  "[A-Za-z0-9_+-]{1,20}"

#define OCTET             "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define HEX16             "[0-9a-fA-F]{1,4}"
#define HEX               "[0-9a-fA-F]"
#define V6(before, after) "(" HEX16 ":){1," #before "}(:" HEX16 "){1," #after "}"

#define PCHAR     "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX HEX ")"
#define SEGMENTS  "(/" PCHAR "*)*"
#define QUERY     "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%" HEX HEX ")*)?"
#define FRAGMENT  "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%" HEX HEX ")*)?"
#define AUTHORITY "//" LABEL "(\\." LABEL "){0,6}(:[1-9][0-9]{0,4})?"
#define URI                                                                                                  \
    "[A-Za-z][A-Za-z0-9+.-]*:(" AUTHORITY SEGMENTS "|//" SEGMENTS "|" PCHAR "+" SEGMENTS ")" QUERY FRAGMENT
/* A first segment without a colon, or a path from the root that does not start with two slashes. */
#define RELATIVE                                                                                             \
    "(/(" PCHAR "+" SEGMENTS ")?|([A-Za-z0-9._~!$&'()*+,;=@-]|%" HEX HEX ")+" SEGMENTS ")?" QUERY FRAGMENT

#define D             "[0-9]{1,4}"
#define DURATION_TIME "T(" D "H(" D "M(" D "S)?)?|" D "M(" D "S)?|" D "S)"
#define DURATION_DATE "(" D "Y(" D "M(" D "D)?)?|" D "M(" D "D)?|" D "D)"

#define EMAIL         "^" ATOM "(\\." ATOM "){0,2}@(" LABEL "\\.){1,4}[A-Za-z]{2,20}$"
#define HOSTNAME      "^" LABEL "(\\." LABEL "){0,6}$"
#define POINTER       "(/([^/~]|~[01])*)*"
#define ANY_URI       "^" URI "$"
#define ANY_REFERENCE "^(" URI "|" RELATIVE ")$"

/* All that JSON Schema defines. A URI is an IRI, and so on. */
static const struct {
    const char *name, *pattern; /* NULL: a grammar cannot enforce it */
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(" D "W|" DURATION_DATE "(" DURATION_TIME ")?|" DURATION_TIME ")$"},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", HOSTNAME},
    {"idn-hostname", HOSTNAME},
    {"ipv4", "^(" OCTET "\\.){3}" OCTET "$"},
    {"ipv6", "^((" HEX16 ":){7}" HEX16 "|(" HEX16 ":){1,7}:|::(" HEX16 ":){0,5}" HEX16
             "|::|" V6(6, 1) "|" V6(5, 2) "|" V6(4, 3) "|" V6(3, 4) "|" V6(2, 5) "|" V6(1, 6) ")$"},
    {"uri", ANY_URI},
    {"iri", ANY_URI},
    {"uri-reference", ANY_REFERENCE},
    {"iri-reference", ANY_REFERENCE},
    {"uri-template", ANY_REFERENCE},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]{0,8})(#|" POINTER ")$"},
    {"regex", NULL},
};

bool weir__schema_format(weir__schema_walk *w, const json_t *format, const char **pattern)
{
    const char *name = json_string_value(format), *nearest = NULL;
    *pattern = NULL;
    if (format == NULL) return true;
    if (name == NULL) return weir__schema_refuse_finally(w, "format", "it must be a string") != NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *pattern = formats[i].pattern;
            return *pattern != NULL ||
                   weir__schema_refuse(w, "format", "a grammar cannot enforce '%s'", name) != NULL;
        }
        if (strlen(formats[i].name) > 4 && weir__words_near(name, formats[i].name) >= 0)
            nearest = formats[i].name;
    }
    return nearest == NULL ||
           weir__schema_refuse(w, "format", "'%.40s' is unknown; write '%s'", name, nearest) != NULL;
}

/* ---- Values ---- */

/* The largest number of sorted texts [n] that differ in the character after a common prefix. forks [longest +
 * 1] counts by the length of the prefix: in this order a prefix is done before the next of its length
 * comes. */
static size_t most_forks(const char *const *texts, size_t n, size_t *forks, size_t longest)
{
    size_t most = 1;
    for (size_t i = 0; i <= longest; i++) forks[i] = 1;
    for (size_t i = 1; i < n; i++) {
        size_t common = 0;
        while (texts[i][common] != '\0' && texts[i][common] == texts[i - 1][common]) common++;
        /* back to the start of a character */
        while (common > 0 && ((unsigned char)texts[i][common] & 0xC0) == 0x80) common--;
        for (size_t k = common + 1; k <= strlen(texts[i - 1]); k++) forks[k] = 1;
        if (++forks[common] > most) most = forks[common];
    }
    return most;
}

/* Refuses values of which too many differ at one place for the automaton to follow all of them. */
static void check_forks(weir__schema_walk *w, const json_t *list)
{
    size_t n = json_array_size(list), longest = 0, n_texts = 0;
    if (n <= WEIR__SCHEMA_FORKS_MAX || w->status != WEIR_OK) return;
    char **texts = weir__mem_calloc(n, sizeof *texts);
    while (texts != NULL && n_texts < n) {
        texts[n_texts] = weir__json_dump(json_array_get(list, n_texts));
        if (texts[n_texts] == NULL) break;
        size_t length = strlen(texts[n_texts++]);
        if (length > longest) longest = length;
    }
    size_t *forks = n_texts == n ? weir__mem_calloc(longest + 1, sizeof *forks) : NULL;
    if (forks == NULL) {
        weir__schema_no_memory(w);
    } else {
        qsort(texts, n, sizeof *texts, weir__words_compare);
        size_t most = most_forks((const char *const *)texts, n, forks, longest);
        if (most > WEIR__SCHEMA_FORKS_MAX)
            weir__schema_refuse(w, "enum",
                                "%zu of its values differ after the same beginning; at most %d may", most,
                                WEIR__SCHEMA_FORKS_MAX);
    }
    weir__mem_free(forks);
    while (n_texts > 0) weir__mem_free(texts[--n_texts]);
    weir__mem_free(texts);
}

static bool is_between(double value, const json_t *schema, const char *least, const char *most)
{
    const json_t *low = json_object_get(schema, least), *high = json_object_get(schema, most);
    return (!json_is_number(low) || value >= json_number_value(low)) &&
           (!json_is_number(high) || value <= json_number_value(high));
}

static bool is_bounded(const json_t *number, const json_t *schema)
{
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    const json_t *low = json_object_get(schema, "minimum"), *high = json_object_get(schema, "maximum");
    return (!json_is_number(low) || weir__schema_compare(number, low) >= 0) &&
           (!json_is_number(high) || weir__schema_compare(number, high) <= 0) &&
           (!json_is_number(above) || weir__schema_compare(number, above) > 0) &&
           (!json_is_number(below) || weir__schema_compare(number, below) < 0);
}

static size_t count_characters(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* True if a listed value is within the bounds beside it. Others must not stand there: see check_beside. */
static bool satisfies_bounds(const json_t *value, const json_t *schema)
{
    switch (json_typeof(value)) {
    case JSON_INTEGER:
    case JSON_REAL: return is_bounded(value, schema);
    case JSON_STRING:
        return is_between((double)count_characters(json_string_value(value)), schema, "minLength",
                          "maxLength");
    case JSON_ARRAY: return is_between((double)json_array_size(value), schema, "minItems", "maxItems");
    case JSON_OBJECT:
        return is_between((double)json_object_size(value), schema, "minProperties", "maxProperties");
    default: return true;
    }
}

/* Refuses what stands beside enum or const and is neither a bound nor about another type than all values. */
static bool check_beside(weir__schema_walk *w, const json_t *schema, const json_t *list, const char *keyword)
{
    static const char *const bounds[] = {"const",    "enum",          "type",          "minimum",
                                         "maximum",  "minLength",     "maxLength",     "minItems",
                                         "maxItems", "minProperties", "maxProperties", NULL};
    static const unsigned about[] = {
        [OBJECT] = TYPE_OBJECT, [ARRAY] = TYPE_ARRAY, [STRING] = TYPE_STRING, [NUMBER] = TYPE_NUMBER};
    const char *name;
    json_t *value;
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++) types |= weir__schema_type_of(json_array_get(list, i));
    json_object_foreach((json_t *)schema, name, value)
    {
        enum keyword_kind kind = weir__schema_kind_of(name);
        const char *const *known = bounds;
        while (*known != NULL && strcmp(*known, name) != 0) known++;
        bool numeric = json_is_number(value) && (*known != NULL || strncmp(name, "exclusive", 9) == 0);
        bool vacuous = kind >= OBJECT && kind <= NUMBER && (types & about[kind]) == 0;
        if (kind == ANNOTATION || numeric || vacuous || known < bounds + 3) continue;
        return weir__schema_refuse(
                   w, name, "it stands beside %s, which would win; leave out the values it excludes instead",
                   keyword) != NULL;
    }
    return true;
}

/* const and enum: the values that `type` and bounds allow. */
json_t *weir__schema_values(weir__schema_walk *w, const json_t *schema)
{
    const json_t *given = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    unsigned types = weir__schema_declared_types(w, schema);
    if (types == 0) return NULL;
    if (given != NULL && (!json_is_array(given) || json_array_size(given) == 0))
        return weir__schema_refuse_finally(w, "enum", "it must be an array of values, and not empty");
    size_t n = given != NULL ? json_array_size(given) : 1;
    if (!weir__schema_spend(w, n)) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *value = given != NULL ? json_array_get(given, i) : (json_t *)only;
        if ((weir__schema_type_of(value) & types) == 0 || !satisfies_bounds(value, schema) ||
            (given != NULL && only != NULL && !weir__schema_equal(value, only)))
            continue;
        if (weir__schema_take(w, given != NULL ? "enum" : "const",
                              2 * json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 2))
            weir__schema_append(w, list, json_incref(value));
    }
    check_forks(w, list);
    check_beside(w, schema, list, given != NULL ? "enum" : "const");
    return weir__schema_choice(w, "enum", list);
}

/* ---- Strings ---- */

bool weir__schema_count(weir__schema_walk *w, const json_t *schema, const char *keyword, uint64_t *value)
{
    const json_t *given = json_object_get(schema, keyword);
    if (given == NULL) return true;
    double d = json_number_value(given);
    if (!json_is_number(given) || d < 0 || floor(d) != d)
        return weir__schema_refuse_finally(w, keyword, "it must be an integer of at least 0") != NULL;
    *value = d > 1e15 ? UINT64_C(1000000000000000) : (uint64_t)d;
    return true;
}

static json_t *pattern_schema(weir__schema_walk *w, char *pattern, const char *keyword)
{
    weir__schema_take(w, keyword, weir__pattern_elements(pattern));
    json_t *result = weir__schema_pack(w, "{s:s,s:s}", "type", "string", "pattern", pattern);
    weir__mem_free(pattern);
    return result;
}

static json_t *string_of_length(weir__schema_walk *w, uint64_t least, uint64_t most)
{
    char any[64], *pattern = NULL;
    if (least > most) return json_false();
    if (most == 0) return weir__schema_pack(w, "{s:[s]}", "enum", "");
    if (most == WEIR__PATTERN_ENDLESS)
        snprintf(any, sizeof any, "^[^]{%" PRIu64 ",}$", least);
    else
        snprintf(any, sizeof any, "^[^]{%" PRIu64 ",%" PRIu64 "}$", least, most);
    const char *why = weir__pattern_rewrite(any, &pattern, &least, &most);
    if (why == weir__pattern_no_memory) return weir__schema_no_memory(w);
    if (why != NULL) return weir__schema_refuse(w, "minLength", "%s", why);
    return pattern_schema(w, pattern, most != WEIR__PATTERN_ENDLESS ? "maxLength" : "minLength");
}

/* The schema's pattern, or that of its format. False after a refusal. */
static bool find_pattern(weir__schema_walk *w, const json_t *schema, const char **pattern)
{
    const json_t *own = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    *pattern = json_string_value(own);
    if (own != NULL && *pattern == NULL)
        return weir__schema_refuse_finally(w, "pattern", "it must be a string") != NULL;
    const char *known;
    if (!weir__schema_format(w, format, &known)) return false;
    if (known == NULL) return true;
    if (own != NULL)
        return weir__schema_refuse(w, "pattern", "it stands beside format; only one of them is supported") !=
               NULL;
    *pattern = known;
    return true;
}

json_t *weir__schema_string(weir__schema_walk *w, const json_t *schema)
{
    uint64_t least = 0, most = WEIR__PATTERN_ENDLESS, shortest = 0, longest = 0;
    const char *pattern;
    char *rewritten = NULL;
    if (!weir__schema_count(w, schema, "minLength", &least) ||
        !weir__schema_count(w, schema, "maxLength", &most) || !find_pattern(w, schema, &pattern))
        return NULL;
    if (pattern == NULL) {
        if (least > 0 || most != WEIR__PATTERN_ENDLESS) return string_of_length(w, least, most);
        return weir__schema_pack(w, "{s:s}", "type", "string");
    }
    const char *keyword =
        pattern == json_string_value(json_object_get(schema, "pattern")) ? "pattern" : "format";
    const char *why = weir__pattern_rewrite(pattern, &rewritten, &shortest, &longest);
    if (why == weir__pattern_no_memory) return weir__schema_no_memory(w);
    if (why != NULL) return weir__schema_refuse(w, keyword, "'%.80s': %s", pattern, why);
    if (shortest < least || longest > most) {
        weir__mem_free(rewritten);
        return weir__schema_refuse(
            w, shortest < least ? "minLength" : "maxLength",
            "it stands beside %s, which has %s strings; write the length into a pattern", keyword,
            shortest < least ? "shorter" : "longer");
    }
    return pattern_schema(w, rewritten, keyword);
}

/* ---- Arrays ---- */

/* The rule of exactly the items of prefixItems, as far as maxItems allows. */
static json_t *tuple_rule(weir__schema_walk *w, const json_t *prefix, const char *keyword, uint64_t least,
                          uint64_t most)
{
    size_t n = json_array_size(prefix);
    if (most < n) n = (size_t)most;
    json_t *items = json_array();
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *item = weir__schema_below_index(w, keyword, i, json_array_get(prefix, i), true);
        if (json_is_false(item))
            n = i; /* no array has this item */
        else
            weir__schema_append(w, items, item);
    }
    if (least > n) weir__schema_refuse(w, "minItems", "it asks for more items than %s gives", keyword);
    if (n > 0) return weir__schema_pack(w, "{s:s,s:o}", "type", "array", "prefixItems", items);
    json_decref(items);
    return weir__schema_pack(w, "{s:[[]]}", "enum");
}

json_t *weir__schema_array(weir__schema_walk *w, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedItems");
    uint64_t least = 0, most = UINT64_MAX;
    if (!weir__schema_count(w, schema, "minItems", &least) ||
        !weir__schema_count(w, schema, "maxItems", &most))
        return NULL;
    if (least > most) return json_false();
    if (prefix != NULL && !json_is_array(prefix))
        return weir__schema_refuse_finally(w, "prefixItems", "it must be an array of schemas");
    bool listed = prefix != NULL || json_is_array(items);
    if (!json_is_false(json_object_get(schema, "uniqueItems")) &&
        json_object_get(schema, "uniqueItems") != NULL && most > 1)
        return weir__schema_refuse(w, "uniqueItems",
                                   "a grammar cannot compare items; only false is supported, or at most one "
                                   "item");
    if (unevaluated != NULL && !json_is_true(unevaluated) && !(json_is_false(unevaluated) && listed))
        return weir__schema_refuse(w, "unevaluatedItems", "only false beside prefixItems is supported");
    if (listed) return tuple_rule(w, prefix ? prefix : items, prefix ? "prefixItems" : "items", least, most);

    json_t *item = items == NULL ? json_object() : weir__schema_below(w, "items", NULL, items, true);
    if (json_is_false(item)) most = 0;
    if (least > most) return json_false();
    if (most == 0) {
        json_decref(item);
        return weir__schema_pack(w, "{s:[[]]}", "enum");
    }
    if (least > WEIR__SCHEMA_ITEMS_MAX)
        weir__schema_refuse(w, "minItems", "at most %d items can be asked for", WEIR__SCHEMA_ITEMS_MAX);
    bool bounded = most != UINT64_MAX;
    if (bounded && most > WEIR__SCHEMA_ITEMS_MAX) most = WEIR__SCHEMA_ITEMS_MAX;
    weir__schema_take(w, bounded ? "maxItems" : "minItems", 4 * (bounded ? most : least) + 4);
    json_t *result = weir__schema_pack(w, "{s:s,s:o}", "type", "array", "items", item);
    if (least > 0) weir__schema_set(w, result, "minItems", json_integer((json_int_t)least));
    if (bounded) weir__schema_set(w, result, "maxItems", json_integer((json_int_t)most));
    return weir__schema_made(w, result);
}
