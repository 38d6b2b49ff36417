/* json.c: bounds a text by one look at its bytes, then reads it; and writes values with a limit on their
 * length.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Reading recurses and takes memory for each value. So a text is refused before that if it is too long, is
 * not UTF-8, or has too many or too deep brackets, or too many commas or colons, which one pass over its
 * bytes counts; json_read.c then makes the values. weir__json_check counts the same of values that a program
 * has made. Writing recurses, too: it asks the interrupt now and then, and ends where the text would be
 * longer than allowed. A real is written with the fewest digits that are read as the same number, in any
 * locale. */
#include "base/json.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "weir/more.h"

static const char *words_for(enum json_error_code code)
{
    switch (code) {
    case json_error_premature_end_of_input: return "it ends too early";
    case json_error_end_of_input_expected: return "something follows behind its end";
    case json_error_null_character:
    case json_error_null_byte_in_key: return "the character U+0000 is not allowed";
    case json_error_duplicate_key: return "duplicate key in an object";
    case json_error_numeric_overflow: return "the number is too large";
    case json_error_stack_overflow: return "it is nested too deep";
    default: return "unexpected value, key or character";
    }
}

weir__json_words weir__json_problem(const json_error_t *what)
{
    weir__json_words words;
    const char *near = strstr(what->text, " near '"); /* and the text there */
    snprintf(words.text, sizeof words.text, "%s%s%s", words_for(json_error_code(what)),
             near != NULL ? "," : "", near != NULL ? near : "");
    return words;
}

/* ---- Reading ---- */

static weir_status refuse_interrupted(const char *field, weir_error *error)
{
    return weir__error_set(error, WEIR_ABORTED, field,
                           "the function that was given to weir_interrupt_set asked to stop reading `%s`",
                           field);
}

/* Counts that a text's brackets and commas give before it is read, which recurses and takes memory for each
 * value. */
typedef struct shape {
    int depth, deepest;
    size_t n_values; /* at least as many as there are */
    size_t n_containers, n_members;
    size_t widest;                          /* members of one object */
    size_t width[WEIR__JSON_DEPTH_MAX + 2]; /* of those that are open */
} shape;

static void measure_byte(shape *s, char c)
{
    if (c == '[' || c == '{') {
        s->n_containers++;
        s->n_values++;
        if (++s->depth > s->deepest) s->deepest = s->depth;
        if (s->depth > 0) s->width[s->depth] = 0;
    } else if (c == ']' || c == '}') {
        s->depth--;
    } else if (c == ':') {
        s->n_members++;
        if (s->depth > 0 && ++s->width[s->depth] > s->widest) s->widest = s->width[s->depth];
    } else {
        s->n_values += c == ',';
    }
}

static shape measure_text(const char *text, size_t length)
{
    shape s = {.n_values = 1};
    for (size_t i = 0; i < length && s.deepest <= WEIR__JSON_DEPTH_MAX; i++) {
        if (text[i] != '"') {
            measure_byte(&s, text[i]);
            continue;
        }
        for (i++; i < length && text[i] != '"'; i++) i += text[i] == '\\';
    }
    return s;
}

static weir_status check_shape(const shape *s, const char *field, weir_status code, weir_error *error)
{
    if (s->deepest > WEIR__JSON_DEPTH_MAX)
        return weir__error_numbers(error, code, field, NAN, 0, WEIR__JSON_DEPTH_MAX,
                                   "`%s` is nested deeper than %d", field, WEIR__JSON_DEPTH_MAX);
    if (s->n_containers > WEIR__JSON_CONTAINERS_MAX)
        return weir__error_range(error, code, field, (double)s->n_containers, 0, WEIR__JSON_CONTAINERS_MAX,
                                 "`%s` has %zu objects and arrays", field, s->n_containers);
    if (s->n_members > WEIR__JSON_MEMBERS_MAX || s->widest > WEIR__JSON_WIDTH_MAX)
        return weir__error_of(
            error, code, WEIR_ERROR_RANGE, field,
            "`%s` has %zu members of objects, up to %zu in one; allowed: up to %zu, and %zu in one", field,
            s->n_members, s->widest, WEIR__JSON_MEMBERS_MAX, WEIR__JSON_WIDTH_MAX);
    if (s->n_values > WEIR__JSON_VALUES_MAX)
        return weir__error_numbers(error, code, field, NAN, 0, (double)WEIR__JSON_VALUES_MAX,
                                   "`%s` has more than %zu values, which is the limit", field,
                                   WEIR__JSON_VALUES_MAX);
    return WEIR_OK;
}

