/* suspend_test.c: requests that leave their slot and come back: for cells, for a higher priority.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

static const char long_text[] =
    "The quick brown fox jumps over the lazy dog, and then it goes on: 0123456789 "
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQR";

#define LONG ((int32_t)sizeof long_text - 1)

/* n streams of prompt and long text, in a pool of n_kv cells. */
static void start_tight(rig *r, int n, int32_t n_prompt, int32_t n_kv, weir_stream **streams)
{
    rig_load(r, "fake:exact=1");
    r->params.n_slots = n;
    r->params.n_ctx = 160;
    r->params.n_kv = n_kv;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < n; i++) rig_script(r, 'A' + i, n_prompt, long_text);
    rig_start(r);
    for (int i = 0; i < n; i++) streams[i] = rig_submit_key(r, 'A' + i);
}

static void end_tight(rig *r, int n, weir_stream **streams)
{
    rig_run(r);
    weir_engine_stats stats = rig_stats(r);
    assert_true(stats.n_suspensions > 0);
    assert_int_equal(stats.n_resumes, stats.n_suspensions);
    assert_int_equal(stats.n_suspended, 0);
    assert_int_equal(stats.cache_bytes, 0);
    assert_int_equal(stats.n_failed_ticks, 0); /* no pass ever lacked a cell */
    for (int i = 0; i < n; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, long_text);
        assert_int_equal(weir_stream_usage(streams[i]).n_generated, LONG + 1);
    }
}

/* Plays one tick. True: there is more to do. */
static bool play_on(rig *r)
{
    weir_report report = rig_tick(r);
    return report.n_active > 0 || report.queue_depth > 0;
}

/* ---- Cells ---------------------------------------------------------------------------------------- */

static void with_a_quarter_of_the_cells_all_finish(void **state)
{
    rig *r = *state;
    weir_stream *streams[8];
    start_tight(r, 8, 10, 8 * (10 + LONG) / 4, streams);
    /* no thrash: sixteen ticks and more lie between giving a slot and the next suspension for cells */
    int admitted_at = 0;
    weir_engine_stats last = rig_stats(r);
    for (int tick = 1; play_on(r); tick++) {
        weir_engine_stats now = rig_stats(r);
        if (now.n_suspensions > last.n_suspensions) assert_true(tick - admitted_at >= 16);
        if (now.n_resumes > last.n_resumes ||
            now.queue_depth - now.n_suspended < last.queue_depth - last.n_suspended)
            admitted_at = tick;
        last = now;
    }
    end_tight(r, 8, streams);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 8 * 10); /* nothing was computed twice */
}

static void without_memory_for_states_it_is_computed_again(void **state)
{
    rig *r = *state;
    weir_stream *streams[8];
    r->params.cache_bytes = 0;
    start_tight(r, 8, 10, 8 * (10 + LONG) / 4, streams);
    end_tight(r, 8, streams);
    weir_engine_stats stats = rig_stats(r);
    assert_true(stats.n_prompt_tokens > 8 * 10);
    assert_true(stats.n_prompt_tokens <= 8 * 10 + stats.n_suspensions * (10 + LONG));
}

static void the_budget_is_kept(void **state)
{
    rig *r = *state;
    weir_stream *streams[6];
    r->params.cache_bytes = 700; /* one state, not two */
    start_tight(r, 6, 10, 150, streams);
    bool seen = false;
    for (int i = 0; i < 2000; i++) {
        rig_tick(r);
        assert_true(rig_stats(r).cache_bytes <= 700);
        seen |= rig_stats(r).cache_bytes > 0;
    }
    assert_true(seen);
    end_tight(r, 6, streams);
    assert_true(rig_stats(r).n_prompt_tokens > 6 * 10);
}

static void states_that_cannot_be_saved_are_computed_again(void **state)
{
    rig *r = *state;
    weir_stream *streams[4];
    atomic_store(&r->fake->fail_state_save, true);
    start_tight(r, 4, 10, 150, streams);
    atomic_store(&r->fake->fail_state_save, true);
    end_tight(r, 4, streams);
    assert_true(rig_stats(r).n_prompt_tokens > 4 * 10);
}

