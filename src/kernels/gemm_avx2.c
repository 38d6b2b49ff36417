/* gemm_avx2.c: quantized weights on processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0
 *
 * vpmaddubsw multiplies unsigned bytes with signed ones and adds two neighbours in sixteen bits, which end at
 * 32767. Sixteen products of weights of four bits stay below that, eight of five, four of six; this many
 * are added up before they are widened. Weights of eight bits are multiplied nibble by nibble. So integer
 * products are exact, and as the rest is computed as in gemm_avx512.c, the results are the same to the
 * bit. */
#define LANES 8
#include "kernels/gemm_q8.h"

#include <immintrin.h>
#include <string.h>

/* Rows of activations at a time: with both halves of sixteen rows of weights, their sums fill eight
 * registers. */
#define GROUP 4

/* Bytes ahead to fetch: sixteen units of Q8_0. */
#define AHEAD 8704

/* Activations that are passed over again and again for each panel; they should stay in the second-level
 * cache. */
#define PASS_BYTES (192 * 1024)

/* ---- Activations ---- */

INLINE float largest(const float *x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 max = _mm256_andnot_ps(sign, _mm256_loadu_ps(x));
    for (int i = 8; i < WEIR__UNIT; i += 8)
        max = _mm256_max_ps(max, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

/* True if one of a unit's numbers is none. */
INLINE bool has_nan(const float *x)
{
    __m256 odd = _mm256_setzero_ps();
    for (int i = 0; i < WEIR__UNIT; i += 16)
        odd = _mm256_or_ps(odd,
                           _mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + 8), _CMP_UNORD_Q));
    return _mm256_movemask_ps(odd) != 0;
}

/* Sixteen numbers as bytes. */
INLINE __m128i to_bytes(const float *x, float inverse)
{
    __m256 factor = _mm256_set1_ps(inverse);
    __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
    __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), factor));
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

INLINE void divide(batch *b, int at)
{
    __m256 max = _mm256_load_ps(b->max + at), most = _mm256_set1_ps(127.0f);
    __m256 some = _mm256_cmp_ps(max, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    _mm256_store_ps(b->inverse + at, _mm256_and_ps(_mm256_div_ps(most, max), some));
    __m128i scale = _mm256_cvtps_ph(_mm256_div_ps(max, most), _MM_FROUND_TO_NEAREST_INT);
    _mm256_store_ps(b->scale + at, _mm256_cvtph_ps(scale));
}

INLINE void sum_up(batch *b, int at)
{
    __m256i minus = _mm256_load_si256((const __m256i *)(b->minus + at));
    __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), minus));
    _mm256_store_ps(b->sum + at, _mm256_mul_ps(_mm256_load_ps(b->scale + at), sum));
}

/* ---- Weights ---- */

/* A unit's 32 columns are multiplied pair by pair: two vectors of four columns each. Mostly these are the low
 * and the high nibbles of the same bytes. Where low and high nibbles have factors or scales of their own,
 * they make two lists of pairs, and a pair are those of neighbouring bytes. */
typedef struct scheme {
    int lists;
    int pairs;   /* of a list */
    int run;     /* pairs whose products fit into sixteen bits together */
    bool scales; /* each list has its own; else the second's factor is 16 */
    bool min;
    int offset; /* by how many bits it shifts the sum of the activations; -1: there is none */
} scheme;

static const scheme schemes[WEIR__PANEL_N_FORMATS] = {
    [WEIR__PANEL_Q8_0] = {2, 4, 4, false, false, 7},  [WEIR__PANEL_Q4_0] = {1, 4, 4, false, false, 3},
    [WEIR__PANEL_Q4_1] = {1, 4, 4, false, true, -1},  [WEIR__PANEL_Q5_0] = {1, 4, 2, false, false, 4},
    [WEIR__PANEL_Q5_1] = {1, 4, 2, false, true, -1},  [WEIR__PANEL_IQ4_NL] = {2, 4, 4, false, false, 7},
    [WEIR__PANEL_MXFP4] = {1, 4, 2, false, false, 4}, [WEIR__PANEL_Q4_K] = {1, 4, 4, false, true, -1},
    [WEIR__PANEL_Q5_K] = {1, 4, 2, false, true, -1},  [WEIR__PANEL_Q6_K] = {2, 2, 1, true, false, 5},
};

