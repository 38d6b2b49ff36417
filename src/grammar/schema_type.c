/* schema_type.c: values, strings and their formats.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function takes what a flat schema says of one type, and gives a schema that a grammar enforces. Values
 * of enum and const are those that satisfy what stands beside them. A string becomes a pattern: its own, its
 * format's, or one of its length; where several meet, or strings are excluded, it becomes what they have in
 * common (regular.c). All texts that the pattern of a format matches have the format; unusual texts of the
 * format may not match. */
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
static const struct format {
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

/* The format of this name. NULL: there is none; *nearest: one with nearly this name, or NULL. */
static const struct format *find_format(const char *name, const char **nearest)
{
    *nearest = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
        if (strlen(formats[i].name) > 4 && weir__words_near(name, formats[i].name) >= 0)
            *nearest = formats[i].name;
    }
    return NULL;
}

bool weir__schema_is_other_format(const char *name)
{
    const char *nearest;
    return find_format(name, &nearest) == NULL && nearest == NULL;
}

bool weir__schema_format(weir__schema_walk *w, const json_t *format, const char **pattern)
{
    const char *name = json_string_value(format), *nearest;
    *pattern = NULL;
    if (format == NULL) return true;
    if (name == NULL) return weir__schema_refuse_finally(w, "format", "it must be a string") != NULL;
    const struct format *known = find_format(name, &nearest);
    if (known == NULL)
        return nearest == NULL ||
               weir__schema_refuse(w, "format", "'%.40s' is unknown; write '%s'", name, nearest) != NULL;
    *pattern = known->pattern;
    return *pattern != NULL ||
           weir__schema_refuse(w, "format", "a grammar cannot enforce '%s'", name) != NULL;
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

bool weir__schema_within_bounds(const json_t *value, const json_t *schema)
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

/* Refuses a keyword (NULL: unknown) that stands beside enum or const and may exclude a value. */
static json_t *refuse_beside(weir__schema_walk *w, const char *name, const char *keyword)
{
    return weir__schema_refuse(w, name != NULL ? name : keyword,
                               "it stands beside %s, and it is not known which values it excludes; leave "
                               "these out instead",
                               keyword);
}

/* const and enum: the values that satisfy what stands beside them. */
json_t *weir__schema_values(weir__schema_walk *w, const json_t *schema)
{
    const json_t *given = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    unsigned types = weir__schema_declared_types(w, schema);
    if (types == 0) return NULL;
    if (given != NULL && (!json_is_array(given) || json_array_size(given) == 0))
        return weir__schema_refuse_finally(w, "enum", "it must be an array of values, and not empty");
    size_t n = given != NULL ? json_array_size(given) : 1;
    const char *keyword = given != NULL ? "enum" : "const";
    json_t *beside = weir__schema_without(w, schema, keyword), *list = json_array();
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *value = given != NULL ? json_array_get(given, i) : (json_t *)only;
        const char *unclear = NULL;
        const enum weir__schema_verdict v = weir__schema_judge(w, beside, value, &unclear);
        if (v == WEIR__SCHEMA_VIOLATED) continue;
        if (v == WEIR__SCHEMA_UNCLEAR) refuse_beside(w, unclear, keyword);
        if (weir__schema_take(w, keyword, 2 * json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 8))
            weir__schema_append(w, list, json_incref(value));
    }
    json_decref(beside);
    check_forks(w, list);
    json_t *result = weir__schema_choice(w, "enum", list);
    if (!w->relax && json_is_object(result)) weir__schema_set(w, result, WEIR__SCHEMA_SPELLINGS, json_true());
    return weir__schema_made(w, result);
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

/* The pattern of all strings of these lengths; *most may become lower: see pattern.c. */
static char *pattern_of_length(weir__schema_walk *w, uint64_t least, uint64_t *most)
{
    char any[64], *pattern = NULL;
    if (*most == WEIR__PATTERN_ENDLESS)
        snprintf(any, sizeof any, "^[^]{%" PRIu64 ",}$", least);
    else
        snprintf(any, sizeof any, "^[^]{%" PRIu64 ",%" PRIu64 "}$", least, *most);
    const char *why = weir__pattern_rewrite(any, &pattern, &least, most);
    if (why == weir__pattern_no_memory) weir__schema_no_memory(w);
    if (why != NULL) weir__schema_refuse(w, "minLength", "%s", why);
    return pattern;
}

static json_t *string_of_length(weir__schema_walk *w, uint64_t least, uint64_t most)
{
    if (most == 0) return weir__schema_pack(w, "{s:[s]}", "enum", "");
    char *pattern = pattern_of_length(w, least, &most);
    if (pattern == NULL) return NULL;
    return pattern_schema(w, pattern, most != WEIR__PATTERN_ENDLESS ? "maxLength" : "minLength");
}

json_t *weir__schema_product(weir__schema_walk *w, const char *keyword, const weir__regular_part *parts,
                             size_t n, bool *narrowed)
{
    size_t cost = 0;
    bool too_large = false;
    if (!weir__schema_spend(w, 1)) return NULL;
    json_t *states = weir__regular_make(parts, n, &w->work->budget, &cost, &too_large);
    /* One string must not take the room of all others. */
    if (narrowed != NULL) too_large |= cost > w->work->elements / 4;
    if (states != NULL && json_array_size(states) == 0) {
        json_decref(states);
        return json_false();
    }
    if (too_large) {
        json_decref(states);
        if (narrowed == NULL) return weir__schema_refuse(w, keyword, "its grammar becomes too large");
        *narrowed = true;
        return json_false();
    }
    if (states == NULL) return weir__schema_spend(w, 1) ? weir__schema_no_memory(w) : NULL;
    weir__schema_take(w, keyword, cost);
    return weir__schema_pack(w, "{s:s,s:o}", "type", "string", WEIR__SCHEMA_STATES, states);
}

/* The patterns of a string: its own, those of schemas that met here, and that of its format. */
#define STRING_PATTERNS_MAX 6

typedef struct strings {
    char *texts[STRING_PATTERNS_MAX + 1];   /* rewritten */
    bool excluded[STRING_PATTERNS_MAX + 1]; /* a string must not match it */
    size_t n, n_excluded;
    uint64_t shortest, longest; /* that they imply */
    const char *keyword;        /* of the last one */
} strings;

static bool add_string_pattern(weir__schema_walk *w, strings *s, const char *keyword, const json_t *pattern,
                               bool excluded)
{
    const char *text = json_string_value(pattern);
    uint64_t shortest, longest;
    if (text == NULL) return weir__schema_refuse_finally(w, "pattern", "it must be a string") != NULL;
    if (s->n == STRING_PATTERNS_MAX)
        return weir__schema_refuse(w, "pattern", "too many patterns meet here, by allOf or anyOf") != NULL;
    if (excluded && weir__pattern_may_narrow(text))
        return weir__schema_refuse(w, keyword, "'%.80s' has counts above 999", text) != NULL;
    if (!weir__schema_spend(w, strnlen(text, WEIR__PATTERN_BYTES_MAX) / 4 + 1)) return false;
    const char *why = weir__pattern_rewrite(text, &s->texts[s->n], &shortest, &longest);
    if (why == weir__pattern_no_memory) return weir__schema_no_memory(w) != NULL;
    if (why != NULL) return weir__schema_refuse(w, keyword, "'%.80s': %s", text, why) != NULL;
    if (!excluded && shortest > s->shortest) s->shortest = shortest;
    if (!excluded && longest < s->longest) s->longest = longest;
    s->keyword = keyword;
    s->n_excluded += excluded;
    s->excluded[s->n++] = excluded;
    return true;
}

/* Excludes listed strings. */
static bool add_excluded_strings(weir__schema_walk *w, strings *s, const json_t *list)
{
    weir__text text = {0};
    if (json_array_size(list) == 0) return true;
    if (s->n == STRING_PATTERNS_MAX)
        return weir__schema_refuse(w, "not", "too many patterns meet here, by allOf or anyOf") != NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        weir__text_add_string(&text, i == 0 ? "^((" : "|(");
        weir__regular_add_name(&text, json_string_value(json_array_get(list, i)));
        weir__text_add_string(&text, ")");
    }
    weir__text_add_string(&text, ")$");
    s->texts[s->n] = text.bytes;
    s->keyword = "not";
    s->n_excluded++;
    s->excluded[s->n++] = true;
    return !text.failed || weir__schema_no_memory(w) != NULL;
}

