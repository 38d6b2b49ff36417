/* gemm_q8.h: activations rounded to eight bits, at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A level includes this and defines what is declared first. */
#ifndef WEIR_BACKEND_KERNELS_GEMM_Q8_H
#define WEIR_BACKEND_KERNELS_GEMM_Q8_H

#include "backend/kernels/gemm.h"

#include <immintrin.h>

#include "backend/kernels/inline.h"

/* The largest absolute value of a unit, and whether one of it is no number. */
INLINE float largest(const float *x);
INLINE bool has_nan(const float *x);

/* Half a unit, times inverse, rounded to even. */
INLINE __m128i to_bytes(const float *x, float inverse);

INLINE int32_t sum_bytes(__m128i q)
{
    __m128i pair = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair))) - 128 * 16;
}

static void quantize(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                     int64_t first, int64_t end)
{
    int64_t n_units = k / WEIR__UNIT, rows = weir__tile_rows(m);
    for (int64_t u = first; u < end; u++) {
        int64_t row = u / n_units, unit = u % n_units, r = row % rows;
        const float *from = x + (size_t)(row - x_row) * stride + unit * WEIR__UNIT;
        weir__activations *to = (weir__activations *)out + row / rows * n_units + unit;
        float max = largest(from), inverse = max != 0.0f ? 127.0f / max : 0.0f;
        __m128i first_half = to_bytes(from, inverse), second_half = to_bytes(from + 16, inverse);
        int32_t sum = sum_bytes(first_half), rest = sum_bytes(second_half);
        float scale = _cvtsh_ss(_cvtss_sh(max / 127.0f, _MM_FROUND_TO_NEAREST_INT));
        if (has_nan(from)) scale = __builtin_nanf("");
        _mm_storeu_si128((__m128i *)&to->q[r][0], first_half);
        _mm_storeu_si128((__m128i *)&to->q[r][16], second_half);
        to->scale[r] = scale;
        to->sum[r] = scale * (float)(sum + rest);
        to->minus[r] = -(sum + rest);
        to->minus_half[r] = -sum;
    }
}

#endif
