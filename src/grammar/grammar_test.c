/* grammar_test.c: which GBNF texts are accepted, and which line is blamed for the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "weir/more.h"

static const char *const good[] = {
    "root ::= \"a\"",
    "root ::= \"a\"\n",
    "# comment\r\n\r\nroot ::= \"a\" # more\r\n",
    "root ::=\n  \"a\"",
    "root ::= (\n  \"a\"\n  | \"b\"\n)\n",
    "root ::= \"a\" |\n \"b\"",
    "root ::= ",
    "root ::= |",
    "root ::= a-1 B2\na-1 ::= [a-zA-Z0-9_-]+\nB2 ::= [^\"\\\\\\x7F\\x00-\\x1F]* .",
    "root ::= \"\\t\\r\\n\\\\\\\"\\x41\\u00e9\\U0001F600\\[\\]\\-\"",
    "root ::= \"\\uD7FF\\uE000\" [\\uD7FF-\\uE000]",
    "root ::= [-a] [a-] [\\]] [^-] [\xC3\xA4-\xC3\xBC]",
    "root ::= \"a\"? \"b\"* \"c\"+ \"d\"{2} \"e\"{2,} \"f\"{0,3} \"g\"{ 1 , 2 }",
    "root ::= \"a\"{2000} \"b\"{0,2000}",
    "root ::= \"a\"{0}",
    "root ::= \"a\"+? \"b\"{2}{3}",
    "root ::= <[0]> !<[12]> <think> !<x y>",
    "root ::= \"(\" root \")\" | \"x\"",
    "root ::= a root | \"x\"\na ::= \"y\"? \"z\"",
    "root ::= ((((((\"x\"))))))",
    "root ::= \"\" [a] \"\"",
    /* loops over items that can be empty, with nothing after them: as common writes parallel calls */
    "root ::= (\"a\"*)*",
    "root ::= (call? space)+\ncall ::= \"c\"\nspace ::= | \" \"",
    "unused ::= \"x\"\nroot ::= \"y\"",
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weir_error error = {0};
        if (weir_grammar_check(good[i], NULL, &error) != WEIR_OK) fail_msg("%s\n%s", good[i], error.message);
    }
    assert_int_equal(weir_grammar_check("start ::= \"a\"", "start", NULL), WEIR_OK);
    assert_int_equal(weir_grammar_check("root ::= x\nx ::= \"a\"", "x", NULL), WEIR_OK);
}

