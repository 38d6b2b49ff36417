/* attention_avx2.c: attention on processors with AVX2, FMA and F16C (x86-64-v3). The results are those of
 * attention_avx512.c to the bit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/attention_fma.h"
#include "backend/kernels/attention_visible.h"

const weir__attention weir__attention_avx2 = {"avx2", sizeof(scratch), visible, attend, add_piece, finish};
