/* status.c: names and texts of statuses and errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include <weir/more.h>

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *weir_status_name(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case WEIR_##name: return "WEIR_" #name;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *weir_status_text(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case WEIR_##name: return text;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *weir_error_kind_name(weir_error_kind kind)
{
    switch (kind) {
#define X(name, value, text)                                                                                 \
    case WEIR_ERROR_##name: return "WEIR_ERROR_" #name;
        WEIR_ERROR_MAP(X)
#undef X
    }
    return "unknown kind";
}

void weir_error_text(const weir_error *error, weir_name_fn names, void *user, char *text, size_t capacity)
{
    char name[sizeof error->message];
    bool none = error->message[0] == '\0' && error->code != WEIR_OK;
    const char *at = none ? weir_status_text(error->code) : error->message;
    size_t used = 0;
    bool in_name = false;
    if (capacity == 0) return;
    text[0] = '\0';
    while (*at != '\0' && used < capacity) {
        size_t n = strcspn(at, "`");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        const char *given = in_name && names != NULL ? names(name, user) : NULL;
        used += (size_t)snprintf(text + used, capacity - used, "%s", given != NULL ? given : name);
        at += n;
        in_name ^= *at == '`';
        at += *at == '`';
    }
    if (used >= capacity) text[weir__utf8_cut(text, capacity - 1)] = '\0';
}
