/* json_write.c: JSON values as texts; numbers as Python's json.dumps writes them. jansson writes 17 digits,
 * which are longer than most numbers are, and asks the locale for its decimal point.
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "weir/more.h"

/* ---- Numbers ---- */

/* Significant digits of a real, and the power of ten of the first one. */
typedef struct decimal {
    char digits[20];
    int n, exponent;
} decimal;

/* The digits of what printf's %e writes, in any locale. */
static decimal decimal_of(const char *text)
{
    decimal d = {.n = 0};
    const char *e = strchr(text, 'e');
    for (const char *at = text; at < e; at++)
        if (weir__ascii_is_digit(*at) && d.n < (int)sizeof d.digits) d.digits[d.n++] = *at;
    while (d.n > 1 && d.digits[d.n - 1] == '0') d.n--;
    d.exponent = atoi(e + 1);
    return d;
}

/* True if the digits are read as the number. Below a power of two, numbers lie closer together than above:
 * digits that are rounded down to below it may miss it where the next ones do not. */
static bool reads_back(char *text, double value)
{
    char *last = strchr(text, 'e') - 1;
    if (strtod(text, NULL) == value) return true;
    if (*last == '9') return false;
    ++*last;
    return strtod(text, NULL) == value;
}

/* The fewest digits that are read as the same number. 15 are never more than that needs, unless it is
 * subnormal. */
static decimal shortest_decimal(double value)
{
    char text[64];
    int precision = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    do snprintf(text, sizeof text, "%.*e", precision - 1, value);
    while (!reads_back(text, value) && ++precision <= DBL_DECIMAL_DIG);
    return decimal_of(text);
}

size_t weir__json_real_text(double value, char text[WEIR__JSON_REAL_MAX])
{
    const decimal d = shortest_decimal(value);
    char *to = text;
    if (signbit(value)) *to++ = '-';
    if (d.exponent < -4 || d.exponent >= 16) {
        *to++ = d.digits[0];
        if (d.n > 1) *to++ = '.';
        for (int i = 1; i < d.n; i++) *to++ = d.digits[i];
        return (size_t)(to - text) +
               (size_t)snprintf(to, WEIR__JSON_REAL_MAX - (size_t)(to - text), "e%+03d", d.exponent);
    }
    int first = d.exponent < 0 ? d.exponent : 0, last = d.n - 1 > d.exponent ? d.n - 1 : d.exponent + 1;
    for (int i = first; i <= last; i++) { /* the i-th digit; before and behind the digits are zeroes */
        *to++ = i >= 0 && i < d.n ? d.digits[i] : '0';
        if (i == d.exponent || (i == first && d.exponent < first)) *to++ = '.';
    }
    *to = '\0';
    return (size_t)(to - text);
}

/* ---- Values ---- */

/* The interrupt is asked once in so many values that are written, and for each string of so many bytes. */
#define VALUES 256
#define PIECE  ((size_t)4096)

/* A text that is written. */
typedef struct target {
    weir__text text;
    size_t n_values, most; /* bytes */
    bool interrupted, longer;
} target;

/* False: nothing more is to be written. */
static bool check_target(target *to, size_t n)
{
    bool asks = n >= PIECE || ++to->n_values % VALUES == 0;
    to->interrupted = to->interrupted || (asks && weir_interrupt_asked());
    to->longer = to->longer || to->text.n > to->most || n > to->most - to->text.n;
    return !to->interrupted && !to->longer && !to->text.failed;
}

static void write_real(target *to, double value)
{
    char text[WEIR__JSON_REAL_MAX];
    weir__text_add(&to->text, text, weir__json_real_text(value, text));
}

static bool write_value(target *to, const json_t *value);

static bool write_array(target *to, const json_t *array)
{
    const size_t n = json_array_size(array);
    weir__text_add(&to->text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) weir__text_add(&to->text, ",", 1);
        if (!write_value(to, json_array_get(array, i))) return false;
    }
    weir__text_add(&to->text, "]", 1);
    return true;
}

static bool write_object(target *to, const json_t *object)
{
    const char *key, *between = "{";
    json_t *value;
    if (json_object_size(object) == 0) weir__text_add(&to->text, "{", 1);
    json_object_foreach((json_t *)object, key, value)
    {
        const size_t n = strlen(key);
        if (!check_target(to, n)) return false;
        weir__text_add(&to->text, between, 1);
        between = ",";
        weir__json_quote(&to->text, key, n);
        weir__text_add(&to->text, ":", 1);
        if (!write_value(to, value)) return false;
    }
    weir__text_add(&to->text, "}", 1);
    return true;
}

static bool write_value(target *to, const json_t *value)
{
    const char *digits = weir__json_digits(value);
    if (!check_target(to, json_string_length(value))) return false;
    if (digits != NULL) return weir__text_add_string(&to->text, digits);
    switch (json_typeof(value)) {
    case JSON_OBJECT: return write_object(to, value);
    case JSON_ARRAY: return write_array(to, value);
    case JSON_STRING: weir__json_quote(&to->text, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER:
        weir__text_printf(&to->text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL: write_real(to, json_real_value(value)); break;
    case JSON_TRUE: weir__text_add_string(&to->text, "true"); break;
    case JSON_FALSE: weir__text_add_string(&to->text, "false"); break;
    default: weir__text_add_string(&to->text, "null"); break;
    }
    return !to->text.failed;
}

char *weir__json_dump_most(const json_t *value, size_t most, bool *longer)
{
    target to = {.most = most};
    bool written = value != NULL && write_value(&to, value);
    to.longer = to.longer || to.text.n > most;
    if (written && !to.longer && !to.text.failed) return to.text.bytes;
    *longer = to.longer;
    weir__text_fini(&to.text);
    return NULL;
}

char *weir__json_dump(const json_t *value)
{
    bool longer;
    return weir__json_dump_most(value, SIZE_MAX, &longer);
}
