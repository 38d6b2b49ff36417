/* largest.h: the smaller and the larger of two numbers; the largest of many, in as many lanes as compilers
 * make vectors of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_LARGEST_H
#define WEIR_BASE_LARGEST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__LARGEST_LANES 16 /* compared side by side: one register of AVX-512, four of the smallest */

/* Neighbours whose largest number stands for them all. */
#define WEIR__LARGEST_BLOCK 64

/* The most that weir__largest_bound counts. */
#define WEIR__LARGEST_MOST 256

/* The largest of n numbers, n a multiple of WEIR__LARGEST_LANES; -INFINITY when all are NaN. */
static inline float weir__largest(const float *x, size_t n)
{
    float lane[WEIR__LARGEST_LANES];
    for (size_t j = 0; j < WEIR__LARGEST_LANES; j++) lane[j] = -INFINITY;
    for (size_t i = 0; i < n; i += WEIR__LARGEST_LANES)
        for (size_t j = 0; j < WEIR__LARGEST_LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    float max = -INFINITY;
    for (size_t j = 0; j < WEIR__LARGEST_LANES; j++) max = lane[j] > max ? lane[j] : max;
    return max;
}

/* The k-th largest of the blocks' largest numbers, -INFINITY when there are fewer: at least k numbers are as
 * large. k <= WEIR__LARGEST_MOST; 0: INFINITY. */
float weir__largest_bound(const float *x, size_t n_blocks, size_t k);

static inline int64_t weir__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t weir__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
