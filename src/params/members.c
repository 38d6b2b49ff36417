/* SPDX-License-Identifier: Apache-2.0 */
#include "params/members.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static size_t size_of(weir_member_type type)
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

static bool is_number(weir_member_type type)
{
    return type <= WEIR_MEMBER_CHOICE;
}

void weir__members_init(const weir__members *members, void *params, size_t size)
{
    size_t known = size < members->size ? size : members->size;
    if (params == NULL || size < sizeof size) return;
    memset(params, 0, size);
    memcpy(params, &known, sizeof known);
    for (size_t i = 0; i < members->n; i++) {
        const weir_member *member = &members->member[i];
        if (member->offset + size_of(member->type) <= known)
            weir__member_set(member, params, member->initial);
    }
}

/* ---- Ranges ---- */

/* Whole numbers as they are, floats with as many digits as tell them apart. */
static void print_number(char *text, size_t capacity, weir_member_type type, double value)
{
    snprintf(text, capacity, "%.*g", type == WEIR_MEMBER_FLOAT ? 9 : 17, value);
}

static weir_status refuse_number(const weir_member *member, double value, const char *prefix,
                                 weir_error *error)
{
    char field[64], number[32], most[32];
    snprintf(field, sizeof field, "%s%s", prefix, member->name);
    print_number(number, sizeof number, member->type, value);
    if (member->max > INT32_MAX)
        snprintf(most, sizeof most, "and up");
    else
        snprintf(most, sizeof most, "to %.10g", member->max);
    return weir__error_set(error, WEIR_INVALID, field, "%s is %s; allowed: %.10g %s%s", member->name, number,
                           member->min, most, member->or_minus_one ? ", or -1" : "");
}

weir_status weir__member_check(const weir_member *member, const void *params, const char *prefix,
                               weir_error *error)
{
    bool checked = is_number(member->type) && member->type != WEIR_MEMBER_BOOL;
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

/* ---- Keys ---- */

/* Lengths too, so that no two lists of texts look the same. */
static bool add_text(weir__text *key, const char *text)
{
    size_t n = text != NULL ? strlen(text) : SIZE_MAX;
    return weir__text_add(key, (const char *)&n, sizeof n) && (text == NULL || weir__text_add(key, text, n));
}

static bool add_list(weir__text *key, const weir_member *member, const void *params)
{
    const void *items = *(const void *const *)((const char *)params + member->offset);
    size_t n = items != NULL ? *(const size_t *)((const char *)params + member->n_offset) : SIZE_MAX;
    if (!weir__text_add(key, (const char *)&n, sizeof n)) return false;
    if (items == NULL) return true;
    if (member->type == WEIR_MEMBER_BIASES)
        return weir__text_add(key, items, n * sizeof(weir_logit_bias)); /* it has no padding */
    for (size_t i = 0; i < n; i++)
        if (!add_text(key, ((const char *const *)items)[i])) return false;
    return true;
}

bool weir__members_key(const weir__members *members, const void *params, weir__text *key)
{
    bool added = true;
    for (size_t i = 0; i < members->n && added; i++) {
        const weir_member *member = &members->member[i];
        const char *at = (const char *)params + member->offset;
        if (is_number(member->type))
            added = weir__text_add(key, at, size_of(member->type));
        else if (member->type == WEIR_MEMBER_STRING)
            added = add_text(key, *(const char *const *)at);
        else if (member->type != WEIR_MEMBER_OTHER)
            added = add_list(key, member, params);
    }
    return added;
}
