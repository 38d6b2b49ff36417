/* attention_avx2.c: for processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sums run as in attention_avx512.c, sixteen lanes in two vectors, so that the results are the same to the
 * bit. */
#define CELLS 8
#include "backend/kernels/attention_rows.h"

/* Vectors of a row's sums of values that stay in registers. */
#define MOST_VECTORS 8

/* Two to the power of whole numbers from -126 to 127. */
INLINE __m256 power(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* e^x for x <= 0: 2^n times a polynomial in the rest (Cephes' coefficients), within 2 units in the last
 * place. */
INLINE __m256 exponential(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x); /* below, the result rounds to zero; NaN stays NaN */
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    /* In two steps, of which only the second can round. */
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(whole, half)));
}

static int32_t visible(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain)
{
    const __m256i hidden = _mm256_set1_epi16((short)0xfc00);
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int32_t found = 0, i = 0;
    *plain = true;
    for (; i + 16 <= n; i += 16) {
        __m256i m = _mm256_loadu_si256((const __m256i *)(mask + i));
        __m256i unseen = _mm256_cmpeq_epi16(m, hidden);
        uint32_t seen = ~(uint32_t)_mm256_movemask_epi8(unseen); /* two bits each */
        __m256i sizes = _mm256_andnot_si256(unseen, _mm256_and_si256(m, _mm256_set1_epi16(0x7fff)));
        if (!_mm256_testz_si256(sizes, sizes)) *plain = false;
        if (seen == UINT32_MAX) {
            __m256i at = _mm256_add_epi32(count, _mm256_set1_epi32(i));
            _mm256_storeu_si256((__m256i *)(cells + found), at);
            _mm256_storeu_si256((__m256i *)(cells + found + 8), _mm256_add_epi32(at, _mm256_set1_epi32(8)));
            found += 16;
        } else {
            for (; seen != 0; seen &= seen - 1, seen &= seen - 1)
                cells[found++] = i + __builtin_ctz(seen) / 2;
        }
    }
    for (; i < n; i++) {
        if (mask[i] == 0xfc00) continue;
        if ((mask[i] & 0x7fff) != 0) *plain = false;
        cells[found++] = i;
    }
    return found;
}

/* Eight dimensions from d on. */
INLINE __m256 floats(const weir__attention_format format, const char *cell, int32_t d)
{
    if (format == WEIR__ATTENTION_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(cell + 2 * (size_t)d)));
    const char *block = cell + (size_t)(d / 32) * 34;
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(block + 2 + d % 32));
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_set1_ps(_cvtsh_ss(scale)));
}

INLINE void read_cell(const weir__attention_format format, const char *cell, int32_t size, float *to)
{
    for (int32_t d = 0; d < size; d += 8) _mm256_store_ps(to + d, floats(format, cell, d));
}

INLINE void scale_row(float *to, const float *from, int32_t n, float factor)
{
    for (int32_t d = 0; d < n; d += 8)
        _mm256_storeu_ps(to + d, _mm256_mul_ps(_mm256_loadu_ps(from + d), _mm256_set1_ps(factor)));
}

/* ---- One block ---- */

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
INLINE __m256 score_half(const rows *s, int r, int32_t size, int32_t first)
{
    __m256 acc[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) acc[c] = _mm256_setzero_ps();
    for (int32_t d = first; d < size; d += 16) {
        __m256 q = _mm256_load_ps(s->q[r] + d);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) acc[c] = _mm256_fmadd_ps(q, _mm256_load_ps(s->keys[c] + d), acc[c]);
    }
    return sum_lanes(acc);
}

INLINE void score(const weir__attention_format format, rows *s, int n_rows, int32_t size,
                  const char *const *cells, int32_t at)
{
    for (int c = 0; c < CELLS; c++) read_cell(format, cells[c], size, s->keys[c]);
    for (int r = 0; r < n_rows; r++)
        _mm256_store_ps(s->scores[r] + at,
                        _mm256_add_ps(score_half(s, r, size, 0), score_half(s, r, size, 8)));
}

