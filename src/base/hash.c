/* hash.c: checksums of data kept outside the process, and hash tables.
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