static void states_that_cannot_be_restored_are_computed_again(void **state)
{
    rig *r = *state;
    weir_stream *streams[4];
    start_tight(r, 4, 10, 150, streams);
    atomic_store(&r->fake->fail_state_load, true);
    end_tight(r, 4, streams);
    assert_true(rig_stats(r).n_prompt_tokens > 4 * 10);
}

/* Ticks until something is suspended. */
static void until_suspended(rig *r)
{
    for (int i = 0; i < 1000 && rig_stats(r).n_suspended == 0; i++) rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspended, 1);
}

static void a_state_that_finds_no_memory_is_computed_again(void **state)
{
    rig *r = *state;
    weir_stream *streams[2];
    int64_t at = -1; /* the tick that suspends, from a first run that nothing fails */
    for (int run = 0; run < 2; run++) {
        rig_stop(r);
        start_tight(r, 2, 10, 150, streams);
        int64_t i = 0;
        for (; rig_stats(r).n_suspended == 0; i++) {
            if (i == at) weir__mem_fail_after(0);
            rig_tick(r);
            if (i == at) assert_false(weir__mem_fail_pending());
        }
        at = i - 1;
        assert_true(run == 0 ? rig_stats(r).cache_bytes > 0 : rig_stats(r).cache_bytes == 0);
        end_tight(r, 2, streams);
        if (run == 0) assert_int_equal(rig_stats(r).n_prompt_tokens, 2 * 10);
        if (run == 1) assert_true(rig_stats(r).n_prompt_tokens > 2 * 10);
    }
}

static void the_youngest_of_the_lowest_priority_goes(void **state)
{
    rig *r = *state;
    static const int32_t priorities[] = {0, 3, 0, 3};
    weir_stream *streams[4];
    rig_load(r, "fake:exact=1");
    r->params.n_kv = 180;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 10, long_text);
    rig_start(r);
    for (int i = 0; i < 4; i++) {
        weir_request request = rig_ask(r, 'A' + i);
        request.priority = priorities[i];
        streams[i] = rig_submit(r, &request);
    }
    static const int order[] = {2, 0, 3}; /* who goes, one after the other */
    int32_t before[4];
    for (int n = 0; n < 3; n++) {
        while (rig_stats(r).n_suspended == n) rig_tick(r);
        assert_int_equal(rig_stats(r).n_suspended, n + 1);
        for (int i = 0; i < 4; i++) before[i] = weir_stream_usage(streams[i]).n_generated;
        rig_tick(r);
        for (int i = 0; i < 4; i++) {
            bool gone = false;
            for (int k = 0; k <= n; k++) gone |= order[k] == i;
            assert_int_equal(weir_stream_usage(streams[i]).n_generated, before[i] + !gone);
        }
        if (n == 1) break; /* two of 3 fit to their end */
    }
    rig_run(r);
    for (int i = 0; i < 4; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, long_text);
    }
}

static void a_backend_without_the_cells_that_it_said_costs_one_pass(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcdef");
    rig_start(r);
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_ticks(r, 2);
    atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
    atomic_store(&r->fake->fail_decode_more, 1);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_failed_ticks, 2);
    assert_int_equal(rig_stats(r).n_suspensions, 2); /* one each */
    for (int i = 0; i < 3; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, "abcdef");
    }
}

/* In a pool its micro-batches may have let go of what windows still need; the fake knows which tokens they
 * would miss. */
static void a_pass_without_cells_leaves_no_hole_in_a_window(void **state)
{
    rig *r = *state;
    static const int32_t n_ubatch[] = {1, 4, 8, 64};
    for (size_t i = 0; i < 2 * sizeof n_ubatch / sizeof *n_ubatch; i++)
        for (int at = 0; at < 6; at++) {
            weir_stream *streams[3];
            rig_load(r, "fake:exact=1,n_swa=8");
            r->params.n_slots = 3;
            r->params.layout = i % 2 == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
            r->params.n_ubatch = n_ubatch[i / 2];
            r->params.chunk_size = 16;
            for (int k = 0; k < 3; k++) rig_script(r, 'A' + k, 30 + 20 * k, "abcdefghijkl");
            rig_start(r);
            for (int k = 0; k < 3; k++) streams[k] = rig_submit_key(r, 'A' + k);
            rig_ticks(r, at);
            atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
            atomic_store(&r->fake->fail_decode_at, 0);
            rig_run(r);
            assert_int_equal(rig_stats(r).n_failed_ticks, 1);
            for (int k = 0; k < 3; k++) {
                sink got = {0};
                sink_take(&got, streams[k]);
                assert_sink(got, WEIR_REASON_END, "abcdefghijkl");
            }
            assert_int_equal(atomic_load(&r->fake->faults), 0);
            rig_stop(r);
        }
}

