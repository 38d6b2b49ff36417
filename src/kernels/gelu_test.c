/* GELU against double precision, and against itself on other levels and at other places.
 * SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "support/levels.h"

static double gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void numbers_are_those_of_the_formula(void **state)
{
    (void)state;
    weir__gelu *gelu;
    for (int level = 0; (gelu = weir__kernels_gelu(level)) != NULL; level++)
        for (int i = -2000000; i <= 2000000; i++) {
            float x = (float)i / 1e5f, got;
            gelu(&x, &got, 1);
            double want = gelu_of((double)x), bound = 1e-6 * fabs(want) + 1e-9 * fabs((double)x);
            if (!(fabs((double)got - want) <= bound))
                fail_msg("level %d: of %.9g it is %.9g, not %.9g", level, (double)x, (double)got, want);
        }
}

static void extremes(void **state)
{
    (void)state;
    static const float x[] = {0.0f, -0.0f, 1e-40f, 1e20f, -1e20f, 3e38f, -3e38f, INFINITY};
    static const float want[] = {0.0f, 0.0f, 5e-41f, 1e20f, 0.0f, 3e38f, 0.0f, INFINITY};
    weir__gelu *gelu;
    for (int level = 0; (gelu = weir__kernels_gelu(level)) != NULL; level++) {
        float got[8], none[] = {NAN, -INFINITY};
        gelu(x, got, 8);
        for (int i = 0; i < 8; i++) assert_true(got[i] == want[i]);
        gelu(none, none, 2);
        assert_true(isnan(none[0]) && isnan(none[1]));
    }
}

/* Numbers are the same to the bit: alone or behind others, in place or not, on all levels; nothing else is
 * read or written. */
static void company_does_not_matter(void **state)
{
    (void)state;
    weir__gelu *gelu;
    for (int level = 0; (gelu = weir__kernels_gelu(level)) != NULL; level++)
        for (size_t n = 0; n < 70; n++) {
            float *x = malloc(n * sizeof *x + 1),
                  *to = malloc(n * sizeof *to + 1); /* a sanitizer sees more */
            for (size_t i = 0; i < n; i++) x[i] = 6.0f * sinf((float)(7 * i + n));
            gelu(x, to, (int64_t)n);
            for (size_t i = 0; i < n; i++) {
                float alone;
                weir__kernels_gelu(0)(&x[i], &alone, 1);
                assert_memory_equal(&alone, &to[i], sizeof alone);
            }
            gelu(x, x, (int64_t)n);
            assert_memory_equal(x, to, n * sizeof *x);
            free(to);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {LEVEL_TESTS, cmocka_unit_test(numbers_are_those_of_the_formula),
                                       cmocka_unit_test(extremes), cmocka_unit_test(company_does_not_matter)};
    return cmocka_run_group_tests_name("gelu", tests, NULL, NULL);
}
