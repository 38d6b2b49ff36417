/* attention_rows.h: the attention kernel, written once for all instruction sets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * If there are many rows, the lanes of a vector are rows, so that each has its own maximum, sum and scales
 * without an operation across lanes. If there are few, the lanes are cells or dimensions. Both give the same
 * bits: sums of integers are exact, and floats are computed in the same way and added in the same order. */
#ifndef WEIR_KERNELS_ATTENTION_ROWS_H
#define WEIR_KERNELS_ATTENTION_ROWS_H

#include "kernels/attention_cells.h"

/* ---- A block and some groups of many rows ---- */

/* Scores are computed for whole batches of cells; those that a row does not see count as hidden. */

/* Computes the scores of cells [from, to) for n groups. queries, query_factors: of the groups; keys,
 * key_factors: of the block. */
INLINE void score(const int n, scratch *s, const int32_t *queries, const float *query_factors,
                  const int32_t *keys, const float *key_factors, int32_t size_k, int32_t from, int32_t to)
{
    int32_t n_pairs = pairs_in(size_k);
    sixteen factors[TOGETHER];
#pragma GCC unroll 4
    for (int g = 0; g < n; g++) factors[g] = load(query_factors + g * LANES);
    for (int32_t c = from; c < to; c += COLUMNS) {
        sixteen_integers sums[COLUMNS][TOGETHER];
#pragma GCC unroll 8
        for (int i = 0; i < COLUMNS; i++)
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) sums[i][g] = all_of_integer(0);
        if (c % BATCH == 0) prefetch(&s->packing);
        for (int32_t d = 0; d < size_k / 2; d++) { /* zeroes follow */
            sixteen_integers q[TOGETHER];
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) q[g] = load_integers(queries + (g * n_pairs + d) * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < COLUMNS; i++) {
                sixteen_integers k = all_of_integer(keys[(c + i) / 4 * (4 * n_pairs) + 4 * d + i % 4]);
#pragma GCC unroll 4
                for (int g = 0; g < n; g++) sums[i][g] = multiply_add_pairs(q[g], k, sums[i][g]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < COLUMNS; i++)
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) {
                sixteen x = multiply(converted(sums[i][g]), all_of(key_factors[c + i]));
                store(s->scores + ((c + i) * TOGETHER + g) * LANES, multiply(x, factors[g]));
            }
    }
}

/* The places that the lanes of a group see. */
typedef struct view {
    sixteen_integers from, to;                        /* places */
    int32_t first_from, last_from, first_to, last_to; /* of the lanes */
} view;

/* The places that a row of the queries [i, j) sees. */
static void row_sees(const weir__attention_task *t, int32_t row, int32_t i, int32_t j, int32_t *from,
                     int32_t *to)
{
    int32_t query = row / t->n_heads;
    bool in = query >= i && query < j;
    *from = in ? t->queries[query].from : INT32_MAX;
    *to = in ? t->queries[query].to : 0;
}

/* The places that a group's queries in [i, j) see. Lanes without a row see everything. */
static view view_of(const weir__attention_task *t, const layout *l, int32_t group, int32_t i, int32_t j)
{
    int32_t from[LANES] = {0}, to[LANES], n, first = row_of(l, group, &n);
    view v = {.first_from = INT32_MAX, .last_from = 0, .first_to = INT32_MAX, .last_to = 0};
    for (int32_t lane = 0; lane < LANES; lane++) {
        to[lane] = INT32_MAX;
        if (lane >= n) continue;
        row_sees(t, first + lane, i, j, &from[lane], &to[lane]);
        v.first_from = min_of(v.first_from, from[lane]);
        v.last_from = max_of(v.last_from, from[lane]);
        v.first_to = min_of(v.first_to, to[lane]);
        v.last_to = max_of(v.last_to, to[lane]);
    }
    v.from = load_integers(from);
    v.to = load_integers(to);
    return v;
}

