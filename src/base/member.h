/* member.h: reading and writing a number of a struct by its description.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MEMBER_H
#define WEIR_BASE_MEMBER_H

#include <weir/weir.h>

/* Whether the number is in the member's range. */
bool weir__member_allows(const weir_member *member, double value);

/* A number or choice of the struct. 64-bit values beyond 2^53 are rounded. */
double weir__member_number(const weir_member *member, const void *params);

/* Writes a number, flag or choice, which is in its type's range; the rest is left alone. */
void weir__member_set(const weir_member *member, void *params, double value);

#endif
