/* cache_entry.c: makes, empties and drops entries, and turns them into tombstones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache_entry.h"

#include "base/clock.h"
#include "base/mem.h"

/* Tombstones (texts whose cells are gone) let later misses be reported as evictions. They stay while the
 * whole tree takes less memory than this. */
#define TOMBSTONE_BYTES (UINT64_C(16) << 20)
#define TOMBSTONES_MOST 4096

int32_t weir__cache_sequence(const weir__prefix_end *end)
{
    return end->rank == WEIR__PREFIX_DEVICE ? weir__cache_entry_at(end)->seq : -1;
}

int32_t weir__cache_length(const weir__prefix_end *end)
{
    int32_t n;
    weir__prefix_tree_tokens(end, &n);
    return n;
}

weir__cache_entry *weir__cache_entry_new(weir__cache *cache, const weir__prefix_key *key,
                                         const int32_t *tokens, int32_t n, weir__prefix_rank rank,
                                         int32_t keep_ms)
{
    weir__cache_entry *e = weir__mem_calloc(1, sizeof *e);
    if (e == NULL) return NULL;
    e->seq = -1;
    e->used_ns = weir__clock_now_ns();
    e->keep_ns = keep_ms * WEIR__NS_PER_MS;
    weir__cache_lock(cache);
    bool done = weir__prefix_tree_insert(&cache->tree, key, tokens, n, &e->end, rank);
    weir__cache_unlock(cache);
    if (done) return e;
    weir__mem_free(e);
    return NULL;
}

void weir__cache_empty(weir__cache *cache, weir__cache_entry *e)
{
    if (e->seq >= 0) {
        weir__memory_cut(cache->params.memory, e->seq, 0, 0);
        cache->by_seq[e->seq] = NULL;
    }
    weir__archive *archive = cache->params.archive;
    if (archive == NULL || !weir__archive_adopt(archive, e->bytes)) weir__mem_free(e->bytes);
    if (e->file != NULL) weir__archive_remove(archive, e->file);
    if (cache->awaited == e) cache->awaited = NULL;
    weir__cache_lock(cache);
    cache->n_saved -= e->n_bytes;
    weir__cache_unlock(cache);
    e->seq = -1;
    e->bytes = NULL;
    e->n_bytes = 0;
    e->file = NULL;
}

void weir__cache_drop(weir__cache *cache, weir__cache_entry *e)
{
    weir__cache_empty(cache, e);
    weir__cache_lock(cache);
    weir__prefix_tree_remove(&cache->tree, &e->end);
    weir__cache_unlock(cache);
    weir__mem_free(e);
}

void weir__cache_drop_above(weir__cache *cache, const weir__cache_entry *e)
{
    weir__prefix_end *above;
    while ((above = weir__prefix_tree_above(&e->end)) != NULL) {
        if (cache->params.exact && above->node != e->end.node) return;
        weir__cache_drop(cache, weir__cache_entry_at(above));
    }
}

void weir__cache_make_tombstone(weir__cache *cache, weir__cache_entry *e)
{
    weir__cache_empty(cache, e);
    weir__cache_lock(cache);
    cache->n_evicted++;
    bool stays = weir__prefix_tree_is_alone(&e->end);
    if (stays) weir__prefix_tree_rerank(&cache->tree, &e->end, WEIR__PREFIX_TOMBSTONE);
    weir__cache_unlock(cache);
    if (!stays) weir__cache_drop(cache, e);
    while (cache->tree.oldest[WEIR__PREFIX_TOMBSTONE] != NULL &&
           (cache->tree.n_bytes > TOMBSTONE_BYTES ||
            cache->tree.n_ends[WEIR__PREFIX_TOMBSTONE] > TOMBSTONES_MOST))
        weir__cache_drop(cache, weir__cache_entry_at(cache->tree.oldest[WEIR__PREFIX_TOMBSTONE]));
}
