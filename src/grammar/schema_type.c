/* schema_type.c: what a schema allows of each type: given values, strings with their formats, arrays,
 * numbers, objects.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function reads the keywords of its type, refuses those that no grammar enforces, and writes the
 * others in the subset that grammars do enforce. Bounds of numbers become digits, patterns or lists. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "grammar/pattern.h"
#include "grammar/schema_walk.h"

/* ---- Formats of strings ---- */

/* Four digits, but not 0000, which many programs reject. */
#define YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{3})?(Z|[+-]" HOUR ":[0-5][0-9])"

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
#define AUTHORITY "//" LABEL "(\\." LABEL "){0,6}(:[1-9][0-9]{0,3})?"
#define URI                                                                                                  \
    "[A-Za-z][A-Za-z0-9+.-]*:(" AUTHORITY SEGMENTS "|//" SEGMENTS "|" PCHAR "+" SEGMENTS ")" QUERY FRAGMENT
/* A first segment without a colon, or a path from the root that does not start with two slashes. */
#define RELATIVE                                                                                             \
    "(/(" PCHAR "+" SEGMENTS ")?|([A-Za-z0-9._~!$&'()*+,;=@-]|%" HEX HEX ")+" SEGMENTS ")?" QUERY FRAGMENT

#define D             "[0-9]{1,4}"
#define DURATION_TIME "T(" D "H(" D "M(" D "S)?)?|" D "M(" D "S)?|" D "S)"
#define DURATION_DATE "(" D "Y(" D "M(" D "D)?)?|" D "M(" D "D)?|" D "D)"

/* An ECMA pattern of texts with this format, or NULL. */
static const char *format_pattern(const char *name)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"duration", "^P(" D "W|" DURATION_DATE "(" DURATION_TIME ")?|" DURATION_TIME ")$"},
        {"email", "^" ATOM "(\\." ATOM "){0,2}@(" LABEL "\\.){1,4}[A-Za-z]{2,20}$"},
        {"hostname", "^" LABEL "(\\." LABEL "){0,6}$"},
        {"ipv4", "^(" OCTET "\\.){3}" OCTET "$"},
        {"ipv6", "^((" HEX16 ":){7}" HEX16 "|(" HEX16 ":){1,7}:|::(" HEX16 ":){0,5}" HEX16
                 "|::|" V6(6, 1) "|" V6(5, 2) "|" V6(4, 3) "|" V6(3, 4) "|" V6(2, 5) "|" V6(1, 6) ")$"},
        {"uri", "^" URI "$"},
        {"uri-reference", "^(" URI "|" RELATIVE ")$"},
        {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
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
        return weir__schema_refuse_finally(w, "enum", "it must be an array of values, and not empty");
    size_t n = given != NULL ? json_array_size(given) : 1;
    if (!weir__schema_spend(w, n)) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *value = given != NULL ? json_array_get(given, i) : (json_t *)only;
        if ((weir__schema_type_of(value) & types) == 0 ||
            (given != NULL && only != NULL && !weir__schema_equal(value, only)))
            continue;
        if (weir__schema_take(w, given != NULL ? "enum" : "const",
                              json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 2))
            weir__schema_append(w, list, json_incref(value));
    }
    check_forks(w, list);
    return weir__schema_choice(w, "enum", list);
}

/* ---- Strings ---- */

/* Reads a count such as minItems; *value is unchanged if it is absent. False after a refusal. */
static bool read_count(weir__schema_walk *w, const json_t *schema, const char *keyword, uint64_t *value)
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
    if (format == NULL) return true;
    const char *name = json_string_value(format);
    const char *known = name != NULL ? format_pattern(name) : NULL;
    if (known == NULL)
        return weir__schema_refuse(
                   w, "format",
                   "'%.40s' is not known for strings; supported: date, time, date-time, duration, email, "
                   "hostname, ipv4, ipv6, uri, uri-reference, uuid; write others as a pattern",
                   name != NULL ? name : "(no string)") != NULL;
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
    if (!read_count(w, schema, "minLength", &least) || !read_count(w, schema, "maxLength", &most) ||
        !find_pattern(w, schema, &pattern))
        return NULL;
    if (pattern == NULL) {
        if (least > 0 || most != WEIR__PATTERN_ENDLESS) return string_of_length(w, least, most);
        return weir__schema_pack(w, "{s:s}", "type", "string");
    }
    const char *keyword = json_object_get(schema, "pattern") != NULL ? "pattern" : "format";
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
    if (!read_count(w, schema, "minItems", &least) || !read_count(w, schema, "maxItems", &most)) return NULL;
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

