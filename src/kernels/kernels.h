/* kernels.h: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_KERNELS_H
#define WEIR_KERNELS_KERNELS_H

#include "kernels/attention.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/hadamard.h"

/* The kernels of the i-th level that this processor can run, the best first: for weights of that format, NULL
 * where ggml's own serve them; for attention; for heads whose cells are quantized; for GELU. NULL past the
 * last. */
const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i);
const weir__attention *weir__kernels_attention(int i);
weir__hadamard *weir__kernels_hadamard(int i);
weir__gelu *weir__kernels_gelu(int i);

/* The name of that level, "" past the last. */
const char *weir__kernels_name(int i);

/* The name of the i-th of all levels, NULL past the last. */
const char *weir__kernels_level(int i);

/* The i of the level of that name among those that run; -1: no level has it. Where this processor cannot run
 * it, *runs_here is false and i is that of the next lower level that it can, or past the last. */
int weir__kernels_find(const char *name, bool *runs_here);

#endif
