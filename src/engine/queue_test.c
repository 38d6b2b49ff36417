/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"

#include "support/engine/engine.h"

/* ---- The list ------------------------------------------------------------------------------------- */

static void the_first_in_is_the_first_out(void **state)
{
    (void)state;
    weir__queue queue = {0};
    weir__request requests[3] = {0};
    assert_null(weir__queue_pop(&queue));
    for (int round = 0; round < 2; round++) { /* also after it ran empty */
        for (int i = 0; i < 3; i++) weir__queue_push(&queue, &requests[i]);
        assert_int_equal(queue.n, 3);
        for (int i = 0; i < 3; i++) {
            assert_ptr_equal(weir__queue_pop(&queue), &requests[i]);
            assert_null(requests[i].next);
        }
        assert_null(weir__queue_pop(&queue));
        assert_null(queue.last);
        assert_int_equal(queue.n, 0);
    }
}

static bool is_marked(const weir__request *request, int64_t now)
{
    return request->history.n_prompt == (int32_t)now;
}

static void taking_out_any_subset_keeps_the_order_of_both_parts(void **state)
{
    (void)state;
    enum { N = 6 };
    for (unsigned subset = 0; subset < 1U << N; subset++) {
        weir__queue queue = {0};
        weir__request requests[N + 1] = {0};
        int n_taken = 0;
        for (int i = 0; i < N; i++) {
            requests[i].history.n_prompt = 42 * (int)(subset >> i & 1);
            n_taken += (int)(subset >> i & 1);
            weir__queue_push(&queue, &requests[i]);
        }
        weir__request *taken = weir__queue_take(&queue, is_marked, 42);
        assert_int_equal(queue.n, N - n_taken);
        weir__queue_push(&queue, &requests[N]);
        for (int i = 0; i < N; i++) {
            if (!(subset >> i & 1)) {
                assert_ptr_equal(weir__queue_pop(&queue), &requests[i]);
                continue;
            }
            assert_ptr_equal(taken, &requests[i]);
            taken = taken->next;
        }
        assert_null(taken);
        assert_ptr_equal(weir__queue_pop(&queue), &requests[N]);
        assert_null(weir__queue_pop(&queue));
    }
}

/* ---- Waiting for a slot --------------------------------------------------------------------------- */

static void requests_start_in_the_order_of_their_submits(void **state)
{
    rig *r = *state;
    sink got[4] = {0};
    weir_stream *streams[4];
    r->params.n_slots = 1;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 3, "ab");
    rig_start(r);
    for (int i = 0; i < 4; i++) streams[i] = rig_submit_key(r, 'A' + i);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rig_stats(r).queue_depth, 4 - i);
        while (!got[i].finished) {
            rig_tick(r);
            sink_take(&got[i], streams[i]);
            for (int later = i + 1; later < 4; later++)
                assert_int_equal(weir_stream_usage(streams[later]).n_generated, 0);
        }
        assert_sink(got[i], WEIR_REASON_END, "ab");
    }
}

/* Requests that fit must not starve one that does not fit yet. */
static void a_large_request_is_not_overtaken_by_small_ones(void **state)
{
    rig *r = *state;
    sink got[3] = {0};
    weir_stream *streams[3];
    static const int32_t n_prompt[] = {8, 20, 2}, max_tokens[] = {6, 8, 2};
    rig_load(r, "fake:exact=1");
    r->params.n_slots = 3;
    r->params.n_ctx = r->params.n_kv = 32;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, n_prompt[i], "0123456789");
    rig_start(r);
    for (int i = 0; i < 3; i++) {
        weir_request request = rig_ask(r, 'A' + i);
        request.max_tokens = max_tokens[i];
        streams[i] = rig_submit(r, &request);
    }
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_kv_reserved, 8 + 5);
    assert_int_equal(rig_stats(r).queue_depth, 2); /* slots are free, cells are not */
    while (!weir_stream_finished(streams[0])) {
        assert_int_equal(rig_stats(r).queue_depth, 2);
        rig_tick(r);
    }
    rig_tick(r);
    assert_int_equal(rig_stats(r).queue_depth, 0);
    assert_int_equal(rig_stats(r).n_kv_reserved, 20 + 7 + 2 + 1);
    rig_run(r);
    static const char *const want[] = {"012345", "01234567", "01"};
    for (int i = 0; i < 3; i++) {
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_LENGTH, want[i]);
    }
    assert_int_equal(rig_stats(r).n_kv_reserved, 0);
}

