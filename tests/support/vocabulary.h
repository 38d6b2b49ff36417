/* vocabulary.h: a vocabulary of texts that a test of grammars makes up; token 0 ends an answer. Define before
 * it N_TOKENS, and N_BYTES, the bytes of the longest text with its NUL.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_VOCABULARY_H
#define WEIR_TESTS_VOCABULARY_H

#include "grammar/trie.h"
#include "support/model.h"

#define EOG 0

typedef struct vocabulary {
    char text[N_TOKENS][N_BYTES];
    weir__trie *trie;
} vocabulary;

static inline int32_t piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    const vocabulary *v = model;
    int32_t n = (int32_t)strlen(v->text[token]);
    if (n > capacity) return -n;
    memcpy(bytes, v->text[token], (size_t)n);
    return n;
}

static inline bool is_eog(const void *model, int32_t token)
{
    (void)model;
    return token == EOG;
}

static inline weir__trie_source source_of(const vocabulary *v)
{
    return (weir__trie_source){v, N_TOKENS, piece_of, is_eog};
}

/* Makes the trie of the texts; destroy it with weir__trie_destroy. */
static inline void vocabulary_make_trie(vocabulary *v)
{
    const weir__trie_source source = source_of(v);
    v->trie = weir__trie_create(&source);
    assert_non_null(v->trie);
}

#endif
