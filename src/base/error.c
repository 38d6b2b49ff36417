/* error.c: statuses and filling a caller's weir_error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
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
    return "WEIR_?";
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

/* Copies text into out[capacity], cut at a code point boundary when it does not fit. text may overlap out. */
static void copy_text(char *out, size_t capacity, const char *text)
{
    size_t n = strlen(text);
    if (n >= capacity) n = weir__utf8_cut(text, capacity - 1);
    memmove(out, text, n);
    out[n] = '\0';
}

weir_status weir__error_set(weir_error *error, weir_status code, const char *field, const char *format, ...)
{
    if (error == NULL) return code;

    /* Formatted apart, since the arguments may point into *error. */
    char message[sizeof error->message];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (wanted < 0) {
        copy_text(message, sizeof message, weir_status_text(code));
    } else if ((size_t)wanted >= sizeof message) {
        message[weir__utf8_cut(message, sizeof message - 1)] = '\0';
    }

    copy_text(error->field, sizeof error->field, field != NULL ? field : "");
    memcpy(error->message, message, strlen(message) + 1);
    error->code = code;
    return code;
}

weir_status weir__error_copy(weir_error *to, const weir_error *from)
{
    if (to != NULL && to != from) *to = *from;
    return from->code;
}
