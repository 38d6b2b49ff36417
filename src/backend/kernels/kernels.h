/* kernels.h: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_KERNELS_KERNELS_H
#define WEIR_BACKEND_KERNELS_KERNELS_H

#include "backend/kernels/attention.h"
#include "backend/kernels/gemm.h"

/* The i-th that this processor can run, the best first; NULL past the last. */
const weir__gemm *weir__kernels_gemm(int i);
const weir__attention *weir__kernels_attention(int i);

/* The i of the level of that name, "avx2" or "avx512"; of the best one below it, with *runs false, where this
 * processor cannot run it, which can be past the last. -1: no level has that name. */
int weir__kernels_find(const char *name, bool *runs);

#endif
