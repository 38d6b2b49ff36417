/* budget_test.c: steps and bytes are counted exactly, and the interrupt is asked at intervals.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "base/budget.h"
#include "support/model.h"

/* An interrupt function that says true at the `last`-th question. */
typedef struct patience {
    int asked, last;
} patience;

static bool ask(void *user)
{
    patience *p = user;
    return ++p->asked >= p->last;
}

static int forget(void **state)
{
    weir_interrupt_set(NULL, NULL);
    return nothing_left(state);
}

static void test_steps_are_counted(void **state)
{
    (void)state;
    weir__budget b;
    weir__budget_init(&b, 10, UINT64_MAX);
    for (int i = 0; i < 10; i++) assert_true(weir__budget_step(&b, 1));
    assert_false(weir__budget_over(&b));
    assert_false(weir__budget_step(&b, 1));
    assert_true(weir__budget_over(&b));
    assert_int_equal(b.over, WEIR__LIMIT_STEPS);

    weir__budget_init(&b, 1000000, UINT64_MAX);
    uint64_t n = 0;
    while (weir__budget_step(&b, 7)) n += 7;
    assert_int_equal(n, 1000000 / 7 * 7);

    weir__budget_init(&b, 1000000, UINT64_MAX);
    assert_true(weir__budget_step(&b, 999999)); /* more than the steps between two questions */
    assert_true(weir__budget_step(&b, 1));
    assert_false(weir__budget_step(&b, 1));
}

static void test_no_limit_has_none(void **state)
{
    (void)state;
    weir__budget b;
    weir__budget_init(&b, UINT64_MAX, UINT64_MAX);
    for (int i = 0; i < 3; i++) {
        assert_true(weir__budget_step(&b, UINT64_MAX));
        assert_true(weir__budget_step(&b, UINT64_MAX - 1));
        assert_true(weir__budget_grow(&b, UINT64_MAX));
    }
}

static void test_bytes_are_counted(void **state)
{
    (void)state;
    weir__budget b;
    weir__budget_init(&b, UINT64_MAX, 100);
    assert_true(weir__budget_grow(&b, 60));
    assert_true(weir__budget_grow(&b, 40));
    assert_true(weir__budget_grow(&b, 0));
    assert_false(weir__budget_grow(&b, 1));
    assert_int_equal(b.over, WEIR__LIMIT_BYTES);

    weir__budget_init(&b, UINT64_MAX, 100);
    assert_false(weir__budget_grow(&b, UINT64_MAX));

    weir__budget_init(&b, UINT64_MAX, 100);
    for (int i = 0; i < 10; i++) {
        assert_true(weir__budget_grow(&b, 100));
        weir__budget_shrink(&b, 100);
    }
    assert_false(weir__budget_grow(&b, 101));
}

static void test_after_one_refusal_all_is_refused(void **state)
{
    (void)state;
    weir__budget b;
    weir__budget_init(&b, 100, 100);
    assert_false(weir__budget_grow(&b, 101));
    assert_false(weir__budget_step(&b, 1));
    assert_false(weir__budget_step(&b, 0));
    assert_false(weir__budget_grow(&b, 1));
    assert_int_equal(b.over, WEIR__LIMIT_BYTES); /* the first */
}

static void test_the_interrupt_is_asked_at_intervals(void **state)
{
    (void)state;
    patience p = {0, 3};
    weir__budget b;
    weir_interrupt_set(ask, &p);
    weir__budget_init(&b, UINT64_MAX, UINT64_MAX);
    uint64_t n = 0;
    while (weir__budget_step(&b, 1)) n++;
    assert_int_equal(p.asked, 3);
    assert_int_equal(n, 3 * WEIR__BUDGET_TURNS - 1);
    assert_int_equal(b.over, WEIR__LIMIT_INTERRUPT);
    assert_false(weir__budget_step(&b, 1));
    assert_int_equal(p.asked, 3); /* who said true is not asked again */

    p = (patience){0, 1};
    weir__budget_init(&b, UINT64_MAX, UINT64_MAX);
    assert_false(weir__budget_step(&b, WEIR__BUDGET_TURNS)); /* at once */
}

