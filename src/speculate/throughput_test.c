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

/* The same where a wrong token costs the time to undo the draft, and the rows before it once more. */
static double rate_with_replays(double p, int d, double row, double undo)
{
    double tokens = 1, q = 1, time = 1;
    for (int i = 0; i < d; i++, q *= p) {
        tokens += q * p;
        time += row + q * (1 - p) * (undo + (1 + i) * row);
    }
    return tokens / time;
}

static void drafts_are_shorter_where_wrong_ones_cost_more(void **state)
{
    (void)state;
    int n_drafts = 0, n_shorter = 0;
    for (double p = 0.02; p < 1; p += 0.02)
        for (double row = 0.02; row < 1; row *= 1.5)
            for (double undo = 0; undo < 2; undo += 0.25) {
                weir__throughput dear = {
                    .tokens = 1, .ns = 1, .row_ns = row, .replays = true, .undo_ns = undo};
                weir__throughput cheap = {.tokens = 1, .ns = 1, .row_ns = row};
                double q = 1, best = 0;
                int d = 0, n = 0;
                for (; n < 32 && weir__throughput_raise(&cheap, n, q, q * p, 0); n++) q *= p;
                q = 1;
                for (; d < 32 && weir__throughput_raise(&dear, d, q, q * p, 0); d++) q *= p;
                for (int i = 0; i <= 32; i++)
                    if (rate_with_replays(p, i, row, undo) > best) best = rate_with_replays(p, i, row, undo);
                double got = rate_with_replays(p, d, row, undo);
                assert_true(d <= n && got >= 1 && got >= 0.9 * best);
                assert_float_equal(dear.tokens / dear.ns, got, 1e-9);
                n_drafts += d > 0;
                n_shorter += d < n;
            }
    assert_true(n_drafts > 100 && n_shorter > 100);
}

static void preparing_a_draft_is_paid_once(void **state)
{
    (void)state;
    weir__throughput throughput = {.tokens = 1, .ns = 100, .row_ns = 10, .replays = true, .mark_ns = 7};
    assert_true(weir__throughput_raise(&throughput, 0, 1, 1, 0));
    assert_true(weir__throughput_raise(&throughput, 1, 1, 1, 0));
    assert_float_equal(throughput.ns, 100 + 2 * 10 + 7, 1e-9);
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
        cmocka_unit_test(drafts_are_shorter_where_wrong_ones_cost_more),
        cmocka_unit_test(preparing_a_draft_is_paid_once),
        cmocka_unit_test(own_cost_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
