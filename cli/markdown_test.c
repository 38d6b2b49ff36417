/* Markdown without colours: what the marks leave of a text, wherever it is cut.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "markdown.h"

static const struct {
    const char *from, *to;
} cases[] = {
    {"plain", "plain"},
    {"", ""},
    {"# A title\ntext", "A title\ntext"},
    {"###### Six\n####### seven", "Six\n####### seven"},
    {"#hash #tag", "#hash #tag"},
    {"a **bold** word", "a bold word"},
    {"**all bold**\nnot", "all bold\nnot"},
    {"2 * 3 * 4 and *x*", "2 * 3 * 4 and *x*"},
    {"a * ", "a * "},
    {"ends with *", "ends with *"},
    {"line *\nnext", "line *\nnext"},
    {"use `a ** b` here", "use a ** b here"},
    {"- one\n* two\n+ three\n  - four", "• one\n• two\n• three\n  • four"},
    {"-1 and --x", "-1 and --x"},
    {"-\n*\n#\n>", "-\n*\n#\n>"},
    {"> said", "│ said"},
    {"```c\nint a = b ** 2; // `x`\n# no title\n- no list\n```\nafter",
     "int a = b ** 2; // `x`\n# no title\n- no list\nafter"},
    {"``` \n  indented\n```", "  indented\n"},
    {"``two`` ticks", "two ticks"},
    {"\n\nempty\n\n", "\n\nempty\n\n"},
    {"wörter **größer** 😀", "wörter größer 😀"},
    {"bell \a esc \033[2J", "bell \xef\xbf\xbd esc \xef\xbf\xbd[2J"},
};

/* Cut into two at every place that no character is cut at, and into single characters. */
static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *from = cases[i].from;
        size_t n = strlen(from);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            cli_markdown markdown = {0};
            cli_text out = {0};
            if (cut <= n && ((unsigned char)from[cut] & 0xc0) == 0x80) continue;
            if (cut <= n) {
                cli_markdown_feed(&markdown, from, cut, &out);
                cli_markdown_feed(&markdown, from + cut, n - cut, &out);
            } else
                for (size_t at = 0, used; at < n; at += used) {
                    cli_text_decode(from + at, n - at, &used);
                    cli_markdown_feed(&markdown, from + at, used, &out);
                }
            cli_markdown_end(&markdown, &out);
            assert_string_equal(out.bytes != NULL ? out.bytes : "", cases[i].to);
            cli_text_fini(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
