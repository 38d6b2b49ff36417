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

INLINE void score(scratch *s, int first, int end, int32_t size, int at)
{
    for (int r = first; r < end; r++) {
        __m512 sums[CELLS];
#pragma GCC unroll 16
        for (int c = 0; c < CELLS; c++) sums[c] = _mm512_setzero_ps();
        for (int32_t d = 0; d < size; d += 16) {
            __m512 q = _mm512_load_ps(s->q + r * size + d);
#pragma GCC unroll 16
            for (int c = 0; c < CELLS; c++)
                sums[c] = _mm512_fmadd_ps(q, _mm512_load_ps(s->keys[c] + d), sums[c]);
        }
        _mm512_store_ps(s->scores[r] + at, sum_lanes(sums));
    }
}

const weir__attention weir__attention_avx512 = {"avx512", sizeof(scratch), visible,
                                                attend,   add_piece,       finish};
