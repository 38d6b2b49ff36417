/* attention_rows.h: the attention kernel, written once for all instruction sets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of a vector are rows, so each row has its own maximum, sum and scales without an operation across
 * lanes. With few rows, each has two or four lanes, for as many cells or dimensions. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H
#define WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H

#include "backend/kernels/attention_cells.h"

#define GROUPS WEIR__ATTENTION_GROUPS
#define LANES  WEIR__ATTENTION_LANES
#define SIZE   WEIR__ATTENTION_SIZE
#define BLOCK  WEIR__ATTENTION_BLOCK
#define PIECE  WEIR__ATTENTION_PIECE

/* Of a group: weighted values [size_v / spread], maximum score, sum of the weights, all [LANES]. */
#define GROUP_SUMS ((SIZE + 2) * LANES)

/* The memory of one call. Arrays are packed: strides are the heads' sizes, not SIZE. */
typedef struct scratch {
    _Alignas(64) int32_t queries[GROUPS * SIZE / 2 * LANES];    /* [groups][pairs of dimensions][LANES] */
    _Alignas(64) int32_t keys[PIECE * SIZE / 2];                /* [cells / 4][pairs of dimensions][4] */
    _Alignas(64) int32_t values[PIECE / 2 * SIZE];              /* [pairs of cells][size_v] */
    _Alignas(64) float scores[BLOCK * TOGETHER * LANES];        /* then weighted scales */
    _Alignas(64) int32_t weights[BLOCK / 2 * TOGETHER * LANES]; /* pairs of cells */
    _Alignas(64) float piece[GROUPS * GROUP_SUMS], total[GROUPS * GROUP_SUMS];
    _Alignas(64) float query_factors[GROUPS * LANES];
    float key_factors[PIECE], value_factors[PIECE];
    const char *coming[BLOCK * SIZE * 4 / 64]; /* lines of the keys that are packed next */
    const char **fetched, **last;              /* in coming: those that are prefetched already; the end */
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

/* How rows of a KV head are divided into groups: those of queries with the same list follow one another, and
 * those of queries with lists of their own begin new groups. */
typedef struct layout {
    int32_t spread;   /* lanes of a row: 1, 2 or 4 */
    int32_t rows;     /* of a group */
    int32_t unit;     /* rows that follow one another */
    int32_t per_unit; /* groups of a unit */
    int32_t groups;   /* of a KV head */
} layout;

static layout layout_of(const weir__attention_task *t)
{
    bool apart = t->queries[0].list != t->queries[t->n_queries - 1].list;
    layout l = {.unit = apart ? t->n_heads : t->n_queries * t->n_heads};
    l.spread = l.unit <= 4 ? 4 : l.unit <= 8 ? 2 : 1;
    l.rows = LANES / l.spread;
    l.per_unit = (l.unit + l.rows - 1) / l.rows;
    l.groups = l.per_unit * (apart ? t->n_queries : 1);
    return l;
}

static int32_t group_of(const layout *l, int32_t row)
{
    return row / l->unit * l->per_unit + row % l->unit / l->rows;
}

/* The first lane of a row in its group. */
static int32_t lane_of(const layout *l, int32_t row)
{
    return row % l->unit % l->rows * l->spread;
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
            pack_keys(WEIR__ATTENTION_F32, t->size_k, s->keys, factors, rows);
            for (int32_t i = 0; i < BATCH && first + i < n_rows; i++) {
                int32_t group = kv * l->groups + group_of(l, first + i), lane = lane_of(l, first + i);
                const int32_t *from = s->keys + i / 4 * 4 * n_pairs + i % 4;
                int32_t *to = s->queries + group * n_pairs * LANES + lane;
                for (int32_t n = 0; n < l->spread; n++) {
                    s->query_factors[group * LANES + lane + n] = scale * factors[i];
                    for (int32_t d = 0; d < n_pairs; d++) to[d * LANES + n] = from[4 * d];
                }
            }
        }
}