/* False after a refusal. */
static bool read_string_patterns(weir__schema_walk *w, const json_t *schema, strings *s)
{
    const json_t *own = json_object_get(schema, "pattern"),
                 *more = json_object_get(schema, WEIR__SCHEMA_PATTERNS);
    const char *known;
    if (!weir__schema_format(w, json_object_get(schema, "format"), &known)) return false;
    if (known != NULL) {
        json_t *format = weir__schema_made(w, json_string(known));
        bool ok = format != NULL && add_string_pattern(w, s, "format", format, false);
        json_decref(format);
        if (!ok) return false;
    }
    if (own != NULL && !add_string_pattern(w, s, "pattern", own, false)) return false;
    for (size_t i = 0; i < json_array_size(more); i++)
        if (!add_string_pattern(w, s, "pattern", json_array_get(more, i), false)) return false;
    more = json_object_get(schema, WEIR__SCHEMA_NOT_PATTERNS);
    for (size_t i = 0; i < json_array_size(more); i++)
        if (!add_string_pattern(w, s, "not", json_array_get(more, i), true)) return false;
    return add_excluded_strings(w, s, json_object_get(schema, WEIR__SCHEMA_NOT_STRINGS));
}

static json_t *texts_of(weir__schema_walk *w, const weir__regular_part *parts, size_t n)
{
    json_t *list = weir__schema_made(w, json_array());
    for (size_t i = 0; i < n; i++) weir__schema_append(w, list, json_string(parts[i].pattern));
    return list;
}

