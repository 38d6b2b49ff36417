/* gemm_integers.h: products of 16-bit integers, written once for all instruction sets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A kernel multiplies PANELS panels with up to GROUP rows of activations. Columns are passed over in blocks:
 * so the activations of many rows stay in a cache, and weights are read once for all of them. A level with
 * other kernels than those for one panel and four rows defines them before it includes this: PANELS, GROUP,
 * ROWS(X, ...), a call of X for each number of rows, and KERNELS, the functions and the list of them. */
#ifndef WEIR_KERNELS_GEMM_INTEGERS_H
#define WEIR_KERNELS_GEMM_INTEGERS_H

#include "kernels/attention_vector.h"
#include "kernels/gemm.h"

#ifndef PANELS
#define PANELS  1
#define GROUP   4
#define KERNELS ROWS(DEFINE, 1) static const kernel kernels[PANELS][GROUP] = {{ROWS(LIST, 1)}};
#define ROWS(X, ...)                                                                                         \
    X(1, __VA_ARGS__)                                                                                        \
    X(2, __VA_ARGS__)                                                                                        \
    X(3, __VA_ARGS__)                                                                                        \
    X(4, __VA_ARGS__)
#endif

#define LANES WEIR__PANEL_ROWS

/* Units of a block of columns. */
#define BLOCK_UNITS 36

/* Activations that are passed over again and again for each panel; they should stay in the second-level
 * cache. */
#define PASS_BYTES (512 * 1024)

/* ---- Activations ---- */

/* The units of a row whose scales are computed together. */
#define BATCH 16

/* n units of row r of a tile, n <= BATCH, of which n_columns columns are there, in whole halves of a unit. */
INLINE void round_batch(const float *x, int n, int64_t n_columns, weir__activations_integers *to, int64_t r)
{
    sixteen values[BATCH][2];
    sixteen_integers most[BATCH], sums[BATCH];
    for (int i = 0; i < BATCH; i++) {
        for (int half = 0; half < 2; half++) {
            int64_t column = i * WEIR__UNIT + half * LANES;
            values[i][half] = i < n && column < n_columns ? load(x + column) : all_of(0.0f);
        }
        const sixteen_integers size = all_of_integer(0x7fffffff);
        most[i] = larger_integers(and_integers(bits_of(values[i][0]), size),
                                  and_integers(bits_of(values[i][1]), size));
        sums[i] = bits_of(multiply_add(values[i][1], values[i][1], multiply(values[i][0], values[i][0])));
    }
    sixteen max = floats_of(largest_each(most)), norm = root(floats_of(float_sum_each(sums)));
    /* `larger` gives the second of two numbers if one is none. */
    sixteen factor = larger(multiply(norm, all_of(1.0f / WEIR__INTEGERS_NORM)),
                            multiply(max, all_of(1.0f / WEIR__INTEGERS_MOST)));
    float factors[BATCH], scales[BATCH];
    store(factors, factor);
    store(scales, from_least(divide(all_of(1.0f), factor), max, WEIR__INTEGERS_LEAST));
    for (int i = 0; i < n; i++) {
        sixteen scale = all_of(scales[i]);
        store_integers((int32_t *)to[i].q[r],
                       low_halves(whole(values[i][0], scale), whole(values[i][1], scale)));
        to[i].factor[r] = factors[i];
    }
}

static void quantize(const float *x, size_t stride, int64_t x_row, int64_t m, int64_t k, void *out,
                     int64_t first, int64_t end)
{
    int64_t rows = weir__tile_rows(m);
    for (weir__gemm_run run; first < end; first += run.n) {
        run = weir__gemm_run_at(first, end, weir__units_in(k), rows);
        const float *from = x + (size_t)(run.row - x_row) * stride + run.unit * WEIR__UNIT;
        weir__activations_integers *to = (weir__activations_integers *)out + run.tile_unit;
        int64_t n_columns = k - run.unit * WEIR__UNIT;
        for (int64_t i = 0; i < run.n; i += BATCH)
            round_batch(from + i * WEIR__UNIT, (int)(run.n - i < BATCH ? run.n - i : BATCH),
                        n_columns - i * WEIR__UNIT, to + i, run.tile_row);
    }
}

/* ---- Products ---- */

#define UNIT_BYTES (sizeof(int16_t) * LANES * WEIR__UNIT + sizeof(float) * LANES)

INLINE sixteen_integers pair_of(const int16_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return all_of_integer(value);
}