static weir_status check_text(const char *text, size_t length, const char *field, weir_status code,
                              weir_error *error)
{
    if (length > WEIR__JSON_BYTES_MAX)
        return weir__error_range(error, code, field, (double)length, 0, WEIR__JSON_BYTES_MAX,
                                 "`%s` has %zu bytes", field, length);
    if (!weir__utf8_valid(text, length))
        return weir__error_of(error, code, WEIR_ERROR_FORM, field, "`%s` is not well-formed UTF-8", field);
    if (weir_interrupt_asked()) return refuse_interrupted(field, error);
    const shape s = measure_text(text, length);
    return check_shape(&s, field, code, error);
}

/* The error for a text that could not be read. Columns count characters. */
static weir_status report_fault(const weir__json_fault *fault, const char *text, const char *field,
                                weir_status code, weir_error *error)
{
    enum { NEAR_MAX = 20 };
    int line = 1, column = 0;
    size_t n = fault->at - fault->from;
    for (size_t i = 0; i < fault->at; i++) {
        line += text[i] == '\n';
        column = text[i] == '\n' ? 0 : column + (((unsigned char)text[i] & 0xC0) != 0x80);
    }
    switch (fault->code) {
    case json_error_out_of_memory:
        return weir__error_set(error, WEIR_NO_MEMORY, field, "out of memory for `%s`", field);
    case json_error_stack_overflow:
        return weir__error_numbers(error, code, field, NAN, 0, WEIR__JSON_DEPTH_MAX,
                                   "`%s` is nested deeper than %d", field, WEIR__JSON_DEPTH_MAX);
    case json_error_index_out_of_range:
        return weir__error_numbers(error, code, field, NAN, 0, (double)WEIR__JSON_BIG_MAX,
                                   "`%s` has more than %zu integers beyond 64 bits, which is the limit",
                                   field, WEIR__JSON_BIG_MAX);
    case json_error_null_character:
        return weir__error_of(
            error, code, WEIR_ERROR_FORM, field,
            "`%s`: the escape at byte %zu is U+0000 or half of a surrogate pair, which no text can contain",
            field, fault->from);
    default:
        return weir__error_of(
            error, code, WEIR_ERROR_FORM, field, "`%s` is not JSON: line %d, column %d: %s%s%.*s%s", field,
            line, column, words_for(fault->code), n > 0 && n <= NEAR_MAX ? ", near '" : "",
            n <= NEAR_MAX ? (int)n : 0, text + fault->from, n > 0 && n <= NEAR_MAX ? "'" : "");
    }
}

/* mends: replaces unfit escapes instead of refusing them. */
static weir_status parse_text(const char *text, size_t length, const char *field, weir_status code,
                              bool mends, bool exact, json_t **value, weir_error *error)
{
    weir__json_fault fault;
    if (text == NULL) return weir__error_null(error, field);
    if (length == WEIR_NUL) length = strlen(text);
    weir_status status = check_text(text, length, field, code, error);
    if (status != WEIR_OK) return status;
    json_t *parsed = weir__json_read(text, length, WEIR__JSON_DEPTH_MAX, mends, exact, &fault);
    if (parsed == NULL && fault.interrupted) return refuse_interrupted(field, error);
    if (parsed == NULL) return report_fault(&fault, text, field, code, error);
    *value = parsed;
    return WEIR_OK;
}

weir_status weir__json_parse(const char *text, size_t length, const char *field, weir_status code,
                             json_t **value, weir_error *error)
{
    return parse_text(text, length, field, code, false, false, value, error);
}

weir_status weir__json_parse_texts(const char *text, size_t length, const char *field, weir_status code,
                                   json_t **value, weir_error *error)
{
    return parse_text(text, length, field, code, true, true, value, error);
}

weir_status weir__json_parse_exact(const char *text, size_t length, const char *field, weir_status code,
                                   json_t **value, weir_error *error)
{
    return parse_text(text, length, field, code, false, true, value, error);
}

/* ---- Values ---- */

bool weir__json_spend(const json_t *value, size_t *left)
{
    json_t *one;
    const char *key;
    size_t i, n = 1;
    if (json_is_object(value) || json_is_array(value)) n += WEIR__JSON_VALUES_MAX / WEIR__JSON_CONTAINERS_MAX;
    if (n > *left) return false;
    *left -= n;
    json_object_foreach((json_t *)value, key, one)
    {
        if (!weir__json_spend(one, left)) return false;
    }
    json_array_foreach((json_t *)value, i, one)
    {
        if (!weir__json_spend(one, left)) return false;
    }
    return true;
}

/* True if the text could be read, or the bytes of a key. */
static bool is_text(const char *bytes, size_t n)
{
    return memchr(bytes, '\0', n) == NULL && weir__utf8_valid(bytes, n);
}

