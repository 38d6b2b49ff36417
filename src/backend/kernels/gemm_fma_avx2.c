/* gemm_fma_avx2.c: BF16 and F16 weights on processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m256 vector;
#define WIDTH 8

/* Of sixteen registers twelve hold sums: of six rows of one panel. The weights of two panels take eight. */
#define GROUP            6
#define MOST_ROWS_OF_TWO 1
#define ROWS             SIX_ROWS

#include "backend/kernels/gemm_fma.h"

INLINE vector zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vector all(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vector load(const float *at)
{
    return _mm256_loadu_ps(at);
}

INLINE void store(float *at, vector x)
{
    _mm256_storeu_ps(at, x);
}

INLINE vector multiply_add(vector a, vector b, vector sum)
{
    return _mm256_fmadd_ps(a, b, sum);
}

INLINE vector to_bf16(vector x)
{
    __m256i bits = _mm256_castps_si256(x),
            odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    __m256 none = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(none));
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-65536)));
}

INLINE vector to_f16(vector x)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void read_two(const weir__panel_format format, const unsigned char *at, vector (*w)[VECTORS])
{
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        if (format == WEIR__PANEL_BF16) {
            __m256i both = _mm256_loadu_si256((const __m256i *)(at + 32 * v));
            w[0][v] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
            w[1][v] = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
        } else {
            w[0][v] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at + 16 * v)));
            w[1][v] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at + 32 + 16 * v)));
        }
    }
}

const weir__gemm weir__gemm_fma_bf16_avx2 = {"avx2", sizeof(weir__activations_float), quantize_bf16,
                                             multiply};
const weir__gemm weir__gemm_fma_f16_avx2 = {"avx2", sizeof(weir__activations_float), quantize_f16, multiply};
