/* gemm_avx2.c: quantized weights on processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0
 *
 * vpmaddubsw multiplies unsigned bytes with signed ones and adds two neighbours in sixteen bits, which end at
 * 32767. Sixteen products of weights of four bits stay below that, eight of five, four of six; this many
 * are added up before they are widened. Weights of eight bits are multiplied nibble by nibble. So integer
 * products are exact, and as the rest is computed as in gemm_avx512.c, the results are the same to the
 * bit. Values of a codebook have a sign, which the activations take over. */
#define LANES 8
#include "kernels/gemm_q8.h"

#include <immintrin.h>
#include <string.h>

#include "kernels/gemm_codes.h"
#include "kernels/gemm_pass.h"
#include "kernels/gemm_scales.h"

/* Rows of activations at a time: with both halves of sixteen rows of weights, their sums fill eight
 * registers. */
#define GROUP 4

/* Bytes ahead to fetch: sixteen units of Q8_0. */
#define AHEAD 8704

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

/* True if one of a unit's numbers is NaN. */
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
    return no_least(_mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
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
 * and the high nibbles of the same bytes. Where low and high nibbles have factors of their own, or halves of
 * a unit their scales, they make two lists of pairs. */
typedef struct scheme {
    int lists;
    int pairs;  /* of a list */
    int run;    /* pairs whose products fit into sixteen bits together */
    int offset; /* by how many bits it shifts the sum of the activations; -1: there is none */
} scheme;

/* True for values of eight bits, whose nibbles are multiplied one after the other. */
INLINE bool is_split(const weir__panel_format format)
{
    return weir__panel_layouts[format].offset == 7 && !weir__panel_has_signs(format);
}

INLINE scheme scheme_of(const weir__panel_format format)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    scheme s = {.lists = l->parts == 2 || is_split(format) ? 2 : 1, .pairs = 4 / l->parts};
    const int fit = INT16_MAX / (4 * INT8_MAX * l->most); /* a pair has four products in each sixteen bits */
    s.run = fit >= s.pairs ? s.pairs : fit >= 2 ? 2 : 1;
    s.offset = weir__panel_has_signs(format) ? -1 : l->offset;
    return s;
}

/* One unit of sixteen rows, unpacked; [0] are the first eight rows, [1] the others. */
typedef struct weights {
    __m256i values[2][8][2]; /* of each list */
    vector scale[2][2];      /* of each part */
    vector min[2][2];        /* likewise: added for each activation's sum */
} weights;

/* The table's bytes, or one nibble of each. */
INLINE __m256i look_up(const uint8_t *table, const int shift, const char mask, __m256i codes)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
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

/* A unit looked up: a byte for each value, and then the plane of signs. */
#define LOOKED_UP (WEIR__PANEL_ROWS * WEIR__UNIT)
typedef struct looked_up {
    _Alignas(32) unsigned char bytes[LOOKED_UP + WEIR__PANEL_PLANE];
} looked_up;

/* Sixteen indices from the one at `at` on. */
INLINE __m256i indices(const weir__panel_format format, const unsigned char *unit, int at)
{
    const __m256i each =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, INT16_MIN);
    __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(unit + at)));
    for (int bit = 0; bit < n_high_bits(format); bit++) {
        __m256i plane = _mm256_set1_epi16((short)code_plane(format, unit, bit, at));
        __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(plane, each), each);
        codes = _mm256_or_si256(codes, _mm256_and_si256(set, _mm256_set1_epi16((short)(256 << bit))));
    }
    return codes;
}

/* Lowers each byte by two in the rows whose bit is set. */
INLINE __m256i shift_rows(__m256i values, uint32_t less)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)less), each), each);
    return _mm256_sub_epi8(values, _mm256_and_si256(set, _mm256_set1_epi8(2)));
}

