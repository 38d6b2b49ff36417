/* kept_test.c: answers that are kept for forks, and looking them up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "server/request/serve.h"

/* Keeps an answer with this id, one choice and a salt; adapter NULL: of the model. */
static void keep(serve_kept *kept, const char *id, const char *adapter)
{
    weir_stream *stream = NULL;
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    serve_kept_add(kept, id, (serve_owner){0}, "salt", adapter, NULL, &stream, 1);
    weir_stream_release(stream);
}

static void test_only_requests_with_the_same_salt_may_fork(void **state)
{
    serve_kept *kept = serve_kept_create();
    serve_kept_choice choice;
    (void)state;
    keep(kept, "of the model", NULL);
    keep(kept, "of an adapter", "sql");
    assert_int_equal(serve_kept_find(kept, "of the model", "salt", 0, &choice), WEIR_OK);
    assert_non_null(choice.stream);
    assert_null(choice.adapter);
    serve_kept_choice_fini(&choice);
    assert_int_equal(serve_kept_find(kept, "of an adapter", "salt", 0, &choice), WEIR_OK);
    assert_string_equal(choice.adapter, "sql");
    serve_kept_choice_fini(&choice);
    assert_int_equal(serve_kept_find(kept, "of nobody", "salt", 0, &choice), WEIR_INVALID);
    assert_int_equal(serve_kept_find(kept, "of the model", "another", 0, &choice), WEIR_INVALID);
    assert_int_equal(serve_kept_find(kept, "of the model", "salt", 1, &choice), WEIR_INVALID);
    assert_int_equal(serve_kept_find(kept, "of the model", "salt", -1, &choice), WEIR_INVALID);
    assert_null(choice.stream);
    serve_kept_destroy(kept);
}

/* The answer does not become a fork of the model. */
static void test_no_memory_for_the_name(void **state)
{
    serve_kept *kept = serve_kept_create();
    serve_kept_choice choice;
    (void)state;
    keep(kept, "of an adapter", "sql");
    weir__mem_fail_after(0);
    assert_int_equal(serve_kept_find(kept, "of an adapter", "salt", 0, &choice), WEIR_NO_MEMORY);
    weir__mem_fail_after(-1);
    assert_null(choice.stream);
    serve_kept_choice_fini(&choice);
    serve_kept_destroy(kept);
    assert_int_equal(weir__mem_live(), 0);
}

static bool has(serve_kept *kept, const char *id)
{
    serve_kept_choice choice;
    bool found = serve_kept_find(kept, id, "salt", 0, &choice) == WEIR_OK;
    serve_kept_choice_fini(&choice);
    return found;
}

static void keep_of(serve_kept *kept, int32_t key, int i, int32_t n)
{
    weir_stream *streams[SERVE_KEPT_MOST + 1] = {0};
    char id[SERVE_ID_MAX];
    for (int32_t k = 0; k < n; k++) assert_int_equal(weir_stream_create(&streams[k], NULL), WEIR_OK);
    snprintf(id, sizeof id, "%d of %d", i, key);
    serve_kept_add(kept, id, serve_owner_of(key, ""), "salt", NULL, NULL, streams, n);
    for (int32_t k = 0; k < n; k++) weir_stream_release(streams[k]);
}

static int n_of(serve_kept *kept, int32_t key, int most)
{
    char id[SERVE_ID_MAX];
    int n = 0;
    for (int i = 0; i < most; i++) {
        snprintf(id, sizeof id, "%d of %d", i, key);
        n += has(kept, id);
    }
    return n;
}

/* One that is alone has all; the first of another takes from it, and never the other way round. */
static void test_owners_have_equal_shares(void **state)
{
    serve_kept *kept = serve_kept_create();
    (void)state;
    for (int i = 0; i < 100; i++) keep_of(kept, 0, i, 1);
    assert_int_equal(n_of(kept, 0, 100), SERVE_KEPT_MOST);
    assert_false(has(kept, "35 of 0"));
    assert_true(has(kept, "36 of 0"));
    for (int i = 0; i < 20; i++) keep_of(kept, 1, i, 1);
    for (int i = 100; i < 200; i++) keep_of(kept, 0, i, 1);
    assert_int_equal(n_of(kept, 1, 20), 20);
    assert_int_equal(n_of(kept, 0, 200), SERVE_KEPT_MOST - 20);
    keep_of(kept, 2, 0, 40); /* more than its part, though it is new: of the three it has most */
    assert_int_equal(n_of(kept, 1, 20), 20);
    assert_int_equal(n_of(kept, 2, 1), 0);
    keep_of(kept, 2, 1, 20); /* choices count, not answers */
    assert_int_equal(n_of(kept, 2, 2), 1);
    assert_int_equal(n_of(kept, 0, 200), SERVE_KEPT_MOST - 40);
    keep_of(kept, 3, 0, SERVE_KEPT_MOST + 1);
    assert_int_equal(n_of(kept, 3, 1), 0);
    serve_kept_destroy(kept);
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_requests_with_the_same_salt_may_fork),
        cmocka_unit_test(test_no_memory_for_the_name),
        cmocka_unit_test(test_owners_have_equal_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
