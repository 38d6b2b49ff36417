/* sha256.h: SHA-256 (FIPS 180-4) of data in pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_SHA256_H
#define WEIR_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* The state of a hash. Owned by the caller, needs no fini, may be copied. One thread at a time. */
typedef struct weir__sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    unsigned char block[64];
} weir__sha256;

void weir__sha256_init(weir__sha256 *state);

/* bytes may be NULL when n is 0. */
void weir__sha256_feed(weir__sha256 *state, const void *bytes, size_t n);

/* 64 lower-case hexadecimal digits and a terminator. The state is then used up. */
void weir__sha256_hex(weir__sha256 *state, char hex[65]);

#endif
