/* attention_vector.h: sixteen floats, as a level's vectors hold them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All levels compute each of the sixteen in the same way, so their results are the same to the bit. */
#ifndef WEIR_KERNELS_ATTENTION_VECTOR_H
#define WEIR_KERNELS_ATTENTION_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/inline.h"

/* ---- Vectors of a level ---- */

#ifdef __ARM_NEON

#include "kernels/vector_neon.h"

#else

#include <immintrin.h>

/* Four floats. */
typedef __m128 four_floats;
#define FOUR(what) _mm_##what

INLINE float largest_of_four(four_floats x)
{
    x = _mm_max_ps(x, _mm_shuffle_ps(x, x, 0xb1));
    return _mm_cvtss_f32(_mm_max_ps(x, _mm_movehl_ps(x, x)));
}

INLINE float sum_of_four(four_floats x)
{
    x = _mm_add_ps(x, _mm_shuffle_ps(x, x, 0xb1));
    return _mm_cvtss_f32(_mm_add_ps(x, _mm_movehl_ps(x, x)));
}

INLINE void transpose_four(four_floats *x)
{
    _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
}

/* A number in half precision. */
INLINE float half_number(uint16_t x)
{
    return _cvtsh_ss(x);
}

#ifdef __AVX512F__

#define WIDTH     16
#define MM(what)  _mm512_##what
#define BITS(x)   _mm512_castps_si512(x)
#define FLOATS(x) _mm512_castsi512_ps(x)
typedef __m512 vector;

typedef __m512i integers;

#define BITS_AND(a, b) _mm512_and_si512(a, b)

typedef __mmask16 lanes_of; /* some lanes */

/* The lanes in which x >= least, or x is no number. */
INLINE lanes_of lanes_from(vector x, float least)
{
    return _mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ);
}

/* x there, else 0. */
INLINE vector only_in(lanes_of some, vector x)
{
    return _mm512_maskz_mov_ps(some, x);
}

/* x where from <= at < to, else y. */
INLINE vector within(vector x, vector y, integers from, integers to, int32_t at)
{
    __m512i place = _mm512_set1_epi32(at);
    __mmask16 seen = _mm512_cmple_epi32_mask(from, place) & _mm512_cmpgt_epi32_mask(to, place);
    return _mm512_mask_mov_ps(y, seen, x);
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
    INLINE four_floats name(const vector *x)                                                                 \
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

/* a's products of pairs of 16-bit integers with b's, added to sum. */
INLINE integers add_products(integers sum, integers a, integers b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* The lower halves of 32-bit numbers, in pairs: a's first. */
INLINE integers paired(integers a, integers b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

/* The lower halves of sixteen numbers in a and sixteen in b, one behind the other. */
INLINE void lower_halves(integers *x, const integers *a, const integers *b)
{
    const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
                                          28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    x[0] = _mm512_permutex2var_epi16(a[0], even, b[0]);
}

/* Pairs of 16-bit integers, a's first: those of the first sixteen, and those of the others. */
INLINE void interleaved(integers *first, integers *others, const integers *a, const integers *b)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                                         38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    first[0] = _mm512_permutex2var_epi16(a[0], low, b[0]);
    others[0] = _mm512_permutex2var_epi16(a[0], _mm512_add_epi16(low, _mm512_set1_epi16(16)), b[0]);
}

/* Thirty-two bytes as 16-bit integers, times 256. */
INLINE void times_256(integers *x, __m256i from)
{
    x[0] = _mm512_slli_epi16(_mm512_cvtepi8_epi16(from), 8);
}

/* Thirty-two bytes, then zeroes. */
INLINE void extended(integers *x, __m256i from)
{
    x[0] = _mm512_zextsi256_si512(from);
}

INLINE void store_halves(int16_t *to, const integers *x)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(x[0]));
}

#define FOUR_LANES(name, combine)                                                                            \
    INLINE void name##_lanes(integers *x, const integers *a, const integers *b, const integers *c,           \
                             const integers *d)                                                              \
    {                                                                                                        \
        integers ab =                                                                                        \
            combine(_mm512_shuffle_i32x4(a[0], b[0], 0x44), _mm512_shuffle_i32x4(a[0], b[0], 0xee));         \
        integers cd =                                                                                        \
            combine(_mm512_shuffle_i32x4(c[0], d[0], 0x44), _mm512_shuffle_i32x4(c[0], d[0], 0xee));         \
        x[0] = combine(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));              \
    }

#else

