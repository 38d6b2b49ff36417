/* digits.c: splits a range of integers where the number of digits or a leading digit changes, and writes a
 * class for each digit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/digits.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 20 /* of a uint64_t */

static void add_class(weir__text *text, char low, char high)
{
    weir__text_printf(text, low == high ? "[%c]" : "[%c-%c]", low, high);
}

/* `least` to `most` arbitrary digits. */
static void add_any(weir__text *text, size_t least, size_t most)
{
    if (most > 0) weir__text_add_string(text, " [0-9]");
    if (least < most)
        weir__text_printf(text, "{%zu,%zu}", least, most);
    else if (most > 1)
        weir__text_printf(text, "{%zu}", most);
}

static bool is_all(const char *digits, char c)
{
    return digits[strspn(digits, (char[]){c, '\0'})] == '\0';
}

/* The numbers between two of the same length, with leading zeros. */
static void add_between(weir__text *text, const char *least, const char *most)
{
    char nines[DIGITS_MAX + 1] = "", zeros[DIGITS_MAX + 1] = "";
    const char * or = "";
    size_t n = strlen(least);
    if (n == 0) return;
    memset(nines, '9', n - 1);
    memset(zeros, '0', n - 1);
    bool all_below = is_all(least + 1, '0'), all_above = is_all(most + 1, '9');
    if (*least == *most) {
        add_class(text, *least, *least);
        if (all_below && all_above) {
            add_any(text, n - 1, n - 1);
        } else {
            weir__text_add_string(text, " ");
            add_between(text, least + 1, most + 1);
        }
        return;
    }
    /* First digits after which all others are arbitrary. */
    char low = all_below ? *least : (char)(*least + 1), high = all_above ? *most : (char)(*most - 1);
    weir__text_add_string(text, "(");
    if (!all_below) {
        weir__text_printf(text, "[%c] ", *least);
        add_between(text, least + 1, nines);
        or = " | ";
    }
    if (low <= high) {
        weir__text_add_string(text, or);
        add_class(text, low, high);
        add_any(text, n - 1, n - 1);
        or = " | ";
    }
    if (!all_above) {
        weir__text_printf(text, "%s[%c] ", or, *most);
        add_between(text, zeros, most + 1);
    }
    weir__text_add_string(text, ")");
}

void weir__digits_add(weir__text *text, uint64_t least, uint64_t most)
{
    char low[DIGITS_MAX + 1], high[DIGITS_MAX + 1], end[DIGITS_MAX + 1] = "";
    const char * or = "";
    assert(least <= most);
    if (least == 0 && most >= 9) { /* no other number starts with 0 */
        weir__text_add_string(text, most > 9 ? "[0] | " : "[0-9]");
        if (most > 9) weir__digits_add(text, 1, most);
        return;
    }
    snprintf(low, sizeof low, "%" PRIu64, least);
    snprintf(high, sizeof high, "%" PRIu64, most);
    size_t shortest = strlen(low), longest = strlen(high);
    if (shortest == longest) {
        add_between(text, low, high);
        return;
    }
    bool rest_below = low[0] > '1' || !is_all(low + 1, '0'), rest_above = !is_all(high, '9');
    size_t from = shortest + rest_below, to = longest - rest_above; /* lengths of which all numbers match */
    if (rest_below) {
        memset(end, '9', shortest);
        add_between(text, low, end);
        or = " | ";
    }
    if (from <= to) {
        weir__text_printf(text, "%s[1-9]", or);
        add_any(text, from - 1, to - 1);
        or = " | ";
    }
    if (rest_above) {
        snprintf(end, sizeof end, "1%0*d", (int)longest - 1, 0);
        weir__text_add_string(text, or);
        add_between(text, end, high);
    }
}
