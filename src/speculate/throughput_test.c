/* throughput_test.c: drafts are as long as makes ticks fastest.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "speculate/acceptance.h"

/* Tokens by time of a draft of d tokens, each right with probability p. */
static double rate(double p, int d, double tick, double row, double others)
{
    double tokens = 1 + others, q = 1;
    for (int i = 0; i < d; i++) tokens += q *= p;
    return tokens / (tick + d * row);
}

/* Drafts are as long as the fastest of all lengths tried one by one. */
static void drafts_are_as_long_as_makes_them_fastest(void **state)
{
    (void)state;
    int n_drafts = 0;
    for (double p = 0.02; p < 1; p += 0.02)
        for (double row = 0.02; row < 1; row *= 1.5)
            for (int others = 0; others < 9; others += 4) {
                weir__throughput throughput = {.tokens = 1 + others, .ns = 1 + others * row, .row_ns = row};
                double q = 1, best = 0;
                int d = 0;
                while (d < 32 && weir__throughput_raise(&throughput, d, q, q * p, 0)) {
                    d++;
                    q *= p;
                }
                for (int i = 0; i <= 32; i++) {
                    double r = rate(p, i, 1 + others * row, row, others);
                    if (r > best) best = r;
                }
                double got = rate(p, d, 1 + others * row, row, others);
                assert_true(got >= 0.94 * best && got >= rate(p, 0, 1 + others * row, row, others));
                assert_float_equal(throughput.tokens / throughput.ns, got, 1e-9);
                n_drafts += d > 0;
            }
    assert_true(n_drafts > 100);
}

static void own_cost_counts(void **state)
{
    (void)state;
    weir__throughput throughput = {.tokens = 1, .ns = 100, .row_ns = 10}, same = throughput;
    assert_false(weir__throughput_raise(&throughput, 0, 1, 0.5, 60));
    assert_memory_equal(&throughput, &same, sizeof throughput);
    assert_true(weir__throughput_raise(&throughput, 0, 1, 0.5, 20));
    assert_float_equal(throughput.ns, 130, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_as_long_as_makes_them_fastest),
        cmocka_unit_test(own_cost_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
