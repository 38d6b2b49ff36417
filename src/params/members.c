/* members.c: the bytes of a struct's members, as a key that compares two structs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "params/members.h"

#include <stdint.h>
#include <string.h>

/* Adds the length too, so that no two lists of texts give the same bytes. */
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
        return weir__text_add(key, items, n * sizeof(weir_logit_bias)); /* weir_logit_bias has no padding */
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
        if (weir__member_is_number(member->type))
            added = weir__text_add(key, at, weir__member_size(member->type));
        else if (member->type == WEIR_MEMBER_STRING)
            added = add_text(key, *(const char *const *)at);
        else if (member->type != WEIR_MEMBER_OTHER)
            added = add_list(key, member, params);
    }
    return added;
}
