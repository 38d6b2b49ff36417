/* log_sum.h: the logarithm of a sum of exponentials, for vectors of WEIR__WIDTH floats.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_LOG_SUM_H
#define WEIR_MODEL_LOG_SUM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/largest.h"

/* The least exponent; smaller ones count as this one: its exponential is a normal float, and a whole
 * vocabulary of such tokens does not change the sum. */
#define LEAST (-87.0f)

static const float log2_e = 1.44269504f;
/* ln 2 in two parts: the first has so few bits that its products with exponents are exact. */
static const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
/* Adding and subtracting it rounds to an integer. */
static const float rounder = 12582912.0f;

/* One register of floats: compilers split wider vectors into many small pieces. */
typedef float floats __attribute__((vector_size(WEIR__WIDTH * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(WEIR__WIDTH * sizeof(int32_t))));

/* Adds exp(x[j] - max) to each element of *sum; max is the row's maximum. A term's relative error is about
 * 1e-7. */
static inline void add_exp(const float *x, float max, floats *sum)
{
    floats d, least = (floats){0} + LEAST;
    memcpy(&d, x, sizeof d);
    d -= max;
    ints more = d > least; /* false for NaN */
    d = (floats)(((ints)d & more) | ((ints)least & ~more));
    d = (floats)((ints)d & (d < 0.0f));
    floats n = (d * log2_e + rounder) - rounder;
    floats r = (d - n * ln2_high) - n * ln2_low; /* |r| <= ln(2) / 2: the series is short */
    floats power = (floats)((__builtin_convertvector(n, ints) + 127) << 23); /* 2 to the n */
    floats y = r * (1.0f / 720) + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    *sum += y * power;
}

/* log(sum of exp(x[i] - max)). */
static inline double log_sum(const float *x, size_t n, float max)
{
    double all[WEIR__WIDTH] = {0}; /* separate sums, so that no addition waits for the previous one */
    float rest[WEIR__LARGEST_BLOCK];
    for (size_t i = 0; i < n; i += WEIR__LARGEST_BLOCK) {
        floats sum[WEIR__LARGEST_BLOCK / WEIR__LARGEST_LANES] = {{0}}; /* few terms: float is precise
                                                                        * enough */
        const float *from = x + i;
        if (i + WEIR__LARGEST_BLOCK > n) {
            for (size_t j = 0; j < WEIR__LARGEST_BLOCK; j++) rest[j] = i + j < n ? x[i + j] : -INFINITY;
            from = rest;
        }
        for (size_t j = 0; j < WEIR__LARGEST_BLOCK; j += WEIR__WIDTH)
            add_exp(from + j, max, &sum[j / WEIR__LARGEST_LANES]);
        for (size_t j = 0; j < WEIR__LARGEST_BLOCK / WEIR__LARGEST_LANES; j++)
            for (size_t k = 0; k < WEIR__WIDTH; k++) all[k] += (double)sum[j][k];
    }
    for (size_t k = 1; k < WEIR__WIDTH; k++) all[0] += all[k];
    return log(all[0]);
}

double weir__log_sum_avx2(const float *x, size_t n, float max);

#endif
