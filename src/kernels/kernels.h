/* kernels.h: the kernels, and which of them this processor runs; attention.h, gemm.h and recurrent.h
 * have the large ones.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_KERNELS_H
#define WEIR_KERNELS_KERNELS_H

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/recurrent.h"

/* ---- GELU ---- */

/* The activation function, as its approximation by tanh:
 * x / 2 × (1 + tanh(√(2 / π) (x + 0.044715 x³))), which is x / (1 + e^-y) with y twice the argument of tanh.
 * ggml looks it up in a table of numbers in half precision.
 *
 * x and to: [n]; to may be x. NaN stays NaN, and of minus infinity it becomes NaN. */
typedef void weir__gelu(const float *x, float *to, int64_t n);

extern weir__gelu weir__gelu_avx512, weir__gelu_avx2, weir__gelu_neon;

/* ---- The Walsh-Hadamard transform of heads ---- */

/* llama.cpp multiplies queries, keys, values and results with this orthogonal matrix when cells are
 * quantized: it spreads an outlier over a whole head. The fast transform has log2(n) levels. All kernels add
 * the same pairs in the same order as ggml's, so their results are equal to the bit.
 *
 * to = H x / sqrt(n), both [n]; to may be x. n: one that weir__hadamard_takes. */
typedef void weir__hadamard(const float *x, float *to, int64_t n);

static inline bool weir__hadamard_takes(int64_t n)
{
    return n == 64 || n == 128 || n == 256;
}

extern weir__hadamard weir__hadamard_avx512, weir__hadamard_avx2, weir__hadamard_neon;

/* ---- Levels ---- */

/* The kernels of the i-th level that this processor can run, the best first: for weights of that format, NULL
 * where ggml's own serve them; for attention; for heads whose cells are quantized; for GELU; for layers with
 * a state. NULL past the last. */
const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i);
const weir__attention *weir__kernels_attention(int i);
weir__hadamard *weir__kernels_hadamard(int i);
weir__gelu *weir__kernels_gelu(int i);
const weir__recurrent *weir__kernels_recurrent(int i);

/* The name of that level, "" past the last. */
const char *weir__kernels_name(int i);

/* The name of the i-th of all levels, NULL past the last. */
const char *weir__kernels_level(int i);

/* The i of the level of that name among those that run; -1: no level has it. Where this processor cannot run
 * it, *runs_here is false and i is that of the next lower level that it can, or past the last. */
int weir__kernels_find(const char *name, bool *runs_here);

#endif
