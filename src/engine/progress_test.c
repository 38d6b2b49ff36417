/* progress_test.c: how far a prompt is, while it is computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"
#include "support/engine/engine.h"

#define PROMPT 100
#define CHUNK  16

/* The progress that a reader saw, each time that it was called. */
typedef struct seen {
    weir_stream *stream;
    int n;
    int n_chunks; /* that were there when it was called */
    weir_progress at[64];
} seen;

static weir_progress progress_of(const weir_stream *stream)
{
    weir_progress progress = {.size = sizeof progress};
    assert_int_equal(weir_stream_progress(stream, &progress), WEIR_OK);
    return progress;
}

static void note(seen *s)
{
    weir_chunk chunk;
    assert_true(s->n < (int)COUNT(s->at));
    s->at[s->n++] = progress_of(s->stream);
    while (weir_stream_try_next(s->stream, &chunk) == WEIR_OK) s->n_chunks++;
}

static void on_ready(weir_stream *stream, void *user)
{
    (void)stream;
    note(user);
}

/* All that was seen goes on, and fits together. */
static void check(const seen *s, int32_t n_prompt)
{
    for (int i = 0; i < s->n; i++) {
        const weir_progress *p = &s->at[i], *before = i > 0 ? &s->at[i - 1] : p;
        assert_int_equal(p->n_prompt, n_prompt);
        assert_true(p->n_cached <= p->n_processed);
        assert_true(p->n_processed <= n_prompt);
        assert_true(p->n_processed >= before->n_processed && p->n_cached >= before->n_cached);
        assert_true(p->prefill_ns >= before->prefill_ns);
        assert_true(p->started || !before->started);
    }
}

static weir_stream *submit(rig *r, int32_t key, int priority)
{
    weir_request request = rig_ask(r, key);
    request.priority = priority;
    return rig_submit(r, &request);
}

/* ---- Alone ---- */

static void each_pass_is_told(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    r->params.n_slots = 1;
    rig_script(r, 'A', PROMPT, "answer");
    rig_start(r);
    seen s = {.stream = rig_stream(r)};
    weir_progress fresh = {.size = sizeof fresh};
    assert_int_equal(weir_stream_progress(s.stream, &fresh), WEIR_STATE);
    assert_int_equal(weir_stream_progress(NULL, &fresh), WEIR_INVALID);
    assert_int_equal(weir_stream_progress(s.stream, NULL), WEIR_INVALID);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &s.stream, NULL), WEIR_OK);
    weir_progress queued = progress_of(s.stream);
    assert_false(queued.started);
    assert_int_equal(queued.n_prompt, PROMPT);
    assert_int_equal(queued.n_processed, 0);
    queued.size = 0;
    assert_int_equal(weir_stream_progress(s.stream, &queued), WEIR_INVALID);
    weir_stream_watch_progress(NULL, true);
    weir_stream_watch_progress(s.stream, true);
    assert_int_equal(weir_stream_set_ready(s.stream, on_ready, &s), WEIR_OK);
    for (int i = 0; s.n_chunks == 0; i++) {
        int before = s.n;
        rig_tick(r);
        assert_int_equal(progress_of(s.stream).n_processed,
                         (i + 1) * CHUNK < PROMPT ? (i + 1) * CHUNK : PROMPT);
        assert_int_equal(s.n - before, i == 0 || s.n_chunks > 0 ? 2 : 1); /* the start; the first chunk */
    }
    assert_int_equal(s.n, 1 + (PROMPT + CHUNK - 1) / CHUNK + 1);
    assert_int_equal(s.at[0].n_processed, 0);
    assert_true(s.at[0].started);
    check(&s, PROMPT);
    int n = s.n;
    rig_run(r);
    assert_true(s.n > n); /* chunks */
    assert_int_equal(progress_of(s.stream).n_processed, PROMPT);
    assert_int_equal(progress_of(s.stream).prefill_ns, s.at[n - 1].prefill_ns); /* the prefill's own time */
    check(&s, PROMPT);
}

/* A reader that does not watch is called as before; a chunk that waits is one call, whatever else happens. */
static void only_those_who_watch_are_called(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    rig_script(r, 'A', PROMPT, "answer");
    rig_start(r);
    seen s = {.stream = rig_submit_key(r, 'A')};
    assert_int_equal(weir_stream_set_ready(s.stream, on_ready, &s), WEIR_OK);
    while (s.n_chunks == 0) {
        assert_int_equal(s.n, 0);
        rig_tick(r);
    }
    assert_int_equal(s.n, 1);
    assert_int_equal(s.at[0].n_processed, PROMPT);
    weir_stream_watch_progress(s.stream, true);
    weir_stream_watch_progress(s.stream, false);
    rig_run(r);
}

/* A prefill without an answer ends with all of the prompt, too. */
static void a_prefill_alone(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    rig_script(r, 'A', PROMPT, "answer");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = 0;
    weir_stream *stream = rig_submit(r, &request);
    rig_run(r);
    assert_int_equal(progress_of(stream).n_processed, PROMPT);
}

static void a_cancel_leaves_it_where_it_was(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    r->params.n_slots = 1;
    rig_script(r, 'A', PROMPT, "answer");
    rig_script(r, 'B', PROMPT, "answer");
    rig_start(r);
    weir_stream *stream = rig_submit_key(r, 'A'), *queued = rig_submit_key(r, 'B');
    rig_ticks(r, 3);
    weir_stream_cancel(stream);
    weir_stream_cancel(queued);
    rig_run(r);
    assert_int_equal(weir_stream_reason(stream), WEIR_REASON_CANCELLED);
    assert_int_equal(progress_of(stream).n_processed, 3 * CHUNK);
    assert_false(progress_of(queued).started);
}

