/* attention_cells.h: keys and values of cells as 16-bit integers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each cell has a scale of its own, so that its integers do not depend on other cells. */
#ifndef WEIR_KERNELS_ATTENTION_CELLS_H
#define WEIR_KERNELS_ATTENTION_CELLS_H

#include "kernels/attention_vector.h"

/* The Euclidean norm of a query's integers, and of a key's. The sum of their products is below 2^31 even if a
 * key has twice that norm, as keys in blocks may. */
#define NORM       32740.0f
#define BLOCK_NORM 65000.0f

/* The largest integer of a value. A block's weights sum up to at most WEIGHTS, each at most LARGEST_WEIGHT,
 * so their products' sum is below 2^31. */
#define LARGEST_VALUE  16383.0f
#define LARGEST_WEIGHT 32767.0f
#define WEIGHTS        130900.0f

/* Pairs of dimensions as they are packed: there are zeroes if the size is no multiple of 32. */
INLINE int32_t pairs_in(int32_t size)
{
    return (size + 31) / 32 * 16;
}

/* ---- Scales ---- */

/* The cells that are packed together: as many scales are computed at the same time. */
#define BATCH 16

/* Factors by which the cells of a batch become integers: of numbers, or in formats of blocks of each block's
 * bytes, in units of 1 / 128. */
typedef struct scales {
    _Alignas(64) float numbers[BATCH];
    _Alignas(64) int16_t blocks[WEIR__ATTENTION_SIZE / 32][BATCH];
} scales;

/* integer / size, 0 where the size is next to nothing; *factors give the numbers back. */
INLINE sixteen scales_for(sixteen size, float integer, float *factors)
{
    store(factors, multiply(size, all_of(1.0f / integer)));
    return from_least(divide(all_of(integer), size), size, 0x1p-60f);
}

/* The square root of the sum of the squares of each cell's dimensions. */
INLINE sixteen norms(const weir__attention_format format, const int32_t size, const char *const *cells)
{
    sixteen_integers sums[BATCH];
#pragma GCC unroll 4
    for (int32_t c = 0; c < BATCH; c++) {
        sixteen sum = all_of(0.0f);
        for (int32_t d = 0; d < size; d += 16) {
            sixteen x = dimensions(format, size, cells[c], d);
            sum = multiply_add(x, x, sum);
        }
        sums[c] = bits_of(sum);
    }
    return root(floats_of(float_sum_each(sums)));
}

/* The largest absolute value of each cell's dimensions, or a NaN if it has one: the bits of numbers without
 * their signs are in the order of the numbers, and those of a NaN are the largest. */
INLINE sixteen largest_values(const weir__attention_format format, const int32_t size,
                              const char *const *cells)
{
    sixteen_integers most[BATCH];
    const bool wide = format == WEIR__ATTENTION_F32;
    const int32_t bytes = bytes_of(format, size);
#pragma GCC unroll 4
    for (int32_t c = 0; c < BATCH; c++) {
        most[c] = all_of_integer(0);
        for (int32_t at = 0, n; at < bytes; at += n) {
            n = bytes - at >= 64 ? 64 : bytes - at >= 32 ? 32 : 16;
            sixteen_integers x = load_bytes(cells[c] + at, n);
            x = and_integers(x, all_of_integer(wide ? 0x7fffffff : 0x7fff7fff));
            most[c] = wide ? larger_integers(x, most[c]) : larger_halves(x, most[c]);
        }
    }
    if (wide) return floats_of(largest_each(most));
    return number_of_halves(format, largest_half_each(most));
}

/* The scales of each cell's blocks as factors of their bytes, such that the largest would make `largest` of
 * 128. Bytes of Q4_0 are nibbles × 16. */