static void test_no_function_no_question(void **state)
{
    (void)state;
    patience p = {0, 1};
    weir__budget b;
    weir_interrupt_set(ask, &p);
    weir_interrupt_set(NULL, NULL);
    weir__budget_init(&b, UINT64_MAX, UINT64_MAX);
    for (int i = 0; i < 3 * WEIR__BUDGET_TURNS; i++) assert_true(weir__budget_step(&b, 1));
    assert_false(weir_interrupt_asked());
    assert_int_equal(p.asked, 0);
}

static void *spend(void *user)
{
    weir__budget *b = user;
    weir__interrupt none = weir__interrupt_get();
    assert_null(none.fn); /* a thread begins without */
    assert_false(weir_interrupt_asked());
    while (weir__budget_step(b, 1)) continue;
    weir__interrupt_put(b->interrupt);
    assert_true(weir_interrupt_asked());
    return NULL;
}

static void test_a_budget_takes_its_interrupt_to_other_threads(void **state)
{
    (void)state;
    patience p = {0, 2};
    weir__budget b;
    pthread_t thread;
    weir_interrupt_set(ask, &p);
    weir__budget_init(&b, UINT64_MAX, UINT64_MAX);
    assert_int_equal(pthread_create(&thread, NULL, spend, &b), 0);
    pthread_join(thread, NULL);
    assert_int_equal(b.over, WEIR__LIMIT_INTERRUPT);
    assert_int_equal(p.asked, 3);
}

static void assert_says(const weir__budget *b, weir_status code, const char *field, const char *message)
{
    weir_error error = {0};
    assert_int_equal(weir__budget_error(b, WEIR_GRAMMAR, "json_schema", "the schema", &error), code);
    assert_int_equal(error.code, code);
    assert_string_equal(error.field, field);
    assert_string_equal(error.message, message);
    assert_int_equal(weir__budget_error(b, WEIR_GRAMMAR, "json_schema", "the schema", NULL), code);
}

static void test_errors_name_the_limit(void **state)
{
    (void)state;
    weir__budget b;
    weir__budget_init(&b, 5, 2048);
    weir__budget_step(&b, 6);
    assert_says(&b, WEIR_GRAMMAR, "json_schema",
                "the schema takes more than 5 steps of work; make it smaller or simpler");
    weir__budget_init(&b, 5, 2048);
    weir__budget_grow(&b, 2049);
    assert_says(&b, WEIR_GRAMMAR, "json_schema",
                "the schema takes more than 2 KiB of memory; make it smaller or simpler");
    weir__budget_init(&b, 5, 2048);
    assert_false(weir__budget_too_deep(&b));
    assert_says(&b, WEIR_GRAMMAR, "json_schema", "the schema is nested, or calls itself, too deep");
    patience p = {0, 1};
    weir_interrupt_set(ask, &p);
    weir__budget_init(&b, UINT64_MAX, 2048);
    weir__budget_step(&b, WEIR__BUDGET_TURNS);
    assert_says(&b, WEIR_ABORTED, "", "the function that was given to weir_interrupt_set asked to stop");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_steps_are_counted, forget),
        cmocka_unit_test_teardown(test_no_limit_has_none, forget),
        cmocka_unit_test_teardown(test_bytes_are_counted, forget),
        cmocka_unit_test_teardown(test_after_one_refusal_all_is_refused, forget),
        cmocka_unit_test_teardown(test_the_interrupt_is_asked_at_intervals, forget),
        cmocka_unit_test_teardown(test_no_function_no_question, forget),
        cmocka_unit_test_teardown(test_a_budget_takes_its_interrupt_to_other_threads, forget),
        cmocka_unit_test_teardown(test_errors_name_the_limit, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
