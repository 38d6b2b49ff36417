/* error.c: filling a caller's weir_error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

weir_status weir__error_set(weir_error *error, weir_status code, const char *field, const char *format, ...)
{
    if (error == NULL) return code;

    /* Formatted apart, since the arguments may point into *error. */
    char message[sizeof error->message];
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 does not see va_start in a file's only variadic function.
     * NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    int wanted = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const char *text = wanted >= 0 ? message : weir_status_text(code);
    size_t n = strlen(text);
    if (wanted >= (int)sizeof message) n = weir__utf8_cut(text, n);

    char name[sizeof error->field];
    size_t n_name = weir__utf8_copy(name, sizeof name, field, field != NULL ? strlen(field) : 0);
    memcpy(error->field, name, n_name + 1);
    weir__utf8_copy(error->message, sizeof error->message, text, n);
    error->code = code;
    return code;
}

const char *weir__error_path(char shown[WEIR__ERROR_PATH], const char *path)
{
    enum { WHOLE = 200, HEAD = 40, TAIL = WHOLE - HEAD };
    size_t n = strlen(path);
    if (n <= WHOLE)
        memcpy(shown, path, n + 1);
    else
        snprintf(shown, WEIR__ERROR_PATH, "%.*s…%s", HEAD, path, path + n - TAIL);
    return shown;
}

weir_status weir__error_copy(weir_error *to, const weir_error *from)
{
    if (to != NULL && to != from) *to = *from;
    return from->code;
}
