/* logprob_test.c: log-probabilities beside a naive sum, on each instruction set.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "model/logprob.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/dice.h"

#define N_MOST 5000

/* The header's definition, computed naively. */
static double naive(const float *logits, int32_t n, int32_t token)
{
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > max) max = (double)logits[i];
    for (int32_t i = 0; i < n; i++)
        if (!isnan(logits[i])) sum += exp((double)logits[i] - max);
    return isnan(logits[token]) ? -INFINITY : (double)logits[token] - max - log(sum);
}

static bool near(double a, double b)
{
    return a == b || fabs(a - b) <= 2e-6 * (1 + fabs(b));
}

static void judge(const float *logits, int32_t n, int32_t token, int32_t n_top)
{
    weir_logprob top[WEIR__LOGPROBS_MAX];
    static bool taken[N_MOST];
    float got = weir__logprob(logits, n, token, top, n_top);
    if (!near((double)got, naive(logits, n, token)))
        fail_msg("token %d of %d: %.9g, want %.9g", token, n, (double)got, naive(logits, n, token));
    for (int32_t i = 0; i < n; i++) taken[i] = false;
    for (int32_t k = 0; k < n_top; k++) {
        int32_t best = -1; /* the first of the likeliest that are left */
        for (int32_t i = 0; i < n; i++) {
            if (taken[i]) continue;
            if (best < 0) best = i;
            float x = isnan(logits[i]) ? -INFINITY : logits[i];
            float y = isnan(logits[best]) ? -INFINITY : logits[best];
            if (x > y) best = i;
        }
        taken[best] = true;
        assert_int_equal(top[k].token, best);
        assert_true(near((double)top[k].logprob, naive(logits, n, best)));
    }
}

static void rows_are_as_a_naive_sum_has_them(void **state)
{
    (void)state;
    static float logits[N_MOST];
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 300; round++) {
        int32_t n = round < 100 ? dice_in(&d, 1, 200) : dice_in(&d, 1, N_MOST);
        int32_t spread = dice_in(&d, 1, 200), shift = dice_in(&d, -500, 500);
        bool ties = dice_one_in(&d, 3), gaps = dice_one_in(&d, 3);
        for (int32_t i = 0; i < n; i++) {
            float x = (float)dice_in(&d, -1000000, 1000000) / 1e6f;
            if (ties) x = roundf(x * 8) / 8;
            logits[i] = x * (float)spread + (float)shift;
            if (gaps && dice_one_in(&d, 4)) logits[i] = dice_one_in(&d, 2) ? NAN : -INFINITY;
        }
        logits[dice_in(&d, 0, n - 1)] = (float)shift; /* one at least is a number */
        int32_t most = n < WEIR__LOGPROBS_MAX ? n : WEIR__LOGPROBS_MAX;
        judge(logits, n, dice_in(&d, 0, n - 1), dice_in(&d, 0, most));
    }
}

static void rows_are_so_on_a_lesser_processor(void **state)
{
    weir__cpu_hide(WEIR__CPU_AVX2);
    rows_are_as_a_naive_sum_has_them(state);
}

static int give_back(void **state)
{
    (void)state;
    weir__cpu_hide(0);
    return 0;
}

static void a_certain_token_has_logprob_0(void **state)
{
    (void)state;
    static float logits[100];
    weir_logprob top[2];
    for (int i = 0; i < 100; i++) logits[i] = -INFINITY;
    logits[42] = 7;
    assert_true(fabsf(weir__logprob(logits, 100, 42, top, 2)) < 1e-7f);
    assert_int_equal(top[0].token, 42);
    assert_int_equal(top[1].token, 0);
    assert_true(isinf(top[1].logprob) && top[1].logprob < 0);
    logits[7] = INFINITY; /* a logit that no model should have, but a number */
    assert_true(fabsf(weir__logprob(logits, 100, 7, top, 2)) < 1e-7f);
    assert_int_equal(top[0].token, 7);
    assert_true(weir__logprob(logits, 100, 42, top, 2) < -1e30f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_a_naive_sum_has_them),
        cmocka_unit_test_teardown(rows_are_so_on_a_lesser_processor, give_back),
        cmocka_unit_test(a_certain_token_has_logprob_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