/* Cancels the stream during the pass that comes after `left` others. */
typedef struct cancel_in_pass {
    weir_stream *stream;
    int left;
} cancel_in_pass;

static void cancel_now(void *user, const weir__batch *batch)
{
    cancel_in_pass *c = user;
    (void)batch;
    if (c->left-- == 0) weir_stream_cancel(c->stream);
}

/* All have the same prompt, and start again in the tick of the pass: none from what another has lost. */
static void a_pass_without_cells_lends_no_window(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 2 * 8; i++) {
        weir_stream *streams[3];
        rig_load(r, "fake:exact=1,n_swa=8");
        r->params.n_ubatch = 1;
        r->params.chunk_size = 16;
        rig_script(r, 'A', 40, "abcdefghijkl");
        rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 3);
        for (int k = 0; k < 3; k++) streams[k] = rig_submit_key(r, 'A');
        rig_ticks(r, i / 2);
        cancel_in_pass c = {.stream = streams[0]};
        if (i % 2 == 1) {
            r->fake->before_decode = cancel_now;
            r->fake->before_decode_user = &c;
        }
        atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
        atomic_store(&r->fake->fail_decode_at, 0);
        rig_run(r);
        assert_int_equal(rig_stats(r).n_failed_ticks, 1);
        for (int k = i % 2; k < 3; k++) {
            sink got = {0};
            sink_take(&got, streams[k]);
            assert_sink(got, WEIR_REASON_END, "abcdefghijkl");
        }
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        rig_stop(r);
    }
}

/* What a pass would have overwritten is lost, but nothing says so: its sequence must not become a prefix. */
static void an_aborted_pass_leaves_no_hole_in_a_window(void **state)
{
    rig *r = *state;
    weir_request request;
    for (int i = 0; i < 12; i++) {
        sink got = {0};
        bool at_first = i >= 6; /* the sequence is empty */
        int size = i / 2 % 3;
        cancel_in_pass c = {.left = at_first ? 0 : 3};
        rig_load(r, "fake:exact=1,n_swa=8");
        r->params.n_ubatch = size == 0 ? 4 : size == 1 ? 8 : 64;
        rig_script(r, 'A', 100, "abcdef");
        rig_start_caching(r, i % 2 == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT, 2);
        c.stream = rig_submit_key(r, 'A');
        r->fake->before_decode = cancel_now;
        r->fake->before_decode_user = &c;
        rig_run(r);
        assert_int_equal(rig_stats(r).n_cancelled_prefilling, 1);
        request = rig_ask(r, 'A');
        weir_stream *second = rig_submit(r, &request);
        rig_run(r);
        sink_take(&got, second);
        assert_sink(got, WEIR_REASON_END, "abcdef");
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        assert_true(at_first || size < 2 || weir_stream_usage(second).n_cached > 0);
        rig_stop(r);
    }
}

static void only_what_has_no_cells_alone_fails(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    weir_error error;
    for (int i = 0; i < 3; i++) rig_script(r, 'A' + i, 3, "abcdef");
    rig_start(r);
    atomic_store(&r->fake->fail_decode_status, WEIR_NO_SPACE);
    atomic_store(&r->fake->fail_decode_more, INT64_MAX);
    atomic_store(&r->fake->fail_decode_at, 0);
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    assert_true(rig_run(r) < 20);
    for (int i = 0; i < 3; i++) {
        weir_stream_error(streams[i], &error);
        assert_int_equal(error.code, WEIR_NO_SPACE);
    }
}

/* ---- Turns ---------------------------------------------------------------------------------------- */

static weir_stream *submit_with(rig *r, int32_t key, int32_t priority)
{
    weir_request request = rig_ask(r, key);
    request.priority = priority;
    return rig_submit(r, &request);
}

