/* cost.h: what a tick costs, learned from the ticks before. Pure: numbers in, numbers out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SCHEDULE_COST_H
#define WEIR_SCHEDULE_COST_H

#include "weir/weir.h"

/* What a tick computes. */
typedef struct weir__shape {
    int32_t n_passes;
    int32_t n_decode;
    int32_t n_prefill;
    double n_context_k; /* tokens attended to, over all rows, in 1,024s */
} weir__shape;

enum { WEIR__COST_PASS, WEIR__COST_DECODE, WEIR__COST_PREFILL, WEIR__COST_CONTEXT, WEIR__COST_TERMS };

/* A Kalman filter over the four costs. Invariants: no cost is negative or infinite, the covariance is
 * symmetric. */
typedef struct weir__cost {
    double ns[WEIR__COST_TERMS];    /* the estimate */
    double usual[WEIR__COST_TERMS]; /* the first estimate: how large a cost may be that is 0 by now */
    double covariance[WEIR__COST_TERMS][WEIR__COST_TERMS];
    double off_squared; /* how far ticks lay from what was foretold, by that: the mean of squares lately */
    int32_t n_ticks;
} weir__cost;

/* The guess for a slow machine. */
void weir__cost_init(weir__cost *cost);

/* A tick of this shape took ns. */
void weir__cost_observe(weir__cost *cost, const weir__shape *shape, int64_t ns);

weir_cost weir__cost_get(const weir__cost *cost);

/* Rows of a slot that holds n_past tokens and gets n more: what they attend to, in 1,024s. */
double weir__cost_context_k(int32_t n_past, int32_t n);

/* The passes that llama.cpp makes of a batch in lane order; rows [n_lanes] is how many tokens each lane has.
 * It is used up. */
int32_t weir__cost_passes(int32_t *rows, int32_t n_lanes, int32_t n_ubatch, weir_layout layout);

#endif
