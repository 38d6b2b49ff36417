/* attention_rows.h: the attention kernel, written once for all instruction sets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block's cells are read once for all rows that see it. The file of an instruction set, such as
 * attention_avx2.c, defines CELLS (the cells that are scored together), includes this header, and then
 * defines score(). */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H
#define WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H

#include "backend/kernels/attention_vector.h"

#define ROWS  WEIR__ATTENTION_ROWS
#define SIZE  WEIR__ATTENTION_SIZE
#define BLOCK WEIR__ATTENTION_BLOCK

/* The memory of one call. q, out and values are packed: the stride of a row is the head's size, not SIZE. */
typedef struct scratch {
    _Alignas(64) float q[ROWS * SIZE]; /* scaled */
    _Alignas(64) float keys[CELLS][SIZE];
    _Alignas(64) float values[BLOCK * SIZE];
    _Alignas(64) float scores[ROWS][BLOCK]; /* then weights */
    _Alignas(64) float out[ROWS * SIZE];    /* a piece's weighted values */
    float max[ROWS], sum[ROWS];
} scratch;

/* ---- What each instruction set defines ---- */

/* Computes scores [at, at + CELLS) of rows [first, end) from the CELLS keys in s->keys. Each score is sixteen
 * sums, each of every sixteenth product, which are then added in pairs. */
INLINE void score(scratch *s, int first, int end, int32_t size, int at);

/* The rows, and groups of 16 dimensions of each row, whose sums of values fit into the registers. */
#ifdef __AVX512F__
#define MOST_ROWS    6
#define MOST_VECTORS 4
#else
#define MOST_ROWS    3
#define MOST_VECTORS 2
#endif

/* ---- Values ---- */

/* Adds dimensions [d, d + 16 × n) of the weighted values [at, end) of a block to rows [r, r + n_rows). cells:
 * the values, in half precision; NULL: they are in s->values. */
INLINE void add_values(const int n_rows, const int n, const char *const *cells, scratch *s, int r,
                       int32_t size, int32_t d, int32_t at, int32_t end)
{
    sixteen sums[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) sums[m][v] = load(s->out + (r + m) * size + d + 16 * v);
    for (int32_t c = at; c < end; c++) {
        sixteen values[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < n; v++)
            values[v] = cells != NULL ? dimensions(WEIR__ATTENTION_F16, cells[c], d + 16 * v)
                                      : load(s->values + c * size + d + 16 * v);
#pragma GCC unroll 8
        for (int m = 0; m < n_rows; m++) {
            sixteen weight = all_of(s->scores[r + m][c]);
#pragma GCC unroll 4
            for (int v = 0; v < n; v++) sums[m][v] = multiply_add(weight, values[v], sums[m][v]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < n_rows; m++)
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) store(s->out + (r + m) * size + d + 16 * v, sums[m][v]);
}

INLINE void add_some_values(const int n_rows, const char *const *cells, scratch *s, int r, int32_t size,
                            int32_t at, int32_t end)
{
    int32_t d = 0;
    for (; d + 16 * MOST_VECTORS <= size; d += 16 * MOST_VECTORS)
        add_values(n_rows, MOST_VECTORS, cells, s, r, size, d, at, end);
    for (; d < size; d += 16) add_values(n_rows, 1, cells, s, r, size, d, at, end);
}

INLINE void add_all_values(const char *const *cells, scratch *s, int first, int last, int32_t size,
                           int32_t at, int32_t end)
{
    int r = first;
    for (; r + MOST_ROWS <= last; r += MOST_ROWS) add_some_values(MOST_ROWS, cells, s, r, size, at, end);
    switch (last - r) {
    case 1: add_some_values(1, cells, s, r, size, at, end); break;
    case 2: add_some_values(2, cells, s, r, size, at, end); break;
#if MOST_ROWS > 3
    case 3: add_some_values(3, cells, s, r, size, at, end); break;
    case 4: add_some_values(4, cells, s, r, size, at, end); break;
    case 5: add_some_values(5, cells, s, r, size, at, end); break;
#endif
    default: break;
    }
}

/* ---- Rows of a task ---- */

static const weir__attention_query *query_of(const weir__attention_task *t, int r)
{
    return &t->queries[r / t->n_heads % t->n_queries];
}

/* The index of a row's query head within the task. */
static int head_of(const weir__attention_task *t, int r)
{
    return r / t->n_heads / t->n_queries * t->n_heads + r % t->n_heads;
}

/* ---- Weights ---- */

/* Rescales a row's sums to a new maximum score. */
static void raise_max(scratch *s, int r, float highest, int32_t size_v)
{
    sixteen factor = exponential(all_of(s->max[r] - highest));
    s->max[r] = highest;
    s->sum[r] *= first_of(factor);
    for (int32_t d = 0; d < size_v; d += 16) {
        float *out = s->out + r * size_v + d;
        store(out, multiply(load(out), factor));
    }
}

/* Turns a row's scores into softmax weights. The row sees [from, to) of the block. */
INLINE void weigh_row(scratch *s, int r, int32_t from, int32_t to, int32_t size_v)
{
    float *scores = s->scores[r];
    for (int32_t c = 0; c < from; c++) scores[c] = -INFINITY;
    for (int32_t c = to; c < BLOCK; c++) scores[c] = -INFINITY;
    sixteen some[BLOCK / 16], max, sum;
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        some[i] = load(scores + 16 * i);
        max = i == 0 ? some[i] : larger(max, some[i]);
    }
    float highest = largest_of(max);
    if (highest > s->max[r]) raise_max(s, r, highest, size_v);
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        some[i] = weight_of(some[i], s->max[r]);
        sum = i == 0 ? some[i] : add(sum, some[i]);
        store(scores + 16 * i, some[i]);
    }
    s->sum[r] += sum_of(sum);
}

