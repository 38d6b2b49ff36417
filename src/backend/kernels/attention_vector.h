/* attention_vector.h: sixteen floats, as a level's vectors hold them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All levels compute each of the sixteen in the same way, so their results are the same to the bit. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_VECTOR_H
#define WEIR_BACKEND_KERNELS_ATTENTION_VECTOR_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/kernels/attention.h"
#include "backend/kernels/inline.h"

/* ---- Vectors of a level ---- */

#ifdef __AVX512F__

#define WIDTH    16
#define MM(what) _mm512_##what
typedef __m512 vector;

INLINE vector whole(vector x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n, n a whole number from -126 to 127. */
INLINE vector power_of_two(vector n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

/* x where at >= least or at is no number, else 0. */
INLINE vector from_on(vector x, vector at, float least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(at, _mm512_set1_ps(least), _CMP_NLT_UQ), x);
}

/* x where score is not minus infinity, else 0. */
INLINE vector unless_hidden(vector x, vector score)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(score, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ), x);
}

INLINE vector size_of_each(vector x)
{
    return _mm512_abs_ps(x);
}

/* size with x's sign, size >= 0 */
INLINE vector with_sign(vector size, vector x)
{
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(size), sign));
}

INLINE float reduced_sum(const vector *x)
{
    return _mm512_reduce_add_ps(x[0]);
}

INLINE float reduced_max(const vector *x)
{
    return _mm512_reduce_max_ps(x[0]);
}

INLINE void halves(vector *x, const void *from)
{
    x[0] = _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

INLINE void upper_halves(vector *x, const void *from)
{
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
}

INLINE void bytes(vector *x, __m128i from)
{
    x[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(from));
}

#else

#define WIDTH    8
#define MM(what) _mm256_##what
typedef __m256 vector;

INLINE vector whole(vector x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vector power_of_two(vector n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

INLINE vector from_on(vector x, vector at, float least)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(at, _mm256_set1_ps(least), _CMP_NLT_UQ));
}

INLINE vector unless_hidden(vector x, vector score)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(score, _mm256_set1_ps(-INFINITY), _CMP_NEQ_UQ));
}

INLINE vector size_of_each(vector x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

INLINE vector with_sign(vector size, vector x)
{
    return _mm256_or_ps(size, _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
}

/* In the order of _mm512_reduce_add_ps. */
INLINE float reduced_sum(const vector *x)
{
    __m256 eight = _mm256_add_ps(x[0], x[1]);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

INLINE float reduced_max(const vector *x)
{
    __m256 eight = _mm256_max_ps(x[0], x[1]);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

INLINE void halves(vector *x, const void *from)
{
    const __m128i *at = from;
    x[0] = _mm256_cvtph_ps(_mm_loadu_si128(at));
    x[1] = _mm256_cvtph_ps(_mm_loadu_si128(at + 1));
}

INLINE void upper_halves(vector *x, const void *from)
{
    const __m128i *at = from;
    x[0] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
    x[1] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1)), 16));
}

INLINE void bytes(vector *x, __m128i from)
{
    x[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(from));
    x[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(from, 8)));
}

#endif

/* ---- Sixteen ---- */

#define PARTS     (16 / WIDTH)
#define EACH_PART _Pragma("GCC unroll 2") for (int i = 0; i < PARTS; i++)

typedef struct sixteen {
    vector part[PARTS];
} sixteen;

INLINE sixteen all_of(float x)
{
    sixteen y;
    EACH_PART y.part[i] = MM(set1_ps)(x);
    return y;
}

/* Addresses need no alignment. */
INLINE sixteen load(const float *from)
{
    sixteen y;
    EACH_PART y.part[i] = MM(loadu_ps)(from + WIDTH * i);
    return y;
}

INLINE void store(float *to, sixteen x)
{
    EACH_PART MM(storeu_ps)(to + WIDTH * i, x.part[i]);
}