/* ---- A block and some groups ---- */

/* Prefetches a line of the next keys: so memory has something to do while few rows are computed. */
INLINE void fetch_line(scratch *s)
{
    if (s->fetched < s->last) _mm_prefetch(*s->fetched++, _MM_HINT_T0);
}

/* Computes the scores of cells [from, to) for n groups. queries, query_factors: of the groups; keys,
 * key_factors: of the block. */
INLINE void score(const int n, const int spread, scratch *s, const int32_t *queries,
                  const float *query_factors, const int32_t *keys, const float *key_factors, int32_t n_pairs,
                  int32_t from, int32_t to)
{
    sixteen factors[TOGETHER];
#pragma GCC unroll 4
    for (int g = 0; g < n; g++) factors[g] = load(query_factors + g * LANES);
    const int32_t step = COLUMNS * spread;
    for (int32_t c = from / step * step; c < to; c += step) {
        sixteen_integers sums[COLUMNS][TOGETHER];
#pragma GCC unroll 8
        for (int i = 0; i < COLUMNS; i++)
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) sums[i][g] = all_of_integer(0);
        for (int32_t d = 0; d < n_pairs; d++) {
            if (spread > 1) fetch_line(s);
            sixteen_integers q[TOGETHER];
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) q[g] = load_integers(queries + (g * n_pairs + d) * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < COLUMNS; i++) {
                sixteen_integers k =
                    repeated(spread, keys + (c + i * spread) / 4 * (4 * n_pairs) + 4 * d + i * spread % 4);
#pragma GCC unroll 4
                for (int g = 0; g < n; g++) sums[i][g] = multiply_add_pairs(q[g], k, sums[i][g]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < COLUMNS; i++)
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) {
                sixteen x =
                    multiply(converted(sums[i][g]), repeated_floats(spread, key_factors + c + i * spread));
                store(s->scores + ((c / spread + i) * TOGETHER + g) * LANES, multiply(x, factors[g]));
            }
    }
}

/* What the lanes of a group see. */
typedef struct view {
    sixteen_integers from, to;                        /* places, less the lane's cell */
    int32_t first_from, last_from, first_to, last_to; /* of the lanes */
} view;

/* What the queries [i, j) see, of a group's. Lanes without a row see everything. */
static view view_of(const weir__attention_task *t, const layout *l, int32_t group, int32_t i, int32_t j)
{
    int32_t from[LANES], to[LANES], n, first = row_of(l, group, &n);
    view v = {.first_from = INT32_MAX, .last_from = 0, .first_to = INT32_MAX, .last_to = 0};
    for (int32_t lane = 0; lane < LANES; lane++) {
        int32_t row = lane / l->spread, query = (first + row) / t->n_heads;
        from[lane] = 0;
        to[lane] = INT32_MAX;
        if (row >= n) continue;
        bool in = query >= i && query < j;
        from[lane] = in ? t->queries[query].from : INT32_MAX;
        to[lane] = in ? t->queries[query].to : 0;
        if (from[lane] < v.first_from) v.first_from = from[lane];
        if (from[lane] > v.last_from) v.last_from = from[lane];
        if (to[lane] < v.first_to) v.first_to = to[lane];
        if (to[lane] > v.last_to) v.last_to = to[lane];
        from[lane] -= lane % l->spread;
        to[lane] -= lane % l->spread;
    }
    v.from = load_integers(from);
    v.to = load_integers(to);
    return v;
}

/* Sums or maxima over the lanes of a row, of 4 / spread vectors: all add in the same order. */
#define OVER_LANES(name, combine)                                                                            \
    INLINE sixteen name(const int spread, const sixteen *x)                                                  \
    {                                                                                                        \
        if (spread == 1) return combine(combine(x[0], x[1]), combine(x[2], x[3]));                           \
        sixteen a = combine(x[0], neighbours(x[0]));                                                         \
        if (spread == 2) return combine(a, combine(x[1], neighbours(x[1])));                                 \
        return combine(a, other_two(a));                                                                     \
    }
