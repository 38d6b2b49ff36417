/* multiples.c: reads a number digit by digit and keeps what the digits so far leave when divided by the step.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A rule is about `left` more digits after some that leave `rest`, as if zeros followed: it matches the
 * digits that make a multiple of the whole. Numbers between bounds begin with digits that decide that they
 * are inside, and go on with such a rule. */
#include "grammar/multiples.h"

#include <inttypes.h>

#include "base/mem.h"

/* Of a rule: a class for each digit, a reference, and the ends. */
#define RULE_ELEMENTS 40

typedef struct writer {
    weir__emitter *e;
    weir__text *text;
    const weir__multiples *of;
    int most_left;
    uint64_t *powers; /* [most_left + 1] of ten, divided by the step: what is left */
    size_t *parts;    /* [most_left + 1][step] of the rules; 0: not needed so far */
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

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t weir__multiples_size(const weir__multiples *of)
{
    uint64_t n = 0, common = 1;
    for (int left = 0; left <= WEIR__MULTIPLES_DIGITS + of->places; left++) {
        n += of->step / common;
        common = common_divisor(of->step, common * 10);
    }
    return n * RULE_ELEMENTS;
}

/* True if some `left` digits make a multiple of it. */
static bool is_possible(const writer *w, int left, uint64_t rest)
{
    const uint64_t needed = (w->of->step - rest) % w->of->step;
    return left > 18 || needed < power_of(left);
}

/* Adds a reference to a rule, unless it matches nothing but the empty text. */
static void add_reference(writer *w, weir__text *text, int left, uint64_t rest)
{
    if (left == 0) return;
    size_t *part = &w->parts[(size_t)left * w->of->step + rest];
    if (*part == 0) *part = ++w->e->n_parts;
    weir__text_printf(text, " %s-%zu", w->e->name, *part);
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

static void write_rule(writer *w, int left, uint64_t rest, size_t part)
{
    weir__text body = {0};
    if (left == w->of->places) { /* what comes before is whole, and the point may follow */
        if (rest == 0) weir__text_add_string(&body, "\"\" | ");
        weir__text_add_string(&body, "\".\" (");
        write_digits(w, &body, left, rest);
        weir__text_add_string(&body, ")");
    } else {
        write_digits(w, &body, left, rest);
    }
    weir__emit_rule(w->e, part, &body);
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

/* Adds the numbers from least to most with n digits, of which least and most have as many. */
static void add_length(writer *w, uint64_t least, uint64_t most, int n)
{
    /* Each round takes the largest group of numbers with the same beginning that starts at least. */
    for (int left; least <= most; least += power_of(left)) {
        for (left = 0; left < n - 1; left++) {
            const uint64_t power = power_of(left + 1);
            if (least % power != 0 || most - least < power - 1) break;
        }
        add_beginning(w, least / power_of(left), left);
    }
}

static void add_range(writer *w, uint64_t least, uint64_t most)
{
    for (int n = digits_of(least); n <= digits_of(most); n++) {
        const uint64_t from = n == 1 ? 0 : power_of(n - 1), to = power_of(n) - 1;
        add_length(w, least > from ? least : from, most < to ? most : to, n);
    }
}

bool weir__emit_multiples(weir__emitter *e, weir__text *text, const weir__multiples *of)
{
    const int most_left = WEIR__MULTIPLES_DIGITS + of->places;
    const size_t n = (size_t)most_left + 1;
    writer w = {.e = e, .text = text, .of = of, .most_left = most_left};
    w.powers = weir__mem_calloc(n, sizeof *w.powers);
    w.parts = weir__mem_calloc(n * of->step, sizeof *w.parts);
    if (w.powers == NULL || w.parts == NULL) {
        text->failed = true;
    } else {
        w.powers[0] = 1 % of->step;
        for (size_t i = 1; i < n; i++) w.powers[i] = w.powers[i - 1] * 10 % of->step;
        if (of->high >= 0) add_range(&w, (uint64_t)(of->low > 0 ? of->low : 0), (uint64_t)of->high);
        if (of->low < 0) {
            const bool both = w.any;
            weir__text negative = {0};
            w.text = &negative;
            w.any = false;
            add_range(&w, (uint64_t)(of->high < 0 ? -of->high : of->places == 0), (uint64_t)-of->low);
            if (w.any) weir__text_printf(text, "%s\"-\" (%s)", both ? " | " : "", negative.bytes);
            w.any |= both;
            text->failed |= negative.failed;
            weir__text_fini(&negative);
        }
        for (int left = most_left; left > 0; left--)
            for (uint64_t rest = 0; rest < of->step; rest++) {
                const size_t part = w.parts[(size_t)left * of->step + rest];
                if (part != 0) write_rule(&w, left, rest, part);
            }
    }
    weir__mem_free(w.powers);
    weir__mem_free(w.parts);
    return w.any;
}
