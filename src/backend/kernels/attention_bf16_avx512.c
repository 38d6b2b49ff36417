/* attention_bf16_avx512.c: attention on processors with AVX-512 BF16.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Queries, keys, weights and values are rounded to BF16; products, sums and softmax are in single precision.
 * A panel of keys has, for each two dimensions, those of cell after cell. A panel of values has, for each two
 * cells, their dimensions in turn. */
#define MOST_VECTORS 4
#include "backend/kernels/attention_rows.h"
#include "backend/kernels/attention_visible.h"

/* Two numbers in BF16, which are multiplied together. */
typedef uint32_t __attribute__((may_alias)) pair;

INLINE __m512i bf16(sixteen low, sixteen high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high.part[0], low.part[0]);
}

INLINE __m512 multiply_pairs(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

INLINE void take_query(scratch *s, int r, const float *q, int32_t size, float scale)
{
    pair *to = (pair *)s->q + r * size / 2;
    for (int32_t d = 0; d < size; d += 16) {
        __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(q + d), _mm512_set1_ps(scale));
        _mm256_storeu_si256((__m256i *)(to + d / 2), (__m256i)_mm512_cvtneps_pbh(scaled));
    }
}

/* Sixteen pairs each, of sixteen cells before and after: cell c's pair p becomes pair p's cell c. */
INLINE void transpose(__m512i *x)
{
    __m512i y[16];
#pragma GCC unroll 8
    for (int c = 0; c < 16; c += 2) {
        y[c] = _mm512_unpacklo_epi32(x[c], x[c + 1]);
        y[c + 1] = _mm512_unpackhi_epi32(x[c], x[c + 1]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 16; c += 4) { /* x[c + i]: pairs i, 4 + i, 8 + i and 12 + i of four cells */
        x[c] = _mm512_unpacklo_epi64(y[c], y[c + 2]);
        x[c + 1] = _mm512_unpackhi_epi64(y[c], y[c + 2]);
        x[c + 2] = _mm512_unpacklo_epi64(y[c + 1], y[c + 3]);
        x[c + 3] = _mm512_unpackhi_epi64(y[c + 1], y[c + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);       /* pairs i, 8 + i of cells 0 … 7 */
        __m512i high = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xdd);      /* pairs 4 + i, 12 + i */
        __m512i low2 = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88); /* of cells 8 … 15 */
        __m512i high2 = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xdd);
        y[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
        y[4 + i] = _mm512_shuffle_i32x4(high, high2, 0x88);
        y[8 + i] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        y[12 + i] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) x[p] = y[p];
}

INLINE void pack_keys(const weir__attention_format format, scratch *s, const char *const *cells, int32_t size,
                      int at)
{
    pair *panel = (pair *)s->keys + at;
    for (int32_t d = 0; d < size; d += 32) {
        __m512i x[GROUP];
        bool half = d + 16 == size;
#pragma GCC unroll 16
        for (int c = 0; c < GROUP; c++)
            x[c] = bf16(dimensions(format, cells[c + at], d),
                        half ? all_of(0.0f) : dimensions(format, cells[c + at], d + 16));
        transpose(x);
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++)
            if (p < 8 || !half) _mm512_storeu_si512(panel + (d / 2 + p) * BLOCK, x[p]);
    }
}

INLINE void pack_values(const weir__attention_format format, scratch *s, const char *const *cells,
                        int32_t size, int32_t at, int32_t end)
{
    const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                             7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int32_t c = at & ~1; c < end; c += 2)
        for (int32_t d = 0; d < size; d += 16) {
            __m512i two = bf16(dimensions(format, cells[c], d), dimensions(format, cells[c + 1], d));
            _mm512_storeu_si512((pair *)s->values + c / 2 * size + d, _mm512_permutexvar_epi16(in_turn, two));
        }
}

INLINE void score(const int n_groups, const int n_rows, scratch *s, int r, int32_t size)
{
    __m512 sums[MOST_ROWS][BLOCK / GROUP];
    const pair *q = (const pair *)s->q + r * size / 2, *panel = (const pair *)s->keys;
#pragma GCC unroll 8
    for (int n = 0; n < n_rows; n++)
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) sums[n][g] = _mm512_setzero_ps();
    for (int32_t p = 0; p < size / 2; p++, panel += BLOCK) {
        __m512i keys[BLOCK / GROUP];
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) keys[g] = _mm512_loadu_si512(panel + GROUP * g);
#pragma GCC unroll 8
        for (int n = 0; n < n_rows; n++) {
            __m512i query = _mm512_set1_epi32((int32_t)q[n * size / 2 + p]);
#pragma GCC unroll 4
            for (int g = 0; g < n_groups; g++) sums[n][g] = multiply_pairs(sums[n][g], keys[g], query);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < n_rows; n++)
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) _mm512_store_ps(s->scores[r + n] + GROUP * g, sums[n][g]);
}

/* Weights overwrite scores that were read before. */
INLINE void store_weights(scratch *s, int r, int at, sixteen weights)
{
    _mm256_storeu_si256((__m256i *)((uint16_t *)s->scores[r] + at),
                        (__m256i)_mm512_cvtneps_pbh(weights.part[0]));
}

INLINE void add_values(const int n_rows, const int n, scratch *s, int r, int32_t size, int32_t d, int32_t at,
                       int32_t end)
{
    __m512 sums[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) sums[m][v] = _mm512_loadu_ps(s->out + (r + m) * size + d + 16 * v);
    for (int32_t p = at / 2; p < (end + 1) / 2; p++) {
        const pair *panel = (const pair *)s->values + p * size + d;
        __m512i values[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) values[v] = _mm512_loadu_si512(panel + 16 * v);
#pragma GCC unroll 8
        for (int m = 0; m < n_rows; m++) {
            __m512i weights = _mm512_set1_epi32((int32_t)((const pair *)s->scores[r + m])[p]);
#pragma GCC unroll 4
            for (int v = 0; v < n; v++) sums[m][v] = multiply_pairs(sums[m][v], values[v], weights);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) _mm512_storeu_ps(s->out + (r + m) * size + d + 16 * v, sums[m][v]);
}

const weir__attention weir__attention_bf16_avx512 = {"avx512bf16", sizeof(scratch), visible,
                                                     attend,       add_piece,       finish};
