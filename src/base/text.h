/* text.h: bytes that grow.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Begins as zeroes. Invariant: bytes is NULL, or n < capacity. */
typedef struct weir__text {
    char *bytes; /* [n], and a NUL once something was added */
    size_t n;
    size_t capacity;
} weir__text;

/* False: out of memory, and nothing was added. */
bool weir__text_add(weir__text *text, const char *bytes, size_t n);
bool weir__text_add_string(weir__text *text, const char *string);

void weir__text_fini(weir__text *text);

#endif
