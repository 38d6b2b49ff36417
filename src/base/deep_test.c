/* deep_test.c: the stack that a thread gets, and its end that is seen in time.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/budget.h"
#include "base/deep.h"
#include "support/model.h"

/* The depth that a recursion reached before its stack was low, in frames of some 4 KiB. */
typedef struct dive {
    int depth, limit;
    bool low;
} dive;

static void sink(dive *d)
{
    volatile char frame[4096];
    memset((char *)frame, 1, sizeof frame);
    if (weir__deep_low()) d->low = true;
    if (d->low || d->depth == d->limit) return;
    d->depth++;
    sink(d);
    frame[0] = 0; /* no tail call */
}

static void fn(void *user)
{
    sink(user);
}

static void test_the_stack_is_as_large_as_asked_for(void **state)
{
    (void)state;
    dive d = {0, 14000, false};
    assert_ok(weir__deep_run(fn, &d, (size_t)64 << 20, error)); /* 14,000 × 4 KiB and frames' heads */
    assert_int_equal(d.depth, 14000);
    assert_false(d.low);
}

static void test_an_end_that_comes_near_is_seen(void **state)
{
    (void)state;
    dive d = {0, 10000000, false};
    assert_ok(weir__deep_run(fn, &d, (size_t)1 << 20, error));
    assert_true(d.low);
    assert_true(d.depth > 100);
    assert_false(weir__deep_low()); /* this thread's is not known */
}

static void test_a_stack_that_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    dive d = {0, 1, false};
    weir_error e = {0};
    assert_int_equal(weir__deep_run(fn, &d, (size_t)1 << 60, &e), WEIR_NO_MEMORY);
    assert_non_null(strstr(e.message, "stack"));
    assert_int_equal(d.depth, 0);
}

static bool stop(void *user)
{
    ++*(int *)user;
    return true;
}

static void ask(void *user)
{
    *(bool *)user = weir_interrupt_asked();
}

static void test_the_interrupt_comes_along(void **state)
{
    (void)state;
    int asked = 0;
    bool answer = false;
    weir_interrupt_set(stop, &asked);
    assert_ok(weir__deep_run(ask, &answer, 65536, error));
    weir_interrupt_set(NULL, NULL);
    assert_true(answer);
    assert_int_equal(asked, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_the_stack_is_as_large_as_asked_for, nothing_left),
        cmocka_unit_test_teardown(test_an_end_that_comes_near_is_seen, nothing_left),
        cmocka_unit_test_teardown(test_a_stack_that_cannot_be_had_is_an_error, nothing_left),
        cmocka_unit_test_teardown(test_the_interrupt_comes_along, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
