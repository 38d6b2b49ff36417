/* vector_neon.h: what attention_vector.h needs of a level, on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_VECTOR_NEON_H
#define WEIR_KERNELS_VECTOR_NEON_H

#include "kernels/attention.h"
#include "kernels/neon.h"

#define WORDS(x)    vreinterpretq_s16_s32(x)
#define OF_WORDS(x) vreinterpretq_s32_s16(x)

#define BITS_AND(a, b) vandq_s32(a, b)

typedef uint32x4_t lanes_of;

INLINE lanes_of lanes_from(vector x, float least)
{
    return vmvnq_u32(vcltq_f32(x, vdupq_n_f32(least)));
}

INLINE vector only_in(lanes_of some, vector x)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), some));
}

INLINE vector within(vector x, vector y, integers from, integers to, int32_t at)
{
    integers place = vdupq_n_s32(at);
    return vbslq_f32(vandq_u32(vcleq_s32(from, place), vcgtq_s32(to, place)), x, y);
}

INLINE vector size_of_each(vector x)
{
    return vabsq_f32(x);
}

INLINE vector with_sign(vector size, vector x)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), x, size);
}

/* ---- Four floats ---- */

typedef vector four_floats;
#define FOUR(what) neon_##what

#define REDUCE(name, operation)                                                                              \
    INLINE four_floats name(const vector *x)                                                                 \
    {                                                                                                        \
        return MM(operation)(MM(operation)(x[0], x[2]), MM(operation)(x[1], x[3]));                          \
    }

INLINE float largest_of_four(four_floats x)
{
    x = MM(max_ps)(x, vrev64q_f32(x));
    return vgetq_lane_f32(MM(max_ps)(x, vextq_f32(x, x, 2)), 0);
}

INLINE float sum_of_four(four_floats x)
{
    x = vaddq_f32(x, vrev64q_f32(x));
    return vgetq_lane_f32(vaddq_f32(x, vextq_f32(x, x, 2)), 0);
}

INLINE void transpose_four(four_floats *x)
{
    float32x4x2_t ab = vtrnq_f32(x[0], x[1]), cd = vtrnq_f32(x[2], x[3]);
    x[0] = vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0]));
    x[1] = vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1]));
    x[2] = vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0]));
    x[3] = vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1]));
}

/* ---- Numbers of 16 bits and bytes ---- */

INLINE float half_number(uint16_t x)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x))), 0);
}

INLINE void halves(vector *x, const void *from)
{
    for (int i = 0; i < 4; i++) x[i] = four_halves((const char *)from + 8 * i);
}

INLINE void upper_halves(vector *x, const void *from)
{
    for (int i = 0; i < 4; i++) x[i] = four_upper_halves((const char *)from + 8 * i);
}

INLINE integers add_products(integers sum, integers a, integers b)
{
    integers low = vmull_s16(vget_low_s16(WORDS(a)), vget_low_s16(WORDS(b)));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(WORDS(a), WORDS(b))));
}

INLINE integers paired(integers a, integers b)
{
    return vsliq_n_s32(a, b, 16);
}

INLINE integers lower_halves_of(integers a, integers b)
{
    return OF_WORDS(vuzp1q_s16(WORDS(a), WORDS(b)));
}

INLINE void lower_halves(integers *x, const integers *a, const integers *b)
{
    for (int i = 0; i < 2; i++) x[i] = lower_halves_of(a[2 * i], a[2 * i + 1]);
    for (int i = 0; i < 2; i++) x[2 + i] = lower_halves_of(b[2 * i], b[2 * i + 1]);
}

INLINE void interleaved(integers *first, integers *others, const integers *a, const integers *b)
{
    for (int i = 0; i < 4; i++) {
        integers *to = i < 2 ? first + 2 * i : others + 2 * i - 4;
        to[0] = OF_WORDS(vzip1q_s16(WORDS(a[i]), WORDS(b[i])));
        to[1] = OF_WORDS(vzip2q_s16(WORDS(a[i]), WORDS(b[i])));
    }
}

INLINE void store_halves(int16_t *to, const integers *x)
{
    vst1q_s16(to, WORDS(lower_halves_of(x[0], x[1])));
    vst1q_s16(to + 8, WORDS(lower_halves_of(x[2], x[3])));
}

INLINE void load_part(integers *x, const void *from, int32_t bytes)
{
    for (int i = 0; i < 4; i++) x[i] = vdupq_n_s32(0);
    memcpy(x, from, bytes == 32 ? 32 : 16);
}

INLINE void load_eight(const weir__attention_format format, integers *x, const char *from)
{
    for (int i = 0; i < 4; i++) x[i] = vdupq_n_s32(0);
    for (int i = 0; i < 2; i++)
        x[i] = BITS(format == WEIR__ATTENTION_F32   ? vld1q_f32((const float *)from + 4 * i)
                    : format == WEIR__ATTENTION_F16 ? four_halves(from + 8 * i)
                                                    : four_upper_halves(from + 8 * i));
}

INLINE void block_bytes(const weir__attention_format format, integers *x, const char *from)
{
    uint8x16_t bytes[2], zero = vdupq_n_u8(0);
    if (format == WEIR__ATTENTION_Q8_0) {
        memcpy(bytes, from, sizeof bytes);
    } else {
        uint8x16_t pairs = vld1q_u8((const uint8_t *)from);
        bytes[0] = veorq_u8(vshlq_n_u8(pairs, 4), vdupq_n_u8(0x80));
        bytes[1] = veorq_u8(vandq_u8(pairs, vdupq_n_u8(0xf0)), vdupq_n_u8(0x80));
    }
    for (int i = 0; i < 2; i++) {
        x[2 * i] = vreinterpretq_s32_u8(vzip1q_u8(zero, bytes[i]));
        x[2 * i + 1] = vreinterpretq_s32_u8(vzip2q_u8(zero, bytes[i]));
    }
}

#define FOUR_LANES(name, combine)                                                                            \
    INLINE void name##_lanes(integers *x, const integers *a, const integers *b, const integers *c,           \
                             const integers *d)                                                              \
    {                                                                                                        \
        const integers *from[4] = {a, b, c, d};                                                              \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) x[i] =                                           \
            combine(combine(from[i][0], from[i][1]), combine(from[i][2], from[i][3]));                       \
    }

#endif
