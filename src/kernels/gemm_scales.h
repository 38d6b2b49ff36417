/* gemm_scales.h: scales and minimums of a unit's rows, as many as a level's vectors hold.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All levels compute them in the same way, so their results are the same to the bit. */
#ifndef WEIR_KERNELS_GEMM_SCALES_H
#define WEIR_KERNELS_GEMM_SCALES_H

#include "kernels/inline.h"
#include "kernels/panel.h"

/* ---- Vectors of a level ---- */

#ifdef __ARM_NEON

#include "kernels/neon.h"

/* One byte of each row. */
typedef uint8x8_t rows_bytes;

INLINE rows_bytes row_bytes(const unsigned char *at)
{
    uint32_t four;
    memcpy(&four, at, sizeof four);
    return vreinterpret_u8_u32(vdup_n_u32(four));
}

INLINE integers neon_cvtepu8_epi32(rows_bytes bytes)
{
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

INLINE integers neon_cvtepi8_epi32(rows_bytes bytes)
{
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))));
}

INLINE rows_bytes nibble_of(rows_bytes bytes, const int shift)
{
    return shift == 0 ? vand_u8(bytes, vdup_n_u8(15)) : vshr_n_u8(bytes, 4);
}

INLINE vector halves(const unsigned char *at)
{
    return four_halves(at);
}

/* Floats of eight bits, times 128 as half precision. */
INLINE vector floats8(const unsigned char *at)
{
    uint16x4_t half = vshl_n_u16(vget_low_u16(vmovl_u8(row_bytes(at))), 7);
    return vmulq_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), vdupq_n_f32(128.0f));
}

#else

#include <immintrin.h>

typedef __m128i rows_bytes;

/* Low or high nibbles. */
INLINE rows_bytes nibble_of(rows_bytes bytes, const int shift)
{
    return _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8(15));
}

#if LANES == 16

#define MM(what)  _mm512_##what
#define FLOATS(x) _mm512_castsi512_ps(x)
typedef __m512 vector;
typedef __m512i integers;

INLINE rows_bytes row_bytes(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

INLINE vector halves(const unsigned char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

INLINE vector floats8(const unsigned char *at)
{
    __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(row_bytes(at)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(128.0f));
}

#else

#define MM(what)  _mm256_##what
#define FLOATS(x) _mm256_castsi256_ps(x)
typedef __m256 vector;
typedef __m256i integers;

INLINE rows_bytes row_bytes(const unsigned char *at)
{
    return _mm_loadl_epi64((const __m128i *)at);
}

INLINE vector halves(const unsigned char *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

INLINE vector floats8(const unsigned char *at)
{
    __m128i half = _mm_slli_epi16(_mm_cvtepu8_epi16(row_bytes(at)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(128.0f));
}

#endif

#endif

/* ---- One number of each row ---- */

INLINE vector numbers(rows_bytes bytes)
{
    return MM(cvtepi32_ps)(MM(cvtepu8_epi32)(bytes));
}

INLINE vector signed_bytes(const unsigned char *at)
{
    return MM(cvtepi32_ps)(MM(cvtepi8_epi32)(row_bytes(at)));
}

/* Half of two to the power of each exponent; the least two are subnormal numbers. */
INLINE vector half_exponents(const unsigned char *at)
{
    const integers one = MM(set1_epi32)(1);
    integers e = MM(cvtepu8_epi32)(row_bytes(at)), normal = MM(slli_epi32)(MM(sub_epi32)(e, one), 23);
    integers least = MM(sllv_epi32)(MM(set1_epi32)(0x00200000), MM(min_epi32)(e, one));
    return FLOATS(MM(max_epi32)(normal, least));
}

INLINE vector nibbles(const unsigned char *at, const int shift)
{
    return numbers(nibble_of(row_bytes(at), shift));
}

/* Nibbles of vector h of the rows, where rows r and r + 8 share a byte. */
INLINE vector shared_nibbles(const unsigned char *at, const int h)
{
#if LANES == 16
    __m128i low = _mm_loadl_epi64((const __m128i *)at), high = _mm_srli_epi16(low, 4);
    (void)h;
    return numbers(_mm_and_si128(_mm_unpacklo_epi64(low, high), _mm_set1_epi8(15)));
#else
    const int vectors = 8 / LANES; /* of eight rows */
    return nibbles(at + h % vectors * LANES, h / vectors * 4);
#endif
}

/* factor × (2 n + 1) × head. */
INLINE vector odd(vector n, vector head, float factor)
{
    vector size = MM(fmadd_ps)(n, MM(set1_ps)(2.0f * factor), MM(set1_ps)(factor));
    return MM(mul_ps)(head, size);
}

/* ---- A part of a unit ---- */

/* Unpacks the scales, and the minimums if there are any, of vector h of the rows. */
INLINE void unpack_scale(const weir__panel_format format, const unsigned char *head,
                         const unsigned char *unit, const int part, const int h, vector *scale, vector *min)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const unsigned char *scales = unit + l->scales_at, *halves_at = scales + 2 * LANES * h;
    const unsigned char *at = scales + WEIR__PANEL_ROWS * part + LANES * h;
    const unsigned char *head_at = head + 2 * LANES * h, *head_min = head_at + WEIR__PANEL_HALVES;
    const vector zero = MM(setzero_ps)();
    switch (l->scales) {
    case WEIR__SCALES_HALF_MIN:
        *scale = halves(halves_at);
        *min = halves(halves_at + WEIR__PANEL_HALVES);
        break;
    case WEIR__SCALES_HALF: *scale = halves(halves_at); break;
    case WEIR__SCALES_EXPONENT: *scale = half_exponents(at); break;
    case WEIR__SCALES_HEAD: *scale = halves(head_at); break;
    case WEIR__SCALES_BYTE: *scale = MM(mul_ps)(halves(head_at), signed_bytes(at)); break;
    case WEIR__SCALES_BYTE_MIN:
        *scale = MM(mul_ps)(halves(head_at), numbers(row_bytes(at)));
        *min = MM(mul_ps)(MM(sub_ps)(zero, halves(head_min)), numbers(row_bytes(at + WEIR__PANEL_ROWS)));
        break;
    case WEIR__SCALES_NIBBLE_MIN:
        *scale = MM(mul_ps)(halves(head_at), nibbles(at, 0));
        *min = MM(mul_ps)(MM(sub_ps)(zero, halves(head_min)), nibbles(at, 4));
        break;
    case WEIR__SCALES_ODD:
        *scale = odd(l->parts == 2 ? nibbles(scales + LANES * h, 4 * part) : shared_nibbles(scales, h),
                     halves(head_at), l->factor);
        break;
    case WEIR__SCALES_FLOAT8: *scale = floats8(at); break;
    case WEIR__SCALES_NONE: break;
    }
}

#endif
