/* Tapes without connections, on the fake model: events that are kept or dropped, and running out of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "base/mem.h"
#include "call_end.h"
#include "lease.h"
#include "server/access/keys.h"
#include "server/api/openai/openai.h"
#include "server/models/catalog.h"
#include "server/request/call.h"
#include "server/server.h"
#include "server/service.h"

static serve_server server;
static weir_model *model;
static weir_engine *engine;

static int set_up(void **state)
{
    static const char *const names[] = {"fake"};
    weir_engine_params params = weir_engine_params_default();
    (void)state;
    memset(&server, 0, sizeof server);
    server.params = serve_params_default();
    server.params.live.log = false;
    server.params.resume_bytes = 64 << 10;
    params.n_slots = 4;
    params.n_ctx = 8192;
    params.manual = true;
    server.params.model.names = names;
    server.params.model.n_names = 1;
    assert_int_equal(weir_model_load("fake:n_ctx_train=8192", NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &params, &engine, NULL), WEIR_OK);
    assert_int_equal(serve_catalog_create(&server.params, &server.catalog, NULL), WEIR_OK);
    serve_server_name(&server, "");
    serve_server_ready(&server, model, engine);
    pthread_mutex_init(&server.mutex, NULL);
    server.woken = true; /* there is nobody to be woken */
    server.keys = serve_keys_create(&server.params);
    server.tapes = serve_tapes_create(&server);
    serve_share_init(&server.answers);
    serve_share_init(&server.bodies);
    serve_share_init(&server.media);
    return server.keys == NULL || server.tapes == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(server.n_calls, 0);
    serve_tapes_destroy(server.tapes);
    serve_share_fini(&server.answers);
    serve_share_fini(&server.bodies);
    serve_share_fini(&server.media);
    serve_keys_destroy(server.keys);
    serve_catalog_destroy(server.catalog);
    weir_engine_destroy(engine);
    weir_model_release(model);
    pthread_mutex_destroy(&server.mutex);
    return 0;
}

/* Runs ticks, and the calls that they make ready. */
static void turns(int n)
{
    for (int i = 0; i < n; i++) {
        weir_engine_step(engine, NULL, 0, NULL, NULL);
        serve_server_wake(&server);
        server.woken = true;
    }
}

static void turn_until_idle(void)
{
    weir_engine_stats stats = {.size = sizeof stats};
    do {
        turns(1);
        assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    } while (stats.queue_depth > 0 || stats.n_slots_prefilling + stats.n_slots_generating > 0);
    turns(2);
}

static serve_call *create(const char *method)
{
    serve_call *call = serve_call_create(&server, NULL);
    if (call != NULL) serve_lease_begin(call);
    if (call != NULL) snprintf(call->method, sizeof call->method, "%s", method);
    return call;
}

static serve_call *ask(int n_tokens)
{
    serve_call *call = create("POST");
    if (call == NULL) return NULL;
    weir__text_printf(&call->body,
                      "{\"prompt\": \"hello\", \"max_tokens\": %d, \"ignore_eos\": true, \"stream\": true, "
                      "\"resume\": true, \"cache_prompt\": false, \"speculative.n_max\": 0}",
                      n_tokens);
    call->state = SERVE_WORKING;
    serve_completions(call);
    call->state = SERVE_ANSWERING;
    if (!call->begun) serve_answer_start(call->answer);
    return call;
}

/* position < 0: it says none. */
static serve_call *resume(const char *id, int64_t position)
{
    serve_call *call = create("GET");
    if (call == NULL) return NULL;
    snprintf(call->name, sizeof call->name, "%s", id);
    if (position >= 0) {
        call->position_from = "Last-Event-ID";
        snprintf(call->position, sizeof call->position, "%lld", (long long)position);
    }
    call->state = SERVE_ANSWERING;
    serve_stream_read(call);
    return call;
}

/* Takes the output as if all had been sent: the numbers of the first and the last event, which must follow
 * each other, and whether that was all; they begin as zeroes. */
static void take(serve_call *call, uint64_t *first, uint64_t *last, bool *done)
{
    for (bool more = true; more;) {
        assert_false(call->out.failed);
        for (const char *at = call->out.bytes; at != NULL && (at = strstr(at, "id: ")) != NULL; at += 4) {
            uint64_t number = strtoull(at + 4, NULL, 10);
            assert_true(*last == 0 || number == *last + 1);
            if (*last == 0) *first = number;
            *last = number;
        }
        *done = *done || (call->out.n > 0 && strstr(call->out.bytes, "data: [DONE]") != NULL);
        call->out.n = call->out_at = 0;
        if (call->out.bytes != NULL) call->out.bytes[0] = '\0';
        if (call->tape != NULL) serve_tape_feed(call);
        more = call->out.n > 0;
    }
}

