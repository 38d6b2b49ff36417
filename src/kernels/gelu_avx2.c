/* gelu_avx2.c: GELU on processors with AVX2, FMA and F16C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gelu_vector.h"

void weir__gelu_avx2(const float *x, float *to, int64_t n)
{
    gelu_each(x, to, n);
}
