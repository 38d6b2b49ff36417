/* attention_rows.h: what attention does at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A level defines CELLS, includes this, and defines what is declared first. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H
#define WEIR_BACKEND_KERNELS_ATTENTION_ROWS_H

#include "backend/kernels/attention.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "backend/kernels/inline.h"

#define ROWS WEIR__ATTENTION_ROWS

/* Cells whose scores are weighed together. */
#define BLOCK 64

/* Rows whose values are summed at the same time. */
#define SUM_ROWS 4

/* What a call keeps for its rows. */
typedef struct rows {
    float q[ROWS][WEIR__ATTENTION_SIZE]; /* scaled */
    float out[ROWS][WEIR__ATTENTION_SIZE];
    float scores[ROWS][BLOCK];
    float keys[CELLS][WEIR__ATTENTION_SIZE];
    float values[BLOCK * WEIR__ATTENTION_SIZE]; /* of Q8_0 */
    float max[ROWS], sum[ROWS];
} rows;

/* ---- What a level defines ---- */

/* to[n] = from[n] × factor, n a multiple of 16. */
INLINE void scale_row(float *to, const float *from, int32_t n, float factor);

/* The dimensions of a cell as floats; to is aligned. */
INLINE void read_cell(weir__attention_format format, const char *cell, int32_t size, float *to);

/* Scores of CELLS cells, which become scores [at, at + CELLS) of each row. */
INLINE void score(weir__attention_format format, rows *s, int n_rows, int32_t size, const char *const *cells,
                  int32_t at);

/* Scores become softcap × tanh(score). */
static void cap(rows *s, int r, int32_t n, float softcap);

/* Makes weights of a row's scores, of which the first n are seen, and rescales what was summed before. */
INLINE void weigh(rows *s, int r, int32_t n, int32_t size_v);

/* Adds the weighted values of n cells to rows [at, at + n_rows), n_rows <= SUM_ROWS. halves: values are in
 * half precision, else floats. */
INLINE void add_some_values(bool halves, int n_rows, rows *s, int at, const char *const *cells, int32_t n,
                            int32_t size);

/* ---- Parts ---- */

/* Keys and values of a cell are far from those of the next one, so that the processor does not foresee
 * them. */
static void fetch(const char *const *cells, int32_t n, int32_t bytes)
{
    for (int32_t c = 0; c < n; c++)
        for (int32_t at = 0; at < bytes; at += 64) _mm_prefetch(cells[c] + at, _MM_HINT_T0);
}

static int32_t bytes_of(weir__attention_format format, int32_t size)
{
    return format == WEIR__ATTENTION_F16 ? 2 * size : size / 32 * 34;
}

/* Adds the masks of the first n cells, times slope. */
static void add_mask(rows *s, int r, const uint16_t *mask, const int32_t *cells, int32_t n, float slope)
{
    for (int32_t c = 0; c < n; c++) s->scores[r][c] += slope * _cvtsh_ss(mask[cells[c]]);
}

INLINE void add_all_values(const bool halves, int n_rows, rows *s, const char *const *cells, int32_t n,
                           int32_t size)
{
    int at = 0;
    for (; at + SUM_ROWS <= n_rows; at += SUM_ROWS) add_some_values(halves, SUM_ROWS, s, at, cells, n, size);
    switch (n_rows - at) {
    case 1: add_some_values(halves, 1, s, at, cells, n, size); break;
    case 2: add_some_values(halves, 2, s, at, cells, n, size); break;
    case 3: add_some_values(halves, 3, s, at, cells, n, size); break;
    default: break;
    }
}

/* Makes floats of the values of n cells in Q8_0. */
static void expand(rows *s, const char **cells, int32_t n, int32_t size)
{
    for (int32_t c = 0; c < n; c++) {
        float *to = s->values + c * size;
        read_cell(WEIR__ATTENTION_Q8_0, cells[c], size, to);
        cells[c] = (const char *)to;
    }
}

