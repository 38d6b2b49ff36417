/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/digits.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 20 /* of a uint64_t */

static bool add_class(weir__text *text, char low, char high)
{
    char class[8];
    snprintf(class, sizeof class, low == high ? "[%c]" : "[%c-%c]", low, high);
    return weir__text_add_string(text, class);
}

/* least to most digits of any kind. */
static bool add_any(weir__text *text, size_t least, size_t most)
{
    char repeated[64];
    if (most == 0) return true;
    if (least == most)
        snprintf(repeated, sizeof repeated, least > 1 ? " [0-9]{%zu}" : " [0-9]", least);
    else
        snprintf(repeated, sizeof repeated, " [0-9]{%zu,%zu}", least, most);
    return weir__text_add_string(text, repeated);
}

static bool is_all(const char *digits, char c)
{
    return digits[strspn(digits, (char[]){c, '\0'})] == '\0';
}

/* Numbers between two of as many digits, leading zeros included. */
static bool add_between(weir__text *text, const char *least, const char *most)
{
    char nines[DIGITS_MAX + 1] = "", zeros[DIGITS_MAX + 1] = "";
    size_t n = strlen(least);
    bool ok = true, first = true;
    if (n == 0) return true;
    memset(nines, '9', n - 1);
    memset(zeros, '0', n - 1);
    if (*least == *most) {
        ok = add_class(text, *least, *least);
        if (is_all(least + 1, '0') && is_all(most + 1, '9')) return ok && add_any(text, n - 1, n - 1);
        return ok && weir__text_add_string(text, " ") && add_between(text, least + 1, most + 1);
    }
    char low = *least, high = *most; /* the first digits that any may follow */
    ok = weir__text_add_string(text, "(");
    if (!is_all(least + 1, '0')) {
        ok = ok && add_class(text, low, low) && weir__text_add_string(text, " ") &&
             add_between(text, least + 1, nines);
        low++;
        first = false;
    }
    if (!is_all(most + 1, '9')) high--;
    if (low <= high) {
        ok = ok && weir__text_add_string(text, first ? "" : " | ") && add_class(text, low, high) &&
             add_any(text, n - 1, n - 1);
        first = false;
    }
    if (high < *most)
        ok = ok && weir__text_add_string(text, first ? "" : " | ") && add_class(text, *most, *most) &&
             weir__text_add_string(text, " ") && add_between(text, zeros, most + 1);
    return ok && weir__text_add_string(text, ")");
}

bool weir__digits_add(weir__text *text, uint64_t least, uint64_t most)
{
    char low[DIGITS_MAX + 1], high[DIGITS_MAX + 1], end[DIGITS_MAX + 1] = "";
    assert(least <= most);
    snprintf(low, sizeof low, "%" PRIu64, least);
    snprintf(high, sizeof high, "%" PRIu64, most);
    size_t shortest = strlen(low), longest = strlen(high);
    if (least == 0 && most >= 9) { /* 0 is the one number that begins with it */
        return weir__text_add_string(text, most > 9 ? "[0] | " : "[0-9]") &&
               (most == 9 || weir__digits_add(text, 1, most));
    }
    if (shortest == longest) return add_between(text, low, high);
    bool ok = true, first = true;
    bool rest_below = (low[0] > '1' || !is_all(low + 1, '0')), rest_above = !is_all(high, '9');
    if (rest_below) {
        memset(end, '9', shortest);
        ok = add_between(text, low, end);
        first = false;
    }
    size_t from = shortest + rest_below, to = longest - rest_above; /* lengths of which all numbers fit */
    if (from <= to) {
        ok = ok && weir__text_add_string(text, first ? "[1-9]" : " | [1-9]") &&
             add_any(text, from - 1, to - 1);
        first = false;
    }
    if (!rest_above) return ok;
    memset(end, '0', longest);
    end[0] = '1';
    end[longest] = '\0';
    return ok && weir__text_add_string(text, first ? "" : " | ") && add_between(text, end, high);
}
