/* lookup.h: drafts from a text itself: the tokens that followed the last time that it ended as it ends now,
 * or those of a text that the caller predicts. Pure.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_LOOKUP_H
#define WEIR_SPECULATE_LOOKUP_H

#include <stddef.h>

#include "speculate/acceptance.h"

#define WEIR__LOOKUP_LEAST 2  /* tokens that must match: a single one is right too seldom to pay for a row */
#define WEIR__LOOKUP_MOST  32 /* more count as this many */

/* The pairs of one text, which only grows. A pair is two neighbouring tokens; its position is the second
 * one's. Invariants: chains descend; `from` is below n, and the `length` tokens before it are the last
 * ones. */
typedef struct weir__lookup {
    int32_t *head;   /* [n_heads], a power of two: position + 1 of the newest pair with this hash, 0 = none */
    int32_t *before; /* [capacity]: the same of the one before the pair here */
    size_t n_heads, capacity;
    int32_t n;      /* tokens seen */
    int32_t from;   /* where the text is expected to go on as it did; -1 = nowhere */
    int32_t length; /* how many tokens before it match, at most WEIR__LOOKUP_MOST */
    weir__acceptance acceptance;
} weir__lookup;

/* The class, for the acceptance rate, of a token behind a match of this many tokens. */
int weir__lookup_class(int32_t length);

void weir__lookup_init(weir__lookup *lookup);
void weir__lookup_fini(weir__lookup *lookup);

/* Another text begins. */
void weir__lookup_reset(weir__lookup *lookup);

/* Reads the text, [n], on from where it was read last. Tokens after the first call's are guessed before they
 * are read, and how often that was right is noted: so it is known without any row being computed for it.
 * False: out of memory; the next call goes on. */
bool weir__lookup_read(weir__lookup *lookup, const int32_t *tokens, int32_t n);

/* Drafts the next tokens, at most `most`; hope[i] is the probability that the i-th is right if those before
 * it are. Returns their number. */
int32_t weir__lookup_draft(const weir__lookup *lookup, const int32_t *tokens, int32_t most, int32_t *draft,
                           double *hope);

/* ---- Predictions: the text that the caller expects the answer to repeat ---- */

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
