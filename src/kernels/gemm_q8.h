/* gemm_q8.h: activations rounded to eight bits, at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A level includes this and defines the functions that are declared first. */
#ifndef WEIR_KERNELS_GEMM_Q8_H
#define WEIR_KERNELS_GEMM_Q8_H

#include "kernels/gemm.h"

#include <string.h>

#include "kernels/inline.h"

/* Sixteen activations. */
#ifdef __ARM_NEON
#include <arm_neon.h>
typedef int8x16_t sixteen_bytes;
#else
#include <immintrin.h>
typedef __m128i sixteen_bytes;
#endif

/* The largest absolute value of a unit, and whether one of it is no number. */
INLINE float largest(const float *x);
INLINE bool has_nan(const float *x);

/* Half a unit, times inverse, rounded to even; no_least() of it. */
INLINE sixteen_bytes to_bytes(const float *x, float inverse);

/* Replaces -128, which has no opposite, by -127. It stands for infinite numbers and NaNs. */
#ifdef __ARM_NEON

INLINE sixteen_bytes no_least(sixteen_bytes q)
{
    return vmaxq_s8(q, vdupq_n_s8(-127));
}

INLINE int32_t sum_bytes(sixteen_bytes q)
{
    return vaddlvq_s8(q);
}

#else

INLINE sixteen_bytes no_least(sixteen_bytes q)
{
    return _mm_max_epi8(q, _mm_set1_epi8(-127));
}

INLINE int32_t sum_bytes(sixteen_bytes q)
{
    __m128i pair = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair))) - 128 * 16;
}

#endif

/* Units of a row that are rounded together: steps that are due once for each unit are taken for all at
 * once. */
#define BATCH 32

/* The values of each of them. */
typedef struct batch {
    _Alignas(64) float max[BATCH], inverse[BATCH], scale[BATCH], sum[BATCH];
    _Alignas(64) int32_t minus[BATCH], minus_half[BATCH];
} batch;

/* Divides the maximums of units [at, at + LANES). inverse: 0 where it is 0; scale: rounded to half
 * precision. */
INLINE void divide(batch *b, int at);

/* Sums the rounded activations, times scale. */
INLINE void sum_up(batch *b, int at);

/* n units of row r of a tile, n <= BATCH. */
INLINE void quantize_batch(const float *x, int n, weir__activations *to, int64_t r)
{
    batch b;
    for (int i = 0; i < n; i++) b.max[i] = largest(x + i * WEIR__UNIT);
    for (int i = n; i % LANES != 0; i++) b.max[i] = 0.0f, b.minus[i] = 0;
    for (int i = 0; i < n; i += LANES) divide(&b, i);
    for (int i = 0; i < n; i++) {
        const float *from = x + i * WEIR__UNIT;
        sixteen_bytes first_half = to_bytes(from, b.inverse[i]);
        sixteen_bytes second_half = to_bytes(from + 16, b.inverse[i]);
        memcpy(&to[i].q[r][0], &first_half, sizeof first_half);
        memcpy(&to[i].q[r][16], &second_half, sizeof second_half);
        b.minus_half[i] = -sum_bytes(first_half);
        b.minus[i] = b.minus_half[i] - sum_bytes(second_half);
        if (has_nan(from)) b.scale[i] = __builtin_nanf("");
    }
    for (int i = 0; i < n; i += LANES) sum_up(&b, i);
    for (int i = 0; i < n; i++) {
        to[i].scale[r] = b.scale[i];
        to[i].sum[r] = b.sum[i];
        to[i].minus[r] = b.minus[i];
        to[i].minus_half[r] = b.minus_half[i];
    }
}

static void quantize(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                     int64_t first, int64_t end)
{
    int64_t rows = weir__tile_rows(m);
    for (weir__gemm_run run; first < end; first += run.n) {
        run = weir__gemm_run_at(first, end, k / WEIR__UNIT, rows);
        const float *from = x + (size_t)(run.row - x_row) * stride + run.unit * WEIR__UNIT;
        weir__activations *to = (weir__activations *)out + run.tile_unit;
        int64_t n_batches = (run.n + BATCH - 1) / BATCH, each = (run.n + n_batches - 1) / n_batches;
        for (int64_t i = 0; i < run.n; i += each)
            quantize_batch(from + i * WEIR__UNIT, (int)(run.n - i < each ? run.n - i : each), to + i,
                           run.tile_row);
    }
}

#endif
