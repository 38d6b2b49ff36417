/* prediction_test.c: an answer is followed through its prediction, and found again after a change.
 * SPDX-License-Identifier: Apache-2.0 */
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
    assert_int_equal(draft(&p, 4, tokens), 0); /* two equal tokens are too few */
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

/* A long prediction is looked through over some tokens, whatever the answer says meanwhile. */
static void a_far_place_is_found_in_steps(void **state)
{
    (void)state;
    enum { LONG = 5 * WEIR__PREDICTION_SOUGHT, FAR = LONG - 100 };
    static int32_t many[LONG], answer[16];
    weir__prediction p;
    int32_t tokens[WEIR__LOOKUP_MOST];
    for (int32_t i = 0; i < LONG; i++) many[i] = i;
    for (int32_t i = 0; i < 16; i++) answer[i] = FAR + i;
    weir__prediction_init(&p, many, LONG);
    for (int32_t n = 1; n <= 16; n++) {
        int32_t before = p.sought;
        weir__prediction_read(&p, answer, n);
        assert_true(p.sought <= before + WEIR__PREDICTION_SOUGHT);
    }
    assert_int_equal(draft(&p, 1, tokens), 1);
    assert_int_equal(tokens[0], FAR + 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_followed_from_the_first_token),
        cmocka_unit_test(a_change_is_stepped_over),
        cmocka_unit_test(none_drafts_nothing),
        cmocka_unit_test(a_far_place_is_found_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
