/* schema_number.c: numbers, their bounds, and what `not` leaves of them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Bounds of integers become integers. Multiples of 1, 0.1, 0.01 and so on are numbers with so many digits
 * after the point. Those of other steps become a list where bounds leave few, and are read digit by digit
 * otherwise (multiples.c). Values that `not` excludes part the numbers: those before, between and after them
 * are alternatives. Numbers that are no integers lie between two integers, and their last digit is not 0. */
#include "grammar/schema_walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "grammar/multiples.h"

/* The most numbers in a list, which replaces bounds that have no grammar. */
#define LISTED_MAX 1001

/* The largest step: the most remainders. */
#define STEP_MAX 1000

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

/* Multiples that are too many for a list. */
static json_t *read_multiples(weir__schema_walk *w, const weir__multiples *of)
{
    const uint64_t size = of->step <= STEP_MAX ? weir__multiples_size(of) : UINT64_MAX;
    if (size > WEIR__SCHEMA_ELEMENTS_MAX)
        return weir__schema_refuse(
            w, "multipleOf",
            "it needs minimum and maximum with at most %d multiples between them: a grammar for all would be "
            "too large",
            LISTED_MAX);
    if (!weir__schema_take(w, "multipleOf", size)) return NULL;
    return weir__schema_pack(w, "{s:s,s:[i,i,I,I]}", "type", "number", WEIR__SCHEMA_MULTIPLES, (int)of->step,
                             of->places, (json_int_t)of->low, (json_int_t)of->high);
}

/* All multiples of step from low to high. */
static json_t *multiples_rule(weir__schema_walk *w, int64_t low, int64_t high, int64_t step)
{
    int64_t first = low / step + (low % step > 0), last = high / step - (high % step < 0);
    if (last - first >= LISTED_MAX)
        return read_multiples(w, &(weir__multiples){(uint64_t)step, 0, low, high});
    json_t *list = json_array();
    for (int64_t i = first; i <= last; i++) weir__schema_append(w, list, json_integer(i * step));
    weir__schema_take(w, "multipleOf", json_array_size(list) * 8);
    return weir__schema_choice(w, "enum", list);
}

/* A step as an integer by a power of ten. False: it has too many digits. */
static bool split_step(double step, double *whole, double *power)
{
    *power = 1;
    while (*power < 1e15 && rint(step * *power) / *power != step) *power *= 10;
    *whole = rint(step * *power);
    return step > 0 && *whole > 0 && *whole <= 1e15 && *whole / *power == step;
}

/* The integers that are multiples of the step are those of *whole. */
static bool whole_step(double step, int64_t *whole)
{
    double numerator, power;
    if (!split_step(step, &numerator, &power)) return false;
    *whole = (int64_t)numerator / (int64_t)weir__common_divisor((uint64_t)numerator, (uint64_t)power);
    return true;
}

