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

#define WIDTH     16
#define MM(what)  _mm512_##what
#define BITS(x)   _mm512_castps_si512(x)
#define FLOATS(x) _mm512_castsi512_ps(x)
typedef __m512 vector;

typedef __m512i integers;

/* x where at >= least or at is no number, else 0. */
INLINE vector from_on(vector x, vector at, float least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(at, _mm512_set1_ps(least), _CMP_NLT_UQ), x);
}

/* x where from <= at < to, else y. */
INLINE vector within(vector x, vector y, integers from, integers to, int32_t at)
{
    __m512i place = _mm512_set1_epi32(at);
    __mmask16 seen = _mm512_cmple_epi32_mask(from, place) & _mm512_cmpgt_epi32_mask(to, place);
    return _mm512_mask_mov_ps(y, seen, x);
}

/* x where y is not 0, else 0. */
INLINE vector where(vector x, vector y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NEQ_UQ), x);
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

#define REDUCE(name, operation)                                                                              \
    INLINE __m128 name(const vector *x)                                                                      \
    {                                                                                                        \
        __m256 eight = _mm256_##operation(_mm512_castps512_ps256(x[0]), _mm512_extractf32x8_ps(x[0], 1));    \
        return _mm_##operation(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));              \
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

INLINE integers repeated_two(const void *from)
{
    long long two;
    memcpy(&two, from, sizeof two);
    return _mm512_set1_epi64(two);
}

INLINE integers repeated_four(const void *from)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128(from));
}

/* a's products of pairs of 16-bit integers with b's, added to sum. */
INLINE integers add_products(integers sum, integers a, integers b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* Of each four numbers of a and then of b, four pairs. */
INLINE integers packed(integers a, integers b)
{
    return _mm512_packs_epi32(a, b);
}

/* Pairs of 16-bit integers: a's first. */
INLINE integers paired(integers a, integers b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

#else

#define WIDTH     8
#define MM(what)  _mm256_##what
#define BITS(x)   _mm256_castps_si256(x)
#define FLOATS(x) _mm256_castsi256_ps(x)
typedef __m256 vector;

typedef __m256i integers;

INLINE vector from_on(vector x, vector at, float least)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(at, _mm256_set1_ps(least), _CMP_NLT_UQ));
}

INLINE vector within(vector x, vector y, integers from, integers to, int32_t at)
{
    __m256i place = _mm256_set1_epi32(at);
    __m256i seen = _mm256_andnot_si256(_mm256_cmpgt_epi32(from, place), _mm256_cmpgt_epi32(to, place));
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(seen));
}

INLINE vector where(vector x, vector y)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_NEQ_UQ));
}

