/* cache_entry.h: the entries of the prefix cache, the cache that holds them, and which of them get files in
 * cache_dir.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_CACHE_ENTRY_H
#define WEIR_CACHE_CACHE_ENTRY_H

#include <pthread.h>

#include "cache/cache.h"

/* An entry is not saved if at most 1 / WORTH_PART of its tokens are its own: computing those again takes less
 * time than saving the whole state, which is mostly not used again. */
#define WORTH_PART 8

/* A cached prefix. Its end's rank says where the state is. DEVICE: in the sequence seq >= 0, which holds
 * exactly the end's tokens. HOST, PART: in bytes. DISK: in file. TOMBSTONE: nowhere. A file is an entry of
 * its own, beside the entry whose state was written. */
typedef struct weir__cache_entry {
    weir__prefix_end end; /* first member: an end is an entry unless its rank is LIVE */
    int32_t seq;
    void *bytes; /* [n_bytes] as the backend saved it; the archive's writer may read it */
    size_t n_bytes;
    weir__archive_file *file; /* this entry is its owner */
    bool offered;             /* was offered to the archive, or is not to be */
    int64_t used_ns;          /* ascends with the order of use among entries of a rank */
    int64_t keep_ns;          /* the entry counts as used that much later */
} weir__cache_entry;

/* Invariant: n_saved is the sum of the entries' n_bytes; n_saved + n_claimed <= params.n_bytes; by_seq[s] is
 * the entry whose seq is s. The mutex protects all but params. Only the driver makes changes, so it reads
 * without the mutex. */
struct weir__cache {
    weir__cache_params params;
    pthread_mutex_t mutex;
    weir__prefix_tree tree;
    weir__blocks blocks;        /* the tree's, if there are any */
    weir__cache_entry **by_seq; /* [n_seqs] */
    uint64_t n_saved, n_claimed;
    uint64_t n_parts;               /* of n_saved, those of parts */
    uint64_t largest;               /* see weir__cache_largest */
    const weir__prefix_end *pinned; /* a part that is not evicted now; NULL = none */
    uint64_t n_evicted;
    uint64_t n_restored;
    bool unsaved;       /* some entry may lack a file */
    int64_t kept_ns;    /* when the newest entry was kept */
    int64_t offered_ns; /* when the archive last got an entry */
    /* The entry whose file the archive's reader was asked for; NULL: none, or it is gone. loaded: the state
     * has been used. */
    weir__cache_entry *awaited;
    bool loaded;
    bool lacks_times; /* nothing is written or evicted before the reader is FREE: see weir__archive_oldest */
};

static inline weir__cache_entry *weir__cache_entry_at(const weir__prefix_end *end)
{
    return (weir__cache_entry *)(void *)end;
}

static inline void weir__cache_lock(const weir__cache *cache)
{
    pthread_mutex_lock((pthread_mutex_t *)&cache->mutex);
}

static inline void weir__cache_unlock(const weir__cache *cache)
{
    pthread_mutex_unlock((pthread_mutex_t *)&cache->mutex);
}

/* Makes an entry of these tokens, without a state yet. NULL: no memory. */
weir__cache_entry *weir__cache_entry_new(weir__cache *cache, const weir__prefix_key *key,
                                         const int32_t *tokens, int32_t n, weir__prefix_rank rank,
                                         int32_t keep_ms);

/* Frees the entry's sequence, bytes or file. */
void weir__cache_empty(weir__cache *cache, weir__cache_entry *e);

/* Frees the entry and its state. */
void weir__cache_drop(weir__cache *cache, weir__cache_entry *e);

/* Drops the entries that the new one covers: at the same node and, if memory can be cut, on the way to it. */
void weir__cache_drop_above(weir__cache *cache, const weir__cache_entry *e);

/* Evicts the entry and turns it into a tombstone, unless another text covers its tokens. */
void weir__cache_make_tombstone(weir__cache *cache, weir__cache_entry *e);

/* ---- Files ---- */

/* Makes an entry, the file's owner; a callback of weir__archive_index. user: the cache. */
void *weir__cache_index_file(weir__archive_file *file, const weir__snapshot *snapshot, void *user);

/* Makes an entry for the file that the writer has finished. False: none. */
bool weir__cache_collect_file(weir__cache *cache);

/* True if the entry should get a file. If most of the text is in a file already, computing the rest takes
 * less time than another file, and each turn of a conversation would write all of it again. */
bool weir__cache_lacks_file(const weir__cache *cache, const weir__cache_entry *e);

/* Gives the writer the entry's state; once only, even if it fails. But nothing happens if files must be
 * evicted for it and the reader has yet to read their times (lacks_times). */
void weir__cache_offer(weir__cache *cache, weir__cache_entry *e);

/* The reader is done: frees its result, apart from the times of files. */
void weir__cache_free_reader(weir__cache *cache);

/* Writes all entries that lack a file, and closes the archive, if there is one. */
void weir__cache_save_all(weir__cache *cache);

#endif
