/* cache.c: moves entries between their states.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A fetch shares the cells of a sequence, or loads a state from host memory or from the reader. What evicts
 * or keeps entries is in cache.h's picture; single entries, and which of them get files, are in
 * cache_entry.c; look-ups are in look.c. */
#include "cache/cache.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_entry.h"
#include "cache/prefix_tree.h"
#include "params/members.h"

/* Parts that are compared before one is evicted. */
#define PARTS_COMPARED 8

const char *weir_miss_name(weir_miss miss)
{
    return (size_t)miss < WEIR_MISS_COUNT ? weir__miss_names[miss] : "unknown";
}

/* ---- Life ---- */

weir_status weir__cache_create(const weir__cache_params *params, weir__cache **out, weir_error *error)
{
    weir__cache *cache = weir__mem_calloc(1, sizeof *cache);
    if (cache == NULL) goto no_cache;
    cache->params = *params;
    cache->by_seq = weir__mem_calloc((size_t)params->memory->n_seqs, sizeof(weir__cache_entry *));
    if (cache->by_seq == NULL || pthread_mutex_init(&cache->mutex, NULL) != 0) goto no_mutex;
    weir__prefix_tree_init(&cache->tree);
    if (params->block > 0) {
        weir__blocks_init(&cache->blocks, params->block);
        cache->tree.blocks = &cache->blocks;
    }
    if (params->archive != NULL) weir__archive_index(params->archive, weir__cache_index_file, cache);
    cache->offered_ns = weir__clock_now_ns();
    *out = cache;
    return WEIR_OK;
no_mutex:
    weir__mem_free(cache->by_seq);
    weir__mem_free(cache);
no_cache:
    weir__archive_close(params->archive);
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the prefix cache");
}

void weir__cache_destroy(weir__cache *cache)
{
    if (cache == NULL) return;
    weir__cache_save_all(cache);
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++)
        while (rank != WEIR__PREFIX_LIVE && cache->tree.oldest[rank] != NULL)
            weir__cache_drop(cache, weir__cache_entry_at(cache->tree.oldest[rank]));
    weir__prefix_tree_fini(&cache->tree);
    weir__blocks_fini(&cache->blocks);
    pthread_mutex_destroy(&cache->mutex);
    weir__mem_free(cache->by_seq);
    weir__mem_free(cache);
}

/* ---- Properties ---- */

weir__cache_counts weir__cache_count(const weir__cache *cache)
{
    weir__cache_lock(cache);
    weir__cache_counts counts = {
        .n_bytes = cache->n_saved + cache->n_claimed,
        .n_device = (int32_t)cache->tree.n_ends[WEIR__PREFIX_DEVICE],
        .n_host = (int32_t)(cache->tree.n_ends[WEIR__PREFIX_HOST] + cache->tree.n_ends[WEIR__PREFIX_PART]),
        .n_disk = (int32_t)cache->tree.n_ends[WEIR__PREFIX_DISK],
        .disk_bytes = cache->params.archive != NULL ? weir__archive_bytes(cache->params.archive) : 0,
        .n_restored = cache->n_restored,
        .n_evicted = cache->n_evicted,
    };
    weir__cache_unlock(cache);
    return counts;
}

/* The position behind the first n tokens of an entry. */
static int32_t position_of(const weir__prefix_end *end, int32_t n)
{
    int32_t length;
    return weir__cell_position(weir__prefix_tree_tokens(end, &length), n);
}

weir__prefix_end *weir__cache_entry_of(const weir__cache *cache, int32_t seq)
{
    return cache->by_seq[seq] != NULL ? &cache->by_seq[seq]->end : NULL;
}

/* ---- Running requests ---- */

bool weir__cache_begin(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       uint64_t serial, weir__prefix_end *end)
{
    weir__cache_lock(cache);
    bool done = weir__prefix_tree_insert(&cache->tree, key, tokens, n, end, WEIR__PREFIX_LIVE);
    if (done) end->serial = serial;
    weir__cache_unlock(cache);
    return done;
}

void weir__cache_advance(weir__cache *cache, weir__prefix_end *end, int32_t n_ready, uint64_t serial)
{
    if (end->node == NULL) return;
    weir__cache_lock(cache);
    weir__prefix_tree_ready(&cache->tree, end, n_ready, !cache->params.exact);
    end->serial = serial;
    weir__cache_unlock(cache);
}

