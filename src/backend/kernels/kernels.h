/* kernels.h: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_KERNELS_KERNELS_H
#define WEIR_BACKEND_KERNELS_KERNELS_H

#include "backend/kernels/attention.h"
#include "backend/kernels/gemm.h"

/* The i-th that this processor can run, for weights of that format, the best first; NULL past the last. */
const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i);
const weir__attention *weir__kernels_attention(int i);

#endif
