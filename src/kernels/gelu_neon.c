/* gelu_neon.c: GELU on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gelu_vector.h"

void weir__gelu_neon(const float *x, float *to, int64_t n)
{
    gelu_each(x, to, n);
}
