/* cache.h: cached prefixes, in running requests, in sequences of finished ones, and as saved states in host
 * memory and in files.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An entry's state is the rank of its end (prefix_tree.h):
 *
 *        keep                     save, put, put_away                 a file was written, or found
 *         |                                |                                     |
 *         v       adopt, evict, keep       v                                     v
 *      DEVICE ------------------------>  HOST                                  DISK
 *         |                                |                                     |
 *         | no room for the state, or      | host memory is wanted               | cache_dir is full
 *         | not worth saving               | for another state                   |
 *         v                                v                                     v
 *     TOMBSTONE                        TOMBSTONE                             TOMBSTONE
 *
 * A file is an entry of its own, beside the entry that was written. A fetch moves no entry.
 * A PART is the part of a state that keeps a sequence from being cut, in host memory. It serves together with
 * another entry, or a running request, that has the other cells of its tokens.
 * Tombstones are freed when they take too much memory, the oldest first. An entry is freed without a
 * tombstone if its tokens stay elsewhere (in a longer entry, in the sequence that adopt takes over, or in a
 * file), and if its file or state proves unusable. */
#ifndef WEIR_CACHE_CACHE_H
#define WEIR_CACHE_CACHE_H

#include "cache/archive.h"
#include "cache/memory.h"
#include "cache/prefix_tree.h"

typedef struct weir__cache weir__cache;

typedef struct weir__cache_params {
    weir__memory *memory;
    int32_t n_sequences;    /* limit on the sequences of entries; 0 = none */
    uint64_t n_bytes;       /* limit on host memory for saved states; 0 = none */
    int32_t least;          /* a hit of fewer tokens is not worth copying */
    bool exact;             /* memory cannot be cut everywhere: without a part, a state serves whole */
    bool parts;             /* exact: but states have a part that cuts a longer sequence where it was saved */
    int32_t block;          /* tokens of a block whose changes are recorded; 0 = none are */
    weir__archive *archive; /* the cache owns it from create on, even if that fails; NULL = no files */
} weir__cache_params;

/* Tokens after the divergence of a prompt from a known text. */
#define WEIR__CACHE_AROUND 24

/* The result of a look-up. Valid until the cache changes. */
typedef struct weir__cache_hit {
    int32_t n;                /* tokens available now; 0 = none */
    int32_t pos;              /* the position behind them */
    weir__prefix_end *entry;  /* the entry that has them; NULL: see live */
    weir__prefix_end *live;   /* the running request that has them */
    weir__prefix_end *part;   /* cuts the longer sequence of `entry` or `live`; NULL: it need not be cut so */
    weir__prefix_end *longer; /* a sequence with n_longer > n of them, if it can be cut there; NULL = none */
    int32_t n_longer;
    weir__prefix_end *leader; /* a request that will have n_leader > n of them; NULL = none */
    int32_t n_leader;
    weir_miss miss;
    int32_t n_matched; /* known tokens, including tombstones */
    int32_t n_other;
    int32_t other[WEIR__CACHE_AROUND]; /* [n_other] how a known text continues after them; only if DIVERGED */
} weir__cache_hit;

typedef struct weir__cache_counts {
    uint64_t n_bytes;    /* used of the budget, by states and claims */
    int32_t n_device;    /* entries in sequences */
    int32_t n_host;      /* entries in host memory */
    int32_t n_disk;      /* entries in files */
    uint64_t disk_bytes; /* of all files */
    uint64_t n_restored; /* states read from files */
    uint64_t n_evicted;  /* evicted entries */
} weir__cache_counts;

/* `look`, `changes` and `block` may be called by any thread, the rest only by the driver, which is the thread
 * that runs the engine's ticks. The mutex is never held during a call of the backend; the archive's is taken
 * within it. */
weir_status weir__cache_create(const weir__cache_params *params, weir__cache **out, weir_error *error);

/* First writes the entries that lack a file. Also frees the entries' sequences. */
void weir__cache_destroy(weir__cache *cache);

/* Finds the available tokens of the prompt [n]; files: also those in files. self: the request's own end, or
 * NULL; a leader must have a lower serial. Allocates nothing. */
void weir__cache_look(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      bool files, const weir__prefix_end *self, uint64_t serial, weir__cache_hit *hit);

/* The same if the sequence of `longer`, as of a hit, can be cut. */
void weir__cache_look_longer(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens,
                             int32_t n, bool files, const weir__prefix_end *self, uint64_t serial,
                             const weir__prefix_end *longer, weir__cache_hit *hit);

weir__cache_counts weir__cache_count(const weir__cache *cache);

/* See weir_engine_cache_changes. */
size_t weir__cache_changes(weir__cache *cache, bool all, weir_cache_change *changes, int32_t *tokens,
                           size_t capacity);

/* See weir_engine_block_tokens. */
size_t weir__cache_block(const weir__cache *cache, uint64_t id, int32_t *tokens, size_t capacity);

/* begin: a request starts. advance: it has computed n_ready tokens. end: it has ended. serial 0: it computes;
 * otherwise it waits for another one. begin returns false if memory ran out; then other requests do not find
 * it. */
bool weir__cache_begin(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       uint64_t serial, weir__prefix_end *end);
void weir__cache_advance(weir__cache *cache, weir__prefix_end *end, int32_t n_ready, uint64_t serial);
void weir__cache_end(weir__cache *cache, weir__prefix_end *end);

/* The place of the hit's tokens. HERE: in memory; COMES: in a file that is being read, or will be after
 * another one; AWAY: in a file that does not come in time. */
typedef enum weir__cache_place { WEIR__CACHE_HERE, WEIR__CACHE_COMES, WEIR__CACHE_AWAY } weir__cache_place;