INLINE void look_up_codes(const weir__panel_format format, const unsigned char *unit, looked_up *to)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    _Alignas(32) uint16_t codes[WEIR__PANEL_QUARTETS];
    for (int at = 0; at < n_codes(format); at += 16)
        _mm256_store_si256((__m256i *)(codes + at), indices(format, unit, at));
    for (int at = 0; at < n_codes(format); at += 8) {
        __m256i *out = (__m256i *)to->bytes + at / 16 * (has_octets(format) ? 4 : 2) + at / 8 % 2;
        if (!has_octets(format)) {
            _mm256_store_si256(out, quartets_of(format, codes + at));
            continue;
        }
        __m256i first, second;
        octets_of(format, codes + at, &first, &second);
        if (weir__panel_has_shift(format)) {
            uint32_t less = code_plane(format, unit, n_high_bits(format), at / 16 * 16) >> at % 16;
            first = shift_rows(first, less);
            second = shift_rows(second, less);
        }
        _mm256_store_si256(out, first);
        _mm256_store_si256(out + 2, second);
    }
    if (l->planes > 0)
        memcpy(to->bytes + LOOKED_UP, unit + l->scales_at - WEIR__PANEL_PLANE, WEIR__PANEL_PLANE);
}

/* The number of the unit's vector, 0 to 7, that is the first or the second of a list's pair. */
INLINE int vector_of(const weir__panel_format format, const int list, int pair, const int second)
{
    if (weir__panel_layouts[format].parts == 2) return 4 * list + 2 * pair + second;
    if (weir__panel_layouts[format].values == WEIR__VALUES_NIBBLES) return pair + 4 * second;
    return 2 * pair + second;
}

/* The first of that vector's four columns. */
INLINE int column(const weir__panel_format format, const int list, int pair, const int second)
{
    return 4 * vector_of(format, list, pair, second);
}

/* A vector in half h of the rows. at: the unit, or the same unit looked up. */
INLINE __m256i value(const weir__panel_format format, const unsigned char *at, const int list, int pair,
                     const int second, const int h)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int v = vector_of(format, list, pair, second);
    const unsigned char *planes = at + l->scales_at - l->planes * WEIR__PANEL_PLANE + 8 * v + 4 * h;
    __m256i w;
    switch (l->values) {
    case WEIR__VALUES_NIBBLES:
        w = _mm256_loadu_si256((const __m256i *)(at + 64 * (v % 4) + 32 * h));
        w = _mm256_and_si256(v >= 4 ? _mm256_srli_epi16(w, 4) : w, _mm256_set1_epi8(15));
        for (int p = 0; p < l->planes; p++)
            w = _mm256_or_si256(w, plane(planes + p * WEIR__PANEL_PLANE, 16 << p));
        break;
    case WEIR__VALUES_PAIRS:
        w = _mm256_loadu_si256((const __m256i *)(at + 64 * (v % 2) + 32 * h));
        w = _mm256_and_si256(_mm256_srli_epi16(w, v / 2 * 2), _mm256_set1_epi8(3));
        if (l->planes > 0) w = _mm256_or_si256(w, plane(planes, 4));
        break;
    case WEIR__VALUES_PLANES: return plane(planes, 2);
    case WEIR__VALUES_BYTES:
        w = _mm256_loadu_si256((const __m256i *)(at + 64 * v + 32 * h));
        return _mm256_and_si256(list == 1 ? _mm256_srli_epi16(w, 4) : w, _mm256_set1_epi8(15));
    default:
        return _mm256_loadu_si256(
            (const __m256i *)(at + 64 * v + 32 * h)); /* sizes, of those that have signs */
    }
    if (l->table == NULL) return w;
    return is_split(format) ? look_up(l->table, 4 * list, 15, w) : look_up(l->table, 0, -1, w);
}

/* The signs of that vector, 1 or -1. */
INLINE __m256i sign(const weir__panel_format format, const unsigned char *at, const int list, int pair,
                    const int second, const int h)
{
    const unsigned char *signs = at + LOOKED_UP + 8 * vector_of(format, list, pair, second) + 4 * h;
    return _mm256_or_si256(plane(signs, 255), _mm256_set1_epi8(1));
}

INLINE void unpack_values(const weir__panel_format format, const unsigned char *at, weights *w)
{
    const scheme s = scheme_of(format);
#pragma GCC unroll 2
    for (int list = 0; list < s.lists; list++)
#pragma GCC unroll 8
        for (int i = 0; i < 2 * s.pairs; i++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i w_i = value(format, at, list, i / 2, i % 2, h);
                if (weir__panel_has_signs(format))
                    w_i = _mm256_sign_epi8(w_i, sign(format, at, list, i / 2, i % 2, h));
                w->values[list][i][h] = w_i;
            }
}

