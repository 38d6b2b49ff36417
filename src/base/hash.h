/* hash.h: checksums of data kept outside the process, hash tables, and SHA-256.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdbool.h>
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

/* A table of chains. Its items begin with a link each, and are the caller's. */
typedef struct weir__hash_link {
    struct weir__hash_link *next; /* in its bucket */
    uint64_t hash;
} weir__hash_link;

typedef struct weir__hash_table { /* {0}: empty */
    weir__hash_link **buckets;
    size_t n_buckets; /* a power of two, or 0 */
    size_t n_links;
} weir__hash_table;

/* Makes room for one more link. If memory is short, chains get longer instead; false: the table has no bucket
 * yet. */
bool weir__hash_table_grow(weir__hash_table *table);

/* Needs room. */
void weir__hash_table_add(weir__hash_table *table, weir__hash_link *link, uint64_t hash);
void weir__hash_table_remove(weir__hash_table *table, weir__hash_link *link);

/* The first link with the hash, and the next one with the hash of `link`. NULL: there is none. */
weir__hash_link *weir__hash_table_find(const weir__hash_table *table, uint64_t hash);
weir__hash_link *weir__hash_table_same(const weir__hash_link *link);

/* All links in any order: the first is the one after NULL. NULL: that was the last. The order is lost where
 * links come; `link` may go once the one after it is known. */
weir__hash_link *weir__hash_table_after(const weir__hash_table *table, const weir__hash_link *link);

/* Frees the table, but not its links. It is empty then. */
void weir__hash_table_clear(weir__hash_table *table);

/* ---- SHA-256 (FIPS 180-4), of data in pieces ---- */

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
