/* attention_layout.h: how the rows of a task lie in groups, and the memory that they take. Included by
 * attention_rows.h, once for each instruction set.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_ATTENTION_LAYOUT_H
#define WEIR_KERNELS_ATTENTION_LAYOUT_H

#include "kernels/attention_cells.h"

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
