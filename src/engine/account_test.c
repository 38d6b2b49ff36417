/* account_test.c: counters and records, compared with a test's own knowledge of its requests.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "engine/engine.h"
#include "support/engine/engine.h"

#define TICKS 4096

static size_t read_ticks(rig *r, uint64_t from, weir_tick *ticks, size_t capacity)
{
    size_t n = 99;
    weir_status status = weir_engine_ticks(r->engine, from, ticks, capacity, &n);
    assert_int_equal(status, n > 0 || capacity == 0 ? WEIR_OK : WEIR_END);
    for (size_t i = 1; i < n; i++) assert_int_equal(ticks[i].serial, ticks[0].serial + i);
    return n;
}

static size_t read_parts(rig *r, uint64_t from, weir_tick_slot *parts, size_t capacity)
{
    size_t n = 99;
    weir_status status = weir_engine_tick_slots(r->engine, from, parts, capacity, &n);
    assert_int_equal(status, n > 0 || capacity == 0 ? WEIR_OK : WEIR_END);
    for (size_t i = 1; i < n; i++) assert_int_equal(parts[i].serial, parts[0].serial + i);
    return n;
}

static size_t read_arrivals(rig *r, uint64_t from, weir_arrival *arrivals, size_t capacity)
{
    size_t n = 99;
    weir_status status = weir_engine_arrivals(r->engine, from, arrivals, capacity, &n);
    assert_int_equal(status, n > 0 || capacity == 0 ? WEIR_OK : WEIR_END);
    for (size_t i = 1; i < n; i++) assert_int_equal(arrivals[i].request, arrivals[0].request + i);
    return n;
}

/* Two requests, one longer than a chunk: every tick and every part follows decode-maximal's rules. */
static void the_record_tells_what_happened(void **state)
{
    rig *r = *state;
    static const struct {
        int32_t slot, request, state, n_tokens, n_past, n_generated, reason;
    } expected[][2] = {
        {{0, 0, WEIR_SLOT_PREFILLING, 8, 0, 0, 0}, {1, 1, WEIR_SLOT_PREFILLING, 3, 0, 1, 0}},
        {{0, 0, WEIR_SLOT_PREFILLING, 4, 8, 1, 0}, {1, 1, WEIR_SLOT_GENERATING, 1, 3, 2, 0}},
        {{0, 0, WEIR_SLOT_GENERATING, 1, 12, 2, 0}, {1, 1, WEIR_SLOT_GENERATING, 1, 4, 3, WEIR_REASON_END}},
        {{0, 0, WEIR_SLOT_GENERATING, 1, 13, 3, WEIR_REASON_LENGTH}, {.slot = -1}},
    };
    weir_tick ticks[8];
    weir_tick_slot parts[16];
    weir_arrival arrivals[8];
    r->params.chunk_size = 8;
    rig_start(r);
    assert_int_equal(
        read_ticks(r, 0, ticks, 8) + read_parts(r, 0, parts, 16) + read_arrivals(r, 0, arrivals, 8), 0);
    rig_script(r, 'a', 12, "long answer");
    rig_script(r, 'b', 3, "ab");
    weir_request request = rig_ask(r, 'a');
    request.max_tokens = 3;
    int64_t before = weir__clock_now_ns();
    uint64_t numbers[2] = {9, 9};
    assert_int_equal(weir_stream_request(rig_submit(r, &request), &numbers[0]), WEIR_OK);
    assert_int_equal(weir_stream_request(rig_submit_key(r, 'b'), &numbers[1]), WEIR_OK);
    assert_int_equal(rig_run(r), 4);

    assert_int_equal(read_arrivals(r, 0, arrivals, 8), 2);
    assert_true(arrivals[0].submit_ns >= before && arrivals[1].submit_ns >= arrivals[0].submit_ns);
    assert_true(numbers[0] == arrivals[0].request && numbers[1] == arrivals[1].request);
    assert_int_equal(arrivals[0].n_prompt, 12);
    assert_int_equal(arrivals[0].max_tokens, 3);
    assert_int_equal(arrivals[1].n_prompt, 3);
    assert_int_equal(arrivals[1].max_tokens, 256 - 3);
    assert_int_equal(read_ticks(r, 0, ticks, 8), 4);
    assert_int_equal(read_parts(r, 0, parts, 16), 7);
    int64_t at = arrivals[1].submit_ns;
    size_t part = 0;
    for (size_t t = 0; t < 4; t++) {
        assert_true(ticks[t].start_ns >= at && ticks[t].decode_ns <= ticks[t].tick_ns);
        at = ticks[t].start_ns + ticks[t].tick_ns;
        assert_int_equal(ticks[t].serial, t);
        assert_int_equal(ticks[t].n_arrived, 2);
        assert_int_equal(ticks[t].first_slot, part);
        assert_int_equal(ticks[t].n_slots, t < 3 ? 2 : 1);
        int32_t n_prefill = 0, n_decode = 0, n_used = 0;
        for (int32_t i = 0; i < ticks[t].n_slots; i++, part++) {
            const weir_tick_slot *p = &parts[part];
            assert_int_equal(p->tick, t);
            assert_int_equal(p->slot, expected[t][i].slot);
            assert_int_equal(p->request, expected[t][i].request);
            assert_int_equal(p->state, expected[t][i].state);
            assert_int_equal(p->n_tokens, expected[t][i].n_tokens);
            assert_int_equal(p->n_past, expected[t][i].n_past);
            assert_int_equal(p->n_prompt, p->request == 0 ? 12 : 3);
            assert_int_equal(p->n_generated, expected[t][i].n_generated);
            assert_int_equal(p->reason, expected[t][i].reason);
            assert_true(p->reason == 0 ? p->end_ns == 0 : p->end_ns > ticks[t].start_ns && p->end_ns <= at);
            *(p->state == WEIR_SLOT_PREFILLING ? &n_prefill : &n_decode) += p->n_tokens;
            if (p->reason == 0) n_used += p->n_past + p->n_tokens;
        }
        assert_int_equal(ticks[t].n_prefill, n_prefill);
        assert_int_equal(ticks[t].n_decode, n_decode);
        assert_int_equal(ticks[t].n_kv_used, n_used);
        assert_false(ticks[t].bad_plan || ticks[t].failed);
    }
    /* Reads from the middle, and in pieces. */
    assert_int_equal(read_ticks(r, 3, ticks, 8), 1);
    assert_int_equal(read_ticks(r, 4, ticks, 8), 0);
    assert_int_equal(read_ticks(r, UINT64_MAX, ticks, 8), 0);
    assert_int_equal(read_parts(r, 2, parts, 3), 3);
    assert_int_equal(parts[2].serial, 4);
    assert_int_equal(read_arrivals(r, 1, arrivals, 1), 1);
    assert_int_equal(arrivals[0].request, 1);
}

