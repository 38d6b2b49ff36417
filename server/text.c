/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "base/utf8.h"

#define LEAST 64 /* bytes of capacity */

/* Takes from the quota what a capacity counts, or gives back what it counts no more. */
static bool count(serve_text *text, size_t capacity)
{
    serve_quota *quota = text->quota;
    if (quota == NULL) return true;
    size_t counted = capacity > quota->small ? capacity : 0;
    if (counted <= text->counted) {
        atomic_fetch_sub_explicit(&quota->used, text->counted - counted, memory_order_relaxed);
    } else {
        size_t more = counted - text->counted,
               used = atomic_load_explicit(&quota->used, memory_order_relaxed);
        do {
            if (more > quota->most - used) return false;
        } while (!atomic_compare_exchange_weak_explicit(&quota->used, &used, used + more,
                                                        memory_order_relaxed, memory_order_relaxed));
    }
    text->counted = counted;
    return true;
}

static void resize(serve_text *text, size_t capacity)
{
    char *bytes = weir__mem_realloc(text->bytes, capacity);
    text->failed = bytes == NULL;
    if (text->failed) return;
    text->bytes = bytes;
    text->capacity = capacity;
}

void serve_text_fini(serve_text *text)
{
    (void)count(text, 0);
    weir__mem_free(text->bytes);
    *text = (serve_text){.quota = text->quota};
}

bool serve_text_reserve(serve_text *text, size_t n)
{
    const serve_quota *quota = text->quota;
    size_t need = text->n + n + 1, wanted = text->capacity < LEAST / 2 ? LEAST : 2 * text->capacity;
    if (text->failed || need <= text->capacity) return !text->failed;
    if (quota != NULL && wanted > quota->most) wanted = quota->most;
    if (wanted < need) wanted = need;
    if (count(text, wanted)) {
        resize(text, wanted);
    } else {
        text->failed = text->over = true;
        text->too_long = quota != NULL && need > quota->most;
    }
    return !text->failed;
}

void serve_text_close(serve_text *text, const char *before, size_t n)
{
    if (!serve_text_reserve(text, n)) return;
    memmove(text->bytes + n, text->bytes, text->n);
    memcpy(text->bytes, before, n);
    text->n += n;
    text->bytes[text->n] = '\0';
    char *bytes = weir__mem_realloc(text->bytes, text->n + 1);
    if (bytes == NULL) return; /* it is as it was */
    text->bytes = bytes;
    text->capacity = text->n + 1;
    (void)count(text, text->capacity);
}

void serve_text_add(serve_text *text, const char *bytes, size_t n)
{
    if (!serve_text_reserve(text, n)) return;
    if (n > 0) memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    text->bytes[text->n] = '\0';
}

void serve_text_puts(serve_text *text, const char *string)
{
    serve_text_add(text, string, strlen(string));
}

void serve_text_printf(serve_text *text, const char *format, ...)
{
    va_list list;
    for (size_t room = 128;;) {
        if (!serve_text_reserve(text, room)) return;
        va_start(list, format);
        int n = vsnprintf(text->bytes + text->n, room, format, list);
        va_end(list);
        if (n < 0) {
            text->failed = true;
            return;
        }
        if ((size_t)n < room) {
            text->n += (size_t)n;
            return;
        }
        room = (size_t)n + 1;
    }
}

/* Names of files may be any bytes. */
static void add_unclean(serve_text *text, const char *bytes, size_t n)
{
    char *clean = weir__mem_alloc(WEIR__UTF8_BOUND(n));
    if (clean != NULL)
        serve_text_json(text, clean, weir__utf8_sanitize(bytes, n, clean));
    else
        text->failed = true;
    weir__mem_free(clean);
}

void serve_text_json(serve_text *text, const char *bytes, size_t n)
{
    static const char names[] = "\b\t\n\f\r";
    static const char letters[] = "btnfr";
    size_t from = 0;
    if (!weir__utf8_valid(bytes, n)) {
        add_unclean(text, bytes, n);
        return;
    }
    serve_text_add(text, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        serve_text_add(text, bytes + from, i - from);
        from = i + 1;
        const char *name = c != '\0' ? strchr(names, c) : NULL;
        if (name != NULL)
            serve_text_printf(text, "\\%c", letters[name - names]);
        else if (c < 0x20)
            serve_text_printf(text, "\\u%04x", c);
        else
            serve_text_printf(text, "\\%c", c);
    }
    if (n > from) serve_text_add(text, bytes + from, n - from);
    serve_text_add(text, "\"", 1);
}

void serve_text_json_puts(serve_text *text, const char *string)
{
    serve_text_json(text, string, strlen(string));
}

void serve_text_number(serve_text *text, double value, int decimals)
{
    char digits[64];
    int n =
        snprintf(digits, sizeof digits, "%.*f", decimals, isfinite(value) && fabs(value) < 1e30 ? value : 0);
    while (decimals > 0 && n > 1 && digits[n - 1] == '0') n--;
    if (decimals > 0 && digits[n - 1] == '.') n--;
    serve_text_add(text, digits, (size_t)n);
}

bool serve_text_random(char *hex, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[256];
    hex[0] = '\0';
    if (getentropy(random, n / 2) != 0) return false;
    for (size_t i = 0; i < n; i++) hex[i] = digits[random[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    hex[n] = '\0';
    return true;
}

bool serve_text_same(const char *a, const char *b, size_t capacity)
{
    unsigned char difference = 0;
    for (size_t i = 0; i < capacity; i++) difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}