/* ---- Numbers and their bounds ---- */

/* The most numbers in a list, which replaces bounds that have no grammar. */
#define LISTED_MAX 1001

/* Reads a bound into *bound if it is tighter. sign: +1 for a lower bound, -1 for an upper one. */
static bool integer_bound(weir__schema_walk *w, const json_t *schema, const char *keyword, bool exclusive,
                          int sign, int64_t *bound)
{
    const json_t *value = json_object_get(schema, keyword);
    if (value == NULL || (json_is_boolean(value) && strncmp(keyword, "exclusive", 9) == 0)) return true;
    if (!json_is_number(value)) return weir__schema_refuse_finally(w, keyword, "it must be a number") != NULL;
    /* Upper bounds are negated, so that both are lower ones. */
    double d = sign * json_number_value(value);
    int64_t least;
    if (fabs(d) > (double)WEIR__SCHEMA_INTEGER_MAX)
        least = d > 0 ? WEIR__SCHEMA_INTEGER_MAX + 1 : -WEIR__SCHEMA_INTEGER_MAX;
    else if (json_is_integer(value))
        least = sign * (int64_t)json_integer_value(value) + exclusive;
    else
        least = (int64_t)(exclusive ? floor(d) + 1 : ceil(d));
    if (least > WEIR__SCHEMA_INTEGER_MAX)
        return weir__schema_refuse(w, keyword, "integers of more than 16 digits cannot be made") != NULL;
    if (least > sign * *bound) *bound = sign * least;
    return true;
}

/* All multiples of step from low to high. */
static json_t *multiples_rule(weir__schema_walk *w, int64_t low, int64_t high, int64_t step)
{
    int64_t first = low / step + (low % step > 0), last = high / step - (high % step < 0);
    if (last - first >= LISTED_MAX)
        return weir__schema_refuse(w, "multipleOf",
                                   "it needs minimum and maximum with at most %d multiples between them",
                                   LISTED_MAX);
    json_t *list = json_array();
    for (int64_t i = first; i <= last; i++) weir__schema_append(w, list, json_integer(i * step));
    weir__schema_take(w, "multipleOf", json_array_size(list) * 8);
    return weir__schema_choice(w, "enum", list);
}

json_t *weir__schema_integer(weir__schema_walk *w, const json_t *schema)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", NULL};
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const char *format = json_string_value(json_object_get(schema, "format"));
    int64_t low = -WEIR__SCHEMA_INTEGER_MAX, high = WEIR__SCHEMA_INTEGER_MAX;
    bool bounded = weir__schema_has_any(schema, bounds);

    double step = multiple == NULL ? 1 : json_number_value(multiple);
    if (multiple != NULL && (!json_is_number(multiple) || step < 1 || floor(step) != step || step > 1e15))
        return weir__schema_refuse(w, "multipleOf", "only integers of at least 1 are supported");
    if (format != NULL && strcmp(format, "int32") == 0) {
        bounded = true;
        low = INT32_MIN;
        high = INT32_MAX;
    } else if (format != NULL && strcmp(format, "int64") != 0) {
        return weir__schema_refuse(w, "format", "'%.40s' is not known for integers; supported: int32, int64",
                                   format);
    }
    /* A boolean says, in draft 4, that the other bound is exclusive. */
    bool not_low = json_is_true(json_object_get(schema, "exclusiveMinimum"));
    bool not_high = json_is_true(json_object_get(schema, "exclusiveMaximum"));
    if (!integer_bound(w, schema, "minimum", not_low, 1, &low) ||
        !integer_bound(w, schema, "maximum", not_high, -1, &high) ||
        !integer_bound(w, schema, "exclusiveMinimum", true, 1, &low) ||
        !integer_bound(w, schema, "exclusiveMaximum", true, -1, &high))
        return NULL;
    if (low > high) return json_false();
    if (step > 1) return multiples_rule(w, low, high, (int64_t)step);
    /* llama.cpp's converter is correct for two bounds, a lower one up to 9, and an upper one from 0. With
     * others it is not: a lower bound of 105 allows 15. */
    bool lower = bounded && (low > -WEIR__SCHEMA_INTEGER_MAX || high < 0);
    bool upper = bounded && (high < WEIR__SCHEMA_INTEGER_MAX || low > 9);
    json_t *result = weir__schema_pack(w, "{s:s}", "type", "integer");
    if (lower) weir__schema_set(w, result, "minimum", json_integer(low));
    if (upper) weir__schema_set(w, result, "maximum", json_integer(high));
    return weir__schema_made(w, result);
}