/* Cancels in the queue, while a prompt is read, while its request generates, and before its first tick. */
static void cancels_are_counted_by_where_they_come(void **state)
{
    rig *r = *state;
    weir_tick_slot parts[32];
    r->params.n_slots = 2;
    r->params.chunk_size = 2;
    rig_start(r);
    rig_script(r, 'a', 3, "aaaaaaaaaaaa");
    rig_script(r, 'b', 100, "b");
    rig_script(r, 'c', 3, "c");
    weir_stream *generating = rig_submit_key(r, 'a'), *prefilling = rig_submit_key(r, 'b'),
                *queued = rig_submit_key(r, 'c');
    rig_ticks(r, 3);
    weir_stream_cancel(queued);
    weir_stream_cancel(prefilling);
    weir_stream_cancel(generating);
    assert_int_equal(rig_run(r), 0);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.n_cancelled_queued, 1);
    assert_int_equal(stats.n_cancelled_prefilling, 1);
    assert_int_equal(stats.n_cancelled_generating, 1);
    assert_int_equal(stats.n_finished[WEIR_REASON_CANCELLED], 3);
    /* The cancelled ones ended after the last tick: their parts are the next tick's, which is still to
     * come. */
    size_t n = read_parts(r, 6, parts, 32);
    assert_int_equal(n, 3);
    static const int32_t slots[] = {-1, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(parts[i].tick, 3);
        assert_int_equal(parts[i].slot, slots[i]);
        assert_int_equal(parts[i].reason, WEIR_REASON_CANCELLED);
        assert_int_equal(parts[i].n_tokens, 0);
        assert_true(parts[i].end_ns > 0);
    }
    rig_submit_key(r, 'c');
    rig_tick(r);
    weir_tick tick;
    assert_int_equal(read_ticks(r, 3, &tick, 1), 1);
    assert_int_equal(tick.first_slot, 6);
    assert_int_equal(tick.n_slots, 4);
    rig_run(r);
}

