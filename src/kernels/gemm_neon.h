/* gemm_neon.h: quantized weights on ARM, for all of its levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A unit's weights are unpacked once for all rows of a tile, as signed bytes without their offset. Products
 * of integers are exact, and the rest is computed as on x86-64, so results are the same to the bit. Levels
 * differ in the instruction that multiplies bytes: smmla with i8mm, sdot with dotprod, else smull. */
#ifndef WEIR_KERNELS_GEMM_NEON_H
#define WEIR_KERNELS_GEMM_NEON_H

#define LANES 4
#include "kernels/gemm_q8.h"

#include "kernels/gemm_codes.h"
#include "kernels/gemm_pass.h"
#include "kernels/gemm_scales.h"

#define VECTORS (WEIR__PANEL_ROWS / LANES)

/* Rows of activations at a time: their sums fill sixteen registers. */
#define GROUP 4

/* Bytes ahead to fetch. */
#define AHEAD 8704

/* ---- Activations ---- */

INLINE float largest(const float *x)
{
    vector max = vabsq_f32(vld1q_f32(x));
    for (int i = LANES; i < WEIR__UNIT; i += LANES) max = MM(max_ps)(max, vabsq_f32(vld1q_f32(x + i)));
    max = MM(max_ps)(max, vextq_f32(max, max, 2));
    return vgetq_lane_f32(MM(max_ps)(max, vrev64q_f32(max)), 0);
}

INLINE bool has_nan(const float *x)
{
    uint32x4_t numbers = vdupq_n_u32(UINT32_MAX);
    for (int i = 0; i < WEIR__UNIT; i += LANES) {
        vector some = vld1q_f32(x + i);
        numbers = vandq_u32(numbers, vceqq_f32(some, some));
    }
    return vminvq_u32(numbers) == 0;
}

INLINE sixteen_bytes to_bytes(const float *x, float inverse)
{
    integers q[4];
    for (int i = 0; i < 4; i++) q[i] = MM(cvtps_epi32)(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse));
    int16x8_t low = vqmovn_high_s32(vqmovn_s32(q[0]), q[1]), high = vqmovn_high_s32(vqmovn_s32(q[2]), q[3]);
    return no_least(vqmovn_high_s16(vqmovn_s16(low), high));
}

INLINE void divide(batch *b, int at)
{
    vector max = vld1q_f32(b->max + at), most = vdupq_n_f32(127.0f);
    vst1q_f32(b->inverse + at, vbslq_f32(vceqzq_f32(max), vdupq_n_f32(0.0f), vdivq_f32(most, max)));
    vst1q_f32(b->scale + at, MM(cvtph_ps)(MM(cvtps_ph)(vdivq_f32(max, most), TO_NEAREST)));
}

INLINE void sum_up(batch *b, int at)
{
    vector sum = vcvtq_f32_s32(vnegq_s32(vld1q_s32(b->minus + at)));
    vst1q_f32(b->sum + at, vmulq_f32(vld1q_f32(b->scale + at), sum));
}

/* ---- Weights ---- */

/* One unit of sixteen rows, unpacked: four columns of four rows in each vector. */
typedef struct weights {
    int8x16_t values[WEIR__UNIT / 4][VECTORS];
    vector scale[2][VECTORS]; /* of each part */
    vector min[2][VECTORS];   /* likewise: added for each activation's sum */
} weights;

/* All ones in each byte whose bit of the plane is set. */
INLINE uint8x16_t plane(const unsigned char *at)
{
    const uint8x16_t each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return vtstq_u8(vcombine_u8(vdup_n_u8(at[0]), vdup_n_u8(at[1])), each);
}

/* Looks indices up one by one; the values come in the order of w->values. */
INLINE void look_up_codes(const weir__panel_format format, const unsigned char *unit, unsigned char *values)
{
    const weir__codebook *book = weir__codebook_of(format);
    for (int at = 0; at < n_codes(format); at++) {
        unsigned code = unit[at], row = (unsigned)at % WEIR__PANEL_ROWS, q = (unsigned)at / WEIR__PANEL_ROWS;
        int first = at / WEIR__PANEL_ROWS * WEIR__PANEL_ROWS;
        for (int bit = 0; bit < n_high_bits(format); bit++)
            code |= (code_plane(format, unit, bit, first) >> row & 1) << (8 + bit);
        if (!has_octets(format)) {
            memcpy(values + 64 * q + 4 * row, &book->quartets[code], 4);
            continue;
        }
        uint64_t octet = book->octets[code];
        if (weir__panel_has_shift(format) &&
            (code_plane(format, unit, n_high_bits(format), first) >> row & 1) != 0)
            octet -= 0x0202020202020202u; /* no byte is less */
        memcpy(values + 128 * q + 4 * row, &octet, 4);
        memcpy(values + 128 * q + 64 + 4 * row, (const char *)&octet + 4, 4);
    }
}

