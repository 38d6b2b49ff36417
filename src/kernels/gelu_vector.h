/* gelu_vector.h: GELU, for a level's vectors. All levels give the same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_GELU_VECTOR_H
#define WEIR_KERNELS_GELU_VECTOR_H

#include "kernels/attention_vector.h"
#include "kernels/kernels.h"

/* 2 √(2 / π) log2(e), and this times 0.044715. */
#define LINEAR 2.302208198f
#define CUBIC  0.1029432396f

INLINE vector gelu_of(vector x)
{
    const vector one = MM(set1_ps)(1.0f);
    vector slope = MM(fmadd_ps)(MM(mul_ps)(x, x), MM(set1_ps)(CUBIC), MM(set1_ps)(LINEAR));
    vector y = MM(mul_ps)(x, slope);
    vector e = power_of_two(MM(sub_ps)(MM(setzero_ps)(), size_of_each(y)));
    /* 1 / (1 + e) where y >= 0, else e / (1 + e). If a number is none, max gives the second. */
    vector above = MM(max_ps)(only_in(lanes_from(y, 0.0f), one), e);
    return MM(mul_ps)(x, MM(div_ps)(above, MM(add_ps)(one, e)));
}

static void gelu_each(const float *x, float *to, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) MM(storeu_ps)(to + i, gelu_of(MM(loadu_ps)(x + i)));
    if (i == n) return;
    float rest[WIDTH] = {0};
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *rest);
    MM(storeu_ps)(rest, gelu_of(MM(loadu_ps)(rest)));
    memcpy(to + i, rest, (size_t)(n - i) * sizeof *rest);
}

#endif
