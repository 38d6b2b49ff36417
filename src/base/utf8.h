/* utf8.h: a streaming sanitizer: bytes in, well-formed UTF-8 out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that can never become well-formed become U+FFFD, one for each maximal ill-formed subpart (Unicode's
 * recommended practice, CPython's errors="replace"). An incomplete tail waits for its rest. The concatenated
 * output is the same wherever the input is split, and equals weir__utf8_sanitize of the whole input.
 *
 * Invariant: held[0 .. n_held) is a proper prefix of one well-formed sequence. Owned by the caller, needs no
 * fini, may be copied. One thread at a time. */
typedef struct weir__utf8 {
    unsigned char held[3];
    unsigned char n_held; /* 0 to 3 */
} weir__utf8;

/* Bytes that one feed of n bytes can write, also together with the flush after it: each byte may become a
 * U+FFFD (3 bytes), and so may the bytes held before. */
#define WEIR__UTF8_BOUND(n) (3 * (size_t)(n) + 3)

/* Bytes that a flush can write. */
#define WEIR__UTF8_FLUSH_BOUND 3

void weir__utf8_init(weir__utf8 *state);

/* Writes to out[WEIR__UTF8_BOUND(n)], which must not overlap bytes, and returns the number of bytes written:
 * a whole number of code points, without a terminator. bytes may be NULL when n is 0. */
size_t weir__utf8_feed(weir__utf8 *state, const char *bytes, size_t n, char *out);

/* Writes U+FFFD for held bytes, if any, to out[WEIR__UTF8_FLUSH_BOUND]; returns the bytes written. The state
 * is then as after init. */
size_t weir__utf8_flush(weir__utf8 *state, char *out);

/* A whole text at once: writes to out[WEIR__UTF8_BOUND(n)], no overlap; returns the bytes written. */
size_t weir__utf8_sanitize(const char *bytes, size_t n, char *out);

/* Writes as much of the sanitized text as fits, in whole code points and terminated, to out[capacity],
 * capacity >= 1, no overlap; returns its length. For messages: slower than the others. */
size_t weir__utf8_copy(char *out, size_t capacity, const char *bytes, size_t n);

/* True if all n bytes are well-formed. NUL is an ordinary code point here. */
bool weir__utf8_valid(const char *bytes, size_t n);

/* The length at which to cut a text of which only the first n bytes fit: n less the incomplete sequence at
 * the end, if there is one. */
size_t weir__utf8_cut(const char *bytes, size_t n);

#endif
