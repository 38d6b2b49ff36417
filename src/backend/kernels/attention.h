/* attention.h: softmax(scale × q·k) v over the cells that a query sees.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The cells that a query sees have consecutive places; the first one has the position of its token as its
 * place. Places form blocks of BLOCK cells and pieces of PIECE cells, counted from place 0. A block's scores
 * are weighed together; blocks are added in order within a piece, with the running maximum and sum of online
 * softmax (Milakov and Gimelshein, arXiv 1805.02867); the sums of pieces are added in order. So a query's
 * result depends on its own cells only: not on the queries computed with it, on where cells lie, or on which
 * thread computed which piece. One exception: queries that see a block in part are computed with values of
 * all of it, and a value that is not a finite number spoils them with the weight 0, too.
 *
 * Queries that see the same block share the reading of it, also if they belong to different sequences. */
#ifndef WEIR_BACKEND_KERNELS_ATTENTION_H
#define WEIR_BACKEND_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__ATTENTION_ROWS  64  /* queries × heads that one call computes at most */
#define WEIR__ATTENTION_SIZE  256 /* largest size of a head */
#define WEIR__ATTENTION_BLOCK 64
#define WEIR__ATTENTION_PIECE 512

/* ggml's formats, by the names of its types. */
typedef enum weir__attention_format {
    WEIR__ATTENTION_F32,
    WEIR__ATTENTION_F16,
    WEIR__ATTENTION_BF16,
    WEIR__ATTENTION_Q8_0,
    WEIR__ATTENTION_Q4_0,
} weir__attention_format;

/* Cells at consecutive places. */
typedef struct weir__attention_list {
    const int32_t *cells; /* [n] */
    int32_t first;        /* the place of cells[0] */
    int32_t n;
    int32_t shared; /* below this place the list is equal to the one before it in the task */
} weir__attention_list;

typedef struct weir__attention_query {
    const char *q;        /* float [size_k]: of the first head */
    char *out;            /* float [size_v] */
    const uint16_t *mask; /* half precision, added to the scores, by cell; NULL: zeroes */
    int32_t list;         /* its number in the task; of the query before or the next one */
    int32_t from, to;     /* it sees the places [from, to) of the list */
} weir__attention_query;

/* Queries, heads of keys, and the heads of queries that share each. A row is a query's head: rows are in the
 * order [n_kv][n_queries][n_heads]. Distances are in bytes. */
typedef struct weir__attention_task {
    const weir__attention_list *lists;
    const weir__attention_query *queries;
    int32_t n_kv, n_queries, n_heads; /* n_kv × n_queries × n_heads <= WEIR__ATTENTION_ROWS */
    size_t q_head, out_head;
    const char *k, *v; /* [cells][n_kv][size_k] and [cells][n_kv][size_v] */
    size_t k_cell, v_cell, k_head, v_head;
    weir__attention_format k_format, v_format;
    int32_t size_k, size_v; /* multiples of 16, of 32 in Q8_0 and Q4_0, up to WEIR__ATTENTION_SIZE */
    float scale;
    float softcap;       /* scores are softcap × tanh(score / softcap); 0: as they are */
    const float *slopes; /* [n_kv × n_heads]: factors of masks (ALiBi); NULL: 1 */
    const float *sinks;  /* [n_kv × n_heads]: the score of a cell without a value; NULL: there is none */
} weir__attention_task;

/* Sums of a row, a query's head, over some of its cells: weighted values [size_v], then the largest score and
 * the sum of the weights. */
typedef float weir__attention_sums;

static inline size_t weir__attention_stride(int32_t size_v)
{
    return (size_t)size_v + 16;
}

typedef struct weir__attention {
    const char *name;
    size_t scratch; /* bytes that a call needs, aligned to 64 */

    /* Writes the numbers of the cells whose mask, [n] numbers in half precision, is not minus infinity;
     * returns how many. cells has room for n + 31. *plain: all those masks are zero. */
    int32_t (*visible)(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain);

    /* Sums of all rows over the pieces [first, first + n): sums is [rows][stride]. */
    void (*attend)(const weir__attention_task *task, int32_t first, int32_t n, void *scratch,
                   weir__attention_sums *sums);

    /* Adds a row's sums over the next piece. A total over nothing is the sums of no piece. */
    void (*add)(weir__attention_sums *total, const weir__attention_sums *piece, int32_t size_v);

    /* Writes a row's result from its sums over all pieces. */
    void (*finish)(const weir__attention_task *task, int32_t row, const weir__attention_sums *total);
} weir__attention;

extern const weir__attention weir__attention_avx512, weir__attention_avx2;

#endif
