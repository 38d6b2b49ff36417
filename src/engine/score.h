/* score.h: logprobs of the prompt's tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SCORE_H
#define WEIR_ENGINE_SCORE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "weir/weir.h"

typedef struct weir__bcontext weir__bcontext;

/* Reference-counted by the request and its stream. Invariant: tokens before n_scored have their logprob,
 * apart from the first token and the cells of media, which never have one; token n_scored, if there is one,
 * is not a cell of a medium. Until `done`, the driver owns all but refs and done. */
typedef struct weir__score {
    atomic_int refs;
    atomic_bool done; /* all logprobs are there; release, for the readers' acquire */
    int32_t n, n_scored;
    int32_t n_top;
    int32_t *tokens;   /* [n]; -1 = a cell of an image or a sound */
    float *logprobs;   /* [n] */
    weir_logprob *top; /* [n][n_top] */
} weir__score;

/* For the prompt [n], n >= 1; ids below zero are cells of media. NULL: out of memory. */
weir__score *weir__score_create(const int32_t *prompt, int32_t n, int32_t n_top);
weir__score *weir__score_hold(weir__score *score);
void weir__score_release(weir__score *score);

/* The scored tokens as a chunk without text. */
weir_chunk weir__score_chunk(const weir__score *score);

/* Scores the next n tokens, from n rows of the pass. n == 0: does nothing, and score may be NULL. */
weir_status weir__score_rows(weir__score *score, const weir_model *model, weir__bcontext *context,
                             int32_t row, int32_t n);

#endif
