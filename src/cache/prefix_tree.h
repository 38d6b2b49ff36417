/* prefix_tree.h: a tree of token sequences that finds the longest common prefix. Pure data; ends mean what
 * the caller decides.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_PREFIX_TREE_H
#define WEIR_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "cache/blocks.h"

/* Texts with different keys share nothing. adapter is stored in files and must be the same in another
 * process: a checksum of the adapters' contents and scales; 0 = none. */
typedef struct weir__prefix_key {
    const char *salt; /* [salt_length]: the caller's cache_salt */
    size_t salt_length;
    uint64_t adapter;
} weir__prefix_key;

/* The kind of an end, best first. */
typedef enum weir__prefix_rank {
    WEIR__PREFIX_DEVICE = 0,    /* in a sequence on the device */
    WEIR__PREFIX_HOST = 1,      /* in host memory */
    WEIR__PREFIX_DISK = 2,      /* in a file */
    WEIR__PREFIX_LIVE = 3,      /* of a running request */
    WEIR__PREFIX_TOMBSTONE = 4, /* evicted */
    WEIR__PREFIX_PART = 5,      /* of use beside another end with its tokens */
} weir__prefix_rank;
#define WEIR__PREFIX_RANKS 6
#define WEIR__PREFIX_KEPT  3 /* the ranks before LIVE: available tokens */

typedef struct weir__prefix_node weir__prefix_node;

/* The end of one text, embedded in the owner's struct, which must not move while the end is in a tree. */
typedef struct weir__prefix_end {
    weir__prefix_node *node;              /* NULL = in no tree */
    struct weir__prefix_end *next, *prev; /* at the same node */
    struct weir__prefix_end *newer, *older;
    weir__prefix_rank rank;
    int32_t n_ready;      /* LIVE: tokens computed so far */
    uint64_t serial;      /* LIVE: see weir__prefix_tree_match */
    weir__block *deepest; /* the last of its blocks that is counted; NULL: none */
} weir__prefix_end;

/* A compressed radix tree for each key. Invariants: a node that is not a root has an end or at least two
 * children; its tokens are text->tokens[from, to), and `text` follows the whole path from the root, so that
 * nodes are split and joined without copying tokens. Not thread-safe. */
typedef struct weir__prefix_tree {
    weir__hash_table table; /* all nodes */
    size_t n_bytes;         /* of nodes, texts, keys and table */
    uint64_t stamp;
    weir__prefix_end *newest[WEIR__PREFIX_RANKS], *oldest[WEIR__PREFIX_RANKS];
    size_t n_ends[WEIR__PREFIX_RANKS];
    weir__blocks *blocks; /* counts the blocks of texts without salt and adapter; NULL: not wanted */
} weir__prefix_tree;

void weir__prefix_tree_init(weir__prefix_tree *tree);

/* Leaves the ends in it as they are. */
void weir__prefix_tree_fini(weir__prefix_tree *tree);

/* Adds the end of tokens [n], n >= 1, as the newest of its rank. False: out of memory, nothing has
 * changed. */
bool weir__prefix_tree_insert(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                              int32_t n, weir__prefix_end *end, weir__prefix_rank rank);

/* Ignores an end that is in no tree. Cannot fail. A text that was kept for the end is shortened if that
 * saves more than half of it; without memory for that it stays. */
void weir__prefix_tree_remove(weir__prefix_tree *tree, weir__prefix_end *end);

/* Gives the end a rank and makes it the newest of that rank. */
void weir__prefix_tree_rerank(weir__prefix_tree *tree, weir__prefix_end *end, weir__prefix_rank rank);

/* Sets n_ready of a LIVE end. counted: these tokens are of use to others, so their blocks count. */
void weir__prefix_tree_ready(weir__prefix_tree *tree, weir__prefix_end *end, int32_t n_ready, bool counted);

/* The end's tokens, [*n]; valid until the tree changes. */
const int32_t *weir__prefix_tree_tokens(const weir__prefix_end *end, int32_t *n);

/* Valid as long as the end is in the tree. */
weir__prefix_key weir__prefix_tree_key(const weir__prefix_end *end);

