/* gemm_integers_neon.c: weights as 16-bit integers on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#define PANELS  1
#define GROUP   4
#define KERNELS ROWS(DEFINE, 1) static const kernel kernels[PANELS][GROUP] = {{ROWS(LIST, 1)}};
#define ROWS(X, ...)                                                                                         \
    X(1, __VA_ARGS__)                                                                                        \
    X(2, __VA_ARGS__)                                                                                        \
    X(3, __VA_ARGS__)                                                                                        \
    X(4, __VA_ARGS__)
#include "kernels/gemm_integers.h"

const weir__gemm weir__gemm_integers_neon = {"neon", sizeof(weir__activations_integers), quantize,
                                             multiply_all};
