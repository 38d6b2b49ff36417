/* gemm_fma_avx512.c: BF16 and F16 weights on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m512 vector;
#define WIDTH      16
#define TO_NEAREST _MM_FROUND_TO_NEAREST_INT
#define MM(what)   _mm512_##what

/* Sixteen sums that do not wait for each other. */
#define GROUP            8
#define MOST_ROWS_OF_TWO 8
#define ROWS             EIGHT_ROWS

#include "kernels/gemm_fma.h"

INLINE void read_two(const weir__panel_format format, const unsigned char *at, vector (*w)[VECTORS])
{
    __m512i both = _mm512_loadu_si512(at);
    if (format == WEIR__PANEL_BF16) {
        w[0][0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
        w[1][0] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
    } else {
        w[0][0] = _mm512_cvtph_ps(_mm512_castsi512_si256(both));
        w[1][0] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
    }
}

const weir__gemm weir__gemm_fma_bf16_avx512 = {"avx512", sizeof(weir__activations_float), quantize_bf16,
                                               multiply};
const weir__gemm weir__gemm_fma_f16_avx512 = {"avx512", sizeof(weir__activations_float), quantize_f16,
                                              multiply};
