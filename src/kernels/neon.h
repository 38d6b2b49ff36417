/* neon.h: vectors of four floats or integers on ARM, with the names of MM(). They round, compare and convert
 * as x86-64's do, so that results are the same to the bit on both.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_NEON_H
#define WEIR_KERNELS_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "kernels/inline.h"

#define WIDTH     4
#define MM(what)  neon_##what
#define BITS(x)   vreinterpretq_s32_f32(x)
#define FLOATS(x) vreinterpretq_f32_s32(x)
typedef float32x4_t vector;
typedef int32x4_t integers;

/* An operation that is one instruction. */
#define OPERATION_2(name, type, instruction)                                                                 \
    INLINE type name(type a, type b)                                                                         \
    {                                                                                                        \
        return instruction(a, b);                                                                            \
    }
OPERATION_2(neon_add_ps, vector, vaddq_f32)
OPERATION_2(neon_sub_ps, vector, vsubq_f32)
OPERATION_2(neon_mul_ps, vector, vmulq_f32)
OPERATION_2(neon_div_ps, vector, vdivq_f32)
OPERATION_2(neon_add_epi32, integers, vaddq_s32)
OPERATION_2(neon_sub_epi32, integers, vsubq_s32)
OPERATION_2(neon_max_epi32, integers, vmaxq_s32)
OPERATION_2(neon_min_epi32, integers, vminq_s32)
OPERATION_2(neon_sllv_epi32, integers, vshlq_s32)

INLINE vector neon_setzero_ps(void)
{
    return vdupq_n_f32(0.0f);
}

INLINE vector neon_set1_ps(float x)
{
    return vdupq_n_f32(x);
}

INLINE vector neon_loadu_ps(const float *from)
{
    return vld1q_f32(from);
}

INLINE void neon_storeu_ps(float *to, vector x)
{
    vst1q_f32(to, x);
}

INLINE vector neon_fmadd_ps(vector a, vector b, vector sum)
{
    return vfmaq_f32(sum, a, b);
}

/* The larger number; b if one of them is NaN. */
INLINE vector neon_max_ps(vector a, vector b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

INLINE vector neon_sqrt_ps(vector x)
{
    return vsqrtq_f32(x);
}

INLINE integers neon_set1_epi32(int32_t x)
{
    return vdupq_n_s32(x);
}

INLINE integers neon_set1_epi16(int16_t x)
{
    return vreinterpretq_s32_s16(vdupq_n_s16(x));
}

INLINE integers neon_slli_epi32(integers x, int n)
{
    return vshlq_s32(x, vdupq_n_s32(n));
}

INLINE integers neon_srli_epi32(integers x, int n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-n)));
}

INLINE integers neon_max_epu16(integers a, integers b)
{
    return vreinterpretq_s32_u16(vmaxq_u16(vreinterpretq_u16_s32(a), vreinterpretq_u16_s32(b)));
}

/* (a × b + 2^14) / 2^15, rounded down; never both -2^15. */
INLINE integers neon_mulhrs_epi16(integers a, integers b)
{
    return vreinterpretq_s32_s16(vqrdmulhq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}

/* The nearest integers, ties to even; -2^31 if there is none. */
INLINE integers neon_cvtps_epi32(vector x)
{
    uint32x4_t fits = vcltq_f32(vabsq_f32(x), vdupq_n_f32(0x1p31f));
    return vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(INT32_MIN));
}

INLINE vector neon_cvtepi32_ps(integers x)
{
    return vcvtq_f32_s32(x);
}

INLINE integers neon_unpacklo_epi32(integers a, integers b)
{
    return vzip1q_s32(a, b);
}

INLINE integers neon_unpackhi_epi32(integers a, integers b)
{
    return vzip2q_s32(a, b);
}

INLINE integers neon_unpacklo_epi64(integers a, integers b)
{
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

INLINE integers neon_unpackhi_epi64(integers a, integers b)
{
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

/* Half precision, rounded to the nearest, ties to even. */
#define TO_NEAREST 0
INLINE float16x4_t neon_cvtps_ph(vector x, int rounding)
{
    (void)rounding;
    return vcvt_f16_f32(x);
}

INLINE vector neon_cvtph_ps(float16x4_t x)
{
    return vcvt_f32_f16(x);
}

/* Four numbers in half precision, or as BF16. */
INLINE vector four_halves(const void *from)
{
    uint16x4_t bits;
    memcpy(&bits, from, sizeof bits);
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}

INLINE vector four_upper_halves(const void *from)
{
    uint16x4_t bits;
    memcpy(&bits, from, sizeof bits);
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

#endif
