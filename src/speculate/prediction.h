/* prediction.h: drafts from the text that the caller expects the answer to repeat. Pure.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_PREDICTION_H
#define WEIR_SPECULATE_PREDICTION_H

#include "speculate/acceptance.h"

#define WEIR__PREDICTION_LEAST  3    /* tokens that must match before an answer that left is found again */
#define WEIR__PREDICTION_SOUGHT 4096 /* places that each call compares meanwhile */

/* The prediction of one answer, which only grows. Invariant: 0 <= at <= n; length > 0 while the answer is at
 * `at`. */
typedef struct weir__prediction {
    const int32_t *tokens; /* [n], borrowed */
    int32_t n;
    int32_t at;     /* the answer's place; while it has left, where it was last */
    int32_t length; /* tokens before it that matched, at most WEIR__LOOKUP_MOST; 0 = it has left */
    int32_t sought; /* the place that was compared last since it left */
    int32_t n_read; /* tokens of the answer */
    weir__acceptance acceptance;
} weir__prediction;

/* Predicts an answer that begins as the prediction does. n = 0: there is none. */
void weir__prediction_init(weir__prediction *prediction, const int32_t *tokens, int32_t n);

/* Reads more of the answer, [n]. Once the answer has left the prediction, each call compares the next
 * WEIR__PREDICTION_SOUGHT places with its last tokens. */
void weir__prediction_read(weir__prediction *prediction, const int32_t *answer, int32_t n);

/* Drafts the next tokens, *n <= most; hope[i] is the probability that the i-th is right if those before it
 * are. False: none, and nothing was written. */
bool weir__prediction_draft(const weir__prediction *prediction, int32_t most, int32_t *draft, double *hope,
                            int32_t *n);

#endif