/* What all patterns and the lengths have in common. An upper bound is lowered where the grammar would be too
 * large. */
static json_t *product_of(weir__schema_walk *w, strings *s, uint64_t least, uint64_t most)
{
    const bool bounded = least > 0 || most != WEIR__PATTERN_ENDLESS;
    /* One part must not be excluded. */
    const bool by_length = s->shortest < least || s->longest > most || s->n_excluded == s->n;
    for (;;) {
        weir__regular_part parts[STRING_PATTERNS_MAX + 1];
        bool too_large = false;
        uint64_t bound = most;
        for (size_t i = 0; i < s->n; i++) parts[i] = (weir__regular_part){s->texts[i], s->excluded[i]};
        if (by_length && (s->texts[s->n] = pattern_of_length(w, least, &bound)) == NULL) return NULL;
        if (by_length) parts[s->n] = (weir__regular_part){s->texts[s->n], false};
        json_t *made = weir__schema_product(w, s->keyword, parts, s->n + by_length, &too_large);
        if (json_is_object(made) && s->n_excluded == 0)
            weir__schema_set(w, made, WEIR__SCHEMA_PATTERNS, texts_of(w, parts, s->n + by_length));
        weir__mem_free(s->texts[s->n]);
        s->texts[s->n] = NULL;
        if (!too_large) return made;
        if (!by_length || s->longest <= most || most <= 64 || most / 4 < least)
            return weir__schema_refuse(w,
                                       !by_length || !bounded ? s->keyword
                                       : s->shortest < least  ? "minLength"
                                                              : "maxLength",
                                       "beside %s its grammar becomes too large", s->keyword);
        most = most > 512 ? 512 : most / 4;
    }
}

json_t *weir__schema_string(weir__schema_walk *w, const json_t *schema)
{
    uint64_t least = 0, most = WEIR__PATTERN_ENDLESS;
    strings s = {.longest = WEIR__PATTERN_ENDLESS};
    json_t *result = NULL;
    if (!weir__schema_count(w, schema, "minLength", &least) ||
        !weir__schema_count(w, schema, "maxLength", &most))
        return NULL;
    if (read_string_patterns(w, schema, &s)) {
        if (least > most) {
            result = json_false();
        } else if (s.n == 0) {
            result = least > 0 || most != WEIR__PATTERN_ENDLESS
                         ? string_of_length(w, least, most)
                         : weir__schema_pack(w, "{s:s}", "type", "string");
        } else if (s.n == 1 && !s.excluded[0] && s.shortest >= least && s.longest <= most) {
            result = pattern_schema(w, s.texts[0], s.keyword);
            s.n = 0;
        } else {
            result = product_of(w, &s, least, most);
        }
    }
    while (s.n > 0) weir__mem_free(s.texts[--s.n]);
    return result;
}
