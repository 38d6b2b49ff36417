/* gemm.h: products of packed weights and activations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * out[m][n] = sum over k of weights[n][k] × activations[m][k]. For quantized weights the activations are
 * rounded to eight bits with a scale for each 32 of them, as ggml's Q8_0 does, products of integers are
 * exact, and those of a unit of 32 columns are scaled and added in the order of the columns. For BF16 and F16
 * weights they are rounded to the weights' format, as ggml does too, and products are added in single
 * precision in the order of the columns. Weights of encoders and their activations are 16-bit integers with a
 * scale for each 32 of them, whose products are exact. So a result depends on its own row and its own
 * activations only: not on how many rows there are, on their tiles, or on threads. */
#ifndef WEIR_KERNELS_GEMM_H
#define WEIR_KERNELS_GEMM_H

#include "kernels/panel.h"

#define WEIR__TILE 16 /* most rows of activations that a kernel multiplies at once */

/* One unit of a tile's rows, for quantized weights. */
typedef struct weir__activations {
    int8_t q[WEIR__TILE][WEIR__UNIT];
    float
        scale[WEIR__TILE]; /* rounded to half precision, as Q8_0 stores it; NaN where an activation is one */
    float sum[WEIR__TILE]; /* of q, times scale: the factor of a weight's minimum */
    int32_t minus[WEIR__TILE];      /* sum of q, negative: the factor of a weight's offset */
    int32_t minus_half[WEIR__TILE]; /* the same of the first 16 */
} weir__activations;

/* Activations for floating-point weights: as BF16, or rounded and kept in single precision. */
typedef struct weir__activations_bf16 {
    uint16_t x[WEIR__TILE][WEIR__UNIT];
} weir__activations_bf16;

typedef struct weir__activations_float {
    float x[WEIR__TILE][WEIR__UNIT];
} weir__activations_float;

/* Activations for weights that are 16-bit integers: an activation is q × factor. */
typedef struct weir__activations_integers {
    int16_t q[WEIR__TILE][WEIR__UNIT];
    float factor[WEIR__TILE]; /* not finite where the sum of the squares of a unit is not */
} weir__activations_integers;

/* Products of weights whose activations are rounded in the same way. */
typedef struct weir__gemm {
    const char *name;
    size_t unit_bytes; /* of one unit of a tile's activations */

    /* Rounds units [first, end) of m rows of k floats; unit u is unit u % n of row u / n, n being
     * weir__units_in(k). x is row x_row, and those after it are `stride` floats apart. */
    void (*quantize)(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                     int64_t first, int64_t end);

    /* Columns 16 × first to 16 × end of out, [m][n] floats whose rows are `stride` apart. */
    void (*multiply)(weir__panel_format format, const void *panels, const void *x, int64_t m, int64_t k,
                     float *out, size_t stride, int64_t first, int64_t end);
} weir__gemm;

/* Rows of each tile but the last, for m rows: tiles are as even as they can be. */
static inline int64_t weir__tile_rows(int64_t m)
{
    int64_t n_tiles = (m + WEIR__TILE - 1) / WEIR__TILE;
    return n_tiles > 0 ? (m + n_tiles - 1) / n_tiles : 1;
}

/* Bytes for m rows of k columns. Tiles stand one behind the other, each a row of units. */
static inline size_t weir__activations_bytes(const weir__gemm *gemm, int64_t m, int64_t k)
{
    int64_t rows = weir__tile_rows(m);
    return (size_t)((m + rows - 1) / rows) * (size_t)weir__units_in(k) * gemm->unit_bytes;
}

/* ---- For the kernels ---- */

/* The sum of activations that multiplies the minimum of a unit, or of a part of it. */
static inline float weir__activations_sum(const weir__activations *x, int r, int parts, int part)
{
    if (parts == 1) return x->sum[r];
    return x->scale[r] * (float)(part == 0 ? -x->minus_half[r] : x->minus_half[r] - x->minus[r]);
}

/* Some units of a row of activations, where they lie: to each unit of a row belongs one of its tile's. */
typedef struct weir__gemm_run {
    int64_t row, unit, n;
    int64_t tile_unit; /* the first one's, counted from the first tile on */
    int64_t tile_row;
} weir__gemm_run;

/* The run of the units of [first, end) that are in the first one's row. */
static inline weir__gemm_run weir__gemm_run_at(int64_t first, int64_t end, int64_t n_units, int64_t rows)
{
    int64_t row = first / n_units, unit = first % n_units, left = n_units - unit;
    weir__gemm_run run = {row, unit, end - first < left ? end - first : left, row / rows * n_units + unit,
                          row % rows};
    return run;
}

extern const weir__gemm weir__gemm_avx512, weir__gemm_avx2;                    /* for quantized weights */
extern const weir__gemm weir__gemm_bf16_avx512;                                /* with vdpbf16ps */
extern const weir__gemm weir__gemm_fma_bf16_avx512, weir__gemm_fma_f16_avx512; /* in single precision */
extern const weir__gemm weir__gemm_fma_bf16_avx2, weir__gemm_fma_f16_avx2;
extern const weir__gemm weir__gemm_integers_avx512, weir__gemm_integers_avx2; /* for WEIR__PANEL_F32 */
/* The same on ARM. */
extern const weir__gemm weir__gemm_i8mm, weir__gemm_dotprod, weir__gemm_neon;
extern const weir__gemm weir__gemm_fma_bf16_neon, weir__gemm_fma_f16_neon, weir__gemm_integers_neon;

#endif
