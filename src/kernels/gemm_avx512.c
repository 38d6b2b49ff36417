/* gemm_avx512.c: quantized weights on processors with AVX-512 VNNI.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile multiplies two panels of weights with up to sixteen rows of activations. A unit's weights stay in
 * sixteen registers while the activations pass by, four rows at a time. That is one vpdpbusd for 64 products,
 * and for each 32 columns of a row two or three multiplications in single precision, which take the same
 * ports: 80 or 73 % of the peak at the most. */
#define LANES 16
#include "kernels/gemm_q8.h"

#include <immintrin.h>
#include <string.h>

/* Panels and rows of activations at a time: their sums hide vpdpbusd's latency, and together with the weights
 * they fill 24 registers. Each activation that is read is used twice. */
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
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(scaled));
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
    __m512 scale[2]; /* of the unit, or of each half */
    __m512 min;      /* added for each activation's sum */
} weights;

INLINE __m512 halves(const unsigned char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

INLINE __m512 bytes(const unsigned char *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)at)));
}

INLINE __m512 signed_bytes(const unsigned char *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at)));
}

/* Half of two to the power of each of sixteen exponents; the least two are subnormal numbers. */
INLINE __m512 half_exponents(const unsigned char *at)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)at));
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 least = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    bits = _mm512_mask_sllv_epi32(bits, least, _mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(bits);
}

INLINE void add_plane(weights *w, const unsigned char *at, char bit)
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __mmask64 mask;
        memcpy(&mask, at + 8 * i, sizeof mask);
        w->values[i] = _mm512_mask_add_epi8(w->values[i], mask, w->values[i], _mm512_set1_epi8(bit));
    }
}

INLINE void look_up(weights *w, const uint8_t *table)
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w->values[i] = _mm512_shuffle_epi8(t, w->values[i]);
}

INLINE void unpack(const weir__panel_format format, const unsigned char *head, const unsigned char *unit,
                   weights *w)
{
    const unsigned char *scales = unit + weir__panel_layouts[format].scales_at;
    if (format == WEIR__PANEL_Q8_0) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) w->values[i] = _mm512_loadu_si512(unit + 64 * i);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i both = _mm512_loadu_si512(unit + 64 * i);
            w->values[i] = _mm512_and_si512(both, low);
            w->values[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        }
    }
    switch (format) {
    case WEIR__PANEL_Q8_0: w->scale[0] = halves(scales); break;
    case WEIR__PANEL_Q4_0: w->scale[0] = halves(scales); break;
    case WEIR__PANEL_IQ4_NL:
        look_up(w, weir__panel_iq4_nl);
        w->scale[0] = halves(scales);
        break;
    case WEIR__PANEL_MXFP4:
        look_up(w, weir__panel_mxfp4);
        w->scale[0] = half_exponents(scales);
        break;
    case WEIR__PANEL_Q4_1:
        w->scale[0] = halves(scales);
        w->min = halves(scales + 32);
        break;
    case WEIR__PANEL_Q5_0:
        add_plane(w, unit + WEIR__PANEL_NIBBLES, 16);
        w->scale[0] = halves(scales);
        break;
    case WEIR__PANEL_Q5_1:
        add_plane(w, unit + WEIR__PANEL_NIBBLES, 16);
        w->scale[0] = halves(scales);
        w->min = halves(scales + 32);
        break;
    case WEIR__PANEL_Q4_K:
        w->scale[0] = _mm512_mul_ps(halves(head), bytes(scales));
        w->min = _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), halves(head + 32)), bytes(scales + 16));
        break;
    case WEIR__PANEL_Q5_K:
        add_plane(w, unit + WEIR__PANEL_NIBBLES, 16);
        w->scale[0] = _mm512_mul_ps(halves(head), bytes(scales));
        w->min = _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), halves(head + 32)), bytes(scales + 16));
        break;
    case WEIR__PANEL_Q6_K:
        add_plane(w, unit + WEIR__PANEL_NIBBLES, 16);
        add_plane(w, unit + WEIR__PANEL_NIBBLES + WEIR__PANEL_PLANE, 32);
        w->scale[0] = _mm512_mul_ps(halves(head), signed_bytes(scales));
        w->scale[1] = _mm512_mul_ps(halves(head), signed_bytes(scales + 16));
        break;
    default: break;
    }
}

/* The bits by which an offset, a power of two, shifts the sum of the activations; -1: there is none. */
INLINE int offset_bits(const weir__panel_format format)
{
    switch (format) {
    case WEIR__PANEL_Q8_0:
    case WEIR__PANEL_IQ4_NL:
    case WEIR__PANEL_MXFP4: return 7;
    case WEIR__PANEL_Q4_0: return 3;
    case WEIR__PANEL_Q5_0: return 4;
    case WEIR__PANEL_Q6_K: return 5;
    default: return -1;
    }
}