/* One unit of sixteen rows, unpacked; [0] are the first eight rows, [1] the others. */
typedef struct weights {
    __m256i values[2][8][2]; /* of each list */
    __m256 scale[2][2];      /* of each list, or of the unit */
    __m256 min[2];           /* added for each activation's sum */
} weights;

INLINE __m256 halves(const unsigned char *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

INLINE __m256 bytes(const unsigned char *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at)));
}

INLINE __m256 signed_bytes(const unsigned char *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at)));
}

/* Half of two to the power of each of eight exponents; the least two are subnormal numbers. */
INLINE __m256 half_exponents(const unsigned char *at)
{
    __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i least = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, small, least));
}

/* The table's bytes less `base`, or one nibble of each. */
INLINE __m256i look_up(const uint8_t *table, const char base, const int shift, const char mask, __m256i codes)
{
    __m128i t = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)table), _mm_set1_epi8(base));
    t = _mm_and_si128(_mm_srli_epi16(t, shift), _mm_set1_epi8(mask));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), codes);
}

/* `bit` in each byte whose bit of the plane is set. */
INLINE __m256i plane(const unsigned char *at, const int bit)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                            2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201);
    /* vpsignb turns the last of eight round: its bit is the sign. */
    const uint64_t eight = 0x0001010101010101u * (uint64_t)bit + ((uint64_t)(256 - bit) << 56);
    const __m256i bits = _mm256_set1_epi64x((long long)eight);
    int32_t packed;
    memcpy(&packed, at, sizeof packed);
    return _mm256_sign_epi8(bits,
                            _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(packed), spread), each));
}

/* True if a pair are nibbles of neighbouring bytes. */
INLINE bool has_neighbours(const weir__panel_format format)
{
    return format == WEIR__PANEL_Q8_0 || format == WEIR__PANEL_Q6_K;
}

/* The first or the second vector of a list's pair, in half h of the rows. */
INLINE __m256i value(const weir__panel_format format, const unsigned char *unit, const int list, int pair,
                     const int second, const int h)
{
    const int at = has_neighbours(format) ? 2 * pair + second : pair;
    const int high = has_neighbours(format) ? list : second;
    __m256i both = _mm256_loadu_si256((const __m256i *)(unit + 64 * at + 32 * h));
    __m256i w = _mm256_and_si256(high ? _mm256_srli_epi16(both, 4) : both, _mm256_set1_epi8(15));
    const unsigned char *bits = unit + WEIR__PANEL_NIBBLES + 32 * high + 8 * at + 4 * h;
    switch (format) {
    case WEIR__PANEL_IQ4_NL: return look_up(weir__panel_iq4_nl, 0, 4 * list, 15, w);
    case WEIR__PANEL_MXFP4: return look_up(weir__panel_mxfp4, 112, 0, -1, w);
    case WEIR__PANEL_Q5_0:
    case WEIR__PANEL_Q5_1:
    case WEIR__PANEL_Q5_K: return _mm256_or_si256(w, plane(bits, 16));
    case WEIR__PANEL_Q6_K:
        w = _mm256_or_si256(w, plane(bits, 16));
        return _mm256_or_si256(w, plane(bits + WEIR__PANEL_PLANE, 32));
    default: return w;
    }
}

/* The first of that vector's four columns. */
INLINE int column(const weir__panel_format format, const int list, int pair, const int second)
{
    if (format == WEIR__PANEL_Q8_0) return 8 * pair + 4 * second;
    return has_neighbours(format) ? 16 * list + 8 * pair + 4 * second : 4 * pair + 16 * second;
}

