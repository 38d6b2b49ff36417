/* minmax.h: the smaller and the larger of two numbers. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MINMAX_H
#define WEIR_BASE_MINMAX_H

#include <stdint.h>

static inline int64_t weir__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t weir__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
