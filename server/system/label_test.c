/* label_test.c: values of labels in Prometheus' text format. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "label.h"

/* The format's reader: the three escapes; behind any other backslash both characters stay. */
static void read_back(const char *quoted, char *out)
{
    size_t n = strlen(quoted);
    assert_true(n >= 2 && quoted[0] == '"' && quoted[n - 1] == '"');
    for (size_t i = 1; i < n - 1; i++) {
        assert_true(quoted[i] != '\n' && quoted[i] != '"');
        bool escape = quoted[i] == '\\' && strchr("\\\"n", quoted[i + 1]) != NULL;
        if (escape) i++;
        *out++ = (char)(escape && quoted[i] == 'n' ? '\n' : quoted[i]);
    }
    *out = '\0';
}

static void every_name_comes_back(void **state)
{
    (void)state;
    static const char *const names[] = {"",     "plain",     "a\"b",         "a\\b",     "a\\nb",
                                        "a\nb", "tab\there", "\x01\x1f\x7f", "\\\"\n\\", "Grüße 日本"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weir__text text = {0};
        char got[64];
        serve_label_quote(&text, names[i], strlen(names[i]));
        weir__text_add(&text, "", 1);
        assert_false(text.failed);
        read_back(text.bytes, got);
        assert_string_equal(got, names[i]);
        weir__text_fini(&text);
    }
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    weir__text text = {0};
    serve_label_quote(&text, "a\xff\"", 3);
    assert_int_equal(text.n, 8);
    assert_memory_equal(text.bytes, "\"a\xef\xbf\xbd\\\"\"", 8);
    weir__text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_comes_back),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