OVER_LANES(sum_over, add)
OVER_LANES(largest_over, larger)

/* No maximum is below this; so the weights of rows that have seen nothing are 0. */
#define LEAST_MAX (-0x1p120f)

/* Turns the scores of a group's rows into weights, in integers; returns the factor that gives the numbers of
 * their weighted values. sums: maxima and sums of the rows; *old: what their older weighted values must be
 * multiplied with. */
INLINE sixteen weigh(const int spread, scratch *s, int g, const view *seen, float *sums,
                     const float *value_factors, int32_t block, int32_t from, int32_t to, sixteen *old)
{
    const int n = 4 / spread; /* vectors of four cells */
    float *scores = s->scores + g * LANES;
    const int stride = TOGETHER * LANES;
    int32_t first = from / 4 * n, end = (to + 3) / 4 * n;
    if (seen->last_from > block + from || seen->first_to < block + (to + 3) / 4 * 4 || from % 4 != 0)
        for (int32_t i = first; i < end; i++) {
            sixteen x = load(scores + i * stride);
            _Pragma("GCC unroll 2") for (int part = 0; part < PARTS; part++) x.part[part] =
                within(x.part[part], MM(set1_ps)(-INFINITY), seen->from.part[part], seen->to.part[part],
                       block + i * spread);
            store(scores + i * stride, x);
        }
    sixteen max[4], before = load(sums);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) max[i] = before;
    for (int32_t c = first; c < end; c += n)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) max[i] = larger(load(scores + (c + i) * stride), max[i]);
    max[0] = largest_over(spread, max);
    store(sums, max[0]);
    max[0] = larger(max[0], all_of(LEAST_MAX));
    *old = weight_of(before, max[0]);
    sixteen sum[4], product_sum[4], largest[4];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) sum[i] = product_sum[i] = largest[i] = all_of(0.0f);
    for (int32_t c = first; c < end; c += n)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            sixteen weight = weight_of(load(scores + (c + i) * stride), max[0]);
            sum[i] = add(sum[i], weight);
            sixteen product = multiply(weight, repeated_floats(spread, value_factors + (c + i) * spread));
            product = only_where(product, weight);
            product_sum[i] = add(product_sum[i], product);
            largest[i] = larger(largest[i], product);
            store(scores + (c + i) * stride, product);
        }
    store(sums + LANES, multiply_add(load(sums + LANES), *old, sum_over(spread, sum)));
    sixteen factor = multiply(largest_over(spread, largest), all_of(1.0f / LARGEST_WEIGHT));
    factor = larger(larger(factor, all_of(0x1p-120f)),
                    multiply(sum_over(spread, product_sum), all_of(1.0f / WEIGHTS)));
    sixteen scale = divide(all_of(1.0f), factor);
    int32_t *weights = s->weights + g * LANES;
    for (int32_t c = first; c < end; c += n) {
        sixteen_integers x[4], two[2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) x[i] = rounded(multiply(load(scores + (c + i) * stride), scale));
        if (spread == 1) {
            two[0] = pairs(x[0], x[1]);
            two[1] = pairs(x[2], x[3]);
        } else if (spread == 2) {
            two[0] = pairs(first_of_two(x[0]), second_of_two(x[0]));
            two[1] = pairs(first_of_two(x[1]), second_of_two(x[1]));
        } else {
            two[0] = pairs(first_of_four(x[0]), second_of_four(x[0]));
            two[1] = pairs(third_of_four(x[0]), fourth_of_four(x[0]));
        }
        store_integers(weights + c / n * 2 * stride, two[0]);
        store_integers(weights + (c / n * 2 + 1) * stride, two[1]);
    }
    return factor;
}

/* Adds the weighted values of dimensions from d on, n_columns vectors of them, and of pairs of cells [from,
 * to) to the sums of n groups. */
