/* gemm_fma.h: BF16 and F16 weights in single precision, at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Weights become single precision as they are read, once for all rows of a group; activations are kept in it.
 * Before it includes this, a level defines `vector`, of WIDTH floats, MM(operation), the name of an
 * intrinsic, and the macros of gemm_float.h; after that, the functions that are declared first. */
#ifndef WEIR_KERNELS_GEMM_FMA_H
#define WEIR_KERNELS_GEMM_FMA_H

#include "kernels/gemm_float.h"

/* Vectors of a column of a panel. */
#define VECTORS (WEIR__PANEL_ROWS / WIDTH)

/* The numbers of a vector as they are stored. */
typedef uint32_t bits __attribute__((vector_size(4 * WIDTH)));

/* Two columns of a panel. */
INLINE void read_two(weir__panel_format format, const unsigned char *at, vector (*w)[VECTORS]);

INLINE vector zero(void)
{
    return MM(setzero_ps)();
}

INLINE void store(float *at, vector x)
{
    MM(storeu_ps)(at, x);
}

INLINE vector multiply_add(vector a, float b, vector sum)
{
    return MM(fmadd_ps)(a, MM(set1_ps)(b), sum);
}

/* ---- Activations ---- */

/* Rounds to the nearest BF16, ties to even, and back; NaN stays NaN. */
INLINE vector to_bf16(vector x)
{
    bits none = (bits)(x != x); /* NOLINT(misc-redundant-expression): where it is a NaN */
    bits all = (bits)x, rounded = all + 0x7fff + (all >> 16 & 1);
    return (vector)(((none & (all | 0x00400000)) | (~none & rounded)) & 0xffff0000);
}

INLINE vector to_f16(vector x)
{
    return MM(cvtph_ps)(MM(cvtps_ph)(x, TO_NEAREST));
}

INLINE void round_to(const weir__panel_format format, const float *x, size_t stride, int64_t x_row, int64_t m,
                     int64_t k, weir__activations_float *out, int64_t first, int64_t end)
{
    int64_t rows = weir__tile_rows(m);
    for (weir__gemm_run run; first < end; first += run.n) {
        run = weir__gemm_run_at(first, end, k / WEIR__UNIT, rows);
        const float *from = x + (size_t)(run.row - x_row) * stride + run.unit * WEIR__UNIT;
        for (int64_t i = 0; i < run.n * WEIR__UNIT; i += WIDTH) {
            vector some = MM(loadu_ps)(from + i);
            store(out[run.tile_unit + i / WEIR__UNIT].x[run.tile_row] + i % WEIR__UNIT,
                  format == WEIR__PANEL_BF16 ? to_bf16(some) : to_f16(some));
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

INLINE void multiply_group(const weir__panel_format format, const int n_panels, const int rows,
                           const unsigned char *panels, const float *x, int64_t n_units, float *out,
                           size_t stride)
{
    const size_t panel_bytes = (size_t)n_units * UNIT_BYTES;
    vector sums[GROUP][PANELS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[r][p][v] = zero();
    for (int64_t u = 0; u < n_units; u++, panels += UNIT_BYTES, x += WEIR__TILE * WEIR__UNIT) {
        size_t later = ahead(n_panels, u, n_units);
#pragma GCC unroll 4
        for (int i = 0; i < WEIR__UNIT; i += 2) {
            vector w[PANELS][2][VECTORS];
#pragma GCC unroll 2
            for (int p = 0; p < PANELS; p++)
                if (p < n_panels) {
                    const unsigned char *at = panels + (size_t)p * panel_bytes + 32 * i;
                    __builtin_prefetch(at + later, 0, 3);
                    read_two(format, at, w[p]);
                }
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++)
#pragma GCC unroll 8
                for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
                    for (int p = 0; p < PANELS; p++)
#pragma GCC unroll 4
                        for (int v = 0; v < VECTORS; v++)
                            if (r < rows && p < n_panels)
                                sums[r][p][v] =
                                    multiply_add(w[p][j][v], x[r * WEIR__UNIT + i + j], sums[r][p][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; r++)
#pragma GCC unroll 2
        for (int p = 0; p < PANELS; p++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                if (r < rows && p < n_panels)
                    store(out + (size_t)r * stride + p * WEIR__PANEL_ROWS + v * WIDTH, sums[r][p][v]);
}

/* Two panels one after the other where their sums would need more registers than there are. */
INLINE void multiply_panels(const weir__panel_format format, const int n_panels, const int rows,
                            const unsigned char *panels, const float *x, int64_t n_units, float *out,
                            size_t stride)
{
    if (n_panels == 2 && rows > MOST_ROWS_OF_TWO) {
        multiply_group(format, 1, rows, panels, x, n_units, out, stride);
        panels += (size_t)n_units * UNIT_BYTES;
        out += WEIR__PANEL_ROWS;
        multiply_group(format, 1, rows, panels, x, n_units, out, stride);
    } else {
        multiply_group(format, n_panels, rows, panels, x, n_units, out, stride);
    }
}

#define DEFINE(rows, format, n_panels)                                                                       \
    static void kernel_##format##_##n_panels##_##rows(const unsigned char *panels, const void *x,            \
                                                      int64_t n_units, float *out, size_t stride)            \
    {                                                                                                        \
        multiply_panels(WEIR__PANEL_##format, n_panels, rows, panels, x, n_units, out, stride);              \
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

#endif