static void weigh(const weir__attention_task *t, scratch *s, int r, int32_t block)
{
    const weir__attention_query *q = query_of(t, r);
    const weir__attention_list *list = &t->lists[q->list];
    int32_t from = q->from > block ? q->from - block : 0;
    int32_t to = q->to - block < BLOCK ? q->to - block : BLOCK;
    float *scores = s->scores[r];
    if (from >= to) {
        memset(scores, 0, sizeof s->scores[r]);
        return;
    }
    if (t->softcap != 0.0f)
        for (int c = 0; c < BLOCK; c += 16) store(scores + c, capped(load(scores + c), t->softcap));
    if (q->mask != NULL) {
        float slope = t->slopes != NULL ? t->slopes[head_of(t, r)] : 1.0f;
        for (int32_t c = from; c < to; c++)
            scores[c] += slope * _cvtsh_ss(q->mask[list->cells[block + c - list->first]]);
    }
    weigh_row(s, r, from, to, t->size_v);
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

/* Converts n cells to floats. */
INLINE void expand_as(const weir__attention_format format, float *to, int32_t stride,
                      const char *const *cells, int32_t n, int32_t size)
{
    for (int32_t c = 0; c < n; c++, to += stride)
        for (int32_t d = 0; d < size; d += 16) store(to + d, dimensions(format, cells[c], d));
}

INLINE void expand(weir__attention_format format, float *to, int32_t stride, const char *const *cells,
                   int32_t n, int32_t size)
{
    switch (format) {
    case WEIR__ATTENTION_F32: expand_as(WEIR__ATTENTION_F32, to, stride, cells, n, size); break;
    case WEIR__ATTENTION_F16: expand_as(WEIR__ATTENTION_F16, to, stride, cells, n, size); break;
    case WEIR__ATTENTION_BF16: expand_as(WEIR__ATTENTION_BF16, to, stride, cells, n, size); break;
    case WEIR__ATTENTION_Q8_0: expand_as(WEIR__ATTENTION_Q8_0, to, stride, cells, n, size); break;
    case WEIR__ATTENTION_Q4_0: expand_as(WEIR__ATTENTION_Q4_0, to, stride, cells, n, size); break;
    }
}

/* Adds the places [from, to) of a block to rows [first, last), which share a KV head. block: the block's
 * first place; list: the n_more cells from there on; k, v: the KV head's keys and values. */
static void add_cells(const weir__attention_task *t, scratch *s, int first, int last, const int32_t *list,
                      int32_t n_more, int32_t block, int32_t from, int32_t to, const char *k, const char *v)
{
    const char *keys[BLOCK], *values[BLOCK];
    int32_t k_bytes = bytes_of(t->k_format, t->size_k), v_bytes = bytes_of(t->v_format, t->size_v);
    for (int32_t c = from / CELLS * CELLS; c < (to + CELLS - 1) / CELLS * CELLS; c++) {
        /* CELLS cells are scored at once: surplus places repeat the first or last cell and get no weight. */
        size_t cell = (size_t)list[c < from ? from : c < to ? c : to - 1];
        keys[c] = k + cell * t->k_cell;
        values[c] = v + cell * t->v_cell;
    }
    for (int32_t at = from / CELLS * CELLS; at < to; at += CELLS) {
        for (int32_t c = at + CELLS; c < at + 2 * CELLS && c < n_more; c++)
            prefetch(k + (size_t)list[c] * t->k_cell, k_bytes);
        for (int32_t c = at; c < at + CELLS && c < to; c++) prefetch(values[c], v_bytes);
        expand(t->k_format, s->keys[0], SIZE, keys + at, CELLS, t->size_k);
        score(s, first, last, t->size_k, at);
    }
    for (int r = first; r < last; r++) weigh(t, s, r, block);
    if (t->v_format == WEIR__ATTENTION_F16 && last - first <= MOST_ROWS) {
        add_all_values(values, s, first, last, t->size_v, from, to);
    } else {
        expand(t->v_format, s->values + from * t->size_v, t->size_v, values + from, to - from, t->size_v);
        add_all_values(NULL, s, first, last, t->size_v, from, to);
    }
}

/* Adds the block that begins at place `block` to queries [i, j), which have the same cells there but may see
 * different parts of them. KV heads take turns, because the heads of a cell are adjacent in memory. */
static void add_block(const weir__attention_task *t, scratch *s, int32_t i, int32_t j, int32_t block)
{
    const weir__attention_list *list = &t->lists[t->queries[i].list];
    int32_t from = BLOCK, to = 0;
    for (int32_t n = i; n < j; n++) {
        if (t->queries[n].from - block < from) from = t->queries[n].from - block;
        if (t->queries[n].to - block > to) to = t->queries[n].to - block;
    }
    if (from < 0) from = 0;
    if (to > BLOCK) to = BLOCK;
    if (from >= to) return;
    for (int32_t kv = 0; kv < t->n_kv; kv++)
        add_cells(t, s, (kv * t->n_queries + i) * t->n_heads, (kv * t->n_queries + j) * t->n_heads,
                  list->cells + (block - list->first), list->first + list->n - block, block, from, to,
                  t->k + (size_t)kv * t->k_head, t->v + (size_t)kv * t->v_head);
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
    total[size_v + 1] = old_sum * (first_of(old_factor)) + sum * (first_of(factor));
}

static void add_piece(weir__attention_sums *total, const weir__attention_sums *piece, int32_t size_v)
{
    add_sums(total, piece, max_of(piece, size_v), weight_sum_of(piece, size_v), size_v);
}

static void finish(const weir__attention_task *t, int32_t row, const weir__attention_sums *total)
{
    float max = max_of(total, t->size_v), sum = weight_sum_of(total, t->size_v), factor = 1.0f;
    bool empty = is_empty(max, sum);
    if (t->sinks != NULL) {
        float sink = t->sinks[head_of(t, row)], most = max > sink ? max : sink;
        factor = expf(max - most);
        sum = sum * factor + expf(sink - most);
    }
    factor = sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
    float *out = (float *)(query_of(t, row)->out + (size_t)head_of(t, row) * t->out_head);
    for (int32_t d = 0; d < t->size_v; d += 16)
        store(out + d, empty ? all_of(0.0f) : multiply(load(total + d), all_of(factor)));
}

/* ---- A call ---- */

static void attend(const weir__attention_task *t, int32_t first, int32_t n, void *memory,
                   weir__attention_sums *sums)
{
    scratch *s = memory;
    int n_rows = t->n_kv * t->n_queries * t->n_heads;
    size_t stride = weir__attention_stride(t->size_v);
    float scale = t->softcap != 0.0f ? t->scale / t->softcap : t->scale;
    for (int r = 0; r < n_rows; r++) {
        const char *q = query_of(t, r)->q + (size_t)head_of(t, r) * t->q_head;
        for (int32_t d = 0; d < t->size_k; d += 16)
            store(s->q + r * t->size_k + d, multiply(load((const float *)q + d), all_of(scale)));
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