static const struct bad {
    const char *text, *message;
} broken[] = {
    {"", "empty"},
    {" \n# only a comment\n", "empty"},
    {"root", "line 1, column 5: expected '::='"},
    {"root :: \"a\"", "line 1, column 6: expected '::='"},
    {"root ::= \"a\"\n\n= \"b\"", "line 3, column 1"},
    {"root ::= \"a\" )", "line 1, column 14"},
    {"root ::= \"\xE2\x82\xAC\" )", "line 1, column 14"},
    {"root ::= \"a\"\n| \"b\"", "line 2, column 1"},
    {"root ::= x\nx ::= \"a", "line 2, column 7: this literal has no closing quote"},
    {"root ::= x\nx ::= [a", "line 2, column 7: this character class has no closing bracket"},
    {"root ::= [a-", "line 1, column 10: this character class has no closing bracket"},
    {"root ::= []", "line 1, column 10: this character class is empty"},
    {"root ::= [^]", "empty"},
    {"root ::= [z-a]", "line 1, column 11: this range is reversed"},
    {"root ::= (\n\"a\"\n", "line 1, column 10: this '(' is never closed"},
    {"root ::= (\"a\" ; \"b\")", "line 1, column 15: expected ')', found ';'"},
    {"root ::= x\nx ::= \"\\q\"", "line 2, column 8: 'q' cannot follow a backslash"},
    {"root ::= \"\\x4\"", "\\x needs 2 hexadecimal digits"},
    {"root ::= \"\\u12\"", "\\u needs 4"},
    {"root ::= \"\\U00110000\"", "U+110000 is not a code point"},
    {"root ::= \"\\uD800\"", "line 1, column 11: U+D800 is half of a surrogate pair"},
    {"root ::= [a-\\U0000DFFF]", "U+DFFF is half of a surrogate pair"},
    {"root ::= [\\uDC00-\\uE000]", "U+DC00 is half of a surrogate pair"},
    {"root ::= *", "line 1, column 10: '*' has nothing before it"},
    {"root ::= \"a\" | +", "nothing before it"},
    {"root ::= \"\"*", "nothing before it"},
    {"root ::= \"a\"{", "expected a number after '{', found the end of the text"},
    {"root ::= \"a\"{x}", "expected a number after '{', found 'x'"},
    {"root ::= \"a\"{1;2}", "expected '}', found ';'"},
    {"root ::= \"a\"{1,2", "expected '}'"},
    {"root ::= \"a\"{3,2}", "line 1, column 13: the upper bound 2 is below the lower bound 3"},
    {"root ::= \"a\"{2001}", "at most 2000"},
    {"root ::= \"a\"{0,2001}", "at most 2000"},
    {"root ::= \"a\"{99999999999999999999999}", "at most 2000"},
    {"root ::= (\"a\"{0,1000}){1000}", "above 2000"},
    {"root ::= ((\"a\" \"b\"){0,50}){50}", "above 2000"},
    {"root ::= x\ny ::= \"a\"", "line 1: rule 'x' is used but not defined"},
    {"root ::= \"a\"\nb ::= \"c\" (\"d\" | e)", "line 2: rule 'e' is used but not defined"},
    {"a ::= \"b\"", "no rule 'root'"},
    {"root ::= \"a\"\nx ::= \"b\"\nroot ::= \"c\"",
     "line 3, column 1: rule 'root' is defined a second time, first on line 1"},
    {"root ::= root \"a\"", "line 1: rule 'root' is left-recursive"},
    {"root ::= \"x\" a\na ::= b \"y\"\nb ::= a | \"z\"", "is left-recursive"},
    {"root ::= a\na ::= b* a \"x\"\nb ::= \"y\"", "line 1: rule 'a' is left-recursive"},
    {"root ::= a\na ::= e e a \"y\"\ne ::= f f\nf ::= \"\" | \"x\"", "left-recursive"},
    {"root ::= (|\"a\")*", "left-recursive"},
    {"root ::= (\"a\"? root \"b\")", "left-recursive"},
    {"root ::= a\na ::= b? c? a \"x\" | \"y\"\nb ::= \"b\"\nc ::= \"c\"", "left-recursive"},
    {"root ::= <[x]>", "<[123]>"},
    {"root ::= <[12>", "<[123]>"},
    {"root ::= <[4294967297]>", "larger than any vocabulary"},
    {"root ::= <think", "no closing '>'"},
    {"root ::= !\"a\"", "'!' must be followed by a token"},
    {"root ::= \"a\"\n\"\xFF\"", "line 2 is not well-formed UTF-8"},
    {"root ::= \"\xC3", "line 1 is not well-formed UTF-8"},
    {"root ::= \"\xED\xA0\x80\"", "UTF-8"},
    {"r_oot ::= \"a\"", "line 1, column 2: expected '::='"},
    {"root ::= \"a\" \xC3\xA4", "line 1, column 14: the rule must end here"},
};

static void test_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        weir_error error = {0};
        weir_status status = weir_grammar_check(broken[i].text, NULL, &error);
        if (status != WEIR_GRAMMAR) fail_msg("%s: %s", broken[i].text, weir_status_name(status));
        if (strstr(error.message, broken[i].message) == NULL)
            fail_msg("%s: %s", broken[i].text, error.message);
        assert_int_equal(error.code, WEIR_GRAMMAR);
    }
    weir_error error = {0};
    assert_int_equal(weir_grammar_check(NULL, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "grammar");
    assert_int_equal(weir_grammar_check("root ::= \"a\"", "other", &error), WEIR_GRAMMAR);
    assert_string_equal(error.field, "grammar_root");
}

/* ---- Limits ---- */

typedef struct text {
    char *bytes;
    size_t n;
} text;

static text text_make(size_t capacity)
{
    text t = {malloc(capacity), 0};
    assert_non_null(t.bytes);
    t.bytes[0] = '\0';
    return t;
}

static void add(text *t, const char *format, int a, int b)
{
    char line[128];
    int n = snprintf(line, sizeof line, format, a, b);
    memcpy(t->bytes + t->n, line, (size_t)n + 1);
    t->n += (size_t)n;
}

static void expect(text *t, const char *message)
{
    weir_error error = {0};
    weir_status status = weir_grammar_check(t->bytes, NULL, &error);
    if (message == NULL) {
        if (status != WEIR_OK) fail_msg("%s", error.message);
    } else {
        assert_int_equal(status, WEIR_GRAMMAR);
        if (strstr(error.message, message) == NULL) fail_msg("%s", error.message);
    }
    t->n = 0;
}

