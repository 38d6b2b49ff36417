/* range.c: tables of the values that parameters may have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/range.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

weir_status weir__range_check(const weir__range *ranges, size_t n, const void *params, const char *prefix,
                              weir_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const weir__range *range = &ranges[i];
        double value;
        if (range->type == WEIR__RANGE_INT) {
            int32_t number;
            memcpy(&number, (const char *)params + range->offset, sizeof number);
            value = number;
        } else {
            float number;
            memcpy(&number, (const char *)params + range->offset, sizeof number);
            value = (double)number;
        }
        /* limits are compared as the float that a caller can write: 0.99f lies above 0.99 */
        double max = range->type == WEIR__RANGE_INT ? range->max : (double)(float)range->max;
        double min = range->type == WEIR__RANGE_INT ? range->min : (double)(float)range->min;
        if (value >= min && value <= max) continue; /* false for NaN */
        if (range->or_minus_one && value == -1.0) continue;

        char field[64];
        snprintf(field, sizeof field, "%s%s", prefix, range->name);
        return weir__error_set(error, WEIR_INVALID, field, "%s is %.*g; allowed: %.10g to %.10g%s",
                               range->name, range->type == WEIR__RANGE_INT ? 10 : 9, value, range->min,
                               range->max, range->or_minus_one ? ", or -1" : "");
    }
    return WEIR_OK;
}
