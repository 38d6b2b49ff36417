/* logprob.c: log-probabilities from logits: the logarithm of the sum of exponentials, and the likeliest
 * tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/logprob.h"

#include <float.h>
#include <math.h>

#include "base/cpu.h"
#include "base/largest.h"

#define WEIR__WIDTH 4 /* every processor has these */
#include "model/log_sum.h"

#define LANES WEIR__LARGEST_LANES
#define BLOCK WEIR__LARGEST_BLOCK

static float number_or_least(float x)
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
            float value = number_or_least(x[i]);
            if (value < bound || (found == n_top && !(value > top[n_top - 1].logprob))) continue;
            size_t at = found < n_top ? found++ : n_top - 1;
            for (; at > 0 && top[at - 1].logprob < value; at--) top[at] = top[at - 1];
            top[at] = (weir_logprob){(int32_t)i, value};
        }
    }
}

static double sum_exponents(const float *x, size_t n, float max)
{
#if defined(__x86_64__)
    const uint32_t needed = WEIR__CPU_AVX2 | WEIR__CPU_FMA;
    if ((weir__cpu_features() & needed) == needed) return weir__log_sum_avx2(x, n, max);
#endif
    return log_sum(x, n, max);
}

float weir__logprob(const float *logits, int32_t n_vocab, int32_t token, weir_logprob *top, int32_t n_top)
{
    size_t n = (size_t)n_vocab, whole = n / LANES * LANES;
    if (n_top > 0) find_top(logits, n, top, (size_t)n_top);
    float max = n_top > 0 ? top[0].logprob : weir__largest(logits, whole);
    for (size_t i = whole; i < n && n_top == 0; i++) max = logits[i] > max ? logits[i] : max;
    if (!(max < FLT_MAX)) max = FLT_MAX; /* infinite logits count as certain */
    double below = (double)max + sum_exponents(logits, n, max);
    for (int32_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)fminf(top[i].logprob, FLT_MAX) - below);
    return (float)((double)fminf(number_or_least(logits[token]), FLT_MAX) - below);
}
