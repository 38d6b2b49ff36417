/* hadamard_avx2.c: the transform on processors with AVX2 and FMA.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/inline.h"

typedef __m256 vector;
#define WIDTH    8
#define MM(what) _mm256_##what

INLINE vector swapped(vector x, const int distance)
{
    switch (distance) {
    case 1: return _mm256_permute_ps(x, 0xb1);
    case 2: return _mm256_permute_ps(x, 0x4e);
    default: return _mm256_permute2f128_ps(x, x, 1);
    }
}

#include "kernels/hadamard_levels.h"

void weir__hadamard_avx2(const float *x, float *to, int64_t n)
{
    transform_head(x, to, n);
}