static void test_limits(void **state)
{
    (void)state;
    text t = text_make(2 * WEIR__GRAMMAR_BYTES_MAX);
    for (int depth = 100; depth <= 101; depth++) {
        add(&t, "root ::= ", 0, 0);
        for (int i = 0; i < depth; i++) add(&t, "(", 0, 0);
        add(&t, "\"a\"", 0, 0);
        for (int i = 0; i < depth; i++) add(&t, ")", 0, 0);
        expect(&t, depth > 100 ? "nested deeper than 100" : NULL);
    }
    /* An open parenthesis for each byte of a megabyte. */
    memset(t.bytes, '(', 1000000);
    memcpy(t.bytes, "root ::= ", 9);
    t.bytes[1000000] = '\0';
    expect(&t, "nested deeper than 100");

    memset(t.bytes, '\n', WEIR__GRAMMAR_BYTES_MAX + 1);
    t.bytes[WEIR__GRAMMAR_BYTES_MAX + 1] = '\0';
    expect(&t, "1048577 bytes");

    /* Rules that begin with the next twice: llama.cpp's search would take 2^40 steps. */
    add(&t, "root ::= r0\n", 0, 0);
    for (int i = 0; i < 40; i++) {
        add(&t, "r%d ::= r%d", i, i + 1);
        add(&t, " | r%d \"x\"\n", i + 1, 0);
    }
    add(&t, "r40 ::= \"a\"\n", 0, 0);
    expect(&t, "too long or too many chains");

    for (int n = 900; n <= 1100; n += 200) {
        add(&t, "root ::= r0\n", 0, 0);
        for (int i = 0; i < n; i++) add(&t, "r%d ::= r%d\n", i, i + 1);
        add(&t, "r%d ::= \"a\"\n", n, 0);
        expect(&t, n > 1000 ? "too long or too many chains" : NULL);
    }
    /* A chain as long in which each rule can be empty only through the next. */
    add(&t, "root ::= r0\n", 0, 0);
    for (int i = 0; i < 20000; i++) add(&t, "r%d ::= r%d\n", (i * 7919) % 20000, (i * 7919) % 20000 + 1);
    add(&t, "r20000 ::= \"\"\n", 0, 0);
    expect(&t, "chains");

    /* 300 bytes, 2,000 times, in a few rules. */
    for (int i = 0; i < 3; i++) {
        add(&t, i == 0 ? "root ::= \"" : i == 1 ? "b ::= \"" : "c ::= \"", 0, 0);
        for (int k = 0; k < 30; k++) add(&t, "0123456789", 0, 0);
        add(&t, "\"{2000}\n", 0, 0);
    }
    expect(&t, "400000 elements");

    /* Many lines: the line is right, and counting them takes no time to speak of. */
    add(&t, "root ::= \"a\"\n", 0, 0);
    for (int i = 0; i < 30000; i++) add(&t, "r%d ::= [a-z]\n", i, 0);
    add(&t, "x ::= ?\n", 0, 0);
    expect(&t, "line 30002, column 7");
    free(t.bytes);
}

/* ---- Anything ---- */

static void test_random(void **state)
{
    static const char *const parts[] = {
        "root ::= ", "a ::= ", "\n",       " ",     "a ",   "root ", "\"x\" ", "[a-z] ", "[^\"] ", "(",
        ")",         "| ",     "* ",       "+ ",    "?",    "{",     "}",      "{2} ",   "{1,3} ", "{3,1}",
        "{0,3000}",  ". ",     "# c",      "<[1",   "]>",   "!",     "<",      "\\",     "\"",     "[",
        "]",         "\xC3",   "\xC3\xA4", "\r\n",  "_",    "\\u12", "::=",    "-",      "{9",     ",",
        "\\x",       "\\U",    "(\"y\")",  "[z-a]", "\xFF", "\t",    "r-0 ",   "{1,1}"};
    (void)state;
    uint64_t seed = 20261121;
    size_t n_good = 0;
    for (int i = 0; i < 30000; i++) {
        char grammar[512] = "";
        int n = 0;
        for (int k = 0; k < 24 && n < 480; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            if (k == 0 && (seed >> 60) != 0)
                n += snprintf(grammar, sizeof grammar, "root ::= \"x\"\na ::= \"y\"\n");
            if (k > 0 && (seed >> 33) % 6 == 0) break;
            n += snprintf(grammar + n, sizeof grammar - (size_t)n, "%s",
                          parts[(seed >> 40) % (sizeof parts / sizeof *parts)]);
        }
        weir_error error = {0};
        weir_status status = weir_grammar_check(grammar, NULL, &error);
        assert_true(status == WEIR_OK || (status == WEIR_GRAMMAR && error.message[0] != '\0'));
        n_good += status == WEIR_OK;
    }
    assert_true(n_good > 100);
}

static void test_no_memory(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_grammar_check(
            "root ::= a (\"b\" | [c-d]{2,5})*\na ::= \"x\" root? a{0,9} | b\nb ::= .", NULL, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_true(n > 0);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_broken),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