INLINE void unpack_values(const weir__panel_format format, const unsigned char *unit, weights *w)
{
#pragma GCC unroll 2
    for (int list = 0; list < schemes[format].lists; list++)
#pragma GCC unroll 8
        for (int i = 0; i < 2 * schemes[format].pairs; i++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) w->values[list][i][h] = value(format, unit, list, i / 2, i % 2, h);
}

INLINE void unpack_scales(const weir__panel_format format, const unsigned char *head,
                          const unsigned char *unit, weights *w)
{
    const unsigned char *scales = unit + weir__panel_layouts[format].scales_at;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        switch (format) {
        case WEIR__PANEL_MXFP4: w->scale[0][h] = half_exponents(scales + 8 * h); break;
        case WEIR__PANEL_Q4_1:
        case WEIR__PANEL_Q5_1:
            w->scale[0][h] = halves(scales + 16 * h);
            w->min[h] = halves(scales + 32 + 16 * h);
            break;
        case WEIR__PANEL_Q4_K:
        case WEIR__PANEL_Q5_K:
            w->scale[0][h] = _mm256_mul_ps(halves(head + 16 * h), bytes(scales + 8 * h));
            w->min[h] = _mm256_mul_ps(_mm256_sub_ps(_mm256_setzero_ps(), halves(head + 32 + 16 * h)),
                                      bytes(scales + 16 + 8 * h));
            break;
        case WEIR__PANEL_Q6_K:
            w->scale[0][h] = _mm256_mul_ps(halves(head + 16 * h), signed_bytes(scales + 8 * h));
            w->scale[1][h] = _mm256_mul_ps(halves(head + 16 * h), signed_bytes(scales + 16 + 8 * h));
            break;
        default: w->scale[0][h] = halves(scales + 16 * h);
        }
    }
}

/* ---- One unit ---- */

INLINE __m256i four(const int8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return _mm256_set1_epi32(value);
}

/* Adds a pair's products to acc, or writes them there if it is the first of a run. unit: NULL if w is
 * unpacked. */
INLINE void multiply_pair(const weir__panel_format format, const unsigned char *unit, const weights *w,
                          const weir__activations *x, int at, const int n, const int list, int pair,
                          const bool first, __m256i (*acc)[2])
{
    __m256i values[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            values[i][h] =
                unit != NULL ? value(format, unit, list, pair, i, h) : w->values[list][2 * pair + i][h];
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        __m256i a = four(&x->q[at + j][column(format, list, pair, 0)]);
        __m256i b = four(&x->q[at + j][column(format, list, pair, 1)]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(values[0][h], a),
                                           _mm256_maddubs_epi16(values[1][h], b));
            acc[j][h] = first ? sum : _mm256_add_epi16(acc[j][h], sum);
        }
    }
}

/* The products of a list, each of rows [at, at + n); added to `total` unless it is the first. */
INLINE void multiply_list(const weir__panel_format format, const unsigned char *unit, const weights *w,
                          const weir__activations *x, int at, const int n, const int list, const bool first,
                          __m256i (*total)[2])
{
    const scheme s = schemes[format];
    const __m256i factor = _mm256_set1_epi16(list == 0 || s.scales ? 1 : 16);
#pragma GCC unroll 4
    for (int run = 0; run < s.pairs; run += s.run) {
        __m256i acc[GROUP][2];
        multiply_pair(format, unit, w, x, at, n, list, run, true, acc);
#pragma GCC unroll 1 /* gcc would put off all additions until registers run out */
        for (int i = run + 1; i < run + s.run; i++)
            multiply_pair(format, unit, w, x, at, n, list, i, false, acc);
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i sum = _mm256_madd_epi16(acc[j][h], factor);
                total[j][h] = first && run == 0 ? sum : _mm256_add_epi32(total[j][h], sum);
            }
    }
}