INLINE void add_columns(const int n, const int spread, const int n_columns, scratch *s, const int32_t *values,
                        int32_t size, int32_t d, int32_t from, int32_t to, const sixteen *factors,
                        const sixteen *olds, float *sums, int32_t group_sums)
{
    sixteen_integers acc[COLUMNS][TOGETHER];
#pragma GCC unroll 8
    for (int i = 0; i < n_columns; i++)
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) acc[i][g] = all_of_integer(0);
    for (int32_t c = from; c < to; c++) {
        if (spread > 1) fetch_line(s);
        sixteen_integers w[TOGETHER];
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) w[g] = load_integers(s->weights + (c * TOGETHER + g) * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < n_columns; i++) {
            sixteen_integers v = repeated(spread, values + c * size + d + i * spread);
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) acc[i][g] = multiply_add_pairs(w[g], v, acc[i][g]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_columns; i++)
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) {
            float *sum = sums + g * group_sums + (d / spread + i) * LANES;
            store(sum, multiply_add(converted(acc[i][g]), factors[g], multiply(load(sum), olds[g])));
        }
}

INLINE void add_values(const int n, const int spread, scratch *s, const int32_t *values, int32_t size,
                       int32_t from, int32_t to, const sixteen *factors, const sixteen *olds, float *sums,
                       int32_t group_sums)
{
    const int few = COLUMNS * spread > 16 ? 16 / spread : COLUMNS;
    int32_t d = 0;
    for (; d + COLUMNS * spread <= size; d += COLUMNS * spread)
        add_columns(n, spread, COLUMNS, s, values, size, d, from, to, factors, olds, sums, group_sums);
    for (; d < size; d += few * spread)
        add_columns(n, spread, few, s, values, size, d, from, to, factors, olds, sums, group_sums);
}

/* Caps scores and adds masks. */
static void adjust(const weir__attention_task *t, const layout *l, scratch *s, int32_t kv, int32_t group,
                   int32_t g, int32_t block, int32_t from, int32_t to)
{
    int32_t n, first = row_of(l, group + g, &n);
    for (int32_t i = from / l->spread; i < BLOCK / l->spread && t->softcap != 0.0f; i++) {
        float *scores = s->scores + (i * TOGETHER + g) * LANES;
        store(scores, capped(load(scores), t->softcap * LOG2_E));
    }
    for (int32_t row = first; row < first + n; row++) {
        const weir__attention_query *q = query_of(t, row);
        if (q->mask == NULL) continue;
        const int32_t *cells = t->lists[q->list].cells - t->lists[q->list].first + block;
        float slope = t->slopes != NULL ? t->slopes[kv * t->n_heads + row % t->n_heads] * LOG2_E : LOG2_E;
        for (int32_t c = max_of(from, q->from - block); c < min_of(to, q->to - block); c++)
            s->scores[(c / l->spread * TOGETHER + g) * LANES + lane_of(l, row) + c % l->spread] +=
                slope * _cvtsh_ss(q->mask[cells[c]]);
    }
}

/* Adds cells [from, to) of the block at place `block` to n groups. */
INLINE void add_block(const int n, const int spread, const weir__attention_task *t, const layout *l,
                      scratch *s, const view *views, int32_t kv, int32_t group, int32_t block, int32_t from,
                      int32_t to)
{
    int32_t n_pairs = pairs_in(t->size_k), at = block % PIECE, first = kv * l->groups + group;
    int32_t group_sums = (t->size_v / spread + 2) * LANES;
    float *sums = s->piece + first * group_sums;
    score(n, spread, s, s->queries + first * n_pairs * LANES, s->query_factors + first * LANES,
          s->keys + at * n_pairs, s->key_factors + at, n_pairs, from, to);
    sixteen factors[TOGETHER], olds[TOGETHER];
#pragma GCC unroll 4
    for (int g = 0; g < n; g++) {
        adjust(t, l, s, kv, group, g, block, from, to);
        factors[g] = weigh(spread, s, g, &views[g], sums + (g + 1) * group_sums - 2 * LANES,
                           s->value_factors + at, block, from, to, &olds[g]);
    }
    add_values(n, spread, s, s->values + at / 2 * t->size_v, t->size_v, from / 4 * 2, (to + 3) / 4 * 2,
               factors, olds, sums, group_sums);
}

