/* share_test.c: who owns, and random changes of a share against a model that counts one by one; what one
 * owner does to others. SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"

#define OWNERS 7

static bool same(int32_t key, const char *address, int32_t other_key, const char *other)
{
    return serve_owner_is(serve_owner_of(key, address), serve_owner_of(other_key, other));
}

static void test_owners(void **state)
{
    char one[SERVE_OWNER_NAME], two[SERVE_OWNER_NAME];
    (void)state;
    assert_true(same(0, "10.0.0.1", 0, "10.0.0.2")); /* a key, wherever it is used */
    assert_false(same(0, "10.0.0.1", 1, "10.0.0.1"));
    assert_false(same(0, "10.0.0.1", -1, "10.0.0.1"));
    assert_true(same(-1, "10.0.0.1", -1, "10.0.0.1"));
    assert_false(same(-1, "10.0.0.1", -1, "10.0.0.2"));
    assert_true(same(-1, "::ffff:10.0.0.1", -1, "10.0.0.1"));
    assert_true(same(-1, "2001:db8:1:2::1", -1, "2001:db8:1:2:ffff:ffff:ffff:ffff"));
    assert_false(same(-1, "2001:db8:1:2::1", -1, "2001:db8:1:3::1"));
    assert_true(same(-1, "fe80::1%eth0", -1, "fe80::2"));
    assert_true(same(-1, "", -1, ""));
    assert_false(same(-1, "", -1, "::1"));
    assert_false(same(-1, "", -1, "?"));
    assert_false(same(-1, "", -1, "0.0.0.0"));
    serve_owner_name(serve_owner_of(-1, ""), one);
    serve_owner_name(serve_owner_of(INT32_MAX, "10.0.0.1"), two);
    assert_true(one[0] != '\0' && strcmp(one, two) != 0);
    serve_owner_name(serve_owner_of(-1, "ffff:ffff:ffff:ffff::"), one);
    assert_int_equal(strlen(one), strlen("owner 3 ffffffffffffffff")); /* the longest */
}

static serve_owner owner_of(int i)
{
    return serve_owner_of(i, "");
}

static bool is_largest(const size_t held[OWNERS], serve_owner owner)
{
    for (int i = 0; i < OWNERS; i++)
        for (int k = 0; k < OWNERS && serve_owner_is(owner_of(i), owner); k++)
            if (held[k] > held[i]) return false;
    return true;
}

static void test_as_if_counted_one_by_one(void **state)
{
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    (void)state;
    for (int round = 0; round < 200; round++) {
        serve_share share;
        size_t held[OWNERS] = {0}, used = 0, most = (size_t)dice_in(&d, 1, 300);
        serve_share_init(&share);
        for (int step = 0; step < 300; step++) {
            int i = dice_in(&d, 0, OWNERS - 1);
            size_t n = (size_t)dice_in(&d, 0, dice_one_in(&d, 4) ? 40 : 2);
            if (dice_one_in(&d, 3)) {
                if (n > held[i]) n = held[i];
                serve_share_release(&share, owner_of(i), n);
                held[i] -= n;
                used -= n;
            } else {
                bool taken = serve_share_take(&share, owner_of(i), n, most) == SERVE_SHARE_OK;
                bool may = used + n <= most; /* each of them, one by one */
                for (size_t k = 0; k < n && may; k++) may = held[i] + k < 3 * (most - used - k);
                assert_int_equal(taken, may);
                held[i] += taken ? n : 0;
                used += taken ? n : 0;
            }
            serve_owner largest;
            assert_int_equal(serve_share_used(&share), used);
            assert_int_equal(serve_share_held(&share, owner_of(i)), held[i]);
            assert_int_equal(serve_share_largest(&share, &largest), used > 0);
            assert_true(used == 0 || is_largest(held, largest));
        }
        serve_share_fini(&share);
    }
    assert_int_equal(weir__mem_live(), 0);
}

