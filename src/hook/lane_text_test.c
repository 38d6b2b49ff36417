/* lane_text_test.c: the texts that lanes have in common, compared with a simple model of lanes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/lane_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"

enum { LANES = 6, LONGEST = 100 };

/* Cells hold the number of the change that wrote them. */
typedef struct lane {
    int32_t n;
    int32_t cells[LONGEST];
} lane;

static void check(const weir__lane_texts *texts, const lane *lanes)
{
    for (int32_t a = 0; a < LANES; a++)
        for (int32_t b = 0; b < LANES; b++) {
            if (a == b) continue;
            int32_t common = weir__lane_texts_common(texts, a, b);
            assert_int_equal(common, weir__lane_texts_common(texts, b, a));
            for (int32_t i = 0; i < common && i < lanes[a].n && i < lanes[b].n; i++)
                assert_int_equal(lanes[a].cells[i], lanes[b].cells[i]);
        }
}

/* A lane is never said to hold another lane's cell that it does not hold, whatever happens to lanes. */
static void never_too_much(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        static lane lanes[LANES];
        weir__lane_texts texts;
        dice d = {seed};
        int32_t n_written = 0;
        assert_true(weir__lane_texts_init(&texts, LANES));
        memset(lanes, 0, sizeof lanes);
        for (int step = 0; step < 400; step++) {
            int32_t from = dice_in(&d, 0, LANES - 1), to = dice_in(&d, 0, LANES - 1);
            lane *l = &lanes[to];
            switch (dice_in(&d, 0, 5)) {
            case 0: /* a copy, whole or in part */
                if (from == to) break;
                l->n = dice_in(&d, 0, lanes[from].n);
                memcpy(l->cells, lanes[from].cells, sizeof l->cells);
                weir__lane_texts_copy(&texts, from, to, l->n);
                break;
            case 1: /* a cut, seldom of everything */
                if (dice_one_in(&d, 2)) break;
                l->n = dice_in(&d, dice_one_in(&d, 5) ? 0 : l->n / 2, l->n);
                weir__lane_texts_cut(&texts, to, l->n);
                break;
            default: /* tokens; no word of them */
                for (int32_t n = dice_in(&d, 1, 9); n > 0 && l->n < LONGEST; n--)
                    l->cells[l->n++] = ++n_written;
            }
            check(&texts, lanes);
        }
        weir__lane_texts_fini(&texts);
    }
    assert_int_equal(weir__mem_live(), 0);
}

/* Lanes with a common prefix are neighbours, and know it, also when the lane that it came from is gone. */
static void a_prefix_outlives_its_first_lane(void **state)
{
    (void)state;
    weir__lane_texts texts;
    assert_true(weir__lane_texts_init(&texts, LANES));
    assert_int_equal(weir__lane_texts_common(&texts, 0, 1), 0);
    weir__lane_texts_copy(&texts, 3, 0, 50);
    weir__lane_texts_copy(&texts, 3, 1, 50);
    weir__lane_texts_copy(&texts, 3, 4, 40);
    weir__lane_texts_copy(&texts, 1, 5, 70);
    assert_int_equal(weir__lane_texts_common(&texts, 0, 3), 50);
    weir__lane_texts_cut(&texts, 3, 0);
    assert_int_equal(weir__lane_texts_common(&texts, 0, 3), 0);
    assert_int_equal(weir__lane_texts_common(&texts, 0, 1), 50);
    assert_int_equal(weir__lane_texts_common(&texts, 0, 4), 40);
    assert_int_equal(weir__lane_texts_common(&texts, 1, 5), 70);
    assert_true(weir__lane_texts_compare(&texts, 1, 5) * weir__lane_texts_compare(&texts, 1, 3) >= 0);
    weir__lane_texts_cut(&texts, 1, 45);
    assert_int_equal(weir__lane_texts_common(&texts, 0, 1), 45);
    assert_int_equal(weir__lane_texts_common(&texts, 1, 5), 45);
    weir__lane_texts_fini(&texts);
}

/* Speculation cuts a lane with each tick. */
static void cuts_of_an_own_text_cost_nothing(void **state)
{
    (void)state;
    weir__lane_texts texts;
    assert_true(weir__lane_texts_init(&texts, LANES));
    weir__lane_texts_copy(&texts, 0, 1, 20);
    for (int32_t n = 30; n < 1000; n++) weir__lane_texts_cut(&texts, 1, n);
    assert_int_equal(texts.lanes[1].n, 2);
    weir__lane_texts_copy(&texts, 1, 2, 900);
    assert_int_equal(weir__lane_texts_common(&texts, 1, 2), 900);
    /* More parts than there is room for: less is known, nothing wrong. */
    for (int32_t n = 800; n < 900; n++) {
        weir__lane_texts_copy(&texts, 2, 3, n);
        weir__lane_texts_copy(&texts, 3, 2, n);
    }
    assert_true(texts.lanes[2].n <= WEIR__LANE_PARTS);
    weir__lane_texts_fini(&texts);
}

static void no_memory(void **state)
{
    (void)state;
    weir__lane_texts texts;
    weir__mem_fail_after(0);
    assert_false(weir__lane_texts_init(&texts, LANES));
    weir__mem_fail_after(-1);
    weir__lane_texts_fini(&texts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_too_much),
        cmocka_unit_test(a_prefix_outlives_its_first_lane),
        cmocka_unit_test(cuts_of_an_own_text_cost_nothing),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
