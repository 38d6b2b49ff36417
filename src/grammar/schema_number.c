/* schema_number.c: numbers and their bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <math.h>
#include <string.h>

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
