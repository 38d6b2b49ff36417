/* attention.h: softmax(scale × q·k) v over the cells that a query sees.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sums run over the visible cells in their order, in blocks counted from the first visible one. So a query's
 * result depends on its own cells only: not on the queries computed with it, on where the cells lie, on those
 * of other sequences between them, or on threads. One exception: queries computed together share blocks of
 * cells, and values that are no finite numbers spoil all of them, with the weight 0 too. Scores and sums are
 * in single precision. The running maximum and sum are those of online softmax (Milakov and Gimelshein, arXiv
 * 1805.02867). */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_H
#define WEIR_BACKEND_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__ATTENTION_ROWS 12  /* queries × heads that one call computes at most */
#define WEIR__ATTENTION_SIZE 256 /* largest size of a head */

typedef enum weir__attention_format {
    WEIR__ATTENTION_F16,
    WEIR__ATTENTION_Q8_0, /* 32 dimensions: a scale in half precision, then their bytes */
} weir__attention_format;

/* Queries of one sequence and the heads that share a head of keys. Distances are in bytes. */
typedef struct weir__attention_task {
    const char *q; /* float [size_k]: of the first query's first head */
    size_t q_query, q_head;
    char *out; /* float [size_v] */
    size_t out_query, out_head;
    const char *k, *v; /* [cells][size_k] and [cells][size_v]: of this head */
    size_t k_cell, v_cell;
    weir__attention_format k_format, v_format;
    int32_t size_k, size_v; /* multiples of 16, of 32 in Q8_0, up to WEIR__ATTENTION_SIZE */
    int32_t n_heads;
    float scale;
    float softcap;        /* scores are softcap × tanh(score / softcap); 0: as they are */
    const float *slopes;  /* [n_heads]: what masks are multiplied by (ALiBi); NULL: 1 */
    const float *sinks;   /* [n_heads]: the score of a cell without a value; NULL: there is none */
    const int32_t *cells; /* the cells that the query sees that sees most, in their order */
    const uint16_t *masks[WEIR__ATTENTION_ROWS]; /* added to a query's scores, by cell; NULL: zeroes */
} weir__attention_task;

typedef struct weir__attention {
    const char *name;

    /* Writes the numbers of the cells whose mask, [n] numbers in half precision, is not minus infinity;
     * returns how many. cells has room for n + 31. *plain: all those masks are zero. */
    int32_t (*visible)(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain);

    /* n queries of n_heads heads, together at most WEIR__ATTENTION_ROWS; query i sees the first n_cells[i] of
     * task->cells. */
    void (*attend)(const weir__attention_task *task, int32_t n, const int32_t *n_cells);
} weir__attention;

extern const weir__attention weir__attention_avx512, weir__attention_avx2;

#endif
