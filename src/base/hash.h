/* hash.h: checksums of data kept outside the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A hash against damage, and against data from elsewhere, but not against forgers. A change of one byte
 * always shows. Each bit depends on all bytes: tables may take as many of the lowest as they need. To go on
 * with more bytes, give the last result as seed; that is not the hash of all of them at once. */
uint64_t weir__hash(uint64_t seed, const void *bytes, size_t n);

/* The hash of n bytes that come in pieces, each a multiple of 8 but the last: h = begin(seed, n); h = more(h,
 * piece, its bytes) …; hash = end(h). */
uint64_t weir__hash_begin(uint64_t seed, size_t n);
uint64_t weir__hash_more(uint64_t h, const void *bytes, size_t n);
uint64_t weir__hash_end(uint64_t h);

#endif
