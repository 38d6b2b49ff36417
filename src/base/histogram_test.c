/* histogram_test.c: buckets and quantiles beside exact ones of the same values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"

static uint64_t state;

static double random_part(void)
{
    uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* The bucket of one value. */
static size_t bucket_of(double value)
{
    weir_histogram histogram = {0};
    size_t i = 0;
    weir__histogram_observe(&histogram, value);
    assert_int_equal(histogram.count, 1);
    while (histogram.buckets[i] == 0) i++;
    assert_int_equal(histogram.buckets[i], 1);
    return i;
}

static void bounds_ascend_and_end_in_infinity(void **unused)
{
    (void)unused;
    size_t last = WEIR_HISTOGRAM_BUCKETS - 1;
    assert_true(weir_histogram_bound(0) > 0 && weir_histogram_bound(0) < 1e-6);
    assert_true(weir_histogram_bound(last - 1) > 1e6);
    assert_true(isinf(weir_histogram_bound(last)) && isinf(weir_histogram_bound(SIZE_MAX)));
    for (size_t i = 1; i < last; i++) {
        double factor = weir_histogram_bound(i) / weir_histogram_bound(i - 1);
        assert_true(factor > 1.1 && factor <= 1.25);
    }
}

/* The bucket is the one that a search through the bounds finds: at each bound, just below and just above
 * it. */
static void a_value_lies_between_its_buckets_bounds(void **unused)
{
    (void)unused;
    for (size_t i = 0; i + 1 < WEIR_HISTOGRAM_BUCKETS; i++) {
        double bound = weir_histogram_bound(i);
        assert_int_equal(bucket_of(bound), i);
        assert_int_equal(bucket_of(nextafter(bound, INFINITY)), i + 1);
        assert_int_equal(bucket_of(nextafter(bound, 0)), i);
    }
    for (int i = 1; i <= 8; i++) assert_true(weir_histogram_bound(bucket_of(i)) == i);
}

static void odd_values_have_a_bucket_too(void **unused)
{
    (void)unused;
    weir_histogram histogram = {0};
    const double odd[] = {0, -0.0, -1, -INFINITY, NAN, 5e-324};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(bucket_of(odd[i]), 0);
        weir__histogram_observe(&histogram, odd[i]);
    }
    assert_true(histogram.sum >= 0 && histogram.sum < 1e-300);
    assert_int_equal(bucket_of(INFINITY), WEIR_HISTOGRAM_BUCKETS - 1);
    assert_int_equal(bucket_of(1e300), WEIR_HISTOGRAM_BUCKETS - 1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile lies in the bucket of the exact one, of values over all magnitudes and of narrow ones. */
static void quantiles_are_near_the_exact_ones(void **unused)
{
    (void)unused;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 20261121);
    print_message("seed %llu\n", (unsigned long long)seed);
    state = seed;
    enum { MOST = 2000 };
    static double values[MOST];
    for (int round = 0; round < 500; round++) {
        weir_histogram histogram = {0};
        int n = 1 + (int)(random_part() * MOST);
        double center = random_part() * 36 - 18, width = random_part() * (round % 2 ? 3 : 0.2), sum = 0;
        for (int i = 0; i < n; i++) {
            values[i] = exp2(center + (random_part() - 0.5) * width);
            if (round % 5 == 0) values[i] = ceil(values[i]);
            sum += values[i];
            weir__histogram_observe(&histogram, values[i]);
        }
        qsort(values, (size_t)n, sizeof *values, ascending);
        assert_int_equal(histogram.count, n);
        assert_true(fabs(histogram.sum - sum) <= 1e-9 * sum);
        double before = 0;
        for (int i = 0; i <= 100; i++) {
            double q = i / 100.0, exact = values[i == 0 ? 0 : (int)ceil(q * n) - 1];
            double got = weir_histogram_quantile(&histogram, q);
            size_t bucket = bucket_of(exact);
            double low = bucket > 0 ? weir_histogram_bound(bucket - 1) : 0;
            if (got < low || got > weir_histogram_bound(bucket) || got < before)
                fail_msg("round %d, n %d, q %g: %g, exact %g", round, n, q, got, exact);
            before = got;
        }
    }
}

static void quantiles_of_little_or_nothing(void **unused)
{
    (void)unused;
    weir_histogram histogram = {0};
    assert_true(weir_histogram_quantile(NULL, 0.5) == 0);
    assert_true(weir_histogram_quantile(&histogram, 0.5) == 0);
    weir__histogram_observe(&histogram, 3);
    assert_true(weir_histogram_quantile(&histogram, 1) == 3);
    assert_true(weir_histogram_quantile(&histogram, 7) == 3);
    assert_true(weir_histogram_quantile(&histogram, -7) == weir_histogram_quantile(&histogram, 0));
    assert_true(weir_histogram_quantile(&histogram, NAN) == 0);
    memset(&histogram, 0, sizeof histogram);
    weir__histogram_observe(&histogram, 1e300);
    assert_true(weir_histogram_quantile(&histogram, 0.5) == weir_histogram_bound(WEIR_HISTOGRAM_BUCKETS - 2));
    histogram.count = 9; /* a caller's own arithmetic */
    assert_true(isfinite(weir_histogram_quantile(&histogram, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_ascend_and_end_in_infinity),
        cmocka_unit_test(a_value_lies_between_its_buckets_bounds),
        cmocka_unit_test(odd_values_have_a_bucket_too),
        cmocka_unit_test(quantiles_are_near_the_exact_ones),
        cmocka_unit_test(quantiles_of_little_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
