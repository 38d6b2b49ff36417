/* hash.c: checksums of data kept outside the process, hash tables, and SHA-256.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <string.h>

#include "base/mem.h"

uint64_t weir__hash_begin(uint64_t seed, size_t n)
{
    return seed ^ (n * UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t weir__hash_more(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (; n > 0;) {
        uint64_t word = 0;
        size_t part = n < sizeof word ? n : sizeof word;
        memcpy(&word, at, part);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
        at += part;
        n -= part;
    }
    return h;
}

uint64_t weir__hash_end(uint64_t h)
{
    /* A multiplication carries upwards only; the last word's upper bytes must reach the lowest bits, which
     * tables use. As MurmurHash3 ends. */
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

uint64_t weir__hash(uint64_t seed, const void *bytes, size_t n)
{
    return weir__hash_end(weir__hash_more(weir__hash_begin(seed, n), bytes, n));
}

/* ---- Tables ---- */

static weir__hash_link **bucket_of(const weir__hash_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->n_buckets - 1)];
}

static void link_in(weir__hash_table *table, weir__hash_link *link)
{
    weir__hash_link **bucket = bucket_of(table, link->hash);
    link->next = *bucket;
    *bucket = link;
}

bool weir__hash_table_grow(weir__hash_table *table)
{
    if (table->n_links < table->n_buckets) return true;
    weir__hash_table grown = {.n_buckets = table->n_buckets > 0 ? table->n_buckets * 2 : 64,
                              .n_links = table->n_links};
    grown.buckets = weir__mem_calloc(grown.n_buckets, sizeof *grown.buckets);
    if (grown.buckets == NULL) return table->n_buckets > 0;
    for (weir__hash_link *link = weir__hash_table_after(table, NULL), *next; link != NULL; link = next) {
        next = weir__hash_table_after(table, link);
        link_in(&grown, link);
    }
    weir__mem_free(table->buckets);
    *table = grown;
    return true;
}

void weir__hash_table_add(weir__hash_table *table, weir__hash_link *link, uint64_t hash)
{
    link->hash = hash;
    link_in(table, link);
    table->n_links++;
}

void weir__hash_table_remove(weir__hash_table *table, weir__hash_link *link)
{
    weir__hash_link **at = bucket_of(table, link->hash);
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    table->n_links--;
}

static weir__hash_link *with_hash(weir__hash_link *link, uint64_t hash)
{
    while (link != NULL && link->hash != hash) link = link->next;
    return link;
}

weir__hash_link *weir__hash_table_find(const weir__hash_table *table, uint64_t hash)
{
    return table->n_buckets > 0 ? with_hash(*bucket_of(table, hash), hash) : NULL;
}

weir__hash_link *weir__hash_table_same(const weir__hash_link *link)
{
    return with_hash(link->next, link->hash);
}

weir__hash_link *weir__hash_table_after(const weir__hash_table *table, const weir__hash_link *link)
{
    if (link != NULL && link->next != NULL) return link->next;
    size_t i = link != NULL ? (link->hash & (table->n_buckets - 1)) + 1 : 0;
    while (i < table->n_buckets && table->buckets[i] == NULL) i++;
    return i < table->n_buckets ? table->buckets[i] : NULL;
}

void weir__hash_table_clear(weir__hash_table *table)
{
    weir__mem_free(table->buckets);
    *table = (weir__hash_table){0};
}

/* ---- SHA-256 (FIPS 180-4), of data in pieces ---- */

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_word(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* One round on the state that begins at v[-i]: instead of moving all eight numbers, their names move. */
static inline void turn_state(uint32_t v[8], unsigned i, uint32_t w)
{
    uint32_t a = v[(0 - i) % 8], b = v[(1 - i) % 8], c = v[(2 - i) % 8];
    uint32_t e = v[(4 - i) % 8], f = v[(5 - i) % 8], g = v[(6 - i) % 8], h = v[(7 - i) % 8];
    uint32_t t = h + (rotate_word(e, 6) ^ rotate_word(e, 11) ^ rotate_word(e, 25)) + (g ^ (e & (f ^ g))) + w;
    v[(3 - i) % 8] += t;
    v[(7 - i) % 8] =
        t + (rotate_word(a, 2) ^ rotate_word(a, 13) ^ rotate_word(a, 22)) + ((a & b) | (c & (a | b)));
}

static void compress_block(uint32_t h[8], const unsigned char *block)
{
    uint32_t w[64], v[8];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate_word(a, 7) ^ rotate_word(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate_word(b, 17) ^ rotate_word(b, 19) ^ b >> 10);
    }
    memcpy(v, h, 8 * sizeof *v);
    for (size_t i = 0; i < 64; i += 8) {
        turn_state(v, 0, round_constants[i] + w[i]);
        turn_state(v, 1, round_constants[i + 1] + w[i + 1]);
        turn_state(v, 2, round_constants[i + 2] + w[i + 2]);
        turn_state(v, 3, round_constants[i + 3] + w[i + 3]);
        turn_state(v, 4, round_constants[i + 4] + w[i + 4]);
        turn_state(v, 5, round_constants[i + 5] + w[i + 5]);
        turn_state(v, 6, round_constants[i + 6] + w[i + 6]);
        turn_state(v, 7, round_constants[i + 7] + w[i + 7]);
    }
    for (size_t i = 0; i < 8; i++) h[i] += v[i];
}

void weir__sha256_init(weir__sha256 *state)
{
    *state = (weir__sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                  0x1f83d9ab, 0x5be0cd19}};
}

void weir__sha256_feed(weir__sha256 *state, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    size_t filled = (size_t)(state->n % 64);
    state->n += n;
    if (filled > 0) {
        size_t taken = n < 64 - filled ? n : 64 - filled;
        if (taken > 0) memcpy(state->block + filled, at, taken);
        if (filled + taken < 64) return;
        compress_block(state->h, state->block);
        at += taken;
        n -= taken;
    }
    for (; n >= 64; at += 64, n -= 64) compress_block(state->h, at);
    if (n > 0) memcpy(state->block, at, n);
}

void weir__sha256_hex(weir__sha256 *state, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char tail[72] = {
        0x80}; /* one bit, zeros up to 8 bytes before a block's end, the length in bits */
    uint64_t bits = state->n * 8;
    size_t n = 64 - (size_t)((state->n + 8) % 64);
    for (int i = 0; i < 8; i++) tail[n + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    weir__sha256_feed(state, tail, n + 8);
    for (size_t i = 0; i < 32; i++) {
        unsigned byte = state->h[i / 4] >> (24 - 8 * (i % 4)) & 0xff;
        hex[2 * i] = digits[byte >> 4];
        hex[2 * i + 1] = digits[byte & 15];
    }
    hex[64] = '\0';
}
