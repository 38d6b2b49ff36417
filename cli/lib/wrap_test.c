/* wrap_test.c: lines break at the same places however a text is cut into pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The text in pieces of `piece` bytes. */
static void expect_pieces(const char *text, int columns, size_t piece, const char *expected)
{
    cli_wrap wrap = {0};
    cli_text out = {0};
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t end = at + piece < n ? at + piece : n;
        while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80) end++; /* characters come whole */
        cli_wrap_add(&wrap, text + at, end - at, columns, &out);
        at = end;
    }
    cli_wrap_flush(&wrap, columns, &out);
    assert_string_equal(out.n > 0 ? out.bytes : "", expected);
    cli_wrap_fini(&wrap);
    weir__text_fini(&out);
}

/* Asserts the result of the text in pieces of any size. */
static void expect(const char *text, int columns, const char *expected)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) expect_pieces(text, columns, piece, expected);
}

static void test_words(void **state)
{
    (void)state;
    expect("one two three", 20, "one two three");
    expect("one two three", 9, "one two\nthree");
    expect("one two three", 7, "one two\nthree");
    expect("one two three", 6, "one\ntwo\nthree");
    expect("one  two", 4, "one\ntwo");
    expect("one\ntwo\n\nthree", 4, "one\ntwo\n\nthree");
    expect("- a b\n  - c d e", 7, "- a b\n  - c d\ne");
    expect("a\tb", 20, "a       b");
    expect("ends. ", 20, "ends. ");
    expect("line \nnext", 20, "line\nnext");
    expect("", 20, "");
}

static void test_wide(void **state)
{
    (void)state;
    expect("abcdefghij kl", 4,
           "abcdefghij\nkl"); /* the terminal breaks the first word: its rest has 2 columns */
    expect("abcdefghij k", 4, "abcdefghij k");
    expect("a 長い文字", 5, "a 長\nい文\n字");
    expect("naïve café", 5, "naïve\ncafé");
}

static void test_code(void **state)
{
    (void)state;
    expect("see this\n```c\nint a = b + c;\n```\nor that one", 8,
           "see this\n```c\nint a = b + c;\n```\nor that\none");
    expect("  ```\na b c\n  ```\na b c", 4, "  ```\na b c\n  ```\na b\nc");
}

static void expect_text(const char *text, int column, int indent, const char *expected)
{
    cli_text out = {0};
    cli_wrap_text(&out, text, column, indent, 8);
    assert_string_equal(out.bytes, expected);
    weir__text_fini(&out);
}

static void test_whole(void **state)
{
    (void)state;
    expect_text("one two", 0, 2, "one two");
    expect_text("one two", 4, 2, "one\n  two");
    expect_text("one two six", 0, 2, "one two\n  six");
    expect_text("a bc de\n\nfg", 4, 2, "a bc\n  de\n\n  fg");
    expect_text("incomparable", 4, 2, "incomparable");
    expect_text("incomparable it is", 0, 2, "incomparable\n  it is");
    expect_text("one;two;six", 0, 2, "one;two;\n  six");
    expect_text("\033[1mone\033[0m two\033[31;1m\n", 0, 0, "\033[1mone\033[0m two\033[31;1m\n");
    expect_text("\033[2mone two\033[0m six", 0, 0, "\033[2mone two\033[0m\nsix");
}

int main(void)
{
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
