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

/* What every processor has registers for: of wider ones compilers make many small pieces where it has
 * none. */
#define WIDTH 4
typedef float floats __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(WIDTH * sizeof(int32_t))));

/* Adds e to the power x[j] - max to each of *sum; max is the largest of the row. The error of a term is some
 * 1e-7 of it. */
static inline void add_exp(const float *x, float max, floats *sum)
{
    floats d, least = (floats){0} + LEAST;
    memcpy(&d, x, sizeof d);
    d -= max;
    ints more = d > least; /* not of NaN */
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

/* The logarithm of the sum of e to the powers x[i] - max. */
static double log_sum(const float *x, size_t n, float max)
{
    double all[WIDTH] = {0}; /* apart, so that no addition waits for the one before */
    float rest[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        floats sum[BLOCK / LANES] = {{0}}; /* of few terms: float is enough */
        const float *from = x + i;
        if (i + BLOCK > n) {
            for (size_t j = 0; j < BLOCK; j++) rest[j] = i + j < n ? x[i + j] : -INFINITY;
            from = rest;
        }
        for (size_t j = 0; j < BLOCK; j += WIDTH) add_exp(from + j, max, &sum[j / LANES]);
        for (size_t j = 0; j < BLOCK / LANES; j++)
            for (size_t k = 0; k < WIDTH; k++) all[k] += (double)sum[j][k];
    }
    return log(all[0] + all[1] + all[2] + all[3]);
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
    if (n_top > 0) find_top(logits, n, top, (size_t)n_top);
    float max = n_top > 0 ? top[0].logprob : weir__largest(logits, whole);
    for (size_t i = whole; i < n && n_top == 0; i++) max = logits[i] > max ? logits[i] : max;
    if (!(max < FLT_MAX)) max = FLT_MAX; /* infinite ones are certain */
    double below = (double)max + log_sum(logits, n, max);
    for (int32_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)fminf(top[i].logprob, FLT_MAX) - below);
    return (float)((double)fminf(number(logits[token]), FLT_MAX) - below);
}
