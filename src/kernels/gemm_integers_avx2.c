/* gemm_integers_avx2.c: weights as 16-bit integers on processors with AVX2, FMA and F16C (x86-64-v3).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_integers.h"

const weir__gemm weir__gemm_integers_avx2 = {"avx2", sizeof(weir__activations_integers), quantize,
                                             multiply_all};