/* x at the places in [from, to), else minus infinity. */
INLINE sixteen seen_only(sixteen x, sixteen_integers from, sixteen_integers to, int32_t place)
{
    EACH_PART x.part[i] = within(x.part[i], MM(set1_ps)(-INFINITY), from.part[i], to.part[i], place);
    return x;
}

/* The sum of sixteen partial sums, in the order in which fourth_sums and sum_of add lanes. */
INLINE sixteen sum_of_sixteen(sixteen (*x)[4])
{
    sixteen y[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) y[i] = add(add(x[0][i], x[2][i]), add(x[1][i], x[3][i]));
    return add(add(y[0], y[1]), add(y[2], y[3]));
}

/* No maximum is below this; so the weights of rows that have seen nothing are 0. */
#define LEAST_MAX (-0x1p120f)

/* The factor that gives the numbers of a row's weighted values, if its weights are scaled such that neither
 * the largest nor their sum is too large. */
INLINE sixteen factor_for(sixteen largest, sixteen sum)
{
    sixteen factor = larger(multiply(largest, all_of(1.0f / LARGEST_WEIGHT)), all_of(0x1p-120f));
    return larger(factor, multiply(sum, all_of(1.0f / WEIGHTS)));
}

/* Turns the scores of a group's rows into weights, in integers; returns the factor that gives the numbers of
 * their weighted values. sums: maxima and sums of the rows; *old: the factor for their older weighted
 * values. */
INLINE sixteen weigh(scratch *s, int g, const view *seen, float *sums, const float *value_factors,
                     int32_t block, int32_t from, int32_t to, sixteen *old)
{
    float *scores = s->scores + g * LANES;
    const int stride = TOGETHER * LANES;
    if (seen->last_from > block + from || seen->first_to < block + to)
        for (int32_t c = from; c < to; c++)
            store(scores + c * stride, seen_only(load(scores + c * stride), seen->from, seen->to, block + c));
    sixteen max[4], before = load(sums);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) max[i] = before;
    for (int32_t c = from; c < to; c += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) max[i] = larger(load(scores + (c + i) * stride), max[i]);
    max[0] = larger(larger(max[0], max[1]), larger(max[2], max[3]));
    store(sums, max[0]);
    max[0] = larger(max[0], all_of(LEAST_MAX));
    *old = weight_of(before, max[0]);
    sixteen sum[4][4], product_sum[4][4], largest = all_of(0.0f);
    for (int four = 0; four < 4; four++) {
        sixteen weights[4], products[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) weights[i] = products[i] = all_of(0.0f);
        for (int32_t c = from + 4 * four; c < to; c += BATCH) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                sixteen product, weight = weight_and_product(load(scores + (c + i) * stride), max[0],
                                                             all_of(value_factors[c + i]), &product);
                weights[i] = add(weights[i], weight);
                products[i] = add(products[i], product);
                largest = larger(largest, product);
                store(scores + (c + i) * stride, product);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sum[four][i] = weights[i], product_sum[four][i] = products[i];
    }
    store(sums + LANES, multiply_add(load(sums + LANES), *old, sum_of_sixteen(sum)));
    sixteen factor = factor_for(largest, sum_of_sixteen(product_sum)), scale = divide(all_of(1.0f), factor);
    int32_t *weights = s->weights + g * LANES;
    for (int32_t c = from; c < to; c += 4) {
        sixteen_integers x[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) x[i] = rounded(multiply(load(scores + (c + i) * stride), scale));
        store_integers(weights + c / 2 * stride, pairs(x[0], x[1]));
        store_integers(weights + (c / 2 + 1) * stride, pairs(x[2], x[3]));
    }
    return factor;
}

/* Adds the weighted values of dimensions from d on, n_columns of them, and of pairs of cells [from, to) to
 * the sums of n groups. */