void weir__cache_end(weir__cache *cache, weir__prefix_end *end)
{
    if (end->node == NULL) return;
    weir__cache_lock(cache);
    weir__prefix_tree_remove(&cache->tree, end);
    weir__cache_unlock(cache);
}

/* ---- Changes ---- */

size_t weir__cache_changes(weir__cache *cache, bool all, weir_cache_change *changes, int32_t *tokens,
                           size_t capacity)
{
    weir__cache_lock(cache);
    if (all) weir__blocks_restart(&cache->blocks);
    size_t n = weir__blocks_take(&cache->blocks, changes, tokens, capacity);
    weir__cache_unlock(cache);
    return n;
}

size_t weir__cache_block(const weir__cache *cache, uint64_t id, int32_t *tokens, size_t capacity)
{
    weir__cache_lock(cache);
    size_t n = weir__blocks_find(&cache->blocks, id, tokens, capacity);
    weir__cache_unlock(cache);
    return n;
}

/* ---- Fetching ---- */

static void touch_entry(weir__cache *cache, weir__prefix_end *end)
{
    weir__cache_lock(cache);
    weir__prefix_tree_rerank(&cache->tree, end, end->rank);
    weir__cache_entry_at(end)->used_ns = weir__clock_now_ns();
    weir__cache_unlock(cache);
}

/* Cuts a sequence that has at least the hit's tokens. After an error it is empty. NOT_FOUND: the hit's part
 * was unusable and is dropped. */
static weir_status cut_to_hit(weir__cache *cache, const weir__cache_hit *hit, int32_t seq, weir_error *error)
{
    weir__memory *memory = cache->params.memory;
    if (hit->part != NULL) {
        weir__cache_entry *part = weir__cache_entry_at(hit->part);
        weir_status status =
            weir__memory_resume(memory, seq, hit->n, hit->pos, part->bytes, part->n_bytes, error);
        if (status == WEIR_OK || status == WEIR_NO_SPACE || status == WEIR_NO_MEMORY) return status;
        weir__cache_drop(cache, part);
        return WEIR_NOT_FOUND;
    }
    if (weir__memory_cut(memory, seq, hit->n, hit->pos)) return WEIR_OK;
    weir__memory_cut(memory, seq, 0, 0);
    return weir__error_set(error, WEIR_UNSUPPORTED, "", "this memory cannot be cut at token %d", hit->n);
}

/* Loads the hit's tokens of a state of `length` tokens. NOT_FOUND: see cut_to_hit. */
static weir_status load_state(weir__cache *cache, const void *bytes, size_t n_bytes, int32_t length,
                              const weir__cache_hit *hit, int32_t to, weir_error *error)
{
    weir__memory *memory = cache->params.memory;
    weir_status status = weir__memory_load(memory, to, bytes, n_bytes, length, error);
    return status == WEIR_OK && hit->n < length ? cut_to_hit(cache, hit, to, error) : status;
}

/* Gives the sequence `to` the hit's tokens of another one. */
static weir_status share_sequence(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t to,
                                  weir_error *error)
{
    weir__memory *memory = cache->params.memory;
    if (hit->part == NULL) return weir__memory_share(memory, from, to, hit->n, hit->pos, error);
    weir_status status = weir__memory_copy(memory, from, to, error);
    if (status != WEIR_OK) return status;
    return cut_to_hit(cache, hit, to, error);
}

static bool reader_is(const weir__cache *cache, weir__reader_phase phase)
{
    weir__archive *archive = cache->params.archive;
    return archive != NULL && weir__reader_phase_of(weir__archive_reader(archive)) == phase;
}

bool weir__cache_reads(const weir__cache *cache)
{
    return reader_is(cache, WEIR__READER_READS);
}

int64_t weir__cache_wait_begin(const weir__cache *cache, int64_t now)
{
    return weir__cache_reads(cache) ? weir__archive_reader(cache->params.archive)->asked_ns : now;
}

bool weir__cache_has_read(const weir__cache *cache)
{
    return reader_is(cache, WEIR__READER_DONE);
}

