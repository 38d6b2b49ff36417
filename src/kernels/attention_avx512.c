/* attention_avx512.c: attention on processors with AVX-512 VNNI.
 * SPDX-License-Identifier: Apache-2.0 */
#define TOGETHER 2
#define COLUMNS  8
#include "kernels/attention_rows.h"
#include "kernels/attention_visible.h"

const weir__attention weir__attention_avx512 = {"avx512", sizeof(scratch), visible,   packed_bytes, pack,
                                                sums_of,  attend,          add_piece, finish};
