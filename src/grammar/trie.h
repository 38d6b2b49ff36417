/* trie.h: a vocabulary as a tree of code points, in which tokens share their prefixes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_TRIE_H
#define WEIR_GRAMMAR_TRIE_H

#include <stdbool.h>

#include "grammar/trie_nodes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The words of a bit for each token. */
#define WEIR__AUTOMATON_WORDS(n_vocab) (((size_t)(n_vocab) + 63) / 64)

/* The bytes of an automaton's rules, states and masks beyond which it gets no more states: a walk of the
 * vocabulary in a grammar whose rules nest in many ways can reach a state for each of its nodes. Its arrays
 * grow by doubling, so that it may have more. */
#define WEIR__AUTOMATON_BYTES_MAX ((size_t)128 << 20)

/* The vocabulary. piece: writes a token's text, of control tokens too, and returns its length, or minus the
 * length if it does not fit. */
typedef struct weir__trie_source {
    const void *model;
    int32_t n_vocab;
    int32_t (*piece)(const void *model, int32_t token, char *bytes, int32_t capacity);
    bool (*is_eog)(const void *model, int32_t token);
} weir__trie_source;

/* NULL: out of memory. */
weir__trie *weir__trie_create(const weir__trie_source *source);
void weir__trie_destroy(weir__trie *trie);

/* The bytes of the tree, its slices, and all automata of it. Any thread; takes no lock. */
size_t weir__trie_bytes(const weir__trie *trie);

/* Decodes bytes [n] after *partial, up to a NUL. codes has room for n. Returns the number of code points, or
 * -1 if the bytes are malformed; *partial becomes the incomplete rest. As in llama.cpp, only first bytes are
 * checked. */
int64_t weir__trie_decode(const char *bytes, size_t n, weir__partial *partial, uint32_t *codes);

#ifdef __cplusplus
}
#endif
#endif
