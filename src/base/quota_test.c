/* quota_test.c: texts that share a quota. SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

#define MOST 1000 /* of all texts */

static size_t used;

static bool take(weir__quota *quota, size_t n)
{
    (void)quota;
    if (n > MOST - used) return false;
    used += n;
    return true;
}

static void give(weir__quota *quota, size_t n)
{
    (void)quota;
    assert_true(n > 0 && n <= used);
    used -= n;
}

static weir__quota quota_of(size_t small)
{
    used = 0;
    return (weir__quota){.most = MOST, .small = small, .take = take, .give = give};
}

static void grow(weir__text *text, size_t n)
{
    while (text->n < n && !text->failed) weir__text_add_string(text, "ten bytes.");
}

static void test_small_texts_do_not_count(void **state)
{
    weir__quota quota = quota_of(256);
    weir__text texts[8];
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        texts[i] = (weir__text){.quota = &quota};
        grow(&texts[i], 250);
        assert_false(texts[i].failed);
    }
    assert_int_equal(used, 0);
    for (size_t i = 0; i < 8; i++) weir__text_fini(&texts[i]);
}

static void test_large_ones_share(void **state)
{
    weir__quota quota = quota_of(100);
    weir__text first = {.quota = &quota}, second = {.quota = &quota};
    (void)state;
    grow(&first, 500);
    assert_false(first.failed);
    assert_int_equal(used, first.capacity);
    grow(&second, 700);
    assert_true(second.failed && second.over && !second.too_long);
    assert_true(used <= MOST);
    weir__text_fini(&second);
    assert_int_equal(used, first.capacity);
    weir__text_fini(&first);
    assert_int_equal(used, 0);
    grow(&second, 700);
    assert_false(second.failed);
    weir__text_fini(&second);
}

static void test_one_has_all_at_most(void **state)
{
    weir__quota quota = quota_of(100);
    weir__text text = {.quota = &quota};
    (void)state;
    grow(&text, 990); /* its capacity does not double any more */
    assert_false(text.failed);
    assert_int_equal(used, MOST);
    grow(&text, 1000);
    assert_true(text.failed && text.over && text.too_long);
    assert_int_equal(text.n, 990);
    weir__text_fini(&text);
    assert_int_equal(used, 0);
}

static void test_close(void **state)
{
    weir__quota quota = quota_of(100);
    weir__text text = {.quota = &quota}, empty = {.quota = &quota};
    (void)state;
    grow(&text, 300);
    weir__text_close(&text, "head ", 5);
    assert_int_equal(text.n, 305);
    assert_memory_equal(text.bytes, "head ten bytes.ten", 18);
    assert_int_equal(text.bytes[305], '\0');
    assert_int_equal(used, 306);
    weir__text_close(&empty, "head", 4);
    assert_string_equal(empty.bytes, "head");
    weir__text_fini(&empty);
    weir__text_fini(&text);
    assert_int_equal(used, 0);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    for (long n = 0, pending = 0; !pending; n++) {
        weir__quota quota = quota_of(100);
        weir__text text = {.quota = &quota};
        weir__mem_fail_after(n);
        grow(&text, 300);
        weir__text_close(&text, "head ", 5);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(text.failed || text.n == 305);
        assert_false(text.over);
        weir__text_fini(&text);
        assert_int_equal(used, 0);
    }
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_texts_do_not_count),
        cmocka_unit_test(test_large_ones_share),
        cmocka_unit_test(test_one_has_all_at_most),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
