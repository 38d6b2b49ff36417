/* attention_rows.h: attention at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block's keys and values become panels, in the order in which the level multiplies them; then all rows that
 * see the block are multiplied with them. A level includes this and defines what is declared first. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H
#define WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H

#include "backend/kernels/attention_vector.h"

#define ROWS  WEIR__ATTENTION_ROWS
#define SIZE  WEIR__ATTENTION_SIZE
#define BLOCK WEIR__ATTENTION_BLOCK
#define GROUP 16 /* cells whose keys become part of a panel together */

/* Of a call. What a level writes in its own way has room for single precision. */
typedef struct scratch {
    _Alignas(64) float q[ROWS * SIZE];       /* a level's own: scaled queries, [row] */
    _Alignas(64) float keys[SIZE * BLOCK];   /* a level's own: a panel */
    _Alignas(64) float values[BLOCK * SIZE]; /* a level's own: a panel */
    _Alignas(64) float scores[ROWS][BLOCK];  /* then weights, which a level writes in its own way */
    _Alignas(64) float out[ROWS * SIZE];     /* a piece's weighted values, [row][size_v] */
    float max[ROWS], sum[ROWS];
} scratch;

/* ---- A level's products ---- */

/* Row r's query. */
INLINE void take_query(scratch *s, int r, const float *q, int32_t size, float scale);

/* Keys [at, at + GROUP) of a block; values [at, end) of it. */
INLINE void pack_keys(weir__attention_format format, scratch *s, const char *const *cells, int32_t size,
                      int at);
INLINE void pack_values(weir__attention_format format, scratch *s, const char *const *cells, int32_t size,
                        int32_t at, int32_t end);

/* Scores of n_groups × GROUP cells of a block for rows [r, r + n_rows). */
INLINE void score(int n_groups, int n_rows, scratch *s, int r, int32_t size);

/* A row's weights [at, at + 16), and the sum of what they are for the products. */
INLINE void store_weights(scratch *s, int r, int at, sixteen weights);

/* Adds the weighted values [at, end) of a block to rows [r, r + n_rows): dimensions [d, d + 16 × n). */
INLINE void add_values(int n_rows, int n, scratch *s, int r, int32_t size, int32_t d, int32_t at,
                       int32_t end);

/* Rows and groups of 16 dimensions that add_values takes at once, at the most. */
#define MOST_ROWS 6

/* ---- Rows ---- */

#define FOR_ROWS(from, to, what, ...)                                                                        \
    do {                                                                                                     \
        int at_ = (from), end_ = (to);                                                                       \
        for (; at_ + MOST_ROWS <= end_; at_ += MOST_ROWS) what(MOST_ROWS, at_, __VA_ARGS__);                 \
        switch (end_ - at_) {                                                                                \
        case 1: what(1, at_, __VA_ARGS__); break;                                                            \
        case 2: what(2, at_, __VA_ARGS__); break;                                                            \
        case 3: what(3, at_, __VA_ARGS__); break;                                                            \
        case 4: what(4, at_, __VA_ARGS__); break;                                                            \
        case 5: what(5, at_, __VA_ARGS__); break;                                                            \
        default: break;                                                                                      \
        }                                                                                                    \
    } while (0)

INLINE void score_rows(const int n_rows, int r, scratch *s, int32_t size, int n_groups)
{
    if (n_groups == 1)
        score(1, n_rows, s, r, size);
    else if (n_groups == 2)
        score(2, n_rows, s, r, size);
    else
        score(4, n_rows, s, r, size);
}

INLINE void add_value_rows(const int n_rows, int r, scratch *s, int32_t size, int32_t at, int32_t end)
{
    int32_t d = 0;
    for (; d + 16 * MOST_VECTORS <= size; d += 16 * MOST_VECTORS)
        add_values(n_rows, MOST_VECTORS, s, r, size, d, at, end);
    for (; d < size; d += 16) add_values(n_rows, 1, s, r, size, d, at, end);
}

/* ---- Weights ---- */

/* The running maximum of a row that sees [from, to) of a block, whose others count as minus infinity. */
static void raise_max(scratch *s, int r, int32_t from, int32_t to, int32_t size_v)
{
    float *scores = s->scores[r];
    for (int32_t c = 0; c < from; c++) scores[c] = -INFINITY;
    for (int32_t c = to; c < BLOCK; c++) scores[c] = -INFINITY;
    sixteen max = load(scores);
    for (int c = 16; c < BLOCK; c += 16) max = larger(max, load(scores + c));
    float highest = largest_of(max);
    if (!(highest > s->max[r])) return;
    sixteen factor = exponential(all_of(s->max[r] - highest));
    s->max[r] = highest;
    s->sum[r] *= sum_of(factor) / 16.0f;
    for (int32_t d = 0; d < size_v; d += 16) {
        float *out = s->out + r * size_v + d;
        store(out, multiply(load(out), factor));
    }
}