/* Adds n_units units to the sums in out, or to zeroes. row: the first one's, of the tile. */
INLINE void multiply_group(const int n_panels, const int rows, const unsigned char *panels,
                           size_t panel_bytes, const weir__activations_integers *x, int64_t row,
                           int64_t n_units, float *out, size_t stride, bool more)
{
    sixteen sums[GROUP][PANELS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_panels; p++)
            sums[r][p] = more ? load(out + (size_t)r * stride + p * LANES) : all_of(0.0f);
    for (int64_t u = 0; u < n_units; u++, panels += UNIT_BYTES, x++) {
        sixteen_integers products[GROUP][PANELS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int p = 0; p < n_panels; p++) products[r][p] = all_of_integer(0);
#pragma GCC unroll 4
        for (int i = 0; i < WEIR__UNIT / 2; i++) {
            sixteen_integers w[PANELS];
#pragma GCC unroll 2
            for (int p = 0; p < n_panels; p++)
                w[p] = load_integers((const int32_t *)(panels + (size_t)p * panel_bytes) + LANES * i);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                sixteen_integers a = pair_of(x->q[row + r] + 2 * i);
#pragma GCC unroll 2
                for (int p = 0; p < n_panels; p++)
                    products[r][p] = multiply_add_pairs(w[p], a, products[r][p]);
            }
        }
        sixteen scales[PANELS];
#pragma GCC unroll 2
        for (int p = 0; p < n_panels; p++)
            scales[p] = load((const float *)(panels + (size_t)p * panel_bytes) + LANES * WEIR__UNIT / 2);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            sixteen factor = all_of(x->factor[row + r]);
#pragma GCC unroll 2
            for (int p = 0; p < n_panels; p++)
                sums[r][p] = multiply_add(converted(products[r][p]), multiply(scales[p], factor), sums[r][p]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_panels; p++) store(out + (size_t)r * stride + p * LANES, sums[r][p]);
}

typedef void (*kernel)(const unsigned char *panels, size_t panel_bytes, const weir__activations_integers *x,
                       int64_t row, int64_t n_units, float *out, size_t stride, bool more);

#define DEFINE(rows, n_panels)                                                                               \
    static void kernel_##n_panels##_##rows(const unsigned char *panels, size_t panel_bytes,                  \
                                           const weir__activations_integers *x, int64_t row,                 \
                                           int64_t n_units, float *out, size_t stride, bool more)            \
    {                                                                                                        \
        multiply_group(n_panels, rows, panels, panel_bytes, x, row, n_units, out, stride, more);             \
    }
#define LIST(rows, n_panels) kernel_##n_panels##_##rows,
KERNELS

/* Rows [begin, stop) of activations, of the units [u, u + n_units), with panels [first, end). */
static void multiply_block(const unsigned char *panels, size_t panel_bytes,
                           const weir__activations_integers *x, int64_t n_units_all, int64_t rows, int64_t u,
                           int64_t n_units, int64_t begin, int64_t stop, float *out, size_t stride,
                           int64_t first, int64_t end)
{
    int64_t n_groups = (rows + GROUP - 1) / GROUP, group = (rows + n_groups - 1) / n_groups;
    for (int64_t p = first; p < end; p += PANELS)
        for (int64_t r = begin, n; r < stop; r += n) {
            int64_t in_tile = r % rows, left = rows - in_tile < stop - r ? rows - in_tile : stop - r;
            n = left < group ? left : group;
            kernels[end - p < PANELS ? end - p - 1 : PANELS - 1][n - 1](
                panels + (size_t)p * panel_bytes + (size_t)u * UNIT_BYTES, panel_bytes,
                x + r / rows * n_units_all + u, in_tile, n_units,
                out + (size_t)r * stride + p * WEIR__PANEL_ROWS, stride, u > 0);
        }
}

static void multiply_all(weir__panel_format format, const void *panels, const void *x, int64_t m, int64_t k,
                         float *out, size_t stride, int64_t first, int64_t end)
{
    int64_t n_units = weir__units_in(k), rows = weir__tile_rows(m);
    int64_t pass = PASS_BYTES / (BLOCK_UNITS * (int64_t)sizeof(weir__activations_integers)) * rows;
    (void)format;
    for (int64_t begin = 0; begin < m; begin += pass)
        for (int64_t u = 0; u < n_units; u += BLOCK_UNITS)
            multiply_block(panels, (size_t)n_units * UNIT_BYTES, x, n_units, rows, u,
                           n_units - u < BLOCK_UNITS ? n_units - u : BLOCK_UNITS, begin,
                           begin + pass < m ? begin + pass : m, out, stride, first, end);
}

#endif