weir__cache_place weir__cache_call(weir__cache *cache, const weir__cache_hit *hit, int64_t due)
{
    weir__cache_entry *e = hit->entry != NULL ? weir__cache_entry_at(hit->entry) : NULL;
    if (e == NULL || e->file == NULL) return WEIR__CACHE_HERE;
    weir__reader *reader = weir__archive_reader(cache->params.archive);
    weir__reader_phase phase = weir__reader_phase_of(reader);
    if (phase == WEIR__READER_DONE && cache->awaited == e) return WEIR__CACHE_HERE;
    if (weir__clock_now_ns() >= due) return WEIR__CACHE_AWAY;
    if (phase != WEIR__READER_FREE) return WEIR__CACHE_COMES;
    int32_t length;
    const int32_t *tokens = weir__prefix_tree_tokens(&e->end, &length);
    weir__prefix_key key = weir__prefix_tree_key(&e->end);
    if (!weir__archive_ask(cache->params.archive, e->file, &key, tokens, length)) return WEIR__CACHE_AWAY;
    cache->awaited = e;
    cache->loaded = false;
    return WEIR__CACHE_COMES;
}

/* Loads the hit's tokens of a file's state, which has been read. A file that cannot be read is removed. An
 * intact one that the backend refuses stays until it is the oldest, but has no entry. */
static weir_status load_file(weir__cache *cache, weir__cache_entry *e, const weir__cache_hit *hit, int32_t to,
                             weir_error *error)
{
    int32_t length = weir__cache_length(&e->end);
    const void *state;
    size_t size;
    weir_error why = {0};
    assert(cache->awaited == e && weir__cache_has_read(cache));
    if (!weir__memory_has_room(cache->params.memory, length))
        return weir__error_set(error, WEIR_NO_SPACE, "", "no KV cells are left for %d tokens", length);
    weir_status status = weir__archive_read(cache->params.archive, e->file, &state, &size, &why);
    bool whole = status == WEIR_OK;
    if (whole) status = load_state(cache, state, size, length, hit, to, &why);
    if (status == WEIR_OK) {
        cache->n_restored++;
        cache->loaded = true;
        return WEIR_OK;
    }
    if (status == WEIR_NO_SPACE || status == WEIR_NO_MEMORY || (whole && status == WEIR_NOT_FOUND))
        return weir__error_as(error, &why, status, why.field);
    if (status != WEIR_NOT_FOUND) /* another process may have removed it */
        weir__log(WEIR_LOG_WARN, "The cached prompt %s cannot be used: %s", e->file->name,
                  weir__error_words(&why).text);
    if (whole) {
        e->file->owner = NULL;
        e->file = NULL;
    }
    weir__cache_drop(cache, e);
    return weir__error_as(error, &why, WEIR_NOT_FOUND, "");
}

/* Loads the hit's tokens of a state in host memory, which may have come from another engine. A state that the
 * backend refuses loses its entry. */
static weir_status load_host(weir__cache *cache, weir__cache_entry *e, const weir__cache_hit *hit, int32_t to,
                             weir_error *error)
{
    weir_error why = {0};
    weir_status status = load_state(cache, e->bytes, e->n_bytes, weir__cache_length(&e->end), hit, to, &why);
    if (status == WEIR_OK) return WEIR_OK;
    if (status == WEIR_NO_SPACE || status == WEIR_NO_MEMORY || status == WEIR_NOT_FOUND)
        return weir__error_as(error, &why, status, why.field);
    weir__log(WEIR_LOG_WARN, "A cached prompt cannot be used: %s", weir__error_words(&why).text);
    weir__cache_drop(cache, e);
    return weir__error_as(error, &why, WEIR_NOT_FOUND, "");
}

weir_status weir__cache_fetch(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t to,
                              weir_error *error)
{
    weir_status status;
    if (hit->entry != NULL && hit->entry->rank == WEIR__PREFIX_DISK) {
        status = load_file(cache, weir__cache_entry_at(hit->entry), hit, to, error);
    } else if (hit->entry != NULL && hit->entry->rank == WEIR__PREFIX_HOST) {
        status = load_host(cache, weir__cache_entry_at(hit->entry), hit, to, error);
    } else {
        if (hit->entry != NULL) from = weir__cache_entry_at(hit->entry)->seq;
        status = share_sequence(cache, hit, from, to, error);
    }
    if (status == WEIR_OK && hit->entry != NULL) touch_entry(cache, hit->entry);
    if (status == WEIR_OK && hit->part != NULL) touch_entry(cache, hit->part);
    return status;
}

