/* gemm_avx512.c: quantized weights on processors with AVX-512 VNNI.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile multiplies two panels of weights, or one, with up to sixteen rows of activations. A unit's weights
 * stay in sixteen registers while the activations pass by, four rows at a time. That is one vpdpbusd for 64
 * products, and for each 32 columns of a row two or three multiplications in single precision, which take the
 * same ports: 80 or 73 % of the peak at the most. */
#define LANES 16
#include "kernels/gemm_q8.h"

#include <immintrin.h>
#include <string.h>

#include "base/cpu.h"
#include "kernels/gemm_codes.h"
#include "kernels/gemm_scales.h"

/* Panels and rows of activations at a time: their sums hide vpdpbusd's latency, and together with the weights
 * they fill 24 registers. Each activation that is read is used for each panel. */
#define PANELS 2
#define GROUP  4

/* Activations that are passed over again and again for each panel; they should stay in the second-level
 * cache. */
#define PASS_BYTES (384 * 1024)

/* ---- Activations ---- */

INLINE float largest(const float *x)
{
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
}

INLINE bool has_nan(const float *x)
{
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), _CMP_UNORD_Q) != 0;
}

INLINE __m128i to_bytes(const float *x, float inverse)
{
    __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse));
    return no_least(_mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(scaled)));
}

INLINE void divide(batch *b, int at)
{
    __m512 max = _mm512_load_ps(b->max + at), most = _mm512_set1_ps(127.0f);
    __mmask16 some = _mm512_cmp_ps_mask(max, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_store_ps(b->inverse + at, _mm512_maskz_div_ps(some, most, max));
    __m256i scale = _mm512_cvtps_ph(_mm512_div_ps(max, most), _MM_FROUND_TO_NEAREST_INT);
    _mm512_store_ps(b->scale + at, _mm512_cvtph_ps(scale));
}

INLINE void sum_up(batch *b, int at)
{
    __m512i sum = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_load_si512(b->minus + at));
    _mm512_store_ps(b->sum + at, _mm512_mul_ps(_mm512_load_ps(b->scale + at), _mm512_cvtepi32_ps(sum)));
}

/* ---- Weights ---- */

/* One unit of sixteen rows, unpacked. */
typedef struct weights {
    __m512i values[8];
    vector scale[2]; /* of the unit, or of each half */
    vector min[2];   /* likewise: added for each activation's sum */
} weights;

INLINE __mmask64 plane_at(const unsigned char *at)
{
    __mmask64 mask;
    memcpy(&mask, at, sizeof mask);
    return mask;
}

INLINE void add_plane(weights *w, const unsigned char *at, char bit)
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        w->values[i] =
            _mm512_mask_add_epi8(w->values[i], plane_at(at + 8 * i), w->values[i], _mm512_set1_epi8(bit));
}

INLINE void look_up(weights *w, const uint8_t *table)
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w->values[i] = _mm512_shuffle_epi8(t, w->values[i]);
}

/* Thirty-two indices from the one at `at` on. */
INLINE __m512i indices(const weir__panel_format format, const unsigned char *unit, int at)
{
    __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(unit + at)));
    for (int bit = 0; bit < n_high_bits(format); bit++) {
        __mmask32 set = code_plane(format, unit, bit, at) | code_plane(format, unit, bit, at + 16) << 16;
        codes = _mm512_mask_add_epi16(codes, set, codes, _mm512_set1_epi16((short)(256 << bit)));
    }
    return codes;
}

/* The words of a book of 2^bits entries: registers hold 64 of them. */
INLINE __m512i words_at(const uint16_t *words, const int bits, __m512i codes)
{
    __m512i which = _mm512_srli_epi16(codes, 6), found = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 1 << (bits - 6); i++) {
        __m512i some = _mm512_permutex2var_epi16(_mm512_load_si512(words + 64 * i), codes,
                                                 _mm512_load_si512(words + 64 * i + 32));
        __mmask32 here = _mm512_cmpeq_epi16_mask(which, _mm512_set1_epi16((short)i));
        found = i == 0 ? some : _mm512_mask_mov_epi16(found, here, some);
    }
    return found;
}

