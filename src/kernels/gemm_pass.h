/* gemm_pass.h: how the levels that multiply a single panel pass over panels and activations.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_GEMM_PASS_H
#define WEIR_KERNELS_GEMM_PASS_H

#include "kernels/gemm.h"

/* Activations that are passed over again and again for each panel; they should stay in the second-level
 * cache. */
#define PASS_BYTES (192 * 1024)

/* Multiplies a panel with up to WEIR__TILE rows of a tile, x; a level defines it. */
static void multiply_tile(weir__panel_format format, int rows, const unsigned char *panel,
                          const weir__activations *x, int64_t n_blocks, float *out, size_t stride);

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

#endif