static void time_in_the_queue_is_told(void **state)
{
    rig *r = *state;
    const int64_t tick_ns = 2 * WEIR__NS_PER_MS;
    r->params.n_slots = 1;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    atomic_store(&r->fake->tick_us, tick_ns / 1000);
    weir_stream *first = rig_submit_key(r, 'A'), *second = rig_submit_key(r, 'A');
    rig_run(r);
    weir_usage one = weir_stream_usage(first), two = weir_stream_usage(second);
    assert_true(one.queue_ns > 0);
    assert_true(one.ttft_ns >= one.queue_ns + tick_ns);
    assert_true(one.total_ns >= one.ttft_ns + 3 * tick_ns); /* b, c, the end */
    assert_true(two.queue_ns >= 4 * tick_ns);
    assert_true(two.ttft_ns >= two.queue_ns + tick_ns);
}

/* ---- The limit ------------------------------------------------------------------------------------ */

static weir_status try_submit(rig *r, weir_stream *stream, weir_error *error)
{
    weir_request request = rig_ask(r, 'A');
    return weir_engine_submit(r->engine, &request, 1, &stream, error);
}

static void a_full_queue_is_busy_at_submit_and_leaves_the_stream_fresh(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_chunk chunk;
    r->params.n_slots = 1;
    r->params.queue_limit = 2;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    rig_submit_key(r, 'A');
    rig_tick(r); /* runs */
    rig_submit_key(r, 'A');
    rig_submit_key(r, 'A');
    weir_stream *refused = rig_stream(r);
    assert_int_equal(try_submit(r, refused, &error), WEIR_BUSY);
    assert_int_equal(error.code, WEIR_BUSY);
    assert_int_equal(weir_stream_index(refused), -1);
    assert_int_equal(weir_stream_try_next(refused, &chunk), WEIR_STATE);
    assert_int_equal(rig_stats(r).n_refused, 1);
    assert_int_equal(rig_stats(r).n_submitted, 3);
    assert_int_equal(rig_stats(r).queue_depth, 2);
    rig_run(r);
    assert_int_equal(try_submit(r, refused, &error), WEIR_OK); /* the same stream, later */
    rig_run(r);
    assert_int_equal(weir_stream_reason(refused), WEIR_REASON_END);
}

static void requests_for_free_slots_do_not_count_as_waiting(void **state)
{
    rig *r = *state;
    weir_stream *stream = NULL;
    r->params.n_slots = 3;
    r->params.queue_limit = 1;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    for (int i = 0; i < 4; i++) rig_submit_key(r, 'A');
    stream = rig_stream(r);
    assert_int_equal(try_submit(r, stream, NULL), WEIR_BUSY);
    rig_tick(r); /* three run, one waits */
    assert_int_equal(try_submit(r, stream, NULL), WEIR_BUSY);
    assert_int_equal(rig_stats(r).n_refused, 2);
    rig_run(r);
}

