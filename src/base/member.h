/* member.h: structs whose members are described by rows: defaults, ranges, reading and writing by row;
 * and structs that begin with their own size: how the library reads those of a caller that was compiled
 * against another version of the header.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MEMBER_H
#define WEIR_BASE_MEMBER_H

#include <weir/more.h>
#include <weir/weir.h>

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

/* ---- Structs that begin with their size ---- */

/* Overwrites the head of *full (holding defaults, full_size bytes) with the caller's struct, as far as the
 * caller knows it. given NULL leaves the defaults. INVALID (field: `name`): its size is 0 or larger than this
 * library's. */
weir_status weir__sized_take(void *full, size_t full_size, const void *given, const char *name,
                             weir_error *error);

/* Writes the first `given->size` bytes of *full into the caller's struct and leaves its size. INVALID as
 * above. */
weir_status weir__sized_give(void *given, const void *full, size_t full_size, const char *name,
                             weir_error *error);

#endif
