/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/salt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static void served_tokens_are_halved_each_half_life(void **state)
{
    (void)state;
    static weir__salts salts;
    memset(&salts, 0, sizeof salts);
    weir__salt *salt = weir__salt_hold(&salts, 7, SECOND);
    assert_int_equal(weir__salt_served(salt, SECOND), 0);
    weir__salt_bill(salt, 1000, SECOND);
    assert_int_equal(weir__salt_served(salt, SECOND), 1000);
    assert_int_equal(weir__salt_served(salt, 0), 1000); /* a clock read earlier */
    assert_int_equal(weir__salt_served(salt, SECOND + WEIR__SALT_HALF_NS), 500);
    weir__salt_bill(salt, 100, SECOND + WEIR__SALT_HALF_NS);
    assert_int_equal(weir__salt_served(salt, SECOND + 2 * WEIR__SALT_HALF_NS), 300);
    assert_int_equal(weir__salt_served(salt, SECOND + 20 * WEIR__SALT_HALF_NS), 0); /* nothing, not a bit */
    assert_int_equal(weir__salt_served(NULL, 0), 0);
}

static void a_salt_is_known_while_and_after_it_lives(void **state)
{
    (void)state;
    static weir__salts salts;
    memset(&salts, 0, sizeof salts);
    assert_null(weir__salt_find(&salts, 7));
    weir__salt *salt = weir__salt_hold(&salts, 7, 0);
    assert_ptr_equal(weir__salt_hold(&salts, 7, 0), salt);
    assert_ptr_not_equal(weir__salt_hold(&salts, 0, 0), salt); /* no salt is one of its own */
    weir__salt_bill(salt, 10, 0);
    weir__salt_release(salt);
    weir__salt_release(salt);
    assert_int_equal(weir__salt_served(weir__salt_find(&salts, 7), 0), 10);
    assert_ptr_equal(weir__salt_hold(&salts, 7, 0), salt);
}

static void beyond_the_limit_salts_count_as_one_and_lose_nothing(void **state)
{
    (void)state;
    static weir__salts salts;
    weir__salt *held[WEIR__SALTS + 3];
    memset(&salts, 0, sizeof salts);
    for (uint64_t i = 0; i < WEIR__SALTS + 3; i++) {
        held[i] = weir__salt_hold(&salts, 1000 + i, 0);
        weir__salt_bill(held[i], (int32_t)i + 1, 0);
    }
    for (uint64_t i = 0; i < WEIR__SALTS - 1; i++) {
        assert_ptr_equal(weir__salt_find(&salts, 1000 + i), held[i]);
        assert_int_equal(weir__salt_served(held[i], 0), i + 1);
    }
    for (uint64_t i = WEIR__SALTS - 1; i < WEIR__SALTS + 3; i++) assert_ptr_equal(held[i], &salts.each[0]);
    /* a place becomes free: of those nobody lives for, the one that had least */
    weir__salt_release(held[9]);
    weir__salt_release(held[5]);
    assert_ptr_equal(weir__salt_hold(&salts, 5000, 0), held[5]);
    assert_int_equal(weir__salt_served(held[5], 0), 0);
    assert_ptr_equal(weir__salt_find(&salts, 1009), held[9]);
    assert_null(weir__salt_find(&salts, 1005));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_tokens_are_halved_each_half_life),
        cmocka_unit_test(a_salt_is_known_while_and_after_it_lives),
        cmocka_unit_test(beyond_the_limit_salts_count_as_one_and_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
