/* histogram.h: counting values into weir_histogram's buckets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HISTOGRAM_H
#define WEIR_BASE_HISTOGRAM_H

#include <weir/weir.h>

/* What is below 0, or no number, counts as 0. One thread at a time. */
void weir__histogram_observe(weir_histogram *histogram, double value);

#endif
