/* histogram.c: which bucket counts a value.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

#include <math.h>

_Static_assert((WEIR__HISTOGRAM_BOUNDED - 1) % WEIR__HISTOGRAM_PARTS == 0,
               "the last bound is a power of two");

/* The first bucket whose bound is not below the value. */
static size_t bucket_of(double value)
{
    int exponent;
    if (value <= weir_histogram_bound(0)) return 0;
    if (value > weir_histogram_bound(WEIR__HISTOGRAM_BOUNDED - 1)) return WEIR__HISTOGRAM_BOUNDED;
    double part = frexp(value, &exponent) * 2 * WEIR__HISTOGRAM_PARTS -
                  WEIR__HISTOGRAM_PARTS; /* 0 <= part < WEIR__HISTOGRAM_PARTS */
    return (size_t)((exponent - 1 - WEIR__HISTOGRAM_FIRST) * WEIR__HISTOGRAM_PARTS) + (size_t)ceil(part);
}

void weir__histogram_add(weir_histogram *histogram, double value, uint64_t n)
{
    if (!(value > 0)) value = 0;
    histogram->count += n;
    histogram->sum += value * (double)n;
    histogram->buckets[bucket_of(value)] += n;
}

void weir__histogram_observe(weir_histogram *histogram, double value)
{
    weir__histogram_add(histogram, value, 1);
}