/* ---- Copying ---- */

bool weir__cache_is_whole(const weir__cache_hit *hit)
{
    return hit->entry != NULL && hit->entry->rank != WEIR__PREFIX_DISK &&
           weir__cache_length(hit->entry) == hit->n;
}

static weir_status check_size(size_t size, uint64_t most, weir_error *error)
{
    if (size == 0) return weir__error_set(error, WEIR_UNSUPPORTED, "", "the state cannot be saved");
    if (size <= most) return WEIR_OK;
    return weir__error_set(error, WEIR_TOO_LONG, "", "the state has %zu bytes; allowed: %llu", size,
                           (unsigned long long)most);
}

static weir_status refuse_block(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, "", "no memory for the state");
}

static weir_status copy_sequence(weir__cache *cache, int32_t seq, uint64_t most, void **state,
                                 size_t *n_bytes, weir_error *error)
{
    weir__memory *memory = cache->params.memory;
    size_t size = weir__memory_state_size(memory, seq);
    weir_status status = check_size(size, most, error);
    if (status != WEIR_OK) return status;
    if ((*state = weir__mem_alloc(size)) == NULL) return refuse_block(error);
    *n_bytes = weir__memory_save(memory, seq, *state, size);
    if (*n_bytes > 0) return WEIR_OK;
    weir__mem_free(*state);
    *state = NULL;
    return weir__error_set(error, WEIR_UNSUPPORTED, "", "the state cannot be saved");
}

weir_status weir__cache_copy(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t spare,
                             uint64_t most, void **state, size_t *n_bytes, weir_error *error)
{
    const weir__cache_entry *e = hit->entry != NULL ? weir__cache_entry_at(hit->entry) : NULL;
    weir_status status;
    if (weir__cache_is_whole(hit) && e->seq >= 0) {
        status = copy_sequence(cache, e->seq, most, state, n_bytes, error);
    } else if (weir__cache_is_whole(hit)) {
        status = check_size(e->n_bytes, most, error);
        if (status != WEIR_OK) return status;
        if ((*state = weir__mem_dup(e->bytes, e->n_bytes)) == NULL) return refuse_block(error);
        *n_bytes = e->n_bytes;
    } else {
        status = weir__cache_fetch(cache, hit, from, spare, error);
        if (status != WEIR_OK) return status;
        status = copy_sequence(cache, spare, most, state, n_bytes, error);
        weir__memory_cut(cache->params.memory, spare, 0, 0);
        return status;
    }
    if (status == WEIR_OK) touch_entry(cache, hit->entry);
    return status;
}

/* ---- Evicting ---- */

/* Evicts the entry, without a tombstone if a file has all of its tokens. */
static void evict_entry(weir__cache *cache, weir__cache_entry *e)
{
    if (weir__prefix_tree_on_disk(&e->end, cache->params.exact) == weir__cache_length(&e->end))
        weir__cache_drop(cache, e);
    else
        weir__cache_make_tombstone(cache, e);
}

/* The entry of a rank that goes first, apart from `spare`; NULL: there is none. */
static weir__cache_entry *first_to_go(const weir__cache *cache, weir__prefix_rank rank,
                                      const weir__prefix_end *spare)
{
    weir__cache_entry *first = NULL;
    for (weir__prefix_end *end = cache->tree.oldest[rank]; end != NULL; end = end->newer) {
        weir__cache_entry *e = weir__cache_entry_at(end);
        if (end == spare) continue;
        if (first == NULL || e->used_ns + e->keep_ns < first->used_ns + first->keep_ns) first = e;
        if (e->keep_ns == 0) break; /* those after it were used later */
    }
    return first;
}

/* The part that goes first: of the least recently used ones that need not be kept, the one without which the
 * fewest tokens would be computed again. */