static void cap(rows *s, int r, int32_t n, float softcap)
{
    const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
    for (int32_t c = 0; c < n; c += 8) {
        __m256 score = _mm256_load_ps(s->scores[r] + c);
        __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), score);
        __m256 e = exponential(_mm256_mul_ps(size, _mm256_set1_ps(-2.0f)));
        __m256 tanh = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
        __m256 negative = _mm256_cmp_ps(score, zero, _CMP_LT_OQ);
        tanh = _mm256_blendv_ps(tanh, _mm256_sub_ps(zero, tanh), negative);
        _mm256_store_ps(s->scores[r] + c, _mm256_mul_ps(tanh, _mm256_set1_ps(softcap)));
    }
}

INLINE __m128 fold(__m256 a)
{
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}

/* The sum of sixteen numbers, in the order of _mm512_reduce_add_ps. */
INLINE float add_lanes(__m256 low, __m256 high)
{
    __m128 four = fold(_mm256_add_ps(low, high));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

INLINE float largest(__m256 a)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

INLINE void weigh(rows *s, int r, int32_t n, int32_t size_v)
{
    const __m256 nothing = _mm256_set1_ps(-INFINITY);
    __m256 max = nothing, sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t c = n; c < BLOCK; c++) s->scores[r][c] = -INFINITY;
    for (int32_t c = 0; c < BLOCK; c += 8) max = _mm256_max_ps(max, _mm256_load_ps(s->scores[r] + c));
    float highest = largest(max);
    if (highest > s->max[r]) {
        __m256 factor = exponential(_mm256_set1_ps(s->max[r] - highest));
        s->max[r] = highest;
        s->sum[r] *= _mm256_cvtss_f32(factor);
        for (int32_t d = 0; d < size_v; d += 8)
            _mm256_store_ps(s->out[r] + d, _mm256_mul_ps(_mm256_load_ps(s->out[r] + d), factor));
    }
    for (int32_t c = 0; c < BLOCK; c += 16)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            __m256 score = _mm256_load_ps(s->scores[r] + c + 8 * i);
            __m256 weight = exponential(_mm256_sub_ps(score, _mm256_set1_ps(s->max[r])));
            weight = _mm256_and_ps(weight, _mm256_cmp_ps(score, nothing, _CMP_NEQ_UQ));
            _mm256_store_ps(s->scores[r] + c + 8 * i, weight);
            sum[i] = _mm256_add_ps(sum[i], weight);
        }
    s->sum[r] += add_lanes(sum[0], sum[1]);
}

/* Adds the weighted values of n cells to rows [at, at + n_rows), n_rows <= SUM_ROWS: eight × `vectors`
 * dimensions from d on. halves: values are in half precision, else floats. */
INLINE void add_values(const bool halves, const int n_rows, const int vectors, rows *s, int at,
                       const char *const *cells, int32_t n, int32_t d)
{
    __m256 acc[SUM_ROWS][MOST_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) acc[r][i] = _mm256_load_ps(s->out[at + r] + d + 8 * i);
    for (int32_t c = 0; c < n; c++) {
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            __m256 value = halves ? floats(WEIR__ATTENTION_F16, cells[c], d + 8 * i)
                                  : _mm256_load_ps((const float *)cells[c] + d + 8 * i);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++)
                acc[r][i] = _mm256_fmadd_ps(_mm256_set1_ps(s->scores[at + r][c]), value, acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) _mm256_store_ps(s->out[at + r] + d + 8 * i, acc[r][i]);
}

/* Eight vectors of sums at the same time; six for three rows. */
INLINE void add_some_values(const bool halves, const int n_rows, rows *s, int at, const char *const *cells,
                            int32_t n, int32_t size)
{
    const int vectors = n_rows == 1 ? 8 : n_rows == 2 ? 4 : 2;
    int32_t d = 0;
    for (; d + 8 * vectors <= size; d += 8 * vectors) add_values(halves, n_rows, vectors, s, at, cells, n, d);
    for (; d < size; d += 16) add_values(halves, n_rows, 2, s, at, cells, n, d);
}

const weir__attention weir__attention_avx2 = {"avx2", visible, attend};
