/* retry_test.c: which refusals say that a retry helps, and when. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "call.h"

static void nobody_waits_longer_than_two_minutes(void **state)
{
    (void)state;
    static serve_call call;
    assert_true(serve_retry_after(&call, 0));
    assert_int_equal(call.retry_s, 1);
    assert_true(serve_retry_after(&call, SERVE_RETRY_MOST_S));
    assert_int_equal(call.retry_s, 120);
    assert_false(serve_retry_after(&call, SERVE_RETRY_MOST_S + 1));
    assert_int_equal(call.retry_s, SERVE_NEVER);
    call.retry_s = 4000; /* whoever set it */
    assert_true(serve_retry_decide(&call, 429));
    assert_int_equal(call.retry_s, SERVE_NEVER);
}

static void each_status_and_code_has_its_row(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code;
        bool repeated;
        int32_t after_s;
    } cases[] = {
        {200, NULL, false, 0},
        {400, "invalid_value", false, 0},
        {404, "not_found", false, 0},
        {408, "request_timeout", true, 0},
        {429, "queue_full", true, 1},
        {429, "too_many_streams", true, 1},
        {500, "WEIR_BACKEND", true, 0},
        {500, "WEIR_STATE", true, SERVE_NEVER},
        {500, NULL, true, SERVE_NEVER},
        {501, "not_supported", true, SERVE_NEVER},
        {503, NULL, true, 1},
        {503, "loading", true, 1},
        {503, "stopping", true, 5},
        {503, "model_busy", true, 10},
        {503, "model_too_large", true, SERVE_NEVER},
        {503, "work_timeout", true, SERVE_NEVER},
        {503, "model_not_loaded", true, SERVE_NEVER},
        {505, NULL, true, SERVE_NEVER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static serve_call call;
        call.retry_s = 0;
        call.code = cases[i].code;
        assert_int_equal(serve_retry_decide(&call, cases[i].status), cases[i].repeated);
        if (call.retry_s != cases[i].after_s)
            fail_msg("%d %s: %d", cases[i].status, cases[i].code != NULL ? cases[i].code : "", call.retry_s);
    }
}

/* The caller knows better: a key's rate, the queue's forecast, a model that is loaded again. */
static void a_time_of_its_own_stays(void **state)
{
    (void)state;
    static serve_call call;
    call.code = "model_lost";
    assert_true(serve_retry_after(&call, 7));
    assert_true(serve_retry_decide(&call, 503));
    assert_int_equal(call.retry_s, 7);
    assert_false(serve_retry_decide(&call, 200)); /* none with an answer */
    assert_int_equal(call.retry_s, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_longer_than_two_minutes),
        cmocka_unit_test(each_status_and_code_has_its_row),
        cmocka_unit_test(a_time_of_its_own_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