#define WIDTH     8
#define MM(what)  _mm256_##what
#define BITS(x)   _mm256_castps_si256(x)
#define FLOATS(x) _mm256_castsi256_ps(x)
typedef __m256 vector;

typedef __m256i integers;

#define BITS_AND(a, b) _mm256_and_si256(a, b)

typedef __m256 lanes_of;

INLINE lanes_of lanes_from(vector x, float least)
{
    return _mm256_cmp_ps(x, _mm256_set1_ps(least), _CMP_NLT_UQ);
}

INLINE vector only_in(lanes_of some, vector x)
{
    return _mm256_and_ps(x, some);
}

INLINE vector within(vector x, vector y, integers from, integers to, int32_t at)
{
    __m256i place = _mm256_set1_epi32(at);
    __m256i seen = _mm256_andnot_si256(_mm256_cmpgt_epi32(from, place), _mm256_cmpgt_epi32(to, place));
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(seen));
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
    INLINE four_floats name(const vector *x)                                                                 \
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

INLINE integers add_products(integers sum, integers a, integers b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

INLINE integers paired(integers a, integers b)
{
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
}

INLINE integers lower_halves_of(integers a, integers b)
{
    const __m256i even =
        _mm256_broadcastsi128_si256(_mm_set_epi8(15, 14, 11, 10, 7, 6, 3, 2, 13, 12, 9, 8, 5, 4, 1, 0));
    a = _mm256_shuffle_epi8(a, even);
    b = _mm256_shuffle_epi8(b, even);
    return _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xd8);
}

INLINE void lower_halves(integers *x, const integers *a, const integers *b)
{
    x[0] = lower_halves_of(a[0], a[1]);
    x[1] = lower_halves_of(b[0], b[1]);
}

INLINE void interleaved(integers *first, integers *others, const integers *a, const integers *b)
{
    __m256i low = _mm256_unpacklo_epi16(a[0], b[0]), high = _mm256_unpackhi_epi16(a[0], b[0]);
    first[0] = _mm256_permute2x128_si256(low, high, 0x20);
    first[1] = _mm256_permute2x128_si256(low, high, 0x31);
    low = _mm256_unpacklo_epi16(a[1], b[1]);
    high = _mm256_unpackhi_epi16(a[1], b[1]);
    others[0] = _mm256_permute2x128_si256(low, high, 0x20);
    others[1] = _mm256_permute2x128_si256(low, high, 0x31);
}

INLINE void times_256(integers *x, __m256i from)
{
    x[0] = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(from)), 8);
    x[1] = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(from, 1)), 8);
}

INLINE void extended(integers *x, __m256i from)
{
    x[0] = from;
    x[1] = _mm256_setzero_si256();
}

INLINE void store_halves(int16_t *to, const integers *x)
{
    _mm256_storeu_si256((__m256i *)to, lower_halves_of(x[0], x[1]));
}

#define FOUR_LANES(name, combine)                                                                            \
    INLINE void name##_lanes(integers *x, const integers *a, const integers *b, const integers *c,           \
                             const integers *d)                                                              \
    {                                                                                                        \
        integers a2 = combine(a[0], a[1]), b2 = combine(b[0], b[1]);                                         \
        integers c2 = combine(c[0], c[1]), d2 = combine(d[0], d[1]);                                         \
        x[0] = combine(_mm256_permute2x128_si256(a2, b2, 0x20), _mm256_permute2x128_si256(a2, b2, 0x31));    \
        x[1] = combine(_mm256_permute2x128_si256(c2, d2, 0x20), _mm256_permute2x128_si256(c2, d2, 0x31));    \
    }

#endif

/* 32 or 16 bytes, then zeroes. */
INLINE void load_part(integers *x, const void *from, int32_t bytes)
{
    extended(x, bytes == 32 ? _mm256_loadu_si256((const __m256i *)from)
                            : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)from)));
}

/* Eight dimensions in single precision, then zeroes. */
INLINE void load_eight(const weir__attention_format format, integers *x, const char *from)
{
    __m256i bits;
    if (format == WEIR__ATTENTION_F32)
        bits = _mm256_loadu_si256((const __m256i *)from);
    else if (format == WEIR__ATTENTION_F16)
        bits = _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
    else
        bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16);
    extended(x, bits);
}

/* The bytes of a block, without its scale, as 16-bit integers, times 256. A nibble x of Q4_0, in which 8 is
 * zero, counts as the byte 16 (x - 8); low nibbles are the first sixteen. */
