/* error.h: filling a caller's weir_error.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ERROR_H
#define WEIR_BASE_ERROR_H

#include "weir/more.h"

/* Writes code, kind, field and message and returns code, so that a failure is one statement:
 *     return weir__error_set(error, WEIR_FORMAT, "path", "%s ends too early", path);
 * error may be NULL (nothing is written); field may be NULL (becomes ""). Both texts are sanitized as streams
 * are, and cut at a code point boundary where they do not fit. The format has each name of the library's
 * between backticks, "`top_k` goes with `temp`"; backticks of the arguments become apostrophes. field and the
 * arguments may point into *error. Allocates nothing. Any thread that owns *error. */
weir_status weir__error_of(weir_error *error, weir_status code, weir_error_kind kind, const char *field,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same without a kind, and with the code INVALID. */
#define weir__error_set(error, code, ...) weir__error_of(error, code, WEIR_ERROR_NONE, __VA_ARGS__)
#define weir__invalid(error, kind, ...)   weir__error_of(error, WEIR_INVALID, kind, __VA_ARGS__)

/* INVALID, MISSING: a pointer that must not be NULL. */
weir_status weir__error_null(weir_error *error, const char *field);

/* Writes, likewise, a number, length or count that is out of its range; numbers that are not finite are left
 * out. range: and adds "; allowed: LOW to HIGH", or "and up" where HIGH is not finite. */
weir_status weir__error_numbers(weir_error *error, weir_status code, const char *field, double value,
                                double low, double high, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
weir_status weir__error_range(weir_error *error, weir_status code, const char *field, double value,
                              double low, double high, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/* Writes *from with another code and field; wrap: and with the text in front of its message. The two may be
 * the same. */
weir_status weir__error_as(weir_error *to, const weir_error *from, weir_status code, const char *field);
weir_status weir__error_wrap(weir_error *to, const weir_error *from, weir_status code, const char *field,
                             const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The path for a message, as it was given; a longer one than that has "…" in its middle. The buffer is the
 * caller's, and need not outlive the call of weir__error_set. */
#define WEIR__ERROR_PATH 204
const char *weir__error_path(char shown[WEIR__ERROR_PATH], const char *path);

/* The error's message with the library's names, without backticks: weir__error_words(&error).text. */
typedef struct weir__words {
    char text[sizeof((weir_error *)0)->message];
} weir__words;
weir__words weir__error_words(const weir_error *error);

/* Copies *from to *to and returns its code. to may be NULL; the two may be the same. */
weir_status weir__error_copy(weir_error *to, const weir_error *from);

#endif
