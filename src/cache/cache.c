/* cache.c: looks prompts up, and moves entries between their states.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A look-up asks the tree for the best entry, the running request that has computed the most, and one that
 * will have more, and chooses the source with the most tokens. A fetch shares the cells of a sequence, or
 * loads a state from host memory or from the reader. What evicts or keeps entries is in cache.h's picture;
 * single entries, and which of them get files, are in cache_entry.c. */
#include "cache/cache.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/largest.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_entry.h"
#include "cache/prefix_tree.h"
#include "params/members.h"

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

/* ---- Look-up ---- */

/* Chooses the source with the most tokens. */
static void choose_source(const weir__cache_params *params, const weir__prefix_match *m, weir__cache_hit *hit)
{
    if (params->exact) { /* a running request has hardly ever computed exactly the matching tokens */
        hit->entry = m->exact;
        hit->n = m->n_exact;
    } else if (m->n_entry > m->n_live ||
               (m->n_entry == m->n_live && m->entry != NULL && m->entry->rank == WEIR__PREFIX_DEVICE)) {
        hit->entry = m->entry;
        hit->n = m->n_entry;
    } else {
        hit->live = m->live;
        hit->n = m->n_live;
    }
    bool whole = hit->entry != NULL && weir__cache_length(hit->entry) == hit->n;
    if (hit->n < params->least && !whole) {
        hit->n = 0;
        hit->entry = hit->live = NULL;
    }
    if (m->n_leader > hit->n && m->n_leader >= params->least) {
        hit->leader = m->leader;
        hit->n_leader = m->n_leader;
    }
}

/* The number of tokens that a request without a salt would find now. */
static int32_t find_open(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n)
{
    const weir__prefix_key open = {.adapter = key->adapter};
    weir__prefix_match m;
    weir__cache_hit hit = {0};
    weir__prefix_tree_match(&cache->tree, &open, tokens, n, n - 1, WEIR__PREFIX_DISK, NULL, 0, &m);
    choose_source(&cache->params, &m, &hit);
    return hit.n;
}

static weir_miss reason_of(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                           const weir__prefix_match *m, const weir__cache_hit *hit)
{
    int32_t there = (int32_t)weir__max(m->n_entry, m->n_live),
            known = m->n_known < n - 1 ? m->n_known : n - 1;
    if (hit->n >= n - 1) return WEIR_MISS_NONE;
    if (cache->params.exact && there > hit->n) return WEIR_MISS_UNCUTTABLE;
    if (known > weir__max(there, m->n_leader)) return WEIR_MISS_EVICTED;
    if (key->salt_length > 0 && find_open(cache, key, tokens, n) > m->n_known) return WEIR_MISS_SALT;
    return m->n_known > 0 && m->n_known < n && m->n_other > 0 ? WEIR_MISS_DIVERGED : WEIR_MISS_COLD;
}

void weir__cache_look(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      bool files, const weir__prefix_end *self, uint64_t serial, weir__cache_hit *hit)
{
    weir__prefix_rank worst = files ? WEIR__PREFIX_DISK : WEIR__PREFIX_HOST;
    weir__prefix_match m;
    *hit = (weir__cache_hit){0};
    weir__cache_lock(cache);
    /* the last token is always computed: the answer starts from its row */
    weir__prefix_tree_match(&cache->tree, key, tokens, n, n - 1, worst, self, serial, &m);
    choose_source(&cache->params, &m, hit);
    hit->pos = weir__cell_position(tokens, hit->n);
    hit->miss = reason_of(cache, key, tokens, n, &m, hit);
    hit->n_matched = m.n_known;
    if (hit->miss == WEIR_MISS_DIVERGED) {
        hit->n_other = m.n_other < WEIR__CACHE_AROUND ? m.n_other : WEIR__CACHE_AROUND;
        if (hit->n_other > 0) memcpy(hit->other, m.other, (size_t)hit->n_other * sizeof *hit->other);
    }
    weir__cache_unlock(cache);
}

