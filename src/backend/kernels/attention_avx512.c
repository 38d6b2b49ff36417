/* attention_avx512.c: for processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A score is sixteen sums of every sixteenth product, which are then added in pairs; sixteen cells at a time,
 * so that their sums do not wait for each other. Keys are read once for all rows. */
#define CELLS 16
#include "backend/kernels/attention_rows.h"

/* e^x for x <= 0: 2^n times a polynomial in the rest (Cephes' coefficients), within 2 units in the last
 * place. */
INLINE __m512 exponential(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x); /* below, the result rounds to zero; NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

static int32_t visible(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain)
{
    const __m512i hidden = _mm512_set1_epi16((short)0xfc00);
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int32_t found = 0;
    *plain = true;
    for (int32_t i = 0; i < n; i += 32) {
        __mmask32 valid = n - i < 32 ? ((__mmask32)1 << (n - i)) - 1 : (__mmask32)-1;
        __m512i m = _mm512_maskz_loadu_epi16(valid, mask + i);
        __mmask32 seen = _mm512_mask_cmpneq_epi16_mask(valid, m, hidden);
        if (seen == 0) continue;
        if (_mm512_mask_test_epi16_mask(seen, m, _mm512_set1_epi16(0x7fff)) != 0) *plain = false;
        __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32(i));
        /* Compressed, then stored: Zen 5 takes three times as long to do both at once. */
        _mm512_storeu_si512(cells + found, _mm512_maskz_compress_epi32((__mmask16)seen, at));
        found += __builtin_popcount(seen & 0xffff);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
        _mm512_storeu_si512(cells + found, _mm512_maskz_compress_epi32((__mmask16)(seen >> 16), at));
        found += __builtin_popcount(seen >> 16);
    }
    return found;
}

/* Sixteen dimensions from d on. */
INLINE __m512 floats(const weir__attention_format format, const char *cell, int32_t d)
{
    if (format == WEIR__ATTENTION_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(cell + 2 * (size_t)d)));
    const char *block = cell + (size_t)(d / 32) * 34;
    __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 2 + d % 32));
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(_cvtsh_ss(scale)));
}

INLINE void read_cell(const weir__attention_format format, const char *cell, int32_t size, float *to)
{
    for (int32_t d = 0; d < size; d += 16) _mm512_store_ps(to + d, floats(format, cell, d));
}

INLINE void scale_row(float *to, const float *from, int32_t n, float factor)
{
    for (int32_t d = 0; d < n; d += 16)
        _mm512_storeu_ps(to + d, _mm512_mul_ps(_mm512_loadu_ps(from + d), _mm512_set1_ps(factor)));
}

/* ---- One block ---- */

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

INLINE void score(const weir__attention_format format, rows *s, int n_rows, int32_t size,
                  const char *const *cells, int32_t at)
{
    for (int c = 0; c < CELLS; c++) read_cell(format, cells[c], size, s->keys[c]);
    for (int r = 0; r < n_rows; r++) {
        __m512 acc[16];
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++) acc[c] = _mm512_setzero_ps();
        for (int32_t d = 0; d < size; d += 16) {
            __m512 q = _mm512_load_ps(s->q[r] + d);
#pragma GCC unroll 16
            for (int c = 0; c < 16; c++) acc[c] = _mm512_fmadd_ps(q, _mm512_load_ps(s->keys[c] + d), acc[c]);
        }
        _mm512_store_ps(s->scores[r] + at, sum_lanes(acc));
    }
}

static void cap(rows *s, int r, int32_t n, float softcap)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int32_t c = 0; c < n; c += 16) {
        __m512 score = _mm512_load_ps(s->scores[r] + c), size = _mm512_abs_ps(score);
        __m512 e = exponential(_mm512_mul_ps(size, _mm512_set1_ps(-2.0f)));
        __m512 tanh = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
        __mmask16 negative = _mm512_cmp_ps_mask(score, _mm512_setzero_ps(), _CMP_LT_OQ);
        tanh = _mm512_mask_sub_ps(tanh, negative, _mm512_setzero_ps(), tanh);
        tanh = _mm512_mask_mov_ps(tanh, _mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q), score);
        _mm512_store_ps(s->scores[r] + c, _mm512_mul_ps(tanh, _mm512_set1_ps(softcap)));
    }
}

INLINE void weigh(rows *s, int r, int32_t n, int32_t size_v)
{
    __m512 score[BLOCK / 16], max = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        int32_t left = n - 16 * i;
        __mmask16 seen = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        score[i] = _mm512_mask_load_ps(_mm512_set1_ps(-INFINITY), seen, s->scores[r] + 16 * i);
        max = _mm512_max_ps(max, score[i]);
    }
    float highest = _mm512_reduce_max_ps(max);
    if (highest > s->max[r]) {
        __m512 factor = exponential(_mm512_set1_ps(s->max[r] - highest));
        s->max[r] = highest;
        s->sum[r] *= _mm512_cvtss_f32(factor);
        for (int32_t d = 0; d < size_v; d += 16)
            _mm512_store_ps(s->out[r] + d, _mm512_mul_ps(_mm512_load_ps(s->out[r] + d), factor));
    }
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        __mmask16 seen = _mm512_cmp_ps_mask(score[i], _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
        __m512 weight =
            _mm512_maskz_mov_ps(seen, exponential(_mm512_sub_ps(score[i], _mm512_set1_ps(s->max[r]))));
        _mm512_store_ps(s->scores[r] + 16 * i, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    s->sum[r] += _mm512_reduce_add_ps(sum);
}

/* Adds the weighted values of n cells to rows [at, at + n_rows), n_rows <= SUM_ROWS: sixteen × `vectors`
 * dimensions from d on. halves: values are in half precision, else floats. */
INLINE void add_values(const bool halves, const int n_rows, const int vectors, rows *s, int at,
                       const char *const *cells, int32_t n, int32_t d)
{
    __m512 acc[SUM_ROWS][4];
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) acc[r][i] = _mm512_load_ps(s->out[at + r] + d + 16 * i);
    for (int32_t c = 0; c < n; c++) {
        __m512 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++)
            value[i] = halves ? floats(WEIR__ATTENTION_F16, cells[c], d + 16 * i)
                              : _mm512_load_ps((const float *)cells[c] + d + 16 * i);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            __m512 weight = _mm512_set1_ps(s->scores[at + r][c]);
#pragma GCC unroll 4
            for (int i = 0; i < vectors; i++) acc[r][i] = _mm512_fmadd_ps(weight, value[i], acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) _mm512_store_ps(s->out[at + r] + d + 16 * i, acc[r][i]);
}

INLINE void add_some_values(const bool halves, const int n_rows, rows *s, int at, const char *const *cells,
                            int32_t n, int32_t size)
{
    int32_t d = 0;
    for (; d + 64 <= size; d += 64) add_values(halves, n_rows, 4, s, at, cells, n, d);
    for (; d < size; d += 16) add_values(halves, n_rows, 1, s, at, cells, n, d);
}

const weir__attention weir__attention_avx512 = {"avx512", visible, attend};
