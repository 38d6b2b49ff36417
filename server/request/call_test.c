/* call_test.c: when a client counts as gone, why a job was interrupted, and what unread answers take.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "call.h"
#include "server/api/common/call_end.h"
#include "server/api/common/error.h"

#define MS(n) ((int64_t)(n)*WEIR__NS_PER_MS)

/* An answer that took longer than a reader may stall is offered before anybody is hung up on. */
static void test_an_answer_after_a_long_silence(void **state)
{
    static serve_server server;
    serve_call call = {.server = &server};
    (void)state;
    server.params.live.stall_s = 2;
    assert_false(serve_call_is_stalled(&call, MS(99000)));
    weir__text_add_string(&call.out, "some bytes");
    assert_false(serve_call_is_stalled(&call, MS(100000)));
    assert_false(serve_call_is_stalled(&call, MS(102000)));
    assert_true(serve_call_is_stalled(&call, MS(102250)));
    call.out_at = 4; /* it takes some after all */
    call.moved_ns = MS(102300);
    assert_false(serve_call_is_stalled(&call, MS(104250)));
    assert_true(serve_call_is_stalled(&call, MS(104500)));
    call.out_at = call.out.n; /* and the rest; the next bytes come later */
    assert_false(serve_call_is_stalled(&call, MS(104750)));
    weir__text_add_string(&call.out, "more");
    assert_false(serve_call_is_stalled(&call, MS(200000)));
    assert_true(serve_call_is_stalled(&call, MS(202250)));
    weir__text_fini(&call.out);
}

/* A job that is interrupted because its client has left took not too long. */
static void test_an_interrupt_has_its_cause(void **state)
{
    static serve_server server;
    serve_call calls[2] = {{.server = &server}, {.server = &server}};
    weir_error error = {0};
    (void)state;
    atomic_store(&calls[0].gone, true);
    calls[0].left = true;
    for (int i = 0; i < 2; i++) assert_false(serve_call_passes(&calls[i], WEIR_ABORTED, &error));
    assert_int_equal(serve_call_status(&calls[0]), SERVE_LEFT);
    assert_null(calls[0].code);
    assert_int_equal(serve_call_status(&calls[1]), 503);
    assert_string_equal(calls[1].code, "work_timeout");
    for (int i = 0; i < 2; i++) weir__text_fini(&calls[i].out);
}

/* Answers count whatever they are: a file of the page, or a text whose length no request decides. */
static void test_unread_answers_share_a_quota(void **state)
{
    enum { CALLS = 24, LARGE = 12 << 20 }; /* twelve of them are more than one caller may have */
    static serve_server server;
    static char body[LARGE];
    serve_call *calls[CALLS];
    size_t sum = 0, n_refused = 0;
    (void)state;
    serve_share_init(&server.answers);
    for (size_t i = 0; i < CALLS; i++) {
        calls[i] = serve_call_create(&server, NULL);
        assert_non_null(calls[i]);
        strcpy(calls[i]->method, "GET");
        if (i % 2 == 0) {
            serve_call_answer_more(calls[i], 200, "text/plain", "", body, sizeof body);
        } else {
            weir__text text = {0};
            weir__text_add(&text, body, sizeof body);
            serve_call_answer_text(calls[i], 200, "text/plain", &text);
        }
        assert_true(calls[i]->begun && calls[i]->ended && !calls[i]->out.failed);
        assert_true(calls[i]->status == 503 ? calls[i]->out.n < 1024 : calls[i]->out.n > sizeof body);
        n_refused += calls[i]->status == 503;
        sum += calls[i]->out.capacity;
    }
    assert_true(n_refused > 0 && n_refused < CALLS);
    assert_true(sum <= serve_share_alone(SERVE_ANSWERS_MAX) + (size_t)CALLS * 1024);
    for (size_t i = 0; i < CALLS; i++) serve_call_destroy(calls[i]);
    assert_int_equal(serve_share_used(&server.answers), 0);
    serve_share_fini(&server.answers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_after_a_long_silence),
        cmocka_unit_test(test_an_interrupt_has_its_cause),
        cmocka_unit_test(test_unread_answers_share_a_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