weir__cache_counts weir__cache_count(const weir__cache *cache)
{
    weir__cache_lock(cache);
    weir__cache_counts counts = {
        .n_bytes = cache->n_saved + cache->n_claimed,
        .n_device = (int32_t)cache->tree.n_ends[WEIR__PREFIX_DEVICE],
        .n_host = (int32_t)cache->tree.n_ends[WEIR__PREFIX_HOST],
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

/* Loads the hit's tokens of a state of `length` tokens. */
static weir_status load_state(weir__cache *cache, const void *bytes, size_t n_bytes, int32_t length,
                              const weir__cache_hit *hit, int32_t to, weir_error *error)
{
    weir__memory *memory = cache->params.memory;
    weir_status status = weir__memory_load(memory, to, bytes, n_bytes, length, error);
    if (status == WEIR_OK && hit->n < length && !weir__memory_cut(memory, to, hit->n, hit->pos)) {
        weir__memory_cut(memory, to, 0, 0);
        status =
            weir__error_set(error, WEIR_UNSUPPORTED, "", "this memory cannot be cut at token %d", hit->n);
    }
    return status;
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
    if (status == WEIR_NO_SPACE || status == WEIR_NO_MEMORY)
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
    if (status == WEIR_NO_SPACE || status == WEIR_NO_MEMORY)
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
        status = weir__memory_share(cache->params.memory, from, to, hit->n, hit->pos, error);
    }
    if (status == WEIR_OK && hit->entry != NULL) touch_entry(cache, hit->entry);
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

/* Makes room for n more bytes: evicts the least recently used entries, and offers them to the archive's
 * writer if it is free. */
static bool make_host_room(weir__cache *cache, uint64_t n)
{
    if (n > cache->params.n_bytes || cache->n_claimed > cache->params.n_bytes - n) return false;
    while (cache->n_saved + cache->n_claimed > cache->params.n_bytes - n) {
        weir__cache_entry *e = first_to_go(cache, WEIR__PREFIX_HOST, NULL);
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

/* The state of a sequence in a new block; NULL: no room, no memory, or the backend cannot save it. */
static void *save_sequence(weir__cache *cache, int32_t seq, size_t *n_bytes)
{
    weir__memory *memory = cache->params.memory;
    if (cache->params.n_bytes == 0) return NULL;
    size_t size = weir__memory_state_size(memory, seq);
    if (size == 0 || !make_host_room(cache, size)) return NULL;
    void *bytes = weir__mem_alloc(size);
    if (bytes == NULL) return NULL;
    *n_bytes = weir__memory_save(memory, seq, bytes, size);
    if (*n_bytes > 0) return bytes;
    weir__mem_free(bytes);
    return NULL;
}

static void hold_bytes(weir__cache *cache, weir__cache_entry *e, void *bytes, size_t n_bytes)
{
    e->bytes = bytes;
    e->n_bytes = n_bytes;
    cache->n_saved += n_bytes;
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

int32_t weir__cache_adopt(weir__cache *cache, weir__prefix_end *end, int32_t n)
{
    weir__cache_entry *e = weir__cache_entry_at(end);
    int32_t seq = e->seq, pos = position_of(end, n);
    size_t n_bytes = 0;
    bool needed = n < weir__cache_length(end) && !weir__prefix_tree_is_covered(end, true);
    void *bytes = needed && !weir__cache_is_spare(end, n) ? save_sequence(cache, seq, &n_bytes) : NULL;
    cache->by_seq[seq] = NULL;
    e->seq = -1;
    if (needed)
        entry_to_host(cache, e, bytes, n_bytes);
    else
        weir__cache_drop(cache, e);
    weir__memory_cut(cache->params.memory, seq, n, pos);
    return seq;
}

int32_t weir__cache_evict(weir__cache *cache, const weir__prefix_end *spare)
{
    weir__cache_entry *e = first_to_go(cache, WEIR__PREFIX_DEVICE, spare);
    return e != NULL ? weir__cache_adopt(cache, &e->end, 0) : -1;
}

/* ---- Keeping ---- */

static void note_unsaved(weir__cache *cache)
{
    if (cache->params.archive == NULL) return;
    cache->unsaved = true;
    cache->kept_ns = weir__clock_now_ns();
}

bool weir__cache_keep(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms)
{
    if (cache->params.n_sequences == 0 || cache->params.exact) return false;
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

/* Makes an entry of a state, for which there is room. False: no memory. */
static bool keep_state(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       void *bytes, size_t n_bytes, int32_t keep_ms)
{
    weir__cache_entry *e = weir__cache_entry_new(cache, key, tokens, n, WEIR__PREFIX_HOST, keep_ms);
    if (e == NULL) return false;
    weir__cache_lock(cache);
    hold_bytes(cache, e, bytes, n_bytes);
    weir__cache_unlock(cache);
    weir__cache_drop_above(cache, e);
    note_unsaved(cache);
    return true;
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
    if (!there && cache->n_saved + cache->n_claimed + size <= cache->params.n_bytes &&
        keep_state(cache, &key, tokens, n, r->state, size, 0))
        r->state = NULL;
}

void weir__cache_put_away(weir__cache *cache)
{
    weir__reader *r = weir__archive_reader(cache->params.archive);
    if (cache->awaited != NULL && !cache->loaded && r->status == WEIR_OK) keep_late(cache, r);
    weir__cache_free_reader(cache);
}

bool weir__cache_save(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms)
{
    size_t n_bytes = 0;
    weir__prefix_match m;
    if (cache->params.n_bytes == 0) return false;
    weir__cache_lock(cache);
    weir__prefix_tree_match(&cache->tree, key, tokens, n, n, WEIR__PREFIX_DISK, NULL, 0, &m);
    weir__cache_unlock(cache);
    if (m.n_exact == n) {
        touch_entry(cache, m.exact);
        return false;
    }
    void *bytes = save_sequence(cache, seq, &n_bytes);
    if (bytes == NULL) return false;
    if (keep_state(cache, key, tokens, n, bytes, n_bytes, keep_ms)) return true;
    weir__mem_free(bytes);
    return false;
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
    if (!keep_state(cache, key, tokens, n, *state, n_bytes, 0))
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
    uint64_t n_saved = 0;
    assert(weir__prefix_tree_check(&cache->tree) == NULL);
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++)
        for (const weir__prefix_end *end = cache->tree.newest[rank]; end != NULL; end = end->older) {
            if (rank == WEIR__PREFIX_LIVE) continue;
            const weir__cache_entry *e = weir__cache_entry_at(end);
            assert((e->seq >= 0) == (rank == WEIR__PREFIX_DEVICE));
            assert((e->bytes != NULL) == (rank == WEIR__PREFIX_HOST));
            assert((e->file != NULL) == (rank == WEIR__PREFIX_DISK));
            assert(e->file == NULL || e->file->owner == e);
            assert(e->seq < 0 || cache->by_seq[e->seq] == e);
            assert(e->seq < 0 || p->memory->n[e->seq] == weir__cache_length(end));
            n_saved += e->n_bytes;
        }
    for (int32_t seq = 0; seq < p->memory->n_seqs; seq++)
        assert(cache->by_seq[seq] == NULL || cache->by_seq[seq]->seq == seq);
    assert(cache->awaited == NULL || cache->awaited->file != NULL);
    assert(n_saved == cache->n_saved && n_saved + cache->n_claimed <= p->n_bytes);
    assert((int32_t)cache->tree.n_ends[WEIR__PREFIX_DEVICE] <= p->n_sequences);
    weir__cache_unlock(cache);
}
