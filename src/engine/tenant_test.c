/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static void served_tokens_are_halved_each_half_life(void **state)
{
    (void)state;
    static weir__tenants tenants;
    memset(&tenants, 0, sizeof tenants);
    weir__tenant *tenant = weir__tenant_hold(&tenants, 7, SECOND);
    assert_int_equal(weir__tenant_served(tenant, SECOND), 0);
    weir__tenant_bill(tenant, 1000, SECOND);
    assert_int_equal(weir__tenant_served(tenant, SECOND), 1000);
    assert_int_equal(weir__tenant_served(tenant, 0), 1000); /* a clock read earlier */
    assert_int_equal(weir__tenant_served(tenant, SECOND + WEIR__TENANT_HALF_NS), 500);
    weir__tenant_bill(tenant, 100, SECOND + WEIR__TENANT_HALF_NS);
    assert_int_equal(weir__tenant_served(tenant, SECOND + 2 * WEIR__TENANT_HALF_NS), 300);
    assert_int_equal(weir__tenant_served(tenant, SECOND + 20 * WEIR__TENANT_HALF_NS),
                     0); /* nothing, not a bit */
    assert_int_equal(weir__tenant_served(NULL, 0), 0);
}

static void a_tenant_is_known_while_and_after_it_lives(void **state)
{
    (void)state;
    static weir__tenants tenants;
    memset(&tenants, 0, sizeof tenants);
    assert_null(weir__tenant_find(&tenants, 7));
    weir__tenant *tenant = weir__tenant_hold(&tenants, 7, 0);
    assert_ptr_equal(weir__tenant_hold(&tenants, 7, 0), tenant);
    assert_ptr_not_equal(weir__tenant_hold(&tenants, 0, 0), tenant); /* no tenant is one of its own */
    weir__tenant_bill(tenant, 10, 0);
    weir__tenant_release(tenant);
    weir__tenant_release(tenant);
    assert_int_equal(weir__tenant_served(weir__tenant_find(&tenants, 7), 0), 10);
    assert_ptr_equal(weir__tenant_hold(&tenants, 7, 0), tenant);
}

static void beyond_the_limit_tenants_count_as_one_and_lose_nothing(void **state)
{
    (void)state;
    static weir__tenants tenants;
    weir__tenant *held[WEIR__TENANTS + 3];
    memset(&tenants, 0, sizeof tenants);
    for (uint64_t i = 0; i < WEIR__TENANTS + 3; i++) {
        held[i] = weir__tenant_hold(&tenants, 1000 + i, 0);
        weir__tenant_bill(held[i], (int32_t)i + 1, 0);
    }
    for (uint64_t i = 0; i < WEIR__TENANTS - 1; i++) {
        assert_ptr_equal(weir__tenant_find(&tenants, 1000 + i), held[i]);
        assert_int_equal(weir__tenant_served(held[i], 0), i + 1);
    }
    for (uint64_t i = WEIR__TENANTS - 1; i < WEIR__TENANTS + 3; i++)
        assert_ptr_equal(held[i], &tenants.each[0]);
    /* a place becomes free: of those nobody lives for, the one that had least */
    weir__tenant_release(held[9]);
    weir__tenant_release(held[5]);
    assert_ptr_equal(weir__tenant_hold(&tenants, 5000, 0), held[5]);
    assert_int_equal(weir__tenant_served(held[5], 0), 0);
    assert_ptr_equal(weir__tenant_find(&tenants, 1009), held[9]);
    assert_null(weir__tenant_find(&tenants, 1005));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_tokens_are_halved_each_half_life),
        cmocka_unit_test(a_tenant_is_known_while_and_after_it_lives),
        cmocka_unit_test(beyond_the_limit_tenants_count_as_one_and_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
