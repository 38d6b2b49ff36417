/* quantile.c: bounds of a histogram's buckets, and quantiles of the values in them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/histogram.h"

double weir_histogram_bound(size_t i)
{
    if (i >= WEIR__HISTOGRAM_BOUNDED) return INFINITY;
    return ldexp(WEIR__HISTOGRAM_PARTS + (double)(i % WEIR__HISTOGRAM_PARTS),
                 WEIR__HISTOGRAM_FIRST + (int)(i / WEIR__HISTOGRAM_PARTS)) /
           WEIR__HISTOGRAM_PARTS;
}

double weir_histogram_quantile(const weir_histogram *histogram, double q)
{
    if (histogram == NULL || histogram->count == 0 || isnan(q)) return 0;
    double rank = (q < 0 ? 0 : q > 1 ? 1 : q) * (double)histogram->count, below = 0;
    size_t last = 0;
    for (size_t i = 0; i < WEIR_HISTOGRAM_BUCKETS; i++) {
        double in = (double)histogram->buckets[i];
        if (in <= 0) continue;
        last = i;
        if (below + in < rank) {
            below += in;
            continue;
        }
        double low = i > 0 ? weir_histogram_bound(i - 1) : 0;
        if (i == WEIR__HISTOGRAM_BOUNDED) return low; /* all that is known of these */
        return low + (weir_histogram_bound(i) - low) * (rank - below) / in;
    }
    return weir_histogram_bound(
        last < WEIR__HISTOGRAM_BOUNDED ? last : WEIR__HISTOGRAM_BOUNDED - 1); /* counts that do not add up */
}