INLINE void block_scales(const weir__attention_format format, const int32_t size, float largest, scales *s,
                         float *factors, const char *const *cells)
{
    sixteen of_block[WEIR__ATTENTION_SIZE / 32], most = all_of(0.0f);
    for (int32_t b = 0; b < size / 32; b++) {
        _Alignas(32) uint16_t halves_of[BATCH];
#pragma GCC unroll 16
        for (int32_t c = 0; c < BATCH; c++)
            memcpy(&halves_of[c], cells[c] + bytes_of(format, 32 * b), sizeof *halves_of);
        halves(of_block[b].part, halves_of);
        most = floats_of(larger_integers(bits_of(absolute(of_block[b])), bits_of(most)));
    }
    sixteen scale = scales_for(most, largest, factors);
    /* A number is byte × scale; the byte becomes byte × (its block's scale × largest / most) / 128. */
    sixteen in_bytes = all_of(format == WEIR__ATTENTION_Q8_0 ? 128.0f : 8.0f);
    store(factors, multiply(load(factors), in_bytes));
    for (int32_t b = 0; b < size / 32; b++)
        store_halves(s->blocks[b], rounded(multiply(of_block[b], scale)).part);
}

INLINE bool in_blocks(const weir__attention_format format)
{
    return format == WEIR__ATTENTION_Q8_0 || format == WEIR__ATTENTION_Q4_0;
}

/* ---- Integers ---- */

/* Sixteen dimensions of the batch's c-th cell from d on, in the lower halves of integers. */
INLINE sixteen_integers lower_halves_of_cell(const weir__attention_format format, const int32_t size,
                                             const scales *s, const char *cell, int32_t c, int32_t d)
{
    return bits_of(whole(dimensions(format, size, cell, d), all_of(s->numbers[c])));
}

/* Thirty-two dimensions of the batch's c-th cell from d on, d a multiple of 32, as 16-bit integers; zeroes
 * behind the last dimension. */
INLINE sixteen_integers integers_of(const weir__attention_format format, const int32_t size, const scales *s,
                                    const char *cell, int32_t c, int32_t d)
{
    if (in_blocks(format)) return scaled_block(format, cell, d, s->blocks[d / 32][c]);
    sixteen scale = all_of(s->numbers[c]), zero = all_of(0.0f);
    return low_halves(whole(dimensions(format, size, cell, d), scale),
                      d + 16 < size ? whole(dimensions(format, size, cell, d + 16), scale) : zero);
}

/* transpose_fours puts pairs 4 i + j of four cells to 4 j + i. In the last 32 dimensions, which may be fewer,
 * this puts them into their own order, so that zeroes are behind them. */
INLINE void put_pairs_in_order(int32_t *pairs)
{
    int32_t from[64];
    memcpy(from, pairs, sizeof from);
    for (int i = 0; i < 16; i++) memcpy(pairs + 4 * i, from + 4 * (i % 4 * 4 + i / 4), 4 * sizeof *pairs);
}

/* Writes the integers of a batch's keys to [BATCH / 4][pairs_in(size)][4]. */
INLINE void pack_keys(const weir__attention_format format, const int32_t size, int32_t *to, const scales *s,
                      const char *const *cells)
{
    for (int32_t c = 0; c < BATCH; c += 4)
        for (int32_t d = 0; d < size; d += 32, to += 64) {
            sixteen_integers some[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) some[i] = integers_of(format, size, s, cells[c + i], c + i, d);
            transpose_fours(some);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) store_integers(to + 16 * i, some[i]);
            if (d + 32 > size) put_pairs_in_order(to);
        }
}

/* Writes the integers of a batch's values to [BATCH / 2][weir__attention_width(size)], in pairs. */
INLINE void pack_values(const weir__attention_format format, const int32_t size, int32_t *to, const scales *s,
                        const char *const *cells)
{
    for (int c = 0; c < BATCH; c += 2, to += weir__attention_width(size)) {
        for (int32_t d = 0; d < size && !in_blocks(format); d += 16)
            store_integers(to + d, pairs(lower_halves_of_cell(format, size, s, cells[c], c, d),
                                         lower_halves_of_cell(format, size, s, cells[c + 1], c + 1, d)));
        for (int32_t d = 0; d < size && in_blocks(format); d += 32) {
            sixteen_integers first, others;
            interleaved(first.part, others.part, integers_of(format, size, s, cells[c], c, d).part,
                        integers_of(format, size, s, cells[c + 1], c + 1, d).part);
            store_integers(to + d, first);
            store_integers(to + d + 16, others);
        }
    }
}

