/* gemm_fma_neon.c: BF16 and F16 weights on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/neon.h"

/* Twenty-four of thirty-two registers hold sums: of six rows of one panel. */
#define GROUP            6
#define MOST_ROWS_OF_TWO 1
#define ROWS             SIX_ROWS

#include "kernels/gemm_fma.h"

INLINE void read_two(const weir__panel_format format, const unsigned char *at, vector (*w)[VECTORS])
{
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        if (format == WEIR__PANEL_BF16) {
            integers both = vreinterpretq_s32_u8(vld1q_u8(at + 16 * v));
            w[0][v] = FLOATS(vshlq_n_s32(both, 16));
            w[1][v] = FLOATS(vandq_s32(both, vdupq_n_s32(-65536)));
        } else {
            w[0][v] = four_halves(at + 8 * v);
            w[1][v] = four_halves(at + 32 + 8 * v);
        }
    }
}

const weir__gemm weir__gemm_fma_bf16_neon = {"neon", sizeof(weir__activations_float), quantize_bf16,
                                             multiply};
const weir__gemm weir__gemm_fma_f16_neon = {"neon", sizeof(weir__activations_float), quantize_f16, multiply};
