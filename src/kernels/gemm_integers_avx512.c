/* gemm_integers_avx512.c: weights as 16-bit integers on processors with AVX-512 VNNI.
 * SPDX-License-Identifier: Apache-2.0 */
#define PANELS 2
#define GROUP  8
#define KERNELS                                                                                              \
    ROWS(DEFINE, 1)                                                                                          \
    ROWS(DEFINE, 2) static const kernel kernels[PANELS][GROUP] = {{ROWS(LIST, 1)}, {ROWS(LIST, 2)}};
#define ROWS(X, ...)                                                                                         \
    X(1, __VA_ARGS__)                                                                                        \
    X(2, __VA_ARGS__)                                                                                        \
    X(3, __VA_ARGS__)                                                                                        \
    X(4, __VA_ARGS__)                                                                                        \
    X(5, __VA_ARGS__)                                                                                        \
    X(6, __VA_ARGS__)                                                                                        \
    X(7, __VA_ARGS__)                                                                                        \
    X(8, __VA_ARGS__)
#include "kernels/gemm_integers.h"

const weir__gemm weir__gemm_integers_avx512 = {"avx512-vnni", sizeof(weir__activations_integers), quantize,
                                               multiply_all};