static void a_higher_priority_takes_the_slot_and_gives_it_back(void **state)
{
    rig *r = *state;
    for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        sink low = {0}, high = {0};
        r->params.n_slots = 1;
        r->params.layout = (weir_layout)layout;
        rig_script(r, 'A', 4, "abcdefgh");
        rig_script(r, 'B', 3, "xyz");
        rig_start(r);
        weir_stream *a = submit_with(r, 'A', 0);
        rig_ticks(r, 3);
        sink_take(&low, a);
        assert_string_equal(low.text, "abc");
        weir_stream *b = submit_with(r, 'B', 1);
        for (int i = 0; i < 3; i++) {
            rig_tick(r);
            assert_int_equal(sink_take(&low, a), 0); /* a pause */
            assert_int_equal(sink_take(&high, b), 1);
            assert_int_equal(rig_stats(r).n_suspended, 1);
            assert_true(rig_stats(r).cache_bytes > 0);
        }
        rig_run(r);
        sink_take(&low, a);
        sink_take(&high, b);
        assert_sink(high, WEIR_REASON_END, "xyz");
        assert_sink(low, WEIR_REASON_END, "abcdefgh");
        assert_int_equal(low.n_chunks, 9); /* none was merged, none is missing */
        assert_int_equal(rig_stats(r).n_suspensions, 1);
        assert_int_equal(rig_stats(r).n_prompt_tokens, 7);
        weir_usage usage = weir_stream_usage(a);
        assert_int_equal(usage.n_generated, 9);
        assert_true(usage.queue_ns <= usage.ttft_ns && usage.ttft_ns <= usage.total_ns);
        rig_stop(r);
    }
}

/* Restoring a state takes time. */
static bool load_slowly(void *user, int32_t token)
{
    (void)user;
    (void)token;
    weir__clock_stand(weir__clock_now_ns() + WEIR__NS_PER_MS);
    return true;
}

/* Otherwise the replay of a record, in which nothing but passes takes time, would make other plans. */
static void requests_resume_at_the_time_of_the_tick(void **state)
{
    rig *r = *state;
    r->params.n_slots = 2;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 4, "abcdefgh");
    rig_start(r);
    r->fake->may_load = load_slowly;
    for (int i = 0; i < 4; i++) { /* C and D take the slots of A and B */
        submit_with(r, 'A' + i, i / 2);
        if (i == 1) rig_ticks(r, 3);
    }
    int64_t now = weir__clock_now_ns();
    for (uint64_t resumes = 0; resumes == 0; resumes = rig_stats(r).n_resumes) {
        weir__clock_stand(now += WEIR__NS_PER_MS);
        rig_tick(r);
    }
    assert_int_equal(rig_stats(r).n_resumes, 2);
    assert_int_equal(weir__clock_now_ns(), now + 2 * WEIR__NS_PER_MS);
    for (int i = 0; i < 2; i++) assert_int_equal(r->engine->driver.slots.first[i].pace.outranked_ns, now);
    weir__clock_stand(-1);
    rig_run(r);
}

/* Submits a request of the highest priority, once, while a state is restored. */
static bool load_and_submit(void *user, int32_t token)
{
    rig *r = user;
    (void)token;
    r->fake->may_load = NULL;
    submit_with(r, 'E', 9);
    return true;
}

/* Otherwise the replay of a record, in which requests arrive between ticks only, would assign other slots. */
static void a_request_that_arrives_while_slots_are_assigned_waits_for_the_next_tick(void **state)
{
    rig *r = *state;
    weir_tick tick;
    size_t n;
    r->params.n_slots = 2;
    for (int i = 0; i < 5; i++) rig_script(r, 'A' + i, 4, "abcdefgh");
    rig_start(r);
    r->fake->may_load = load_and_submit;
    r->fake->may_load_user = r;
    for (int i = 0; i < 4; i++) { /* C and D take the slots of A and B */
        submit_with(r, 'A' + i, i / 2);
        if (i == 1) rig_ticks(r, 3);
    }
    while (rig_stats(r).n_resumes == 0) rig_tick(r);
    assert_int_equal(rig_stats(r).n_resumes, 2);
    assert_int_equal(rig_stats(r).n_submitted, 5);
    uint64_t serial = rig_stats(r).n_ticks - 1;
    assert_int_equal(weir_engine_ticks(r->engine, serial, &tick, 1, &n), WEIR_OK);
    assert_int_equal(tick.n_arrived, 4);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspensions, 3);
    assert_int_equal(weir_engine_ticks(r->engine, serial + 1, &tick, 1, &n), WEIR_OK);
    assert_int_equal(tick.n_arrived, 5);
    rig_run(r);
}

