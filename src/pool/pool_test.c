/* Several models under one budget: which are loaded, which go, what a list may hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/testing.h"

static void the_least_recently_used_sleeps(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 230, 3, "");
    rack_touch(&r, "m0");
    rack_touch(&r, "m1");
    rack_touch(&r, "m0");
    rack_touch(&r, "m2");
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    assert_state(&r, "m1", WEIR_POOL_SLEEPING);
    assert_state(&r, "m2", WEIR_POOL_LOADED);
    rack_touch(&r, "m1");
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    weir_pool_stats stats = rack_stats(&r);
    assert_int_equal(stats.n_loads, 4);
    assert_int_equal(stats.n_sleeps, 2);
    assert_int_equal(stats.n_loaded, 2);
    assert_true(stats.used_bytes > 200 * MIB && stats.used_bytes <= stats.memory_bytes);
    assert_int_equal(stats.memory_bytes, 230 * MIB);
    rack_close(&r);
}

static void a_model_with_a_lease_stays(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 120, 2, "");
    weir_lease *used = rack_lease(&r, "m0");
    weir_lease *late = rack_ask(&r, "m1", 50);
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_BUSY);
    assert_string_equal(error.field, "timeout_ms");
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    weir_lease_release(late);
    late = rack_ask(&r, "m1", WAIT_MS);
    assert_int_equal(weir_lease_wait(late, 0, &error), WEIR_TIMEOUT);
    assert_null(weir_lease_engine(late));
    weir_lease_release(used);
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_OK);
    assert_non_null(weir_lease_engine(late));
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    weir_lease_release(late);
    rack_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_sleeps),
        cmocka_unit_test(a_model_with_a_lease_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