static void several_requests_that_do_not_all_find_room_are_all_refused(void **state)
{
    rig *r = *state;
    weir_request requests[4];
    weir_stream *streams[4];
    weir_error error = {0};
    r->params.n_slots = 1;
    r->params.queue_limit = 2;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    for (int i = 0; i < 4; i++) {
        requests[i] = rig_ask(r, 'A');
        streams[i] = rig_stream(r);
    }
    weir_stream *first = rig_submit(r, &requests[0]);
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_BUSY);
    assert_int_equal(rig_stats(r).n_refused, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(weir_stream_index(streams[i]), -1);
    rig_run(r);
    assert_true(weir_stream_finished(first));
    /* more than ever find room: trying again is of no use */
    assert_int_equal(weir_engine_submit(r->engine, requests, 4, streams, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_int_equal(weir_engine_submit(r->engine, requests, 3, streams, NULL), WEIR_OK);
    rig_run(r);
}

/* NULL: nobody's. */
static weir_status submit_of(rig *r, const char *tenant, size_t n, weir_error *error)
{
    weir_request requests[32];
    for (size_t i = 0; i < n; i++) {
        requests[i] = rig_ask(r, 'A');
        requests[i].tenant = tenant;
    }
    return weir_engine_submit(r->engine, requests, n, NULL, error);
}

static int n_accepted(rig *r, const char *tenant)
{
    int n = 0;
    while (submit_of(r, tenant, 1, NULL) == WEIR_OK) n++;
    return n;
}

/* One may add a request while it has less than three times as many as places are left. */
static void a_tenant_has_a_part_of_the_queue(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    r->params.n_slots = 2;
    r->params.queue_limit = 16;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    assert_int_equal(n_accepted(r, "hog"), 2 + 12); /* idle slots' do not count */
    assert_int_equal(submit_of(r, "hog", 1, &error), WEIR_BUSY);
    assert_non_null(strstr(error.message, "of the same tenant"));
    rig_tick(r);
    assert_int_equal(n_accepted(r, "hog"), 0);
    weir_request request = rig_ask(r, 'A');
    weir_forecast forecast = {.size = sizeof forecast};
    request.tenant = "hog";
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_true(forecast.busy);
    request.tenant = "other";
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_false(forecast.busy);
    assert_int_equal(n_accepted(r, "other"), 3);
    assert_int_equal(n_accepted(r, "third"), 1);
    assert_int_equal(n_accepted(r, NULL), 0);
    rig_run(r);
    static const size_t never[] = {15, 19, 32};
    for (size_t i = 0; i < COUNT(never); i++) {
        assert_int_equal(submit_of(r, "hog", never[i], &error), WEIR_INVALID);
        assert_string_equal(error.field, "n");
        assert_non_null(strstr(error.message, "allowed: 1 to 14,"));
    }
    assert_int_equal(submit_of(r, "hog", 14, &error), WEIR_OK);
    rig_run(r);
    assert_int_equal(n_accepted(r, NULL), 2 + 16); /* without a tenant there is one limit */
    rig_run(r);
}

static void a_limit_of_zero_is_none(void **state)
{
    rig *r = *state;
    weir_request request;
    r->params.n_slots = 1;
    r->params.queue_limit = 0;
    rig_script(r, 'A', 1, "");
    rig_start(r);
    request = rig_ask(r, 'A');
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    assert_int_equal(rig_stats(r).queue_depth, 1000);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], 1000);
}

/* ---- Leaving the queue otherwise ------------------------------------------------------------------ */

static void cancel_while_queued_never_takes_a_slot(void **state)
{
    rig *r = *state;
    sink got[4] = {0};
    weir_stream *streams[4];
    r->params.n_slots = 1;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 2, "abcd");
    rig_start(r);
    for (int i = 0; i < 4; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_tick(r);
    weir_stream_cancel(streams[2]);
    weir_stream_cancel(streams[1]);
    assert_false(weir_stream_finished(streams[1]));
    rig_tick(r);
    for (int i = 1; i <= 2; i++) { /* within one tick, though the slot is taken */
        sink_take(&got[i], streams[i]);
        assert_sink(got[i], WEIR_REASON_CANCELLED, "");
        assert_int_equal(got[i].n_chunks, 1);
        assert_int_equal(got[i].n_tokens, 0);
    }
    assert_int_equal(rig_stats(r).queue_depth, 1);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 4); /* of the first and the last */
    sink_take(&got[3], streams[3]);
    assert_sink(got[3], WEIR_REASON_END, "abcd");
}

static void a_deadline_passes_in_the_queue_too(void **state)
{
    rig *r = *state;
    sink got = {0};
    r->params.n_slots = 1;
    rig_script(r, 'A', 2, "abcdef");
    rig_start(r);
    weir_stream *running = rig_submit_key(r, 'A');
    rig_tick(r);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = 1;
    weir_stream *stream = rig_submit(r, &request);
    int64_t until = weir__clock_deadline_ns(2);
    while (weir__clock_now_ns() < until) continue;
    rig_tick(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_DEADLINE, "");
    assert_true(weir_stream_usage(stream).queue_ns >= WEIR__NS_PER_MS);
    assert_false(weir_stream_finished(running));
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_DEADLINE], 1);
    rig_run(r);
}

