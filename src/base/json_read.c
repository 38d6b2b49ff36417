/* json_read.c: JSON texts as jansson's values.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A scanner gives one token at a time, and values are built by recursion, as deep as depth_max. Strings are
 * unescaped into one scratch that all of them use. The first fault stays, and ends everything. Integers
 * beyond 64 bits become reals, or keep their digits as a string with a mark (weir__json_digits). */
#include "base/json_read.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/mem.h"
#include "weir/more.h"

/* Tokens: the characters {}[]:, themselves, and these. */
enum { TOKEN_END, TOKEN_BAD, TOKEN_STRING, TOKEN_INTEGER, TOKEN_REAL, TOKEN_TRUE, TOKEN_FALSE, TOKEN_NULL };

typedef struct reader {
    const char *text;
    size_t length, from, at; /* the token is text[from, at) */
    bool mends;
    bool exact; /* integers beyond 64 bits keep their digits */
    size_t n_big;
    int token, depth, depth_max;
    enum json_error_code code; /* json_error_unknown: nothing is wrong yet */
    char *scratch;             /* a string's bytes or a number's digits, with NUL */
    size_t capacity;
    char point;   /* decimal_point(), once it was asked */
    size_t asked; /* the place where the interrupt was asked last */
    bool interrupted;
} reader;

/* The first fault counts: those after it only follow from it. */
static int fault_token(reader *r, enum json_error_code code)
{
    if (r->code == json_error_unknown) r->code = code;
    return TOKEN_BAD;
}

static bool fault_value(reader *r, json_t *value, enum json_error_code code)
{
    json_decref(value);
    fault_token(r, r->token == TOKEN_END && code == json_error_invalid_syntax
                       ? json_error_premature_end_of_input
                       : code);
    return false;
}

/* Room for n bytes and NUL. */
static bool has_scratch(reader *r, size_t n)
{
    return weir__mem_grow(&r->scratch, &r->capacity, n + 1, 1);
}

/* ---- Tokens ---- */

static size_t skip_digits(reader *r)
{
    size_t from = r->at;
    while (r->at < r->length && weir__ascii_is_digit(r->text[r->at])) r->at++;
    return r->at - from;
}

static bool skip_char(reader *r, const char *any)
{
    while (*any != '\0' && (r->at == r->length || r->text[r->at] != *any)) any++;
    r->at += *any != '\0';
    return *any != '\0';
}

static int scan_number(reader *r)
{
    int token = TOKEN_INTEGER;
    skip_char(r, "-");
    if (!skip_char(r, "0") && skip_digits(r) == 0) return TOKEN_BAD;
    if (skip_char(r, ".")) {
        if (skip_digits(r) == 0) return TOKEN_BAD;
        token = TOKEN_REAL;
    }
    if (skip_char(r, "eE")) {
        skip_char(r, "+-");
        if (skip_digits(r) == 0) return TOKEN_BAD;
        token = TOKEN_REAL;
    }
    return r->at < r->length && weir__ascii_is_digit(r->text[r->at]) ? TOKEN_BAD : token; /* 01 */
}

/* Skips one character that may not be there, all its bytes. */
static int scan_other(reader *r)
{
    if (r->at < r->length) r->at++;
    while (r->at < r->length && ((unsigned char)r->text[r->at] & 0xC0) == 0x80) r->at++;
    return TOKEN_BAD;
}

/* The interrupt is asked once in so many bytes. */
#define PIECE ((size_t)4096)

static bool goes_on(reader *r)
{
    if (r->at - r->asked < PIECE) return !r->interrupted;
    r->asked = r->at;
    r->interrupted = r->interrupted || weir_interrupt_asked();
    return !r->interrupted;
}

/* Skips a string up to behind the quote that ends it. What its escapes stand for is read later. */
static int scan_string(reader *r)
{
    for (r->at++; r->at < r->length; r->at++) {
        if (!goes_on(r)) return TOKEN_BAD;
        unsigned char c = (unsigned char)r->text[r->at];
        if (c < 0x20) return TOKEN_BAD;
        if (c == '"') {
            r->at++;
            return TOKEN_STRING;
        }
        if (c != '\\') continue;
        r->at++;
        if (skip_char(r, "u")) {
            for (int i = 0; i < 4; i++, r->at++)
                if (r->at == r->length || weir__ascii_hex(r->text[r->at]) < 0) return scan_other(r);
        } else if (!skip_char(r, "\"\\/bfnrt")) {
            return scan_other(r);
        }
        r->at--;
    }
    return fault_token(r, json_error_premature_end_of_input);
}

