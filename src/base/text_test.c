/* text_test.c: additions, lengths, and failures that stay.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static void additions_are_appended(void **state)
{
    (void)state;
    weir__text text = {0};
    char expected[2000] = "";
    assert_true(weir__text_add(&text, NULL, 0));
    assert_string_equal(text.bytes, "");
    for (int i = 0; i < 300; i++) {
        assert_true(i % 2 == 0 ? weir__text_add_string(&text, "weir") : weir__text_add(&text, "abc", 2));
        strcat(expected, i % 2 == 0 ? "weir" : "ab");
        assert_string_equal(text.bytes, expected);
        assert_int_equal(text.n, strlen(expected));
    }
    weir__text_fini(&text);
    assert_null(text.bytes);
    assert_int_equal(text.n + text.capacity, 0);
    weir__text_fini(&text);
    assert_int_equal(weir__mem_live(), 0);
}

static void without_memory_nothing_is_added(void **state)
{
    (void)state;
    weir__text text = {0};
    char more[200];
    memset(more, 'x', sizeof more);
    assert_true(weir__text_add_string(&text, "weir"));
    weir__mem_fail_after(0);
    assert_false(weir__text_add(&text, more, sizeof more));
    weir__mem_fail_after(-1);
    assert_string_equal(text.bytes, "weir");
    assert_int_equal(text.n, 4);
    weir__text_fini(&text);
}

static void printed_texts_have_their_length(void **state)
{
    (void)state;
    weir__text text = {0};
    assert_true(weir__text_printf(&text, "%d%s", 1, "a"));
    assert_true(weir__text_printf(&text, "%0300d", 2));
    assert_int_equal(text.n, 302);
    assert_int_equal(strlen(text.bytes), 302);
    weir__text_clear(&text);
    assert_string_equal(text.bytes, "");
    weir__text_add_string(&text, "weir, cut");
    weir__text_cut(&text, 4);
    assert_int_equal(text.n, 4);
    assert_string_equal(text.bytes, "weir");
    weir__text_fini(&text);
    char *line = weir__text_format("%s: %zu", "weir", (size_t)7);
    assert_string_equal(line, "weir: 7");
    weir__mem_free(line);
    weir__mem_fail_after(0);
    assert_null(weir__text_format("%d", 1));
    weir__mem_fail_after(-1);
    assert_int_equal(weir__mem_live(), 0);
}

/* A writer may look once, at the end; a reader who tries again may succeed. */
static void a_failure_stays_known(void **state)
{
    (void)state;
    weir__text text = {0};
    weir__mem_fail_after(0);
    assert_false(weir__text_add_string(&text, "weir"));
    weir__mem_fail_after(-1);
    assert_true(weir__text_add_string(&text, "weir"));
    assert_string_equal(text.bytes, "weir");
    assert_true(text.failed);
    weir__text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(additions_are_appended),
        cmocka_unit_test(without_memory_nothing_is_added),
        cmocka_unit_test(printed_texts_have_their_length),
        cmocka_unit_test(a_failure_stays_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