INLINE void scale_keys(const weir__attention_format format, const int32_t size, scales *s, float *factors,
                       const char *const *cells)
{
    if (in_blocks(format))
        block_scales(format, size, BLOCK_NORM / sqrtf((float)size), s, factors, cells);
    else
        store(s->numbers, scales_for(norms(format, size, cells), NORM, factors));
}

INLINE void scale_values(const weir__attention_format format, const int32_t size, scales *s, float *factors,
                         const char *const *cells)
{
    if (in_blocks(format))
        block_scales(format, size, LARGEST_VALUE, s, factors, cells);
    else
        store(s->numbers, scales_for(largest_values(format, size, cells), LARGEST_VALUE, factors));
}

/* Calls a function for a format, and with the most common sizes as constants, which makes it faster. */
#define FOR_SIZE(function, format, size, ...)                                                                \
    if ((size) == 64)                                                                                        \
        function(format, 64, __VA_ARGS__);                                                                   \
    else if ((size) == 128)                                                                                  \
        function(format, 128, __VA_ARGS__);                                                                  \
    else                                                                                                     \
        function(format, (size), __VA_ARGS__)
#define FOR_FORMAT(function, format, size, ...)                                                              \
    switch (format) {                                                                                        \
    case WEIR__ATTENTION_F32: FOR_SIZE(function, WEIR__ATTENTION_F32, size, __VA_ARGS__); break;             \
    case WEIR__ATTENTION_F16: FOR_SIZE(function, WEIR__ATTENTION_F16, size, __VA_ARGS__); break;             \
    case WEIR__ATTENTION_BF16: FOR_SIZE(function, WEIR__ATTENTION_BF16, size, __VA_ARGS__); break;           \
    case WEIR__ATTENTION_Q8_0: FOR_SIZE(function, WEIR__ATTENTION_Q8_0, size, __VA_ARGS__); break;           \
    case WEIR__ATTENTION_Q4_0: FOR_SIZE(function, WEIR__ATTENTION_Q4_0, size, __VA_ARGS__); break;           \
    }

/* Cells that are packed, and those that are packed next. These are prefetched meanwhile, in small steps: a
 * processor has room for about a dozen requests to memory and waits when that is full. */
typedef struct packing {
    int32_t n;                /* at most a block's; whole batches */
    int32_t n_next, at, step; /* entries of next; how many were prefetched; how many in a step */
    int32_t next_bytes[2];    /* of a key and of a value */
    const char *cells[WEIR__ATTENTION_BLOCK];    /* keys or values */
    const char *next[2 * WEIR__ATTENTION_BLOCK]; /* of each cell its key and its value */
    scales scales[WEIR__ATTENTION_BLOCK / BATCH];
} packing;

/* The next step, into the second-level cache: the first one has no room for a block of large heads. */
INLINE void prefetch(packing *p)
{
    int32_t end = p->at + p->step < p->n_next ? p->at + p->step : p->n_next;
    for (; p->at < end; p->at++)
        for (int32_t at = 0; at < p->next_bytes[p->at % 2]; at += 64)
            _mm_prefetch(p->next[p->at] + at, _MM_HINT_T1);
}

/* All scales are computed before the first is needed, so that the processor need not wait for them. */
INLINE void pack_all_keys(const weir__attention_format format, const int32_t size, packing *p, int32_t *to,
                          float *factors)
{
    for (int32_t c = 0; c < p->n; c += BATCH) {
        prefetch(p);
        scale_keys(format, size, &p->scales[c / BATCH], factors + c, p->cells + c);
    }
    for (int32_t c = 0; c < p->n; c += BATCH) {
        prefetch(p);
        pack_keys(format, size, to + c * pairs_in(size), &p->scales[c / BATCH], p->cells + c);
    }
}

INLINE void pack_all_values(const weir__attention_format format, const int32_t size, packing *p, int32_t *to,
                            float *factors)
{
    for (int32_t c = 0; c < p->n; c += BATCH) {
        prefetch(p);
        scale_values(format, size, &p->scales[c / BATCH], factors + c, p->cells + c);
    }
    for (int32_t c = 0; c < p->n; c += BATCH) {
        prefetch(p);
        pack_values(format, size, to + c / 2 * weir__attention_width(size), &p->scales[c / BATCH],
                    p->cells + c);
    }
}

#endif
