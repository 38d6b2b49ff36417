/* effort.c: the tokens that reasoning may take, by the effort. SPDX-License-Identifier: Apache-2.0 */
#include "effort.h"

#include <stdlib.h>
#include <string.h>
#include <weir/more.h>

#include "base/error.h"

static const char *const levels[] = {"", "none", "minimal", "low", "medium", "high", "xhigh", "max", NULL};
#define N_LEVELS (sizeof levels / sizeof *levels - 1)

/* The next item: *level is its place in `levels`, *n its number, *rest the items behind it. False: it is no
 * item. */
static bool read_item(const char *text, size_t *level, int32_t *n, const char **rest)
{
    const weir_member *member = weir_member_find("request", "reasoning_budget");
    size_t length = strcspn(text, ","), name = strcspn(text, "=,");
    bool named = text[name] == '=';
    const char *number = named ? text + name + 1 : text;
    char *end = NULL;
    if (!named) name = 0;
    for (*level = 0; *level < N_LEVELS; ++*level)
        if (strlen(levels[*level]) == name && memcmp(levels[*level], text, name) == 0) break;
    long value = strtol(number, &end, 10);
    *n = (int32_t)value;
    *rest = text[length] == ',' ? text + length + 1 : NULL;
    return *level < N_LEVELS && named == (*level > 0) && end != number && end == text + length &&
           strchr("-0123456789", *number) != NULL && value >= -1 && value <= (long)member->max;
}

weir_status serve_effort_check(const char *budgets, weir_error *error)
{
    bool known[N_LEVELS] = {false};
    for (const char *rest, *at = budgets; at != NULL; at = rest) {
        size_t level;
        int32_t n;
        if (!read_item(at, &level, &n, &rest) || known[level])
            return weir__error_set(
                error, WEIR_INVALID, "reasoning_budget",
                "\"%.100s\" is not a list such as 4096,low=512,high=8192: numbers of tokens "
                "(-1 = no limit), at most one for each of none, minimal, low, medium, high, "
                "xhigh and max, and one for all others",
                budgets);
        known[level] = true;
    }
    return WEIR_OK;
}

int32_t serve_effort_budget(const char *budgets, const char *effort)
{
    int32_t found = -1, n;
    size_t level;
    for (const char *rest, *at = budgets; at != NULL && read_item(at, &level, &n, &rest); at = rest) {
        if (effort != NULL && level > 0 && strcmp(levels[level], effort) == 0) return n;
        if (level == 0) found = n;
    }
    return found;
}

const char *const *serve_effort_words(void)
{
    return levels + 1;
}

const char *serve_effort_word(const char *word)
{
    for (size_t i = 1; word != NULL && i < N_LEVELS; i++)
        if (strcmp(levels[i], word) == 0) return levels[i];
    return NULL;
}

/* True if the source has the word in quotation marks. */
static bool has_word(const char *source, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = source; (at = strstr(at, word)) != NULL; at += n)
        if (at > source && (at[-1] == '"' || at[-1] == '\'') && at[n] == at[-1]) return true;
    return false;
}

const char *serve_effort_level(const char *source, const char *level)
{
    static const char *const nearest[][3] = {
        {"minimal", "low"}, {"xhigh", "max", "high"}, {"max", "xhigh", "high"}};
    if (source == NULL) return level;
    for (size_t i = 0; i < sizeof nearest / sizeof *nearest; i++) {
        const char *const *words = nearest[i];
        size_t k = 0;
        if (strcmp(words[0], level) != 0) continue;
        while (k + 1 < 3 && words[k + 1] != NULL && !has_word(source, words[k])) k++;
        return k == 0 ? level : words[k];
    }
    return level;
}