typedef struct bounds {
    double low, high;
    bool low_out, high_out; /* exclusive */
} bounds;

/* Reads a bound into *bound if it is tighter. False after a refusal. */
static bool number_bound(weir__schema_walk *w, const json_t *schema, const char *keyword, bool exclusive,
                         double sign, double *bound, bool *out)
{
    const json_t *value = json_object_get(schema, keyword);
    if (value == NULL || (exclusive && json_is_boolean(value))) return true;
    if (!json_is_number(value)) return weir__schema_refuse_finally(w, keyword, "it must be a number") != NULL;
    double d = json_number_value(value);
    if (sign * d < sign * *bound || (d == *bound && *out)) return true;
    *bound = d;
    *out = exclusive;
    return true;
}

static bool read_bounds(weir__schema_walk *w, const json_t *schema, bounds *b)
{
    *b = (bounds){-INFINITY, INFINITY, false, false};
    if (!number_bound(w, schema, "minimum", false, 1, &b->low, &b->low_out) ||
        !number_bound(w, schema, "exclusiveMinimum", true, 1, &b->low, &b->low_out) ||
        !number_bound(w, schema, "maximum", false, -1, &b->high, &b->high_out) ||
        !number_bound(w, schema, "exclusiveMaximum", true, -1, &b->high, &b->high_out))
        return false;
    b->low_out |= json_is_true(json_object_get(schema, "exclusiveMinimum")); /* draft 4 */
    b->high_out |= json_is_true(json_object_get(schema, "exclusiveMaximum"));
    return true;
}

/* A list of the decimal numbers between the bounds, with up to three places as far as LISTED_MAX allows. */
static json_t *decimals_rule(weir__schema_walk *w, const bounds *b, const char *keyword)
{
    static const double powers[] = {10, 100, 1000};
    double power = 0;
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
        if ((b->high - b->low) * powers[i] < LISTED_MAX) power = powers[i];
    if (power == 0 || fabs(b->low) > 1e9 || fabs(b->high) > 1e9)
        return weir__schema_refuse(
            w, keyword,
            "a grammar cannot compare fractions; bounds of numbers are supported where "
            "both are given and at most 100 apart");
    json_t *list = json_array();
    int64_t first = (int64_t)ceil(b->low * power) - 1, last = (int64_t)floor(b->high * power) + 1;
    for (int64_t i = first; i <= last; i++) {
        double d = (double)i / power;
        if (d < b->low || d > b->high || (d == b->low && b->low_out) || (d == b->high && b->high_out))
            continue;
        weir__schema_append(w, list, floor(d) == d ? json_integer((json_int_t)d) : json_real(d));
    }
    if (json_array_size(list) == 0 &&
        (b->low < b->high || (b->low == b->high && !b->low_out && !b->high_out))) {
        json_decref(list);
        return weir__schema_refuse(w, keyword,
                                   "numbers between bounds have at most three decimals, and none of these "
                                   "is between minimum and maximum");
    }
    weir__schema_take(w, keyword, json_array_size(list) * 10);
    return weir__schema_choice(w, "enum", list);
}

