/* recurrent.h: kernels for layers whose memory is one state for each sequence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_RECURRENT_H
#define WEIR_KERNELS_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Gated delta net ---- */

/* The tokens of one head of one sequence. Strides are in numbers, from a token to the next one.
 *
 * A state has a row of `size` numbers for each of `size` values. Each token changes each row by itself. With
 * decay = e^gate and difference = beta × (value[j] - decay × (row · key)), row j becomes
 * decay × row + difference × key, and the token's result [j] is (row · query) / √size. So several threads
 * may share the rows. */
typedef struct weir__delta_net {
    int64_t size, n_tokens; /* size: one that weir__delta_net_takes */
    const float *query, *key, *value, *gate, *beta;
    size_t query_stride, key_stride, value_stride, gate_stride, beta_stride;
    const float *from; /* [size][size], the state before the first token */
    /* The state after the last token, and `to_stride` further on each those after the tokens before it: n_to
     * of them, at most n_tokens. The first may be the same as `from`. */
    float *to;
    size_t to_stride;
    int64_t n_to;
    float *out;
    size_t out_stride;
} weir__delta_net;

#define WEIR__DELTA_NET_MAX 256

static inline bool weir__delta_net_takes(int64_t size)
{
    return size > 0 && size <= WEIR__DELTA_NET_MAX && size % 16 == 0;
}

/* ---- Short convolutions ---- */

#define WEIR__TAPS_MAX 8

/* Each channel's sum of its last numbers: out[t][c] = Σ x[t + i][c] × weights[c × n_taps + i], i from 0.
 * Strides are in numbers, from a token to the next one. */
typedef struct weir__convolution {
    int64_t n_tokens;
    int32_t n_taps; /* 1 to WEIR__TAPS_MAX */
    const float *x; /* n_tokens + n_taps - 1 rows */
    const float *weights;
    float *out;
    size_t x_stride, out_stride;
} weir__convolution;

/* ---- Both ---- */

/* A result has the same bits for any division of tokens into calls, and on all levels. */
typedef struct weir__recurrent {
    /* Rows, or channels, [first, end): multiples of 16. */
    void (*delta_net)(const weir__delta_net *net, int64_t first, int64_t end);
    void (*convolve)(const weir__convolution *convolution, int64_t first, int64_t end);
} weir__recurrent;

extern const weir__recurrent weir__recurrent_avx512, weir__recurrent_avx2, weir__recurrent_neon;

#endif
