/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static void levels(void **state)
{
    (void)state;
    assert_int_equal(weir__rank_level(0, 29 * MS, 10 * MS, 100), 2);
    assert_int_equal(weir__rank_level(0, 29 * MS, 10 * MS, 1), 1);
    assert_int_equal(weir__rank_level(5, 29 * MS, 10 * MS, 1), 5); /* never less than its own */
    assert_int_equal(weir__rank_level(0, 29 * MS, 0, 100), 0);
    assert_int_equal(weir__rank_level(0, -29 * MS, 10 * MS, 100), 0);
    assert_int_equal(weir__rank_level(-100, INT64_MAX, 1, INT32_MAX), INT32_MAX);
}

static void the_level_decides_then_the_salt_then_age(void **state)
{
    (void)state;
    const weir__rank in_order[] = {{2, 9, 9}, {1, 3, 8}, {1, 4, 1}, {1, 4, 2}, {-1, 0, 0}};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) assert_int_equal(weir__rank_before(&in_order[i], &in_order[k]), i < k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(the_level_decides_then_the_salt_then_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