/* Makes weights of a row's scores. */
static void weigh(const weir__attention_task *t, scratch *s, int r, int32_t block)
{
    const weir__attention_query *q = &t->queries[r / t->n_heads];
    const weir__attention_list *list = &t->lists[q->list];
    int32_t from = q->from > block ? q->from - block : 0;
    int32_t to = q->to - block < BLOCK ? q->to - block : BLOCK;
    float *scores = s->scores[r];
    if (from >= to) {
        for (int c = 0; c < BLOCK; c += 16) store_weights(s, r, c, all_of(0.0f));
        return;
    }
    if (t->softcap != 0.0f)
        for (int c = 0; c < BLOCK; c += 16) store(scores + c, capped(load(scores + c), t->softcap));
    if (q->mask != NULL) {
        float slope = t->slopes != NULL ? t->slopes[r % t->n_heads] : 1.0f;
        for (int32_t c = from; c < to; c++)
            scores[c] += slope * _cvtsh_ss(q->mask[list->cells[block + c - list->first]]);
    }
    raise_max(s, r, from, to, t->size_v);
    sixteen sum = all_of(0.0f);
    for (int c = 0; c < BLOCK; c += 16) {
        sixteen weights = weight_of(load(scores + c), s->max[r]);
        sum = add(sum, weights);
        store_weights(s, r, c, weights);
    }
    s->sum[r] += sum_of(sum);
}

/* ---- Blocks ---- */

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

/* The keys and values of places [from, to) of a list, which lie in the block that begins at place `block`. The
 * panels' other cells, up to a multiple of GROUP, are zeroes. */
static void pack_block(const weir__attention_task *t, scratch *s, const weir__attention_list *list,
                       int32_t block, int32_t from, int32_t to)
{
    static const float nothing[SIZE];
    const char *keys[BLOCK], *values[BLOCK];
    int32_t k_bytes = bytes_of(t->k_format, t->size_k), v_bytes = bytes_of(t->v_format, t->size_v);
    int32_t end = list->first + list->n;
    for (int32_t c = 0; c < BLOCK; c++) {
        int32_t place = block + c;
        size_t cell = place >= from && place < to ? (size_t)list->cells[place - list->first] : 0;
        keys[c] = place >= from && place < to ? t->k + cell * t->k_cell : (const char *)nothing;
        values[c] = place >= from && place < to ? t->v + cell * t->v_cell : (const char *)nothing;
    }
    for (int32_t at = 0; at < to - block; at += GROUP) {
        for (int32_t place = block + at + BLOCK; place < block + at + BLOCK + GROUP && place < end; place++) {
            size_t next = (size_t)list->cells[place - list->first];
            prefetch(t->k + next * t->k_cell, k_bytes);
            prefetch(t->v + next * t->v_cell, v_bytes);
        }
        switch (t->k_format) {
        case WEIR__ATTENTION_F32: pack_keys(WEIR__ATTENTION_F32, s, keys, t->size_k, at); break;
        case WEIR__ATTENTION_F16: pack_keys(WEIR__ATTENTION_F16, s, keys, t->size_k, at); break;
        case WEIR__ATTENTION_BF16: pack_keys(WEIR__ATTENTION_BF16, s, keys, t->size_k, at); break;
        case WEIR__ATTENTION_Q8_0: pack_keys(WEIR__ATTENTION_Q8_0, s, keys, t->size_k, at); break;
        case WEIR__ATTENTION_Q4_0: pack_keys(WEIR__ATTENTION_Q4_0, s, keys, t->size_k, at); break;
        }
    }
    from -= block, to -= block;
    switch (t->v_format) {
    case WEIR__ATTENTION_F32: pack_values(WEIR__ATTENTION_F32, s, values, t->size_v, from, to); break;
    case WEIR__ATTENTION_F16: pack_values(WEIR__ATTENTION_F16, s, values, t->size_v, from, to); break;
    case WEIR__ATTENTION_BF16: pack_values(WEIR__ATTENTION_BF16, s, values, t->size_v, from, to); break;
    case WEIR__ATTENTION_Q8_0: pack_values(WEIR__ATTENTION_Q8_0, s, values, t->size_v, from, to); break;
    case WEIR__ATTENTION_Q4_0: pack_values(WEIR__ATTENTION_Q4_0, s, values, t->size_v, from, to); break;
    }
}

