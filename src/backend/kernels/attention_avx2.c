/* attention_avx2.c: attention on processors with AVX2, FMA and F16C (x86-64-v3). Sums run as in
 * attention_avx512.c, sixteen lanes in two vectors, so that the results are the same to the bit.
 * SPDX-License-Identifier: Apache-2.0 */
#define CELLS 8
#include "backend/kernels/attention_rows.h"
#include "backend/kernels/attention_visible.h"

/* Eight sums of eight numbers each: lane i is the sum of a[i]'s lanes, added in pairs. */
INLINE __m256 sum_lanes(const __m256 *a)
{
    __m256 two[4], four[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        two[i] = _mm256_add_ps(_mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                               _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_add_ps(_mm256_shuffle_ps(two[2 * i], two[2 * i + 1], 0x44),
                                _mm256_shuffle_ps(two[2 * i], two[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                         _mm256_permute2f128_ps(four[0], four[1], 0x31));
}

/* Sums of the products of a row's dimensions first, first + 16, … and the seven after each. */
INLINE __m256 score_half(const scratch *s, int r, int32_t size, int32_t first)
{
    __m256 acc[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) acc[c] = _mm256_setzero_ps();
    for (int32_t d = first; d < size; d += 16) {
        __m256 q = _mm256_load_ps(s->q + r * size + d);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) acc[c] = _mm256_fmadd_ps(q, _mm256_load_ps(s->keys[c] + d), acc[c]);
    }
    return sum_lanes(acc);
}

INLINE void score(scratch *s, int first, int end, int32_t size, int at)
{
    for (int r = first; r < end; r++)
        _mm256_store_ps(s->scores[r] + at,
                        _mm256_add_ps(score_half(s, r, size, 0), score_half(s, r, size, 8)));
}

const weir__attention weir__attention_avx2 = {"avx2", sizeof(scratch), visible, attend, add_piece, finish};