/* Four times two bits of each lane, and four times four, as bytes. */
INLINE __m512i spread_pairs(__m512i x)
{
    x = _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 12)), _mm512_set1_epi32(0x000f000f));
    return _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 6)), _mm512_set1_epi32(0x03030303));
}

INLINE __m512i spread_nibbles(__m512i x)
{
    x = _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 8)), _mm512_set1_epi32(0x00ff00ff));
    return _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 4)), _mm512_set1_epi32(0x0f0f0f0f));
}

/* Looks up small books by permutations. */
INLINE void permute_codes(const weir__panel_format format, const unsigned char *unit, weights *w)
{
    const weir__codebook *book = weir__codebook_of(format);
#pragma GCC unroll 4
    for (int at = 0; at < n_codes(format); at += 32) {
        __m512i words =
            words_at(book->words, weir__panel_layouts[format].code_bits, indices(format, unit, at));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i x = _mm512_cvtepu16_epi32(h == 0 ? _mm512_castsi512_si256(words)
                                                     : _mm512_extracti64x4_epi64(words, 1));
            if (has_octets(format)) {
                w->values[at / 8 + 2 * h] = spread_pairs(x);
                w->values[at / 8 + 2 * h + 1] = spread_pairs(_mm512_srli_epi32(x, 8));
            } else {
                w->values[at / 16 + h] = spread_nibbles(x);
            }
        }
    }
    look_up(w, book->levels);
}

/* Looks up large books one by one. */
INLINE void load_codes(const weir__panel_format format, const unsigned char *unit, weights *w)
{
    _Alignas(64) uint16_t codes[WEIR__PANEL_OCTETS];
#pragma GCC unroll 2
    for (int at = 0; at < WEIR__PANEL_OCTETS; at += 32)
        _mm512_store_si512(codes + at, indices(format, unit, at));
#pragma GCC unroll 4
    for (int q = 0; q < WEIR__UNIT / 8; q++) {
        __m256i first[2], second[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) octets_of(format, codes + 16 * q + 8 * h, &first[h], &second[h]);
        __m512i *values = w->values + 2 * q;
        values[0] = _mm512_inserti64x4(_mm512_castsi256_si512(first[0]), first[1], 1);
        values[1] = _mm512_inserti64x4(_mm512_castsi256_si512(second[0]), second[1], 1);
        if (!weir__panel_has_shift(format)) continue;
        const __m512i two = _mm512_set1_epi32(0x02020202);
        __mmask16 less = (__mmask16)code_plane(format, unit, n_high_bits(format), 16 * q);
        values[0] = _mm512_mask_sub_epi32(values[0], less, values[0], two);
        values[1] = _mm512_mask_sub_epi32(values[1], less, values[1], two);
    }
}

INLINE void unpack_codes(const weir__panel_format format, const unsigned char *unit, weights *w)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const unsigned char *signs = unit + l->scales_at - WEIR__PANEL_PLANE;
    if (l->code_bits <= 9)
        permute_codes(format, unit, w);
    else
        load_codes(format, unit, w);
    if (!weir__panel_has_signs(format)) return;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i sizes = w->values[i], offset = _mm512_set1_epi8(-128);
        __m512i plus = l->code_bits <= 9 ? sizes : _mm512_xor_si512(sizes, offset);
        /* minus 128 + size is 128 - size */
        w->values[i] = _mm512_mask_sub_epi8(plus, plane_at(signs + 8 * i), _mm512_setzero_si512(), plus);
    }
}

