/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/range.h"
#include "model/testing.h"

typedef struct sample {
    int32_t count;
    float share;
    float off;
} sample;

static const weir__range ranges[] = {
    WEIR__RANGE(WEIR__RANGE_INT, sample, count, 0, INT32_MAX),
    WEIR__RANGE(WEIR__RANGE_FLOAT, sample, share, 0.01, 0.99),
    WEIR__RANGE_OR_OFF(WEIR__RANGE_FLOAT, sample, off, 0, 100),
};

static void test_limits_belong_to_the_range(void **state)
{
    (void)state;
    static const sample good[] = {
        {0, 0.01f, 0.0f},
        {INT32_MAX, 0.99f, 100.0f},
        {1, 0.5f, -1.0f},
    };
    for (size_t i = 0; i < N_ELEMENTS(good); i++)
        assert_ok(weir__range_check(ranges, N_ELEMENTS(ranges), &good[i], "", error));
}

static void test_what_is_outside_is_named(void **state)
{
    (void)state;
    static const struct {
        sample value;
        const char *field, *message;
    } bad[] = {
        {{-1, 0.5f, 0.0f}, "p.count", "count is -1; allowed: 0 to 2147483647"},
        {{-1234567890, 0.5f, 0.0f}, "p.count", "count is -1234567890; allowed: 0 to 2147483647"},
        {{1, 0.0f, 0.0f}, "p.share", "share is 0; allowed: 0.01 to 0.99"},
        {{1, 1.0f, 0.0f}, "p.share", "share is 1; allowed: 0.01 to 0.99"},
        {{1, NAN, 0.0f}, "p.share", NULL},
        {{1, INFINITY, 0.0f}, "p.share", "share is inf; allowed: 0.01 to 0.99"},
        {{1, -INFINITY, 0.0f}, "p.share", "share is -inf; allowed: 0.01 to 0.99"},
        {{1, 0.5f, -0.5f}, "p.off", "off is -0.5; allowed: 0 to 100, or -1"},
        {{1, 0.5f, 100.5f}, "p.off", "off is 100.5; allowed: 0 to 100, or -1"},
        {{1, 0.5f, NAN}, "p.off", NULL},
    };
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        weir_error error = {0};
        assert_int_equal(weir__range_check(ranges, N_ELEMENTS(ranges), &bad[i].value, "p.", &error),
                         WEIR_INVALID);
        assert_string_equal(error.field, bad[i].field);
        if (bad[i].message != NULL) assert_string_equal(error.message, bad[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_limits_belong_to_the_range, nothing_left),
        cmocka_unit_test_teardown(test_what_is_outside_is_named, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
