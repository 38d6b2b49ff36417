/* SPDX-License-Identifier: Apache-2.0 */
#include "model/logprob.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/largest.h"

#define LANES WEIR__LARGEST_LANES
#define BLOCK WEIR__LARGEST_BLOCK

/* What is less likely than the likeliest by e to this power counts as that: e to it is a normal float, and a
 * whole vocabulary of such tokens changes no sum. */
#define LEAST (-87.0f)

static const float log2_e = 1.44269504f;
/* ln 2 in two parts: the first has so few bits that its products with exponents are exact. */
static const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
/* Adding it and taking it away rounds to an integer. */
static const float rounder = 12582912.0f;

/* Adds e to the power x[j] - max to each sum; max is the largest of the row. The error of a term is some 1e-7
 * of it. Loops apart, since compilers make vector instructions of each line then. */
static inline void add_exp(const float *x, float max, float sum[LANES])
{
    float d[LANES], r[LANES], n[LANES], power[LANES];
    int32_t bits[LANES];
    for (size_t j = 0; j < LANES; j++) d[j] = x[j] - max;
    for (size_t j = 0; j < LANES; j++) d[j] = d[j] > LEAST ? d[j] : LEAST; /* NaN, too */
    for (size_t j = 0; j < LANES; j++) d[j] = d[j] < 0.0f ? d[j] : 0.0f;
    for (size_t j = 0; j < LANES; j++) n[j] = (d[j] * log2_e + rounder) - rounder;
    for (size_t j = 0; j < LANES; j++) /* |r| <= ln(2) / 2: the series is short */
        r[j] = (d[j] - n[j] * ln2_high) - n[j] * ln2_low;
    for (size_t j = 0; j < LANES; j++) bits[j] = ((int32_t)n[j] + 127) * (1 << 23);
    memcpy(power, bits, sizeof power); /* 2 to the n */
    for (size_t j = 0; j < LANES; j++) {
        float y = 1.0f / 720;
        y = y * r[j] + 1.0f / 120;
        y = y * r[j] + 1.0f / 24;
        y = y * r[j] + 1.0f / 6;
        y = y * r[j] + 0.5f;
        y = y * r[j] + 1.0f;
        y = y * r[j] + 1.0f;
        sum[j] += y * power[j];
    }
}

/* The logarithm of the sum of e to the powers x[i] - max. */
static double log_sum(const float *x, size_t n, float max)
{
    double all = 0;
    float rest[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        float sum[LANES] = {0}; /* of few terms: float is enough */
        const float *from = x + i;
        if (i + BLOCK > n) {
            for (size_t j = 0; j < BLOCK; j++) rest[j] = i + j < n ? x[i + j] : -INFINITY;
            from = rest;
        }
        for (size_t j = 0; j < BLOCK; j += LANES) add_exp(from + j, max, sum);
        for (size_t j = 0; j < LANES; j++) all += (double)sum[j];
    }
    return log(all);
}

static float number(float x)
{
    return x > -INFINITY ? x : -INFINITY;
}

static void find_top(const float *x, size_t n, weir_logprob *top, size_t n_top)
{
    size_t found = 0, n_blocks = n / BLOCK;
    float bound = n_top <= n_blocks ? weir__largest_bound(x, n_blocks, n_top) : -INFINITY;
    for (size_t b = 0; b * BLOCK < n; b++) {
        size_t end = b < n_blocks ? (b + 1) * BLOCK : n;
        if (b < n_blocks && weir__largest(x + b * BLOCK, BLOCK) < bound) continue;
        for (size_t i = b * BLOCK; i < end; i++) {
            float value = number(x[i]);
            if (value < bound || (found == n_top && !(value > top[n_top - 1].logprob))) continue;
            size_t at = found < n_top ? found++ : n_top - 1;
            for (; at > 0 && top[at - 1].logprob < value; at--) top[at] = top[at - 1];
            top[at] = (weir_logprob){(int32_t)i, value};
        }
    }
}

float weir__logprob(const float *logits, int32_t n_vocab, int32_t token, weir_logprob *top, int32_t n_top)
{
    size_t n = (size_t)n_vocab, whole = n / LANES * LANES;
    float max = weir__largest(logits, whole);
    for (size_t i = whole; i < n; i++) max = logits[i] > max ? logits[i] : max;
    if (!(max < FLT_MAX)) max = FLT_MAX; /* infinite ones are certain */
    if (n_top > 0) find_top(logits, n, top, (size_t)n_top);
    double below = (double)max + log_sum(logits, n, max);
    for (int32_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)fminf(top[i].logprob, FLT_MAX) - below);
    return (float)((double)fminf(number(logits[token]), FLT_MAX) - below);
}
