/* range.h: tables of the values that parameters may have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_RANGE_H
#define WEIR_BASE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

typedef enum weir__range_type {
    WEIR__RANGE_INT,   /* int32_t, or an enum */
    WEIR__RANGE_FLOAT, /* NaN and infinities are never allowed */
} weir__range_type;

typedef struct weir__range {
    const char *name;
    size_t offset;
    weir__range_type type;
    double min, max;   /* inclusive */
    bool or_minus_one; /* -1 as well: "off", "all" */
} weir__range;

/* A table's line for a member of a struct. */
#define WEIR__RANGE(type, of, member, min, max)                                                              \
    {                                                                                                        \
#member, offsetof(of, member), type, min, max, false                                                 \
    }
#define WEIR__RANGE_OR_OFF(type, of, member, min, max)                                                       \
    {                                                                                                        \
#member, offsetof(of, member), type, min, max, true                                                  \
    }

/* INVALID for the first value out of its range: "temp is -1; allowed: 0 to 100", and the field is prefix and
 * name. */
weir_status weir__range_check(const weir__range *ranges, size_t n, const void *params, const char *prefix,
                              weir_error *error);

#endif
