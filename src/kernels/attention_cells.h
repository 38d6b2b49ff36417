/* attention_cells.h: keys and values of cells as 16-bit integers; how the rows of a task lie in groups, and
 * the memory that they take.
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
            __builtin_prefetch(p->next[p->at] + at, 0, 2);
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

/* ---- Groups of rows, and their memory ---- */

#define GROUPS WEIR__ATTENTION_GROUPS
#define LANES  WEIR__ATTENTION_LANES
#define SIZE   WEIR__ATTENTION_SIZE
#define BLOCK  WEIR__ATTENTION_BLOCK
#define PIECE  WEIR__ATTENTION_PIECE

/* Rows of a group, and the most groups of a call, if rows are few. */
#define FEW        4
#define FEW_UNIT   8 /* rows that follow one another; more are many */
#define FEW_GROUPS (FEW_UNIT / FEW * GROUPS)

/* Floats of a group: weighted values [width of size_v], maximum score, sum of weights, all [LANES]. Few rows
 * need less. */
#define GROUP_SUMS ((SIZE + 2) * LANES)

/* Keys and values as integers, and the factors that give their numbers. */
typedef struct integers_of_cells {
    int32_t *keys;   /* [cells / 4][pairs of dimensions][4] */
    int32_t *values; /* [pairs of cells][width of size_v] */
    float *key_factors, *value_factors;
} integers_of_cells;

/* The memory of one call. Arrays are packed: strides are the heads' sizes, not SIZE. */
typedef struct scratch {
    /* [groups][pairs of dimensions][LANES]; of few rows [groups][FEW][pairs of dimensions][4 times] */
    _Alignas(64) int32_t queries[FEW_GROUPS * SIZE / 2 * LANES];
    _Alignas(64) int32_t keys[BLOCK * SIZE / 2];
    _Alignas(64) int32_t values[BLOCK / 2 * SIZE];
    /* [cells][TOGETHER][LANES], few rows' [FEW][cells]; then weighted scales */
    _Alignas(64) float scores[BLOCK * TOGETHER * LANES];
    /* [pairs of cells][TOGETHER][LANES], few rows' [FEW][pairs of cells] */
    _Alignas(64) int32_t weights[BLOCK / 2 * TOGETHER * LANES];
    _Alignas(64) float piece[GROUPS * GROUP_SUMS];
    _Alignas(64) float query_factors[FEW_GROUPS * LANES];
    float key_factors[BLOCK], value_factors[BLOCK];
    integers_of_cells cells; /* the arrays above, or the task's */
    int32_t origin;          /* the place of their first cell */
    float *sums;             /* of the present piece: [KV heads][groups][sums_in] */
    int32_t steps;           /* in which a block is prefetched */
    packing packing;
} scratch;

/* ---- Rows of a task ---- */

static int32_t min_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t max_of(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The division of a KV head's rows into groups: those of queries with the same list follow one another, and
 * those of queries with lists of their own begin new groups. */
typedef struct layout {
    bool few;
    bool masked;      /* a query has a mask */
    int32_t rows;     /* of a group */
    int32_t unit;     /* rows that follow one another */
    int32_t per_unit; /* groups of a unit */
    int32_t groups;   /* of a KV head */
} layout;

static layout layout_of(const weir__attention_task *t)
{
    bool apart = t->queries[0].list != t->queries[t->n_queries - 1].list;
    layout l = {.unit = apart ? t->n_heads : t->n_queries * t->n_heads};
    l.few = l.unit <= FEW_UNIT;
    l.rows = l.few ? FEW : LANES;
    l.per_unit = (l.unit + l.rows - 1) / l.rows;
    l.groups = l.per_unit * (apart ? t->n_queries : 1);
    for (int32_t i = 0; i < t->n_queries; i++) l.masked = l.masked || t->queries[i].mask != NULL;
    return l;
}

static int32_t group_of(const layout *l, int32_t row)
{
    return row / l->unit * l->per_unit + row % l->unit / l->rows;
}

/* The number of a row in its group. */
static int32_t place_of(const layout *l, int32_t row)
{
    return row % l->unit % l->rows;
}

/* Floats of a group's sums. */
static int32_t sums_in(const weir__attention_task *t, const layout *l)
{
    return (weir__attention_width(t->size_v) + 2) * l->rows;
}

/* The first row of a group, and the number of its rows. */
static int32_t row_of(const layout *l, int32_t group, int32_t *n)
{
    int32_t in_unit = group % l->per_unit * l->rows;
    *n = l->unit - in_unit < l->rows ? l->unit - in_unit : l->rows;
    return group / l->per_unit * l->unit + in_unit;
}

static const weir__attention_query *query_of(const weir__attention_task *t, int32_t row)
{
    return &t->queries[row / t->n_heads];
}

static void pack_queries(const weir__attention_task *t, const layout *l, scratch *s)
{
    float scale = t->softcap != 0.0f ? t->scale / t->softcap : t->scale * LOG2_E;
    int32_t n_pairs = pairs_in(t->size_k), n_rows = t->n_queries * t->n_heads;
    memset(s->queries, 0, (size_t)(t->n_kv * l->groups * n_pairs * LANES) * sizeof *s->queries);
    memset(s->query_factors, 0, sizeof s->query_factors);
    for (int32_t kv = 0; kv < t->n_kv; kv++)
        for (int32_t first = 0; first < n_rows; first += BATCH) {
            const char *rows[BATCH];
            float factors[BATCH];
            for (int32_t i = 0; i < BATCH; i++) {
                int32_t row = first + i < n_rows ? first + i : n_rows - 1;
                rows[i] = query_of(t, row)->q + (size_t)(kv * t->n_heads + row % t->n_heads) * t->q_head;
            }
            scales *scaled = s->packing.scales;
            scale_keys(WEIR__ATTENTION_F32, t->size_k, scaled, factors, rows);
            pack_keys(WEIR__ATTENTION_F32, t->size_k, s->keys, scaled, rows);
            for (int32_t i = 0; i < BATCH && first + i < n_rows; i++) {
                int32_t group = kv * l->groups + group_of(l, first + i), at = place_of(l, first + i);
                const int32_t *from = s->keys + i / 4 * 4 * n_pairs + i % 4;
                int32_t *to = s->queries + group * n_pairs * LANES;
                s->query_factors[group * LANES + at] = scale * factors[i];
                for (int32_t d = 0; d < n_pairs; d++)
                    if (l->few)
                        for (int32_t n = 0; n < 4; n++) to[(at * n_pairs + d) * 4 + n] = from[4 * d];
                    else
                        to[d * LANES + at] = from[4 * d];
            }
        }
}

#endif