INLINE sixteen add(sixteen a, sixteen b)
{
    EACH_PART a.part[i] = MM(add_ps)(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen multiply(sixteen a, sixteen b)
{
    EACH_PART a.part[i] = MM(mul_ps)(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen multiply_add(sixteen a, sixteen b, sixteen sum)
{
    EACH_PART sum.part[i] = MM(fmadd_ps)(a.part[i], b.part[i], sum.part[i]);
    return sum;
}

INLINE sixteen larger(sixteen a, sixteen b)
{
    EACH_PART a.part[i] = MM(max_ps)(a.part[i], b.part[i]);
    return a;
}

INLINE float sum_of(sixteen x)
{
    return reduced_sum(x.part);
}

INLINE float first_of(sixteen x)
{
    float first;
    memcpy(&first, &x, sizeof first);
    return first;
}

INLINE float largest_of(sixteen x)
{
    return reduced_max(x.part);
}

/* Below this, e^x counts as 0: about 2^-100. So weights times values are not denormal numbers, which some
 * products take as zeroes and others do not. */
#define LEAST_EXPONENT (-69.0f)

/* e^x for x <= 0: 2^n times a polynomial in the rest (Cephes' coefficients), within 2 units in the last
 * place. NaN stays NaN. */
INLINE vector exponential_of(vector given)
{
    vector x = MM(max_ps)(MM(set1_ps)(LEAST_EXPONENT - 1.0f), given);
    vector n = whole(MM(mul_ps)(x, MM(set1_ps)(1.44269504f)));
    vector r = MM(fnmadd_ps)(n, MM(set1_ps)(0.693359375f), x);
    r = MM(fnmadd_ps)(n, MM(set1_ps)(-2.12194440e-4f), r);
    vector p = MM(set1_ps)(1.9875691500e-4f);
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(1.3981999507e-3f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(8.3334519073e-3f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(4.1665795894e-2f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(1.6666665459e-1f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(5.0000001201e-1f));
    p = MM(fmadd_ps)(p, MM(mul_ps)(r, r), MM(add_ps)(r, MM(set1_ps)(1.0f)));
    return from_on(MM(mul_ps)(p, power_of_two(n)), given, LEAST_EXPONENT);
}

INLINE sixteen exponential(sixteen x)
{
    EACH_PART x.part[i] = exponential_of(x.part[i]);
    return x;
}

/* e^(score - max), 0 where the score is minus infinity. */
INLINE sixteen weight_of(sixteen score, float max)
{
    EACH_PART
    {
        vector weight = exponential_of(MM(sub_ps)(score.part[i], MM(set1_ps)(max)));
        score.part[i] = unless_hidden(weight, score.part[i]);
    }
    return score;
}

/* softcap × tanh(x) */
INLINE sixteen capped(sixteen x, float softcap)
{
    const vector one = MM(set1_ps)(1.0f);
    EACH_PART
    {
        vector e = exponential_of(MM(mul_ps)(size_of_each(x.part[i]), MM(set1_ps)(-2.0f)));
        vector tanh = MM(div_ps)(MM(sub_ps)(one, e), MM(add_ps)(one, e));
        x.part[i] = MM(mul_ps)(with_sign(tanh, x.part[i]), MM(set1_ps)(softcap));
    }
    return x;
}

/* Sixteen dimensions of a cell from d on, d a multiple of 16. */
INLINE sixteen dimensions(const weir__attention_format format, const char *cell, int32_t d)
{
    sixteen x;
    if (format == WEIR__ATTENTION_F32) return load((const float *)cell + d);
    if (format == WEIR__ATTENTION_F16) {
        halves(x.part, cell + 2 * (size_t)d);
        return x;
    }
    if (format == WEIR__ATTENTION_BF16) {
        upper_halves(x.part, cell + 2 * (size_t)d);
        return x;
    }
    const size_t block_bytes = format == WEIR__ATTENTION_Q8_0 ? 34 : 18;
    const char *block = cell + (size_t)(d / 32) * block_bytes;
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    if (format == WEIR__ATTENTION_Q8_0) {
        bytes(x.part, _mm_loadu_si128((const __m128i *)(block + 2 + d % 32)));
    } else { /* low nibbles are the first sixteen, high ones the others; 8 is zero */
        __m128i pairs = _mm_loadu_si128((const __m128i *)(block + 2));
        __m128i nibbles = d % 32 == 0 ? pairs : _mm_srli_epi16(pairs, 4);
        nibbles = _mm_and_si128(nibbles, _mm_set1_epi8(15));
        bytes(x.part, _mm_sub_epi8(nibbles, _mm_set1_epi8(8)));
    }
    return multiply(x, all_of(_cvtsh_ss(scale)));
}

#endif
