/* attention_fma.h: attention's products in single precision.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A panel of keys has, for each two dimensions, those of cell after cell; a score is the sum over even
 * dimensions plus that over odd ones. A panel of values has a cell's dimensions, cell after cell. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_FMA_H
#define WEIR_BACKEND_KERNELS_ATTENTION_FMA_H

/* Sums that fit into the registers: of rows × groups of cells' scores, of rows × dimensions' values. */
#ifdef __AVX512F__
#define SCORE_ROWS   3
#define SCORE_EIGHTS 8
#define MOST_VECTORS 4
#define VALUE_ROWS   6
#else
#define SCORE_ROWS   3
#define SCORE_EIGHTS 2
#define MOST_VECTORS 2
#define VALUE_ROWS   3
#endif

#include "backend/kernels/attention_rows.h"

INLINE void take_query(scratch *s, int r, const float *q, int32_t size, float scale)
{
    for (int32_t d = 0; d < size; d += 16) store(s->q + r * size + d, multiply(load(q + d), all_of(scale)));
}

/* Two dimensions each, of eight cells before and after: cell c's dimensions p become dimensions p's cell c. */
INLINE void transpose_pairs(sixteen *x)
{
#ifdef __AVX512F__
    __m512d a[8], b[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) a[c] = _mm512_castps_pd(x[c].part[0]);
#pragma GCC unroll 4
    for (int c = 0; c < 8; c += 2) {
        b[c] = _mm512_unpacklo_pd(a[c], a[c + 1]);
        b[c + 1] = _mm512_unpackhi_pd(a[c], a[c + 1]);
    }
    /* b[c]: pairs 0, 2, 4, 6 of cells c and c + 1; b[c + 1]: pairs 1, 3, 5, 7 */
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++) {
        __m512d low = _mm512_shuffle_f64x2(b[odd], b[2 + odd], 0x44);      /* pairs 0, 2 of 0 … 3 */
        __m512d high = _mm512_shuffle_f64x2(b[odd], b[2 + odd], 0xee);     /* pairs 4, 6 of 0 … 3 */
        __m512d low2 = _mm512_shuffle_f64x2(b[4 + odd], b[6 + odd], 0x44); /* of 4 … 7 */
        __m512d high2 = _mm512_shuffle_f64x2(b[4 + odd], b[6 + odd], 0xee);
        x[odd].part[0] = _mm512_castpd_ps(_mm512_shuffle_f64x2(low, low2, 0x88));
        x[2 + odd].part[0] = _mm512_castpd_ps(_mm512_shuffle_f64x2(low, low2, 0xdd));
        x[4 + odd].part[0] = _mm512_castpd_ps(_mm512_shuffle_f64x2(high, high2, 0x88));
        x[6 + odd].part[0] = _mm512_castpd_ps(_mm512_shuffle_f64x2(high, high2, 0xdd));
    }
#else
    sixteen y[8];
#pragma GCC unroll 2
    for (int pairs = 0; pairs < 2; pairs++) /* four pairs, as one part of each cell has them */
#pragma GCC unroll 2
        for (int cells = 0; cells < 2; cells++) {
            __m256d a[4], b[4];
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) a[c] = _mm256_castps_pd(x[4 * cells + c].part[pairs]);
            b[0] = _mm256_unpacklo_pd(a[0], a[1]);
            b[1] = _mm256_unpackhi_pd(a[0], a[1]);
            b[2] = _mm256_unpacklo_pd(a[2], a[3]);
            b[3] = _mm256_unpackhi_pd(a[2], a[3]);
            y[4 * pairs].part[cells] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[0], b[2], 0x20));
            y[4 * pairs + 1].part[cells] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[1], b[3], 0x20));
            y[4 * pairs + 2].part[cells] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[0], b[2], 0x31));
            y[4 * pairs + 3].part[cells] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[1], b[3], 0x31));
        }
#pragma GCC unroll 8
    for (int p = 0; p < 8; p++) x[p] = y[p];
#endif
}

INLINE void pack_keys(const weir__attention_format format, scratch *s, const char *const *cells, int32_t size,
                      int at)
{
    for (int32_t d = 0; d < size; d += 16)
        for (int eight = at; eight < at + GROUP; eight += 8) {
            sixteen x[8];
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) x[c] = dimensions(format, cells[eight + c], d);
            transpose_pairs(x);
#pragma GCC unroll 8
            for (int p = 0; p < 8; p++) store(s->keys + (d / 2 + p) * 2 * BLOCK + 2 * eight, x[p]);
        }
}

INLINE void pack_values(const weir__attention_format format, scratch *s, const char *const *cells,
                        int32_t size, int32_t at, int32_t end)
{
    for (int32_t c = at; c < end; c++)
        for (int32_t d = 0; d < size; d += 16)
            store(s->values + c * size + d, dimensions(format, cells[c], d));
}

