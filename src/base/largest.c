/* largest.c: a bound that at least k numbers reach: the k-th largest of the blocks' maximums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/largest.h"

float weir__largest_bound(const float *x, size_t n_blocks, size_t k)
{
    float found[WEIR__LARGEST_MOST]; /* [k], descending */
    if (k == 0) return INFINITY;
    for (size_t i = 0; i < k; i++) found[i] = -INFINITY;
    for (size_t b = 0; b < n_blocks; b++) {
        float max = weir__largest(x + b * WEIR__LARGEST_BLOCK, WEIR__LARGEST_BLOCK);
        if (!(max > found[k - 1])) continue;
        size_t at = k - 1;
        for (; at > 0 && found[at - 1] < max; at--) found[at] = found[at - 1];
        found[at] = max;
    }
    return found[k - 1];
}
