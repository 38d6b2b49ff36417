/* cache_entry.c: makes, empties and drops entries, and turns them into tombstones; gives entries to the
 * archive's writer, and makes entries of its files and of those that others have added.
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
    if (e->end.rank == WEIR__PREFIX_PART) cache->n_parts -= e->n_bytes;
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

/* ---- Files ---- */

/* Fewer tokens than this are not worth a file. */
#define FILE_LEAST 16
/* Saving takes the driver's time, so it starts when no entry has been added for QUIET_NS. Under constant load
 * one entry is saved every LATEST_NS, so that not everything is lost if the process is killed. */
#define QUIET_NS  (250 * WEIR__NS_PER_MS)
#define LATEST_NS (10000 * WEIR__NS_PER_MS)

/* ---- Files that are there ---- */

static weir__cache_entry *entry_of_file(weir__cache *cache, weir__archive_file *file,
                                        const weir__snapshot *snapshot)
{
    weir__prefix_key key = weir__snapshot_key(snapshot);
    weir__cache_entry *e = weir__cache_entry_new(cache, &key, snapshot->tokens,
                                                 (int32_t)snapshot->head.n_tokens, WEIR__PREFIX_DISK, 0);
    if (e != NULL) e->file = file;
    return e;
}

void *weir__cache_index_file(weir__archive_file *file, const weir__snapshot *snapshot, void *user)
{
    return entry_of_file(user, file, snapshot);
}

bool weir__cache_collect_file(weir__cache *cache)
{
    weir__archive *archive = cache->params.archive;
    weir__archive_file *file = NULL;
    const weir__snapshot *snapshot = archive != NULL ? weir__archive_collect(archive, &file) : NULL;
    if (snapshot == NULL) return false;
    weir__cache_entry *e = file != NULL ? entry_of_file(cache, file, snapshot) : NULL;
    if (e != NULL) {
        file->owner = e;
        weir__cache_drop_above(cache, e);
    } else if (file != NULL) {
        weir__archive_remove(archive, file);
    }
    weir__archive_clear(archive);
    return e != NULL;
}

static bool is_busy(const weir__cache *cache)
{
    return weir__archive_is_busy(cache->params.archive) || cache->lacks_times;
}

bool weir__cache_lacks_file(const weir__cache *cache, const weir__cache_entry *e)
{
    bool exact = cache->params.exact;
    int32_t n = weir__cache_length(&e->end), there = weir__prefix_tree_on_disk(&e->end, exact);
    if (cache->params.archive == NULL || e->offered || is_busy(cache)) return false;
    return n - there >= FILE_LEAST && n - there > n / WORTH_PART;
}

/* Evicts the least recently used file. False: not before the reader has answered. */
static bool evict_file(weir__cache *cache)
{
    weir__archive_file *file = weir__archive_oldest(cache->params.archive);
    cache->lacks_times = file == NULL;
    if (file == NULL) return false;
    if (file->owner != NULL)
        weir__cache_make_tombstone(cache, file->owner);
    else
        weir__archive_remove(cache->params.archive, file);
    return true;
}

static bool make_room_for_file(weir__cache *cache, const weir__prefix_key *key, int32_t n, uint64_t size)
{
    while (weir__archive_is_crowded(cache->params.archive, key, n, size))
        if (!evict_file(cache)) return false;
    return true;
}

static void forget_entry(void *owner, void *user)
{
    weir__cache_entry *e = owner;
    e->file = NULL;
    weir__cache_drop(user, e);
}

/* Takes note of files that other processes have added or removed. False: nothing has changed. */
static bool follow_others(weir__cache *cache)
{
    weir__archive *archive = cache->params.archive;
    bool changed = weir__archive_follow(archive, weir__cache_index_file, forget_entry, cache);
    while (!cache->lacks_times && weir__archive_is_overfull(archive) && evict_file(cache)) changed = true;
    return changed;
}

void weir__cache_offer(weir__cache *cache, weir__cache_entry *e)
{
    weir__archive *archive = cache->params.archive;
    weir__memory *memory = cache->params.memory;
    int32_t n = weir__cache_length(&e->end);
    weir__prefix_key key = weir__prefix_tree_key(&e->end);
    bool owned = e->seq >= 0;
    size_t size = owned ? weir__memory_state_size(memory, e->seq) : e->n_bytes;
    bool fits = size > 0 && weir__archive_fits(archive, &key, n, size);
    if (fits && !make_room_for_file(cache, &key, n, size)) return;
    e->offered = true;
    if (!fits) return;
    void *bytes = owned ? weir__mem_alloc(size) : e->bytes;
    if (owned && bytes != NULL) size = weir__memory_save(memory, e->seq, bytes, size);
    if (bytes != NULL && size > 0) {
        const int32_t *tokens = weir__prefix_tree_tokens(&e->end, &n);
        key = weir__prefix_tree_key(&e->end); /* once more: the tree has changed */
        if (weir__archive_put(archive, &key, tokens, n, bytes, size, owned)) return;
    }
    if (owned) weir__mem_free(bytes);
}

/* The next entry that should get a file. The least recently used comes first, so that the files' times have
 * the same order. */
static weir__cache_entry *next_unsaved(weir__cache *cache)
{
    static const weir__prefix_rank ranks[] = {WEIR__PREFIX_HOST, WEIR__PREFIX_DEVICE};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (weir__prefix_end *end = cache->tree.oldest[ranks[i]]; end != NULL; end = end->newer)
            if (weir__cache_lacks_file(cache, weir__cache_entry_at(end))) return weir__cache_entry_at(end);
    return NULL;
}

bool weir__cache_archive(weir__cache *cache, int64_t now, bool idle)
{
    if (cache->params.archive == NULL) return false;
    bool more = weir__cache_collect_file(cache);
    more = follow_others(cache) || more;
    if (!cache->unsaved || now < (idle ? cache->kept_ns + QUIET_NS : cache->offered_ns + LATEST_NS) ||
        is_busy(cache))
        return more;
    weir__cache_entry *e = next_unsaved(cache);
    cache->unsaved = e != NULL;
    if (e != NULL) weir__cache_offer(cache, e);
    if (!cache->lacks_times) cache->offered_ns = now;
    return more;
}

int64_t weir__cache_archive_due(const weir__cache *cache)
{
    if (!cache->unsaved || is_busy(cache)) return WEIR__CLOCK_NEVER;
    return cache->kept_ns + QUIET_NS;
}

void weir__cache_free_reader(weir__cache *cache)
{
    cache->awaited = NULL;
    cache->lacks_times = false;
    weir__archive_put_away(cache->params.archive);
}

void weir__cache_save_all(weir__cache *cache)
{
    weir__archive *archive = cache->params.archive;
    weir__cache_entry *e;
    if (archive == NULL) return;
    weir__reader *reader = weir__archive_reader(archive);
    do {
        weir__archive_wait(archive);
        weir__reader_wait(reader);
        if (weir__reader_phase_of(reader) == WEIR__READER_DONE) weir__cache_free_reader(cache);
        weir__cache_collect_file(cache);
        if ((e = next_unsaved(cache)) != NULL) weir__cache_offer(cache, e);
    } while (e != NULL);
    for (weir__prefix_end *end = cache->tree.oldest[WEIR__PREFIX_DISK]; end != NULL; end = end->newer)
        weir__cache_entry_at(end)->file = NULL; /* the file outlives the entry */
    weir__archive_close(archive);
    cache->params.archive = NULL;
}
