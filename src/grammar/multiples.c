/* multiples.c: reads a number digit by digit and keeps the remainder of those so far.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A rule is about `left` more digits after some whose remainder is `rest`, as if zeros followed: it
 * matches the digits that make a multiple of the whole. Numbers between bounds begin with digits that
 * decide that they are inside, and go on with such a rule. A rule's name says what it is about, so that
 * all multiples of a step in a grammar share their rules, and no name is long. */
#include "grammar/multiples.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"

/* The elements of a rule: some, and so many for each digit that leads elsewhere. These, too, are as many of
 * WEIR__SCHEMA_ELEMENTS_MAX as their text is of WEIR__GRAMMAR_BYTES_MAX, which is the nearer limit. */
#define RULE_ELEMENTS  8
#define DIGIT_ELEMENTS 7

/* The elements of a beginning beside its digits, in the same measure. */
#define BEGINNING_ELEMENTS 8

/* The size of a rule's name. */
#define NAME_MAX_ 48

typedef struct writer {
    weir__emitter *e;
    weir__text *text;
    const weir__multiples *of;
    int most_left;
    uint64_t *powers; /* [most_left + 1] powers of ten, modulo the step */
    bool *needed;     /* [most_left + 1][step] of the rules */
    bool any;
} writer;

static int digits_of(uint64_t value)
{
    int n = 1;
    for (; value > 9; value /= 10) n++;
    return n;
}

static uint64_t power_of(int n)
{
    uint64_t power = 1;
    while (n-- > 0) power *= 10;
    return power;
}

uint64_t weir__common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The numbers of one sign, without it. False: there are none. */
static bool find_side(const weir__multiples *of, bool negative, uint64_t *least, uint64_t *most)
{
    if (negative) {
        *least = (uint64_t)(of->high < 0 ? -of->high : of->places == 0);
        *most = (uint64_t)(of->low < 0 ? -of->low : 0);
        return of->low < 0;
    }
    *least = (uint64_t)(of->low > 0 ? of->low : 0);
    *most = (uint64_t)(of->high > 0 ? of->high : 0);
    return of->high >= 0;
}

/* The least and the most number with n digits, of those of a side. */
static void clip(int n, uint64_t *least, uint64_t *most)
{
    const uint64_t from = n == 1 ? 0 : power_of(n - 1), to = power_of(n) - 1;
    if (*least < from) *least = from;
    if (*most > to) *most = to;
}

/* The digits that are left after the beginning of the largest group of numbers with n digits that starts at
 * least. */
static int left_of_group(uint64_t least, uint64_t most, int n)
{
    int left = 0;
    for (; left < n - 1; left++) {
        const uint64_t power = power_of(left + 1);
        if (least % power != 0 || most - least < power - 1) break;
    }
    return left;
}

static uint64_t size_of_beginnings(uint64_t least, uint64_t most)
{
    uint64_t size = 0;
    for (int n = digits_of(least); n <= digits_of(most); n++) {
        uint64_t low = least, high = most;
        clip(n, &low, &high);
        for (int left; low <= high; low += power_of(left)) {
            left = left_of_group(low, high, n);
            size += (uint64_t)(n - left) + BEGINNING_ELEMENTS;
        }
    }
    return size;
}

uint64_t weir__multiples_size(const weir__multiples *of)
{
    uint64_t n = 0, common = 1, least, most;
    for (int left = 0; left <= WEIR__MULTIPLES_DIGITS + of->places; left++) {
        n += of->step / common;
        common = weir__common_divisor(of->step, common * 10);
    }
    n *= RULE_ELEMENTS + DIGIT_ELEMENTS * (of->step < 10 ? of->step : 10);
    for (int negative = 0; negative < 2; negative++)
        if (find_side(of, negative, &least, &most)) n += size_of_beginnings(least, most);
    return n;
}

/* True if some `left` digits make a multiple of it. */
static bool is_possible(const writer *w, int left, uint64_t rest)
{
    const uint64_t needed = (w->of->step - rest) % w->of->step;
    return left > 18 || needed < power_of(left);
}

static void name_rule(const weir__multiples *of, int left, uint64_t rest, char name[NAME_MAX_])
{
    char places[12] = "";
    if (of->places > 0) snprintf(places, sizeof places, "-%d", of->places);
    snprintf(name, NAME_MAX_, "any-%" PRIu64 "%s-%d-%" PRIu64, of->step, places, left, rest);
}