/* Vector v of columns, in vector h of the rows, as it is stored. */
INLINE uint8x16_t value(const weir__panel_format format, const unsigned char *unit, const int v, const int h)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const unsigned char *planes = unit + l->scales_at - l->planes * WEIR__PANEL_PLANE + 8 * v + 2 * h;
    uint8x16_t w;
    switch (l->values) {
    case WEIR__VALUES_NIBBLES:
        w = vld1q_u8(unit + 64 * (v % 4) + 16 * h);
        w = v >= 4 ? vshrq_n_u8(w, 4) : vandq_u8(w, vdupq_n_u8(15));
        for (int p = 0; p < l->planes; p++)
            w = vorrq_u8(w, vandq_u8(plane(planes + p * WEIR__PANEL_PLANE), vdupq_n_u8((uint8_t)(16 << p))));
        break;
    case WEIR__VALUES_PAIRS:
        w = vld1q_u8(unit + 64 * (v % 2) + 16 * h);
        w = vandq_u8(vshlq_u8(w, vdupq_n_s8((int8_t)(-(v / 2) * 2))), vdupq_n_u8(3));
        if (l->planes > 0) w = vorrq_u8(w, vandq_u8(plane(planes), vdupq_n_u8(4)));
        break;
    case WEIR__VALUES_PLANES: w = vandq_u8(plane(planes), vdupq_n_u8(2)); break;
    default: w = vld1q_u8(unit + 64 * v + 16 * h); break;
    }
    return l->table != NULL ? vqtbl1q_u8(vld1q_u8(l->table), w) : w;
}

INLINE void unpack(const weir__panel_format format, const unsigned char *head, const unsigned char *unit,
                   weights *w)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const unsigned char *signs = unit + l->scales_at - WEIR__PANEL_PLANE;
    unsigned char codes[WEIR__PANEL_ROWS * WEIR__UNIT];
    if (weir__panel_has_codes(format)) look_up_codes(format, unit, codes);
#pragma GCC unroll 8
    for (int v = 0; v < WEIR__UNIT / 4; v++)
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) {
            uint8x16_t x =
                weir__panel_has_codes(format) ? vld1q_u8(codes + 64 * v + 16 * h) : value(format, unit, v, h);
            if (weir__panel_has_signs(format)) {
                uint8x16_t minus = plane(signs + 8 * v + 2 * h);
                x = vsubq_u8(veorq_u8(x, minus), minus);
            } else if (l->offset >= 0) {
                x = vsubq_u8(x, vdupq_n_u8((uint8_t)(1 << l->offset)));
            }
            w->values[v][h] = vreinterpretq_s8_u8(x);
        }
#pragma GCC unroll 2
    for (int part = 0; part < l->parts; part++)
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++)
            unpack_scale(format, head, unit, part, h, &w->scale[part][h], &w->min[part][h]);
}

/* ---- One unit ---- */

/* The products of the vectors [from, to) of columns and rows [at, at + n) of activations. */
#ifdef __ARM_FEATURE_MATMUL_INT8

/* Eight columns of two rows of weights and of activations at a time; an odd row is multiplied twice. */
INLINE void multiply_columns(const int n, const weights *w, const weir__activations *x, int at,
                             const int from, const int to, integers (*sums)[VECTORS])
{
    integers acc[GROUP / 2][VECTORS][2];
#pragma GCC unroll 2
    for (int r = 0; r < (n + 1) / 2; r++)
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) acc[r][h][0] = acc[r][h][1] = vdupq_n_s32(0);
    for (int v = from; v < to; v += 2) {
        int8x16_t q[GROUP / 2];
#pragma GCC unroll 2
        for (int r = 0; r < (n + 1) / 2; r++) {
            const int8_t *first = x->q[at + 2 * r], *second = x->q[at + (2 * r + 1 < n ? 2 * r + 1 : 2 * r)];
            q[r] = vcombine_s8(vld1_s8(first + 4 * v), vld1_s8(second + 4 * v));
        }
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) {
            integers a = vreinterpretq_s32_s8(w->values[v][h]), b = vreinterpretq_s32_s8(w->values[v + 1][h]);
            int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(a, b));
            int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(a, b));
#pragma GCC unroll 2
            for (int r = 0; r < (n + 1) / 2; r++) {
                acc[r][h][0] = vmmlaq_s32(acc[r][h][0], low, q[r]);
                acc[r][h][1] = vmmlaq_s32(acc[r][h][1], high, q[r]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n; r++)
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) {
            const integers *both = acc[r / 2][h];
            sums[r][h] = r % 2 == 0 ? vuzp1q_s32(both[0], both[1]) : vuzp2q_s32(both[0], both[1]);
        }
}

#else

/* Four columns of each row, added to its sum. */
INLINE integers add_four(integers sum, int8x16_t w, int8x16_t q)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, w, q);
#else
    /* Two products are 2 × 128 × 127 at most. */
    return vpadalq_s16(sum, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(q)), vmull_high_s8(w, q)));
#endif
}