/* A caller's wait for files. All zeroes at first. */
typedef struct weir__cache_wait {
    int64_t due_ns; /* 0 = it has not begun */
    bool over;      /* without success */
} weir__cache_wait;

/* Asks for the hit's tokens if they are in a file. The reader reads one at a time, and wakes the engine;
 * its state is memory in addition to n_bytes, until put_away. due: when the caller's wait ends; its file
 * is AWAY then. */
weir__cache_place weir__cache_call(weir__cache *cache, const weir__cache_hit *hit, int64_t due);

/* The time from which a wait that starts now counts: if a file is being read, since its read began, so that
 * nobody waits long for a reader that hangs. */
int64_t weir__cache_wait_begin(const weir__cache *cache, int64_t now);

/* True if a file is being read (reads), and if one has been read (has_read). */
bool weir__cache_reads(const weir__cache *cache);
bool weir__cache_has_read(const weir__cache *cache);

/* The reader is free for the next file. A state that nobody has loaded becomes an entry in host memory, if
 * there is room. */
void weir__cache_put_away(weir__cache *cache);

/* Puts the hit's n tokens, which are HERE, into the empty sequence `to`. from: the sequence of hit->live.
 * After an error `to` is empty. NO_SPACE: no cells; NOT_FOUND: the entry's file, its state or the part was
 * unusable and is removed: look again; others: the tokens are not available after all. */
weir_status weir__cache_fetch(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t to,
                              weir_error *error);

/* True if the hit's tokens are all that an entry in a sequence or in host memory has. */
bool weir__cache_is_whole(const weir__cache_hit *hit);

/* Copies the state of the hit's tokens into a new block of at most `most` bytes. from: as of fetch. spare: an
 * empty sequence, which is empty afterwards; may be -1 if the hit is whole. Errors as of fetch, and
 * UNSUPPORTED: the state cannot be saved; TOO_LONG; NO_MEMORY. */
weir_status weir__cache_copy(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t spare,
                             uint64_t most, void **state, size_t *n_bytes, weir_error *error);

/* The sequence of an entry on the device; -1 = the entry is elsewhere. */
int32_t weir__cache_sequence(const weir__prefix_end *end);

/* The number of the entry's tokens. */
int32_t weir__cache_length(const weir__prefix_end *end);

/* True if little is lost if only its first n tokens stay: the others are few, or other entries hold most of
 * its tokens. */
bool weir__cache_is_spare(const weir__prefix_end *end, int32_t n);

/* Takes over the sequence of an entry on the device, with the first n of its tokens. The entry is dropped; if
 * that would lose tokens, it moves to host memory. */
int32_t weir__cache_adopt(weir__cache *cache, weir__prefix_end *end, int32_t n);

/* The same for the sequence of a hit's entry, with the hit's tokens. The sequence is empty if it could not be
 * cut. */
int32_t weir__cache_take_over(weir__cache *cache, const weir__cache_hit *hit);

/* Makes an entry for a finished request's tokens [n] in `seq`. keep_ms: when entries are evicted, it counts
 * as used that much later than it was. False: no entry in the sequence (already cached, no room, no memory,
 * or the others are to be kept longer), and the caller keeps the sequence, which may be empty. */
bool weir__cache_keep(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms);

/* Saves the state of a sequence with tokens [n] as an entry in host memory; of a state with a part, only that
 * part if it is much smaller. no_file: it never gets a file. The sequence stays the caller's. False: as
 * above. */
bool weir__cache_save(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq, int32_t keep_ms, bool no_file);

/* The bytes of the largest state, or part of one, that save has saved; 0 = none yet. */
uint64_t weir__cache_largest(const weir__cache *cache);

/* Makes an entry in host memory of a state [n_bytes] that another engine saved, and takes over the block:
 * then *state is NULL. It is OK without an entry, too, if all tokens are cached already. NO_SPACE:
 * cache_bytes has no room for it; NO_MEMORY. */
weir_status weir__cache_put(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                            void **state, size_t n_bytes, weir_error *error);

/* The entry in a sequence; NULL = none. */
weir__prefix_end *weir__cache_entry_of(const weir__cache *cache, int32_t seq);

/* Moves the entry of a sequence to another, empty one. False: not possible, nothing has changed. */
bool weir__cache_move(weir__cache *cache, int32_t from, int32_t to);

/* Exchanges the entry of a sequence with the n tokens of another one, which has no entry, by way of host
 * memory: afterwards the entry is there. False: not possible, the other sequence has not changed. An entry
 * that cannot be loaded again is dropped. */
bool weir__cache_exchange(weir__cache *cache, int32_t seq, int32_t other, int32_t n, int32_t pos);

/* Evicts the least recently used entry on the device (see keep_ms), apart from `spare` (may be NULL), to host
 * memory if there is room. Returns its sequence, which is empty then; -1 = no entry. */
int32_t weir__cache_evict(weir__cache *cache, const weir__prefix_end *spare);

/* Gives the archive's writer an entry that lacks a file: when no entry was added for a while, and at
 * intervals under load. Usually does nothing. True: there is a new file. */
bool weir__cache_archive(weir__cache *cache, int64_t now, bool idle);

/* The time of the next call if nothing else happens; WEIR__CLOCK_NEVER = not needed. */
int64_t weir__cache_archive_due(const weir__cache *cache);

/* Takes n bytes of the budget for the caller, evicting entries in host memory. False: they do not fit.
 * unclaim gives them back. */
bool weir__cache_claim(weir__cache *cache, uint64_t n);
void weir__cache_unclaim(weir__cache *cache, uint64_t n);

/* Asserts the invariants, in debug builds and tests. */
void weir__cache_check(const weir__cache *cache);

#endif
