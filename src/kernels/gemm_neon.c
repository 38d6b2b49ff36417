/* gemm_neon.c: quantized weights on every ARM processor of 64 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_neon.h"

const weir__gemm weir__gemm_neon = {"neon", sizeof(weir__activations), quantize, multiply};