INLINE void unpack_scales(const weir__panel_format format, const unsigned char *head,
                          const unsigned char *unit, weights *w)
{
#pragma GCC unroll 2
    for (int part = 0; part < weir__panel_layouts[format].parts; part++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            unpack_scale(format, head, unit, part, h, &w->scale[part][h], &w->min[part][h]);
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
    __m256i values[2][2], signs[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            if (unit != NULL) {
                values[i][h] = value(format, unit, list, pair, i, h);
                if (weir__panel_has_signs(format)) signs[i][h] = sign(format, unit, list, pair, i, h);
            } else {
                values[i][h] = signs[i][h] = w->values[list][2 * pair + i][h];
                if (weir__panel_has_signs(format)) values[i][h] = _mm256_abs_epi8(values[i][h]);
            }
        }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        __m256i a = four(&x->q[at + j][column(format, list, pair, 0)]);
        __m256i b = four(&x->q[at + j][column(format, list, pair, 1)]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i first_a = weir__panel_has_signs(format) ? _mm256_sign_epi8(a, signs[0][h]) : a;
            __m256i then_b = weir__panel_has_signs(format) ? _mm256_sign_epi8(b, signs[1][h]) : b;
            __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(values[0][h], first_a),
                                           _mm256_maddubs_epi16(values[1][h], then_b));
            acc[j][h] = first ? sum : _mm256_add_epi16(acc[j][h], sum);
        }
    }
}

/* The products of a list, each of rows [at, at + n); added to `total` unless it is the first. */
INLINE void multiply_list(const weir__panel_format format, const unsigned char *unit, const weights *w,
                          const weir__activations *x, int at, const int n, const int list, const bool first,
                          __m256i (*total)[2])
{
    const scheme s = scheme_of(format);
    const __m256i factor = _mm256_set1_epi16(list == 1 && is_split(format) ? 16 : 1);
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

/* Scales a part's sum of products for row j, less the weights' offset, and adds it and the minimum. */
INLINE void add_scaled(const weir__panel_format format, const int part, const __m256i *total,
                       const weights *w, const weir__activations *x, int j, __m256 *sums)
{
    const scheme s = scheme_of(format);
    const int parts = weir__panel_layouts[format].parts;
    int32_t minus = parts == 1 ? x->minus[j] : part == 0 ? x->minus_half[j] : x->minus[j] - x->minus_half[j];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256i sum = total[h];
        if (s.offset >= 0) sum = _mm256_add_epi32(sum, _mm256_slli_epi32(_mm256_set1_epi32(minus), s.offset));
        __m256 scale = _mm256_mul_ps(w->scale[part][h], _mm256_set1_ps(x->scale[j]));
        sums[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, sums[h]);
        if (weir__panel_has_min(format))
            sums[h] = _mm256_fmadd_ps(w->min[part][h],
                                      _mm256_set1_ps(weir__activations_sum(x, j, parts, part)), sums[h]);
    }
}

/* Adds one unit's products for rows [at, at + n), n <= GROUP. unit: NULL if w is unpacked. */
INLINE void multiply_unit(const weir__panel_format format, const unsigned char *unit, const weights *w,
                          const weir__activations *x, int at, const int n, __m256 (*sums)[2])
{
    const int lists = scheme_of(format).lists, parts = weir__panel_layouts[format].parts;
    __m256i total[GROUP][2];
#pragma GCC unroll 2
    for (int list = 0; list < lists; list++) {
        multiply_list(format, unit, w, x, at, n, list, list == 0 || parts == 2, total);
        if (list < lists - parts) continue; /* the second list adds to the same part */
#pragma GCC unroll 4
        for (int j = at; j < at + n; j++)
            add_scaled(format, list < parts ? list : 0, total[j - at], w, x, j, sums[j]);
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
            looked_up codes;
#pragma GCC unroll 9
            for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)unit + AHEAD + i, _MM_HINT_T0);
            if (weir__panel_has_codes(format)) look_up_codes(format, unit, &codes);
            unpack_scales(format, panel, unit, &w);
            multiply_unit(format, weir__panel_has_codes(format) ? codes.bytes : unit, &w, x, 0, rows, sums);
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
        looked_up codes;                                                                                     \
        if (weir__panel_has_codes(WEIR__PANEL_##format)) look_up_codes(WEIR__PANEL_##format, unit, &codes);  \
        unpack_values(WEIR__PANEL_##format,                                                                  \
                      weir__panel_has_codes(WEIR__PANEL_##format) ? codes.bytes : unit, w);                  \
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

const weir__gemm weir__gemm_avx2 = {"avx2", sizeof(weir__activations), quantize, multiply};
