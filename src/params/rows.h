/* rows.h: how a row of a table of members is written. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PARAMS_ROWS_H
#define WEIR_PARAMS_ROWS_H

#include "params/members.h"

/* The struct of the rows that follow is OF. A row's type is its member's. */
#define MEMBER(m) .name = #m, .offset = offsetof(OF, m)
#define TYPED(m)                                                                                             \
    MEMBER(m), .type = _Generic(((OF *)0)->m, bool: WEIR_MEMBER_BOOL, int32_t: WEIR_MEMBER_INT32,            \
                                uint32_t: WEIR_MEMBER_UINT32, int64_t: WEIR_MEMBER_INT64,                    \
                                uint64_t: WEIR_MEMBER_UINT64, float: WEIR_MEMBER_FLOAT,                      \
                                double: WEIR_MEMBER_DOUBLE, const char *: WEIR_MEMBER_STRING,                \
                                const char *const *: WEIR_MEMBER_STRINGS,                                    \
                                const weir_logit_bias *: WEIR_MEMBER_BIASES, default: WEIR_MEMBER_OTHER)

/* clang-format off */
#define NUMBER(m, least, most, first, u, h) \
    {TYPED(m), .min = (least), .max = (most), .initial = (first), .unit = (u), .help = (h)}
#define OR_OFF(m, least, most, first, u, h) /* or -1 */ \
    {TYPED(m), .min = (least), .max = (most), .or_minus_one = true, .initial = (first), .unit = (u), .help = (h)}
#define FLAG(m, first, h) \
    {TYPED(m), .max = 1, .initial = (first), .unit = "", .help = (h)}
#define CHOICE(m, least, most, first, names, h) \
    {MEMBER(m), .type = WEIR_MEMBER_CHOICE, .min = (least), .max = (most), .initial = (first), .choices = (names), .unit = "", .help = (h)}
#define TEXT(m, h) \
    {TYPED(m), .unit = "", .help = (h)}
#define LIST(m, n, h) \
    {TYPED(m), .n_offset = offsetof(OF, n), .unit = "", .help = (h)}
#define RESULT(m, u, h) /* a number that the library sets: no range */ \
    {TYPED(m), .unit = (u), .help = (h)}
#define OTHER(m, h) /* also texts with a length */ \
    {MEMBER(m), .type = WEIR_MEMBER_OTHER, .unit = "", .help = (h)}
#define TABLE(name) \
    const weir__members weir__##name##_members = {#name, (name), sizeof(name) / sizeof *(name), sizeof(OF)}
/* clang-format on */

#endif