static void histograms_have_what_happened(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    rig_start(r);
    rig_script(r, 'a', 5, "0123456789");
    rig_submit_key(r, 'a');
    weir_request request = rig_ask(r, 'a');
    request.interval = 4;
    request.max_tokens = 9;
    rig_submit(r, &request);
    assert_int_equal(rig_run(r), 11 + 9);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.queue_seconds.count, 2);
    assert_int_equal(stats.ttft_seconds.count, 2);
    assert_int_equal(stats.tick_seconds.count, 20);
    assert_int_equal(stats.batch_tokens.count, 20);
    assert_true(stats.batch_tokens.sum == 2 * 5 + 10 + 8);
    assert_true(weir_histogram_quantile(&stats.batch_tokens, 1) == 5);
    /* Ten chunks, the end token without text; then tokens 1, 5 and 9, the last with the end. */
    assert_int_equal(stats.itl_seconds.count, 9 + 2);
    assert_int_equal(stats.tpot_seconds.count, 9 + 8);
    assert_true(stats.tick_seconds.sum > 0 && stats.tick_seconds.sum * 1e9 < (double)stats.busy_ns + 1);
    assert_true(stats.ttft_seconds.sum >= stats.queue_seconds.sum);
    /* A stream that nobody reads has no chunks, but a first token. */
    weir_request unread = rig_ask(r, 'a');
    assert_int_equal(weir_engine_submit(r->engine, &unread, 1, NULL, NULL), WEIR_OK);
    rig_run(r);
    weir_engine_stats after = rig_stats(r);
    assert_int_equal(after.itl_seconds.count, stats.itl_seconds.count);
    assert_int_equal(after.ttft_seconds.count, 3);
}

/* Ticks of a second each, on a clock that stands still within them. */
static void slow_ticks(rig *r, int64_t *now, int n)
{
    while (n-- > 0) {
        weir__clock_stand(*now += 1000 * WEIR__NS_PER_MS);
        rig_tick(r);
    }
}

/* One slot: 'A' loses it to 'B' after three tokens. */
static weir_stream *suspend_one(rig *r, int64_t *now)
{
    r->params.n_slots = 1;
    r->params.itl_target_ms = 60000; /* no limit for tokens that are computed again */
    rig_script(r, 'A', 4, "abcdefgh");
    rig_script(r, 'B', 3, "xyz");
    rig_start(r);
    weir__clock_stand(*now = weir__clock_now_ns());
    weir_stream *stream = rig_submit_key(r, 'A');
    slow_ticks(r, now, 3);
    weir_request request = rig_ask(r, 'B');
    request.priority = 7;
    rig_submit(r, &request);
    slow_ticks(r, now, 1);
    assert_int_equal(rig_stats(r).n_suspended, 1);
    return stream;
}

