/* cache.h: the cached prefixes: of running requests, of finished ones that are still in a sequence, and of
 * saved states in host memory and in files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_CACHE_H
#define WEIR_CACHE_CACHE_H

#include "cache/archive.h"
#include "cache/memory.h"
#include "cache/prefix_tree.h"

typedef struct weir__cache weir__cache;

typedef struct weir__cache_params {
    weir__memory *memory;
    int32_t n_sequences;    /* the most that entries take of them; 0 = none */
    uint64_t n_bytes;       /* the most of host memory for saved states; 0 = none */
    int32_t least;          /* a hit of fewer tokens is not worth its copy */
    bool exact;             /* the memory cannot be cut: a state serves at its own length only */
    weir__archive *archive; /* the cache's from create on, also when that fails; NULL = no files */
} weir__cache_params;

/* Tokens around the place where a prompt leaves what is known. */
#define WEIR__CACHE_AROUND 24

/* What a look-up found. Good until the cache changes. */
typedef struct weir__cache_hit {
    int32_t n;                /* tokens that can be had now; 0 = none */
    weir__prefix_end *entry;  /* whose they are; NULL: see live */
    weir__prefix_end *live;   /* of a running request */
    weir__prefix_end *leader; /* a request that will have n_leader > n of them, NULL = none */
    int32_t n_leader;
    weir_miss miss;
    int32_t n_matched; /* tokens that were known, ghosts included */
    int32_t n_other;
    int32_t
        other[WEIR__CACHE_AROUND]; /* [n_other] what a known text goes on with after them; DIVERGED only */
} weir__cache_hit;

typedef struct weir__cache_counts {
    uint64_t n_bytes;    /* of the budget: states, and what was claimed */
    int32_t n_device;    /* entries in sequences */
    int32_t n_host;      /* entries in host memory */
    int32_t n_disk;      /* entries in files */
    uint64_t disk_bytes; /* of all files */
    uint64_t n_restored; /* states that were read from files */
    uint64_t n_evicted;  /* entries evicted to make room */
} weir__cache_counts;

/* Who may call: `look` and `count` any thread, the rest the driver of the context. The cache's own mutex is
 * never held across a call of the backend; the archive's is taken within it. */
weir_status weir__cache_create(const weir__cache_params *params, weir__cache **out, weir_error *error);

/* Frees the entries' sequences too; before that, writes what weir__cache_archive still would. */
void weir__cache_destroy(weir__cache *cache);

/* What of the prompt [n] is there. self: the request's own end when it is known already, or NULL; leaders
 * are only looked for among those with a lower serial. Allocates nothing. */
void weir__cache_look(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      const weir__prefix_end *self, uint64_t serial, weir__cache_hit *hit);

weir__cache_counts weir__cache_count(const weir__cache *cache);

/* A request begins, has computed n_ready tokens, is gone. serial 0: it computes; else it waits for another
 * one. begin false: out of memory, nobody will find it. */
bool weir__cache_begin(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       uint64_t serial, weir__prefix_end *end);
void weir__cache_advance(weir__cache *cache, weir__prefix_end *end, int32_t n_ready, uint64_t serial);
void weir__cache_end(weir__cache *cache, weir__prefix_end *end);

/* Puts the hit's n tokens into the empty sequence `to`. from: the sequence of hit->live. After an error it
 * is empty. NO_SPACE: no cells; NOT_FOUND: the entry was in a file that is of no use, and is gone: look
 * again; others: cannot be had after all. Reads a file where the entry is in one: that may take long. */
weir_status weir__cache_fetch(weir__cache *cache, const weir__cache_hit *hit, int32_t from, int32_t to,
                              weir_error *error);

/* The sequence of an entry that is on the device, -1 for others. */
int32_t weir__cache_sequence(const weir__prefix_end *end);

/* How many tokens an entry holds. */
int32_t weir__cache_length(const weir__prefix_end *end);

/* Whether so many of the entry's tokens are other entries' too that nobody will miss it. */
bool weir__cache_is_spare(const weir__prefix_end *end);

/* Hands over the sequence of an entry on the device with the first n of its tokens. The entry is gone;
 * where that would lose tokens it goes into host memory. */
int32_t weir__cache_adopt(weir__cache *cache, weir__prefix_end *end, int32_t n);

/* Tokens [n] of a finished request that lie in `seq` become an entry. False: they do not (they are there
 * already, there is no room, no memory), and the caller has the sequence as before. */
bool weir__cache_keep(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq);

/* Saves the state of a sequence that holds tokens [n]: an entry in host memory. The sequence stays the
 * caller's. False: as above. */
bool weir__cache_save(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      int32_t seq);

/* The entry that lies in a sequence, NULL = none. */
weir__prefix_end *weir__cache_entry_of(const weir__cache *cache, int32_t seq);

/* The entry of a sequence moves to another, empty one. False: it could not, nothing has changed. */
bool weir__cache_move(weir__cache *cache, int32_t from, int32_t to);

/* Frees the sequence of the entry on the device that was used longest ago, but for `spare` (may be NULL):
 * into host memory where there is room, else it is gone. Returns the sequence, -1 = there is none. */
int32_t weir__cache_evict(weir__cache *cache, const weir__prefix_end *spare);

/* Gives the archive's writer what it does not have yet, one entry at a time: when nothing was computed for a
 * while, and now and then otherwise. Does nothing most of the time. True: there is another file. */
bool weir__cache_archive(weir__cache *cache, int64_t now, bool idle);

/* When it wants to be called again though nothing happens; WEIR__CLOCK_NEVER = not. */
int64_t weir__cache_archive_due(const weir__cache *cache);

/* Takes n bytes out of the budget for somebody else's use, evicting entries in host memory; false: it does
 * not fit. unclaim gives them back. */
bool weir__cache_claim(weir__cache *cache, uint64_t n);
void weir__cache_unclaim(weir__cache *cache, uint64_t n);

/* For debug builds and tests: stops the program where an invariant does not hold. */
void weir__cache_check(const weir__cache *cache);

#endif
