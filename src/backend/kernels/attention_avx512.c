/* attention_avx512.c: attention on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#define CELLS 16
#include "backend/kernels/attention_rows.h"
#include "backend/kernels/attention_visible.h"

/* Sixteen sums of sixteen numbers each: lane i is the sum of a[i]'s lanes, added in pairs. */
INLINE __m512 sum_lanes(const __m512 *a)
{
    __m512 two[8], four[4], eight[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        two[i] = _mm512_add_ps(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                               _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = _mm512_add_ps(_mm512_shuffle_ps(two[2 * i], two[2 * i + 1], 0x44),
                                _mm512_shuffle_ps(two[2 * i], two[2 * i + 1], 0xee));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x88),
                                 _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(eight[0], eight[1], 0x88),
                         _mm512_shuffle_f32x4(eight[0], eight[1], 0xdd));
}

/* Of n rows and 16 / n cells from c on. */
INLINE void score_some(const int n, scratch *s, int r, int32_t size, int c, int at)
{
    const int n_cells = CELLS / n;
    __m512 sums[CELLS];
#pragma GCC unroll 16
    for (int i = 0; i < CELLS; i++) sums[i] = _mm512_setzero_ps();
    for (int32_t d = 0; d < size; d += 16) {
        __m512 q[2];
#pragma GCC unroll 2
        for (int m = 0; m < n; m++) q[m] = _mm512_load_ps(s->q + (r + m) * size + d);
#pragma GCC unroll 16
        for (int i = 0; i < n_cells; i++) {
            __m512 key = _mm512_load_ps(s->keys[c + i] + d);
#pragma GCC unroll 2
            for (int m = 0; m < n; m++)
                sums[m * n_cells + i] = _mm512_fmadd_ps(q[m], key, sums[m * n_cells + i]);
        }
    }
    __m512 scores = sum_lanes(sums);
    if (n == 1) {
        _mm512_store_ps(s->scores[r] + at, scores);
    } else {
        _mm256_store_ps(s->scores[r] + at + c, _mm512_castps512_ps256(scores));
        _mm256_store_ps(s->scores[r + 1] + at + c, _mm512_extractf32x8_ps(scores, 1));
    }
}

INLINE void score(scratch *s, int first, int end, int32_t size, int at)
{
    int r = first;
    for (; r + 2 <= end; r += 2)
        for (int c = 0; c < CELLS; c += CELLS / 2) score_some(2, s, r, size, c, at);
    if (r < end) score_some(1, s, r, size, 0, at);
}

const weir__attention weir__attention_avx512 = {"avx512", sizeof(scratch), visible,
                                                attend,   add_piece,       finish};