static void a_suspension_is_in_the_record_and_no_second_admission(void **state)
{
    rig *r = *state;
    for (int saved = 0; saved < 2; saved++) {
        weir_arrival arrivals[4];
        weir_tick ticks[32];
        weir_tick_slot parts[32];
        int64_t now;
        r->params.cache_bytes = saved ? 1 << 20 : 0;
        suspend_one(r, &now);
        slow_ticks(r, &now, 12);
        weir__clock_stand(-1);
        weir_engine_stats stats = rig_stats(r);
        assert_int_equal(stats.n_finished[WEIR_REASON_END], 2);
        assert_int_equal(read_arrivals(r, 0, arrivals, 4), 2);
        assert_int_equal(arrivals[0].priority, 0);
        assert_int_equal(arrivals[1].priority, 7);
        /* A, thrice; A's suspension and B four times; A's return and the rest of it. */
        assert_int_equal(read_ticks(r, 0, ticks, 32), 3 + 4 + 6);
        assert_int_equal(read_parts(r, 0, parts, 32), 3 + 1 + 4 + 1 + 6);
        const weir_tick_slot *gone = &parts[3], *back = &parts[8];
        for (size_t i = 0; i < 15; i++) {
            assert_int_equal(parts[i].suspended, i == 3);
            assert_int_equal(parts[i].resumed, i == 8);
            assert_int_equal(parts[i].n_tokens == 0, i == 3 || i == 8);
            assert_int_equal(parts[i].request, i >= 4 && i < 8);
        }
        assert_int_equal(gone->tick, 3);
        assert_int_equal(gone->slot, 0);
        assert_int_equal(gone->state, WEIR_SLOT_GENERATING);
        assert_int_equal(gone->n_past, 4 + 2);
        assert_int_equal(gone->n_generated, 3);
        assert_int_equal(back->tick, 7);
        assert_int_equal(back->slot, 0);
        assert_int_equal(back->state, saved ? WEIR_SLOT_GENERATING : WEIR_SLOT_PREFILLING);
        assert_int_equal(back->n_past, saved ? 6 : 0);
        assert_int_equal(back->n_generated, 3);
        assert_int_equal(parts[9].n_tokens, saved ? 1 : 7);
        assert_int_equal(parts[9].n_generated, 4);
        /* Waits for the first slot; chunks each second, and one pause. */
        assert_int_equal(stats.queue_seconds.count, 2);
        assert_true(stats.queue_seconds.sum == 1 + 1);
        assert_int_equal(stats.ttft_seconds.count, 2);
        assert_int_equal(stats.itl_seconds.count, 7 + 2);
        assert_true(stats.itl_seconds.sum == 6 * 1 + 5 + 2 * 1);
        assert_true(weir_histogram_quantile(&stats.itl_seconds, 1) == 5);
        assert_memory_equal(&stats.tpot_seconds, &stats.itl_seconds, sizeof stats.itl_seconds);
        rig_stop(r);
    }
}

/* Tokens that requests without a salt have been billed; the clock stands. */
static int64_t billed(const rig *r, int64_t now)
{
    return weir__tenant_served(weir__tenant_find(&r->engine->shared.tenants, 0), now);
}

/* The prompt when it gets a slot, then each generated token once it is fed, which the last one never is. */
static void a_tenant_pays_for_prompt_and_answer(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    rig_script(r, 'A', 20, "abcdefghijklmnopqrstuvwxyz");
    rig_start(r);
    int64_t now = weir__clock_now_ns();
    weir__clock_stand(now);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 10;
    rig_submit(r, &request);
    rig_tick(r);
    int64_t at_first = billed(r, now);
    rig_run(r);
    int64_t at_end = billed(r, now);
    weir__clock_stand(-1);
    assert_int_equal(at_first, 20);
    assert_int_equal(at_end, 20 + 9);
}

static void take_a_second(void *user, const weir__batch *batch)
{
    (void)user;
    (void)batch;
    weir__clock_stand(weir__clock_now_ns() + WEIR__NS_PER_S);
}

/* The replay of a record knows that time, and not the one at which a tick ends. */
static void a_tenant_pays_at_the_time_of_the_tick(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 4, "abcdefgh");
    rig_start(r);
    r->fake->before_decode = take_a_second;
    int64_t now = weir__clock_now_ns();
    weir__clock_stand(now);
    rig_submit_key(r, 'A');
    for (int i = 0; i < 4; i++) {
        rig_tick(r);
        assert_int_equal(weir__tenant_find(&r->engine->shared.tenants, 0)->at_ns, now + i * WEIR__NS_PER_S);
    }
    weir__clock_stand(-1);
}

/* A tenant whose request was suspended pays as one whose was not, whatever was computed again. */
static void a_suspension_costs_a_tenant_nothing(void **state)
{
    rig *r = *state;
    for (int saved = 0; saved < 2; saved++) {
        r->params.cache_bytes = saved ? 1 << 20 : 0;
        r->params.n_slots = 1;
        rig_script(r, 'A', 100, "abcdefgh");
        rig_script(r, 'B', 3, "xyz");
        rig_start(r);
        int64_t now = weir__clock_now_ns();
        weir__clock_stand(now);
        rig_submit_key(r, 'A');
        rig_ticks(r, 3);
        weir_request request = rig_ask(r, 'B');
        request.priority = 7;
        request.cache_salt = "another";
        rig_submit(r, &request);
        rig_tick(r);
        assert_int_equal(rig_stats(r).n_suspended, 1);
        rig_run(r);
        int64_t paid = billed(r, now);
        weir__clock_stand(-1);
        assert_int_equal(rig_stats(r).n_resumes, 1);
        assert_true(paid >= 100 + 8 - 1 &&
                    paid <= 100 + 8); /* one may be fed in the pass that the resume makes */
        rig_stop(r);
    }
}

