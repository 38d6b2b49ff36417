/* cause.c: guesses the cause from the text at the divergence. Rules are tried from the surest to the
 * vaguest.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/cause.h"

#include <string.h>
#include <strings.h>

#include "params/members.h"

#define SAME_LEAST 3 /* bytes of the same text in other tokens */
#define ID_LEAST   8 /* characters of an id of a request or a session */

typedef struct text {
    const char *bytes;
    size_t n;
    size_t at; /* where it diverges from the other */
} text;

const char *weir_cause_name(weir_cause cause)
{
    return (size_t)cause <= WEIR_CAUSE_ID ? weir__cause_names[cause] : "unknown";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The number of times that the text has `what`, from a place on. */
static int count_of(const text *t, size_t from, const char *what)
{
    size_t n = strlen(what);
    int times = 0;
    for (size_t i = from; i + n <= t->n; i++) times += memcmp(t->bytes + i, what, n) == 0;
    return times;
}

/* ---- Times ---- */

/* Whether one of these words, or three or more of its first letters, starts at `at`, in any case. */
static bool is_word(const text *t, size_t at, const char *const *words, size_t n_words)
{
    size_t n = 0;
    while (at + n < t->n && is_letter(t->bytes[at + n])) n++;
    for (size_t i = 0; i < n_words; i++)
        if (n >= 3 && n <= strlen(words[i]) && strncasecmp(t->bytes + at, words[i], n) == 0) return true;
    return false;
}

static bool is_day_or_month(const text *t, size_t at)
{
    static const char *const words[] = {
        "monday",  "tuesday",   "wednesday", "thursday", "friday",   "saturday", "sunday",
        "january", "february",  "march",     "april",    "may",      "june",     "july",
        "august",  "september", "october",   "november", "december",
    };
    return is_word(t, at, words, sizeof words / sizeof *words);
}

/* The characters of dates and times, apart from letters of words. */
static bool is_of_time(char c)
{
    return is_digit(c) || (c != '\0' && strchr(":-/.,+TZ ", c) != NULL);
}

/* Whether the divergence is within a time: the name of a day or a month, digits combined as in 12:34,
 * 2024-05-01 and 1.5.2024, or 10 to 19 digits in a row, as in Unix time. */
static bool is_time(const text *t)
{
    size_t from = t->at, to = t->at, n_digits = 0, n_run = 0, longest = 0, n_marks = 0;
    size_t word = t->at;
    while (word > 0 && is_letter(t->bytes[word - 1])) word--;
    if (is_day_or_month(t, word)) return true;
    while (from > 0 && is_of_time(t->bytes[from - 1])) from--;
    while (to < t->n && is_of_time(t->bytes[to])) to++;
    for (size_t i = from; i < to; i++) {
        char c = t->bytes[i];
        if (is_digit(c)) {
            n_digits++;
            n_run++;
        } else {
            n_run = 0;
        }
        if (n_run > longest) longest = n_run;
        bool between = i > from && i + 1 < to && is_digit(t->bytes[i - 1]) && is_digit(t->bytes[i + 1]);
        if (between && strchr(":-/.", c) != NULL) n_marks += c == ':' ? 2 : 1; /* 12:34 alone is enough */
    }
    if (n_digits == 0) return false;
    if (n_marks >= 2 || (longest >= 10 && longest <= 19)) return true;
    /* "May 3, 2024": the name is before or after */
    size_t before = from, after = to;
    while (before > 0 && is_letter(t->bytes[before - 1])) before--;
    return (before < from && is_day_or_month(t, before)) || (after < t->n && is_day_or_month(t, after));
}

/* ---- The others ---- */

static const char *const reasoning[] = {
    "<think",     "</think",     "[THINK]",          "[/THINK]",
    "<reasoning", "</reasoning", "<|START_THINKING", "<|channel|>analysis"};

/* The number of times that reasoning starts or ends soon after the divergence. */
static int count_reasoning(const text *t)
{
    int n = 0;
    size_t from = t->at > 12 ? t->at - 12 : 0; /* the divergence may be within such a mark */
    text rest = *t;
    if (rest.n > t->at + 48) rest.n = t->at + 48;
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning; i++)
        n += count_of(&rest, from, reasoning[i]);
    return n;
}

/* Whether it looks like definitions of functions. */
static bool is_of_tools(const text *t)
{
    static const char *const marks[] = {"\"function\"", "\"parameters\"", "\"properties\"", "\"description\"",
                                        "\"required\"", "\"type\"",       "\"name\"",       "<tools>"};
    int n = 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) n += count_of(t, 0, marks[i]) > 0;
    return n >= 2;
}

static bool is_id(const text *t)
{
    size_t from = t->at, to = t->at, n_digits = 0;
    while (from > 0 && (is_hex(t->bytes[from - 1]) || t->bytes[from - 1] == '-')) from--;
    while (to < t->n && (is_hex(t->bytes[to]) || t->bytes[to] == '-')) to++;
    for (size_t i = from; i < to; i++) n_digits += is_digit(t->bytes[i]);
    return to - from >= ID_LEAST && n_digits >= 2;
}

/* Whether the texts are equal after the divergence, apart from white space, as far as both go. */
static bool is_white(const text *a, const text *b)
{
    size_t i = a->at, j = b->at, n = 0;
    bool differs = false;
    for (;;) {
        size_t x = i, y = j;
        while (x < a->n && is_space(a->bytes[x])) x++;
        while (y < b->n && is_space(b->bytes[y])) y++;
        differs |= x - i != y - j || memcmp(a->bytes + i, b->bytes + j, x - i) != 0;
        i = x;
        j = y;
        if (i == a->n || j == b->n) return differs && n > 0;
        if (a->bytes[i++] != b->bytes[j++]) return false;
        n++;
    }
}

weir_cause weir__cause_of(const char *prompt, size_t n_prompt, const char *cached, size_t n_cached,
                          size_t n_common)
{
    size_t n = n_prompt < n_cached ? n_prompt : n_cached, at = n_common < n ? n_common : n;
    if (n == 0) return WEIR_CAUSE_OTHER;
    while (at < n && prompt[at] == cached[at]) at++;
    const text a = {prompt, n_prompt, at}, b = {cached, n_cached, at};
    if (at == n && at >= n_common + SAME_LEAST) return WEIR_CAUSE_TOKENS;
    if (count_reasoning(&a) != count_reasoning(&b)) return WEIR_CAUSE_REASONING;
    if (is_time(&a) && is_time(&b)) return WEIR_CAUSE_TIME;
    if (is_white(&a, &b)) return WEIR_CAUSE_WHITESPACE;
    if (is_of_tools(&a) && is_of_tools(&b)) return WEIR_CAUSE_TOOLS;
    if (is_id(&a) && is_id(&b)) return WEIR_CAUSE_ID;
    return WEIR_CAUSE_OTHER;
}