/* ---- Runs of queries ---- */

/* Cells that are prefetched before they are packed. */
#define AHEAD 16

static int32_t bytes_of(weir__attention_format format, int32_t size)
{
    switch (format) {
    case WEIR__ATTENTION_F32: return 4 * size;
    case WEIR__ATTENTION_Q8_0: return size / 32 * 34;
    case WEIR__ATTENTION_Q4_0: return size / 32 * 18;
    default: return 2 * size;
    }
}

/* A cell is far from the next one, so the processor does not foresee it. */
static void prefetch(const char *cell, int32_t n_bytes)
{
    for (int32_t at = 0; at < n_bytes; at += 64) _mm_prefetch(cell + at, _MM_HINT_T0);
}

/* Packs the places [from, to) of a piece, in batches. cells: from place 0 on; end: of their list. */
static void pack_places(const weir__attention_task *t, scratch *s, int32_t kv, const int32_t *cells,
                        int32_t from, int32_t to, int32_t end, bool prefetch_keys)
{
    const char *k = t->k + (size_t)kv * t->k_head, *v = t->v + (size_t)kv * t->v_head;
    int32_t k_bytes = bytes_of(t->k_format, t->size_k), v_bytes = bytes_of(t->v_format, t->size_v);
    for (int32_t place = from / BATCH * BATCH; place < to; place += BATCH) {
        const char *keys[BATCH], *values[BATCH];
        bool whole = place >= from && place + BATCH + AHEAD <= to;
        for (int32_t i = 0; i < BATCH; i++) {
            /* Surplus places repeat the first or last cell and get no weight. */
            int32_t at = whole ? place + i : place + i < from ? from : place + i < to ? place + i : to - 1;
            keys[i] = k + (size_t)cells[at] * t->k_cell;
            values[i] = v + (size_t)cells[at] * t->v_cell;
            if (!whole && place + i + AHEAD >= end) continue;
            size_t cell = (size_t)cells[place + i + AHEAD];
            if (prefetch_keys) prefetch(k + cell * t->k_cell, k_bytes);
            prefetch(v + cell * t->v_cell, v_bytes);
        }
        int32_t at = place % PIECE;
        pack_cells(t, s->keys + at * pairs_in(t->size_k), s->key_factors + at, s->values + at / 2 * t->size_v,
                   s->value_factors + at, keys, values);
    }
}

/* Finds the lines of the keys at the places [from, to), at most of a block. */
static void find_lines(const weir__attention_task *t, scratch *s, int32_t kv, const int32_t *cells,
                       int32_t from, int32_t to)
{
    int32_t n_bytes = bytes_of(t->k_format, t->size_k);
    s->fetched = s->last = s->coming;
    for (int32_t place = from; place < to; place++)
        for (int32_t at = 0; at < n_bytes; at += 64)
            *s->last++ = t->k + (size_t)kv * t->k_head + (size_t)cells[place] * t->k_cell + at;
}

/* Adds the places [first, end) to the queries [i, j), which have the same cells there but may see different
 * parts of them. */