static void test_events_beyond_the_limit_are_cut_off(void **state)
{
    uint64_t first = 0, last = 0, from;
    bool done = false;
    char id[SERVE_ID_MAX];
    (void)state;
    serve_call *slow = ask(3000);
    assert_non_null(slow->tape);
    snprintf(id, sizeof id, "%s", slow->stream_id);
    serve_call *quick = resume(id, -1);
    for (int i = 0; i < 30; i++) {
        turns(100);
        take(quick, &first, &last, &done);
    }
    turn_until_idle();
    assert_true(serve_tapes_get_stats(server.tapes).n_bytes <= 64 << 10);
    take(quick, &first, &last, &done);
    assert_true(quick->ended && done);
    const uint64_t end = last;
    assert_true(end > 2000 && end <= 3000 + 2); /* some tokens are no text yet */
    /* A reader that has taken nothing gets the events in its buffer, and the error that the rest is gone. */
    assert_true(slow->ended && slow->out.n > SERVE_BUFFER_MAX && slow->out.n < SERVE_BUFFER_MAX + 2048);
    assert_non_null(strstr(slow->out.bytes, "events_gone"));
    assert_null(strstr(slow->out.bytes, "[DONE]"));
    /* A later reader gets the range. */
    serve_call *late = resume(id, 0);
    assert_int_equal(late->status, 410);
    const char *range = strstr(late->out.bytes, "allowed: ");
    assert_non_null(range);
    from = strtoull(range + 9, NULL, 10);
    assert_true(from > 0 && from < end);
    serve_call_destroy(late);
    late = resume(id, (int64_t)from - 1);
    assert_int_equal(late->status, 410);
    serve_call_destroy(late);
    late = resume(id, (int64_t)from);
    first = last = done = 0;
    take(late, &first, &last, &done);
    assert_true(done && first == from + 1 && last == end && late->ended);
    serve_call_destroy(late);
    late = resume(id, (int64_t)end);
    assert_int_equal(late->status, 204);
    serve_call_destroy(late);
    serve_call_destroy(slow);
    serve_call_destroy(quick);
    assert_int_equal(serve_tapes_get_stats(server.tapes).n, 1);
    serve_tapes_sweep(server.tapes, INT64_MAX);
    assert_int_equal(serve_tapes_get_stats(server.tapes).n_bytes, 0);
}

static void test_an_ended_stream_without_a_reader_makes_room(void **state)
{
    serve_call *calls[3];
    char ids[3][SERVE_ID_MAX];
    (void)state;
    for (int i = 0; i < 3; i++) {
        calls[i] = ask(i < 2 ? 100 : 3000);
        snprintf(ids[i], sizeof ids[i], "%s", calls[i]->stream_id);
        if (i == 2) continue;
        turn_until_idle();
        if (i == 0) serve_call_destroy(calls[0]);
    }
    turn_until_idle();
    serve_tapes_stats stats = serve_tapes_get_stats(server.tapes);
    assert_int_equal(stats.n, 2); /* the first one had ended, and was not read */
    assert_int_equal(stats.n_dropped, 1);
    serve_call *call = resume(ids[0], -1);
    assert_int_equal(call->status, 404);
    serve_call_destroy(call);
    call = resume(ids[1], -1); /* not the longest */
    assert_int_equal(call->status, 200);
    serve_call_destroy(call);
    serve_call_destroy(calls[1]);
    serve_call_destroy(calls[2]);
    serve_tapes_sweep(server.tapes, INT64_MAX);
    assert_int_equal(serve_tapes_get_stats(server.tapes).n, 0);
}

/* An answer, a refusal or an end that says so comes, whatever is missing, and nothing stays behind. */
static void test_without_memory(void **state)
{
    bool pending = false;
    int n_whole = 0, n_told = 0;
    (void)state;
    for (long n = 0; !pending; n++) {
        char id[SERVE_ID_MAX] = "";
        weir__mem_fail_after(n);
        serve_call *call = ask(40), *other = NULL;
        turns(12);
        if (call != NULL && call->tape != NULL) snprintf(id, sizeof id, "%s", call->stream_id);
        if (id[0] != '\0') other = resume(id, 3);
        turns(40);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        turn_until_idle();
        if (call != NULL && !call->out.failed) {
            bool whole = strstr(call->out.bytes, "data: [DONE]") != NULL;
            bool told = strstr(call->out.bytes, "\"error\":{") != NULL;
            assert_true(call->begun && call->ended && (whole || told));
            n_whole += whole;
            n_told += told;
            assert_true(!pending || (whole && !told));
        }
        if (call != NULL) serve_call_destroy(call);
        if (other != NULL) serve_call_destroy(other);
        serve_tapes_sweep(server.tapes, INT64_MAX);
        turn_until_idle();
        serve_tapes_stats stats = serve_tapes_get_stats(server.tapes);
        assert_int_equal(stats.n, 0);
        assert_int_equal(stats.n_bytes, 0);
        assert_int_equal(server.n_calls, 0);
        assert_true(n < 2000);
    }
    print_message("%d answers in whole, %d that say what is wrong\n", n_whole, n_told);
    assert_true(n_whole > 1 && n_told > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_events_beyond_the_limit_are_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_ended_stream_without_a_reader_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
