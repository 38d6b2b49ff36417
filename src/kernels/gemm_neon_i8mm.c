/* gemm_neon_i8mm.c: quantized weights on processors with i8mm.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_neon.h"

const weir__gemm weir__gemm_i8mm = {"neon-i8mm", sizeof(weir__activations), quantize, multiply};