INLINE void add_columns(const int n, const int n_columns, scratch *s, const int32_t *values, int32_t size,
                        int32_t d, int32_t from, int32_t to, const sixteen *factors, const sixteen *olds,
                        float *sums, int32_t group_sums)
{
    sixteen_integers acc[COLUMNS][TOGETHER];
#pragma GCC unroll 8
    for (int i = 0; i < n_columns; i++)
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) acc[i][g] = all_of_integer(0);
    for (int32_t c = from; c < to; c++) {
        sixteen_integers w[TOGETHER];
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) w[g] = load_integers(s->weights + (c * TOGETHER + g) * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < n_columns; i++) {
            sixteen_integers v = all_of_integer(values[c * size + d + i]);
#pragma GCC unroll 4
            for (int g = 0; g < n; g++) acc[i][g] = multiply_add_pairs(w[g], v, acc[i][g]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_columns; i++)
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) {
            float *sum = sums + g * group_sums + (d + i) * LANES;
            store(sum, multiply_add(converted(acc[i][g]), factors[g], multiply(load(sum), olds[g])));
        }
}

/* Caps scores of cells [from, to) and adds masks. A row's score of a cell is at
 * scores[row × row_stride + cell × cell_stride]. */
static void adjust(const weir__attention_task *t, const layout *l, float *scores, int32_t row_stride,
                   int32_t cell_stride, int32_t kv, int32_t group, int32_t block, int32_t from, int32_t to)
{
    int32_t n, first = row_of(l, group, &n);
    for (int32_t row = first; l->masked && row < first + n; row++) {
        const weir__attention_query *q = query_of(t, row);
        if (q->mask == NULL) continue;
        const int32_t *cells = t->lists[q->list].cells - t->lists[q->list].first + block;
        float slope = t->slopes != NULL ? t->slopes[kv * t->n_heads + row % t->n_heads] * LOG2_E : LOG2_E;
        for (int32_t c = max_of(from, q->from - block); c < min_of(to, q->to - block); c++)
            scores[(row - first) * row_stride + c * cell_stride] += slope * half_number(q->mask[cells[c]]);
    }
}

/* Adds cells [from, to) of the block at place `block` to n groups of many rows; whole batches. */
INLINE void add_block(const int n, const weir__attention_task *t, const layout *l, scratch *s,
                      const view *views, int32_t kv, int32_t group, int32_t block, int32_t from, int32_t to)
{
    int32_t n_pairs = pairs_in(t->size_k), at = block - s->origin, first = kv * l->groups + group;
    int32_t group_sums = sums_in(t, l);
    float *sums = s->sums + first * group_sums;
    score(n, s, s->queries + first * n_pairs * LANES, s->query_factors + first * LANES,
          s->cells.keys + at * n_pairs, s->cells.key_factors + at, t->size_k, from, to);
    sixteen factors[TOGETHER], olds[TOGETHER];
#pragma GCC unroll 4
    for (int g = 0; g < n; g++) {
        for (int32_t c = from; c < to && t->softcap != 0.0f; c++) {
            float *scores = s->scores + (c * TOGETHER + g) * LANES;
            store(scores, capped(load(scores), t->softcap * LOG2_E));
        }
        adjust(t, l, s->scores + g * LANES, 1, TOGETHER * LANES, kv, group + g, block, from, to);
        factors[g] = weigh(s, g, &views[g], sums + (g + 1) * group_sums - 2 * LANES,
                           s->cells.value_factors + at, block, from, to, &olds[g]);
    }
    int32_t width = weir__attention_width(t->size_v);
    const int32_t *values = s->cells.values + at / 2 * width;
    for (int32_t d = 0; d < t->size_v; d += COLUMNS) {
        if (d % LANES == 0) prefetch(&s->packing);
        add_columns(n, COLUMNS, s, values, width, d, from / 2, to / 2, factors, olds, sums, group_sums);
    }
}

/* ---- A block and a group of few rows ---- */

/* Vectors of cells or dimensions that are computed together. */
#define WITH_FEW (TOGETHER * TOGETHER)

