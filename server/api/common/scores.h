/* scores.h: logprobs of generated tokens, until they are returned. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_SCORES_H
#define WEIR_SERVER_API_COMMON_SCORES_H

#include <weir/weir.h>

#include "base/text.h"

/* Begins as zeroes. tokens and logprobs are [n], top is [n][n_top]. */
typedef struct serve_scores {
    int32_t *tokens;
    float *logprobs;
    weir_logprob *top;
    size_t n, tokens_capacity, logprobs_capacity, top_capacity;
    size_t n_hidden; /* the last of them, whose text is not shown yet: they are not returned */
    int32_t n_top;
    size_t offset; /* code points of the text of all tokens that were returned before */
    size_t taken;  /* bytes of the first token that are part of a text before */
} serve_scores;

void serve_scores_fini(serve_scores *scores);

/* Adds a chunk's tokens, or the prompt's, with at most n_top alternatives each; nothing if the request did
 * not ask for them. False: out of memory. */
bool serve_scores_add(serve_scores *scores, const weir_chunk *chunk, int32_t n_top);

/* The value of vLLM's "prompt_logprobs". */
void serve_scores_add_prompt(const weir_chunk *prompt, const weir_model *model, weir__text *text);

/* The value of "logprobs" in chat's and in completions' form, "null" if it is empty (always: an empty list).
 * Forgets the returned tokens. */
void serve_scores_add_chat(serve_scores *scores, const weir_model *model, bool always, weir__text *text);
void serve_scores_add_completion(serve_scores *scores, const weir_model *model, weir__text *text);

/* The entries as chat's form has them, an array. Forgets the returned tokens. */
void serve_scores_add_entries(serve_scores *scores, const weir_model *model, weir__text *text);

/* Finds the tokens that make up these bytes, and forgets them and all before. Appends entries as chat's form
 * has them, with commas between them, unless text is NULL. Bytes that are not found are made up of all
 * tokens, or of none if text is NULL. */
void serve_scores_take(serve_scores *scores, const weir_model *model, const char *bytes, size_t n,
                       weir__text *text);

#endif