json_t *weir__schema_number(weir__schema_walk *w, const json_t *schema)
{
    static const char *const keywords[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const char *format = json_string_value(json_object_get(schema, "format"));
    bounds b;
    if (format != NULL && strcmp(format, "float") != 0 && strcmp(format, "double") != 0)
        return weir__schema_refuse(w, "format", "'%.40s' is not known for numbers; supported: float, double",
                                   format);
    if (multiple != NULL) {
        double d = json_number_value(multiple);
        if (format == NULL && d >= 1 && floor(d) == d) return weir__schema_integer(w, schema);
        return weir__schema_refuse(w, "multipleOf", "only integers of at least 1 are supported");
    }
    if (!read_bounds(w, schema, &b)) return NULL;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const json_t *value = json_object_get(schema, keywords[i]);
        if (value != NULL && !json_is_boolean(value)) return decimals_rule(w, &b, keywords[i]);
    }
    return weir__schema_pack(w, "{s:s}", "type", "number");
}

/* ---- Objects and their properties ---- */

/* The listed properties and those that are only required, which get the schema of the others. */
static json_t *all_properties(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    const json_t *given = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    json_t *properties = weir__schema_made(w, given != NULL ? weir__json_copy(given) : json_object());
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (json_object_get(properties, name) == NULL)
            weir__schema_set(w, properties, name,
                             others != NULL ? json_incref((json_t *)others) : json_true());
    }
    return properties;
}

/* Adds a property to the result's properties and, perhaps, to its required ones. False: it is required and
 * nothing satisfies it, or a refusal. */
static bool add_property(weir__schema_walk *w, const char *name, const json_t *property, bool is_required,
                         json_t *listed, json_t *required)
{
    if (strlen(name) > WEIR__SCHEMA_NAME_MAX)
        weir__schema_refuse(w, "properties", "the name '%.40s...' has more than 256 bytes", name);
    if (strcmp(name, "*") == 0) weir__schema_refuse(w, "properties", "a property cannot be named '*'");
    if (!weir__schema_take(w, "properties", strlen(name) + 20)) return false;
    json_t *one = weir__schema_below(w, "properties", name, property, true);
    if (json_is_false(one)) return !is_required;
    return weir__schema_set(w, listed, name, one) &&
           (!is_required || weir__schema_append(w, required, json_string(name)));
}

/* An object with the listed properties only. */
static json_t *closed_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    json_t *listed = json_object(), *required = json_array(), *properties = NULL, *property;
    size_t n_names = json_array_size(json_object_get(schema, "required"));
    uint64_t least = 0, most = UINT64_MAX;
    bool possible = true;
    const char *name;
    if (weir__schema_spend(w, n_names)) properties = all_properties(w, schema, others);
    if (json_object_size(properties) > WEIR__SCHEMA_PROPERTIES_MAX)
        weir__schema_refuse(w, "properties", "an object can have at most %d", WEIR__SCHEMA_PROPERTIES_MAX);
    json_object_foreach(properties, name, property)
    {
        if (!weir__schema_spend(w, n_names / 2)) break;
        bool is_required = weir__schema_is_required(schema, name);
        possible &= add_property(w, name, property, is_required, listed, required);
    }
    read_count(w, schema, "minProperties", &least);
    read_count(w, schema, "maxProperties", &most);
    if (least > json_array_size(required))
        weir__schema_refuse(w, "minProperties",
                            "fewer properties than that are required; list them in required");
    else if (most < json_object_size(listed))
        weir__schema_refuse(w, "maxProperties", "more properties than that are listed");
    json_t *result = weir__schema_pack(w, "{s:s,s:o,s:o,s:b}", "type", "object", "properties", listed,
                                       "required", required, "additionalProperties", 0);
    json_decref(properties);
    if (result == NULL || possible) return result;
    json_decref(result);
    return json_false();
}