/* A request runs in the only slot, and two more wait. The last goes first only if the other one has the same
 * tenant as the request that runs, and it has another. The salt stands in for a tenant that is not given. */
static void slots_are_shared_between_tenants_not_salts(void **state)
{
    rig *r = *state;
    static const struct {
        const char *tenant[3], *salt[3];
        bool last_first;
    } cases[] = {
        {{"a", "a", "b"}, {"1", "2", "3"}, true},    {{"a", "a", "b"}, {"1", "1", "1"}, true},
        {{NULL, NULL, NULL}, {"1", "1", "3"}, true}, {{NULL, "", NULL}, {"1", "2", "3"}, false},
        {{"a", "a", "a"}, {"1", "2", "3"}, false},   {{"a", "b", "c"}, {"1", "1", "1"}, false},
    };
    r->params.n_slots = 1;
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_stream *streams[3];
        rig_script(r, 'A', 100, "abcdefgh");
        rig_script(r, 'B', 3, "xyz");
        rig_start(r);
        for (int s = 0; s < 3; s++) {
            weir_request request = rig_ask(r, s == 0 ? 'A' : 'B');
            request.tenant = cases[i].tenant[s];
            request.cache_salt = cases[i].salt[s];
            streams[s] = rig_submit(r, &request);
            if (s == 0) rig_ticks(r, 3);
        }
        while (weir_stream_reason(streams[1]) == WEIR_REASON_NOT_FINISHED &&
               weir_stream_reason(streams[2]) == WEIR_REASON_NOT_FINISHED)
            rig_tick(r);
        assert_int_equal(weir_stream_reason(streams[2]) != WEIR_REASON_NOT_FINISHED, cases[i].last_first);
        rig_run(r);
        rig_stop(r);
    }
}

/* The rank of best_of: the sum over all tokens, whichever slots sampled them. */
static void a_sum_of_logprobs_goes_through_a_suspension(void **state)
{
    rig *r = *state;
    double sums[2];
    for (int suspended = 0; suspended < 2; suspended++) {
        r->params.n_slots = 1;
        rig_script(r, 'A', 20, "abcdefgh");
        rig_script(r, 'B', 3, "xyz");
        rig_start(r);
        weir_request request = rig_ask(r, 'A');
        request.logprobs = true;
        request.max_tokens = 8;
        weir_stream *stream = rig_submit(r, &request);
        rig_ticks(r, 3);
        if (suspended) {
            request = rig_ask(r, 'B');
            request.priority = 7;
            rig_submit(r, &request);
        }
        rig_run(r);
        assert_int_equal(rig_stats(r).n_resumes, suspended);
        weir_chunk chunk;
        double sum = 0;
        while (weir_stream_try_next(stream, &chunk) == WEIR_OK)
            for (size_t i = 0; i < chunk.n_tokens; i++) sum += (double)chunk.logprobs[i];
        sums[suspended] = weir_stream_usage(stream).logprob;
        assert_true(sum < 0 && fabs(sums[suspended] - sum) < 1e-6);
        rig_stop(r);
    }
    assert_true(sums[0] == sums[1]);
}

/* A slot waits from its last token on, also from its first. */
static void idle_is_since_the_last_token(void **state)
{
    rig *r = *state;
    const weir_view *view;
    rig_script(r, 'A', 4, "abcdefgh");
    rig_start(r);
    int64_t now = weir__clock_now_ns();
    weir__clock_stand(now);
    rig_submit_key(r, 'A');
    for (int tick = 0; tick < 3; tick++) {
        rig_tick(r);
        for (int ms = 0; ms <= 7; ms += 7) {
            weir__clock_stand(now += ms * WEIR__NS_PER_MS);
            assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
            assert_int_equal(view->n_slots, 1);
            assert_int_equal(view->slots[0].idle_ns, ms * WEIR__NS_PER_MS);
        }
    }
    weir__clock_stand(-1);
}

