/* log_sum_avx2.c: log_sum of log_sum.h, compiled for AVX2 and FMA.
 * SPDX-License-Identifier: Apache-2.0 */
#define WEIR__WIDTH 8
#include "model/log_sum.h"

double weir__log_sum_avx2(const float *x, size_t n, float max)
{
    return log_sum(x, n, max);
}
