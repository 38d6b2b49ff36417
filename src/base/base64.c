/* base64.c: bytes as text (RFC 4648). SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "base/mem.h"

#define TYPE_MAX 256 /* bytes of a data: URL before its base64 */

/* -1: not a digit. */
static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

weir_status weir__base64_decode(const char *text, size_t n, unsigned char **bytes, size_t *n_bytes)
{
    unsigned char *out = weir__mem_alloc(n / 4 * 3 + 3);
    size_t n_digits = 0, n_padding = 0, n_out = 0;
    uint32_t bits = 0;
    if (out == NULL) return WEIR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        int value = digit_value(text[i]);
        if (weir__ascii_is_space(text[i])) continue;
        if (text[i] == '=' && ++n_padding <= 2) continue;
        if (value < 0 || n_padding > 0) goto invalid;
        bits = bits << 6 | (uint32_t)value;
        n_digits++;
        if (n_digits % 4 != 1) out[n_out++] = (unsigned char)(bits >> (6 - 2 * ((n_digits - 1) % 4)));
    }
    if (n_digits % 4 == 1 || (n_padding > 0 && (n_digits + n_padding) % 4 != 0)) goto invalid;
    *bytes = out;
    *n_bytes = n_out;
    return WEIR_OK;
invalid:
    weir__mem_free(out);
    return WEIR_INVALID;
}

bool weir__base64_in_url(const char *url, size_t n, size_t *from)
{
    static const char scheme[] = "data:", coding[] = ";base64";
    const char *comma = memchr(url, ',', n < TYPE_MAX ? n : TYPE_MAX);
    size_t before = comma != NULL ? (size_t)(comma - url) : 0;
    if (before < sizeof scheme + sizeof coding - 2 || strncasecmp(url, scheme, sizeof scheme - 1) != 0 ||
        strncasecmp(comma - (sizeof coding - 1), coding, sizeof coding - 1) != 0)
        return false;
    *from = before + 1;
    return true;
}
