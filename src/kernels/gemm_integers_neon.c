/* gemm_integers_neon.c: weights as 16-bit integers on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_integers.h"

const weir__gemm weir__gemm_integers_neon = {"neon", sizeof(weir__activations_integers), quantize,
                                             multiply_all};
