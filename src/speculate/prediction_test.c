/* SPDX-License-Identifier: Apache-2.0 */
#include "speculate/prediction.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "speculate/lookup.h"

static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
#define N 12

static int32_t draft(const weir__prediction *p, int32_t most, int32_t tokens[static WEIR__LOOKUP_MOST])
{
    double hope[WEIR__LOOKUP_MOST];
    int32_t n = 0;
    if (!weir__prediction_draft(p, most, tokens, hope, &n)) return 0;
    for (int32_t i = 0; i < n; i++) assert_true(hope[i] > 0 && hope[i] < 1);
    return n;
}

static void it_is_followed_from_the_first_token(void **state)
{
    (void)state;
    weir__prediction p;
    int32_t tokens[WEIR__LOOKUP_MOST];
    weir__prediction_init(&p, text, N);
    assert_int_equal(draft(&p, 4, tokens), 4);
    assert_int_equal(tokens[0], 10);
    weir__prediction_read(&p, text, 5);
    assert_int_equal(draft(&p, 4, tokens), 4);
    assert_int_equal(tokens[0], 15);
    weir__prediction_read(&p, text, 10);
    assert_int_equal(draft(&p, 4, tokens), 2); /* no more than it has */
    assert_int_equal(tokens[1], 21);
    weir__prediction_read(&p, text, N);
    assert_int_equal(draft(&p, 4, tokens), 0);
}

static void a_change_is_stepped_over(void **state)
{
    (void)state;
    weir__prediction p;
    int32_t tokens[WEIR__LOOKUP_MOST];
    const int32_t answer[] = {10, 11, 99, 98, 14, 15, 16, 17, 7, 8, 9, 11, 12, 13};
    weir__prediction_init(&p, text, N);
    weir__prediction_read(&p, answer, 3);
    assert_int_equal(draft(&p, 4, tokens), 0);
    weir__prediction_read(&p, answer, 6);
    assert_int_equal(draft(&p, 4, tokens), 0); /* two alike are too few */
    weir__prediction_read(&p, answer, 7);
    assert_int_equal(draft(&p, 2, tokens), 2);
    assert_int_equal(tokens[0], 17);
    weir__prediction_read(&p, answer, 11);
    assert_int_equal(draft(&p, 4, tokens), 0);
    weir__prediction_read(&p, answer, 14); /* it goes back */
    assert_int_equal(draft(&p, 1, tokens), 1);
    assert_int_equal(tokens[0], 14);
}

static void none_drafts_nothing(void **state)
{
    (void)state;
    weir__prediction p;
    int32_t tokens[WEIR__LOOKUP_MOST];
    weir__prediction_init(&p, NULL, 0);
    assert_int_equal(draft(&p, 4, tokens), 0);
    weir__prediction_read(&p, text, N);
    assert_int_equal(draft(&p, 4, tokens), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_followed_from_the_first_token),
        cmocka_unit_test(a_change_is_stepped_over),
        cmocka_unit_test(none_drafts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