INLINE void multiply_columns(const int n, const weights *w, const weir__activations *x, int at,
                             const int from, const int to, integers (*sums)[VECTORS])
{
#pragma GCC unroll 4
    for (int r = 0; r < n; r++)
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) sums[r][h] = vdupq_n_s32(0);
    for (int v = from; v < to; v++)
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            int32_t four;
            memcpy(&four, &x->q[at + r][4 * v], sizeof four);
#pragma GCC unroll 4
            for (int h = 0; h < VECTORS; h++)
                sums[r][h] = add_four(sums[r][h], w->values[v][h], vreinterpretq_s8_s32(vdupq_n_s32(four)));
        }
}

#endif

/* Adds one unit's products for rows [at, at + n), n <= GROUP. */
INLINE void multiply_rows(const int n, const int parts, const bool has_min, const weights *w,
                          const weir__activations *x, int at, vector (*sums)[VECTORS])
{
    const int columns = WEIR__UNIT / 4 / parts;
#pragma GCC unroll 2
    for (int part = 0; part < parts; part++) {
        integers products[GROUP][VECTORS];
        multiply_columns(n, w, x, at, part * columns, (part + 1) * columns, products);
#pragma GCC unroll 4
        for (int r = 0; r < n; r++)
#pragma GCC unroll 4
            for (int h = 0; h < VECTORS; h++) {
                vector *sum = &sums[at + r][h], scale = vmulq_n_f32(w->scale[part][h], x->scale[at + r]);
                *sum = vfmaq_f32(*sum, vcvtq_f32_s32(products[r][h]), scale);
                if (has_min)
                    *sum = vfmaq_n_f32(*sum, w->min[part][h], weir__activations_sum(x, at + r, parts, part));
            }
    }
}

/* The rows of a tile, GROUP at a time. */
INLINE void multiply_unit(const int parts, const bool has_min, const weights *w, const weir__activations *x,
                          int rows, vector (*sums)[VECTORS])
{
    int at = 0;
    for (; at + GROUP <= rows; at += GROUP) multiply_rows(GROUP, parts, has_min, w, x, at, sums);
    switch (rows - at) {
    case 1: multiply_rows(1, parts, has_min, w, x, at, sums); break;
    case 2: multiply_rows(2, parts, has_min, w, x, at, sums); break;
    case 3: multiply_rows(3, parts, has_min, w, x, at, sums); break;
    default: break;
    }
}

/* ---- Functions for each format, and for its parts and minimums ---- */

typedef void (*unpacker)(const unsigned char *head, const unsigned char *unit, weights *w);
typedef void (*multiplier)(const weights *w, const weir__activations *x, int rows, vector (*sums)[VECTORS]);

#define DEFINE(format)                                                                                       \
    static void unpack_##format(const unsigned char *head, const unsigned char *unit, weights *w)            \
    {                                                                                                        \
        unpack(WEIR__PANEL_##format, head, unit, w);                                                         \
    }
WEIR__PANEL_QUANTIZED(DEFINE)

#define LIST(format) [WEIR__PANEL_##format] = unpack_##format,
static const unpacker unpackers[WEIR__PANEL_N_FORMATS] = {WEIR__PANEL_QUANTIZED(LIST)};

#define MULTIPLIER(parts, has_min)                                                                           \
    static void multiply_##parts##_##has_min(const weights *w, const weir__activations *x, int rows,         \
                                             vector(*sums)[VECTORS])                                         \
    {                                                                                                        \
        multiply_unit(parts, has_min, w, x, rows, sums);                                                     \
    }
MULTIPLIER(1, 0)
MULTIPLIER(1, 1)
MULTIPLIER(2, 0)
MULTIPLIER(2, 1)
static const multiplier multipliers[2][2] = {{multiply_1_0, multiply_1_1}, {multiply_2_0, multiply_2_1}};

/* ---- Tiles ---- */

static void multiply_tile(weir__panel_format format, int rows, const unsigned char *panel,
                          const weir__activations *x, int64_t n_blocks, float *out, size_t stride)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int n_units = l->columns / WEIR__UNIT;
    const unpacker unpack_unit = unpackers[format];
    const multiplier multiply_all = multipliers[l->parts - 1][weir__panel_has_min(format)];
    vector sums[WEIR__TILE][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < VECTORS; h++) sums[r][h] = vdupq_n_f32(0.0f);
    for (int64_t b = 0; b < n_blocks; b++) {
        const unsigned char *unit = panel + l->head_bytes;
        for (int u = 0; u < n_units; u++, unit += l->unit_bytes, x++) {
            weights w;
            for (int i = 0; i < l->unit_bytes; i += 64) __builtin_prefetch(unit + AHEAD + i);
            unpack_unit(panel, unit, &w);
            multiply_all(&w, x, rows, sums);
        }
        panel = unit;
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < VECTORS; h++) vst1q_f32(out + (size_t)r * stride + h * LANES, sums[r][h]);
}

#endif
