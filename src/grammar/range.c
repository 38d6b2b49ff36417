/* range.c: ranges of numbers as GBNF.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A bound becomes a row of digits of a fixed length, with the point at a fixed place: what lies beyond is
 * rounded into the range. Texts are compared with the rows digit by digit. While a text equals a row, its
 * next digit has a least or a greatest value; once it differs, all other digits are free. So the expression
 * of a range is about as long as its bounds. Numbers are split by their sign, and by the length of their
 * whole part, because only rows of one length can be compared so. Numbers with exponents are split at the
 * bounds' own exponents: all between them have any digits. */
#include "grammar/range.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Ranges of integers ---- */

#define DIGITS_MAX 20 /* of a uint64_t */

static void add_digit(weir__text *text, char low, char high)
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

static bool ends_in(const char *digits, char c)
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
    bool all_below = ends_in(least + 1, '0'), all_above = ends_in(most + 1, '9');
    if (*least == *most) {
        add_digit(text, *least, *least);
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
        add_digit(text, low, high);
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
    bool rest_below = low[0] > '1' || !ends_in(low + 1, '0'), rest_above = !ends_in(high, '9');
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

#define SIDE 16 /* digits on each side of the point */
#define ROW  32 /* on both */
#define EXPONENT_MAX                                                                                         \
    307 /* of numbers with exponents: none overflows, and none has fewer digits than others */

/* A number without its sign: 0.DIGITS times ten to the power of `exponent`. */
typedef struct decimal {
    char digits[400]; /* without zeros at either end; "" is 0 */
    int exponent;
} decimal;

/* Two rows of digits, the least and the greatest, from the first digit of the whole part on. */
typedef struct span {
    char low[ROW + 1], high[ROW + 1];
    bool low_out, high_out;
    int whole;   /* digits before the point */
    int places;  /* as in weir__range, at most SIDE */
    bool normal; /* the first digit is not 0 */
} span;

/* ---- Bounds ---- */

static void read_decimal(const char *text, decimal *d)
{
    size_t n = 0;
    bool point = false;
    d->exponent = 0;
    for (text += *text == '-'; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        point |= *text == '.';
        if (*text == '.' || (n == 0 && *text == '0' && !point)) continue;
        if (n == 0 && *text == '0') {
            d->exponent--;
            continue;
        }
        if (n < sizeof d->digits - 1) d->digits[n++] = *text;
        d->exponent += !point;
    }
    if (*text != '\0') d->exponent += atoi(text + 1);
    while (n > 0 && d->digits[n - 1] == '0') n--;
    d->digits[n] = '\0';
}

/* True if all digits of the row from i on are c. */
static bool is_all(const char *row, int i, char c)
{
    while (row[i] == c) i++;
    return row[i] == '\0';
}

/* Writes the number, whose first digit is number `at` of the row. Digits that do not fit are rounded, up for
 * a lower bound; then the bound is inclusive. False: it is too large. */
static bool fill(char *row, const decimal *d, int at, bool up, int places, bool *out)
{
    int end = ROW - SIDE + places;
    memset(row, '0', ROW);
    row[ROW] = '\0';
    if (at < 0 && d->digits[0] != '\0') return false;
    for (int i = at; i < end && d->digits[i - at] != '\0'; i++) row[i] = d->digits[i - at];
    bool is_cut = d->digits[0] != '\0' && (at >= end || strlen(d->digits) > (size_t)(end - at));
    if (!is_cut) return true;
    *out = false;
    if (!up) return true;
    int i = end - 1;
    while (i >= 0 && row[i] == '9') row[i--] = '0';
    if (i >= 0) row[i]++;
    return i >= 0;
}

/* ---- Digits ---- */

static bool add_rest(weir__text *text, const span *s, int i, bool low, bool high);

static void add_class(weir__text *text, char least, char most)
{
    weir__text_printf(text, least == most ? "[%c] " : "[%c-%c] ", least, most);
}

/* Adds an alternative of a group, which the first one opens: a digit, and the rest after it. */
static void add_branch(weir__text *text, const span *s, int i, char least, char most, bool low, bool high,
                       bool *any)
{
    size_t from = text->n;
    if (least > most) return;
    weir__text_add_string(text, *any ? " | " : "(");
    add_class(text, least, most);
    if (add_rest(text, s, i + 1, low, high))
        *any = true;
    else if (!text->failed)
        weir__text_cut(text, from);
}

/* Adds digit i and the rest. low, high: the text equals the row so far. False: nothing fits. */
static bool add_digits(weir__text *text, const span *s, int i, bool low, bool high)
{
    bool any = false;
    char least = low ? s->low[i] : '0', most = high ? s->high[i] : '9';
    if (i == 0 && least == '0' && (s->whole > 1 || s->normal)) least = '1';
    if (i >= s->whole + s->places) most = most < '0' ? most : '0';
    bool at_low = low && s->low[i] == least, at_high = high && s->high[i] == most;
    if (least == most) {
        add_branch(text, s, i, least, most, at_low, at_high, &any);
    } else {
        if (at_low) add_branch(text, s, i, least, least, true, false, &any);
        add_branch(text, s, i, (char)(least + at_low), (char)(most - at_high), false, false, &any);
        if (at_high) add_branch(text, s, i, most, most, false, true, &any);
    }
    if (any) weir__text_add_string(text, ")");
    return any;
}

/* Adds the digits after the point from i on: any, or, where places are limited, zeros after these. */
static void add_free(weir__text *text, const span *s, int i)
{
    int left = s->whole + s->places - i;
    bool first = i == s->whole;
    if (s->places == SIDE) {
        weir__text_add_string(text, first ? WEIR__RANGE_FRACTION : WEIR__RANGE_DIGITS);
        return;
    }
    if (first) weir__text_add_string(text, left > 0 ? "(\".\" [0-9] " : "(\".\" [0] ");
    left -= first;
    if (left > 0) weir__text_printf(text, "[0-9]{0,%d} ", left);
    weir__text_add_string(text, first ? WEIR__RANGE_ZEROS ")?" : WEIR__RANGE_ZEROS);
}

/* Adds what may follow the digits before i, of which the point comes before number `whole`. */
static bool add_rest(weir__text *text, const span *s, int i, bool low, bool high)
{
    bool first = i == s->whole;
    low = low && (s->low_out || !is_all(s->low, i, '0'));
    high = high && (s->high_out || !is_all(s->high, i, '9'));
    bool to_low = low && is_all(s->low, i, '0'), to_high = high && is_all(s->high, i, '0');
    if ((to_high && s->high_out) || (low && s->low[i] == '\0')) return false;
    if (i < s->whole) {
        if (low || high || i == 0) return add_digits(text, s, i, low, high);
        add_class(text, '0', '9');
        if (s->whole - i > 1) weir__text_printf(text, "{%d} ", s->whole - i);
        add_free(text, s, s->whole);
        return true;
    }
    if (to_high) { /* nothing but zeros may follow */
        if (low) return false;
        weir__text_add_string(text, first ? "(\".\" [0] " WEIR__RANGE_ZEROS ")?" : WEIR__RANGE_ZEROS);
    } else if (to_low && !high && s->places == SIDE) { /* a digit that is no zero must follow */
        weir__text_add_string(text, first ? "\".\" " WEIR__RANGE_ZEROS " [1-9] " WEIR__RANGE_DIGITS
                                          : WEIR__RANGE_ZEROS " [1-9] " WEIR__RANGE_DIGITS);
    } else if (low || high) {
        size_t from = text->n;
        weir__text_add_string(text, low ? "" : "(");
        weir__text_add_string(text, first ? "\".\" " : "");
        bool any = add_digits(text, s, i, low, high);
        if (any && !low) weir__text_add_string(text, ")?");
        if (!any && !text->failed) weir__text_cut(text, from);
        return any || !low;
    } else {
        add_free(text, s, i);
    }
    return true;
}

/* ---- Numbers ---- */

static void add_or(weir__text *text, const weir__text *one, const char *end)
{
    if (one->n == 0) return;
    if (text->n > 0) weir__text_add_string(text, " | ");
    weir__text_printf(text, "%s%s", one->bytes, end);
}

/* True if the rows exclude no number of their length. */
static bool is_free(const span *s)
{
    return !s->low_out && !s->high_out && s->low[0] == '1' && is_all(s->low, 1, '0') &&
           is_all(s->high, 0, '9');
}

/* The numbers without an exponent between two that are not negative. high NULL: no bound. */
static void add_plain(weir__text *text, const decimal *low, const decimal *high, const weir__range *range)
{
    char least[ROW + 1], most[ROW + 1];
    span s = {.low_out = range->low_out, .high_out = high != NULL && range->high_out};
    s.places = range->places < 0 || range->places > SIDE ? SIDE : range->places;
    if (!fill(least, low, SIDE - low->exponent, true, s.places, &s.low_out)) return;
    if (high == NULL || !fill(most, high, SIDE - high->exponent, false, s.places, &s.high_out)) {
        memset(most, '9', ROW);
        most[ROW] = '\0';
        s.high_out = false;
    }
    if (strcmp(least, most) > 0) return;
    bool low_out = s.low_out, high_out = s.high_out;
    int n_free = 0, last = 0; /* lengths of which all numbers belong to the range */
    for (s.whole = 1; s.whole <= SIDE; s.whole++) {
        int skip = SIDE - s.whole;
        weir__text one = {0};
        if (strspn(most, "0") > (size_t)skip && s.whole > 1) break; /* they are shorter */
        if (strspn(least, "0") < (size_t)skip) continue;            /* longer */
        memcpy(s.low, least + skip, (size_t)(ROW - skip) + 1);
        s.low_out = low_out;
        if (s.whole > 1 && s.low[0] == '0') { /* that bound has been passed */
            memset(s.low, '0', (size_t)(ROW - skip));
            s.low[0] = '1';
            s.low_out = false;
        }
        memcpy(s.high, most + skip, (size_t)(ROW - skip) + 1);
        s.high_out = high_out;
        if (strspn(most, "0") < (size_t)skip) {
            memset(s.high, '9', (size_t)(ROW - skip));
            s.high_out = false;
        }
        if (s.whole > 1 && is_free(&s)) {
            n_free++;
            last = s.whole;
            continue;
        }
        if (add_rest(&one, &s, 0, true, true)) add_or(text, &one, "");
        text->failed |= one.failed;
        weir__text_fini(&one);
    }
    if (n_free > 0) {
        weir__text one = {0};
        weir__text_printf(&one, "[1-9] [0-9]{%d,%d} ", last - n_free, last - 1);
        add_free(&one, &s, s.whole);
        text->failed |= one.failed;
        if (!one.failed) add_or(text, &one, "");
        weir__text_fini(&one);
    }
}

/* An exponent from least to most. */
static void add_exponents(weir__text *text, int least, int most)
{
    weir__text_add_string(text, " [eE] (");
    if (least < 0) {
        weir__text_add_string(text, "\"-\" [0]{0,2} (");
        weir__digits_add(text, (uint64_t)(most < 0 ? -most : 1), (uint64_t)-least);
        weir__text_add_string(text, most < 0 ? ")" : ") | ");
    }
    if (most >= 0) {
        weir__text_add_string(text, "\"+\"? [0]{0,2} (");
        weir__digits_add(text, (uint64_t)(least > 0 ? least : 0), (uint64_t)most);
        weir__text_add_string(text, ")");
    }
    weir__text_add_string(text, ")");
}

/* The numbers from low to high (NULL: no bound) whose exponents are these. */
static void add_scaled(weir__text *text, const decimal *low, const decimal *high, const weir__range *range,
                       int least, int most)
{
    static const decimal one = {"1", 1};
    span s = {.whole = 1, .places = SIDE, .normal = true};
    weir__text digits = {0}, end = {0};
    if (least < -EXPONENT_MAX) least = -EXPONENT_MAX;
    if (most > EXPONENT_MAX) most = EXPONENT_MAX;
    if (least > most) return;
    s.low_out = low != NULL && range->low_out;
    s.high_out = high != NULL && range->high_out;
    char row[ROW + 1];
    bool fits = fill(row, low != NULL ? low : &one, SIDE - 1, true, SIDE, &s.low_out) && row[SIDE - 2] == '0';
    memcpy(s.low, row + SIDE - 1, SIDE + 2);
    if (high != NULL) {
        fill(row, high, SIDE - 1, false, SIDE, &s.high_out);
        memcpy(s.high, row + SIDE - 1, SIDE + 2);
    } else {
        memset(s.high, '9', SIDE + 1);
    }
    if (fits && strcmp(s.low, s.high) <= 0 && add_rest(&digits, &s, 0, true, true)) {
        add_exponents(&end, least, most);
        text->failed |= end.failed;
        if (!end.failed) add_or(text, &digits, end.bytes);
    }
    text->failed |= digits.failed;
    weir__text_fini(&digits);
    weir__text_fini(&end);
}

/* The numbers with an exponent, as add_plain. */
static void add_exponential(weir__text *text, const decimal *low, const decimal *high,
                            const weir__range *range)
{
    bool from_0 = low->digits[0] == '\0';
    int least = from_0 ? -EXPONENT_MAX - 1 : low->exponent - 1;
    int most = high == NULL ? EXPONENT_MAX + 1 : high->exponent - 1;
    if (least > most || (high != NULL && high->digits[0] == '\0')) return;
    if (!from_0 && high != NULL && least == most) {
        add_scaled(text, low, high, range, least, most);
        return;
    }
    if (!from_0) add_scaled(text, low, NULL, range, least, least);
    add_scaled(text, NULL, NULL, range, least + 1, most - 1);
    if (high != NULL) add_scaled(text, NULL, high, range, most, most);
}

/* The numbers that are not negative, or the negative ones without their sign. low NULL: from 0 on. */
static void add_magnitudes(weir__text *text, const char *low, bool low_out, const char *high, bool high_out,
                           int places, const char *sign)
{
    decimal least = {"", 0}, most;
    weir__text all = {0};
    weir__range range = {.low_out = low != NULL && low_out, .high_out = high_out, .places = places};
    if (low != NULL) read_decimal(low, &least);
    if (high != NULL) read_decimal(high, &most);
    add_plain(&all, &least, high != NULL ? &most : NULL, &range);
    if (places < 0) add_exponential(&all, &least, high != NULL ? &most : NULL, &range);
    if (all.n > 0) {
        if (text->n > 0) weir__text_add_string(text, " | ");
        weir__text_printf(text, *sign != '\0' ? "%s(%s)" : "%s%s", sign, all.bytes);
    }
    text->failed |= all.failed;
    weir__text_fini(&all);
}

static bool is_negative(const char *bound)
{
    return bound != NULL && *bound == '-' && strpbrk(bound, "123456789") != NULL;
}

static bool is_zero(const char *bound)
{
    decimal d;
    if (bound == NULL) return false;
    read_decimal(bound, &d);
    return d.digits[0] == '\0';
}

bool weir__range_add(weir__text *text, const weir__range *r)
{
    weir__text all = {0};
    bool to_0 = is_zero(r->high);
    if (r->low == NULL || is_negative(r->low) || (is_zero(r->low) && !r->low_out)) {
        /* -0 is 0. */
        add_magnitudes(&all, is_negative(r->high) || to_0 ? r->high : NULL, r->high_out, r->low, r->low_out,
                       r->places, "\"-\" ");
    }
    if (!is_negative(r->high) && !(to_0 && r->high_out))
        add_magnitudes(&all, is_negative(r->low) ? NULL : r->low, r->low_out, r->high, r->high_out, r->places,
                       "");
    bool any = all.n > 0;
    if (any) weir__text_add(text, all.bytes, all.n);
    text->failed |= all.failed;
    weir__text_fini(&all);
    return any;
}
