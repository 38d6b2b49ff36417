/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

static void rates_follow_what_is_measured(void **state)
{
    (void)state;
    weir__rates rates = {0};
    assert_int_equal(weir__rates_retry_ns(&rates, 4, 1), 1000 * WEIR__NS_PER_MS); /* nothing is known */
    weir__rates_finished(&rates, 800 * WEIR__NS_PER_MS);
    assert_int_equal(weir__rates_retry_ns(&rates, 4, 1), 200 * WEIR__NS_PER_MS);
    assert_int_equal(weir__rates_retry_ns(&rates, 4, 3), 600 * WEIR__NS_PER_MS);
    for (int i = 0; i < 100; i++) weir__rates_finished(&rates, 400 * WEIR__NS_PER_MS);
    assert_in_range(weir__rates_retry_ns(&rates, 4, 1), 99 * WEIR__NS_PER_MS, 101 * WEIR__NS_PER_MS);
    assert_int_equal(weir__rates_retry_ns(&rates, 256, 0), WEIR__NS_PER_MS);
    assert_int_equal(weir__rates_retry_ns(&rates, 1, INT64_MAX), 3600 * 1000 * WEIR__NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_what_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