static void equals_never_take_turns_and_what_has_aged_keeps_its_slot(void **state)
{
    rig *r = *state;
    r->params.n_slots = 1;
    for (int i = 0; i < 4; i++) rig_script(r, 'A' + i, 2, "abcdefghij");
    rig_start(r);
    weir_stream *old = submit_with(r, 'A', 0);
    rig_tick(r);
    weir_stream *equal = submit_with(r, 'B', 0);
    rig_tick(r);
    /* both are fifteen levels old */
    r->engine->driver.slots.first[0].request->submit_ns -= 155 * 1000 * WEIR__NS_PER_MS;
    r->engine->shared.queue.first->submit_ns -= 155 * 1000 * WEIR__NS_PER_MS;
    rig_tick(r);
    weir_stream *higher = submit_with(r, 'C', 5);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspensions, 0);
    weir_stream *highest = submit_with(r, 'D', 100);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    assert_int_equal(weir_stream_usage(highest).n_generated, 1);
    assert_int_equal(weir_stream_usage(equal).n_generated + weir_stream_usage(higher).n_generated, 0);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    sink got = {0};
    sink_take(&got, old);
    assert_sink(got, WEIR_REASON_END, "abcdefghij");
}

/* A plan's slots are those of the view before it, however long it took to make. */
static void nobody_takes_a_slot_that_a_plan_is_for(void **state)
{
    rig *r = *state;
    const weir_view *view;
    weir_report report = {.size = sizeof report};
    r->params.n_slots = 1;
    rig_script(r, 'A', 4, "abcdefgh");
    rig_script(r, 'B', 3, "xyz");
    rig_start(r);
    int64_t ageing = r->engine->params.ageing_ms * WEIR__NS_PER_MS;
    weir_stream *streams[2] = {submit_with(r, 'A', 0), NULL};
    rig_tick(r);
    r->engine->driver.slots.first[0].request->submit_ns -=
        ageing; /* one level up: a new request does not outrank it */
    streams[1] = submit_with(r, 'B', 1);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(rig_stats(r).n_suspensions, 0);
    r->engine->shared.queue.first->submit_ns -= ageing; /* now it does */
    static const weir_plan_entry plan[] = {{0, 1}};
    assert_int_equal(weir_engine_step(r->engine, plan, 1, &report, NULL), WEIR_OK);
    assert_int_equal(report.n_decode, 1);
    assert_int_equal(rig_stats(r).n_suspensions, 0);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    rig_run(r);
    for (int i = 0; i < 2; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, i == 0 ? "abcdefgh" : "xyz");
    }
}

static void a_high_priority_that_lacks_room_takes_that_too(void **state)
{
    rig *r = *state;
    weir_stream *streams[3];
    rig_load(r, "fake:exact=1");
    r->params.n_slots = 4;
    r->params.n_ctx = r->params.n_kv = 160;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 2; i++) rig_script(r, 'A' + i, 40, "abcdefghij");
    rig_script(r, 'Z', 120, "z");
    rig_start(r);
    for (int i = 0; i < 2; i++) streams[i] = submit_with(r, 'A' + i, i);
    rig_tick(r);
    streams[2] = submit_with(r, 'Z', 1); /* of two, one is not lower: no room, and nobody suspended in vain */
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspensions, 0);
    assert_int_equal(rig_stats(r).queue_depth, 1);
    weir_stream_cancel(streams[2]);
    streams[2] = submit_with(r, 'Z', 2);
    rig_tick(r);
    assert_int_equal(rig_stats(r).n_suspensions, 2);
    assert_int_equal(weir_stream_usage(streams[2]).n_generated, 1);
    rig_run(r);
    for (int i = 0; i < 3; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, i < 2 ? "abcdefghij" : "z");
    }
}

static void a_prompt_that_is_half_computed_goes_on_there(void **state)
{
    rig *r = *state;
    sink got = {0};
    r->params.n_slots = 1;
    r->params.chunk_size = 8;
    rig_script(r, 'A', 40, "abc");
    rig_script(r, 'B', 2, "x");
    rig_start(r);
    weir_stream *a = submit_with(r, 'A', -1);
    rig_ticks(r, 3);
    submit_with(r, 'B', 0);
    rig_run(r);
    sink_take(&got, a);
    assert_sink(got, WEIR_REASON_END, "abc");
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 42);
}