INLINE void unpack_values(const weir__panel_format format, const unsigned char *unit, weights *w)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const unsigned char *planes = unit + l->scales_at - l->planes * WEIR__PANEL_PLANE;
    const __m512i low = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(3);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) switch (l->values) {
        case WEIR__VALUES_NIBBLES: {
            __m512i both = _mm512_loadu_si512(unit + 64 * (i % 4));
            w->values[i] = _mm512_and_si512(i < 4 ? both : _mm512_srli_epi16(both, 4), low);
            break;
        }
        case WEIR__VALUES_PAIRS: {
            __m512i all = _mm512_loadu_si512(unit + 64 * (i % 2));
            w->values[i] = _mm512_and_si512(_mm512_srli_epi16(all, (unsigned)(i / 2 * 2)), pair);
            break;
        }
        case WEIR__VALUES_PLANES: w->values[i] = _mm512_maskz_set1_epi8(plane_at(planes + 8 * i), 2); break;
        default: w->values[i] = _mm512_loadu_si512(unit + 64 * i); break;
        }
    if (l->values != WEIR__VALUES_PLANES) {
        const int bit = l->values == WEIR__VALUES_NIBBLES ? 16 : 4;
        for (int p = 0; p < l->planes; p++) add_plane(w, planes + p * WEIR__PANEL_PLANE, (char)(bit << p));
    }
    if (l->table != NULL) look_up(w, l->table);
}

INLINE void unpack_scales(const weir__panel_format format, const unsigned char *head,
                          const unsigned char *unit, weights *w)
{
#pragma GCC unroll 2
    for (int part = 0; part < weir__panel_layouts[format].parts; part++)
        unpack_scale(format, head, unit, part, 0, &w->scale[part], &w->min[part]);
}

/* ---- One tile ---- */

INLINE __m512i four(const int8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return _mm512_set1_epi32(value);
}

/* Units whose halves have scales of their own are two parts. */
INLINE int n_parts(const weir__panel_format format)
{
    return weir__panel_layouts[format].parts;
}

/* The share of the weights' offset in row r. */
INLINE __m512i start(const weir__panel_format format, const int part, const weir__activations *x, int r)
{
    const int bits = weir__panel_layouts[format].offset;
    if (bits < 0) return _mm512_setzero_si512();
    __m512i minus = _mm512_set1_epi32(x->minus[r]);
    if (n_parts(format) == 2) {
        __m512i half = _mm512_set1_epi32(x->minus_half[r]);
        minus = part == 0 ? half : _mm512_sub_epi32(minus, half);
    }
    return _mm512_slli_epi32(minus, (unsigned)bits);
}

/* Adds the products of a part of a unit for rows [at, at + n), n <= GROUP. */
INLINE void multiply_group(const weir__panel_format format, const int n_panels, const int part, const int n,
                           const weights *w, const weir__activations *x, int at, __m512 (*sums)[PANELS])
{
    const int columns = 8 / n_parts(format);
    __m512i acc[GROUP][PANELS];
#pragma GCC unroll 4
    for (int r = 0; r < GROUP; r++)
        if (r < n) acc[r][0] = acc[r][1] = start(format, part, x, at + r);
#pragma GCC unroll 8
    for (int i = part * columns; i < (part + 1) * columns; i++)
#pragma GCC unroll 4
        for (int r = 0; r < GROUP; r++)
            if (r < n) {
                __m512i q = four(&x->q[at + r][4 * i]);
#pragma GCC unroll 2
                for (int p = 0; p < PANELS; p++)
                    if (p < n_panels) acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], w[p].values[i], q);
            }
#pragma GCC unroll 4
    for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
            if (r < n && p < n_panels) {
                __m512 *sum = &sums[at + r][p];
                __m512 scale = _mm512_mul_ps(w[p].scale[part], _mm512_set1_ps(x->scale[at + r]));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][p]), scale, *sum);
                if (weir__panel_has_min(format))
                    *sum = _mm512_fmadd_ps(
                        w[p].min[part],
                        _mm512_set1_ps(weir__activations_sum(x, at + r, n_parts(format), part)), *sum);
            }
}

