/* member.h: structs whose members are described by rows: defaults, ranges, reading and writing by row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MEMBER_H
#define WEIR_BASE_MEMBER_H

#include <weir/more.h>

typedef struct weir__members {
    const char *of;
    const weir_member *member; /* [n], in the struct's order */
    size_t n;
    size_t size; /* of the struct */
} weir__members;

/* A public _init(params, size): sets the defaults of the members that the caller's struct has, by its size.
 * params NULL is ignored. */
void weir__members_init(const weir__members *members, void *params, size_t size);

/* INVALID for the first number out of its range, "temp is -1; allowed: 0 to 100", with prefix and name as the
 * field. */
weir_status weir__members_check(const weir__members *members, const void *params, const char *prefix,
                                weir_error *error);
weir_status weir__member_check(const weir_member *member, const void *params, const char *prefix,
                               weir_error *error);

/* Bytes of a member of this type; those of the pointer for texts and lists. */
size_t weir__member_size(weir_member_type type);

/* True if its values are numbers, flags or choices. */
bool weir__member_is_number(weir_member_type type);

/* True if the number is in the member's range. */
bool weir__member_allows(const weir_member *member, double value);

/* A number or choice of the struct. 64-bit values beyond 2^53 are rounded. */
double weir__member_number(const weir_member *member, const void *params);

/* Writes a number, flag or choice, which is in its type's range; the rest is left alone. */
void weir__member_set(const weir_member *member, void *params, double value);

#endif
