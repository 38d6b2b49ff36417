/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/settings/key_file.h"

#define SECOND ((int64_t)WEIR__NS_PER_S)
#define START  (1000 * SECOND)
#define KEY(t)                                                                                               \
    {                                                                                                        \
        .text = (t), .priority = SERVE_UNSAID, .requests = SERVE_UNSAID, .rate = SERVE_UNSAID                \
    }

#define OPERATOR(t)                                                                                          \
    {                                                                                                        \
        .text = (t), .priority = SERVE_UNSAID, .requests = SERVE_UNSAID, .rate = SERVE_UNSAID,               \
        .operates = true                                                                                     \
    }

static serve_keys *create(const serve_key *list, size_t n, int32_t requests, int32_t rate)
{
    serve_params params = serve_params_default();
    params.live.keys = list;
    params.live.n_keys = n;
    params.live.key_requests = requests;
    params.live.key_rate = rate;
    serve_keys *keys = serve_keys_create(&params);
    assert_non_null(keys);
    return keys;
}

static int32_t find(serve_keys *keys, const char *given)
{
    return serve_keys_find(keys, given, strlen(given));
}

static void set(serve_keys *keys, const serve_key *list, size_t n)
{
    serve_params params = serve_params_default();
    params.live.keys = list;
    params.live.n_keys = n;
    assert_true(serve_keys_reserve(keys, &params));
    serve_keys_set(keys, &params);
}

/* ---- Which key ---- */

static void test_only_the_whole_key_is_found(void **state)
{
    const serve_key list[] = {KEY("alice"), KEY("bob"), KEY("bob2")};
    static const char *const others[] = {"",     "alic", "alice2", "Alice", "blice", "alicf",
                                         "bob ", " bob", "bo",     "bob1",  "bob3",  "weir key alice"};
    serve_keys *keys = create(list, 3, 0, 0);
    (void)state;
    assert_true(serve_keys_are_wanted(keys));
    for (int32_t i = 0; i < 3; i++) assert_int_equal(find(keys, list[i].text), i);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_int_equal(find(keys, others[i]), -1);
    assert_int_equal(serve_keys_find(keys, "alice\0", 6), -1);
    serve_keys_destroy(keys);
}

/* The salts are SHA-256 of "weir key " and the key, as another program computes it. */
static void test_salts_are_digests(void **state)
{
    const serve_key list[] = {KEY("alice"), KEY("alic")};
    serve_keys *keys = create(list, 2, 0, 0);
    (void)state;
    assert_string_equal(serve_keys_salt(keys, 0),
                        "e0f4f4227cf78f06fcf8e8bdb0679808a51bcb7c1912a2173fb6725ec714f3ba");
    assert_string_equal(serve_keys_salt(keys, 1),
                        "1ab6069827155a17cb151dc45886933782235ea0b728bab4854fc3c39895e76b");
    assert_string_equal(serve_keys_salt(keys, -1), "");
    serve_keys_destroy(keys);
}

static void test_without_keys_nobody_has_one(void **state)
{
    serve_keys *keys = create(NULL, 0, 1, 0);
    const char *why;
    int32_t retry_s = 0;
    (void)state;
    assert_false(serve_keys_are_wanted(keys));
    assert_int_equal(find(keys, ""), -1);
    assert_string_equal(serve_keys_salt(keys, -1), "");
    assert_true(serve_keys_enter(keys, -1, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, -1, START, &retry_s, &why));
    serve_keys_destroy(keys);
}

/* ---- How many at a time ---- */

static void test_each_key_has_its_own_places(void **state)
{
    const serve_key list[] = {KEY("alice"), {.text = "bob", .priority = 0, .requests = 1, .rate = 0}};
    serve_keys *keys = create(list, 2, 2, 0);
    const char *why = NULL;
    int32_t retry_s = 0;
    (void)state;
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_int_equal(retry_s, 1);
    assert_non_null(strstr(why, "as many running requests"));
    assert_true(serve_keys_enter(keys, 1, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 1, START, &retry_s, &why)); /* its own limit */
    serve_keys_leave(keys, 0, 1);
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    serve_keys_destroy(keys);
}

static void test_further_answers_take_places(void **state)
{
    const serve_key list[] = {KEY("alice")};
    serve_keys *keys = create(list, 1, 4, 0);
    const char *why;
    int32_t retry_s, most = 0;
    (void)state;
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_more(keys, 0, 4, &most));
    assert_int_equal(most, 4);
    assert_true(serve_keys_more(keys, 0, 3, &most));
    assert_false(serve_keys_more(keys, 0, 1, &most));
    assert_true(serve_keys_more(keys, 0, 0, &most));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    serve_keys_leave(keys, 0, 4);
    for (int i = 0; i < 4; i++) assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    serve_keys_destroy(keys);
    keys = create(list, 1, 0, 0); /* no limit */
    assert_true(serve_keys_more(keys, 0, 1000, &most));
    serve_keys_destroy(keys);
}

