/* hadamard.h: the Walsh-Hadamard transform of heads.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp multiplies queries, keys, values and results with this orthogonal matrix when cells are
 * quantized: it spreads an outlier over a whole head. The fast transform has log2(n) levels. All kernels add
 * the same pairs in the same order as ggml's, so their results are equal to the bit. */
#ifndef WEIR_KERNELS_HADAMARD_H
#define WEIR_KERNELS_HADAMARD_H

#include <stdbool.h>
#include <stdint.h>

/* to = H x / sqrt(n), both [n]; to may be x. n: one that weir__hadamard_takes. */
typedef void weir__hadamard(const float *x, float *to, int64_t n);

static inline bool weir__hadamard_takes(int64_t n)
{
    return n == 64 || n == 128 || n == 256;
}

extern weir__hadamard weir__hadamard_avx512, weir__hadamard_avx2;

#endif