/* Computes the scores of n rows and a batch of cells. */
INLINE void score_few(const int n, scratch *s, const int32_t *queries, const float *query_factors,
                      const int32_t *keys, const float *key_factors, int32_t size_k, int32_t cell)
{
    int32_t n_pairs = pairs_in(size_k);
    sixteen_integers sums[FEW][4];
#pragma GCC unroll 4
    for (int first = 0; first < 4; first += WITH_FEW) {
#pragma GCC unroll 4
        for (int r = 0; r < n; r++)
#pragma GCC unroll 4
            for (int i = 0; i < WITH_FEW; i++) sums[r][first + i] = all_of_integer(0);
        for (int32_t d = 0; d < 2 * size_k; d += LANES) { /* zeroes follow */
            sixteen_integers k[WITH_FEW];
#pragma GCC unroll 4
            for (int i = 0; i < WITH_FEW; i++) k[i] = load_integers(keys + (first + i) * (4 * n_pairs) + d);
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) {
                sixteen_integers q = load_integers(queries + r * (4 * n_pairs) + d);
#pragma GCC unroll 4
                for (int i = 0; i < WITH_FEW; i++)
                    sums[r][first + i] = multiply_add_pairs(q, k[i], sums[r][first + i]);
            }
        }
    }
    sixteen factors = load(key_factors);
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) {
        sixteen_integers of_cells;
        sum_lanes(of_cells.part, sums[r][0].part, sums[r][1].part, sums[r][2].part, sums[r][3].part);
        sixteen x = multiply(converted(of_cells), factors);
        store(s->scores + r * BLOCK + cell, multiply(x, all_of(query_factors[r])));
    }
}

/* The largest lane, or the sum of all, in all lanes. */
INLINE sixteen largest_of(sixteen x)
{
    return all_of(largest_of_four(fourth_maxima(x.part)));
}

INLINE sixteen sum_of(sixteen x)
{
    return all_of(sum_of_four(fourth_sums(x.part)));
}

/* weigh() for a row that sees the places [sees_from, sees_to). */
INLINE sixteen weigh_row(float *scores, int16_t *weights, int32_t sees_from, int32_t sees_to, float *sums,
                         const float *value_factors, int32_t block, int32_t from, int32_t to, sixteen *old)
{
    static const int32_t lanes[LANES] = {0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15};
    sixteen before = all_of(sums[0]), max = before;
    if (sees_from > block + from || sees_to < block + to)
        for (int32_t c = from; c < to; c += BATCH) {
            sixteen_integers lane = load_integers(lanes);
            store(scores + c, seen_only(load(scores + c), add_integers(all_of_integer(sees_from), lane),
                                        add_integers(all_of_integer(sees_to), lane), block + c));
        }
    for (int32_t c = from; c < to; c += BATCH) max = larger(load(scores + c), max);
    max = largest_of(max);
    sums[0] = first_of(max);
    max = larger(max, all_of(LEAST_MAX));
    *old = weight_of(before, max);
    sixteen sum = all_of(0.0f), product_sum = sum, largest = sum;
    for (int32_t c = from; c < to; c += BATCH) {
        sixteen product,
            weight = weight_and_product(load(scores + c), max, load(value_factors + c), &product);
        sum = add(sum, weight);
        product_sum = add(product_sum, product);
        largest = larger(largest, product);
        store(scores + c, product);
    }
    sums[1] = first_of(multiply_add(all_of(sums[1]), *old, sum_of(sum)));
    sixteen factor = factor_for(largest_of(largest), sum_of(product_sum));
    sixteen scale = divide(all_of(1.0f), factor);
    for (int32_t c = from; c < to; c += BATCH)
        store_halves(weights + c, rounded(multiply(load(scores + c), scale)).part);
    return factor;
}

/* Adds the weighted values of n_columns × LANES dimensions from d on, and of pairs of cells [from, to), to
 * the sums of n rows. */