/* ---- How many in a minute ---- */

/* Asks as often as it may at this time; returns how often, and checks the refusal. */
static int32_t ask_all(serve_keys *keys, int32_t key, int64_t now_ns, int32_t *retry_s)
{
    const char *why = NULL;
    int32_t n = 0;
    *retry_s = 0;
    while (n < 1000 && serve_keys_enter(keys, key, now_ns, retry_s, &why)) n++;
    assert_non_null(why);
    assert_non_null(strstr(why, "last minute"));
    return n;
}

static void test_a_rate_fills_again(void **state)
{
    const serve_key list[] = {KEY("alice"), {.text = "bob", .priority = 0, .requests = 0, .rate = 6}};
    serve_keys *keys = create(list, 2, 0, 30); /* one each two seconds */
    int32_t retry_s;
    (void)state;
    assert_int_equal(ask_all(keys, 0, START, &retry_s), 30);
    assert_int_equal(retry_s, 3); /* two seconds, and one more for rounding down */
    assert_int_equal(ask_all(keys, 1, START, &retry_s), 6);
    assert_int_equal(retry_s, 11);
    assert_int_equal(ask_all(keys, 0, START + 2 * SECOND - 1, &retry_s), 0);
    assert_int_equal(ask_all(keys, 0, START + 2 * SECOND + 1000, &retry_s), 1);
    assert_int_equal(ask_all(keys, 0, START + 13 * SECOND, &retry_s), 5); /* five and a half */
    assert_int_equal(retry_s, 2);
    assert_int_equal(ask_all(keys, 0, START + 14 * SECOND + 1000, &retry_s), 1);
    assert_int_equal(ask_all(keys, 1, START + 25 * SECOND, &retry_s), 2);
    /* A minute's worth is the most, however long it was quiet. */
    assert_int_equal(ask_all(keys, 0, START + 1000 * SECOND, &retry_s), 30);
    serve_keys_destroy(keys);
}

/* ---- Priorities ---- */

static void test_priorities_have_a_cap(void **state)
{
    const serve_key list[] = {KEY("alice"), {.text = "boss", .priority = 50, .requests = 0, .rate = 0}};
    serve_params params = serve_params_default();
    (void)state;
    serve_keys *keys = create(list, 2, 0, 0);
    assert_int_equal(serve_keys_priority(keys, 0), 0);
    assert_int_equal(serve_keys_priority(keys, 1), 50);
    serve_keys_destroy(keys);
    keys = create(NULL, 0, 0, 0);
    assert_int_equal(serve_keys_priority(keys, -1), 100);
    serve_keys_destroy(keys);
    params.live.keys = list;
    params.live.n_keys = 2;
    params.live.max_priority = 7;
    assert_non_null(keys = serve_keys_create(&params));
    assert_int_equal(serve_keys_priority(keys, 0), 7);
    assert_int_equal(serve_keys_priority(keys, 1), 50);
    serve_keys_destroy(keys);
}

/* ---- Other keys ---- */

static void test_keys_come_and_go(void **state)
{
    const serve_key first[] = {KEY("alice"), KEY("bob")}, second[] = {KEY("carol"), KEY("bob")},
                    third[] = {KEY("alice")};
    serve_keys *keys = create(first, 2, 0, 0);
    const char *salt = serve_keys_salt(keys, 0), *why;
    char before[65];
    int32_t retry_s;
    (void)state;
    strcpy(before, salt);
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    set(keys, second, 2);
    assert_int_equal(find(keys, "alice"), -1);
    assert_int_equal(find(keys, "bob"), 1); /* as its streams know it */
    assert_int_equal(find(keys, "carol"), 2);
    assert_string_equal(salt, before); /* running requests still have it */
    serve_keys_leave(keys, 0, 1);
    set(keys, third, 1);
    assert_int_equal(find(keys, "alice"), 0);
    assert_int_equal(find(keys, "bob"), -1);
    assert_int_equal(find(keys, "carol"), -1);
    serve_keys_destroy(keys);
}

static void test_limits_change(void **state)
{
    const serve_key narrow[] = {{.text = "alice", .priority = 0, .requests = 1, .rate = 0}},
                    wide[] = {{.text = "alice", .priority = 9, .requests = 3, .rate = 0}};
    serve_keys *keys = create(narrow, 1, 0, 0);
    const char *why;
    int32_t retry_s;
    (void)state;
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    set(keys, wide, 1);
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why)); /* running requests still count */
    assert_true(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_false(serve_keys_enter(keys, 0, START, &retry_s, &why));
    assert_int_equal(serve_keys_priority(keys, 0), 9);
    serve_keys_destroy(keys);
}