INLINE bool has_min(const weir__panel_format format)
{
    return format == WEIR__PANEL_Q4_1 || format == WEIR__PANEL_Q5_1 || format == WEIR__PANEL_Q4_K ||
           format == WEIR__PANEL_Q5_K;
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
    return format == WEIR__PANEL_Q6_K ? 2 : 1;
}

/* The share of the weights' offset in row r. */
INLINE __m512i start(const weir__panel_format format, const int part, const weir__activations *x, int r)
{
    const int bits = offset_bits(format);
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
                if (has_min(format)) *sum = _mm512_fmadd_ps(w[p].min, _mm512_set1_ps(x->sum[at + r]), *sum);
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

/* Bytes ahead to fetch, of each panel: eight units of Q8_0, or sixteen where one row waits for a single
 * stream. Zen 4 fetches that stream itself, and faster, unless requests far ahead fill the queue of its
 * first-level cache; so there a unit of Q8_0 is requested when its turn comes, all lines at once. */
INLINE size_t bytes_ahead(const weir__panel_format format, const int n_panels)
{
    if (n_panels > 1) return 4352;
    return format == WEIR__PANEL_Q8_0 && __builtin_cpu_is("amdfam19h") ? 0 : 8704;
}

INLINE void fetch(const unsigned char *at, const int size)
{
    __asm__("" : "+r"(at)); /* gcc would keep the address of each line in a register of its own */
#pragma GCC unroll 9
    for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* rows: some groups, and `rest` more. from_memory: panels are, and not from a cache. */
INLINE void multiply_tile(const weir__panel_format format, const int n_panels, const int rest, int rows,
                          const unsigned char *panels, const weir__activations *x, int64_t n_blocks,
                          float *out, size_t stride, bool from_memory)
{
    const int head = weir__panel_layouts[format].head_bytes, size = weir__panel_layouts[format].unit_bytes;
    const int n_units = weir__panel_layouts[format].columns / WEIR__UNIT;
    const size_t panel_bytes = (size_t)n_blocks * (size_t)(head + n_units * size);
    const unsigned char *end = panels + panel_bytes;
    const size_t ahead = bytes_ahead(format, n_panels);
    __m512 sums[WEIR__TILE][PANELS];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const unsigned char *unit = panels + head;
        for (int u = 0; u < n_units; u++, unit += size, x++) {
            if (rows > 1) fetch_activations(x + 2, rows);
            /* Past the end of a panel, that of as many panels further. */
            size_t later = ahead + ((size_t)(end - unit) > ahead ? 0 : (size_t)(n_panels - 1) * panel_bytes);
            if (from_memory) {
#pragma GCC unroll 2
                for (int p = 0; p < n_panels; p++) fetch(unit + (size_t)p * panel_bytes + later, size);
            }
#pragma GCC unroll 2
            for (int part = 0; part < n_parts(format); part++) {
                weights w[PANELS];
#pragma GCC unroll 2
                for (int p = 0; p < PANELS; p++)
                    if (p < n_panels)
                        unpack(format, panels + (size_t)p * panel_bytes, unit + (size_t)p * panel_bytes,
                               &w[p]);
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
                       float *out, size_t stride, bool from_memory);

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
                                                      float *out, size_t stride, bool from_memory)           \
    {                                                                                                        \
        multiply_tile(WEIR__PANEL_##format, n_panels, rest, rows, panels, x, n_blocks, out, stride,          \
                      from_memory);                                                                          \
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
    int64_t most = m == 1 ? 1 : PANELS; /* one row waits for memory, which one stream reads faster than two */
    if (pass < rows) pass = rows;
    for (int64_t begin = 0; begin < m; begin += pass) {
        int64_t stop = begin + pass < m ? begin + pass : m;
        for (int64_t p = first; p < end; p += most)
            for (int64_t r = begin; r < stop; r += rows) {
                int n = (int)(stop - r < rows ? stop - r : rows);
                kernels[format][end - p < most ? end - p - 1 : most - 1][n % GROUP](
                    n, (const unsigned char *)panels + (size_t)p * panel_bytes, x + r / rows * n_units,
                    n_blocks, out + (size_t)r * stride + p * WEIR__PANEL_ROWS, stride, r == begin);
            }
    }
}

const weir__gemm weir__gemm_avx512 = {"avx512-vnni", sizeof(weir__activations), quantize, multiply};