/* What is wrong with the value; NULL: nothing, or one of the limits is passed. Counts in s, as measure_text
 * does. */
static const char *find_fault(const json_t *value, shape *s)
{
    const char *key, *fault = NULL, *digits = weir__json_digits(value);
    json_t *one;
    size_t i;
    if (++s->n_values > WEIR__JSON_VALUES_MAX) return NULL;
    if (digits != NULL) return isfinite(strtod(digits, NULL)) ? NULL : "has a number that is too large";
    if (json_is_string(value) && !is_text(json_string_value(value), json_string_length(value)))
        return "has a text that is not well-formed UTF-8, or has U+0000";
    if (!json_is_object(value) && !json_is_array(value)) return NULL;
    s->n_containers++;
    s->n_members += json_object_size(value);
    if (json_object_size(value) > s->widest) s->widest = json_object_size(value);
    if (++s->depth > s->deepest) s->deepest = s->depth;
    if (s->depth <= WEIR__JSON_DEPTH_MAX && s->n_containers <= WEIR__JSON_CONTAINERS_MAX) {
        json_object_foreach((json_t *)value, key, one)
        {
            if (fault == NULL && !is_text(key, strlen(key)))
                fault = "has a key that is not well-formed UTF-8";
            if (fault == NULL) fault = find_fault(one, s);
        }
        json_array_foreach((json_t *)value, i, one)
        {
            if (fault == NULL) fault = find_fault(one, s);
        }
    }
    s->depth--;
    return fault;
}

weir_status weir__json_check(const json_t *value, const char *field, weir_error *error)
{
    shape s = {0};
    const char *fault = find_fault(value, &s);
    if (fault != NULL) return weir__invalid(error, WEIR_ERROR_FORM, field, "`%s` %s", field, fault);
    return check_shape(&s, field, WEIR_INVALID, error);
}

size_t weir__json_size(const json_t *value)
{
    const char *key;
    json_t *one;
    size_t i, n = json_is_string(value) ? json_string_length(value) + 3 : 8;
    json_object_foreach((json_t *)value, key, one) n += strlen(key) + 3 + weir__json_size(one);
    json_array_foreach((json_t *)value, i, one) n += weir__json_size(one);
    return n;
}

