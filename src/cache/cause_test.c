/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cause.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"

/* `common` bytes are in tokens that both have; 0 = as far as the texts agree. */
static const struct {
    weir_cause cause;
    const char *prompt, *cached;
    size_t common;
} table[] = {
    /* times: in every form in which templates and programs write them */
    {WEIR_CAUSE_TIME, "Today is 2026-11-22. You are", "Today is 2026-11-21. You are", 0},
    {WEIR_CAUSE_TIME, "Today Date: 22 Nov 2026\n\nYou", "Today Date: 3 Nov 2026\n\nYou", 0},
    {WEIR_CAUSE_TIME, "Today Date: 01 Dec 2026\n\nYou", "Today Date: 30 Nov 2026\n\nYou", 0},
    {WEIR_CAUSE_TIME, "It is 12:34 now", "It is 12:35 now", 0},
    {WEIR_CAUSE_TIME, "It is 9:59 now", "It is 10:00 now", 0},
    {WEIR_CAUSE_TIME, "time=2026-11-22T10:15:00Z, user=7", "time=2026-11-22T10:15:01Z, user=7", 0},
    {WEIR_CAUSE_TIME, "on 1.5.2026, you", "on 30.4.2026, you", 0},
    {WEIR_CAUSE_TIME, "Date: Monday, the first", "Date: Sunday, the last", 0},
    {WEIR_CAUSE_TIME, "Thursday it is", "Tuesday it is", 0},
    {WEIR_CAUSE_TIME, "November 22, 2026", "November 21, 2026", 0},
    {WEIR_CAUSE_TIME, "Since Jan 3 it", "Since Feb 1 it", 0},
    {WEIR_CAUSE_TIME, "{\"now\":1795341600,", "{\"now\":1795341631,", 0},
    {WEIR_CAUSE_TIME, "{\"now\":1795341600123,", "{\"now\":1795341631456,", 0},
    /* no times */
    {WEIR_CAUSE_OTHER, "There are 3 apples", "There are 4 apples", 0},
    {WEIR_CAUSE_OTHER, "version 3.5 of it", "version 3.6 of it", 0},
    {WEIR_CAUSE_OTHER, "Today is 2026-11-22", "Today is the day of days", 0},
    {WEIR_CAUSE_OTHER, "What is money for?", "What is marble for?", 0},
    {WEIR_CAUSE_OTHER, "What is a weir?", "What is a lock?", 0},
    {WEIR_CAUSE_OTHER, "on May : yes", "on May / yes", 0}, /* no digits */
    {WEIR_CAUSE_OTHER, "", "", 0},
    /* reasoning: shown when it was generated, left out or empty in what is sent back */
    {WEIR_CAUSE_REASONING, "<|im_start|>assistant\nThe answer is 4.",
     "<|im_start|>assistant\n<think>\nTwo and", 0},
    {WEIR_CAUSE_REASONING, "assistant\n<think>\n\n</think>\n\nFour", "assistant\n<think>\nOkay, the user", 0},
    {WEIR_CAUSE_REASONING, "assistant\nHello", "assistant\n<reasoning>Well", 0},
    {WEIR_CAUSE_REASONING, "<|start|>assistant<|channel|>final<|message|>4",
     "<|start|>assistant<|channel|>analysis<|message|>2+2", 0},
    {WEIR_CAUSE_REASONING, "[/INST]Four.", "[/INST][THINK]Two and two", 0},
    {WEIR_CAUSE_OTHER, "<think>\nOkay, two", "<think>\nHm, three", 0},
    /* tools */
    {WEIR_CAUSE_TOOLS, "{\"type\": \"function\", \"function\": {\"name\": \"add\"",
     "{\"type\": \"function\", \"function\": {\"name\": \"find\"", 0},
    {WEIR_CAUSE_TOOLS, "{\"name\":\"a\",\"description\":\"b\"", "{\"description\":\"b\",\"name\":\"a\"", 0},
    {WEIR_CAUSE_OTHER, "{\"type\": \"function\", \"function\": {", "no tools are there", 0},
    /* white space */
    {WEIR_CAUSE_WHITESPACE, "Hello!<|im_end|>\n<|im_start|>user", "Hello!\n<|im_end|>\n<|im_start|>user", 0},
    {WEIR_CAUSE_WHITESPACE, "one  two three", "one two three", 0},
    {WEIR_CAUSE_WHITESPACE, "a\r\nb c d", "a\nb c d", 0},
    {WEIR_CAUSE_OTHER, "one  two three", "one two four", 0},
    /* tokens */
    {WEIR_CAUSE_TOKENS, "the same text", "the same text", 4},
    {WEIR_CAUSE_TOKENS, "the same text and more", "the same text", 4},
    {WEIR_CAUSE_OTHER, "the s", "the s", 4},
    /* ids */
    {WEIR_CAUSE_ID,
     "request 3fa85f64-5717-4562-b3fc-2c963f66afa6:", "request 9b2c1d7e-88aa-41f0-9e1c-0123456789ab:", 0},
    {WEIR_CAUSE_ID, "session=77d1e0a93b2f", "session=0b9c2ea1f4d8", 0},
    {WEIR_CAUSE_OTHER, "the word decade", "the word facade", 0},
};

static size_t agree(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n]) n++;
    return n;
}

static void test_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int swapped = 0; swapped < 2; swapped++) {
            const char *a = swapped ? table[i].cached : table[i].prompt;
            const char *b = swapped ? table[i].prompt : table[i].cached;
            size_t common = table[i].common > 0 ? table[i].common : agree(a, b);
            weir_cause cause = weir__cause_of(a, strlen(a), b, strlen(b), common);
            if (cause != table[i].cause)
                fail_msg("\"%s\" beside \"%s\" is %s, not %s", a, b, weir_cause_name(cause),
                         weir_cause_name(table[i].cause));
        }
}

/* Any bytes; the sanitizers watch. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char letters[] = "<think>/12:34-MondayT \n\"name\"{}\xff\x00"
                                  "ab";
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (int i = 0; i < 20000; i++) {
        char a[64], b[64];
        size_t n_a = (size_t)dice_in(&d, 0, 64), n_b = (size_t)dice_in(&d, 0, 64);
        for (size_t k = 0; k < n_a; k++) a[k] = letters[dice_in(&d, 0, sizeof letters - 2)];
        memcpy(b, a, sizeof b);
        for (size_t k = (size_t)dice_in(&d, 0, 64); k < n_b; k++)
            b[k] = letters[dice_in(&d, 0, sizeof letters - 2)];
        char *p = n_a > 0 ? memcpy(test_malloc(n_a), a, n_a) : NULL; /* so that a byte too far is seen */
        char *c = n_b > 0 ? memcpy(test_malloc(n_b), b, n_b) : NULL;
        weir_cause cause = weir__cause_of(p, n_a, c, n_b, (size_t)dice_in(&d, 0, 70));
        assert_string_not_equal(weir_cause_name(cause), "unknown");
        if (p != NULL) test_free(p);
        if (c != NULL) test_free(c);
    }
}

static void test_causes_have_names(void **state)
{
    (void)state;
    assert_string_equal(weir_cause_name(WEIR_CAUSE_OTHER), "other");
    assert_string_equal(weir_cause_name(WEIR_CAUSE_ID), "id");
    assert_string_equal(weir_cause_name((weir_cause)(WEIR_CAUSE_ID + 1)), "unknown");
    assert_string_equal(weir_cause_name((weir_cause)-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_causes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
