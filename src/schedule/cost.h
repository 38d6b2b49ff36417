/* cost.h: the cost of a tick, learned from earlier ticks. Pure functions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SCHEDULE_COST_H
#define WEIR_SCHEDULE_COST_H

#include "weir/more.h"

/* The work of a tick. */
typedef struct weir__shape {
    int32_t n_passes;
    int32_t n_decode;
    int32_t n_prefill;
    double n_context_k; /* tokens attended to by all rows, in units of 1,024 */
} weir__shape;

enum { WEIR__COST_PASS, WEIR__COST_DECODE, WEIR__COST_PREFILL, WEIR__COST_CONTEXT, WEIR__COST_TERMS };

/* A Kalman filter over the four costs. Invariants: no cost is negative or infinite, the covariance is
 * symmetric. */
typedef struct weir__cost {
    double ns[WEIR__COST_TERMS];    /* the estimate */
    double usual[WEIR__COST_TERMS]; /* the first estimate: the scale of a cost that is 0 by now */
    double covariance[WEIR__COST_TERMS][WEIR__COST_TERMS];
    double off_squared; /* recent mean of the squared relative errors */
    int32_t n_ticks;
} weir__cost;

/* Starts with a guess for a slow machine. */
void weir__cost_init(weir__cost *cost);

/* Learns from a tick of this shape that took ns. */
void weir__cost_observe(weir__cost *cost, const weir__shape *shape, int64_t ns);

weir_cost weir__cost_get(const weir__cost *cost);

/* The tokens attended to by n rows of a slot with n_past tokens, in units of 1,024. */
double weir__cost_context_k(int32_t n_past, int32_t n);

/* The number of passes in which llama.cpp computes a batch in lane order. rows [n_lanes]: the tokens of each
 * lane; overwritten. */
int32_t weir__cost_passes(int32_t *rows, int32_t n_lanes, int32_t n_ubatch, weir_layout layout);

/* before[lane]: how many of the lane's rows are computed before the last pass that uses its cells; in a
 * pool all passes do. left: scratch, [n_lanes] like the others. */
void weir__cost_before(const int32_t *rows, int32_t n_lanes, int32_t n_ubatch, weir_layout layout,
                       int32_t *left, int32_t *before);

#endif
