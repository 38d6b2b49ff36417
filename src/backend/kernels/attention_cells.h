/* attention_cells.h: keys and values of cells as 16-bit integers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each cell has a scale of its own, so that its integers do not depend on other cells. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_CELLS_H
#define WEIR_BACKEND_KERNELS_ATTENTION_CELLS_H

#include "backend/kernels/attention_vector.h"

/* The Euclidean norm of a query's or key's integers, so that their products' sum is below 2^30. */
#define NORM 32740.0f

/* The largest integer of a value. A block's weights sum up to at most WEIGHTS, each at most LARGEST_WEIGHT,
 * so their products' sum is below 2^31. */
#define LARGEST_VALUE  16383.0f
#define LARGEST_WEIGHT 32767.0f
#define WEIGHTS        130900.0f

/* Pairs of dimensions: there are zeroes if the size is no multiple of 32. */
INLINE int32_t pairs_in(int32_t size)
{
    return (size + 31) / 32 * 16;
}

/* integer / size, 0 where the size is next to nothing; and the factors that give the numbers. */
INLINE void scales_for(__m128 size, float integer, float *scales, float *factors)
{
    __m128 scale = _mm_div_ps(_mm_set1_ps(integer), size);
    _mm_storeu_ps(scales, _mm_and_ps(scale, _mm_cmpnlt_ps(size, _mm_set1_ps(0x1p-60f))));
    _mm_storeu_ps(factors, _mm_mul_ps(size, _mm_set1_ps(1.0f / integer)));
}

/* The cells that are packed together: as many scales are computed at the same time. */
#define BATCH 16

/* Writes the integers of a batch's keys to [BATCH / 4][pairs_in(size)][4]. */
INLINE void pack_keys(const weir__attention_format format, const int32_t size, int32_t *to, float *factors,
                      const char *const *cells)
{
    _Alignas(64) float keys[BATCH][WEIR__ATTENTION_SIZE + 16], scales[BATCH];
    for (int32_t c = 0; c < BATCH; c += 4) {
        __m128 squares[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            sixteen sum = all_of(0.0f);
            for (int32_t d = 0; d < size; d += 16) {
                sixteen x = dimensions(format, cells[c + i], d);
                sum = multiply_add(x, x, sum);
                store(keys[c + i] + d, x);
            }
            squares[i] = fourth_sums(sum.part);
            store(keys[c + i] + size, all_of(0.0f));
        }
        _MM_TRANSPOSE4_PS(squares[0], squares[1], squares[2], squares[3]);
        __m128 sum = _mm_add_ps(_mm_add_ps(squares[0], squares[1]), _mm_add_ps(squares[2], squares[3]));
        scales_for(_mm_sqrt_ps(sum), NORM, scales + c, factors + c);
    }
    for (int32_t c = 0; c < BATCH; c += 4)
        for (int32_t d = 0; d < size; d += 32, to += 64) {
            sixteen_integers some[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                sixteen scale = all_of(scales[c + i]);
                some[i] = packed_pairs(rounded(multiply(load(keys[c + i] + d), scale)),
                                       rounded(multiply(load(keys[c + i] + d + 16), scale)));
            }
            transpose_fours(some);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) store_integers(to + 16 * i, some[i]);
        }
}

/* The larger of numbers that are not negative; a NaN is larger than all numbers, as its bits are. */
INLINE __m128 larger_or_nan(__m128 a, __m128 b)
{
    return _mm_castsi128_ps(_mm_max_epi32(_mm_castps_si128(a), _mm_castps_si128(b)));
}

/* Four numbers, of which the largest is the largest absolute value of a cell, or a NaN if it has one. */
INLINE __m128 largest_values(const weir__attention_format format, const char *cell, int32_t size)
{
    if (format == WEIR__ATTENTION_F16 || format == WEIR__ATTENTION_BF16) {
        __m256i most = _mm256_setzero_si256(); /* bits are in the order of the numbers */
        for (int32_t d = 0; d < size; d += 16)
            most =
                _mm256_max_epu16(most, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(cell + 2 * d)),
                                                        _mm256_set1_epi16(0x7fff)));
        __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        eight = _mm_max_epu16(eight, _mm_bsrli_si128(eight, 8));
        return format == WEIR__ATTENTION_F16
                   ? _mm_cvtph_ps(eight)
                   : _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(eight), 16));
    }
    sixteen most = all_of(0.0f), nothing = all_of(0.0f); /* or NaN, which a maximum may lose */
    for (int32_t d = 0; d < size; d += 16) {
        sixteen x = dimensions(format, cell, d);
        most = larger(absolute(x), most);
        nothing = multiply_add(x, all_of(0.0f), nothing);
    }
    __m128 four = _mm_add_ps(fourth_maxima(most.part), fourth_sums(nothing.part));
    return _mm_andnot_ps(_mm_set1_ps(-0.0f), four);
}

/* Writes the integers of a batch's values to [BATCH / 2][size], in pairs. */
INLINE void pack_values(const weir__attention_format format, const int32_t size, int32_t *to, float *factors,
                        const char *const *cells)
{
    float scales[BATCH];
    for (int32_t c = 0; c < BATCH; c += 4) {
        __m128 most[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) most[i] = largest_values(format, cells[c + i], size);
        _MM_TRANSPOSE4_PS(most[0], most[1], most[2], most[3]);
        scales_for(larger_or_nan(larger_or_nan(most[0], most[1]), larger_or_nan(most[2], most[3])),
                   LARGEST_VALUE, scales + c, factors + c);
    }
    for (int c = 0; c < BATCH; c += 2) {
        sixteen a = all_of(scales[c]), b = all_of(scales[c + 1]);
        for (int32_t d = 0; d < size; d += 16, to += 16)
            store_integers(to, pairs(rounded(multiply(dimensions(format, cells[c], d), a)),
                                     rounded(multiply(dimensions(format, cells[c + 1], d), b))));
    }
}

/* Calls a function for a format, and with the most common sizes as constants, which makes it faster. */
#define FOR_SIZE(function, format, size, ...)                                                                \
    if ((size) == 64)                                                                                        \
        function(format, 64, __VA_ARGS__);                                                                   \
    else if ((size) == 128)                                                                                  \
        function(format, 128, __VA_ARGS__);                                                                  \
    else                                                                                                     \
        function(format, (size), __VA_ARGS__)
#define FOR_FORMAT(function, format, size, ...)                                                              \
    switch (format) {                                                                                        \
    case WEIR__ATTENTION_F32: FOR_SIZE(function, WEIR__ATTENTION_F32, size, __VA_ARGS__); break;             \
    case WEIR__ATTENTION_F16: FOR_SIZE(function, WEIR__ATTENTION_F16, size, __VA_ARGS__); break;             \
    case WEIR__ATTENTION_BF16: FOR_SIZE(function, WEIR__ATTENTION_BF16, size, __VA_ARGS__); break;           \
    case WEIR__ATTENTION_Q8_0: FOR_SIZE(function, WEIR__ATTENTION_Q8_0, size, __VA_ARGS__); break;           \
    case WEIR__ATTENTION_Q4_0: FOR_SIZE(function, WEIR__ATTENTION_Q4_0, size, __VA_ARGS__); break;           \
    }

/* Packs a batch. */
static void pack_cells(const weir__attention_task *t, int32_t *keys, float *key_factors, int32_t *values,
                       float *value_factors, const char *const *k, const char *const *v)
{
    FOR_FORMAT(pack_keys, t->k_format, t->size_k, keys, key_factors, k)
    FOR_FORMAT(pack_values, t->v_format, t->size_v, values, value_factors, v)
}

#endif
