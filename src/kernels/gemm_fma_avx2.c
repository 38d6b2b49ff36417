/* gemm_fma_avx2.c: BF16 and F16 weights on processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m256 vector;
#define WIDTH      8
#define TO_NEAREST _MM_FROUND_TO_NEAREST_INT
#define MM(what)   _mm256_##what

/* Twelve of sixteen registers hold sums: of six rows of one panel. The weights of two panels take eight. */
#define GROUP            6
#define MOST_ROWS_OF_TWO 1
#define ROWS             SIX_ROWS

#include "kernels/gemm_fma.h"

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