static void a_cancelled_request_gives_its_place_to_another(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    r->params.queue_limit = 1;
    rig_script(r, 'A', 1, "abc");
    rig_start(r);
    rig_submit_key(r, 'A');
    rig_tick(r);
    weir_stream *waiting = rig_submit_key(r, 'A');
    weir_stream *next = rig_stream(r);
    assert_int_equal(try_submit(r, next, NULL), WEIR_BUSY);
    weir_stream_cancel(waiting);
    rig_tick(r);
    assert_int_equal(try_submit(r, next, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(weir_stream_reason(next), WEIR_REASON_END);
}

typedef struct resubmit {
    rig *r;
    weir_stream *stream;
    weir_status status;
} resubmit;

static void submit_again(weir_stream *stream, void *user)
{
    resubmit *s = user;
    if (weir_stream_finished(stream)) s->status = try_submit(s->r, s->stream, NULL);
}

static void at_the_chunk_of_a_cancel_the_place_is_free(void **state)
{
    rig *r = *state;
    weir_stream *queued[3];
    r->params.n_slots = 1;
    r->params.queue_limit = 3;
    rig_script(r, 'A', 1, "abcdef");
    rig_start(r);
    rig_submit_key(r, 'A');
    rig_tick(r);
    for (int i = 0; i < 3; i++) queued[i] = rig_submit_key(r, 'A');
    resubmit again = {.r = r, .stream = rig_stream(r), .status = WEIR_INVALID};
    weir_stream_set_ready(queued[0], submit_again, &again);
    for (int i = 0; i < 3; i++) weir_stream_cancel(queued[i]);
    rig_tick(r);
    assert_int_equal(again.status, WEIR_OK);
    weir_stream_set_ready(queued[0], NULL, NULL);
    rig_run(r);
    assert_int_equal(weir_stream_reason(again.stream), WEIR_REASON_END);
}

/* The count of free slots must not go below zero either, which would lift the limit. */
static void many_cancels_at_once_do_not_lift_the_limit(void **state)
{
    rig *r = *state;
    weir_stream *queued[8];
    weir_request requests[8];
    r->params.n_slots = 1;
    r->params.queue_limit = 8;
    rig_script(r, 'A', 1, "abcdef");
    rig_start(r);
    rig_submit_key(r, 'A');
    rig_tick(r);
    for (int i = 0; i < 8; i++) queued[i] = rig_submit_key(r, 'A');
    resubmit again = {.r = r, .stream = rig_stream(r), .status = WEIR_INVALID};
    weir_stream_set_ready(queued[0], submit_again, &again);
    for (int i = 0; i < 8; i++) weir_stream_cancel(queued[i]);
    rig_tick(r);
    assert_int_equal(again.status, WEIR_OK); /* the first of eight places */
    for (int i = 0; i < 8; i++) requests[i] = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(r->engine, requests, 8, NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_engine_submit(r->engine, requests, 7, NULL, NULL), WEIR_OK);
    weir_stream_set_ready(queued[0], NULL, NULL);
    rig_run(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_in_is_the_first_out),
        cmocka_unit_test(taking_out_any_subset_keeps_the_order_of_both_parts),
        RIG_TEST(requests_start_in_the_order_of_their_submits),
        RIG_TEST(a_large_request_is_not_overtaken_by_small_ones),
        RIG_TEST(time_in_the_queue_is_told),
        RIG_TEST(a_full_queue_is_busy_at_submit_and_leaves_the_stream_fresh),
        RIG_TEST(requests_for_free_slots_do_not_count_as_waiting),
        RIG_TEST(several_requests_that_do_not_all_find_room_are_all_refused),
        RIG_TEST(a_tenant_has_a_part_of_the_queue),
        RIG_TEST(a_limit_of_zero_is_none),
        RIG_TEST(cancel_while_queued_never_takes_a_slot),
        RIG_TEST(a_deadline_passes_in_the_queue_too),
        RIG_TEST(a_cancelled_request_gives_its_place_to_another),
        RIG_TEST(at_the_chunk_of_a_cancel_the_place_is_free),
        RIG_TEST(many_cancels_at_once_do_not_lift_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