INLINE void add_dimensions(const int n, const int n_columns, const scratch *s, const int32_t *values,
                           int32_t size, int32_t d, int32_t from, int32_t to, const sixteen *factors,
                           const sixteen *olds, float *sums)
{
    sixteen_integers acc[FEW][WITH_FEW];
#pragma GCC unroll 4
    for (int r = 0; r < n; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n_columns; i++) acc[r][i] = all_of_integer(0);
    for (int32_t c = from; c < to; c++) {
        sixteen_integers v[WITH_FEW];
#pragma GCC unroll 4
        for (int i = 0; i < n_columns; i++) v[i] = load_integers(values + c * size + d + i * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            sixteen_integers w = all_of_integer(s->weights[r * (BLOCK / 2) + c]);
#pragma GCC unroll 4
            for (int i = 0; i < n_columns; i++) acc[r][i] = multiply_add_pairs(w, v[i], acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n_columns; i++) {
            float *sum = sums + r * (size + 2) + d + i * LANES;
            store(sum, multiply_add(converted(acc[r][i]), factors[r], multiply(load(sum), olds[r])));
        }
}

INLINE void add_n(const int n, const weir__attention_task *t, const layout *l, scratch *s, int32_t i,
                  int32_t j, int32_t kv, int32_t group, int32_t block, int32_t from, int32_t to)
{
    int32_t n_pairs = pairs_in(t->size_k), at = block - s->origin, first = kv * l->groups + group, in_group;
    int32_t size = weir__attention_width(t->size_v), first_row = row_of(l, group, &in_group);
    float *sums = s->sums + first * sums_in(t, l);
    for (int32_t c = from; c < to; c += BATCH) {
        prefetch(&s->packing);
        score_few(n, s, s->queries + first * n_pairs * LANES, s->query_factors + first * LANES,
                  s->cells.keys + (at + c) * n_pairs, s->cells.key_factors + at + c, t->size_k, c);
    }
    for (int32_t r = 0; r < n && t->softcap != 0.0f; r++)
        for (float *x = s->scores + r * BLOCK + from; x < s->scores + r * BLOCK + to; x += LANES)
            store(x, capped(load(x), t->softcap * LOG2_E));
    adjust(t, l, s->scores, BLOCK, 1, kv, group, block, from, to);
    sixteen factors[FEW], olds[FEW];
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) {
        int32_t sees_from, sees_to;
        row_sees(t, first_row + r, i, j, &sees_from, &sees_to);
        prefetch(&s->packing);
        factors[r] =
            weigh_row(s->scores + r * BLOCK, (int16_t *)(s->weights + r * (BLOCK / 2)), sees_from, sees_to,
                      sums + r * (size + 2) + size, s->cells.value_factors + at, block, from, to, &olds[r]);
    }
    const int32_t *values = s->cells.values + at / 2 * size;
    int32_t d = 0;
    for (; d + WITH_FEW * LANES <= size; d += WITH_FEW * LANES) {
        prefetch(&s->packing);
        add_dimensions(n, WITH_FEW, s, values, size, d, from / 2, to / 2, factors, olds, sums);
    }
    for (; d < size; d += LANES)
        add_dimensions(n, 1, s, values, size, d, from / 2, to / 2, factors, olds, sums);
}

/* Adds cells [from, to) of the block at place `block` to a group of few rows; whole batches. */
static void add_few(const weir__attention_task *t, const layout *l, scratch *s, int32_t i, int32_t j,
                    int32_t kv, int32_t group, int32_t block, int32_t from, int32_t to)
{
    int32_t n;
    row_of(l, group, &n);
    switch (n) {
    case 1: add_n(1, t, l, s, i, j, kv, group, block, from, to); break;
    case 2: add_n(2, t, l, s, i, j, kv, group, block, from, to); break;
    case 3: add_n(3, t, l, s, i, j, kv, group, block, from, to); break;
    default: add_n(4, t, l, s, i, j, kv, group, block, from, to); break;
    }
}

/* ---- Runs of queries ---- */

static void find_cells(const char **to, const char *from, size_t cell_bytes, const int32_t *cells, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i] = from + (size_t)cells[i] * cell_bytes;
}