/* Scales a sum of products, less the weights' offset times `minus`, and adds it to sums. */
INLINE void add_scaled(const int offset, const __m256i *total, int32_t minus, const __m256 *scale,
                       float x_scale, __m256 *sums)
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256i sum = total[h];
        if (offset >= 0) sum = _mm256_add_epi32(sum, _mm256_slli_epi32(_mm256_set1_epi32(minus), offset));
        sums[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale[h], _mm256_set1_ps(x_scale)),
                                  sums[h]);
    }
}

/* Adds one unit's products for rows [at, at + n), n <= GROUP. unit: NULL if w is unpacked. */
INLINE void multiply_unit(const weir__panel_format format, const unsigned char *unit, const weights *w,
                          const weir__activations *x, int at, const int n, __m256 (*sums)[2])
{
    const scheme s = schemes[format];
    __m256i total[GROUP][2];
    multiply_list(format, unit, w, x, at, n, 0, true, total);
    if (s.scales) {
#pragma GCC unroll 4
        for (int j = at; j < at + n; j++)
            add_scaled(s.offset, total[j - at], x->minus_half[j], w->scale[0], x->scale[j], sums[j]);
    }
    if (s.lists == 2) multiply_list(format, unit, w, x, at, n, 1, s.scales, total);
#pragma GCC unroll 4
    for (int j = at; j < at + n; j++) {
        int32_t minus = s.scales ? x->minus[j] - x->minus_half[j] : x->minus[j];
        add_scaled(s.offset, total[j - at], minus, w->scale[s.scales], x->scale[j], sums[j]);
        if (!s.min) continue;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            sums[j][h] = _mm256_fmadd_ps(w->min[h], _mm256_set1_ps(x->sum[j]), sums[j][h]);
    }
}

/* ---- Tiles of up to GROUP rows: weights are unpacked where they are multiplied ---- */

INLINE void store(float *out, size_t stride, int rows, __m256 (*sums)[2])
{
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_ps(out + (size_t)r * stride, sums[r][0]);
        _mm256_storeu_ps(out + (size_t)r * stride + 8, sums[r][1]);
    }
}

INLINE void multiply_few(const weir__panel_format format, const int rows, const unsigned char *panel,
                         const weir__activations *x, int64_t n_blocks, float *out, size_t stride)
{
    const int head = weir__panel_layouts[format].head_bytes, size = weir__panel_layouts[format].unit_bytes;
    const int n_units = weir__panel_layouts[format].columns / WEIR__UNIT;
    __m256 sums[GROUP][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const unsigned char *unit = panel + head;
        for (int u = 0; u < n_units; u++, unit += size, x++) {
            weights w;
#pragma GCC unroll 9
            for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)unit + AHEAD + i, _MM_HINT_T0);
            unpack_scales(format, panel, unit, &w);
            multiply_unit(format, unit, &w, x, 0, rows, sums);
        }
        panel = unit;
    }
    store(out, stride, rows, sums);
}

/* ---- Functions for each format and number of rows ---- */

typedef void (*few)(const unsigned char *panel, const weir__activations *x, int64_t n_blocks, float *out,
                    size_t stride);
typedef void (*unpacker)(const unsigned char *head, const unsigned char *unit, weights *w);
typedef void (*group)(const weights *w, const weir__activations *x, int at, __m256 (*sums)[2]);

