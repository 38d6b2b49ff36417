/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/doorbell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#define SOON (30 * WEIR__NS_PER_MS)

/* A ring wakes one wait, before or during it; the next wait lasts as long as it may. */
static void a_ring_is_heard_once(void **state)
{
    (void)state;
    weir__doorbell *bell = NULL;
    assert_int_equal(weir__doorbell_create(&bell), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        weir__doorbell_ring(bell);
        weir__doorbell_ring(bell);                /* not counted */
        weir__doorbell_wait(bell, INT64_MAX / 2); /* would hang */
        int64_t until = weir__clock_now_ns() + SOON;
        weir__doorbell_wait(bell, until);
        assert_true(weir__clock_now_ns() >= until);
    }
    uint32_t n = weir__doorbell_cancels(bell);
    weir__doorbell_cancel(bell); /* rings, too */
    assert_int_equal(weir__doorbell_cancels(bell), n + 1);
    weir__doorbell_wait(bell, INT64_MAX / 2);
    assert_false(weir__doorbell_is_inherited(bell));
    weir__doorbell_release(bell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_ring_is_heard_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