static int scan_word(reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    static const int tokens[] = {TOKEN_TRUE, TOKEN_FALSE, TOKEN_NULL};
    while (r->at < r->length && weir__ascii_is_letter(r->text[r->at])) r->at++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (r->at - r->from == strlen(words[i]) && memcmp(r->text + r->from, words[i], r->at - r->from) == 0)
            return tokens[i];
    return TOKEN_BAD;
}

static void next_token(reader *r)
{
    if (!goes_on(r)) {
        r->token = TOKEN_BAD;
        return;
    }
    while (skip_char(r, " \t\n\r")) {
    }
    r->from = r->at;
    char c = r->at < r->length ? r->text[r->at] : '\0';
    if (r->at == r->length)
        r->token = TOKEN_END;
    else if (skip_char(r, "{}[]:,"))
        r->token = (unsigned char)c;
    else if (c == '"')
        r->token = scan_string(r);
    else if (c == '-' || weir__ascii_is_digit(c))
        r->token = scan_number(r);
    else if (weir__ascii_is_letter(c))
        r->token = scan_word(r);
    else
        r->token = scan_other(r);
}

/* ---- Values of tokens ---- */

static unsigned escaped_unit(const char *digits)
{
    unsigned unit = 0;
    for (int i = 0; i < 4; i++) unit = unit << 4 | (unsigned)weir__ascii_hex(digits[i]);
    return unit;
}

/* Writes the code point of the escape at *text, which is \uXXXX or two of them, and moves *text behind it;
 * false: it is unfit, and U+FFFD is written. */
static bool put_escaped(const char **text, const char *end, char **to)
{
    unsigned point = escaped_unit(*text + 2);
    bool high = point >= 0xD800 && point < 0xDC00, fit = point != 0 && (point < 0xD800 || point >= 0xE000);
    *text += 6;
    if (high && end - *text >= 6 && (*text)[0] == '\\' && (*text)[1] == 'u') {
        unsigned low = escaped_unit(*text + 2);
        fit = low >= 0xDC00 && low < 0xE000;
        if (fit) point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        if (fit) *text += 6;
    }
    if (!fit) point = 0xFFFD;
    char *at = *to;
    if (point < 0x80) {
        *at++ = (char)point;
    } else {
        if (point >= 0x10000) *at++ = (char)(0xF0 | point >> 18);
        if (point >= 0x10000) *at++ = (char)(0x80 | (point >> 12 & 0x3F));
        if (point >= 0x800 && point < 0x10000) *at++ = (char)(0xE0 | point >> 12);
        *at++ = (char)(point >= 0x800 ? 0x80 | (point >> 6 & 0x3F) : 0xC0 | point >> 6);
        *at++ = (char)(0x80 | (point & 0x3F));
    }
    *to = at;
    return fit;
}

/* The string's bytes into scratch. */
static bool read_string(reader *r, size_t *n)
{
    static const char controls[256] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    const char *text = r->text + r->from + 1, *end = r->text + r->at - 1;
    *n = 0;
    if (!has_scratch(r, (size_t)(end - text))) return fault_value(r, NULL, json_error_out_of_memory);
    char *to = r->scratch;
    while (text < end) {
        const char *escape = memchr(text, '\\', (size_t)(end - text));
        size_t plain = (size_t)((escape != NULL ? escape : end) - text);
        memcpy(to, text, plain);
        to += plain;
        text += plain;
        if (escape == NULL) break;
        if (text[1] == 'u') {
            size_t at = (size_t)(text - r->text);
            if (put_escaped(&text, end, &to) || r->mends) continue;
            r->from = at;
            return fault_value(r, NULL, json_error_null_character);
        }
        char control = controls[(unsigned char)text[1]];
        *to++ = control != '\0' ? control : text[1];
        text += 2;
    }
    *n = (size_t)(to - r->scratch);
    *to = '\0';
    return true;
}

/* The decimal point that this locale's strtod reads. */
static char decimal_point(void)
{
    char one[16];
    snprintf(one, sizeof one, "%#.0f", 1.0);
    return one[1];
}

static bool read_double(reader *r, double *value)
{
    size_t n = r->at - r->from;
    if (!has_scratch(r, n)) return false;
    memcpy(r->scratch, r->text + r->from, n);
    r->scratch[n] = '\0';
    char *point = memchr(r->scratch, '.', n);
    if (point != NULL) {
        if (r->point == '\0') r->point = decimal_point();
        *point = r->point;
    }
    *value = strtod(r->scratch, NULL);
    if (isinf(*value)) fault_token(r, json_error_numeric_overflow);
    return !isinf(*value);
}

static json_t *read_real(reader *r)
{
    double value;
    return read_double(r, &value) ? json_real(value) : NULL;
}