/* What queries [i, j) see of the block that begins at place `block`: the same cells, or a part of them. */
static void add_block(const weir__attention_task *t, scratch *s, int32_t i, int32_t j, int32_t block)
{
    int32_t from = block + BLOCK, to = block;
    for (int32_t n = i; n < j; n++) {
        if (t->queries[n].from < from) from = t->queries[n].from;
        if (t->queries[n].to > to) to = t->queries[n].to;
    }
    if (from < block) from = block;
    if (to > block + BLOCK) to = block + BLOCK;
    if (from >= to) return;
    pack_block(t, s, &t->lists[t->queries[i].list], block, from, to);
    int first = i * t->n_heads, end = j * t->n_heads;
    int n_groups = (to - block + GROUP - 1) / GROUP;
    FOR_ROWS(first, end, score_rows, s, t->size_k, n_groups);
    for (int r = first; r < end; r++) weigh(t, s, r, block);
    FOR_ROWS(first, end, add_value_rows, s, t->size_v, from - block, to - block);
}

/* Past the last of the queries from i on whose lists have the same cells in the block that begins at place
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

INLINE float max_of(const weir__attention_sums *sums, int32_t size_v)
{
    return sums[size_v];
}

INLINE float weight_sum_of(const weir__attention_sums *sums, int32_t size_v)
{
    return sums[size_v + 1];
}

INLINE bool is_empty(float max, float sum)
{
    return max == -INFINITY && sum == 0.0f;
}

static void add_sums(weir__attention_sums *total, const float *out, float max, float sum, int32_t size_v)
{
    float old_max = max_of(total, size_v), old_sum = weight_sum_of(total, size_v);
    if (is_empty(max, sum)) return;
    if (is_empty(old_max, old_sum)) {
        memcpy(total, out, (size_t)size_v * sizeof *out);
        total[size_v] = max;
        total[size_v + 1] = sum;
        return;
    }
    float most = max > old_max ? max : old_max;
    sixteen old_factor = exponential(all_of(old_max - most)), factor = exponential(all_of(max - most));
    for (int32_t d = 0; d < size_v; d += 16)
        store(total + d, multiply_add(load(out + d), factor, multiply(load(total + d), old_factor)));
    total[size_v] = most;
    total[size_v + 1] = old_sum * (sum_of(old_factor) / 16.0f) + sum * (sum_of(factor) / 16.0f);
}

static void add_piece(weir__attention_sums *total, const weir__attention_sums *piece, int32_t size_v)
{
    add_sums(total, piece, max_of(piece, size_v), weight_sum_of(piece, size_v), size_v);
}

static void finish(const weir__attention_task *t, int32_t query, int32_t head,
                   const weir__attention_sums *total)
{
    float max = max_of(total, t->size_v), sum = weight_sum_of(total, t->size_v), factor = 1.0f;
    if (t->sinks != NULL) {
        float most = max > t->sinks[head] ? max : t->sinks[head];
        factor = expf(max - most);
        sum = sum * factor + expf(t->sinks[head] - most);
    }
    factor = sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
    float *out = (float *)(t->queries[query].out + (size_t)head * t->out_head);
    bool empty = is_empty(max, weight_sum_of(total, t->size_v));
    for (int32_t d = 0; d < t->size_v; d += 16)
        store(out + d, empty ? all_of(0.0f) : multiply(load(total + d), all_of(factor)));
}

/* ---- A call ---- */

static void attend(const weir__attention_task *t, int32_t first, int32_t n, void *memory,
                   weir__attention_sums *sums)
{
    scratch *s = memory;
    int n_rows = t->n_queries * t->n_heads;
    size_t stride = weir__attention_stride(t->size_v);
    float scale = t->softcap != 0.0f ? t->scale / t->softcap : t->scale;
    for (int r = 0; r < n_rows; r++) {
        const char *q = t->queries[r / t->n_heads].q + (size_t)(r % t->n_heads) * t->q_head;
        take_query(s, r, (const float *)q, t->size_k, scale);
        sums[(size_t)r * stride + (size_t)t->size_v] = -INFINITY;
        sums[(size_t)r * stride + (size_t)t->size_v + 1] = 0.0f;
    }
    for (int32_t piece = first; piece < first + n; piece++) {
        memset(s->out, 0, (size_t)n_rows * (size_t)t->size_v * sizeof *s->out);
        for (int r = 0; r < n_rows; r++) s->max[r] = -INFINITY, s->sum[r] = 0.0f;
        int32_t end = (piece + 1) * WEIR__ATTENTION_PIECE;
        for (int32_t block = piece * WEIR__ATTENTION_PIECE; block < end; block += BLOCK)
            for (int32_t i = 0, j; i < t->n_queries; i = j) {
                j = end_of_run(t, i, block);
                add_block(t, s, i, j, block);
            }
        for (int r = 0; r < n_rows; r++)
            add_sums(sums + (size_t)r * stride, s->out + r * t->size_v, s->max[r], s->sum[r], t->size_v);
    }
}

#endif
