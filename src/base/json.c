/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char *words_for(const json_error_t *what)
{
    switch (json_error_code(what)) {
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
    snprintf(words.text, sizeof words.text, "%s%s%s", words_for(what), near != NULL ? "," : "",
             near != NULL ? near : "");
    return words;
}

/* The interrupt is asked once in so many pieces that are written, and for each one of so many bytes. */
#define PIECES 256
#define PIECE  ((size_t)4096)

/* ---- Reading ---- */

static weir_status refuse_interrupted(const char *field, weir_error *error)
{
    return weir__error_set(error, WEIR_ABORTED, field,
                           "the function that was given to weir_interrupt_set asked to stop reading %s",
                           field);
}

/* What a text's brackets and commas say of it, before jansson sees them, which recurses and takes memory for
 * each value. */
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

static shape measure(const char *text, size_t length)
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

/* The code unit of an escape \uXXXX; -1: it has not four digits. */
static int escaped_unit(const char *text, size_t length, size_t at)
{
    int unit = 0;
    if (length - at < 6 || text[at] != '\\' || text[at + 1] != 'u') return -1;
    for (size_t i = at + 2; i < at + 6; i++) {
        int digit = weir__ascii_hex(text[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* The first escape from `at` on that stands for U+0000 or for half a pair of surrogates; length: there is
 * none. */
static size_t find_unfit(const char *text, size_t length, size_t at)
{
    while (at < length) {
        const char *escape = memchr(text + at, '\\', length - at);
        if (escape == NULL) return length;
        at = (size_t)(escape - text);
        int unit = escaped_unit(text, length, at);
        bool high = unit >= 0xD800 && unit < 0xDC00, low = unit >= 0xDC00 && unit < 0xE000;
        int next = high ? escaped_unit(text, length, at + 6) : -1;
        bool pair = next >= 0xDC00 && next < 0xE000;
        if (unit == 0 || low || (high && !pair)) return at;
        at += pair ? 12 : unit > 0 ? 6 : 2;
    }
    return length;
}

/* A copy with U+FFFD, whose escape is as long, in place of these; `at` is the first one. NULL: out of
 * memory. */
static char *mend(const char *text, size_t length, size_t at)
{
    static const char digits[4] = {'f', 'f', 'f', 'd'};
    char *mended = weir__mem_alloc(length + 1);
    if (mended == NULL) return NULL;
    memcpy(mended, text, length);
    for (; at < length; at = find_unfit(mended, length, at + 6))
        memcpy(mended + at + 2, digits, sizeof digits);
    return mended;
}

/* Whether an integer [n], perhaps with a minus, is beyond 64 bits. */
static bool is_beyond(const char *digits, size_t n)
{
    const char *most = digits[0] == '-' ? "9223372036854775808" : "9223372036854775807";
    size_t n_most = strlen(most);
    n -= digits[0] == '-';
    digits += digits[0] == '-';
    if (strspn(digits, "0123456789") < n) return false;
    return n > n_most || (n == n_most && memcmp(digits, most, n) > 0);
}

/* Writes integers beyond 64 bits as reals of the same length: their last two digits become "e2". At least 17
 * digits remain, as many as a real has. The text ends with NUL. */
static void widen(char *text)
{
    static const char marks[] = "+-.0123456789eE";
    for (char *at = text; *at != '\0';) {
        size_t n = strspn(at, marks);
        if (*at == '"') {
            for (at++; *at != '\0' && *at != '"'; at++) at += at[0] == '\\' && at[1] != '\0';
            at += *at == '"';
        } else if (n > 0) {
            if (is_beyond(at, n)) memcpy(at + n - 2, "e2", 2);
            at += n;
        } else {
            at += strcspn(at, "\"+-.0123456789eE");
        }
    }
}

/* A text that jansson takes piece by piece, and the interrupt that it asks for between them. */
typedef struct source {
    const char *text; /* [left] */
    size_t left;
    bool interrupted;
} source;

static size_t take_piece(void *to, size_t capacity, void *user)
{
    source *from = user;
    size_t n = from->left < capacity ? from->left : capacity;
    from->interrupted = weir_interrupt_asked();
    if (from->interrupted) return (size_t)-1;
    memcpy(to, from->text, n);
    from->text += n;
    from->left -= n;
    return n;
}

/* *parsed is NULL if the text is no JSON. */
static weir_status load(const char *text, size_t length, json_t **parsed, json_error_t *what)
{
    source from = {.text = text, .left = length};
    *parsed = json_load_callback(take_piece, &from, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, what);
    if (!from.interrupted) return WEIR_OK;
    json_decref(*parsed);
    *parsed = NULL;
    return WEIR_ABORTED;
}

/* jansson refuses integers beyond 64 bits. *parsed is NULL if the text is no JSON. */
static weir_status read_value(const char *text, size_t length, json_t **parsed, json_error_t *what)
{
    weir_status status = load(text, length, parsed, what);
    if (status != WEIR_OK || *parsed != NULL || json_error_code(what) != json_error_numeric_overflow)
        return status;
    char *widened = weir__mem_calloc(length + 1, 1);
    if (widened == NULL) return WEIR_NO_MEMORY;
    memcpy(widened, text, length);
    widen(widened);
    status = load(widened, length, parsed, what);
    weir__mem_free(widened);
    return status;
}

static weir_status check_text(const char *text, size_t length, const char *field, weir_status code,
                              weir_error *error)
{
    if (length > WEIR__JSON_BYTES_MAX)
        return weir__error_set(error, code, field, "%s has %zu bytes; allowed: up to %zu", field, length,
                               WEIR__JSON_BYTES_MAX);
    if (!weir__utf8_valid(text, length))
        return weir__error_set(error, code, field, "%s is not well-formed UTF-8", field);
    if (weir_interrupt_asked()) return refuse_interrupted(field, error);
    const shape s = measure(text, length);
    if (s.deepest > WEIR__JSON_DEPTH_MAX)
        return weir__error_set(error, code, field, "%s is nested deeper than %d", field,
                               WEIR__JSON_DEPTH_MAX);
    if (s.n_containers > WEIR__JSON_CONTAINERS_MAX)
        return weir__error_set(error, code, field, "%s has %zu objects and arrays; allowed: up to %zu", field,
                               s.n_containers, WEIR__JSON_CONTAINERS_MAX);
    if (s.n_members > WEIR__JSON_MEMBERS_MAX || s.widest > WEIR__JSON_WIDTH_MAX)
        return weir__error_set(error, code, field,
                               "%s has %zu members of objects, up to %zu in one; allowed: up to %zu, and %zu "
                               "in one",
                               field, s.n_members, s.widest, WEIR__JSON_MEMBERS_MAX, WEIR__JSON_WIDTH_MAX);
    if (s.n_values > WEIR__JSON_VALUES_MAX)
        return weir__error_set(error, code, field, "%s has more than %zu values, which is the limit", field,
                               WEIR__JSON_VALUES_MAX);
    return WEIR_OK;
}

/* mends: replaces unfit escapes instead of refusing them. */
static weir_status parse(const char *text, size_t length, const char *field, weir_status code, bool mends,
                         json_t **value, weir_error *error)
{
    json_error_t what;
    json_t *parsed = NULL;
    if (text == NULL) return weir__error_set(error, WEIR_INVALID, field, "%s is NULL", field);
    if (length == WEIR_NUL) length = strlen(text);
    weir_status status = check_text(text, length, field, code, error);
    if (status != WEIR_OK) return status;
    size_t unfit = find_unfit(text, length, 0);
    if (unfit < length && !mends)
        return weir__error_set(error, code, field,
                               "%s: the escape at byte %zu is U+0000 or half of a surrogate pair, which no "
                               "text can contain",
                               field, unfit);
    char *mended = unfit < length ? mend(text, length, unfit) : NULL;
    if (unfit < length && mended == NULL)
        status = WEIR_NO_MEMORY;
    else
        status = read_value(mended != NULL ? mended : text, length, &parsed, &what);
    weir__mem_free(mended);
    if (status == WEIR_ABORTED) return refuse_interrupted(field, error);
    if (status != WEIR_OK || (parsed == NULL && json_error_code(&what) == json_error_out_of_memory))
        return weir__error_set(error, WEIR_NO_MEMORY, field, "out of memory for %s", field);
    if (parsed == NULL)
        return weir__error_set(error, code, field, "%s is not JSON: line %d, column %d: %s", field, what.line,
                               what.column, weir__json_problem(&what).text);
    *value = parsed;
    return WEIR_OK;
}

weir_status weir__json_parse(const char *text, size_t length, const char *field, weir_status code,
                             json_t **value, weir_error *error)
{
    return parse(text, length, field, code, false, value, error);
}

weir_status weir__json_parse_texts(const char *text, size_t length, const char *field, weir_status code,
                                   json_t **value, weir_error *error)
{
    return parse(text, length, field, code, true, value, error);
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

/* ---- Writing ---- */

/* A text that is written. */
typedef struct target {
    weir__text text;
    size_t n_pieces, most; /* bytes */
    bool interrupted, longer;
} target;

static int add_text(const char *bytes, size_t n, void *user)
{
    target *to = user;
    bool asks = n >= PIECE || ++to->n_pieces % PIECES == 0;
    to->interrupted = to->interrupted || (asks && weir_interrupt_asked());
    to->longer = to->longer || n > to->most - to->text.n;
    return !to->interrupted && !to->longer && weir__text_add(&to->text, bytes, n) ? 0 : -1;
}

char *weir__json_dump_most(const json_t *value, size_t most, bool *longer)
{
    target to = {.most = most};
    /* jansson does not look at every return value */
    if (json_dump_callback(value, add_text, &to, JSON_COMPACT | JSON_ENCODE_ANY) == 0 && !to.text.failed &&
        !to.interrupted && !to.longer)
        return to.text.bytes;
    *longer = to.longer;
    weir__text_fini(&to.text);
    return NULL;
}

char *weir__json_dump(const json_t *value)
{
    bool longer;
    return weir__json_dump_most(value, SIZE_MAX, &longer);
}

void weir__json_next(weir__text *text)
{
    if (text->n > 0 && strchr("[{", text->bytes[text->n - 1]) == NULL) weir__text_add(text, ",", 1);
}

void weir__json_key(weir__text *text, const char *name)
{
    weir__json_next(text);
    weir__text_printf(text, "\"%s\":", name);
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

void weir__json_quote(weir__text *text, const char *bytes, size_t n)
{
    static const char names[] = "\b\t\n\f\r";
    static const char letters[] = "btnfr";
    size_t from = 0;
    if (!weir__utf8_valid(bytes, n)) {
        quote_unclean(text, bytes, n);
        return;
    }
    weir__text_add(text, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        weir__text_add(text, bytes + from, i - from);
        from = i + 1;
        const char *name = c != '\0' ? strchr(names, c) : NULL;
        if (name != NULL)
            weir__text_printf(text, "\\%c", letters[name - names]);
        else
            weir__text_printf(text, c < 0x20 ? "\\u%04x" : "\\%c", c);
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