static json_t *integer(weir__schema_walk *w, const json_t *schema)
{
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const char *format = json_string_value(json_object_get(schema, "format"));
    int64_t low = -WEIR__SCHEMA_INTEGER_MAX, high = WEIR__SCHEMA_INTEGER_MAX;
    int64_t step = 1;
    if (multiple != NULL && !whole_step(json_number_value(multiple), &step))
        return weir__schema_refuse(w, "multipleOf", "it must be a number above 0 of at most 15 digits");
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
    if (step > 1) return multiples_rule(w, low, high, step);
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
    double least = range->low != NULL ? strtod(range->low, NULL) : -INFINITY;
    double most = range->high != NULL ? strtod(range->high, NULL) : INFINITY;
    double whole, power, first = ceil(least / step) - 1, last = floor(most / step) + 1;
    const bool split = split_step(step, &whole, &power);
    const bool above = least == 0 && !range->low_out;
    if (split && (range->low == NULL || above) && range->high == NULL)
        return read_multiples(w, &(weir__multiples){(uint64_t)whole, (int)lrint(log10(power)),
                                                    above ? 0 : -WEIR__SCHEMA_INTEGER_MAX,
                                                    WEIR__SCHEMA_INTEGER_MAX});
    /* Beyond 2^53 the products would be rounded. */
    if (!split || !(last - first < LISTED_MAX) || fabs(first) * whole > 0x1p53 || fabs(last) * whole > 0x1p53)
        return weir__schema_refuse(
            w, "multipleOf",
            "with these bounds it must be 1, 0.1, 0.01 and so on; or give minimum and maximum with at most "
            "%d multiples between them",
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

static json_t *number(weir__schema_walk *w, const json_t *schema)
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
        return floor(step) == step ? integer(w, schema) : decimal_multiples(w, &bounds.range, step);
    if (multiple != NULL || bounds.range.low != NULL || bounds.range.high != NULL)
        return bounded_number(w, schema, &bounds);
    return weir__schema_pack(w, "{s:s}", "type", "number");
}

/* ---- What `not` leaves ---- */

/* The bound of the keyword's value for numbers that are no integers, rounded to an integer inside. */
static int64_t rounded_bound(const json_t *schema, const char *keyword, const char *exclusive, bool lower)
{
    const json_t *values[] = {json_object_get(schema, keyword), json_object_get(schema, exclusive)};
    const int64_t end = WEIR__SCHEMA_INTEGER_MAX + 1;
    int64_t bound = lower ? -end : end;
    for (int i = 0; i < 2; i++) {
        if (!json_is_number(values[i])) continue;
        const double d = json_number_value(values[i]);
        int64_t value = d < 0 ? -end : end;
        if (fabs(d) < (double)end && json_is_integer(values[i]))
            value = json_integer_value(values[i]);
        else if (fabs(d) < (double)end)
            value = (int64_t)(lower ? ceil(d) : floor(d));
        if (lower ? value > bound : value < bound) bound = value;
    }
    return bound;
}

/* Numbers that are no integers. */
static json_t *of_fractions(weir__schema_walk *w, const json_t *schema)
{
    weir__schema_bounds bounds;
    if (json_object_get(schema, "multipleOf") != NULL ||
        json_is_boolean(json_object_get(schema, "exclusiveMinimum")) ||
        json_is_boolean(json_object_get(schema, "exclusiveMaximum")))
        return weir__schema_refuse(w, "not", "multiples that are no integers are not supported");
    const int64_t low = rounded_bound(schema, "minimum", "exclusiveMinimum", true);
    const int64_t high = rounded_bound(schema, "maximum", "exclusiveMaximum", false);
    if (low < high)
        return weir__schema_pack(w, "{s:s,s:b,s:I,s:I}", "type", "number", WEIR__SCHEMA_BROKEN, 1, "minimum",
                                 (json_int_t)low, "maximum", (json_int_t)high);
    weir__schema_read_bounds(schema, &bounds);
    const int order =
        bounds.least != NULL && bounds.most != NULL ? weir__schema_compare(bounds.least, bounds.most) : -1;
    if (order > 0 || (order == 0 && (bounds.range.low_out || bounds.range.high_out ||
                                     weir__schema_type_of(bounds.least) == TYPE_INTEGER)))
        return json_false();
    return weir__schema_refuse(w, "not", "it can exclude integers only where the bounds have two of them");
}

static json_t *of_one_type(weir__schema_walk *w, const json_t *schema, unsigned type)
{
    switch (type) {
    case TYPE_FRACTION: return of_fractions(w, schema);
    case TYPE_INTEGER: return integer(w, schema);
    default: return number(w, schema);
    }
}

/* Of a part of integers, most of which are short. */
#define PART_ELEMENTS ((uint64_t)100)

/* The schema with bounds of draft 4, where a boolean says that the other bound is exclusive, as numbers. */
static void settle_bounds(weir__schema_walk *w, json_t *schema)
{
    static const char *const names[][2] = {{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}};
    for (int i = 0; i < 2; i++) {
        const json_t *exclusive = json_object_get(schema, names[i][1]);
        json_t *bound = json_object_get(schema, names[i][0]);
        if (!json_is_boolean(exclusive)) continue;
        if (json_is_true(exclusive) && bound != NULL) {
            weir__schema_set(w, schema, names[i][1], json_incref(bound));
            json_object_del(schema, names[i][0]);
        } else {
            json_object_del(schema, names[i][1]);
        }
    }
}

static int compare_values(const void *a, const void *b)
{
    return weir__schema_compare(*(json_t *const *)a, *(json_t *const *)b);
}

/* True if a number of this type may have the value: its integers have at most 16 digits. */
static bool may_be(const json_t *value, unsigned type)
{
    const double size = fabs(json_number_value(value));
    if ((weir__schema_type_of(value) & type) == 0) return false;
    return type != TYPE_INTEGER || size <= (double)WEIR__SCHEMA_INTEGER_MAX;
}

/* The part of the numbers between two excluded values, of which one may be NULL. */
static json_t *part_between(weir__schema_walk *w, const json_t *schema, json_t *above, json_t *below,
                            unsigned type)
{
    json_t *part = weir__schema_made(w, weir__json_copy(schema));
    const json_t *low = json_object_get(part, "exclusiveMinimum"),
                 *high = json_object_get(part, "exclusiveMaximum");
    if (above != NULL && (!json_is_number(low) || weir__schema_compare(low, above) < 0))
        weir__schema_set(w, part, "exclusiveMinimum", json_incref(above));
    if (below != NULL && (!json_is_number(high) || weir__schema_compare(high, below) > 0))
        weir__schema_set(w, part, "exclusiveMaximum", json_incref(below));
    json_t *one = w->status == WEIR_OK ? of_one_type(w, part, type) : NULL;
    json_decref(part);
    return one;
}

/* The numbers without the values that `not` excludes: those before, between and after them. */
static json_t *of_parts(weir__schema_walk *w, const json_t *schema, unsigned type)
{
    json_t *given = json_object_get(schema, WEIR__SCHEMA_NOT_NUMBERS), *list = NULL;
    json_t *whole = weir__schema_without(w, schema, WEIR__SCHEMA_NOT_NUMBERS);
    json_t **values = weir__mem_calloc(json_array_size(given) + 1, sizeof *values);
    size_t n = 0;
    if (values == NULL) weir__schema_no_memory(w);
    for (size_t i = 0; values != NULL && i < json_array_size(given) && weir__schema_spend(w, 16); i++)
        if (may_be(json_array_get(given, i), type)) values[n++] = json_array_get(given, i);
    if (n > 0 && type == TYPE_FRACTION)
        weir__schema_refuse(w, "not", "it cannot exclude integers and single numbers between them");
    if (w->status == WEIR_OK) {
        if (n > 1) qsort(values, n, sizeof *values, compare_values);
        settle_bounds(w, whole);
        list = weir__schema_made(w, json_array());
    }
    for (size_t i = 0; i <= n && list != NULL && weir__schema_take(w, "not", PART_ELEMENTS); i++) {
        json_t *one = part_between(w, whole, i > 0 ? values[i - 1] : NULL, i < n ? values[i] : NULL, type);
        if (!json_is_false(one)) weir__schema_append(w, list, one);
    }
    weir__mem_free(values);
    json_decref(whole);
    if (w->status == WEIR_OK) return weir__schema_any_of(w, list);
    json_decref(list);
    return NULL;
}

json_t *weir__schema_numbers(weir__schema_walk *w, const json_t *schema, unsigned type)
{
    return json_object_get(schema, WEIR__SCHEMA_NOT_NUMBERS) != NULL ? of_parts(w, schema, type)
                                                                     : of_one_type(w, schema, type);
}
