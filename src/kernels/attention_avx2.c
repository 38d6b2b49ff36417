/* attention_avx2.c: attention on processors with AVX2, FMA and F16C (x86-64-v3). Sums of integers are exact
 * and floats are computed as in attention_avx512.c, so the results are the same to the bit.
 * SPDX-License-Identifier: Apache-2.0 */
#define TOGETHER 1
#define COLUMNS  4
#include "kernels/attention_rows.h"
#include "kernels/attention_visible.h"

const weir__attention weir__attention_avx2 = {"avx2",  sizeof(scratch), visible,   packed_bytes, pack,
                                              sums_of, attend,          add_piece, finish};
