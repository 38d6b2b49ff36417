/* trial.h: one operation through ggml's graphs and threads, by weir's kernels or by ggml's. Declares no type
 * of ggml, so that the command line can include it. SPDX-License-Identifier: Apache-2.0
 *
 * A pass computes the operation on several matrices one after the other, each pass on the next ones: a
 * model's layers come by in the same way, so that weights are read from memory where there are enough of
 * them. One operation before a pass is not timed: caches are then as a layer leaves them. */
#ifndef WEIR_BENCH_TRIAL_H
#define WEIR_BENCH_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trial_side {
    TRIAL_WEIR,     /* weir's kernels */
    TRIAL_GGML,     /* ggml's, on weights as they lie in the file */
    TRIAL_REPACKED, /* ggml's, on weights in a layout of its own, for formats and shapes that have one */
    TRIAL_N_SIDES,
} trial_side;

typedef struct trial_shape {
    const char *format; /* of weights, by ggml's name; NULL: attention */
    int32_t k, n;       /* columns and rows of the weights */
    int32_t n_heads, n_heads_kv, head_size, n_cells;
} trial_shape;

/* Threads that compute. NULL: they cannot be started. The other functions need a backend that was started. */
typedef struct trial_threads trial_threads;
trial_threads *trial_threads_create(int32_t n);
void trial_threads_destroy(trial_threads *threads);

/* True if this side computes this shape. */
bool trial_serves(trial_side side, const trial_shape *shape);

/* The weights, or keys and values, of as many matrices as fill `bytes`; at least one. NULL: no memory. */
typedef struct trial_data trial_data;
trial_data *trial_data_create(trial_side side, const trial_shape *shape, size_t bytes);
void trial_data_destroy(trial_data *data);

/* Bytes of weights, or of keys and values, that one operation reads. */
size_t trial_data_bytes(const trial_data *data);

/* The operation on m rows of activations, or m queries; query i sees one cell more than query i - 1, the last
 * all of them. Activations are the same on each side. The data stay the caller's. NULL: no memory. */
typedef struct trial trial;
trial *trial_create(trial_data *data, int32_t m);
void trial_destroy(trial *t);

/* Computes a pass. Seconds for one operation; 0 = it failed. */
double trial_run(trial *t, trial_threads *threads);

/* Multiplications with an addition in one operation. */
double trial_macs(const trial *t);

/* The difference between the results of two sides that have run: root mean square, as a part of b's. */
double trial_difference(const trial *a, const trial *b);

#endif