static void a_cancel_of_a_suspended_request_finds_it_in_the_queue(void **state)
{
    rig *r = *state;
    weir_tick_slot part;
    int64_t now;
    weir_stream_cancel(suspend_one(r, &now));
    slow_ticks(r, &now, 1);
    weir__clock_stand(-1);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.n_cancelled_queued, 1);
    assert_int_equal(stats.n_cancelled_prefilling + stats.n_cancelled_generating, 0);
    assert_int_equal(stats.itl_seconds.count, 2 + 1);
    assert_int_equal(read_parts(r, 5, &part, 1), 1);
    assert_int_equal(part.tick, 4);
    assert_int_equal(part.request, 0);
    assert_int_equal(part.slot, -1);
    assert_int_equal(part.state, WEIR_SLOT_IDLE);
    assert_int_equal(part.n_generated, 3);
    assert_int_equal(part.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(part.end_ns, now);
    rig_run(r);
}

/* A prompt's chunk beside a token of every other slot. */
static void defaults_are_one_pass_in_a_pool_and_two_with_lanes(void **state)
{
    rig *r = *state;
    const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    for (int l = 0; l < 2; l++) {
        weir_tick tick;
        weir_engine_params_init(&r->params, sizeof r->params);
        r->params.manual = true;
        r->params.n_ctx = 1024;
        r->params.layout = layouts[l];
        r->params.n_draft_max = 0;
        rig_start(r);
        int32_t n_slots = rig_stats(r).n_slots;
        assert_int_equal(rig_stats(r).n_ubatch, 512 + n_slots);
        for (int32_t i = 0; i + 1 < n_slots; i++) {
            rig_script(r, (char)('A' + i), 2, "aaaaaaaa");
            rig_submit_key(r, (char)('A' + i));
        }
        rig_tick(r);
        rig_script(r, 'Z', 512, "zz");
        rig_submit_key(r, 'Z');
        rig_tick(r);
        assert_int_equal(read_ticks(r, 1, &tick, 1), 1);
        assert_int_equal(tick.n_decode, n_slots - 1);
        assert_int_equal(tick.n_prefill, 512);
        assert_int_equal(tick.n_passes, l == 0 ? 1 : 2);
        rig_run(r);
        rig_stop(r);
    }
}

static void passes_are_counted_as_the_batch_is_cut(void **state)
{
    rig *r = *state;
    weir_tick ticks[8];
    r->params.n_ubatch = 4;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    rig_start(r);
    rig_script(r, 'a', 10, "ab");
    rig_submit_key(r, 'a');
    assert_int_equal(rig_run(r), 3);
    assert_int_equal(read_ticks(r, 0, ticks, 8), 3);
    assert_int_equal(ticks[0].n_passes, 3);
    assert_int_equal(ticks[1].n_passes, 1);
    weir_engine_stats stats = rig_stats(r);
    assert_int_equal(stats.passes.count, 3);
    assert_true(stats.passes.sum == 3 + 1 + 1);
}

static void a_failed_pass_is_marked(void **state)
{
    rig *r = *state;
    weir_tick ticks[8];
    weir_tick_slot parts[8];
    rig_start(r);
    rig_script(r, 'a', 3, "abc");
    rig_submit_key(r, 'a');
    rig_tick(r);
    atomic_store(&r->fake->fail_decode_status, WEIR_BACKEND);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_run(r);
    assert_int_equal(read_ticks(r, 0, ticks, 8), 2);
    assert_false(ticks[0].failed);
    assert_true(ticks[1].failed);
    assert_int_equal(ticks[1].n_decode, 0);
    assert_int_equal(read_parts(r, 1, parts, 8), 1);
    assert_int_equal(parts[0].reason, WEIR_REASON_ERROR);
    assert_int_equal(parts[0].n_tokens, 1);
}

static size_t plan_too_much(const weir_view *view, weir_plan_entry *plan, void *user)
{
    (void)user;
    plan[0] = (weir_plan_entry){.slot = view->slots[0].slot, .n_tokens = 1000};
    return 1;
}

static void a_replaced_plan_is_marked(void **state)
{
    rig *r = *state;
    static const weir_strategy strategy = {.name = "nonsense", .plan = plan_too_much};
    weir_tick tick;
    r->params.strategy = &strategy;
    rig_start(r);
    rig_script(r, 'a', 3, "abc");
    rig_submit_key(r, 'a');
    rig_tick(r);
    assert_int_equal(read_ticks(r, 0, &tick, 1), 1);
    assert_true(tick.bad_plan);
    assert_int_equal(tick.n_prefill, 3);
}