INLINE sixteen both_of(const float *two)
{
    sixteen x;
    double pair;
    memcpy(&pair, two, sizeof pair);
    EACH_PART x.part[i] =
#ifdef __AVX512F__
        _mm512_castpd_ps(_mm512_set1_pd(pair));
#else
        _mm256_castpd_ps(_mm256_set1_pd(pair));
#endif
    return x;
}

/* Even plus odd sums, of eight cells each. */
INLINE sixteen add_pairs(sixteen a, sixteen b)
{
#ifdef __AVX512F__
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 evens = _mm512_permutex2var_ps(a.part[0], even, b.part[0]);
    __m512 odds = _mm512_permutex2var_ps(a.part[0], _mm512_add_epi32(even, _mm512_set1_epi32(1)), b.part[0]);
    a.part[0] = _mm512_add_ps(evens, odds);
    return a;
#else
    sixteen x;
    __m256 low = _mm256_hadd_ps(a.part[0], a.part[1]), high = _mm256_hadd_ps(b.part[0], b.part[1]);
    x.part[0] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(low), 0xd8));
    x.part[1] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(high), 0xd8));
    return x;
#endif
}

/* Scores of eights × 8 cells from `at` on. */
INLINE void score_some(const int eights, const int n_rows, scratch *s, int r, int32_t size, int at)
{
    sixteen sums[SCORE_ROWS][SCORE_EIGHTS];
#pragma GCC unroll 8
    for (int n = 0; n < n_rows; n++)
#pragma GCC unroll 8
        for (int e = 0; e < eights; e++) sums[n][e] = all_of(0.0f);
    for (int32_t d = 0; d < size; d += 2) {
        const float *panel = s->keys + d * BLOCK + 2 * at;
        sixteen keys[SCORE_EIGHTS];
#pragma GCC unroll 8
        for (int e = 0; e < eights; e++) keys[e] = load(panel + 16 * e);
#pragma GCC unroll 8
        for (int n = 0; n < n_rows; n++) {
            sixteen q = both_of(s->q + (r + n) * size + d);
#pragma GCC unroll 8
            for (int e = 0; e < eights; e++) sums[n][e] = multiply_add(q, keys[e], sums[n][e]);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < n_rows; n++)
#pragma GCC unroll 8
        for (int e = 0; e < eights; e += 2)
            store(s->scores[r + n] + at + 8 * e, add_pairs(sums[n][e], sums[n][e + 1]));
}

INLINE void score_cells(const int n_groups, const int n_rows, scratch *s, int r, int32_t size)
{
    const int eights = 2 * n_groups < SCORE_EIGHTS ? 2 * n_groups : SCORE_EIGHTS;
    for (int at = 0; at < n_groups * GROUP; at += 8 * eights) score_some(eights, n_rows, s, r, size, at);
}

INLINE void score(const int n_groups, const int n_rows, scratch *s, int r, int32_t size)
{
    if (n_rows > SCORE_ROWS) {
        score_cells(n_groups, SCORE_ROWS, s, r, size);
        score_cells(n_groups, n_rows - SCORE_ROWS, s, r + SCORE_ROWS, size);
    } else {
        score_cells(n_groups, n_rows, s, r, size);
    }
}

INLINE void store_weights(scratch *s, int r, int at, sixteen weights)
{
    store(s->scores[r] + at, weights);
}

INLINE void add_some_values(const int n_rows, const int n, scratch *s, int r, int32_t size, int32_t d,
                            int32_t at, int32_t end)
{
    sixteen sums[VALUE_ROWS][MOST_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) sums[m][v] = load(s->out + (r + m) * size + d + 16 * v);
    for (int32_t c = at; c < end; c++) {
        sixteen values[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) values[v] = load(s->values + c * size + d + 16 * v);
#pragma GCC unroll 8
        for (int m = 0; m < n_rows; m++) {
            sixteen weight = all_of(s->scores[r + m][c]);
#pragma GCC unroll 4
            for (int v = 0; v < n; v++) sums[m][v] = multiply_add(weight, values[v], sums[m][v]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) store(s->out + (r + m) * size + d + 16 * v, sums[m][v]);
}

INLINE void add_values(const int n_rows, const int n, scratch *s, int r, int32_t size, int32_t d, int32_t at,
                       int32_t end)
{
    if (n_rows > VALUE_ROWS) {
        add_some_values(VALUE_ROWS, n, s, r, size, d, at, end);
        add_some_values(n_rows - VALUE_ROWS, n, s, r + VALUE_ROWS, size, d, at, end);
    } else {
        add_some_values(n_rows, n, s, r, size, d, at, end);
    }
}

#endif