/* Adds a reference to a rule, unless it matches nothing but the empty text. */
static void add_reference(writer *w, weir__text *text, int left, uint64_t rest)
{
    char name[NAME_MAX_];
    if (left == 0) return;
    w->needed[(size_t)left * w->of->step + rest] = true;
    name_rule(w->of, left, rest, name);
    weir__text_printf(text, " %s", name);
}

/* The digits that lead to the same rest are a class. */
static void write_digits(writer *w, weir__text *body, int left, uint64_t rest)
{
    const uint64_t step = w->of->step;
    bool written[10] = {false}, first = true;
    for (int d = 0; d < 10; d++) {
        const uint64_t to = (rest + (uint64_t)d * w->powers[left - 1]) % step;
        if (written[d] || !is_possible(w, left - 1, to)) continue;
        weir__text_add_string(body, first ? "[" : " | [");
        for (int other = d; other < 10; other++) {
            if ((rest + (uint64_t)other * w->powers[left - 1]) % step != to) continue;
            written[other] = true;
            weir__text_printf(body, "%d", other);
        }
        weir__text_add_string(body, "]");
        add_reference(w, body, left - 1, to);
        first = false;
    }
}

/* Writes a rule, unless the grammar has it. */
static void write_rule(writer *w, int left, uint64_t rest)
{
    weir__text body = {0};
    char name[NAME_MAX_];
    name_rule(w->of, left, rest, name);
    if (json_object_get(w->e->known, name) != NULL) return;
    if (json_object_set_new(w->e->known, name, json_true()) != 0) w->e->rules.failed = true;
    if (left == w->of->places) { /* what comes before is whole, and the point may follow */
        if (rest == 0) weir__text_add_string(&body, "\"\" | ");
        weir__text_add_string(&body, "\".\" (");
        write_digits(w, &body, left, rest);
        weir__text_add_string(&body, ")");
    } else {
        write_digits(w, &body, left, rest);
    }
    weir__emit_named_rule(w->e, name, &body);
}

/* Adds the numbers that begin with these digits and have `left` more before the point. */
static void add_beginning(writer *w, uint64_t digits, int left)
{
    const int all = left + w->of->places;
    const uint64_t rest = digits % w->of->step * w->powers[all] % w->of->step;
    if (!is_possible(w, all, rest)) return;
    weir__text_printf(w->text, "%s\"%" PRIu64 "\"", w->any ? " | " : "", digits);
    add_reference(w, w->text, all, rest);
    w->any = true;
}

static void add_range(writer *w, uint64_t least, uint64_t most)
{
    for (int n = digits_of(least); n <= digits_of(most); n++) {
        uint64_t low = least, high = most;
        clip(n, &low, &high);
        for (int left; low <= high; low += power_of(left)) {
            left = left_of_group(low, high, n);
            add_beginning(w, low / power_of(left), left);
        }
    }
}

void weir__emit_multiples(weir__emitter *e, weir__text *text, const weir__multiples *of)
{
    const int most_left = WEIR__MULTIPLES_DIGITS + of->places;
    const size_t n = (size_t)most_left + 1;
    writer w = {.e = e, .text = text, .of = of, .most_left = most_left};
    uint64_t least, most;
    w.powers = weir__mem_calloc(n, sizeof *w.powers);
    w.needed = weir__mem_calloc(n * of->step, sizeof *w.needed);
    if (w.powers == NULL || w.needed == NULL) {
        text->failed = true;
    } else {
        w.powers[0] = 1 % of->step;
        for (size_t i = 1; i < n; i++) w.powers[i] = w.powers[i - 1] * 10 % of->step;
        if (find_side(of, false, &least, &most)) add_range(&w, least, most);
        if (find_side(of, true, &least, &most)) {
            const bool positive = w.any;
            weir__text negative = {0};
            w.text = &negative;
            w.any = false;
            add_range(&w, least, most);
            if (w.any && !negative.failed)
                weir__text_printf(text, "%s\"-\" (%s)", positive ? " | " : "", negative.bytes);
            text->failed |= negative.failed;
            weir__text_fini(&negative);
        }
        for (int left = most_left; left > 0; left--)
            for (uint64_t rest = 0; rest < of->step; rest++)
                if (w.needed[(size_t)left * of->step + rest]) write_rule(&w, left, rest);
    }
    weir__mem_free(w.powers);
    weir__mem_free(w.needed);
}
