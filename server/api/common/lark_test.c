/* Lark's grammars as expressions. The library tests what they match; these tests compare their texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lark.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void each_form(void **state)
{
    static const char *const cases[][2] = {
        {"start: \"a\"", "(?:(?:a))"},
        {"start: \"a.b\\n\\\"\\\\\\x41\\u00e9\"", "(?:(?:a\\.b\\n\"\\\\\\x41\\u00e9))"},
        {"start: \"é😀\"", "(?:(?:é😀))"},
        {"start: /[a-z]+\\/x/", "(?:(?:[a-z]+/x))"},
        {"start: \"a\" | \"b\" \"c\"", "(?:(?:a)|(?:b)(?:c))"},
        {"start: \"a\"? \"b\"* \"c\"+", "(?:(?:a)?(?:b)*(?:c)+)"},
        {"start: \"a\" ~ 3 (\"b\" | \"c\") ~ 1..2", "(?:(?:a){3}(?:(?:b)|(?:c)){1,2})"},
        {"start: [\"a\"] \"b\"", "(?:(?:(?:a))?(?:b))"},
        {"start: \"a\"..\"f\"+", "(?:[a-f]+)"},
        {"start: x -> one\n     | Y\nx: \"1\"\nY.2: /2/", "(?:(?:(?:1))|(?:(?:2)))"},
        {"// a comment\n?start: (x\n Y) // more\n\n!x: \"1\"\n\nY: \"2\"\n", "(?:(?:(?:(?:1))(?:(?:2))))"},
        {"start: x*\nx:\n", "(?:(?:)*)"},
        {"%import common.LF\n%import common.INT -> N\n%import common (DIGIT, CR)\nstart: N LF DIGIT CR",
         "(?:(?:[0-9]+)(?:\\n)(?:[0-9])(?:\\r))"},
        {"start: \"(\" a \")\" a\na: \"|\"", "(?:(?:\\()(?:(?:\\|))(?:\\))(?:(?:\\|)))"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[SERVE_LARK_WHY_MAX];
        weir__text text = {0};
        if (!serve_lark_pattern(cases[i][0], &text, why)) fail_msg("%s: %s", cases[i][0], why);
        assert_string_equal(text.bytes, cases[i][1]);
        weir__text_fini(&text);
    }
}

static void refusals_say_why(void **state)
{
    static const char *const cases[][2] = {
        {"", "there is no \"start\""},
        {"begin: \"a\"", "there is no \"start\""},
        {"start: a\na: \"(\" a \")\" |", "\"a\" contains itself"},
        {"start: b\nb: c\nc: b", "\"b\" contains itself"},
        {"start: \"a\"\nstart: \"b\"", "\"start\" is defined twice"},
        {"start: \"a", "a string has no end"},
        {"start: /a", "an expression between slashes has no end"},
        {"start: /a/i", "flags of an expression are not supported"},
        {"start: \"a\"i", "the flag i of a string is not supported"},
        {"start: (\"a\"", "a bracket is not closed"},
        {"start: \"a\")", "\"start\" goes on with \")\""},
        {"start: (\"a\"]", "a bracket is not closed"},
        {"start: x{\"a\"}\nx: \"b\"", "\"x\" is a template"},
        {"start: \"a\"\n%ignore \" \"", "%ignore is not supported"},
        {"%import python.NAME\nstart: NAME", "%import is of common terminals only"},
        {"%import common.SH_COMMENT\nstart: SH_COMMENT", "\"common.SH_COMMENT\" is not known here"},
        {"start \"a\"", "expected a colon after \"start\""},
        {"start: \"a\" ~ x", "~ needs a number"},
        {"start: *", "\"*\" is not expected"},
        {"start: \"\\xg0\"", "\\x needs 2 digits"},
        {"= 3", "\"= 3\" is not a definition"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[SERVE_LARK_WHY_MAX];
        weir__text text = {0};
        assert_false(serve_lark_pattern(cases[i][0], &text, why));
        assert_string_equal(why, cases[i][1]);
        weir__text_fini(&text);
    }
}

/* Each rule names the next one twice; groups within groups; many rules. */
static void work_is_bounded(void **state)
{
    char why[SERVE_LARK_WHY_MAX];
    weir__text grammar = {0}, text = {0};
    (void)state;
    weir__text_add_string(&grammar, "start: r0\n");
    for (int i = 0; i < 20; i++) weir__text_printf(&grammar, "r%d: r%d r%d r%d\n", i, i + 1, i + 1, i + 1);
    weir__text_add_string(&grammar, "r20: \"a\"\n");
    assert_false(serve_lark_pattern(grammar.bytes, &text, why));
    assert_string_equal(why, "it is too large");
    assert_true(text.n < 1 << 17);
    weir__text_fini(&grammar);
    weir__text_fini(&text);

    weir__text_add_string(&grammar, "start: ");
    for (int i = 0; i < 10000; i++) weir__text_add_string(&grammar, "(");
    assert_false(serve_lark_pattern(grammar.bytes, &text, why));
    assert_string_equal(why, "rules and groups are nested deeper than 24");
    weir__text_fini(&grammar);
    weir__text_fini(&text);

    for (int i = 0; i < 300; i++) weir__text_printf(&grammar, "r%d: \"a\"\n", i);
    assert_false(serve_lark_pattern(grammar.bytes, &text, why));
    assert_string_equal(why, "there are more than 256 rules");
    weir__text_fini(&grammar);
    weir__text_fini(&text);
}

/* Any bytes: no access outside, and an end. */
static void random_texts(void **state)
{
    static const char *const words[] = {
        "start",   ":",  " ",  "\n",    "a",   "\"",     "/",  "(",  ")",
        "[",       "]",  "|",  "?",     "*",   "~ 2..3", "..", "->", "%import common.LF",
        "%ignore", "//", "\\", "\"x\"", "/y/", "{",      "i",  ".1"};
    unsigned seed = 1;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char why[SERVE_LARK_WHY_MAX];
        weir__text grammar = {0}, text = {0};
        weir__text_add_string(&grammar, "start: ");
        for (int i = 0; i < 12; i++) {
            seed = seed * 1103515245U + 12345U;
            weir__text_add_string(&grammar, words[(seed >> 16) % (sizeof words / sizeof *words)]);
        }
        bool ok = serve_lark_pattern(grammar.bytes, &text, why);
        assert_int_equal(ok, why[0] == '\0');
        weir__text_fini(&grammar);
        weir__text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(work_is_bounded),
        cmocka_unit_test(random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