/* Puts `one` into `copy`, which takes it, at a key or, if that is NULL, at the end. NULL: out of memory. */
static json_t *put_one(json_t *copy, const char *key, json_t *one)
{
    if ((key != NULL ? json_object_set_new_nocheck(copy, key, one) : json_array_append_new(copy, one)) == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

/* A copy of the arrays and objects. near: with reals in place of long integers. */
static json_t *copy_deep(const json_t *value, bool near)
{
    const char *key, *digits = near ? weir__json_digits(value) : NULL;
    json_t *one, *copy;
    size_t i;
    if (digits != NULL) return json_real(strtod(digits, NULL));
    if (!json_is_object(value) && !json_is_array(value)) return json_incref((json_t *)value);
    copy = json_is_object(value) ? json_object() : json_array();
    json_object_foreach((json_t *)value, key, one)
    {
        if (copy != NULL) copy = put_one(copy, key, copy_deep(one, near));
    }
    json_array_foreach((json_t *)value, i, one)
    {
        if (copy != NULL) copy = put_one(copy, NULL, copy_deep(one, near));
    }
    return copy;
}

json_t *weir__json_own(const json_t *value)
{
    return copy_deep(value, false);
}

static bool has_digits(const json_t *value)
{
    const char *key;
    json_t *one;
    size_t i;
    bool has = weir__json_digits(value) != NULL;
    json_object_foreach((json_t *)value, key, one) has = has || has_digits(one);
    json_array_foreach((json_t *)value, i, one) has = has || has_digits(one);
    return has;
}

json_t *weir__json_near(const json_t *value)
{
    return has_digits(value) ? copy_deep(value, true) : json_incref((json_t *)value);
}

json_t *weir__json_copy(const json_t *value)
{
    json_t *copy = json_copy((json_t *)value);
    if (json_object_size(copy) == json_object_size(value) && json_array_size(copy) == json_array_size(value))
        return copy;
    json_decref(copy);
    return NULL;
}

static bool count_pairs(const json_t *value, size_t *left)
{
    const char *key;
    json_t *one;
    size_t i, n = json_object_size(value);
    if (n * n / 2 > *left) return false;
    *left -= n * n / 2;
    json_object_foreach((json_t *)value, key, one)
    {
        if (!count_pairs(one, left)) return false;
    }
    json_array_foreach((json_t *)value, i, one)
    {
        if (!count_pairs(one, left)) return false;
    }
    return true;
}

bool weir__json_is_narrow(const json_t *value)
{
    size_t left = (size_t)1 << 25;
    return count_pairs(value, &left);
}

/* ---- Into a text, piece by piece ---- */

void weir__json_next(weir__text *text)
{
    if (text->n > 0 && strchr("[{", text->bytes[text->n - 1]) == NULL) weir__text_add(text, ",", 1);
}

void weir__json_key(weir__text *text, const char *name)
{
    weir__json_next(text);
    weir__text_add(text, "\"", 1);
    weir__text_add_string(text, name);
    weir__text_add(text, "\":", 2);
}

/* Names of files may be any bytes. */
static void quote_unclean(weir__text *text, const char *bytes, size_t n)
{
    char *clean = weir__mem_alloc(WEIR__UTF8_BOUND(n));
    if (clean != NULL)
        weir__json_quote(text, clean, weir__utf8_sanitize(bytes, n, clean));
    else
        text->failed = true;
    weir__mem_free(clean);
}

/* Writes a character that no string has as it is; returns the length. */
static size_t write_escape(unsigned char c, char escape[6])
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\", digits[] = "0123456789abcdef";
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    if (name != NULL) {
        escape[0] = '\\';
        escape[1] = letters[name - names];
        return 2;
    }
    const char unicode[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    memcpy(escape, unicode, sizeof unicode);
    return sizeof unicode;
}

void weir__json_quote(weir__text *text, const char *bytes, size_t n)
{
    size_t from = 0;
    if (!weir__utf8_valid(bytes, n)) {
        quote_unclean(text, bytes, n);
        return;
    }
    weir__text_add(text, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        char escape[6];
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (i > from) weir__text_add(text, bytes + from, i - from);
        weir__text_add(text, escape, write_escape(c, escape));
        from = i + 1;
    }
    if (n > from) weir__text_add(text, bytes + from, n - from);
    weir__text_add(text, "\"", 1);
}

void weir__json_bytes(weir__text *text, const char *name, const char *bytes, size_t n)
{
    weir__json_key(text, name);
    weir__json_quote(text, bytes, n);
}

void weir__json_string(weir__text *text, const char *name, const char *string)
{
    if (string != NULL) {
        weir__json_bytes(text, name, string, strlen(string));
    } else {
        weir__json_key(text, name);
        weir__text_add_string(text, "null");
    }
}

void weir__json_number(weir__text *text, const char *name, double value, int decimals)
{
    char digits[64];
    int n =
        snprintf(digits, sizeof digits, "%.*f", decimals, isfinite(value) && fabs(value) < 1e30 ? value : 0);
    while (decimals > 0 && n > 1 && digits[n - 1] == '0') n--;
    if (decimals > 0 && digits[n - 1] == '.') n--;
    weir__json_key(text, name);
    weir__text_add(text, digits, (size_t)n);
}

/* ---- Writing: numbers ---- */

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

/* True if a text is read as the number, of a float's precision if single. */
static bool reads_as(const char *text, double value, bool single)
{
    return single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value;
}

/* True if the digits are read as the number. Below a power of two, numbers lie closer together than above:
 * digits that are rounded down to below it may miss it where the next ones do not. */
static bool reads_back(char *text, double value, bool single)
{
    char *last = strchr(text, 'e') - 1;
    if (reads_as(text, value, single)) return true;
    if (*last == '9') return false;
    ++*last;
    return reads_as(text, value, single);
}

/* The fewest digits that are read as the same number. 15 are never more than that needs, or 6 of a float,
 * unless it is subnormal. */
static decimal shortest_decimal(double value, bool single)
{
    char text[64];
    int precision = fabs(value) < (single ? (double)FLT_MIN : DBL_MIN) ? 1 : single ? FLT_DIG : DBL_DIG;
    do snprintf(text, sizeof text, "%.*e", precision - 1, value);
    while (!reads_back(text, value, single) && ++precision <= DBL_DECIMAL_DIG);
    return decimal_of(text);
}

static size_t real_text(double value, bool single, char text[WEIR__JSON_REAL_MAX])
{
    const decimal d = shortest_decimal(value, single);
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

size_t weir__json_real_text(double value, char text[WEIR__JSON_REAL_MAX])
{
    return real_text(value, false, text);
}

void weir__json_float(weir__text *text, const char *name, float value)
{
    char digits[WEIR__JSON_REAL_MAX];
    size_t n = real_text(isfinite(value) ? (double)value : 0, true, digits);
    if (memcmp(digits + n - 2, ".0", 2) == 0) n -= 2;
    weir__json_key(text, name);
    weir__text_add(text, digits, n);
}

/* ---- Writing: values ---- */

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
