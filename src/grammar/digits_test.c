/* digits_test.c: ranges of integers as a grammar of their digits. SPDX-License-Identifier: Apache-2.0 */
#include "grammar/range.h"

#include "base/mem.h"
#include "support/gbnf.h"
#include "support/model.h"

static gbnf *range(uint64_t least, uint64_t most)
{
    weir__text text = {0};
    assert_true(weir__text_add_string(&text, "root ::= "));
    weir__digits_add(&text, least, most);
    assert_false(text.failed);
    gbnf *g = gbnf_parse(text.bytes);
    weir__text_fini(&text);
    return g;
}

static bool has(gbnf *g, const char *format, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, format, (unsigned long long)value);
    return gbnf_matches(g, text);
}

static void all_ranges_of_small_numbers(void **state)
{
    (void)state;
    enum { MOST = 132 };
    for (uint64_t least = 0; least <= MOST; least++)
        for (uint64_t most = least; most <= MOST; most++) {
            gbnf *g = range(least, most);
            for (uint64_t v = 0; v <= MOST + 1; v++) {
                if (has(g, "%llu", v) != (least <= v && v <= most))
                    fail_msg("%d to %d: %d", (int)least, (int)most, (int)v);
                assert_false(has(g, "0%llu", v));
            }
            assert_false(gbnf_matches(g, ""));
            gbnf_free(g);
        }
}

static void bounds_of_all_lengths(void **state)
{
    (void)state;
    uint64_t bounds[64];
    size_t n = 0;
    for (uint64_t power = 1; power <= UINT64_C(1000000000000000); power *= 10) {
        bounds[n++] = power - 1;
        bounds[n++] = power;
        bounds[n++] = 7 * power + power / 3;
    }
    bounds[n++] = UINT64_C(9999999999999999);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            if (bounds[i] > bounds[k]) continue;
            gbnf *g = range(bounds[i], bounds[k]);
            for (size_t m = 0; m < n; m++)
                for (uint64_t v = bounds[m] - (bounds[m] > 0); v <= bounds[m] + 1; v++)
                    if (has(g, "%llu", v) != (bounds[i] <= v && v <= bounds[k]))
                        fail_msg("%llu to %llu: %llu", (unsigned long long)bounds[i],
                                 (unsigned long long)bounds[k], (unsigned long long)v);
            gbnf_free(g);
        }
    gbnf *g = range(UINT64_MAX - 5, UINT64_MAX);
    assert_true(has(g, "%llu", UINT64_MAX));
    assert_false(has(g, "%llu", UINT64_MAX - 6));
    gbnf_free(g);
}

static void memory_that_runs_out(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__text text = {0};
        weir__mem_fail_after(n);
        weir__digits_add(&text, 105, 98765);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(!text.failed, pending);
        weir__text_fini(&text);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_true(n > 0);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranges_of_small_numbers),
        cmocka_unit_test(bounds_of_all_lengths),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