/* Fetches the activations; those of one row stay in the first-level cache. */
INLINE void fetch_activations(const weir__activations *x, int rows)
{
    for (int r = 0; r < rows; r += 2) _mm_prefetch((const char *)x->q[r], _MM_HINT_T0);
    _mm_prefetch((const char *)x->scale, _MM_HINT_T0);
    _mm_prefetch((const char *)x->sum, _MM_HINT_T0);
    _mm_prefetch((const char *)x->minus, _MM_HINT_T0);
}

/* How a tile's weights are fetched from memory. */
typedef struct fetching {
    size_t ahead; /* bytes, of each panel */
    bool far;     /* into the second-level cache only */
} fetching;

/* Eight units of Q8_0 ahead, or sixteen where there is a single stream. Zen 4's first-level cache keeps few
 * requests under way, and values of whole bytes use them up. With one row, the processor's own prefetching is
 * faster than requests from far ahead, so all lines of a unit are requested when its turn comes; with
 * several, they go to the second-level cache. */
static fetching fetching_of(weir__panel_format format, int n_panels, int rows, bool zen4)
{
    bool tight = weir__panel_layouts[format].values == WEIR__VALUES_BYTES && zen4;
    if (n_panels > 1 || (tight && rows > 1)) return (fetching){4352, tight};
    return (fetching){tight ? 0 : 8704, false};
}

INLINE void fetch(const unsigned char *at, const int size, bool far)
{
    __asm__("" : "+r"(at)); /* gcc would keep the address of each line in a register of its own */
    if (far) {
#pragma GCC unroll 9
        for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)at + i, _MM_HINT_T1);
    } else {
#pragma GCC unroll 9
        for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)at + i, _MM_HINT_T0);
    }
}

/* rows: some groups, and `rest` more. how: NULL = the panels are in a cache. */
INLINE void multiply_tile(const weir__panel_format format, const int n_panels, const int rest, int rows,
                          const unsigned char *panels, const weir__activations *x, int64_t n_blocks,
                          float *out, size_t stride, const fetching *how)
{
    const int head = weir__panel_layouts[format].head_bytes, size = weir__panel_layouts[format].unit_bytes;
    const int n_units = weir__panel_layouts[format].columns / WEIR__UNIT;
    const size_t panel_bytes = (size_t)n_blocks * (size_t)(head + n_units * size);
    const unsigned char *end = panels + panel_bytes;
    const size_t ahead = how != NULL ? how->ahead : 0;
    __m512 sums[WEIR__TILE][PANELS];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const unsigned char *unit = panels + head;
        for (int u = 0; u < n_units; u++, unit += size, x++) {
            if (rows > 1) fetch_activations(x + 2, rows);
            /* Past the end of a panel, that of as many panels further. */
            size_t later = ahead + ((size_t)(end - unit) > ahead ? 0 : (size_t)(n_panels - 1) * panel_bytes);
            if (how != NULL) {
#pragma GCC unroll 2
                for (int p = 0; p < n_panels; p++)
                    fetch(unit + (size_t)p * panel_bytes + later, size, how->far);
            }
            weights w[PANELS];
#pragma GCC unroll 2
            for (int p = 0; p < PANELS; p++)
                if (p < n_panels && weir__panel_has_codes(format))
                    unpack_codes(format, unit + (size_t)p * panel_bytes, &w[p]);
#pragma GCC unroll 2
            for (int part = 0; part < n_parts(format); part++) {
#pragma GCC unroll 2
                for (int p = 0; p < PANELS; p++)
                    if (p < n_panels) {
                        const unsigned char *at = unit + (size_t)p * panel_bytes;
                        if (!weir__panel_has_codes(format)) unpack_values(format, at, &w[p]);
                        unpack_scales(format, panels + (size_t)p * panel_bytes, at, &w[p]);
                    }
                int r = 0;
                for (; r + GROUP <= rows; r += GROUP)
                    multiply_group(format, n_panels, part, GROUP, w, x, r, sums);
                multiply_group(format, n_panels, part, rest, w, x, r, sums);
            }
        }
        panels = unit;
    }
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
            if (p < n_panels) _mm512_storeu_ps(out + (size_t)r * stride + p * WEIR__PANEL_ROWS, sums[r][p]);
}

