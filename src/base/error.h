/* error.h: filling a caller's weir_error.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ERROR_H
#define WEIR_BASE_ERROR_H

#include "weir/weir.h"

/* Writes code, field and message and returns code, so that a failure is one statement:
 *     return weir__error_set(error, WEIR_INVALID, "top_k", "top_k is %d; ...", top_k);
 * error may be NULL (nothing is written); field may be NULL (becomes ""). Both texts are sanitized as streams
 * are, and cut at a code point boundary where they do not fit. field and the arguments may point into *error,
 * so an error can be wrapped in place. Allocates nothing. Any thread that owns *error. */
weir_status weir__error_set(weir_error *error, weir_status code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The path for a message, as it was given; a longer one than that has "…" in its middle. The buffer is the
 * caller's, and need not outlive the call of weir__error_set. */
#define WEIR__ERROR_PATH 204
const char *weir__error_path(char shown[WEIR__ERROR_PATH], const char *path);

/* Copies *from to *to and returns its code. to may be NULL; the two may be the same. */
weir_status weir__error_copy(weir_error *to, const weir_error *from);

#endif
