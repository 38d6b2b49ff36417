/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static void what_is_added_stands_behind_what_was_there(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_added_stands_behind_what_was_there),
        cmocka_unit_test(without_memory_nothing_is_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
