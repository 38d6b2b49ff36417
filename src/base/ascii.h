/* ascii.h: classes of ASCII characters, in no locale. Bytes of other characters are in none of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ASCII_H
#define WEIR_BASE_ASCII_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool weir__ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool weir__ascii_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool weir__ascii_is_alnum(char c)
{
    return weir__ascii_is_letter(c) || weir__ascii_is_digit(c);
}

/* True for what isspace() takes for space in the C locale. */
static inline bool weir__ascii_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline char weir__ascii_upper(char c)
{
    return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
}

/* The TCP port that the n characters are in decimal, 1 to 65535; 0: they are none. */
static inline uint16_t weir__ascii_port(const char *text, size_t n)
{
    uint32_t port = 0;
    if (n > 5) return 0;
    for (size_t i = 0; i < n; i++) {
        if (!weir__ascii_is_digit(text[i])) return 0;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* The value of a hexadecimal digit; -1: c is none. */
static inline int weir__ascii_hex(char c)
{
    if (weir__ascii_is_digit(c)) return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

#endif