/* An object with properties of any names, whose values satisfy `others` (NULL: any). */
static json_t *open_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    static const char *const counts[] = {"minProperties", "maxProperties", NULL};
    for (size_t i = 0; counts[i] != NULL; i++)
        if (json_object_get(schema, counts[i]) != NULL)
            return weir__schema_refuse(w, counts[i],
                                       "a grammar cannot count properties that are not listed in properties");
    json_t *value =
        others == NULL ? json_object() : weir__schema_below(w, "additionalProperties", NULL, others, true);
    if (json_is_false(value)) return closed_object(w, schema, NULL);
    if (json_object_size(value) > 0)
        return weir__schema_pack(w, "{s:s,s:o}", "type", "object", "additionalProperties", value);
    json_decref(value);
    return weir__schema_pack(w, "{s:s}", "type", "object");
}

/* The schema with the properties that propertyNames lists: if it has `properties`, those that are in both. */
static json_t *with_names(weir__schema_walk *w, const json_t *schema, const json_t *list)
{
    const json_t *given = json_object_get(schema, "properties");
    json_t *others = json_object_get(schema, "additionalProperties");
    json_t *properties = json_object(), *less = weir__schema_without(w, schema, "propertyNames");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        json_t *property = name != NULL ? json_object_get(given, name) : NULL;
        if (name == NULL || (property == NULL && given != NULL)) continue;
        if (property == NULL) property = others != NULL ? others : json_true();
        weir__schema_set(w, properties, name, json_incref(property));
    }
    weir__schema_set(w, less, "properties", properties);
    weir__schema_set(w, less, "additionalProperties", json_false());
    return less;
}

/* An object with propertyNames. */
static json_t *named_object(weir__schema_walk *w, const json_t *schema, const json_t *names)
{
    static const char *const type_alone[] = {"type", NULL}, *const list_alone[] = {"type", "enum", NULL};
    json_t *less = NULL, *list = json_object_get(names, "enum");
    bool strings = json_is_object(names) && (json_object_get(names, "type") == NULL ||
                                             (weir__schema_declared_types(w, names) & TYPE_STRING) != 0);
    if (w->status != WEIR_OK) return NULL;
    if (json_is_true(names) || (strings && weir__schema_other_constraint(names, type_alone) == NULL)) {
        less = weir__schema_without(w, schema, "propertyNames");
    } else if (strings && json_is_array(list) && weir__schema_other_constraint(names, list_alone) == NULL) {
        less = with_names(w, schema, list);
        for (size_t i = 0; i < json_array_size(json_object_get(schema, "required")); i++) {
            if (weir__schema_has_value(list, json_array_get(json_object_get(schema, "required"), i)))
                continue;
            json_decref(less);
            return json_false();
        }
    } else {
        return weir__schema_refuse(w, "propertyNames",
                                   "only a list (enum) is supported; list names in properties");
    }
    json_t *result = w->status == WEIR_OK ? weir__schema_object(w, less) : NULL;
    json_decref(less);
    return result;
}

json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
    if (properties != NULL && !json_is_object(properties))
        return weir__schema_refuse_finally(w, "properties", "it must be an object");
    if (required != NULL && !json_is_array(required))
        return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
            return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    }
    if (others != NULL && !json_is_object(others) && !json_is_boolean(others))
        return weir__schema_refuse_finally(w, "additionalProperties", "it must be a schema or a boolean");
    if (unevaluated != NULL && !json_is_true(unevaluated)) {
        if (!json_is_false(unevaluated) || (others != NULL && !json_is_false(others)))
            return weir__schema_refuse(w, "unevaluatedProperties",
                                       "only false is supported, without additionalProperties");
        others = unevaluated;
    }
    const json_t *names = json_object_get(schema, "propertyNames");
    if (names != NULL) return named_object(w, schema, names);
    bool listed = properties != NULL || json_array_size(required) > 0;
    if (!listed && !json_is_false(others)) return open_object(w, schema, others);
    return closed_object(w, schema, others);
}
