/* hadamard_neon.c: the transform on ARM.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/neon.h"

INLINE vector swapped(vector x, const int distance)
{
    return distance == 1 ? vrev64q_f32(x) : vextq_f32(x, x, 2);
}

#include "kernels/hadamard_levels.h"

void weir__hadamard_neon(const float *x, float *to, int64_t n)
{
    transform_head(x, to, n);
}