/* True if another DEVICE (with `host`: or HOST) end has all of the end's tokens. */
bool weir__prefix_tree_is_covered(const weir__prefix_end *end, bool host);

/* The end with the most tokens of those that this end begins with, among the other DEVICE and HOST ends; for
 * a DISK end, among the other DISK ends. NULL: none. */
weir__prefix_end *weir__prefix_tree_above(const weir__prefix_end *end);

/* The number of a DEVICE or HOST end's tokens that no other such end has. */
int32_t weir__prefix_tree_own(const weir__prefix_end *end);

/* The best DEVICE, HOST, DISK or PART end of exactly these tokens, apart from `self`; NULL: there is none. */
weir__prefix_end *weir__prefix_tree_find(const weir__prefix_tree *tree, const weir__prefix_key *key,
                                         const int32_t *tokens, int32_t n, const weir__prefix_end *self);

/* The number of the end's tokens behind the last other DEVICE, HOST or PART end that it begins with. */
int32_t weir__prefix_tree_gap(const weir__prefix_end *end);

/* The number of the end's first tokens that a DISK end also has; `whole`: all if a DISK end has exactly
 * these, otherwise 0. */
int32_t weir__prefix_tree_on_disk(const weir__prefix_end *end, bool whole);

/* True if there is no other end at its node or below. */
bool weir__prefix_tree_is_alone(const weir__prefix_end *end);

typedef struct weir__prefix_match {
    int32_t n_known;         /* tokens that any known text shares, including tombstones */
    const int32_t *other;    /* [n_other] how a known text continues there; valid until the tree changes */
    int32_t n_other;         /* 0: nothing */
    weir__prefix_end *entry; /* the best DEVICE, HOST or DISK end; NULL = none */
    int32_t n_entry;         /* tokens that it shares with the text, at most `most` */
    weir__prefix_end *exact; /* the same for ends whose whole text is a prefix of this one */
    int32_t n_exact;
    weir__prefix_end *part; /* the deepest PART end at or before max(n_entry, n_live) */
    int32_t n_part;
    weir__prefix_end *live;   /* the LIVE end that has computed the most shared tokens */
    int32_t n_live;           /* how many, at most `most` */
    weir__prefix_end *leader; /* the LIVE end of a lower serial that will have the most */
    int32_t n_leader;
} weir__prefix_match;

/* Compares the tokens themselves. Of ends that share equally many, the best rank wins; entries of a rank
 * worse than `worst`, HOST or DISK, are left out. serial: UINT64_MAX = any; self, which may be NULL, is left
 * out. Allocates nothing, but writes into the tree: not for two threads at once. */
void weir__prefix_tree_match(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                             int32_t n, int32_t most, weir__prefix_rank worst, const weir__prefix_end *self,
                             uint64_t serial, weir__prefix_match *match);

/* NULL, or the invariant that is broken. For tests and debug builds; checks everything. */
const char *weir__prefix_tree_check(const weir__prefix_tree *tree);

/* ---- Ids of cells ---- */

/* A text is a list of KV cells: tokens, or below zero those of an image or a sound. An id below zero has 30
 * bits of a hash and the flag `still`: the next cell has the same position as this one. With M-RoPE an image
 * has more cells than positions; the difference is the number of still cells (ADR 0074). */
#define WEIR__CELL_MOVES (1 << 30)

static inline int32_t weir__cell_id(uint32_t hash, bool still)
{
    return (int32_t)((hash & (WEIR__CELL_MOVES - 1)) | (still ? 0 : WEIR__CELL_MOVES)) + INT32_MIN;
}

static inline bool weir__cell_is_still(int32_t id)
{
    return id < INT32_MIN + WEIR__CELL_MOVES;
}

/* The position behind the first n cells of a text; they do not end within an image. */
static inline int32_t weir__cell_position(const int32_t *ids, int32_t n)
{
    int32_t pos = n;
    for (int32_t i = 0; i < n; i++) pos -= weir__cell_is_still(ids[i]);
    return pos;
}

#endif