static weir__cache_entry *part_to_go(const weir__cache *cache)
{
    weir__cache_entry *first = NULL;
    int32_t least = 0, n = 0;
    int64_t now = weir__clock_now_ns();
    for (weir__prefix_end *end = cache->tree.oldest[WEIR__PREFIX_PART]; end != NULL && n < PARTS_COMPARED;
         end = end->newer) {
        weir__cache_entry *e = weir__cache_entry_at(end);
        if (end == cache->pinned || (e->keep_ns > 0 && e->used_ns + e->keep_ns > now)) continue;
        int32_t gap = weir__prefix_tree_gap(end);
        if (first == NULL || gap < least) {
            first = e;
            least = gap;
        }
        n++;
    }
    return first != NULL ? first : first_to_go(cache, WEIR__PREFIX_PART, cache->pinned);
}

/* The state in host memory that goes first: a part, if parts have more than their half, or else a whole one;
 * NULL: there is none. */
static weir__cache_entry *state_to_go(const weir__cache *cache)
{
    weir__cache_entry *whole = first_to_go(cache, WEIR__PREFIX_HOST, NULL);
    if (whole != NULL && cache->n_parts <= cache->params.n_bytes / 2) return whole;
    weir__cache_entry *part = part_to_go(cache);
    return part != NULL ? part : whole;
}

/* Makes room for n more bytes: evicts the least recently used entries, and offers them to the archive's
 * writer if it is free. */
static bool make_host_room(weir__cache *cache, uint64_t n)
{
    if (n > cache->params.n_bytes || cache->n_claimed > cache->params.n_bytes - n) return false;
    while (cache->n_saved + cache->n_claimed > cache->params.n_bytes - n) {
        weir__cache_entry *e = state_to_go(cache);
        if (e == NULL) return false; /* the pinned part alone is left */
        if (e->end.rank == WEIR__PREFIX_PART) {
            weir__cache_lock(cache);
            cache->n_evicted++;
            weir__cache_unlock(cache);
            weir__cache_drop(cache, e);
            continue;
        }
        weir__cache_collect_file(cache);
        if (weir__cache_lacks_file(cache, e)) weir__cache_offer(cache, e);
        evict_entry(cache, e);
    }
    return true;
}

bool weir__cache_claim(weir__cache *cache, uint64_t n)
{
    if (!make_host_room(cache, n)) return false;
    weir__cache_lock(cache);
    cache->n_claimed += n;
    weir__cache_unlock(cache);
    return true;
}

void weir__cache_unclaim(weir__cache *cache, uint64_t n)
{
    weir__cache_lock(cache);
    cache->n_claimed -= n;
    weir__cache_unlock(cache);
}

/* The saved bytes of a sequence. */
typedef struct saved_state {
    void *bytes; /* NULL: none */
    size_t n_bytes;
    bool part;    /* of a state */
    bool no_file; /* gets none */
    bool beside;  /* its sequence has an entry, which stays */
} saved_state;

/* The state of a sequence in a new block; NULL: no room, no memory, or the backend cannot save it. */
static saved_state save_sequence(weir__cache *cache, int32_t seq, bool part)
{
    weir__memory *memory = cache->params.memory;
    saved_state saved = {.part = part};
    if (cache->params.n_bytes == 0) return saved;
    size_t size = part ? weir__memory_part_size(memory, seq) : weir__memory_state_size(memory, seq);
    if (size == 0 || !make_host_room(cache, size)) return saved;
    saved.bytes = weir__mem_alloc(size);
    if (saved.bytes == NULL) return saved;
    saved.n_bytes = part ? weir__memory_part_save(memory, seq, saved.bytes, size)
                         : weir__memory_save(memory, seq, saved.bytes, size);
    if (saved.n_bytes > 0) return saved;
    weir__mem_free(saved.bytes);
    saved.bytes = NULL;
    return saved;
}

static void hold_bytes(weir__cache *cache, weir__cache_entry *e, void *bytes, size_t n_bytes)
{
    e->bytes = bytes;
    e->n_bytes = n_bytes;
    cache->n_saved += n_bytes;
    if (e->end.rank == WEIR__PREFIX_PART) cache->n_parts += n_bytes;
}

/* Moves the entry to host memory, as `bytes`; NULL: evicts it. */
static void entry_to_host(weir__cache *cache, weir__cache_entry *e, void *bytes, size_t n_bytes)
{
    if (bytes == NULL) {
        evict_entry(cache, e);
        return;
    }
    weir__cache_empty(cache, e);
    weir__cache_lock(cache);
    hold_bytes(cache, e, bytes, n_bytes);
    weir__prefix_tree_rerank(&cache->tree, &e->end, WEIR__PREFIX_HOST);
    weir__cache_unlock(cache);
}