static void samplers_go_on_with_their_draws(void **state)
{
    rig *r = *state;
    sink alone = {0}, disturbed = {0};
    weir_sampler_params drawn = weir_sampler_params_default();
    drawn.temp = 1;
    drawn.top_k = 0;
    drawn.seed = 4711;
    r->params.n_slots = 1;
    rig_script(r, 'B', 2, "xy");
    rig_start(r);
    weir_request request = weir_request_default();
    request.text = "Once";
    request.sampler = &drawn;
    request.max_tokens = 60;
    weir_stream *stream = rig_submit(r, &request);
    rig_run(r);
    sink_take(&alone, stream);
    for (int by = 0; by < 2; by++) { /* by state, by computing again */
        memset(&disturbed, 0, sizeof disturbed);
        atomic_store(&r->fake->fail_state_save, by == 1);
        stream = rig_submit(r, &request);
        for (int i = 0; i < 5; i++) {
            rig_ticks(r, 4);
            if (!weir_stream_finished(stream)) submit_with(r, 'B', 9);
            rig_ticks(r, 4);
        }
        rig_run(r);
        sink_take(&disturbed, stream);
        assert_int_equal(disturbed.n_tokens, alone.n_tokens);
        assert_memory_equal(disturbed.tokens, alone.tokens, alone.n_tokens * sizeof *alone.tokens);
        assert_string_equal(disturbed.text, alone.text);
    }
    assert_true(rig_stats(r).n_suspensions >= 2);
}

static void stop_strings_and_intervals_go_on(void **state)
{
    rig *r = *state;
    sink got = {0};
    static const char *const stop[] = {"efgh"};
    r->params.n_slots = 1;
    rig_script(r, 'A', 4, "abcdefghij");
    rig_script(r, 'B', 1, "x");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.stop = stop;
    request.n_stop = 1;
    request.interval = 3;
    weir_stream *a = rig_submit(r, &request);
    rig_ticks(r, 6); /* "abcdef", of which "ef" is held back */
    sink_take(&got, a);
    assert_string_equal(got.text, "abcd");
    submit_with(r, 'B', 1);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    sink_take(&got, a);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "abcd");
}

/* ---- Ends while suspended ------------------------------------------------------------------------- */

/* A stream with "ab" out and "cd" held back by a stop string, suspended. */
static weir_stream *suspended_one(rig *r, sink *got, int64_t deadline_ms)
{
    static const char *const stop[] = {"cdX"};
    r->params.n_slots = 1;
    rig_script(r, 'A', 4, "abcdefghij");
    rig_script(r, 'B', 1, long_text);
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.stop = stop;
    request.n_stop = 1;
    request.deadline_ms = deadline_ms;
    weir_stream *stream = rig_submit(r, &request);
    rig_ticks(r, 4);
    submit_with(r, 'B', 1);
    until_suspended(r);
    sink_take(got, stream);
    assert_string_equal(got->text, "ab");
    assert_true(rig_stats(r).cache_bytes > 0);
    return stream;
}

static void judge_end(rig *r, sink *got, weir_stream *stream, weir_reason reason)
{
    sink_take(got, stream);
    assert_sink(*got, reason, "abcd"); /* the text held back appears */
    assert_int_equal(got->n_tokens, 4);
    assert_int_equal(weir_stream_usage(stream).n_generated, 4);
    assert_int_equal(rig_stats(r).n_suspended, 0);
    assert_int_equal(rig_stats(r).cache_bytes, 0);
    assert_int_equal(rig_stats(r).n_finished[reason], 1);
}

static void a_cancel_ends_a_suspended_stream_within_a_tick(void **state)
{
    rig *r = *state;
    sink got = {0};
    weir_stream *stream = suspended_one(r, &got, 0);
    weir_stream_cancel(stream);
    rig_tick(r);
    judge_end(r, &got, stream, WEIR_REASON_CANCELLED);
    rig_run(r);
}

