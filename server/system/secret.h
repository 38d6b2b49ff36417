/* secret.h: ids and keys that nobody can guess. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_SECRET_H
#define WEIR_SERVER_SYSTEM_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Random hexadecimal digits, n of them (even, at most 512), and a zero. False: the system gives no random
 * bytes. */
bool serve_secret_make(char *hex, size_t n);

/* The digest of an API key by which the server knows it: 64 hexadecimal digits and a zero. It is also the
 * salt of the key's prompts in the cache, and so not the plain hash of the key. */
void serve_secret_of_key(const char *key, size_t n, char hex[65]);

/* True if two of the same capacity, filled up with zeroes, are the same; the time reveals nothing about
 * them. */
bool serve_secret_is(const char *a, const char *b, size_t capacity);

#endif