/* One beyond 64 bits: see weir__json_digits. A real would not have all of its digits. */
static json_t *read_big(reader *r)
{
    size_t n = r->at - r->from;
    double value;
    if (++r->n_big > WEIR__JSON_BIG_MAX) {
        fault_token(r, json_error_index_out_of_range);
        return NULL;
    }
    if (n > DBL_MAX_10_EXP && !read_double(r, &value)) return NULL; /* beyond a double, too */
    json_t *digits = json_stringn_nocheck(r->text + r->from, n), *big = json_object();
    if (json_object_set_new_nocheck(big, WEIR__JSON_BIG, digits) == 0) return big;
    json_decref(big);
    return NULL;
}

static json_t *read_integer(reader *r)
{
    bool minus = r->text[r->from] == '-';
    json_int_t value = 0;
    for (size_t i = r->from + minus; i < r->at; i++) {
        int digit = r->text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, minus ? -digit : digit, &value))
            return r->exact ? read_big(r) : read_real(r);
    }
    return json_integer(value);
}

/* ---- Values ---- */

static bool read_value(reader *r, json_t **value);

/* Adds the member whose key is the token. It comes before its value is read, and so needs no copy of the
 * key. */
static bool read_member(reader *r, json_t *object)
{
    size_t n;
    if (r->token != TOKEN_STRING) return fault_value(r, NULL, json_error_invalid_syntax);
    if (!read_string(r, &n)) return false;
    if (json_object_get(object, r->scratch) != NULL) return fault_value(r, NULL, json_error_duplicate_key);
    if (json_object_set_new_nocheck(object, r->scratch, json_null()) != 0)
        return fault_value(r, NULL, json_error_out_of_memory);
    void *place = json_object_iter_at(object, r->scratch);
    next_token(r);
    if (r->token != ':') return fault_value(r, NULL, json_error_invalid_syntax);
    next_token(r);
    json_t *value;
    return read_value(r, &value) && json_object_iter_set_new(object, place, value) == 0;
}

static bool read_element(reader *r, json_t *array)
{
    json_t *value;
    if (!read_value(r, &value)) return false;
    return json_array_append_new(array, value) == 0 || fault_value(r, NULL, json_error_out_of_memory);
}

static bool read_container(reader *r, json_t **made)
{
    bool object = r->token == '{';
    int end = object ? '}' : ']';
    if (++r->depth > r->depth_max) return fault_value(r, NULL, json_error_stack_overflow);
    json_t *container = object ? json_object() : json_array();
    if (container == NULL) return fault_value(r, NULL, json_error_out_of_memory);
    next_token(r);
    if (r->token != end) {
        for (;;) {
            if (!(object ? read_member(r, container) : read_element(r, container))) {
                json_decref(container);
                return false;
            }
            next_token(r);
            if (r->token != ',') break;
            next_token(r);
        }
        if (r->token != end) return fault_value(r, container, json_error_invalid_syntax);
    }
    r->depth--;
    *made = container;
    return true;
}

static bool read_value(reader *r, json_t **value)
{
    size_t n;
    switch (r->token) {
    case '{':
    case '[': return read_container(r, value);
    case TOKEN_STRING:
        if (!read_string(r, &n)) return false;
        *value = json_stringn_nocheck(r->scratch, n);
        break;
    case TOKEN_INTEGER: *value = read_integer(r); break;
    case TOKEN_REAL: *value = read_real(r); break;
    case TOKEN_TRUE: *value = json_true(); break;
    case TOKEN_FALSE: *value = json_false(); break;
    case TOKEN_NULL: *value = json_null(); break;
    default: return fault_value(r, NULL, json_error_invalid_syntax);
    }
    return *value != NULL || fault_value(r, NULL, json_error_out_of_memory);
}

const char *weir__json_digits(const json_t *value)
{
    enum { LEAST = 19 }; /* digits of those beyond 64 bits */
    if (json_object_size(value) != 1) return NULL;
    const char *text = json_string_value(json_object_get(value, WEIR__JSON_BIG));
    if (text == NULL) return NULL;
    size_t sign = text[0] == '-', n = strspn(text + sign, "0123456789");
    return n >= LEAST && text[sign] != '0' && text[sign + n] == '\0' ? text : NULL;
}

json_t *weir__json_read(const char *text, size_t length, int depth_max, bool mends, bool exact,
                        weir__json_fault *fault)
{
    reader r = {.text = text,
                .length = length,
                .mends = mends,
                .exact = exact,
                .depth_max = depth_max,
                .code = json_error_unknown};
    json_t *value = NULL;
    next_token(&r);
    if (read_value(&r, &value)) next_token(&r);
    if (r.token != TOKEN_END) fault_token(&r, json_error_end_of_input_expected);
    weir__mem_free(r.scratch);
    *fault = (weir__json_fault){r.code, r.from, r.at, r.interrupted};
    if (r.code == json_error_unknown) return value;
    json_decref(value);
    return NULL;
}
