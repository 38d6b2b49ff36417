/* gemm_float.h: how the kernels of floating-point weights pass over panels and activations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A kernel multiplies two panels with up to GROUP rows of activations, so that each activation that is read
 * is used twice. A tile of more rows is multiplied in even parts. Who includes this defines GROUP. */
#ifndef WEIR_KERNELS_GEMM_FLOAT_H
#define WEIR_KERNELS_GEMM_FLOAT_H

#include "kernels/gemm.h"
#include "kernels/inline.h"

#define PANELS 2

/* Bytes of a unit of a panel. */
#define UNIT_BYTES 1024

/* Units ahead to fetch. */
#define AHEAD 8

/* Activations that are passed over again and again for each panel; they should stay in the second-level
 * cache. */
#define PASS_BYTES (640 * 1024)

/* x: the first row of activations, in the first unit; out[row][column of the panels]. */
typedef void (*kernel)(const unsigned char *panels, const void *x, int64_t n_units, float *out,
                       size_t stride);

/* Bytes from unit u to the one to fetch; past the end of a panel, that of as many panels further. */
INLINE size_t ahead(const int n_panels, int64_t u, int64_t n_units)
{
    int64_t further = u + AHEAD < n_units ? 0 : (n_panels - 1) * n_units;
    return (size_t)(AHEAD + further) * UNIT_BYTES;
}

/* Panels [first, end); kernels are listed by numbers of panels and of rows, each less one. */
static void pass_over(const kernel kernels[PANELS][GROUP], size_t tile_unit_bytes,
                      const unsigned char *panels, const unsigned char *x, int64_t m, int64_t k, float *out,
                      size_t stride, int64_t first, int64_t end)
{
    int64_t n_units = k / WEIR__UNIT, rows = weir__tile_rows(m);
    int64_t n_groups = (rows + GROUP - 1) / GROUP, group = (rows + n_groups - 1) / n_groups;
    size_t tile_bytes = (size_t)n_units * tile_unit_bytes, panel_bytes = (size_t)n_units * UNIT_BYTES;
    int64_t pass = PASS_BYTES / (int64_t)tile_bytes * rows;
    if (pass < rows) pass = rows;
    for (int64_t begin = 0; begin < m; begin += pass) {
        int64_t stop = begin + pass < m ? begin + pass : m;
        for (int64_t p = first; p < end; p += PANELS)
            for (int64_t r = begin, n; r < stop; r += n) {
                int64_t in_tile = r % rows, left = rows - in_tile < stop - r ? rows - in_tile : stop - r;
                n = left < group ? left : group;
                kernels[end - p < PANELS ? end - p - 1 : PANELS - 1][n - 1](
                    panels + (size_t)p * panel_bytes,
                    x + (size_t)(r / rows) * tile_bytes + (size_t)in_tile * (tile_unit_bytes / WEIR__TILE),
                    n_units, out + (size_t)r * stride + p * WEIR__PANEL_ROWS, stride);
            }
    }
}

/* A function for each number of rows. */
#define SIX_ROWS(X, ...)                                                                                     \
    X(1, __VA_ARGS__)                                                                                        \
    X(2, __VA_ARGS__)                                                                                        \
    X(3, __VA_ARGS__)                                                                                        \
    X(4, __VA_ARGS__)                                                                                        \
    X(5, __VA_ARGS__)                                                                                        \
    X(6, __VA_ARGS__)
#define EIGHT_ROWS(X, ...)                                                                                   \
    SIX_ROWS(X, __VA_ARGS__)                                                                                 \
    X(7, __VA_ARGS__)                                                                                        \
    X(8, __VA_ARGS__)

#endif
