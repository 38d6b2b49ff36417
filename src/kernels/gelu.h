/* gelu.h: the activation function GELU, as its approximation by tanh.
 * SPDX-License-Identifier: Apache-2.0
 *
 * x / 2 × (1 + tanh(√(2 / π) (x + 0.044715 x³))), which is x / (1 + e^-y) with y twice the argument of tanh.
 * ggml looks it up in a table of numbers in half precision. */
#ifndef WEIR_KERNELS_GELU_H
#define WEIR_KERNELS_GELU_H

#include <stdint.h>

/* x and to: [n]; to may be x. NaN stays NaN, and of minus infinity it becomes NaN. */
typedef void weir__gelu(const float *x, float *to, int64_t n);

extern weir__gelu weir__gelu_avx512, weir__gelu_avx2;

#endif
