/* kept_test.c: answers that are kept for forks, and looking them up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

/* Keeps an answer with this id, one choice and a salt; adapter NULL: of the model. */
static void keep(serve_kept *kept, const char *id, const char *adapter)
{
    weir_stream *stream = NULL;
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    serve_kept_add(kept, id, "salt", adapter, NULL, &stream, 1);
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

/* It does not become a fork of the model. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_requests_with_the_same_salt_may_fork),
        cmocka_unit_test(test_no_memory_for_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
