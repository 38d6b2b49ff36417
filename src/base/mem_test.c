/* mem_test.c: live blocks are counted, and each allocation can be made to fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static int nothing_live(void **test)
{
    (void)test;
    weir__mem_fail_after(-1);
    return weir__mem_live() == 0 ? 0 : -1;
}

static void counts_live_blocks(void **test)
{
    (void)test;
    void *a = weir__mem_alloc(10);
    void *b = weir__mem_calloc(3, 5);
    void *c = weir__mem_realloc(NULL, 7);
    char *d = weir__mem_strdup("text");
    void *e = weir__mem_dup("abc", 3);
    assert_int_equal(weir__mem_live(), 5);
    c = weir__mem_realloc(c, 700);
    assert_int_equal(weir__mem_live(), 5);
    assert_string_equal(d, "text");
    assert_memory_equal(e, "abc", 3);
    weir__mem_free(a);
    weir__mem_free(b);
    weir__mem_free(c);
    weir__mem_free(d);
    weir__mem_free(e);
    weir__mem_free(NULL);
    assert_int_equal(weir__mem_live(), 0);
}

static void zero_sizes_give_blocks(void **test)
{
    (void)test;
    void *blocks[] = {weir__mem_alloc(0), weir__mem_calloc(0, 8), weir__mem_calloc(8, 0),
                      weir__mem_dup(NULL, 0), weir__mem_realloc(weir__mem_alloc(4), 0)};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        assert_non_null(blocks[i]);
        weir__mem_free(blocks[i]);
    }
}

static void calloc_zeroes_and_checks(void **test)
{
    (void)test;
    unsigned char *block = weir__mem_calloc(100, 3);
    assert_non_null(block);
    for (size_t i = 0; i < 300; i++) assert_int_equal(block[i], 0);
    weir__mem_free(block);
    assert_null(weir__mem_calloc(SIZE_MAX / 2, 3));
    assert_null(weir__mem_calloc(3, SIZE_MAX / 2));
}

static void free_keeps_errno(void **test)
{
    (void)test;
    void *block = weir__mem_alloc(1);
    errno = EDOM;
    weir__mem_free(block);
    assert_int_equal(errno, EDOM);
}

static void fails_once_where_told(void **test)
{
    (void)test;
    for (long n = 0; n < 3; n++) {
        void *blocks[4];
        weir__mem_fail_after(n);
        for (long i = 0; i < 4; i++) {
            assert_int_equal(weir__mem_fail_pending(), i <= n);
            blocks[i] = weir__mem_alloc(1);
            assert_int_equal(blocks[i] == NULL, i == n);
        }
        assert_int_equal(weir__mem_live(), 3);
        for (long i = 0; i < 4; i++) weir__mem_free(blocks[i]);
    }
    weir__mem_fail_after(0);
    weir__mem_fail_after(-1);
    assert_false(weir__mem_fail_pending());
}

static void every_function_can_fail(void **test)
{
    (void)test;
    int *items = NULL;
    size_t capacity = 0;
    char *kept = weir__mem_strdup("kept");
    weir__mem_fail_after(0);
    assert_null(weir__mem_alloc(1));
    weir__mem_fail_after(0);
    assert_null(weir__mem_calloc(1, 1));
    weir__mem_fail_after(0);
    assert_null(weir__mem_realloc(NULL, 1));
    weir__mem_fail_after(0);
    assert_null(weir__mem_realloc(kept, 100));
    assert_string_equal(kept, "kept");
    weir__mem_fail_after(0);
    assert_null(weir__mem_strdup("text"));
    weir__mem_fail_after(0);
    assert_null(weir__mem_dup("x", 1));
    weir__mem_fail_after(0);
    assert_false(weir__mem_grow(&items, &capacity, 1, sizeof *items));
    assert_null(items);
    assert_int_equal(capacity, 0);
    weir__mem_free(kept);
}

static void grow_doubles_and_keeps(void **test)
{
    (void)test;
    int *items = NULL;
    size_t capacity = 0;
    int n_moves = 0;
    for (int i = 0; i < 10000; i++) {
        size_t before = capacity;
        assert_true(weir__mem_grow(&items, &capacity, (size_t)i + 1, sizeof *items));
        assert_true(capacity > (size_t)i);
        n_moves += capacity != before;
        items[i] = i;
    }
    assert_true(n_moves < 15);
    for (int i = 0; i < 10000; i++) assert_int_equal(items[i], i);

    size_t before = capacity;
    weir__mem_fail_after(0);
    assert_false(weir__mem_grow(&items, &capacity, capacity + 1, sizeof *items));
    assert_int_equal(capacity, before);
    assert_int_equal(items[9999], 9999);
    assert_false(weir__mem_grow(&items, &capacity, SIZE_MAX / 2, sizeof *items));
    assert_false(weir__mem_grow(&items, &capacity, SIZE_MAX, sizeof *items));
    assert_int_equal(capacity, before);
    assert_true(weir__mem_grow(&items, &capacity, 0, sizeof *items));
    weir__mem_free(items);
}

/* ---- Threads -------------------------------------------------------------------------------------- */

#define N_THREADS 4
#define N_ROUNDS  5000

static void *allocate_and_free(void *result)
{
    long *n_failed = result;
    for (int i = 0; i < N_ROUNDS; i++) {
        void *block = weir__mem_alloc(16);
        if (block == NULL) ++*n_failed;
        weir__mem_free(block);
    }
    return NULL;
}

static void one_of_many_threads_fails(void **test)
{
    (void)test;
    pthread_t threads[N_THREADS];
    long n_failed[N_THREADS] = {0};
    long total = 0;
    weir__mem_fail_after(N_ROUNDS);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &n_failed[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += n_failed[i];
    }
    assert_int_equal(total, 1);
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(counts_live_blocks, nothing_live),
        cmocka_unit_test_teardown(zero_sizes_give_blocks, nothing_live),
        cmocka_unit_test_teardown(calloc_zeroes_and_checks, nothing_live),
        cmocka_unit_test_teardown(free_keeps_errno, nothing_live),
        cmocka_unit_test_teardown(fails_once_where_told, nothing_live),
        cmocka_unit_test_teardown(every_function_can_fail, nothing_live),
        cmocka_unit_test_teardown(grow_doubles_and_keeps, nothing_live),
        cmocka_unit_test_teardown(one_of_many_threads_fails, nothing_live),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
