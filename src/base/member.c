/* member.c: structs whose members are described by rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/member.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

size_t weir__member_size(weir_member_type type)
{
    switch (type) {
    case WEIR_MEMBER_BOOL: return sizeof(bool);
    case WEIR_MEMBER_INT32:
    case WEIR_MEMBER_UINT32:
    case WEIR_MEMBER_CHOICE: return sizeof(int32_t);
    case WEIR_MEMBER_INT64:
    case WEIR_MEMBER_UINT64: return sizeof(int64_t);
    case WEIR_MEMBER_FLOAT: return sizeof(float);
    case WEIR_MEMBER_DOUBLE: return sizeof(double);
    default: return sizeof(void *);
    }
}

bool weir__member_is_number(weir_member_type type)
{
    return type <= WEIR_MEMBER_CHOICE;
}

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

void weir__members_init(const weir__members *members, void *params, size_t size)
{
    size_t known = size < members->size ? size : members->size;
    if (params == NULL || size < sizeof size) return;
    memset(params, 0, size);
    memcpy(params, &known, sizeof known);
    for (size_t i = 0; i < members->n; i++) {
        const weir_member *member = &members->member[i];
        if (member->offset + weir__member_size(member->type) <= known)
            weir__member_set(member, params, member->initial);
    }
}

/* ---- Ranges ---- */

/* "0 (auto), 1 (required), 2 (none)" */
static void print_choices(char *text, size_t capacity, const weir_member *member)
{
    size_t n = 0;
    for (int value = (int)member->min; value <= (int)member->max && n < capacity; value++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%d (%s)", n > 0 ? ", " : "", value,
                              member->choices[value - (int)member->min]);
}

/* The fewest significant digits that identify the value among those of its type. */
static int count_digits(const weir_member *member, double value)
{
    bool small = member->type == WEIR_MEMBER_FLOAT;
    char text[32];
    int digits = small ? 6 : 15;
    for (; digits < (small ? 9 : 17); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (small ? (float)back == (float)value : back == value) break;
    }
    return digits;
}

static weir_status refuse_number(const weir_member *member, double value, const char *prefix,
                                 weir_error *error)
{
    char field[96], choices[160];
    snprintf(field, sizeof field, "%s%s", prefix, member->name);
    if (member->type == WEIR_MEMBER_CHOICE) {
        print_choices(choices, sizeof choices, member);
        return weir__error_numbers(error, WEIR_INVALID, field, value, member->min, member->max,
                                   "`%s` is %d; allowed: %s", member->name, (int)value, choices);
    }
    double max = member->max < (double)INT64_MAX ? member->max : INFINITY;
    weir__error_range(error, WEIR_INVALID, field, value, member->min, max, "`%s` is %.*g", member->name,
                      count_digits(member, value), value);
    size_t n = error != NULL ? strlen(error->message) : 0;
    if (n > 0 && member->or_minus_one) snprintf(error->message + n, sizeof error->message - n, ", or -1");
    return WEIR_INVALID;
}

weir_status weir__member_check(const weir_member *member, const void *params, const char *prefix,
                               weir_error *error)
{
    bool checked = weir__member_is_number(member->type) && member->type != WEIR_MEMBER_BOOL;
    if (!checked) return WEIR_OK;
    /* limits are compared as the float that a caller can write: 0.99f lies above 0.99 */
    bool is_float = member->type == WEIR_MEMBER_FLOAT;
    double min = is_float ? (double)(float)member->min : member->min;
    double max = is_float ? (double)(float)member->max : member->max;
    double value = weir__member_number(member, params);
    if (value >= min && value <= max) return WEIR_OK; /* false for NaN */
    if (member->or_minus_one && value == -1.0) return WEIR_OK;
    return refuse_number(member, value, prefix, error);
}

weir_status weir__members_check(const weir__members *members, const void *params, const char *prefix,
                                weir_error *error)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < members->n && status == WEIR_OK; i++)
        status = weir__member_check(&members->member[i], params, prefix, error);
    return status;
}

/* ---- Structs that begin with their size ---- */

static weir_status given_size(const void *given, size_t full_size, const char *name, size_t *size,
                              weir_error *error)
{
    memcpy(size, given, sizeof *size);
    if (*size < sizeof *size || *size > full_size)
        return weir__invalid(
            error, WEIR_ERROR_CONFLICT, name,
            "`%s.size` is %zu, this library knows %zu to %zu bytes: take the struct from its _default() "
            "function or set size to its sizeof, and use a library as new as the header",
            name, *size, sizeof *size, full_size);
    return WEIR_OK;
}

weir_status weir__sized_take(void *full, size_t full_size, const void *given, const char *name,
                             weir_error *error)
{
    size_t size;
    if (given == NULL) return WEIR_OK;
    weir_status status = given_size(given, full_size, name, &size, error);
    if (status == WEIR_OK) {
        memcpy(full, given, size);
        memcpy(full, &full_size, sizeof full_size);
    }
    return status;
}

weir_status weir__sized_give(void *given, const void *full, size_t full_size, const char *name,
                             weir_error *error)
{
    size_t size;
    weir_status status = given_size(given, full_size, name, &size, error);
    if (status == WEIR_OK)
        memcpy((char *)given + sizeof size, (const char *)full + sizeof size, size - sizeof size);
    return status;
}
