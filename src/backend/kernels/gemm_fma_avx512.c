/* gemm_fma_avx512.c: BF16 and F16 weights on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Weights become single precision as they are read, once for all rows of a group; activations are kept in
 * it. */
#include <immintrin.h>

#include "backend/kernels/gemm_float.h"

/* ---- Activations ---- */

/* To the nearest BF16, ties to even; what is no number stays none. */
INLINE __m512 to_bf16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-65536)));
}

INLINE __m512 to_f16(__m512 x)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void round_to(const weir__panel_format format, const float *x, size_t stride, int64_t x_row, int64_t m,
                     int64_t k, weir__activations_float *out, int64_t first, int64_t end)
{
    int64_t n_units = k / WEIR__UNIT, rows = weir__tile_rows(m);
    for (int64_t u = first; u < end; u++) {
        int64_t row = u / n_units, unit = u % n_units;
        const float *from = x + (size_t)(row - x_row) * stride + unit * WEIR__UNIT;
        float *to = out[row / rows * n_units + unit].x[row % rows];
        for (int i = 0; i < WEIR__UNIT; i += 16) {
            __m512 some = _mm512_loadu_ps(from + i);
            _mm512_storeu_ps(to + i, format == WEIR__PANEL_BF16 ? to_bf16(some) : to_f16(some));
        }
    }
}

static void quantize_bf16(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                          int64_t first, int64_t end)
{
    round_to(WEIR__PANEL_BF16, x, stride, x_row, m, k, out, first, end);
}

static void quantize_f16(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                         int64_t first, int64_t end)
{
    round_to(WEIR__PANEL_F16, x, stride, x_row, m, k, out, first, end);
}

/* ---- Products ---- */

/* Two columns of a panel. */
INLINE void read_two(const weir__panel_format format, const unsigned char *at, __m512 *w)
{
    __m512i both = _mm512_loadu_si512(at);
    if (format == WEIR__PANEL_BF16) {
        w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
        w[1] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
    } else {
        w[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(both));
        w[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
    }
}

INLINE void multiply_group(const weir__panel_format format, const int n_panels, const int rows,
                           const unsigned char *panels, const float *x, int64_t n_units, float *out,
                           size_t stride)
{
    const size_t panel_bytes = (size_t)n_units * UNIT_BYTES;
    __m512 sums[GROUP][PANELS] = {{_mm512_setzero_ps()}};
    for (int64_t u = 0; u < n_units; u++, panels += UNIT_BYTES, x += WEIR__TILE * WEIR__UNIT) {
        size_t later = ahead(n_panels, u, n_units);
#pragma GCC unroll 4
        for (int i = 0; i < WEIR__UNIT; i += 2) {
            __m512 w[PANELS][2];
#pragma GCC unroll 2
            for (int p = 0; p < PANELS; p++)
                if (p < n_panels) {
                    const unsigned char *at = panels + (size_t)p * panel_bytes + 32 * i;
                    _mm_prefetch((const char *)at + later, _MM_HINT_T0);
                    read_two(format, at, w[p]);
                }
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++)
#pragma GCC unroll 8
                for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
                    for (int p = 0; p < PANELS; p++)
                        if (r < rows && p < n_panels)
                            sums[r][p] = _mm512_fmadd_ps(w[p][j], _mm512_set1_ps(x[r * WEIR__UNIT + i + j]),
                                                         sums[r][p]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
            if (r < rows && p < n_panels)
                _mm512_storeu_ps(out + (size_t)r * stride + p * WEIR__PANEL_ROWS, sums[r][p]);
}

#define DEFINE(rows, format, n_panels)                                                                       \
    static void kernel_##format##_##n_panels##_##rows(const unsigned char *panels, const void *x,            \
                                                      int64_t n_units, float *out, size_t stride)            \
    {                                                                                                        \
        multiply_group(WEIR__PANEL_##format, n_panels, rows, panels, x, n_units, out, stride);               \
    }
ROWS(DEFINE, BF16, 1)
ROWS(DEFINE, BF16, 2)
ROWS(DEFINE, F16, 1)
ROWS(DEFINE, F16, 2)

#define LIST(rows, format, n_panels) kernel_##format##_##n_panels##_##rows,
static const kernel kernels_bf16[PANELS][GROUP] = {{ROWS(LIST, BF16, 1)}, {ROWS(LIST, BF16, 2)}};
static const kernel kernels_f16[PANELS][GROUP] = {{ROWS(LIST, F16, 1)}, {ROWS(LIST, F16, 2)}};

static void multiply(weir__panel_format format, const void *panels, const void *x, int64_t m, int64_t k,
                     float *out, size_t stride, int64_t first, int64_t end)
{
    pass_over(format == WEIR__PANEL_BF16 ? kernels_bf16 : kernels_f16, sizeof(weir__activations_float),
              panels, x, m, k, out, stride, first, end);
}

const weir__gemm weir__gemm_fma_bf16_avx512 = {"avx512", sizeof(weir__activations_float), quantize_bf16,
                                               multiply};
const weir__gemm weir__gemm_fma_f16_avx512 = {"avx512", sizeof(weir__activations_float), quantize_f16,
                                              multiply};