/* Entries of the store stay: whatever the first owner does, each of n others may have a quarter of its equal
 * part at any time; and alone it has three quarters. */
static void test_who_takes_all_leaves_room(void **state)
{
    dice d = {dice_environment("WEIR_TEST_SEED", 2)};
    (void)state;
    for (int round = 0; round < 500; round++) {
        serve_share share;
        size_t held[OWNERS] = {0}, most = (size_t)dice_in(&d, 1, 400);
        int n = dice_in(&d, 2, OWNERS);
        serve_share_init(&share);
        for (int step = 0; step < 1000; step++) {
            int i = dice_one_in(&d, 3) ? dice_in(&d, 1, n - 1) : 0;
            if (dice_one_in(&d, 4) && held[i] > 0) {
                serve_share_release(&share, owner_of(i), 1);
                held[i]--;
                continue;
            }
            if (i > 0 && (held[i] + 1) * 4 * (size_t)n > most) continue; /* it would have its part */
            bool taken = serve_share_take(&share, owner_of(i), 1, most) == SERVE_SHARE_OK;
            assert_true(taken || i == 0);
            held[i] += taken;
        }
        for (int i = 1; i < n; i++) serve_share_release(&share, owner_of(i), held[i]);
        while (serve_share_take(&share, owner_of(0), 1, most) == SERVE_SHARE_OK) held[0]++;
        assert_int_equal(held[0], serve_share_alone(most));
        assert_int_equal(serve_share_take(&share, owner_of(1), 1, most),
                         most >= 4 ? SERVE_SHARE_OK : SERVE_SHARE_FULL);
        serve_share_fini(&share);
    }
}

/* Entries of the store can go: an owner that holds no more than its equal share keeps all, whatever others
 * do. */
static void test_who_has_less_than_its_share_keeps_it(void **state)
{
    dice d = {dice_environment("WEIR_TEST_SEED", 3)};
    (void)state;
    for (int round = 0; round < 500; round++) {
        serve_share share;
        size_t held[OWNERS] = {0}, most = (size_t)dice_in(&d, OWNERS, 400);
        int n = dice_in(&d, 1, OWNERS);
        serve_share_init(&share);
        for (int step = 0; step < 1000; step++) {
            int i = dice_in(&d, 0, n - 1);
            size_t more = (size_t)dice_in(&d, 1, dice_one_in(&d, 10) ? (int32_t)most : 3);
            bool modest = i > 0 && i % 2 == 0;
            if (modest && (held[i] + more) * (size_t)n > most) continue;
            assert_true(serve_share_hold(&share, owner_of(i), more));
            held[i] += more;
            while (serve_share_used(&share) > most) {
                serve_owner victim;
                assert_true(serve_share_largest(&share, &victim));
                int v = 0;
                while (!serve_owner_is(owner_of(v), victim)) v++;
                assert_true(held[v] * (size_t)n > most);
                assert_true(v == 0 || v % 2 != 0);
                size_t one = held[v] < more ? held[v] : more;
                serve_share_release(&share, victim, one);
                held[v] -= one;
            }
        }
        serve_share_fini(&share);
    }
}

static void test_without_memory(void **state)
{
    serve_share share;
    (void)state;
    serve_share_init(&share);
    weir__mem_fail_after(0);
    assert_int_equal(serve_share_take(&share, owner_of(0), 1, 10), SERVE_SHARE_NO_MEMORY);
    weir__mem_fail_after(0);
    assert_false(serve_share_hold(&share, owner_of(0), 1));
    weir__mem_fail_after(-1);
    assert_int_equal(serve_share_used(&share), 0);
    assert_true(serve_share_hold(&share, owner_of(0), 0)); /* nothing takes none */
    serve_share_release(&share, owner_of(0), 0);
    serve_share_fini(&share);
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_as_if_counted_one_by_one),
        cmocka_unit_test(test_who_takes_all_leaves_room),
        cmocka_unit_test(test_who_has_less_than_its_share_keeps_it),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
