/* vocabulary.h: the vocabulary of a model file as grammars read it, for benchmarks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_VOCABULARY_H
#define BENCH_VOCABULARY_H

#include <llama.h>

#include "grammar/grammar.h"

static inline int32_t vocabulary_piece(const void *vocab, int32_t token, char *bytes, int32_t capacity)
{
    return llama_token_to_piece(vocab, token, bytes, capacity, 0, true);
}

static inline bool vocabulary_is_eog(const void *vocab, int32_t token)
{
    return llama_vocab_is_eog(vocab, token);
}

static inline void vocabulary_log(enum ggml_log_level level, const char *text, void *data)
{
    (void)level, (void)text, (void)data;
}

/* Loads a file without its weights and without a log. NULL: it cannot be read. */
static inline struct llama_model *vocabulary_load(const char *path)
{
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_log_set(vocabulary_log, NULL);
    return llama_model_load_from_file(path, params);
}

/* NULL: out of memory. */
static inline weir__trie *vocabulary_trie(const struct llama_vocab *vocab)
{
    const weir__trie_source source = {vocab, llama_vocab_n_tokens(vocab), vocabulary_piece,
                                      vocabulary_is_eog};
    return weir__trie_create(&source);
}

#endif