static void pack_some_keys(const weir__attention_task *t, packing *p, int32_t *to, float *factors)
{
    FOR_FORMAT(pack_all_keys, t->k_format, t->size_k, p, to, factors)
}

static void pack_some_values(const weir__attention_task *t, packing *p, int32_t *to, float *factors)
{
    FOR_FORMAT(pack_all_values, t->v_format, t->size_v, p, to, factors)
}

/* The steps in which a block's cells are prefetched while those before are packed: with each batch's scales
 * and integers, of keys and of values. */
#define PACKING_STEPS (4 * BLOCK / BATCH)

/* All steps of a block, also those in which rows are added: each batch's scores and some dimensions. */
static int32_t steps_of(const weir__attention_task *t, const layout *l)
{
    int32_t scores = BLOCK / BATCH, dimensions = l->few ? 4 : t->size_v / LANES;
    int32_t n_groups = l->few ? 1 : (l->per_unit + TOGETHER - 1) / TOGETHER;
    return PACKING_STEPS + n_groups * (scores + dimensions);
}

static void plan_prefetch(const weir__attention_task *t, scratch *s, int32_t kv, const int32_t *cells,
                          int32_t n)
{
    const char *k = t->k + (size_t)kv * t->k_head, *v = t->v + (size_t)kv * t->v_head;
    packing *p = &s->packing;
    p->at = 0;
    p->n_next = 2 * n;
    p->step = (p->n_next + s->steps - 1) / s->steps;
    for (int32_t i = 0; i < n; i++) {
        p->next[2 * i] = k + (size_t)cells[i] * t->k_cell;
        p->next[2 * i + 1] = v + (size_t)cells[i] * t->v_cell;
    }
}

/* Packs the places [from, to) of a block, in batches. cells: from place 0 on; end: of their list. */
static void pack_block(const weir__attention_task *t, scratch *s, int32_t kv, const int32_t *cells,
                       int32_t from, int32_t to, int32_t end)
{
    const char *k = t->k + (size_t)kv * t->k_head, *v = t->v + (size_t)kv * t->v_head;
    packing *p = &s->packing;
    p->next_bytes[0] = bytes_of(t->k_format, t->size_k);
    p->next_bytes[1] = bytes_of(t->v_format, t->size_v);
    int32_t first = from / BATCH * BATCH, n = (to - first + BATCH - 1) / BATCH * BATCH;
    int32_t at = first - s->origin, own[BLOCK];
    const int32_t *some = cells + first;
    if (kv + 1 < t->n_kv)
        plan_prefetch(t, s, kv + 1, cells + from, to - from);
    else
        plan_prefetch(t, s, 0, some + n, max_of(min_of(end - first - n, BLOCK), 0));
    if (first < from || first + n > to) { /* surplus places repeat the first or last cell */
        for (int32_t i = 0; i < n; i++) own[i] = cells[min_of(max_of(first + i, from), to - 1)];
        some = own;
    }
    p->n = n;
    find_cells(p->cells, k, t->k_cell, some, n);
    pack_some_keys(t, p, s->cells.keys + at * pairs_in(t->size_k), s->cells.key_factors + at);
    find_cells(p->cells, v, t->v_cell, some, n);
    pack_some_values(t, p, s->cells.values + at / 2 * weir__attention_width(t->size_v),
                     s->cells.value_factors + at);
}

/* ---- Cells that are packed once ---- */

