/* error.c: filling a caller's weir_error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum {
    TEXT_MAX = sizeof((weir_error *)0)->message,
    FIELD_MAX = sizeof((weir_error *)0)->field,
    MARK = 0xff, /* a backtick of the format; in no well-formed text */
};

/* Copies the format with its backticks as marks, or without them; returns their number. */
static size_t mark_names(char *marked, size_t capacity, const char *format, bool keep)
{
    size_t n = 0, n_marks = 0;
    for (; *format != '\0' && n + 1 < capacity; format++) {
        if (*format != '`')
            marked[n++] = *format;
        else if (keep)
            marked[n++] = (char)MARK, n_marks++;
    }
    marked[n] = '\0';
    return n_marks;
}

static int print_marked(char raw[TEXT_MAX], const char *format, bool keep, size_t *n_marks, va_list list)
{
    char marked[TEXT_MAX];
    *n_marks = mark_names(marked, sizeof marked, format, keep);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): each caller begins the list */
    int length = vsnprintf(raw, TEXT_MAX, marked, list);
    if (length < 0) raw[0] = '\0';
    return length;
}

/* Writes the message, sanitized. If an argument has bytes that look like marks, no name has backticks. */
static void print(char text[TEXT_MAX], const char *format, va_list list)
{
    char raw[TEXT_MAX];
    size_t n_marks, n_found = 0;
    va_list again;
    va_copy(again, list);
    int length = print_marked(raw, format, true, &n_marks, list);
    for (const char *c = raw; *c != '\0'; c++) n_found += (unsigned char)*c == MARK;
    const bool doubtful = n_found > n_marks;
    if (doubtful) length = print_marked(raw, format, false, &n_marks, again);
    va_end(again);
    for (char *c = raw; *c != '\0'; c++) {
        if (*c == '`') *c = '\'';
        if (!doubtful && (unsigned char)*c == MARK) *c = '`';
    }
    size_t n = strlen(raw);
    weir__utf8_copy(text, TEXT_MAX, raw, length < TEXT_MAX ? n : weir__utf8_cut(raw, n));
}

/* field may point into *error. */
static weir_status fill(weir_error *error, weir_status code, weir_error_kind kind, const char *field,
                        const char *format, va_list list)
{
    char name[FIELD_MAX], message[TEXT_MAX];
    if (error == NULL) return code;
    print(message, format, list);
    weir__utf8_copy(name, sizeof name, field, field != NULL ? strlen(field) : 0);
    *error = (weir_error){.code = code, .kind = kind};
    memcpy(error->field, name, sizeof name);
    memcpy(error->message, message, sizeof message);
    return code;
}

static weir_status fill_numbers(weir_error *error, double value, double low, double high)
{
    if (isfinite(value)) error->has_value = true, error->value = value;
    if (isfinite(low)) error->has_low = true, error->low = low;
    if (isfinite(high)) error->has_high = true, error->high = high;
    return error->code;
}

weir_status weir__error_of(weir_error *error, weir_status code, weir_error_kind kind, const char *field,
                           const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fill(error, code, kind, field, format, list);
    va_end(list);
    return code;
}

weir_status weir__error_null(weir_error *error, const char *field)
{
    return weir__invalid(error, WEIR_ERROR_MISSING, field, "`%s` is NULL", field);
}

weir_status weir__error_numbers(weir_error *error, weir_status code, const char *field, double value,
                                double low, double high, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fill(error, code, WEIR_ERROR_RANGE, field, format, list);
    va_end(list);
    return error != NULL ? fill_numbers(error, value, low, high) : code;
}

enum { BOUND_MAX = 32 };

static void print_bound(char text[BOUND_MAX], double bound)
{
    bool whole = bound > -1e18 && bound < 1e18 && bound == floor(bound);
    snprintf(text, BOUND_MAX, whole ? "%.0f" : "%.10g", bound);
}

weir_status weir__error_range(weir_error *error, weir_status code, const char *field, double value,
                              double low, double high, const char *format, ...)
{
    char least[BOUND_MAX], most[BOUND_MAX];
    va_list list;
    va_start(list, format);
    fill(error, code, WEIR_ERROR_RANGE, field, format, list);
    va_end(list);
    if (error == NULL) return code;
    size_t n = strlen(error->message);
    print_bound(least, low);
    print_bound(most, high);
    snprintf(error->message + n, sizeof error->message - n, "; allowed: %s%s%s", least,
             isfinite(high) ? " to " : " and up", isfinite(high) ? most : "");
    return fill_numbers(error, value, low, high);
}

weir_status weir__error_as(weir_error *to, const weir_error *from, weir_status code, const char *field)
{
    char name[FIELD_MAX];
    if (to == NULL) return code;
    weir__utf8_copy(name, sizeof name, field, field != NULL ? strlen(field) : 0);
    if (to != from) *to = *from;
    to->code = code;
    memcpy(to->field, name, sizeof name);
    return code;
}

weir_status weir__error_wrap(weir_error *to, const weir_error *from, weir_status code, const char *field,
                             const char *format, ...)
{
    weir_error front;
    va_list list;
    va_start(list, format);
    fill(&front, code, WEIR_ERROR_NONE, NULL, format, list);
    va_end(list);
    if (to == NULL) return code;
    size_t n = strlen(front.message);
    weir__utf8_copy(front.message + n, sizeof front.message - n, from->message, strlen(from->message));
    weir__error_as(to, from, code, field);
    memcpy(to->message, front.message, sizeof front.message);
    return code;
}

const char *weir__error_path(char shown[WEIR__ERROR_PATH], const char *path)
{
    enum { WHOLE = 200, HEAD = 40, TAIL = WHOLE - HEAD };
    size_t n = strlen(path);
    if (n <= WHOLE)
        memcpy(shown, path, n + 1);
    else
        snprintf(shown, WEIR__ERROR_PATH, "%.*s…%s", HEAD, path, path + n - TAIL);
    return shown;
}

weir__words weir__error_words(const weir_error *error)
{
    weir__words words;
    weir_error_text(error, NULL, NULL, words.text, sizeof words.text);
    return words;
}

weir_status weir__error_copy(weir_error *to, const weir_error *from)
{
    if (to != NULL && to != from) *to = *from;
    return from->code;
}