static void add_run(const weir__attention_task *t, const layout *l, scratch *s, int32_t i, int32_t j,
                    int32_t first, int32_t end)
{
    const weir__attention_list *list = &t->lists[t->queries[i].list];
    const int32_t *cells = list->cells - list->first;
    int32_t from = INT32_MAX, to = 0;
    for (int32_t n = i; n < j; n++) {
        if (t->queries[n].from == t->queries[n].to) continue;
        if (t->queries[n].from < from) from = t->queries[n].from;
        if (t->queries[n].to > to) to = t->queries[n].to;
    }
    if (from < first) from = first;
    if (to > end) to = end;
    if (from >= to) return;
    int32_t last_group = group_of(l, j * t->n_heads - 1);
    for (int32_t kv = 0; kv < t->n_kv; kv++) {
        bool few = l->spread > 1;
        pack_places(t, s, kv, cells, from, to, list->first + list->n, !few);
        if (few) {
            bool more = kv + 1 < t->n_kv;
            find_lines(t, s, more ? kv + 1 : 0, cells, more ? from : to,
                       more ? to : min_of(to + BLOCK, list->first + list->n));
        }
        for (int32_t g = group_of(l, i * t->n_heads), n; g <= last_group; g += n) {
            n = l->spread == 1 && g + TOGETHER <= last_group + 1 ? TOGETHER : 1;
            view views[TOGETHER];
            int32_t sees_from = to, sees_to = from;
            for (int32_t m = 0; m < n; m++) {
                views[m] = view_of(t, l, g + m, i, j);
                if (views[m].first_from < sees_from) sees_from = views[m].first_from;
                if (views[m].last_to > sees_to) sees_to = views[m].last_to;
            }
            if (sees_from < from) sees_from = from;
            if (sees_to > to) sees_to = to;
            for (int32_t block = sees_from / BLOCK * BLOCK; block < sees_to; block += BLOCK) {
                int32_t b_from = sees_from > block ? sees_from - block : 0;
                int32_t b_to = sees_to < block + BLOCK ? sees_to - block : BLOCK;
                if (l->spread == 4)
                    add_block(1, 4, t, l, s, views, kv, g, block, b_from, b_to);
                else if (l->spread == 2)
                    add_block(1, 2, t, l, s, views, kv, g, block, b_from, b_to);
                else if (n == 1)
                    add_block(1, 1, t, l, s, views, kv, g, block, b_from, b_to);
                else
                    add_block(TOGETHER, 1, t, l, s, views, kv, g, block, b_from, b_to);
            }
        }
    }
}

/* The end of the run of queries from i on whose lists have the same cells in the block that begins at place
 * `block`. */
static int32_t end_of_run(const weir__attention_task *t, int32_t i, int32_t block)
{
    int32_t j = i + 1;
    for (; j < t->n_queries; j++)
        if (t->queries[j].list != t->queries[j - 1].list &&
            t->lists[t->queries[j].list].shared < block + BLOCK)
            break;
    return j;
}

/* The end of the blocks from `block` on, at most `end`, in which the runs are the same. */
static int32_t end_of_runs(const weir__attention_task *t, int32_t block, int32_t end)
{
    for (int32_t j = 1; j < t->n_queries; j++) {
        int32_t shared = t->lists[t->queries[j].list].shared / BLOCK * BLOCK;
        if (t->queries[j].list != t->queries[j - 1].list && shared > block && shared < end) end = shared;
    }
    return end;
}

/* ---- Sums ---- */

/* Adds a piece's sums to a total: n vectors of weighted values, then maxima and sums. */
INLINE void add_vectors(float *total, const float *piece, int32_t n, sixteen old_max, sixteen max,
                        sixteen most)
{
    most = larger(most, all_of(LEAST_MAX));
    sixteen old = weight_of(old_max, most), more = weight_of(max, most);
    for (int32_t i = 0; i < n; i++, total += LANES, piece += LANES)
        store(total, multiply_add(load(piece), more, multiply(load(total), old)));
}

static void add_group(float *total, const float *piece, int32_t n)
{
    sixteen old_max = load(total + n * LANES), max = load(piece + n * LANES), most = larger(max, old_max);
    add_vectors(total, piece, n, old_max, max, most);
    add_vectors(total + (n + 1) * LANES, piece + (n + 1) * LANES, 1, old_max, max, most);
    store(total + n * LANES, most);
}

