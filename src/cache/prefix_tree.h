/* prefix_tree.h: a tree of token sequences that finds the longest common prefix. Pure data; the caller
 * decides what an end stands for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_PREFIX_TREE_H
#define WEIR_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts with different keys have nothing in common. adapter goes into files: it must be the same in another
 * process, so a checksum of the adapter's contents and its scale; 0 = none. */
typedef struct weir__prefix_key {
    const char *salt; /* [salt_length] */
    size_t salt_length;
    uint64_t adapter;
} weir__prefix_key;

/* What stands behind the end of a text, the best first. */
typedef enum weir__prefix_rank {
    WEIR__PREFIX_DEVICE = 0, /* a sequence of the device */
    WEIR__PREFIX_HOST = 1,   /* saved bytes */
    WEIR__PREFIX_DISK = 2,   /* a file of such */
    WEIR__PREFIX_LIVE = 3,   /* a request that is being computed */
    WEIR__PREFIX_GHOST = 4,  /* nothing any longer */
} weir__prefix_rank;
#define WEIR__PREFIX_RANKS 5
#define WEIR__PREFIX_KEPT  3 /* the ranks before LIVE: what can be fetched */

typedef struct weir__prefix_node weir__prefix_node;

/* The end of one text; embedded in what its owner keeps, which must not move while the end is in a tree. */
typedef struct weir__prefix_end {
    weir__prefix_node *node;              /* NULL = in no tree */
    struct weir__prefix_end *next, *prev; /* at the same node */
    struct weir__prefix_end *newer, *older;
    weir__prefix_rank rank;
    int32_t n_ready; /* LIVE: tokens computed so far; may be written at any time */
    uint64_t serial; /* LIVE: see weir__prefix_tree_match */
} weir__prefix_end;

/* A compressed radix tree for each key. Invariants: a node that is no root has an end, or two children or
 * more; its tokens are text->tokens[from, to), and text runs along the whole path from the root, so that
 * nodes are split and joined without copying tokens. Not for two threads at once. */
typedef struct weir__prefix_tree {
    weir__prefix_node *
        *buckets; /* [n_buckets], a power of two or 0; chains of nodes by parent and first token, or key */
    size_t n_buckets;
    size_t n_nodes; /* roots included */
    size_t n_bytes; /* of nodes, texts and keys */
    uint64_t stamp;
    weir__prefix_end *newest[WEIR__PREFIX_RANKS], *oldest[WEIR__PREFIX_RANKS];
    size_t n_ends[WEIR__PREFIX_RANKS];
} weir__prefix_tree;

void weir__prefix_tree_init(weir__prefix_tree *tree);

/* Ends that are still in it are left as they are. */
void weir__prefix_tree_fini(weir__prefix_tree *tree);

/* Adds the end of tokens [n], n >= 1, as the newest of its rank. False: out of memory, nothing has
 * changed. */
bool weir__prefix_tree_insert(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                              int32_t n, weir__prefix_end *end, weir__prefix_rank rank);

/* Allocates nothing. An end that is in no tree is left alone. */
void weir__prefix_tree_remove(weir__prefix_tree *tree, weir__prefix_end *end);

/* Gives the end another rank, and makes it the newest of that. */
void weir__prefix_tree_rerank(weir__prefix_tree *tree, weir__prefix_end *end, weir__prefix_rank rank);

/* The end's tokens, [*n]; valid until the tree changes. */
const int32_t *weir__prefix_tree_tokens(const weir__prefix_end *end, int32_t *n);

/* Valid as long as the end is in the tree. */
weir__prefix_key weir__prefix_tree_key(const weir__prefix_end *end);

/* Whether another DEVICE (with `host`: or HOST) end has all of the end's tokens. */
bool weir__prefix_tree_is_covered(const weir__prefix_end *end, bool host);

/* Of the other DEVICE and HOST ends (for a DISK end: of the DISK ends) whose tokens the end begins with, one
 * with the most tokens. NULL: none. */
weir__prefix_end *weir__prefix_tree_above(const weir__prefix_end *end);

/* How many of a DEVICE or HOST end's tokens no other one has. */
int32_t weir__prefix_tree_own(const weir__prefix_end *end);

/* How many of the end's tokens a DISK end begins with, too; with `whole`: is exactly. */
int32_t weir__prefix_tree_on_disk(const weir__prefix_end *end, bool whole);

/* Whether nothing else ends at its node or below. */
bool weir__prefix_tree_is_alone(const weir__prefix_end *end);

typedef struct weir__prefix_match {
    int32_t n_known;         /* tokens in which the text agrees with any that is known, ghosts included */
    const int32_t *other;    /* [n_other] what follows there in a known text; valid until the tree changes */
    int32_t n_other;         /* 0: nothing */
    weir__prefix_end *entry; /* DEVICE or HOST, NULL = none */
    int32_t n_entry;         /* tokens that it has in common with the text, at most `most` */
    weir__prefix_end *exact; /* the same of those whose whole text is a beginning of this one */
    int32_t n_exact;
    weir__prefix_end *live;   /* the one that has computed the most of what it has in common with the text */
    int32_t n_live;           /* that many, at most `most` */
    weir__prefix_end *leader; /* the one that will have the most; only of those whose serial is lower */
    int32_t n_leader;
} weir__prefix_match;

/* Compares tokens [n] themselves. Of what has equally many in common the best rank comes first. serial:
 * UINT64_MAX = all; self, which may be NULL, is left out. Allocates nothing; writes into the tree all the
 * same, so that two threads must not do it at once. */
void weir__prefix_tree_match(weir__prefix_tree *tree, const weir__prefix_key *key, const int32_t *tokens,
                             int32_t n, int32_t most, const weir__prefix_end *self, uint64_t serial,
                             weir__prefix_match *match);

/* How many tokens any text under the key has in common with this one. Changes nothing at all. */
int32_t weir__prefix_tree_known(const weir__prefix_tree *tree, const weir__prefix_key *key,
                                const int32_t *tokens, int32_t n);

/* NULL, or which invariant does not hold. For tests and debug builds; looks at everything. */
const char *weir__prefix_tree_check(const weir__prefix_tree *tree);

#endif