INLINE vector size_of_each(vector x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

INLINE vector with_sign(vector size, vector x)
{
    return _mm256_or_ps(size, _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
}

#define REDUCE(name, operation)                                                                              \
    INLINE __m128 name(const vector *x)                                                                      \
    {                                                                                                        \
        __m256 eight = _mm256_##operation(x[0], x[1]);                                                       \
        return _mm_##operation(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));              \
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

INLINE integers repeated_two(const void *from)
{
    long long two;
    memcpy(&two, from, sizeof two);
    return _mm256_set1_epi64x(two);
}

INLINE integers repeated_four(const void *from)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(from));
}

INLINE integers add_products(integers sum, integers a, integers b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

INLINE integers packed(integers a, integers b)
{
    return _mm256_packs_epi32(a, b);
}

INLINE integers paired(integers a, integers b)
{
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
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

/* Four sums or maxima of every fourth number: all levels add in the same order. */
REDUCE(fourth_sums, add_ps)
REDUCE(fourth_maxima, max_ps)

INLINE sixteen divide(sixteen a, sixteen b)
{
    EACH_PART a.part[i] = MM(div_ps)(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen only_where(sixteen x, sixteen y)
{
    EACH_PART x.part[i] = where(x.part[i], y.part[i]);
    return x;
}

INLINE sixteen absolute(sixteen x)
{
    EACH_PART x.part[i] = size_of_each(x.part[i]);
    return x;
}

/* ---- Sixteen integers ---- */

typedef struct sixteen_integers {
    integers part[PARTS];
} sixteen_integers;

INLINE sixteen_integers all_of_integer(int32_t x)
{
    sixteen_integers y;
    EACH_PART y.part[i] = MM(set1_epi32)(x);
    return y;
}

INLINE sixteen_integers load_integers(const int32_t *from)
{
    sixteen_integers y;
    EACH_PART y.part[i] = BITS(MM(loadu_ps)((const float *)from + WIDTH * i));
    return y;
}

INLINE void store_integers(int32_t *to, sixteen_integers x)
{
    EACH_PART MM(storeu_ps)((float *)to + WIDTH * i, FLOATS(x.part[i]));
}

/* To the nearest. */
INLINE sixteen_integers rounded(sixteen x)
{
    sixteen_integers y;
    EACH_PART y.part[i] = MM(cvtps_epi32)(x.part[i]);
    return y;
}

INLINE sixteen converted(sixteen_integers x)
{
    sixteen y;
    EACH_PART y.part[i] = MM(cvtepi32_ps)(x.part[i]);
    return y;
}

INLINE sixteen_integers pairs(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = paired(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen_integers packed_pairs(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = packed(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen_integers multiply_add_pairs(sixteen_integers a, sixteen_integers b, sixteen_integers sum)
{
    EACH_PART sum.part[i] = add_products(sum.part[i], a.part[i], b.part[i]);
    return sum;
}

/* The first n of four lanes' numbers in all lanes, n = 1, 2 or 4. */
INLINE sixteen_integers repeated(const int n, const void *from)
{
    sixteen_integers y;
    int32_t one;
    memcpy(&one, from, sizeof one);
    EACH_PART y.part[i] = n == 1 ? MM(set1_epi32)(one) : n == 2 ? repeated_two(from) : repeated_four(from);
    return y;
}

INLINE sixteen repeated_floats(const int n, const float *from)
{
    sixteen_integers x = repeated(n, from);
    sixteen y;
    EACH_PART y.part[i] = FLOATS(x.part[i]);
    return y;
}

#define SHUFFLE(name, order)                                                                                 \
    INLINE sixteen_integers name(sixteen_integers x)                                                         \
    {                                                                                                        \
        EACH_PART x.part[i] = MM(shuffle_epi32)(x.part[i], (order));                                         \
        return x;                                                                                            \
    }

/* Of each four lanes, one in all; of each two, one in both. */
SHUFFLE(first_of_four, 0x00)
SHUFFLE(second_of_four, 0x55)
SHUFFLE(third_of_four, 0xaa)
SHUFFLE(fourth_of_four, 0xff)
SHUFFLE(first_of_two, 0xa0)
SHUFFLE(second_of_two, 0xf5)

INLINE sixteen neighbours(sixteen x)
{
    EACH_PART x.part[i] = MM(shuffle_ps)(x.part[i], x.part[i], 0xb1);
    return x;
}

INLINE sixteen other_two(sixteen x)
{
    EACH_PART x.part[i] = MM(shuffle_ps)(x.part[i], x.part[i], 0x4e);
    return x;
}

/* Of four vectors a, lanes 4 i + j go to lanes 4 i of the j-th, with a[0] first. */
INLINE void transpose_fours(sixteen_integers *a)
{
    EACH_PART
    {
        integers x = MM(unpacklo_epi32)(a[0].part[i], a[1].part[i]);
        integers y = MM(unpackhi_epi32)(a[0].part[i], a[1].part[i]);
        integers z = MM(unpacklo_epi32)(a[2].part[i], a[3].part[i]);
        integers w = MM(unpackhi_epi32)(a[2].part[i], a[3].part[i]);
        a[0].part[i] = MM(unpacklo_epi64)(x, z);
        a[1].part[i] = MM(unpackhi_epi64)(x, z);
        a[2].part[i] = MM(unpacklo_epi64)(y, w);
        a[3].part[i] = MM(unpackhi_epi64)(y, w);
    }
}

#define LOG2_E 1.44269504f

/* Below this, 2^x counts as 0. */
#define LEAST_EXPONENT (-100.0f)

/* 2^x for x <= 0: a power of two times a polynomial in the rest (Chebyshev's points), with a relative error
 * of 3e-7 at most; exactly 1 for 0. NaN stays NaN. */
INLINE vector power_of_two(vector x)
{
    const vector rounder = MM(set1_ps)(0x1.8p23f); /* a sum with it has no fraction */
    vector whole = MM(add_ps)(x, rounder);
    vector r = MM(sub_ps)(x, MM(sub_ps)(whole, rounder));
    vector p = MM(set1_ps)(1.338130212e-3f);
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(9.666368365e-3f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(5.550381169e-2f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(2.402234972e-1f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(6.931471825e-1f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(1.0f));
    p = FLOATS(MM(add_epi32)(BITS(p), MM(slli_epi32)(BITS(whole), 23)));
    return from_on(p, x, LEAST_EXPONENT);
}

/* 2^(score - max); 0 for -INFINITY. */
INLINE sixteen weight_of(sixteen score, sixteen max)
{
    EACH_PART score.part[i] = power_of_two(MM(sub_ps)(score.part[i], max.part[i]));
    return score;
}

/* softcap × tanh(x) */
INLINE sixteen capped(sixteen x, float softcap)
{
    const vector one = MM(set1_ps)(1.0f);
    EACH_PART
    {
        vector e = power_of_two(MM(mul_ps)(size_of_each(x.part[i]), MM(set1_ps)(-2.0f * LOG2_E)));
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
