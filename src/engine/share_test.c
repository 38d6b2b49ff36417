/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static void what_was_served_is_halved_each_half_life(void **state)
{
    (void)state;
    static weir__shares shares;
    memset(&shares, 0, sizeof shares);
    weir__share *share = weir__share_hold(&shares, 7, SECOND);
    assert_int_equal(weir__share_served(share, SECOND), 0);
    weir__share_bill(share, 1000, SECOND);
    assert_int_equal(weir__share_served(share, SECOND), 1000);
    assert_int_equal(weir__share_served(share, 0), 1000); /* a clock read earlier */
    assert_int_equal(weir__share_served(share, SECOND + WEIR__SHARE_HALF_NS), 500);
    weir__share_bill(share, 100, SECOND + WEIR__SHARE_HALF_NS);
    assert_int_equal(weir__share_served(share, SECOND + 2 * WEIR__SHARE_HALF_NS), 300);
    assert_int_equal(weir__share_served(share, SECOND + 20 * WEIR__SHARE_HALF_NS),
                     0); /* nothing, not a bit */
    assert_int_equal(weir__share_served(NULL, 0), 0);
}

static void a_salt_keeps_its_share_while_and_after_it_lives(void **state)
{
    (void)state;
    static weir__shares shares;
    memset(&shares, 0, sizeof shares);
    assert_null(weir__share_find(&shares, 7));
    weir__share *share = weir__share_hold(&shares, 7, 0);
    assert_ptr_equal(weir__share_hold(&shares, 7, 0), share);
    assert_ptr_not_equal(weir__share_hold(&shares, 0, 0), share); /* no salt is one of its own */
    weir__share_bill(share, 10, 0);
    weir__share_release(share);
    weir__share_release(share);
    assert_int_equal(weir__share_served(weir__share_find(&shares, 7), 0), 10);
    assert_ptr_equal(weir__share_hold(&shares, 7, 0), share);
}

static void beyond_the_limit_salts_count_as_one_and_lose_nothing(void **state)
{
    (void)state;
    static weir__shares shares;
    weir__share *held[WEIR__SHARES + 3];
    memset(&shares, 0, sizeof shares);
    for (uint64_t i = 0; i < WEIR__SHARES + 3; i++) {
        held[i] = weir__share_hold(&shares, 1000 + i, 0);
        weir__share_bill(held[i], (int32_t)i + 1, 0);
    }
    for (uint64_t i = 0; i < WEIR__SHARES - 1; i++) {
        assert_ptr_equal(weir__share_find(&shares, 1000 + i), held[i]);
        assert_int_equal(weir__share_served(held[i], 0), i + 1);
    }
    for (uint64_t i = WEIR__SHARES - 1; i < WEIR__SHARES + 3; i++) assert_ptr_equal(held[i], &shares.each[0]);
    /* a place becomes free: of those nobody lives for, the one that had least */
    weir__share_release(held[9]);
    weir__share_release(held[5]);
    assert_ptr_equal(weir__share_hold(&shares, 5000, 0), held[5]);
    assert_int_equal(weir__share_served(held[5], 0), 0);
    assert_ptr_equal(weir__share_find(&shares, 1009), held[9]);
    assert_null(weir__share_find(&shares, 1005));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_served_is_halved_each_half_life),
        cmocka_unit_test(a_salt_keeps_its_share_while_and_after_it_lives),
        cmocka_unit_test(beyond_the_limit_salts_count_as_one_and_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
