/* levels.h: a test for each level of kernels, which says whether the tests beside it ran on that
 * level. A level that this processor cannot run is skipped, and counted as such.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_LEVELS_H
#define WEIR_SUPPORT_LEVELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

/* In the order of weir__kernels_level. */
static const char *const test_levels[] = {
#if defined(__aarch64__)
    "i8mm", "dotprod", "neon"
#else
    "avx512bf16", "avx512", "avx2"
#endif
};

static void level_runs_here(void **state)
{
    const char *const *name = *state;
    bool runs = false;
    assert_string_equal(weir__kernels_level((int)(name - test_levels)), *name);
    int i = weir__kernels_find(*name, &runs);
    if (!runs) {
        print_message("level %s: not tested, this processor does not run it\n", *name);
        skip();
    }
    assert_string_equal(weir__kernels_name(i), *name);
    print_message("level %s: tested\n", *name);
}

static void all_levels_are_told(void **state)
{
    (void)state;
    assert_null(weir__kernels_level(sizeof test_levels / sizeof *test_levels));
}

#define LEVEL_TEST(name, i)                                                                                  \
    {                                                                                                        \
        "level_" name, level_runs_here, NULL, NULL, (void *)(uintptr_t)&test_levels[i]                       \
    }
#if defined(__aarch64__)
#define LEVEL_TESTS                                                                                          \
    cmocka_unit_test(all_levels_are_told), LEVEL_TEST("i8mm", 0), LEVEL_TEST("dotprod", 1),                  \
        LEVEL_TEST("neon", 2)
#else
#define LEVEL_TESTS                                                                                          \
    cmocka_unit_test(all_levels_are_told), LEVEL_TEST("avx512bf16", 0), LEVEL_TEST("avx512", 1),             \
        LEVEL_TEST("avx2", 2)
#endif

#endif