/* What is left to multiply a row's sum of values by. */
static float last_factor(const rows *s, int32_t r, const float *sink)
{
    float sum = s->sum[r], factor = 1.0f;
    if (sink != NULL) {
        float max = s->max[r] > *sink ? s->max[r] : *sink;
        factor = expf(s->max[r] - max);
        sum = sum * factor + expf(*sink - max);
    }
    return sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
}

/* ---- A call ---- */

static void attend(const weir__attention_task *t, int32_t n, const int32_t *n_cells)
{
    _Alignas(64) rows s;
    int32_t most = 0, n_rows = n * t->n_heads;
    int32_t k_bytes = bytes_of(t->k_format, t->size_k), v_bytes = bytes_of(t->v_format, t->size_v);
    float scale = t->softcap != 0.0f ? t->scale / t->softcap : t->scale;
    for (int32_t i = 0; i < n; i++) most = n_cells[i] > most ? n_cells[i] : most;
    for (int r = 0; r < n_rows; r++) {
        const char *q = t->q + (size_t)(r / t->n_heads) * t->q_query + (size_t)(r % t->n_heads) * t->q_head;
        scale_row(s.q[r], (const float *)q, t->size_k, scale);
        memset(s.out[r], 0, (size_t)t->size_v * sizeof(float));
        s.max[r] = -INFINITY;
        s.sum[r] = 0.0f;
    }
    for (int32_t begin = 0; begin < most; begin += BLOCK) {
        const char *keys[BLOCK], *values[BLOCK];
        int32_t count = most - begin < BLOCK ? most - begin : BLOCK;
        for (int32_t c = 0; c < BLOCK; c++) { /* past the last: that again, which is not seen */
            size_t cell = (size_t)t->cells[begin + (c < count ? c : count - 1)];
            keys[c] = t->k + cell * t->k_cell;
            values[c] = t->v + cell * t->v_cell;
        }
        for (int32_t c = 0; c < count; c += CELLS) {
            if (c + CELLS < count) fetch(keys + c + CELLS, CELLS, k_bytes);
            fetch(values + c, CELLS, v_bytes);
            if (t->k_format == WEIR__ATTENTION_F16)
                score(WEIR__ATTENTION_F16, &s, n_rows, t->size_k, keys + c, c);
            else
                score(WEIR__ATTENTION_Q8_0, &s, n_rows, t->size_k, keys + c, c);
        }
        for (int r = 0; r < n_rows; r++) {
            int32_t seen = n_cells[r / t->n_heads] - begin;
            const uint16_t *mask = t->masks[r / t->n_heads];
            if (seen > BLOCK) seen = BLOCK;
            float slope = mask != NULL && t->slopes != NULL ? t->slopes[r % t->n_heads] : 1.0f;
            if (seen > 0 && t->softcap != 0.0f) cap(&s, r, seen, t->softcap);
            if (seen > 0 && mask != NULL) add_mask(&s, r, mask, t->cells + begin, seen, slope);
            if (seen > 0)
                weigh(&s, r, seen, t->size_v);
            else
                memset(s.scores[r], 0, sizeof s.scores[r]);
        }
        if (t->v_format == WEIR__ATTENTION_F16) {
            add_all_values(true, n_rows, &s, values, count, t->size_v);
        } else {
            expand(&s, values, count, t->size_v);
            add_all_values(false, n_rows, &s, values, count, t->size_v);
        }
    }
    for (int32_t r = 0; r < n_rows; r++) {
        char *out = t->out + (size_t)(r / t->n_heads) * t->out_query + (size_t)(r % t->n_heads) * t->out_head;
        float factor = last_factor(&s, r, t->sinks != NULL ? &t->sinks[r % t->n_heads] : NULL);
        scale_row((float *)out, s.out[r], t->size_v, factor);
    }
}

#endif
