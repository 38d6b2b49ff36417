/* text.c: a growing buffer whose failures stay, so that only the end is checked, and whose bytes a quota may
 * count.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define LEAST 64 /* bytes of capacity */

/* Takes the bytes that a capacity counts from the quota, or gives back those that it counts no more. */
static bool count_capacity(weir__text *text, size_t capacity)
{
    weir__quota *quota = text->quota;
    if (quota == NULL) return true;
    size_t counted = capacity > quota->small ? capacity : 0;
    if (counted < text->counted) quota->give(quota, text->counted - counted);
    if (counted > text->counted && !quota->take(quota, counted - text->counted)) return false;
    text->counted = counted;
    return true;
}

bool weir__text_reserve(weir__text *text, size_t n)
{
    const weir__quota *quota = text->quota;
    size_t need = text->n + n + 1, wanted = text->capacity < LEAST / 2 ? LEAST : 2 * text->capacity;
    if (need <= text->capacity) return true;
    if (quota != NULL && wanted > quota->most) wanted = quota->most;
    if (wanted < need) wanted = need;
    if (!count_capacity(text, wanted)) {
        text->failed = text->over = true;
        text->too_long = quota != NULL && need > quota->most;
        return false;
    }
    char *bytes = weir__mem_realloc(text->bytes, wanted);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = wanted;
    return true;
}

bool weir__text_add(weir__text *text, const char *bytes, size_t n)
{
    if (!weir__text_reserve(text, n)) return false;
    if (n > 0) memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    text->bytes[text->n] = '\0';
    return true;
}

bool weir__text_add_string(weir__text *text, const char *string)
{
    return weir__text_add(text, string, strlen(string));
}

bool weir__text_vprintf(weir__text *text, const char *format, va_list list)
{
    for (size_t room = 128;;) {
        va_list again;
        if (!weir__text_reserve(text, room)) return false;
        va_copy(again, list);
        /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): some versions do not follow va_copy */
        int n = vsnprintf(text->bytes + text->n, room, format, again);
        va_end(again);
        if (n >= 0 && (size_t)n < room) {
            text->n += (size_t)n;
            return true;
        }
        text->bytes[text->n] = '\0';
        if (n < 0) {
            text->failed = true;
            return false;
        }
        room = (size_t)n + 1;
    }
}

bool weir__text_printf(weir__text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    bool ok = weir__text_vprintf(text, format, list);
    va_end(list);
    return ok;
}

char *weir__text_format(const char *format, ...)
{
    weir__text text = {0};
    va_list list;
    va_start(list, format);
    bool ok = weir__text_vprintf(&text, format, list);
    va_end(list);
    if (ok) return text.bytes;
    weir__text_fini(&text);
    return NULL;
}

void weir__text_close(weir__text *text, const char *before, size_t n)
{
    if (!weir__text_reserve(text, n)) return;
    memmove(text->bytes + n, text->bytes, text->n);
    memcpy(text->bytes, before, n);
    text->n += n;
    text->bytes[text->n] = '\0';
    char *bytes = weir__mem_realloc(text->bytes, text->n + 1);
    if (bytes == NULL) return; /* it is as it was */
    text->bytes = bytes;
    text->capacity = text->n + 1;
    (void)count_capacity(text, text->capacity);
}

void weir__text_cut(weir__text *text, size_t n)
{
    text->n = n;
    if (text->bytes != NULL) text->bytes[n] = '\0';
}

void weir__text_clear(weir__text *text)
{
    weir__text_cut(text, 0);
}

void weir__text_fini(weir__text *text)
{
    (void)count_capacity(text, 0);
    weir__mem_free(text->bytes);
    *text = (weir__text){.quota = text->quota};
}