static int32_t whole_blocks(int32_t n_cells)
{
    return (n_cells + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t packed_bytes(int32_t size_k, int32_t size_v, int32_t n)
{
    size_t numbers = (size_t)(pairs_in(size_k) + weir__attention_width(size_v) / 2) + 2;
    return (size_t)whole_blocks(n) * numbers * sizeof(int32_t);
}

static integers_of_cells cells_in(const weir__attention_task *t, void *packed)
{
    int32_t n = whole_blocks(t->lists[0].n);
    integers_of_cells cells = {.keys = packed};
    cells.values = cells.keys + (size_t)n * (size_t)pairs_in(t->size_k);
    cells.key_factors = (float *)(cells.values + (size_t)(n / 2) * (size_t)weir__attention_width(t->size_v));
    cells.value_factors = cells.key_factors + n;
    return cells;
}

static void pack(const weir__attention_task *t, void *memory, void *packed)
{
    scratch *s = memory;
    s->cells = cells_in(t, packed);
    s->origin = 0;
    s->steps = PACKING_STEPS;
    const weir__attention_list *list = &t->lists[0];
    for (int32_t block = 0; block < list->n; block += BLOCK)
        pack_block(t, s, 0, list->cells, block, min_of(block + BLOCK, list->n), list->n);
}

/* Adds the block at place `block` to the queries [i, j), which have the same cells there but may see
 * different parts of them. */
static void add_run(const weir__attention_task *t, const layout *l, scratch *s, int32_t i, int32_t j,
                    int32_t block)
{
    const weir__attention_list *list = &t->lists[t->queries[i].list];
    const int32_t *cells = list->cells - list->first;
    int32_t from = INT32_MAX, to = 0;
    for (int32_t n = i; n < j; n++) {
        if (t->queries[n].from == t->queries[n].to) continue;
        from = min_of(from, t->queries[n].from);
        to = max_of(to, t->queries[n].to);
    }
    from = max_of(from, block);
    to = min_of(to, block + BLOCK);
    if (from >= to) return;
    int32_t last_group = group_of(l, j * t->n_heads - 1);
    s->origin = t->packed != NULL ? 0 : block;
    for (int32_t kv = 0; kv < t->n_kv; kv++) {
        if (t->packed == NULL) pack_block(t, s, kv, cells, from, to, list->first + list->n);
        for (int32_t g = group_of(l, i * t->n_heads), n; g <= last_group; g += n) {
            n = !l->few && g + TOGETHER <= last_group + 1 ? TOGETHER : 1;
            view views[TOGETHER];
            int32_t sees_from = to, sees_to = from;
            for (int32_t m = 0; m < n; m++) {
                views[m] = view_of(t, l, g + m, i, j);
                sees_from = min_of(sees_from, views[m].first_from);
                sees_to = max_of(sees_to, views[m].last_to);
            }
            sees_from = max_of(sees_from, from);
            sees_to = min_of(sees_to, to);
            if (sees_from >= sees_to) continue;
            int32_t b_from = (sees_from - block) / BATCH * BATCH;
            int32_t b_to = (sees_to - block + BATCH - 1) / BATCH * BATCH;
            if (l->few)
                add_few(t, l, s, i, j, kv, g, block, b_from, b_to);
            else if (n == 1)
                add_block(1, t, l, s, views, kv, g, block, b_from, b_to);
            else
                add_block(TOGETHER, t, l, s, views, kv, g, block, b_from, b_to);
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

static void add_row(float *total, const float *piece, int32_t n)
{
    float old_max = total[n], max = piece[n], most = max > old_max ? max : old_max;
    add_vectors(total, piece, n / LANES, all_of(old_max), all_of(max), all_of(most));
    float sum[LANES] = {total[n + 1]}, more[LANES] = {piece[n + 1]};
    add_vectors(sum, more, 1, all_of(old_max), all_of(max), all_of(most));
    total[n] = most;
    total[n + 1] = sum[0];
}

static void add_group(const weir__attention_task *t, const layout *l, float *total, const float *piece)
{
    int32_t n = weir__attention_width(t->size_v);
    if (l->few) {
        for (int32_t r = 0; r < l->rows; r++, total += n + 2, piece += n + 2) add_row(total, piece, n);
        return;
    }
    sixteen old_max = load(total + n * LANES), max = load(piece + n * LANES), most = larger(max, old_max);
    add_vectors(total, piece, n, old_max, max, most);
    add_vectors(total + (n + 1) * LANES, piece + (n + 1) * LANES, 1, old_max, max, most);
    store(total + n * LANES, most);
}

static void add_piece(const weir__attention_task *t, float *total, const float *piece)
{
    layout l = layout_of(t);
    int32_t n = sums_in(t, &l);
    for (int32_t g = 0; g < t->n_kv * l.groups; g++) add_group(t, &l, total + g * n, piece + g * n);
}

static size_t sums_of(const weir__attention_task *t)
{
    layout l = layout_of(t);
    return (size_t)t->n_kv * (size_t)l.groups * (size_t)sums_in(t, &l);
}

static void empty_groups(const weir__attention_task *t, const layout *l, float *sums)
{
    int32_t n = weir__attention_width(t->size_v), n_groups = t->n_kv * l->groups;
    memset(sums, 0, (size_t)(n_groups * sums_in(t, l)) * sizeof *sums);
    for (int32_t g = 0; g < n_groups; g++, sums += sums_in(t, l))
        for (int32_t r = 0; r < l->rows; r++) sums[l->few ? r * (n + 2) + n : n * LANES + r] = -INFINITY;
}

/* total: a row's sums, `step` floats apart. */
static void finish_row(const weir__attention_task *t, int32_t row, const float *total, int32_t step)
{
    int32_t n_rows = t->n_queries * t->n_heads, head = row / n_rows * t->n_heads + row % t->n_heads;
    int32_t width = weir__attention_width(t->size_v);
    float max = total[width * step], sum = total[(width + 1) * step], factor = 1.0f;
    if (t->sinks != NULL) {
        float sink = t->sinks[head] * LOG2_E, most = max > sink ? max : sink;
        factor = exp2f(max - most);
        sum = sum * factor + exp2f(sink - most);
    }
    factor = sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
    float *out = (float *)(query_of(t, row % n_rows)->out + (size_t)head * t->out_head);
    for (int32_t d = 0; d < t->size_v; d++) out[d] = total[d * step] * factor;
}

static void finish(const weir__attention_task *t, const float *total)
{
    layout l = layout_of(t);
    int32_t n_rows = t->n_queries * t->n_heads, n = weir__attention_width(t->size_v) + 2;
    for (int32_t row = 0; row < t->n_kv * n_rows; row++) {
        int32_t group = row / n_rows * l.groups + group_of(&l, row % n_rows), at = place_of(&l, row % n_rows);
        const float *sums = total + group * sums_in(t, &l);
        if (l.few)
            finish_row(t, row, sums + at * n, 1);
        else
            finish_row(t, row, sums + at, LANES);
    }
}

/* ---- A call ---- */

static void attend(const weir__attention_task *t, int32_t first, int32_t n, void *memory, float *sums)
{
    scratch *s = memory;
    layout l = layout_of(t);
    integers_of_cells own = {s->keys, s->values, s->key_factors, s->value_factors};
    s->cells = t->packed != NULL ? cells_in(t, t->packed) : own;
    s->steps = steps_of(t, &l);
    s->packing.at = s->packing.n_next = 0;
    pack_queries(t, &l, s);
    empty_groups(t, &l, sums);
    for (int32_t piece = first; piece < first + n; piece++) {
        s->sums = piece == first ? sums : s->piece;
        if (piece > first) empty_groups(t, &l, s->piece);
        for (int32_t block = piece * PIECE; block < (piece + 1) * PIECE; block += BLOCK)
            for (int32_t i = 0, j; i < t->n_queries; i = j) {
                j = end_of_run(t, i, block);
                add_run(t, &l, s, i, j, block);
            }
        if (piece > first) add_piece(t, sums, s->piece);
    }
}

#endif