INLINE void block_bytes(const weir__attention_format format, integers *x, const char *from)
{
    if (format == WEIR__ATTENTION_Q8_0) {
        times_256(x, _mm256_loadu_si256((const __m256i *)from));
    } else {
        __m128i pairs = _mm_loadu_si128((const __m128i *)from);
        __m256i both = _mm256_set_m128i(pairs, _mm_slli_epi16(pairs, 4));
        both = _mm256_and_si256(both, _mm256_set1_epi8((char)0xf0));
        times_256(x, _mm256_xor_si256(both, _mm256_set1_epi8((char)0x80)));
    }
}

#endif

/* ---- Sixteen ---- */

#define PARTS     (16 / WIDTH)
#define EACH_PART _Pragma("GCC unroll 4") for (int i = 0; i < PARTS; i++)

typedef struct sixteen {
    vector part[PARTS];
} sixteen;

INLINE sixteen all_of(float x)
{
    sixteen y;
    EACH_PART y.part[i] = MM(set1_ps)(x);
    return y;
}

INLINE float first_of(sixteen x)
{
    float y[16];
    MM(storeu_ps)(y, x.part[0]);
    return y[0];
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

INLINE sixteen root(sixteen x)
{
    EACH_PART x.part[i] = MM(sqrt_ps)(x.part[i]);
    return x;
}

/* x where size >= least or is no number, else 0. */
INLINE sixteen from_least(sixteen x, sixteen size, float least)
{
    EACH_PART x.part[i] = only_in(lanes_from(size.part[i], least), x.part[i]);
    return x;
}

/* A sum with it has no fraction. */
#define ROUNDER 0x1.8p23f

/* x × y rounded to the nearest integer, which is in the lower half of the bits. */
INLINE sixteen whole(sixteen x, sixteen y)
{
    return multiply_add(x, y, all_of(ROUNDER));
}

/* Four sums or maxima of every fourth number: all levels add in the same order. */
REDUCE(fourth_sums, add_ps)
REDUCE(fourth_maxima, max_ps)

INLINE sixteen divide(sixteen a, sixteen b)
{
    EACH_PART a.part[i] = MM(div_ps)(a.part[i], b.part[i]);
    return a;
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

/* 64, 32 or 16 bytes, and zeroes. */
INLINE sixteen_integers load_bytes(const void *from, int32_t bytes)
{
    sixteen_integers x;
    if (bytes == 64) return load_integers(from);
    load_part(x.part, from, bytes);
    return x;
}

INLINE sixteen_integers bits_of(sixteen x)
{
    sixteen_integers y;
    EACH_PART y.part[i] = BITS(x.part[i]);
    return y;
}

INLINE sixteen floats_of(sixteen_integers x)
{
    sixteen y;
    EACH_PART y.part[i] = FLOATS(x.part[i]);
    return y;
}

INLINE sixteen_integers larger_integers(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = MM(max_epi32)(a.part[i], b.part[i]);
    return a;
}

/* The larger of each two 16-bit integers without a sign. */
INLINE sixteen_integers larger_halves(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = MM(max_epu16)(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen_integers add_integers(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = MM(add_epi32)(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen_integers and_integers(sixteen_integers a, sixteen_integers b)
{
    EACH_PART a.part[i] = BITS_AND(a.part[i], b.part[i]);
    return a;
}

INLINE sixteen_integers low_halves(sixteen a, sixteen b)
{
    sixteen_integers y;
    lower_halves(y.part, bits_of(a).part, bits_of(b).part);
    return y;
}

/* The larger half of each, as a number of F16 or BF16. */
INLINE sixteen number_of_halves(const weir__attention_format format, sixteen_integers x)
{
    EACH_PART x.part[i] = MM(max_epu16)(x.part[i], MM(srli_epi32)(x.part[i], 16));
    _Alignas(32) int16_t half[16];
    sixteen y;
    store_halves(half, x.part);
    if (format == WEIR__ATTENTION_F16)
        halves(y.part, half);
    else
        upper_halves(y.part, half);
    return y;
}

/* The nearest integers. */
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

INLINE sixteen_integers multiply_add_pairs(sixteen_integers a, sixteen_integers b, sixteen_integers sum)
{
    EACH_PART sum.part[i] = add_products(sum.part[i], a.part[i], b.part[i]);
    return sum;
}

/* Transposes four vectors a: their lanes 4 i + j go to lanes 4 i of the j-th, with a[0] first. */
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

/* Combines the four parts of 128 bits of each of four vectors: name##_lanes writes one vector with a result
 * for each of them. name##_each combines the sixteen numbers of each of sixteen vectors. All levels combine
 * in the same order. */
#define COMBINE(name, combine)                                                                               \
    FOUR_LANES(name, combine)                                                                                \
    INLINE sixteen_integers name##_each(const sixteen_integers *x)                                           \
    {                                                                                                        \
        sixteen_integers y[4];                                                                               \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)                                                  \
            name##_lanes(y[i].part, x[i].part, x[4 + i].part, x[8 + i].part, x[12 + i].part);                \
        transpose_fours(y);                                                                                  \
        EACH_PART y[0].part[i] =                                                                             \
            combine(combine(y[0].part[i], y[1].part[i]), combine(y[2].part[i], y[3].part[i]));               \
        return y[0];                                                                                         \
    }

INLINE integers add_floats(integers a, integers b)
{
    return BITS(MM(add_ps)(FLOATS(a), FLOATS(b)));
}

FOUR_LANES(sum, MM(add_epi32))
COMBINE(float_sum, add_floats)
COMBINE(largest, MM(max_epi32))
COMBINE(largest_half, MM(max_epu16))

#define LOG2_E 1.44269504f

/* The least exponent: below it, 2^x counts as 0. */
#define LEAST_EXPONENT (-100.0f)

/* 2^x for LEAST_EXPONENT <= x <= 0: a power of two times a polynomial in the rest (Chebyshev's points), with
 * a relative error of 3e-7 at most; exactly 1 for 0. NaN stays NaN. */
INLINE vector power_in_range(vector x)
{
    const vector rounder = MM(set1_ps)(ROUNDER);
    vector whole = MM(add_ps)(x, rounder);
    vector r = MM(sub_ps)(x, MM(sub_ps)(whole, rounder));
    vector p = MM(set1_ps)(1.338130212e-3f);
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(9.666368365e-3f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(5.550381169e-2f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(2.402234972e-1f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(6.931471825e-1f));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(1.0f));
    return FLOATS(MM(add_epi32)(BITS(p), MM(slli_epi32)(BITS(whole), 23)));
}

/* 2^x for x <= 0. */
INLINE vector power_of_two(vector x)
{
    return only_in(lanes_from(x, LEAST_EXPONENT), power_in_range(x));
}

/* 2^(score - max); 0 for -INFINITY. */
INLINE sixteen weight_of(sixteen score, sixteen max)
{
    EACH_PART score.part[i] = power_of_two(MM(sub_ps)(score.part[i], max.part[i]));
    return score;
}

/* The weight of a score; *product: the weight times the factor, and 0 where the weight is 0, whatever the
 * factor is. */
INLINE sixteen weight_and_product(sixteen score, sixteen max, sixteen factor, sixteen *product)
{
    EACH_PART
    {
        vector x = MM(sub_ps)(score.part[i], max.part[i]), weight = power_in_range(x);
        lanes_of some = lanes_from(x, LEAST_EXPONENT);
        product->part[i] = only_in(some, MM(mul_ps)(weight, factor.part[i]));
        score.part[i] = only_in(some, weight);
    }
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

/* The bytes of `size` dimensions of a cell. */
INLINE int32_t bytes_of(weir__attention_format format, int32_t size)
{
    switch (format) {
    case WEIR__ATTENTION_F32: return 4 * size;
    case WEIR__ATTENTION_Q8_0: return size / 32 * 34;
    case WEIR__ATTENTION_Q4_0: return size / 32 * 18;
    default: return 2 * size;
    }
}

/* Sixteen dimensions of a cell of `size` from d on, d a multiple of 16; zeroes behind the last. The format is
 * none of blocks. */
INLINE sixteen dimensions(const weir__attention_format format, const int32_t size, const char *cell,
                          int32_t d)
{
    sixteen x;
    if (d + 8 == size) {
        sixteen_integers eight;
        load_eight(format, eight.part, cell + bytes_of(format, d));
        return floats_of(eight);
    }
    if (format == WEIR__ATTENTION_F32) return load((const float *)cell + d);
    if (format == WEIR__ATTENTION_F16)
        halves(x.part, cell + bytes_of(format, d));
    else
        upper_halves(x.part, cell + bytes_of(format, d));
    return x;
}

/* The block of a cell in which dimension d is, as 16-bit integers: its bytes times a factor in units of
 * 1 / 128. */
INLINE sixteen_integers scaled_block(const weir__attention_format format, const char *cell, int32_t d,
                                     int16_t factor)
{
    sixteen_integers x;
    block_bytes(format, x.part, cell + bytes_of(format, d) + 2);
    EACH_PART x.part[i] = MM(mulhrs_epi16)(x.part[i], MM(set1_epi16)(factor));
    return x;
}

#endif
