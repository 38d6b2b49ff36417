/* hadamard_avx512.c: the transform on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/inline.h"

typedef __m512 vector;
#define WIDTH    16
#define MM(what) _mm512_##what

INLINE vector swapped(vector x, const int distance)
{
    switch (distance) {
    case 1: return _mm512_permute_ps(x, 0xb1);
    case 2: return _mm512_permute_ps(x, 0x4e);
    case 4: return _mm512_shuffle_f32x4(x, x, 0xb1);
    default: return _mm512_shuffle_f32x4(x, x, 0x4e);
    }
}

#include "kernels/hadamard_levels.h"

void weir__hadamard_avx512(const float *x, float *to, int64_t n)
{
    transform_head(x, to, n);
}
