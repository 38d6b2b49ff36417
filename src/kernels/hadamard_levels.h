/* hadamard_levels.h: the transform, for a level's vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/inline.h"
#include "kernels/kernels.h"

/* Lanes that are `distance` apart: the first becomes their sum, the other their difference. */
INLINE vector add_lanes(vector x, const int distance)
{
    static const float signs[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                       {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                       {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                       {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    const float *sign = signs[distance == 1 ? 0 : distance == 2 ? 1 : distance == 4 ? 2 : 3];
    return MM(fmadd_ps)(x, MM(loadu_ps)(sign), swapped(x, distance)); /* one rounding: of the sum */
}

INLINE void transform(const float *x, float *to, const int64_t n)
{
    vector v[256 / WIDTH];
    vector scale = MM(set1_ps)(1.0f / sqrtf((float)n));
    for (int64_t i = 0; i < n / WIDTH; i++) {
        v[i] = MM(mul_ps)(MM(loadu_ps)(x + i * WIDTH), scale);
        v[i] = add_lanes(add_lanes(v[i], 1), 2);
        if (WIDTH >= 8) v[i] = add_lanes(v[i], 4);
        if (WIDTH == 16) v[i] = add_lanes(v[i], 8);
    }
    for (int64_t distance = 1; distance < n / WIDTH; distance *= 2)
        for (int64_t i = 0; i < n / WIDTH; i++) {
            if ((i & distance) != 0) continue;
            vector sum = MM(add_ps)(v[i], v[i + distance]);
            v[i + distance] = MM(sub_ps)(v[i], v[i + distance]);
            v[i] = sum;
        }
    for (int64_t i = 0; i < n / WIDTH; i++) MM(storeu_ps)(to + i * WIDTH, v[i]);
}

static void transform_head(const float *x, float *to, int64_t n)
{
    switch (n) {
    case 64: transform(x, to, 64); break;
    case 128: transform(x, to, 128); break;
    default: transform(x, to, 256); break;
    }
}