static void test_operators_change(void **state)
{
    const serve_key list[] = {KEY("alice"), OPERATOR("boss"), KEY("both"), OPERATOR("both")},
                    later[] = {OPERATOR("alice"), KEY("boss")};
    serve_keys *keys = create(list, 4, 0, 0), *none = create(NULL, 0, 0, 0);
    (void)state;
    const bool before[] = {false, true, true};
    for (int32_t i = 0; i < 3; i++) {
        assert_true(serve_keys_operate(keys, i) == before[i]);
        assert_true(serve_keys_are_valid(keys, i));
    }
    assert_false(serve_keys_operate(keys, -1) || serve_keys_are_valid(keys, -1));
    set(keys, later, 2);
    assert_true(serve_keys_operate(keys, 0) && serve_keys_are_valid(keys, 0));
    assert_true(!serve_keys_operate(keys, 1) && serve_keys_are_valid(keys, 1));
    assert_false(serve_keys_operate(keys, 2) || serve_keys_are_valid(keys, 2)); /* it is gone */
    assert_true(!serve_keys_operate(none, -1) && serve_keys_are_valid(none, -1));
    set(none, later, 2);
    assert_false(serve_keys_are_valid(none, -1));
    serve_keys_destroy(keys);
    serve_keys_destroy(none);
}

/* ---- Files ---- */

static void test_a_file_of_keys(void **state)
{
    char text[] =
        "# who may ask\n\n  alice  \r\nbob priority=50\n\tcarol requests=2 rate=0 priority=-5\nlast=1\n"
        "boss operator rate=7\noperators";
    serve_key *keys;
    size_t n;
    weir_error error;
    (void)state;
    assert_int_equal(serve_key_file_read(text, &keys, &n, &error), WEIR_OK);
    assert_int_equal(n, 6);
    assert_string_equal(keys[0].text, "alice");
    assert_int_equal(keys[0].priority, SERVE_UNSAID);
    assert_int_equal(keys[0].requests, SERVE_UNSAID);
    assert_int_equal(keys[0].rate, SERVE_UNSAID);
    assert_string_equal(keys[1].text, "bob");
    assert_int_equal(keys[1].priority, 50);
    assert_int_equal(keys[1].requests, SERVE_UNSAID);
    assert_string_equal(keys[2].text, "carol");
    assert_int_equal(keys[2].priority, -5);
    assert_int_equal(keys[2].requests, 2);
    assert_int_equal(keys[2].rate, 0);
    assert_string_equal(keys[3].text, "last=1"); /* a key may have any letters */
    assert_true(keys[4].operates && keys[4].rate == 7);
    assert_string_equal(keys[5].text, "operators");
    for (size_t i = 0; i < n; i++) assert_true(keys[i].operates == (i == 4));
    weir__mem_free(keys);
}

static void test_a_file_with_errors(void **state)
{
    static const char *const bad[][2] = {
        {"", "no key"},
        {"# nothing\n\n", "no key"},
        {"a\nb secret", "line 2"},
        {"a\noperator", "line 2: the key is missing"}, /* as a program writes it that has no key */
        {"rate=1 operator", "the key is missing"},
        {"\"\" operator", "the key is missing"},
        {"a priority=101", "-100 to 100"},
        {"a priority=-101", "-100 to 100"},
        {"a priority=", "priority is"},
        {"a priority=1x", "priority is"},
        {"a requests=-1", "0 to 1000000"},
        {"a rate=1000001", "0 to 1000000"},
        {"a rate=99999999999999999999", "0 to 1000000"},
        {"a rat=1", "known: operator, priority=N"},
        {"a ratee=1", "known: operator, priority=N"},
        {"a operator=1", "known: operator"},
        {"a Operator", "known: operator"},
        {"a operators", "known: operator"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64];
        serve_key *keys;
        size_t n;
        weir_error error = {0};
        strcpy(text, bad[i][0]);
        assert_int_equal(serve_key_file_read(text, &keys, &n, &error), WEIR_INVALID);
        if (strstr(error.message, bad[i][1]) == NULL) fail_msg("%s: %s", bad[i][0], error.message);
        assert_null(strstr(error.message, "secret")); /* it may be a part of a key */
        weir__mem_free(keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_whole_key_is_found),
        cmocka_unit_test(test_salts_are_digests),
        cmocka_unit_test(test_without_keys_nobody_has_one),
        cmocka_unit_test(test_each_key_has_its_own_places),
        cmocka_unit_test(test_further_answers_take_places),
        cmocka_unit_test(test_a_rate_fills_again),
        cmocka_unit_test(test_priorities_have_a_cap),
        cmocka_unit_test(test_keys_come_and_go),
        cmocka_unit_test(test_limits_change),
        cmocka_unit_test(test_operators_change),
        cmocka_unit_test(test_a_file_of_keys),
        cmocka_unit_test(test_a_file_with_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