/* ---- Beside others ---- */

static void cached_tokens_are_those_of_the_usage(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', PROMPT, "answer");
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    (void)rig_submit_key(r, 'A');
    rig_run(r);
    seen s = {.stream = rig_submit_key(r, 'A')};
    weir_stream_watch_progress(s.stream, true);
    assert_int_equal(weir_stream_set_ready(s.stream, on_ready, &s), WEIR_OK);
    rig_run(r);
    assert_int_equal(weir_stream_usage(s.stream).n_cached, PROMPT - 1);
    assert_int_equal(s.at[0].n_cached, PROMPT - 1);
    assert_int_equal(s.at[0].n_processed, PROMPT - 1);
    assert_int_equal(s.at[1].n_processed, PROMPT);
    check(&s, PROMPT);
}

/* One that waits for another one's prefill shows how far that is; the tokens are cached ones once it goes on
 * by itself. way 1: the leader leaves in between. */
static void a_prefill_that_another_one_computes(void **state)
{
    rig *r = *state;
    for (int way = 0; way < 2; way++) {
        rig_script(r, 'A', PROMPT, "answer");
        rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
        weir_stream *leader = rig_submit_key(r, 'A');
        rig_ticks(r, 2);
        seen s = {.stream = rig_submit_key(r, 'A')};
        weir_stream_watch_progress(s.stream, true);
        assert_int_equal(weir_stream_set_ready(s.stream, on_ready, &s), WEIR_OK);
        rig_tick(r);
        assert_int_equal(rig_stats(r).n_joined, 1);
        assert_int_equal(s.at[0].n_processed, 2 * CHUNK);
        assert_int_equal(s.at[0].n_cached, 0);
        assert_int_equal(s.at[1].n_processed, 3 * CHUNK);
        if (way == 1) weir_stream_cancel(leader);
        rig_run(r);
        check(&s, PROMPT);
        assert_int_equal(s.at[s.n - 1].n_processed, PROMPT);
        assert_int_equal(s.at[s.n - 1].n_cached, weir_stream_usage(s.stream).n_cached);
        assert_true(weir_stream_usage(s.stream).n_cached >= (way == 1 ? 3 * CHUNK : PROMPT - CHUNK));
        rig_stop(r);
    }
}

/* Preempted while its prompt is computed, and its cells are lost: the numbers stay until it is further. */
static void a_prefill_that_begins_again(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    r->params.n_slots = 1;
    r->params.cache_bytes = 0;
    rig_script(r, 'A', PROMPT, "answer");
    rig_script(r, 'B', 10, "other");
    rig_start(r);
    seen s = {.stream = submit(r, 'A', 0)};
    weir_stream_watch_progress(s.stream, true);
    assert_int_equal(weir_stream_set_ready(s.stream, on_ready, &s), WEIR_OK);
    rig_ticks(r, 3);
    weir_stream *other = submit(r, 'B', 10);
    rig_run(r);
    assert_int_equal(weir_stream_reason(other), WEIR_REASON_END);
    assert_int_equal(rig_stats(r).n_suspensions, 1);
    assert_true(rig_stats(r).n_prompt_tokens >= PROMPT + 10 + 3 * CHUNK); /* computed twice */
    check(&s, PROMPT);
    int n = 0;
    for (int i = 1; i < s.n; i++) n += s.at[i].n_processed > s.at[i - 1].n_processed;
    assert_int_equal(n, (PROMPT + CHUNK - 1) / CHUNK);
    assert_int_equal(s.at[s.n - 1].n_processed, PROMPT);
}

/* ---- Flights ---- */

static void on_flight(weir_flight *flight, void *user)
{
    seen *s = user;
    assert_true(s->n < (int)COUNT(s->at));
    s->at[s->n++] = progress_of(weir_flight_stream(flight));
}

static void a_flights_watchers_are_called(void **state)
{
    rig *r = *state;
    r->params.chunk_size = CHUNK;
    rig_script(r, 'A', PROMPT, "answer");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = NULL;
    assert_int_equal(weir_flight_open(r->engine, &request, true, &flight, NULL, NULL), WEIR_OK);
    seen s = {.stream = NULL};
    weir_stream_watch_progress(weir_flight_stream(flight), true);
    assert_int_equal(weir_flight_watch(flight, on_flight, &s), WEIR_OK);
    rig_ticks(r, 3);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.at[3].n_processed, 3 * CHUNK);
    rig_run(r);
    check(&s, PROMPT);
    assert_int_equal(s.at[s.n - 1].n_processed, PROMPT);
    weir_flight_unwatch(flight, on_flight, &s);
    weir_flight_release(flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_pass_is_told),
        RIG_TEST(only_those_who_watch_are_called),
        RIG_TEST(a_prefill_alone),
        RIG_TEST(a_cancel_leaves_it_where_it_was),
        RIG_TEST(cached_tokens_are_those_of_the_usage),
        RIG_TEST(a_prefill_that_another_one_computes),
        RIG_TEST(a_prefill_that_begins_again),
        RIG_TEST(a_flights_watchers_are_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