/* More ticks than are kept: a reader that lags sees it by the first serial, one that keeps up misses none. */
static void a_reader_that_lags_learns_what_it_missed(void **state)
{
    rig *r = *state;
    static weir_tick ticks[TICKS + 8], ticks_seen[8];
    static weir_tick_slot parts[TICKS * 4 + 8];
    uint64_t next = 0;
    enum { RUN = TICKS + 1000 };
    r->params.n_slots = 1;
    rig_start(r);
    rig_script(r, 'a', 2, "0123456789012345678"); /* twenty ticks with its end */
    weir_request request = rig_ask(r, 'a');
    for (int i = 0; i < RUN; i++) {
        if (i % 20 == 0) assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
        assert_false(rig_tick(r).idle);
        if (i % 5 != 0) continue;
        size_t n = read_ticks(r, next, ticks_seen, 8);
        assert_int_equal(n, i == 0 ? 1 : 5);
        assert_int_equal(ticks_seen[0].serial, next);
        next += n;
    }
    assert_int_equal(read_ticks(r, 10, ticks, TICKS + 8), TICKS);
    assert_int_equal(ticks[0].serial, RUN - TICKS);
    size_t n = read_parts(r, 0, parts, TICKS * 4 + 8);
    assert_int_equal(n, TICKS);
    /* A tick's parts are found by its first, of those that are still there. */
    uint64_t oldest = parts[0].serial;
    for (size_t t = 0; t < TICKS; t++)
        for (int32_t i = 0; i < ticks[t].n_slots; i++) {
            uint64_t serial = ticks[t].first_slot + (uint64_t)i;
            if (serial >= oldest) assert_int_equal(parts[serial - oldest].tick, ticks[t].serial);
        }
}

static void wrong_arguments_are_refused(void **state)
{
    rig *r = *state;
    size_t n = 5;
    weir_tick tick;
    weir_tick_slot part;
    weir_arrival arrival;
    weir_stream *stream;
    uint64_t number = 5;
    rig_start(r);
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    assert_int_equal(weir_stream_request(NULL, &number), WEIR_INVALID);
    assert_int_equal(weir_stream_request(stream, NULL), WEIR_INVALID);
    assert_int_equal(weir_stream_request(stream, &number), WEIR_STATE);
    assert_int_equal(number, 5);
    weir_stream_release(stream);
    assert_int_equal(weir_engine_ticks(NULL, 0, &tick, 1, &n), WEIR_INVALID);
    assert_int_equal(weir_engine_ticks(r->engine, 0, NULL, 1, &n), WEIR_INVALID);
    assert_int_equal(weir_engine_ticks(r->engine, 0, &tick, 1, NULL), WEIR_INVALID);
    assert_int_equal(weir_engine_tick_slots(NULL, 0, &part, 1, &n), WEIR_INVALID);
    assert_int_equal(weir_engine_tick_slots(r->engine, 0, NULL, 1, &n), WEIR_INVALID);
    assert_int_equal(weir_engine_arrivals(NULL, 0, &arrival, 1, &n), WEIR_INVALID);
    assert_int_equal(weir_engine_arrivals(r->engine, 0, &arrival, 1, NULL), WEIR_INVALID);
    assert_int_equal(n, 5);
    assert_int_equal(weir_engine_ticks(r->engine, 0, NULL, 0, &n), WEIR_OK);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_record_tells_what_happened),
        RIG_TEST(cancels_are_counted_by_where_they_come),
        RIG_TEST(histograms_have_what_happened),
        RIG_TEST(a_suspension_is_in_the_record_and_no_second_admission),
        RIG_TEST(a_tenant_pays_for_prompt_and_answer),
        RIG_TEST(a_tenant_pays_at_the_time_of_the_tick),
        RIG_TEST(a_suspension_costs_a_tenant_nothing),
        RIG_TEST(slots_are_shared_between_tenants_not_salts),
        RIG_TEST(a_sum_of_logprobs_goes_through_a_suspension),
        RIG_TEST(idle_is_since_the_last_token),
        RIG_TEST(a_cancel_of_a_suspended_request_finds_it_in_the_queue),
        RIG_TEST(defaults_are_one_pass_in_a_pool_and_two_with_lanes),
        RIG_TEST(passes_are_counted_as_the_batch_is_cut),
        RIG_TEST(a_failed_pass_is_marked),
        RIG_TEST(a_replaced_plan_is_marked),
        RIG_TEST(a_reader_that_lags_learns_what_it_missed),
        RIG_TEST(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