static void empty_groups(float *sums, int32_t n_groups, int32_t n)
{
    memset(sums, 0, (size_t)(n_groups * (n + 2) * LANES) * sizeof *sums);
    for (int32_t g = 0; g < n_groups; g++) store(sums + (g * (n + 2) + n) * LANES, all_of(-INFINITY));
}

static void add_sums(weir__attention_sums *total, const weir__attention_sums *piece, int32_t size_v)
{
    float old_max = total[size_v], max = piece[size_v], most = max > old_max ? max : old_max;
    add_vectors(total, piece, size_v / LANES, all_of(old_max), all_of(max), all_of(most));
    float sum[LANES] = {total[size_v + 1]}, more[LANES] = {piece[size_v + 1]};
    add_vectors(sum, more, 1, all_of(old_max), all_of(max), all_of(most));
    total[size_v] = most;
    total[size_v + 1] = sum[0];
}

static void finish(const weir__attention_task *t, int32_t row, const weir__attention_sums *total)
{
    int32_t n_rows = t->n_queries * t->n_heads, head = row / n_rows * t->n_heads + row % t->n_heads;
    float max = total[t->size_v], sum = total[t->size_v + 1], factor = 1.0f;
    if (t->sinks != NULL) {
        float sink = t->sinks[head] * LOG2_E, most = max > sink ? max : sink;
        factor = exp2f(max - most);
        sum = sum * factor + exp2f(sink - most);
    }
    factor = sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
    float *out = (float *)(query_of(t, row % n_rows)->out + (size_t)head * t->out_head);
    for (int32_t d = 0; d < t->size_v; d += LANES) store(out + d, multiply(load(total + d), all_of(factor)));
}

/* ---- A call ---- */

/* Writes a row's sums. */
static void write_row(const weir__attention_task *t, const layout *l, const float *total, int32_t row,
                      weir__attention_sums *to)
{
    int32_t n_rows = t->n_queries * t->n_heads, n = t->size_v / l->spread;
    int32_t group = row / n_rows * l->groups + group_of(l, row % n_rows);
    const float *from = total + group * (n + 2) * LANES + lane_of(l, row % n_rows);
    for (int32_t d = 0; d < n; d++)
        memcpy(to + d * l->spread, from + d * LANES, (size_t)l->spread * sizeof *to);
    to[t->size_v] = from[n * LANES];
    to[t->size_v + 1] = from[(n + 1) * LANES];
}

static void attend(const weir__attention_task *t, int32_t first, int32_t n, void *memory,
                   weir__attention_sums *sums)
{
    scratch *s = memory;
    layout l = layout_of(t);
    s->fetched = s->last = s->coming;
    int32_t n_groups = t->n_kv * l.groups, n_vectors = t->size_v / l.spread;
    pack_queries(t, &l, s);
    empty_groups(s->total, n_groups, n_vectors);
    for (int32_t piece = first; piece < first + n; piece++) {
        int32_t end = (piece + 1) * PIECE;
        empty_groups(s->piece, n_groups, n_vectors);
        for (int32_t block = piece * PIECE, next; block < end; block = next) {
            /* Many groups read a piece's integers from the second-level cache; few read a block's at once. */
            next = l.per_unit <= TOGETHER ? block + BLOCK : end_of_runs(t, block, end);
            for (int32_t i = 0, j; i < t->n_queries; i = j) {
                j = end_of_run(t, i, block);
                add_run(t, &l, s, i, j, block, next);
            }
        }
        for (int32_t g = 0; g < n_groups; g++)
            add_group(s->total + g * (n_vectors + 2) * LANES, s->piece + g * (n_vectors + 2) * LANES,
                      n_vectors);
    }
    for (int32_t row = 0; row < t->n_kv * t->n_queries * t->n_heads; row++)
        write_row(t, &l, s->total, row, sums + (size_t)row * weir__attention_stride(t->size_v));
}

#endif
