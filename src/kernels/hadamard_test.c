/* The transform against products in double precision, and to the bit against ggml's order of sums.
 * SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "support/dice.h"
#include "support/levels.h"

#define MOST 256

static const int64_t sizes[] = {64, 128, 256};

/* The entry of an orthogonal matrix: plus where i and k have an even number of ones in common. */
static double entry(int64_t n, int64_t i, int64_t k)
{
    return (__builtin_popcountll((unsigned long long)(i & k)) % 2 == 0 ? 1.0 : -1.0) / sqrt((double)n);
}

/* Transforms in ggml's order: scaled first, then level by level, from neighbours on. */
static void as_ggml(const float *x, float *to, int64_t n)
{
    float scale = 1.0f / sqrtf((float)n);
    for (int64_t i = 0; i < n; i++) to[i] = x[i] * scale;
    for (int64_t distance = 1; distance < n; distance *= 2)
        for (int64_t i = 0; i < n; i++) {
            if ((i & distance) != 0) continue;
            float a = to[i], b = to[i + distance];
            to[i] = a + b;
            to[i + distance] = a - b;
        }
}

static void heads_are_transformed(void **state)
{
    (void)state;
    dice d = {.state = 7};
    float x[MOST], ggmls[MOST], out[MOST];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int trial = 0; trial < 100; trial++) {
            int64_t n = sizes[s];
            for (int64_t i = 0; i < n; i++) x[i] = (float)dice_in(&d, -1000000, 1000000) / 1e6f;
            weir__hadamard *transform;
            for (int level = 0; (transform = weir__kernels_hadamard(level)) != NULL; level++) {
                transform(x, out, n);
                as_ggml(x, ggmls, n);
                assert_memory_equal(out, ggmls, (size_t)n * sizeof *out);
                for (int64_t i = 0; i < n; i++) {
                    double want = 0;
                    for (int64_t k = 0; k < n; k++) want += entry(n, i, k) * (double)x[k];
                    assert_true(fabs(want - (double)out[i]) < 4e-6);
                }
                transform(out, out, n); /* in place; it is its own inverse */
                for (int64_t i = 0; i < n; i++) assert_true(fabsf(out[i] - x[i]) < 4e-6f);
            }
        }
}

static void sizes_that_are_taken(void **state)
{
    (void)state;
    for (int64_t n = -1; n <= 1024; n++)
        assert_int_equal(weir__hadamard_takes(n), n == 64 || n == 128 || n == 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {LEVEL_TESTS, cmocka_unit_test(heads_are_transformed),
                                       cmocka_unit_test(sizes_that_are_taken)};
    return cmocka_run_group_tests_name("hadamard", tests, NULL, NULL);
}
