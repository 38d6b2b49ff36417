/* attention_avx512.c: attention in single precision on processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/attention_fma.h"
#include "backend/kernels/attention_visible.h"

const weir__attention weir__attention_avx512 = {"avx512", sizeof(scratch), visible,
                                                attend,   add_piece,       finish};
