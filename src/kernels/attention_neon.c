/* attention_neon.c: attention on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#define TOGETHER 1
#define COLUMNS  4
#include "kernels/attention_rows.h"
#include "kernels/attention_visible.h"

const weir__attention weir__attention_neon = {"neon",  sizeof(scratch), visible,   packed_bytes, pack,
                                              sums_of, attend,          add_piece, finish};
