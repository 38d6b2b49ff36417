/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_near(void **state)
{
    static const char *const near[][2] = {
        {"temprature", "temperature"},
        {"temperatur", "temperature"},
        {"Temperature", "temperature"},
        {"tempreature", "temperature"},
        {"max_token", "max_tokens"},
        {"maxTokens", "max_tokens"},
        {"MAX_TOKENS", "max_tokens"},
        {"max-tokens", "max_tokens"},
        {"maxtoken", "max_tokens"},
        {"topp", "top_p"},
        {"topP", "top_p"},
        {"top_pp", "top_p"},
        {"sed", "seed"},
        {"sede", "seed"},
        {"stopp", "stop"},
        {"sotp", "stop"},
        {"modle", "model"},
        {"steam", "stream"},
        {"N", "n"},
        {"rol", "role"},
        {"txt", "text"},
        {"strct", "strict"},
        {"respones_format", "response_format"},
    };
    static const char *const far[][2] = {
        {"m", "n"},
        {"nn", "n"},
        {"store", "stop"},
        {"us", "use"},
        {"", "n"},
        {"x", ""},
        {"", ""},
        {"_", ""},
        {"top_k", "temp"},
        {"seeds!!", "seed"},
        {"id", "n"},
        {"prefix", "suffix"},
        {"tools", "tokens"},
        {"format", "prompts"},
        {"input", "images"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(near); i++)
        if (weir__words_near(near[i][0], near[i][1]) < 0) fail_msg("%s, %s", near[i][0], near[i][1]);
    for (size_t i = 0; i < COUNT(far); i++)
        if (weir__words_near(far[i][0], far[i][1]) >= 0) fail_msg("%s, %s", far[i][0], far[i][1]);
}

/* The number of edits as it is defined, by trying all. */
static int edits(const char *a, size_t n, const char *b, size_t m)
{
    if (n == 0 || m == 0) return (int)(n + m);
    int least = edits(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]);
    int without = edits(a, n - 1, b, m), with = edits(a, n, b, m - 1);
    if (without + 1 < least) least = without + 1;
    if (with + 1 < least) least = with + 1;
    if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1]) {
        int swapped = edits(a, n - 2, b, m - 2) + 1;
        if (swapped < least) least = swapped;
    }
    return least;
}

static void test_random(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 4000; round++) {
        char a[8], b[8];
        size_t n = (size_t)(rand() % 8), m = (size_t)(rand() % 8);
        for (size_t i = 0; i < n; i++) a[i] = (char)('a' + rand() % 3);
        for (size_t i = 0; i < m; i++) b[i] = (char)('a' + rand() % 3);
        a[n] = b[m] = '\0';
        if (n == 8 || m == 8) continue;
        int most = n < 3 || m < 3 ? 0 : m < 6 ? 1 : 2, count = edits(a, n, b, m);
        int wanted = m == 0 || count > most ? -1 : count;
        if (weir__words_near(a, b) != wanted) fail_msg("%s, %s", a, b);
    }
}

static void test_long(void **state)
{
    char *name = calloc(1, 1 << 20);
    (void)state;
    assert_non_null(name);
    memset(name, 't', (1 << 20) - 1);
    for (int i = 0; i < 1000000; i++) assert_int_equal(weir__words_near(name, "temperature"), -1);
    memset(name, '_', (1 << 20) - 1); /* which count as no letters */
    for (int i = 0; i < 1000000; i++) assert_int_equal(weir__words_near(name, "temperature"), -1);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