#define DEFINE_ROWS(format, rows)                                                                            \
    static void few_##format##_##rows(const unsigned char *panel, const weir__activations *x,                \
                                      int64_t n_blocks, float *out, size_t stride)                           \
    {                                                                                                        \
        multiply_few(WEIR__PANEL_##format, rows, panel, x, n_blocks, out, stride);                           \
    }                                                                                                        \
    static void group_##format##_##rows(const weights *w, const weir__activations *x, int at,                \
                                        __m256(*sums)[2])                                                    \
    {                                                                                                        \
        multiply_unit(WEIR__PANEL_##format, NULL, w, x, at, rows, sums);                                     \
    }
#define DEFINE(format)                                                                                       \
    static void unpack_##format(const unsigned char *head, const unsigned char *unit, weights *w)            \
    {                                                                                                        \
        unpack_values(WEIR__PANEL_##format, unit, w);                                                        \
        unpack_scales(WEIR__PANEL_##format, head, unit, w);                                                  \
    }                                                                                                        \
    DEFINE_ROWS(format, 1)                                                                                   \
    DEFINE_ROWS(format, 2)                                                                                   \
    DEFINE_ROWS(format, 3)                                                                                   \
    DEFINE_ROWS(format, 4)
WEIR__PANEL_QUANTIZED(DEFINE)

#define LIST(format)                                                                                         \
    [WEIR__PANEL_##format] = {                                                                               \
        {NULL, few_##format##_1, few_##format##_2, few_##format##_3, few_##format##_4},                      \
        {NULL, group_##format##_1, group_##format##_2, group_##format##_3, group_##format##_4},              \
        unpack_##format,                                                                                     \
    },
static const struct functions {
    few few[GROUP + 1];
    group group[GROUP + 1];
    unpacker unpack;
} functions[WEIR__PANEL_N_FORMATS] = {WEIR__PANEL_QUANTIZED(LIST)};

/* ---- Tiles ---- */

static void multiply_tile(weir__panel_format format, int rows, const unsigned char *panel,
                          const weir__activations *x, int64_t n_blocks, float *out, size_t stride)
{
    const int head = weir__panel_layouts[format].head_bytes, size = weir__panel_layouts[format].unit_bytes;
    const int n_units = weir__panel_layouts[format].columns / WEIR__UNIT;
    const struct functions *f = &functions[format];
    __m256 sums[WEIR__TILE][2];
    if (rows <= GROUP) {
        f->few[rows](panel, x, n_blocks, out, stride);
        return;
    }
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const unsigned char *unit = panel + head;
        for (int u = 0; u < n_units; u++, unit += size, x++) {
            weights w;
            int at = 0;
            for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)unit + AHEAD + i, _MM_HINT_T0);
            f->unpack(panel, unit, &w);
            for (; at + GROUP < rows; at += GROUP) f->group[GROUP](&w, x, at, sums);
            f->group[rows - at](&w, x, at, sums);
        }
        panel = unit;
    }
    store(out, stride, rows, sums);
}

static void multiply(weir__panel_format format, const void *panels, const void *activations, int64_t m,
                     int64_t k, float *out, size_t stride, int64_t first, int64_t end)
{
    const weir__activations *x = activations;
    const weir__panel_layout *l = &weir__panel_layouts[format];
    int64_t n_units = k / WEIR__UNIT, n_blocks = k / l->columns, rows = weir__tile_rows(m);
    size_t panel_bytes = weir__panel_bytes(format, WEIR__PANEL_ROWS, k);
    int64_t pass = PASS_BYTES / (n_units * (int64_t)sizeof *x) * rows;
    if (pass < rows) pass = rows;
    for (int64_t begin = 0; begin < m; begin += pass) {
        int64_t stop = begin + pass < m ? begin + pass : m;
        for (int64_t p = first; p < end; p++) {
            const unsigned char *panel = (const unsigned char *)panels + (size_t)p * panel_bytes;
            for (int64_t r = begin; r < stop; r += rows) {
                int n = (int)(stop - r < rows ? stop - r : rows);
                multiply_tile(format, n, panel, x + r / rows * n_units, n_blocks,
                              out + (size_t)r * stride + p * WEIR__PANEL_ROWS, stride);
            }
        }
    }
}

const weir__gemm weir__gemm_avx2 = {"avx2", sizeof(weir__activations), quantize, multiply};