/* The cost of saving grows with the whole state; its benefit, with the tokens that are in no other place. */
bool weir__cache_is_spare(const weir__prefix_end *end, int32_t n)
{
    int32_t length = weir__cache_length(end), own = weir__prefix_tree_own(end);
    return (own < length - n ? own : length - n) <= length / WORTH_PART;
}

static void note_unsaved(weir__cache *cache)
{
    if (cache->params.archive == NULL) return;
    cache->unsaved = true;
    cache->kept_ns = weir__clock_now_ns();
}

/* Makes an entry of a state, for which there is room. False: no memory. */
static bool keep_state(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       const saved_state *saved, int32_t keep_ms)
{
    weir__prefix_rank rank = saved->part ? WEIR__PREFIX_PART : WEIR__PREFIX_HOST;
    weir__cache_entry *e = weir__cache_entry_new(cache, key, tokens, n, rank, keep_ms);
    if (e == NULL) return false;
    weir__cache_lock(cache);
    hold_bytes(cache, e, saved->bytes, saved->n_bytes);
    weir__cache_unlock(cache);
    e->offered = saved->no_file;
    if (saved->part) return true;
    if (!saved->beside) weir__cache_drop_above(cache, e);
    note_unsaved(cache);
    return true;
}

/* A part is saved instead of a state that is more than this many times as large. Smaller states serve alone
 * and may get files. */
#define PART_WORTH 2

/* True if no entry apart from `self` has exactly these tokens. */
static bool lacks_state(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                        const weir__prefix_end *self)
{
    weir__cache_lock(cache);
    weir__prefix_end *there = weir__prefix_tree_find(&cache->tree, key, tokens, n, self);
    weir__cache_unlock(cache);
    if (there != NULL) touch_entry(cache, there);
    return there == NULL;
}

/* The sequence's state or, if that is much smaller, the part of it. */
static saved_state save_either(weir__cache *cache, int32_t seq)
{
    weir__memory *memory = cache->params.memory;
    size_t size = cache->params.parts ? weir__memory_part_size(memory, seq) : 0;
    bool part = size > 0 && weir__memory_state_size(memory, seq) / PART_WORTH > size;
    saved_state saved = save_sequence(cache, seq, part);
    /* Without the part's size the state may be much larger than what is saved otherwise. */
    if ((size > 0 || !cache->params.parts) && saved.n_bytes > cache->largest) cache->largest = saved.n_bytes;
    return saved;
}

/* Saves the place where the sequence of an entry ends. */
static void save_end(weir__cache *cache, const weir__cache_entry *e)
{
    int32_t n;
    const int32_t *tokens = weir__prefix_tree_tokens(&e->end, &n);
    weir__prefix_key key = weir__prefix_tree_key(&e->end);
    if (!lacks_state(cache, &key, tokens, n, &e->end)) return;
    saved_state saved = save_either(cache, e->seq);
    saved.beside = true;
    tokens = weir__prefix_tree_tokens(&e->end, &n); /* once more: the tree may have changed */
    key = weir__prefix_tree_key(&e->end);
    int32_t keep_ms = (int32_t)(e->keep_ns / WEIR__NS_PER_MS);
    if (saved.bytes != NULL && !keep_state(cache, &key, tokens, n, &saved, keep_ms))
        weir__mem_free(saved.bytes);
}

/* Memory that cannot be truncated keeps the place where the sequence ended, if it goes on from there, or if
 * other entries have most of its cells. */