static void a_deadline_ends_a_suspended_stream(void **state)
{
    rig *r = *state;
    sink got = {0};
    weir_stream *stream = suspended_one(r, &got, INT32_MAX);
    weir__queue *queue = &r->engine->shared.queue;
    queue->deadline_ns = queue->first->deadline_ns = weir__clock_now_ns();
    rig_tick(r);
    judge_end(r, &got, stream, WEIR_REASON_DEADLINE);
    rig_run(r);
}

static void a_stop_ends_suspended_streams(void **state)
{
    rig *r = *state;
    sink got = {0};
    weir_error error;
    weir_stream *stream = suspended_one(r, &got, 0);
    weir_engine_stop(r->engine);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_ERROR, "abcd");
    weir_stream_error(stream, &error);
    assert_int_equal(error.code, WEIR_STOPPED);
    assert_int_equal(rig_stats(r).n_suspended, 0);
    assert_int_equal(rig_stats(r).cache_bytes, 0);
}

static void results_of_suspended_requests_are_whole(void **state)
{
    rig *r = *state;
    weir_request requests[4];
    weir_result results[4];
    rig_load(r, "fake:exact=1");
    r->params.n_kv = 160;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 4; i++) {
        rig_script(r, 'A' + i, 10, long_text);
        requests[i] = rig_ask(r, 'A' + i);
    }
    rig_start(r);
    assert_int_equal(weir_generate(r->engine, requests, 4, NULL, results, NULL), WEIR_OK);
    assert_true(rig_stats(r).n_suspensions > 0);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(results[i].text, long_text);
        assert_int_equal(results[i].n_tokens, LONG);
        weir_result_fini(&results[i]);
    }
}

/* ---- Layouts -------------------------------------------------------------------------------------- */

static void auto_takes_lanes_where_all_of_them_fit(void **state)
{
    rig *r = *state;
    static const struct {
        int32_t n_kv;
        weir_layout want;
    } cases[] = {{0, WEIR_LAYOUT_PER_SLOT},
                 {1024, WEIR_LAYOUT_PER_SLOT},
                 {1023, WEIR_LAYOUT_UNIFIED},
                 {256, WEIR_LAYOUT_UNIFIED}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        r->params.n_kv = cases[i].n_kv; /* 4 slots of 256 */
        rig_start(r);
        assert_int_equal(rig_stats(r).layout, cases[i].want);
        assert_int_equal(rig_stats(r).n_ctx, 256);
        rig_stop(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(with_a_quarter_of_the_cells_all_finish),
        RIG_TEST(without_memory_for_states_it_is_computed_again),
        RIG_TEST(the_budget_is_kept),
        RIG_TEST(states_that_cannot_be_saved_are_computed_again),
        RIG_TEST(states_that_cannot_be_restored_are_computed_again),
        RIG_TEST(a_state_that_finds_no_memory_is_computed_again),
        RIG_TEST(the_youngest_of_the_lowest_priority_goes),
        RIG_TEST(a_backend_without_the_cells_that_it_said_costs_one_pass),
        RIG_TEST(a_pass_without_cells_leaves_no_hole_in_a_window),
        RIG_TEST(a_pass_without_cells_lends_no_window),
        RIG_TEST(an_aborted_pass_leaves_no_hole_in_a_window),
        RIG_TEST(only_what_has_no_cells_alone_fails),
        RIG_TEST(a_higher_priority_takes_the_slot_and_gives_it_back),
        RIG_TEST(requests_resume_at_the_time_of_the_tick),
        RIG_TEST(a_request_that_arrives_while_slots_are_assigned_waits_for_the_next_tick),
        RIG_TEST(equals_never_take_turns_and_what_has_aged_keeps_its_slot),
        RIG_TEST(nobody_takes_a_slot_that_a_plan_is_for),
        RIG_TEST(a_high_priority_that_lacks_room_takes_that_too),
        RIG_TEST(a_prompt_that_is_half_computed_goes_on_there),
        RIG_TEST(samplers_go_on_with_their_draws),
        RIG_TEST(stop_strings_and_intervals_go_on),
        RIG_TEST(a_cancel_ends_a_suspended_stream_within_a_tick),
        RIG_TEST(a_deadline_ends_a_suspended_stream),
        RIG_TEST(a_stop_ends_suspended_streams),
        RIG_TEST(results_of_suspended_requests_are_whole),
        RIG_TEST(auto_takes_lanes_where_all_of_them_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
