/* Helpers do each thing once and are waited for. Run under the thread sanitizer (pthread).
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"

#define MOST 300

typedef struct work {
    int32_t done[MOST]; /* not atomic: the sanitizer sees whether the pool orders its accesses */
    atomic_int inside, most_inside;
    int64_t sleep_ns;
} work;

static void once(void *user, int32_t i)
{
    work *w = user;
    int n = atomic_fetch_add(&w->inside, 1) + 1;
    for (int seen = atomic_load(&w->most_inside); n > seen;)
        if (atomic_compare_exchange_weak(&w->most_inside, &seen, n)) break;
    if (w->sleep_ns > 0) nanosleep(&(struct timespec){.tv_nsec = w->sleep_ns}, NULL);
    w->done[i]++;
    atomic_fetch_sub(&w->inside, 1);
}

static void each_is_done_once(void **state)
{
    (void)state;
    for (int32_t helpers = 0; helpers <= 4; helpers++) {
        weir__thread_pool *pool = weir__thread_pool_create(helpers);
        assert_non_null(pool);
        for (int round = 0; round < 400; round++) {
            work w = {.sleep_ns = round % 50 == 0 ? 100000 : 0};
            int32_t n = (round * 7) % (round % 50 == 0 ? 10 : MOST + 1);
            weir__thread_pool_run(pool, once, &w, n);
            for (int32_t i = 0; i < MOST; i++) assert_int_equal(w.done[i], i < n);
            assert_int_equal(atomic_load(&w.inside), 0);
        }
        weir__thread_pool_destroy(pool);
    }
}

static void helpers_take_part(void **state)
{
    (void)state;
    weir__thread_pool *pool = weir__thread_pool_create(3);
    work w = {.sleep_ns = 1000000};
    int most = 0;
    for (int round = 0; round < 100 && most < 2; round++) { /* the first may find all of them asleep */
        weir__thread_pool_run(pool, once, &w, 40);
        most = atomic_load(&w.most_inside);
    }
    assert_in_range(most, 2, 4);
    weir__thread_pool_destroy(pool);
}

static void without_memory_there_is_none(void **state)
{
    (void)state;
    long live = weir__mem_live();
    weir__mem_fail_after(0);
    assert_null(weir__thread_pool_create(2));
    weir__mem_fail_after(-1);
    weir__thread_pool_destroy(NULL);
    assert_int_equal(weir__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_done_once),
        cmocka_unit_test(helpers_take_part),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
