/* acceptance_test.c: rates begin at the prior and follow what is seen.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "speculate/acceptance.h"

static const double prior[WEIR__ACCEPTANCE_CLASSES] = {0.1, 0.3, 0.5, 0.7, 0.9, 1.0};

static void hopes_begin_at_the_prior_and_follow_what_is_seen(void **state)
{
    (void)state;
    weir__acceptance acceptance;
    weir__acceptance_init(&acceptance, prior);
    for (int i = 0; i < WEIR__ACCEPTANCE_CLASSES; i++)
        assert_float_equal(weir__acceptance_rate(&acceptance, i), prior[i], 1e-9);
    for (int i = 0; i < 200; i++) weir__acceptance_note(&acceptance, 1, i % 4 == 0);
    assert_float_equal(weir__acceptance_rate(&acceptance, 1), 0.25, 0.05);
    assert_float_equal(weir__acceptance_rate(&acceptance, 2), 0.5, 1e-9);     /* another class's business */
    for (int i = 0; i < 64; i++) weir__acceptance_note(&acceptance, 1, true); /* the past fades */
    assert_true(weir__acceptance_rate(&acceptance, 1) > 0.85);
    for (int i = 0; i < 1000; i++) weir__acceptance_note(&acceptance, 1, false);
    assert_true(weir__acceptance_rate(&acceptance, 1) >= 0 && weir__acceptance_rate(&acceptance, 1) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hopes_begin_at_the_prior_and_follow_what_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
