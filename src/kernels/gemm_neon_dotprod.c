/* gemm_neon_dotprod.c: quantized weights on processors with dotprod.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_neon.h"

const weir__gemm weir__gemm_dotprod = {"neon-dotprod", sizeof(weir__activations), quantize, multiply};
