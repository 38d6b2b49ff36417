/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/ring.h"

struct record {
    char tag;
    int number;
};

/* Every fill of every small capacity, every length of snapshot. */
static void snapshot_is_the_last_n(void **test)
{
    (void)test;
    for (size_t capacity = 1; capacity <= 5; capacity++) {
        weir__ring ring;
        assert_true(weir__ring_init(&ring, capacity, sizeof(struct record)));
        for (int pushed = 0; pushed <= 13; pushed++) {
            for (size_t n = 0; n <= capacity + 2; n++) {
                struct record out[8];
                size_t want = n < capacity ? n : capacity;
                if (want > (size_t)pushed) want = (size_t)pushed;
                assert_int_equal(weir__ring_snapshot(&ring, out, n), want);
                for (size_t i = 0; i < want; i++) {
                    assert_int_equal(out[i].tag, 't');
                    assert_int_equal(out[i].number, pushed - (int)want + (int)i);
                }
            }
            struct record record = {'t', pushed};
            weir__ring_push(&ring, &record);
        }
        assert_int_equal(ring.n_pushed, 14);
        weir__ring_fini(&ring);
    }
    assert_int_equal(weir__mem_live(), 0);
}

static void push_allocates_nothing(void **test)
{
    (void)test;
    weir__ring ring;
    assert_true(weir__ring_init(&ring, 3, sizeof(int)));
    weir__mem_fail_after(0);
    for (int i = 0; i < 10; i++) weir__ring_push(&ring, &i);
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    weir__ring_fini(&ring);
}

static void out_of_memory(void **test)
{
    (void)test;
    weir__ring ring;
    int out;
    weir__mem_fail_after(0);
    assert_false(weir__ring_init(&ring, 3, sizeof(int)));
    assert_int_equal(weir__ring_snapshot(&ring, &out, 1), 0);
    weir__ring_fini(&ring);
    assert_false(weir__ring_init(&ring, SIZE_MAX, 16));
    weir__ring_fini(&ring);
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshot_is_the_last_n),
        cmocka_unit_test(push_allocates_nothing),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
