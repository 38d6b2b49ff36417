/* attention.h: softmax(scale × q·k) v over the cells that a query sees.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Places: the cells that a query sees are numbered by consecutive places, in the order of their tokens,
 * starting with the position of the first cell's token. Places form blocks of BLOCK and pieces of PIECE
 * cells, counted from place 0.
 *
 * Arithmetic (ADR 0075): queries, keys and values are rounded to 16-bit integers, each cell's with scales of
 * its own, and their products' sums are exact.
 *
 * Order of the sums: the softmax weights of a block are computed together. Blocks are added in order within a
 * piece, with the running maximum and sum of online softmax (Milakov and Gimelshein, arXiv 1805.02867), and
 * pieces are added in order. So a query's result depends on its own cells only: not on the queries computed
 * with it, on where its cells lie in memory, or on which thread computed which piece.
 *
 * Queries that see the same block read it once, even if they belong to different sequences. */
#ifndef WEIR_KERNELS_ATTENTION_H
#define WEIR_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__ATTENTION_LANES  16  /* of a vector */
#define WEIR__ATTENTION_GROUPS 16  /* of rows that one call computes at most */
#define WEIR__ATTENTION_ROWS   256 /* LANES × GROUPS */
#define WEIR__ATTENTION_SIZE   256 /* largest size of a head */
#define WEIR__ATTENTION_BLOCK  64
#define WEIR__ATTENTION_PIECE  512

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
    int32_t shared; /* below this place its cells are those of the task's previous list */
} weir__attention_list;

typedef struct weir__attention_query {
    const char *q;        /* float [size_k]: of the first head */
    char *out;            /* float [size_v] */
    const uint16_t *mask; /* half precision, added to the scores, by cell; NULL: zeroes */
    int32_t list;         /* index into the task's lists: that of the query before, or one more */
    int32_t from, to;     /* it sees the places [from, to) of the list */
} weir__attention_query;

/* The work of one call: n_queries queries, n_kv KV heads, and the n_heads query heads that share each KV
 * head. A row is one query head of one query; rows are in the order [n_kv][n_queries][n_heads]. If all
 * queries have the same list, the rows of a KV head fill groups of lanes; otherwise each query's begin a new
 * group. Strides (q_head to v_head) are in bytes. */
typedef struct weir__attention_task {
    const weir__attention_list *lists;
    const weir__attention_query *queries;
    int32_t n_kv, n_queries, n_heads; /* at most WEIR__ATTENTION_GROUPS groups */
    size_t q_head, out_head;
    const char *k, *v; /* [cells][n_kv][size_k] and [cells][n_kv][size_v] */
    size_t k_cell, v_cell, k_head, v_head;
    weir__attention_format k_format, v_format;
    int32_t size_k, size_v; /* multiples of 8, of 32 in Q8_0 and Q4_0, up to WEIR__ATTENTION_SIZE */
    float scale;
    float softcap;       /* scores are softcap × tanh(score / softcap); 0: as they are */
    const float *slopes; /* [n_kv × n_heads]: factors of masks (ALiBi); NULL: 1 */
    const float *sinks;  /* [n_kv × n_heads]: attention sinks, scores without a value; NULL: none */
    void *packed;        /* from pack(), read instead of k and v; NULL: none */
} weir__attention_task;

/* Dimensions of a head in whole vectors: behind the last there are zeroes. */
static inline int32_t weir__attention_width(int32_t size)
{
    return (size + WEIR__ATTENTION_LANES - 1) / WEIR__ATTENTION_LANES * WEIR__ATTENTION_LANES;
}

/* Floats that the sums of these queries take at most, divided into any number of tasks: groups are filled up
 * with rows that do not exist. */
static inline size_t weir__attention_most_sums(int64_t n_kv, int64_t n_queries, int64_t n_heads,
                                               int32_t size_v)
{
    return (size_t)(n_kv * n_queries * (n_heads == 1 ? 4 : 2 * n_heads) *
                    (weir__attention_width(size_v) + 2));
}

typedef struct weir__attention {
    const char *name;
    size_t scratch; /* bytes that a call needs, aligned to 64 */

    /* Writes the indices of the cells whose mask is not minus infinity, and returns how many they are. mask
     * is [n] in half precision; cells has room for n + 31. *plain: all their masks are zero. */
    int32_t (*visible)(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain);

    /* Converts the cells of the task's only list, which begins at place 0, for any number of attend() calls
     * with n_kv = 1. packed: aligned to 64, with packed_bytes() for n cells. */
    size_t (*packed_bytes)(int32_t size_k, int32_t size_v, int32_t n);
    void (*pack)(const weir__attention_task *task, void *scratch, void *packed);

    /* Floats in the sums of a task's rows: weighted values, maximum scores and sums of weights, in an order
     * of the kernel's own. */
    size_t (*sums)(const weir__attention_task *task);

    /* Sums over the pieces [first, first + n). */
    void (*attend)(const weir__attention_task *task, int32_t first, int32_t n, void *scratch, float *sums);

    /* Adds the sums over the next piece to the sums over all pieces before it. */
    void (*add)(const weir__attention_task *task, float *total, const float *piece);

    /* Writes the rows' results from their sums over all pieces. */
    void (*finish)(const weir__attention_task *task, const float *total);
} weir__attention;

extern const weir__attention weir__attention_avx512, weir__attention_avx2, weir__attention_neon;

#endif
