/* trie_nodes.h: the nodes of a vocabulary's tree: see trie.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_TRIE_NODES_H
#define WEIR_GRAMMAR_TRIE_NODES_H

#include <stddef.h>
#include <stdint.h>

/* A code point of which `n` bytes are missing; 0 = none. */
typedef struct weir__partial {
    uint32_t value; /* the bits so far, unshifted */
    int32_t n;
} weir__partial;

/* A token that ends at a node, perhaps with an incomplete code point. */
typedef struct weir__trie_token {
    int32_t token;
    weir__partial partial;
} weir__trie_token;

/* A node of the tree, which lies in preorder: the descendants of node i are i + 1 … end - 1, and its tokens
 * ends[first … the next one's first). Node 0 is the root. */
typedef struct weir__trie_node {
    uint32_t code;
    uint32_t depth;
    uint32_t end;
    uint32_t first;
} weir__trie_node;

/* See slice.h. */
struct weir__slices;

/* Immutable, but for what slices remember. It lacks tokens that no grammar over text allows: those without
 * text, and those whose bytes are not part of UTF-8 after any text. */
typedef struct weir__trie {
    int32_t n_vocab;
    size_t n_nodes;         /* the node after the last has the number of ends as `first` */
    weir__trie_node *nodes; /* [n_nodes + 1] */
    weir__trie_token *ends;
    uint32_t *tops; /* [n_tops] the nodes below the root */
    size_t n_tops;
    uint32_t most_depth;
    char *bytes;            /* the pieces, one after another */
    size_t *begins;         /* [n_vocab + 1] offsets in bytes; end-of-generation tokens have no bytes */
    int32_t *continuations; /* [n_continuations] tokens that start within a code point */
    size_t n_continuations;
    int32_t *eog; /* [n_eog] */
    size_t n_eog;
    struct weir__slices *slices;
} weir__trie;

#endif