/* ---- A kernel for each format, number of panels and of rows beyond whole groups ---- */

typedef void (*kernel)(int rows, const unsigned char *panels, const weir__activations *x, int64_t n_blocks,
                       float *out, size_t stride, const fetching *how);

#define EACH(X, format)                                                                                      \
    X(format, 1, 0)                                                                                          \
    X(format, 1, 1)                                                                                          \
    X(format, 1, 2)                                                                                          \
    X(format, 1, 3)                                                                                          \
    X(format, 2, 0)                                                                                          \
    X(format, 2, 1)                                                                                          \
    X(format, 2, 2)                                                                                          \
    X(format, 2, 3)

#define DEFINE(format, n_panels, rest)                                                                       \
    static void kernel_##format##_##n_panels##_##rest(int rows, const unsigned char *panels,                 \
                                                      const weir__activations *x, int64_t n_blocks,          \
                                                      float *out, size_t stride, const fetching *how)        \
    {                                                                                                        \
        multiply_tile(WEIR__PANEL_##format, n_panels, rest, rows, panels, x, n_blocks, out, stride, how);    \
    }
#define DEFINE_ALL(format) EACH(DEFINE, format)
WEIR__PANEL_QUANTIZED(DEFINE_ALL)

#define LIST(format, n_panels, rest) [(n_panels)-1][rest] = kernel_##format##_##n_panels##_##rest,
#define LIST_ALL(format)             [WEIR__PANEL_##format] = {EACH(LIST, format)},
static const kernel kernels[WEIR__PANEL_N_FORMATS][PANELS][GROUP] = {WEIR__PANEL_QUANTIZED(LIST_ALL)};

static void multiply(weir__panel_format format, const void *panels, const void *activations, int64_t m,
                     int64_t k, float *out, size_t stride, int64_t first, int64_t end)
{
    const weir__activations *x = activations;
    int64_t n_units = k / WEIR__UNIT, n_blocks = k / weir__panel_layouts[format].columns;
    int64_t rows = weir__tile_rows(m), pass = PASS_BYTES / (n_units * (int64_t)sizeof *x) * rows;
    size_t panel_bytes = weir__panel_bytes(format, WEIR__PANEL_ROWS, k);
    /* One row is read faster in one stream than in two, and on Zen 4 several are, too. */
    bool zen4 = (weir__cpu_features() & WEIR__CPU_ZEN4) != 0;
    int64_t most = m == 1 || zen4 ? 1 : PANELS;
    if (pass < rows) pass = rows;
    for (int64_t begin = 0; begin < m; begin += pass) {
        int64_t stop = begin + pass < m ? begin + pass : m;
        for (int64_t p = first; p < end; p += most)
            for (int64_t r = begin; r < stop; r += rows) {
                int n = (int)(stop - r < rows ? stop - r : rows);
                int n_panels = (int)(end - p < most ? end - p : most);
                fetching how = fetching_of(format, n_panels, n, zen4);
                kernels[format][n_panels - 1][n % GROUP](
                    n, (const unsigned char *)panels + (size_t)p * panel_bytes, x + r / rows * n_units,
                    n_blocks, out + (size_t)r * stride + p * WEIR__PANEL_ROWS, stride,
                    r == begin ? &how : NULL);
            }
    }
}

const weir__gemm weir__gemm_avx512 = {"avx512-vnni", sizeof(weir__activations), quantize, multiply};