int32_t weir__cache_take_over(weir__cache *cache, const weir__cache_hit *hit)
{
    weir__prefix_end *end = hit->entry;
    weir__cache_entry *e = weir__cache_entry_at(end);
    int32_t seq = e->seq, length = weir__cache_length(end);
    bool needed = hit->n < length && !weir__prefix_tree_is_covered(end, true);
    bool spare = !needed || weir__cache_is_spare(end, hit->n);
    saved_state saved = {0};
    cache->pinned = hit->part;
    if (cache->params.parts && spare) save_end(cache, e);
    if (!spare) saved = save_sequence(cache, seq, false);
    cache->by_seq[seq] = NULL;
    e->seq = -1;
    if (needed)
        entry_to_host(cache, e, saved.bytes, saved.n_bytes);
    else
        weir__cache_drop(cache, e);
    weir_status status = hit->n < length ? cut_to_hit(cache, hit, seq, NULL) : WEIR_OK;
    if (status == WEIR_OK && hit->part != NULL) touch_entry(cache, hit->part);
    cache->pinned = NULL;
    return seq;
}

int32_t weir__cache_adopt(weir__cache *cache, weir__prefix_end *end, int32_t n)
{
    const weir__cache_hit hit = {.entry = end, .n = n, .pos = position_of(end, n)};
    return weir__cache_take_over(cache, &hit);
}

int32_t weir__cache_evict(weir__cache *cache, const weir__prefix_end *spare)
{
    weir__cache_entry *e = first_to_go(cache, WEIR__PREFIX_DEVICE, spare);
    return e != NULL ? weir__cache_adopt(cache, &e->end, 0) : -1;
}

/* ---- Keeping ---- */

bool weir__cache_keep(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms)
{
    if (cache->params.n_sequences == 0 || (cache->params.exact && !cache->params.parts)) return false;
    weir__cache_entry *e = weir__cache_entry_new(cache, key, tokens, n, WEIR__PREFIX_DEVICE, keep_ms);
    if (e == NULL) return false;
    if (weir__prefix_tree_is_covered(&e->end, false)) { /* a longer one or the same exists */
        weir__cache_drop(cache, e);
        return false;
    }
    e->seq = seq;
    cache->by_seq[seq] = e;
    weir__cache_drop_above(cache, e);
    note_unsaved(cache);
    bool stays = true;
    while (stays && (int32_t)cache->tree.n_ends[WEIR__PREFIX_DEVICE] > cache->params.n_sequences) {
        weir__cache_entry *first = first_to_go(cache, WEIR__PREFIX_DEVICE, NULL);
        stays = first != e; /* not if the others are to be kept longer */
        weir__cache_adopt(cache, &first->end, 0);
    }
    return stays;
}

/* Keeps a state that was read after its requests have gone. It takes the place of no other state. */
static void keep_late(weir__cache *cache, weir__reader *r)
{
    weir__prefix_match m;
    weir__prefix_key key = weir__snapshot_key(&r->text);
    const int32_t *tokens = r->text.tokens;
    int32_t n = (int32_t)r->text.head.n_tokens;
    size_t size = r->text.head.state_size;
    weir__cache_lock(cache);
    weir__prefix_tree_match(&cache->tree, &key, tokens, n, n, WEIR__PREFIX_HOST, NULL, 0, &m);
    weir__cache_unlock(cache);
    bool there = m.n_exact == n || (!cache->params.exact && m.n_entry == n);
    const saved_state saved = {.bytes = r->state, .n_bytes = size};
    if (!there && cache->n_saved + cache->n_claimed + size <= cache->params.n_bytes &&
        keep_state(cache, &key, tokens, n, &saved, 0))
        r->state = NULL;
}

void weir__cache_put_away(weir__cache *cache)
{
    weir__reader *r = weir__archive_reader(cache->params.archive);
    if (cache->awaited != NULL && !cache->loaded && r->status == WEIR_OK) keep_late(cache, r);
    weir__cache_free_reader(cache);
}

bool weir__cache_save(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms, bool no_file)
{
    if (cache->params.n_bytes == 0 || !lacks_state(cache, key, tokens, n, NULL)) return false;
    saved_state saved = save_either(cache, seq);
    saved.no_file = no_file;
    if (saved.bytes == NULL) return false;
    if (keep_state(cache, key, tokens, n, &saved, keep_ms)) return true;
    weir__mem_free(saved.bytes);
    return false;
}

uint64_t weir__cache_largest(const weir__cache *cache)
{
    return cache->largest;
}

