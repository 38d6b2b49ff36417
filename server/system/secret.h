/* secret.h: ids and keys that nobody can guess. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_SECRET_H
#define WEIR_SERVER_SYSTEM_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Random hexadecimal digits, n of them (even, at most 512), and a zero. False: the system gives no random
 * bytes. */
bool serve_secret_make(char *hex, size_t n);

/* True if two of the same capacity, filled up with zeroes, are the same; the time reveals nothing about
 * them. */
bool serve_secret_is(const char *a, const char *b, size_t capacity);

#endif
