/* histogram.c: buckets whose bounds grow by a factor, and quantiles of what is in them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

#include <math.h>

/* Bounds are 2^e × 4/4, 5/4, 6/4, 7/4 from 2^-20, a microsecond, to 2^20, twelve days or a million tokens:
 * found without a logarithm, and small whole numbers are bounds themselves. */
#define PARTS 4
#define FIRST (-20)

#define N_BOUNDED (WEIR_HISTOGRAM_BUCKETS - 1)

_Static_assert((N_BOUNDED - 1) % PARTS == 0, "the last bound is a power of two");

double weir_histogram_bound(size_t i)
{
    if (i >= N_BOUNDED) return INFINITY;
    return ldexp(PARTS + (double)(i % PARTS), FIRST + (int)(i / PARTS)) / PARTS;
}

/* The first bucket whose bound is not below the value. */
static size_t bucket_of(double value)
{
    int exponent;
    if (value <= weir_histogram_bound(0)) return 0;
    if (value > weir_histogram_bound(N_BOUNDED - 1)) return N_BOUNDED;
    double part = frexp(value, &exponent) * 2 * PARTS - PARTS; /* 0 <= part < PARTS */
    return (size_t)((exponent - 1 - FIRST) * PARTS) + (size_t)ceil(part);
}

void weir__histogram_observe(weir_histogram *histogram, double value)
{
    if (!(value > 0)) value = 0;
    histogram->count++;
    histogram->sum += value;
    histogram->buckets[bucket_of(value)]++;
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
        if (i == N_BOUNDED) return low; /* all that is known of these */
        return low + (weir_histogram_bound(i) - low) * (rank - below) / in;
    }
    return weir_histogram_bound(last < N_BOUNDED ? last : N_BOUNDED - 1); /* counts that do not add up */
}
