/* histogram.h: counting values into weir_histogram's buckets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HISTOGRAM_H
#define WEIR_BASE_HISTOGRAM_H

#include <weir/more.h>

/* Bounds are 2^e × 4/4, 5/4, 6/4, 7/4 from 2^-20, a microsecond, to 2^20, twelve days or a million tokens:
 * found without a logarithm, and small whole numbers are bounds themselves. */
#define WEIR__HISTOGRAM_PARTS 4
#define WEIR__HISTOGRAM_FIRST (-20)

#define WEIR__HISTOGRAM_BOUNDED (WEIR_HISTOGRAM_BUCKETS - 1)

/* Numbers below 0 and NaN count as 0. One thread at a time. add: n values that are the same. */
void weir__histogram_observe(weir_histogram *histogram, double value);
void weir__histogram_add(weir_histogram *histogram, double value, uint64_t n);

#endif
