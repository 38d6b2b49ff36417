/* schema_number.c: numbers and their bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const char *format = json_string_value(json_object_get(schema, "format"));
    int64_t low = -WEIR__SCHEMA_INTEGER_MAX, high = WEIR__SCHEMA_INTEGER_MAX;
    double step = multiple == NULL ? 1 : json_number_value(multiple);
    if (multiple != NULL && (!json_is_number(multiple) || step < 1 || floor(step) != step || step > 1e15))
        return weir__schema_refuse(w, "multipleOf", "only integers of at least 1 are supported");
    if (format != NULL && strcmp(format, "int32") == 0) {
        low = INT32_MIN;
        high = INT32_MAX;
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
    json_t *result = weir__schema_pack(w, "{s:s}", "type", "integer");
    if (low > -WEIR__SCHEMA_INTEGER_MAX) weir__schema_set(w, result, "minimum", json_integer(low));
    if (high < WEIR__SCHEMA_INTEGER_MAX) weir__schema_set(w, result, "maximum", json_integer(high));
    return weir__schema_made(w, result);
}

/* ---- Numbers ---- */

/* A bound as text; NULL: none. */
static const char *bound_text(const json_t *value, char text[WEIR__JSON_REAL_MAX])
{
    if (!json_is_number(value)) return NULL;
    if (json_is_integer(value))
        snprintf(text, WEIR__JSON_REAL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        weir__json_real_text(json_real_value(value), text);
    return text;
}

/* The tighter of two bounds, of which the second is exclusive. In draft 4 it is true if the first is. sign:
 * +1 for lower bounds, -1 for upper ones. */
static const json_t *tighter(const json_t *bound, const json_t *exclusive, int sign, bool *out)
{
    *out = json_is_true(exclusive);
    if (!json_is_number(exclusive)) return bound;
    *out = bound == NULL || sign * weir__schema_compare(exclusive, bound) >= 0;
    return *out ? exclusive : bound;
}

/* A power of ten as the number of digits after the point; -1: it is none, or larger than 1. */
static int places_of(const json_t *multiple)
{
    char text[WEIR__JSON_REAL_MAX];
    double value = json_number_value(multiple);
    for (int places = 0; places <= 16; places++) {
        snprintf(text, sizeof text, "1e-%d", places);
        if (value == strtod(text, NULL)) return places;
    }
    return -1;
}

void weir__schema_read_bounds(const json_t *schema, weir__schema_bounds *b)
{
    weir__range *range = &b->range;
    b->least = tighter(json_object_get(schema, "minimum"), json_object_get(schema, "exclusiveMinimum"), 1,
                       &range->low_out);
    b->most = tighter(json_object_get(schema, "maximum"), json_object_get(schema, "exclusiveMaximum"), -1,
                      &range->high_out);
    range->low = bound_text(b->least, b->low);
    range->high = bound_text(b->most, b->high);
    range->places = places_of(json_object_get(schema, "multipleOf"));
}

/* Multiples of a step with decimals, as multiples of an integer and a power of ten. */
static json_t *decimal_multiples(weir__schema_walk *w, const weir__range *range, double step)
{
    double power = 1, least = range->low != NULL ? strtod(range->low, NULL) : -INFINITY;
    double most = range->high != NULL ? strtod(range->high, NULL) : INFINITY;
    while (power < 1e15 && rint(step * power) / power != step) power *= 10;
    double whole = rint(step * power), first = ceil(least / step) - 1, last = floor(most / step) + 1;
    /* Beyond 2^53 the products would be rounded. */
    if (!(last - first < LISTED_MAX) || whole / power != step || fabs(first) * whole > 0x1p53 ||
        fabs(last) * whole > 0x1p53)
        return weir__schema_refuse(
            w, "multipleOf",
            "it must be 1, 0.1, 0.01 and so on, or have minimum and maximum with at most %d "
            "multiples between them",
            LISTED_MAX - 2);
    json_t *list = json_array();
    for (int64_t i = (int64_t)first; i <= (int64_t)last; i++) {
        double value = (double)i * whole / power;
        if (value < least || value > most || (value == least && range->low_out) ||
            (value == most && range->high_out))
            continue;
        weir__schema_append(w, list,
                            floor(value) == value ? json_integer((json_int_t)value) : json_real(value));
    }
    weir__schema_take(w, "multipleOf", json_array_size(list) * 10);
    return weir__schema_choice(w, "enum", list);
}

/* True if the range has a number for certain: bounds that differ, one of which is a number of the range and
 * has an exponent that range.c writes. */
static bool has_number(const weir__range *range, double low, double high)
{
    bool low_is = range->low != NULL && !range->low_out && fabs(low) > 1e-300 && fabs(low) < 1e300;
    bool high_is = range->high != NULL && !range->high_out && fabs(high) > 1e-300 && fabs(high) < 1e300;
    return range->places < 0 && low < high && (low_is || high_is || isinf(low) || isinf(high));
}

/* A number between bounds, of which at least one is given or `multipleOf` is. */
static json_t *bounded_number(weir__schema_walk *w, const json_t *schema, const weir__schema_bounds *bounds)
{
    const weir__range *range = &bounds->range;
    const char *least = range->low_out ? "exclusiveMinimum" : "minimum";
    const char *most = range->high_out ? "exclusiveMaximum" : "maximum";
    const char *keyword = range->low != NULL ? least : range->high != NULL ? most : "multipleOf";
    double low = range->low != NULL ? strtod(range->low, NULL) : -INFINITY;
    double high = range->high != NULL ? strtod(range->high, NULL) : INFINITY;
    if (!has_number(range, low, high)) {
        weir__text text = {0};
        bool any = weir__range_add(&text, range), failed = text.failed;
        weir__text_fini(&text);
        if (failed) return weir__schema_no_memory(w);
        if (!any &&
            (range->places >= 0 || low > high || (low == high && (range->low_out || range->high_out))))
            return json_false();
        if (!any)
            return weir__schema_refuse(w, keyword,
                                       "all numbers between the bounds are too near to 0, or too large");
    }
    if (!weir__schema_take(w, keyword, WEIR__RANGE_ELEMENTS)) return NULL;
    json_t *result = weir__schema_pack(w, "{s:s}", "type", "number");
    if (bounds->least != NULL) weir__schema_set(w, result, least, json_incref((json_t *)bounds->least));
    if (bounds->most != NULL) weir__schema_set(w, result, most, json_incref((json_t *)bounds->most));
    if (range->places >= 0)
        weir__schema_set(w, result, "multipleOf", json_incref(json_object_get(schema, "multipleOf")));
    return weir__schema_made(w, result);
}

json_t *weir__schema_number(weir__schema_walk *w, const json_t *schema)
{
    static const char *const keywords[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    const json_t *multiple = json_object_get(schema, "multipleOf");
    weir__schema_bounds bounds;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const json_t *value = json_object_get(schema, keywords[i]);
        if (value != NULL && !json_is_number(value) && !(i >= 2 && json_is_boolean(value)))
            return weir__schema_refuse_finally(w, keywords[i], "it must be a number");
    }
    double step = json_number_value(multiple);
    if (multiple != NULL && !(step > 0))
        return weir__schema_refuse(w, "multipleOf", "it must be a number above 0");
    weir__schema_read_bounds(schema, &bounds);
    if (multiple != NULL && bounds.range.places < 0)
        return floor(step) == step ? weir__schema_integer(w, schema)
                                   : decimal_multiples(w, &bounds.range, step);
    if (multiple != NULL || bounds.range.low != NULL || bounds.range.high != NULL)
        return bounded_number(w, schema, &bounds);
    return weir__schema_pack(w, "{s:s}", "type", "number");
}
