/* gemm_fma_avx512.c: BF16 and F16 weights on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m512 vector;
#define WIDTH 16

/* Sixteen sums that do not wait for each other. */
#define GROUP            8
#define MOST_ROWS_OF_TWO 8
#define ROWS             EIGHT_ROWS

#include "backend/kernels/gemm_fma.h"

INLINE vector zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vector all(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vector load(const float *at)
{
    return _mm512_loadu_ps(at);
}

INLINE void store(float *at, vector x)
{
    _mm512_storeu_ps(at, x);
}

INLINE vector multiply_add(vector a, vector b, vector sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}

INLINE vector to_bf16(vector x)
{
    __m512i bits = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-65536)));
}

INLINE vector to_f16(vector x)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

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
