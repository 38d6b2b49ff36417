/* trie.h: a vocabulary as a tree of code points: tokens that begin alike are looked at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_TRIE_H
#define WEIR_GRAMMAR_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The beginning of a code point whose last bytes are still to come: `n` of them, 0 = there is none. */
typedef struct weir__partial {
    uint32_t value; /* the bits so far, unshifted */
    int32_t n;
} weir__partial;

/* A token that ends at a node, perhaps with the beginning of a further code point. */
typedef struct weir__trie_token {
    int32_t token;
    weir__partial partial;
} weir__trie_token;

/* In preorder: the descendants of node i are i + 1 … end - 1, and its tokens ends[first … the next one's
 * first). Node 0 is the root. */
typedef struct weir__trie_node {
    uint32_t code;
    uint32_t depth;
    uint32_t end;
    uint32_t first;
} weir__trie_node;

/* Immutable. Tokens without text, or whose bytes are no code points however the text before them ends, are
 * not in it: no grammar over text allows them. */
typedef struct weir__trie {
    int32_t n_vocab;
    size_t n_nodes;         /* without the one more at the end, whose `first` is the number of ends */
    weir__trie_node *nodes; /* [n_nodes + 1] */
    weir__trie_token *ends;
    uint32_t most_depth;
    char *bytes;            /* the pieces, one after another */
    size_t *begins;         /* [n_vocab + 1], in bytes; an end token has none */
    int32_t *continuations; /* [n_continuations] tokens that go on with a code point begun before */
    size_t n_continuations;
    int32_t *eog; /* [n_eog] */
    size_t n_eog;
} weir__trie;

/* Where the tokens come from. piece: bytes of the piece, control tokens rendered, or minus the size
 * needed. */
typedef struct weir__trie_source {
    const void *model;
    int32_t n_vocab;
    int32_t (*piece)(const void *model, int32_t token, char *bytes, int32_t capacity);
    bool (*is_eog)(const void *model, int32_t token);
} weir__trie_source;

/* NULL: out of memory. */
weir__trie *weir__trie_create(const weir__trie_source *source);
void weir__trie_destroy(weir__trie *trie);

/* Bytes after *partial as code points, codes [n] at the most; how many, or -1 when they cannot be any. A NUL
 * ends the bytes. *partial is what remains. Follows llama.cpp's decoder: that checks first bytes only. */
int64_t weir__trie_decode(const char *bytes, size_t n, weir__partial *partial, uint32_t *codes);

#ifdef __cplusplus
}
#endif
#endif
