/* member.c: numbers of structs that a weir_member describes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/member.h"

#include <stdint.h>

bool weir__member_allows(const weir_member *member, double value)
{
    return (value >= member->min && value <= member->max) || (member->or_minus_one && value == -1);
}

double weir__member_number(const weir_member *member, const void *params)
{
    const void *at = (const char *)params + member->offset;
    switch (member->type) {
    case WEIR_MEMBER_BOOL: return *(const bool *)at;
    case WEIR_MEMBER_INT32:
    case WEIR_MEMBER_CHOICE: return *(const int32_t *)at;
    case WEIR_MEMBER_UINT32: return *(const uint32_t *)at;
    case WEIR_MEMBER_INT64: return (double)*(const int64_t *)at;
    case WEIR_MEMBER_UINT64: return (double)*(const uint64_t *)at;
    case WEIR_MEMBER_FLOAT: return (double)*(const float *)at;
    case WEIR_MEMBER_DOUBLE: return *(const double *)at;
    default: return 0;
    }
}

void weir__member_set(const weir_member *member, void *params, double value)
{
    void *at = (char *)params + member->offset;
    switch (member->type) {
    case WEIR_MEMBER_BOOL: *(bool *)at = value != 0; break;
    case WEIR_MEMBER_INT32:
    case WEIR_MEMBER_CHOICE: *(int32_t *)at = (int32_t)value; break;
    case WEIR_MEMBER_UINT32: *(uint32_t *)at = (uint32_t)value; break;
    case WEIR_MEMBER_INT64: /* the largest ones of 64 bits are no doubles */
        *(int64_t *)at = value < (double)INT64_MAX ? (int64_t)value : INT64_MAX;
        break;
    case WEIR_MEMBER_UINT64:
        *(uint64_t *)at = value < (double)UINT64_MAX ? (uint64_t)value : UINT64_MAX;
        break;
    case WEIR_MEMBER_FLOAT: *(float *)at = (float)value; break;
    case WEIR_MEMBER_DOUBLE: *(double *)at = value; break;
    default: break; /* NULL: all zeroes */
    }
}
