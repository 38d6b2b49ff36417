/* gemm_bf16_avx512.c: BF16 weights on processors with AVX-512 BF16.
 * SPDX-License-Identifier: Apache-2.0
 *
 * vdpbf16ps adds two products to each of sixteen sums: of two neighbouring columns of sixteen rows with two
 * activations that all lanes share. It takes subnormal numbers for zero. */
#include <immintrin.h>
#include <string.h>

#define GROUP 8 /* sixteen sums that do not wait for each other */
#define ROWS  EIGHT_ROWS

#include "kernels/gemm_float.h"

static void quantize(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                     int64_t first, int64_t end)
{
    int64_t rows = weir__tile_rows(m);
    for (weir__gemm_run run; first < end; first += run.n) {
        run = weir__gemm_run_at(first, end, k / WEIR__UNIT, rows);
        const float *from = x + (size_t)(run.row - x_row) * stride + run.unit * WEIR__UNIT;
        weir__activations_bf16 *to = (weir__activations_bf16 *)out + run.tile_unit;
        for (int64_t i = 0; i < run.n; i++, from += WEIR__UNIT) {
            __m512bh all = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
            memcpy(to[i].x[run.tile_row], &all, sizeof all);
        }
    }
}

INLINE __m512bh two(const uint16_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return (__m512bh)_mm512_set1_epi32(value);
}

INLINE void multiply_group(const int n_panels, const int rows, const unsigned char *panels, const uint16_t *x,
                           int64_t n_units, float *out, size_t stride)
{
    const size_t panel_bytes = (size_t)n_units * UNIT_BYTES;
    __m512 sums[GROUP][PANELS] = {{_mm512_setzero_ps()}};
    for (int64_t u = 0; u < n_units; u++, panels += UNIT_BYTES, x += WEIR__TILE * WEIR__UNIT) {
        size_t later = ahead(n_panels, u, n_units);
#pragma GCC unroll 4
        for (int i = 0; i < WEIR__UNIT / 2; i++) {
            __m512bh w[PANELS];
#pragma GCC unroll 2
            for (int p = 0; p < PANELS; p++)
                if (p < n_panels) {
                    const unsigned char *at = panels + (size_t)p * panel_bytes + 64 * i;
                    _mm_prefetch((const char *)at + later, _MM_HINT_T0);
                    w[p] = (__m512bh)_mm512_loadu_si512(at);
                }
#pragma GCC unroll 8
            for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
                for (int p = 0; p < PANELS; p++)
                    if (r < rows && p < n_panels)
                        sums[r][p] = _mm512_dpbf16_ps(sums[r][p], w[p], two(x + r * WEIR__UNIT + 2 * i));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
            if (r < rows && p < n_panels)
                _mm512_storeu_ps(out + (size_t)r * stride + p * WEIR__PANEL_ROWS, sums[r][p]);
}

#define DEFINE(rows, panels_)                                                                                \
    static void kernel_##panels_##_##rows(const unsigned char *panels, const void *x, int64_t n_units,       \
                                          float *out, size_t stride)                                         \
    {                                                                                                        \
        multiply_group(panels_, rows, panels, x, n_units, out, stride);                                      \
    }
ROWS(DEFINE, 1)
ROWS(DEFINE, 2)

#define LIST(rows, panels) kernel_##panels##_##rows,
static const kernel kernels[PANELS][GROUP] = {{ROWS(LIST, 1)}, {ROWS(LIST, 2)}};

static void multiply(weir__panel_format format, const void *panels, const void *x, int64_t m, int64_t k,
                     float *out, size_t stride, int64_t first, int64_t end)
{
    (void)format;
    pass_over(kernels, sizeof(weir__activations_bf16), panels, x, m, k, out, stride, first, end);
}

const weir__gemm weir__gemm_bf16_avx512 = {"avx512-bf16", sizeof(weir__activations_bf16), quantize, multiply};