weir_status weir__cache_put(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                            void **state, size_t n_bytes, weir_error *error)
{
    weir__prefix_match m;
    weir__cache_lock(cache);
    weir__prefix_tree_match(&cache->tree, key, tokens, n, n, WEIR__PREFIX_DISK, NULL, 0, &m);
    weir__cache_unlock(cache);
    if (m.n_exact == n || (!cache->params.exact && m.n_entry == n)) return WEIR_OK;
    if (!make_host_room(cache, n_bytes))
        return weir__error_set(error, WEIR_NO_SPACE, "cache_bytes",
                               "`cache_bytes` is %llu and has no room for a state of %zu bytes",
                               (unsigned long long)cache->params.n_bytes, n_bytes);
    const saved_state saved = {.bytes = *state, .n_bytes = n_bytes};
    if (!keep_state(cache, key, tokens, n, &saved, 0))
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a cached prefix");
    *state = NULL;
    return WEIR_OK;
}

bool weir__cache_move(weir__cache *cache, int32_t from, int32_t to)
{
    weir__memory *memory = cache->params.memory;
    weir__cache_entry *e = cache->by_seq[from];
    int32_t n = weir__cache_length(&e->end);
    if (weir__memory_share(memory, from, to, n, position_of(&e->end, n), NULL) != WEIR_OK) return false;
    weir__memory_cut(memory, from, 0, 0);
    cache->by_seq[from] = NULL;
    cache->by_seq[to] = e;
    e->seq = to;
    return true;
}

bool weir__cache_exchange(weir__cache *cache, int32_t seq, int32_t other, int32_t n, int32_t pos)
{
    weir__memory *memory = cache->params.memory;
    weir__cache_entry *e = cache->by_seq[seq];
    int32_t length = weir__cache_length(&e->end), to = other;
    size_t size = weir__memory_state_size(memory, seq);
    void *bytes = size > 0 ? weir__mem_alloc(size) : NULL;
    if (bytes != NULL) size = weir__memory_save(memory, seq, bytes, size);
    if (bytes == NULL || size == 0) {
        weir__mem_free(bytes);
        return false;
    }
    weir__memory_cut(memory, seq, 0, 0);
    cache->by_seq[seq] = NULL;
    e->seq = -1;
    if (n > 0 && weir__memory_share(memory, other, seq, n, pos, NULL) != WEIR_OK)
        to = seq;
    else
        weir__memory_cut(memory, other, 0, 0);
    if (weir__memory_load(memory, to, bytes, size, length, NULL) == WEIR_OK) {
        cache->by_seq[to] = e;
        e->seq = to;
    } else {
        weir__cache_drop(cache, e);
    }
    weir__mem_free(bytes);
    return to == other;
}

/* ---- Check ---- */

void weir__cache_check(const weir__cache *cache)
{
    weir__cache_lock(cache);
    const weir__cache_params *p = &cache->params;
    uint64_t n_saved = 0, n_parts = 0;
    assert(weir__prefix_tree_check(&cache->tree) == NULL);
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++)
        for (const weir__prefix_end *end = cache->tree.newest[rank]; end != NULL; end = end->older) {
            if (rank == WEIR__PREFIX_LIVE) continue;
            const weir__cache_entry *e = weir__cache_entry_at(end);
            assert((e->seq >= 0) == (rank == WEIR__PREFIX_DEVICE));
            assert((e->bytes != NULL) == (rank == WEIR__PREFIX_HOST || rank == WEIR__PREFIX_PART));
            assert((e->file != NULL) == (rank == WEIR__PREFIX_DISK));
            assert(e->file == NULL || e->file->owner == e);
            assert(e->seq < 0 || cache->by_seq[e->seq] == e);
            assert(e->seq < 0 || p->memory->n[e->seq] == weir__cache_length(end));
            n_saved += e->n_bytes;
            n_parts += rank == WEIR__PREFIX_PART ? e->n_bytes : 0;
        }
    for (int32_t seq = 0; seq < p->memory->n_seqs; seq++)
        assert(cache->by_seq[seq] == NULL || cache->by_seq[seq]->seq == seq);
    assert(cache->awaited == NULL || cache->awaited->file != NULL);
    assert(n_parts == cache->n_parts);
    assert(n_saved == cache->n_saved && n_saved + cache->n_claimed <= p->n_bytes);
    assert((int32_t)cache->tree.n_ends[WEIR__PREFIX_DEVICE] <= p->n_sequences);
    weir__cache_unlock(cache);
}
