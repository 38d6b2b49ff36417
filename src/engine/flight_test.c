/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "support/engine/engine.h"

/* The text read from a flight. */
typedef struct reading {
    uint64_t at;
    sink got;
} reading;

/* Reads the chunks that are there. */
static void read_on(weir_flight *flight, reading *r)
{
    weir_chunk chunk;
    weir_status status;
    while ((status = weir_flight_next(flight, &r->at, 0, &chunk)) == WEIR_OK) sink_add(&r->got, &chunk);
    assert_null(r->got.wrong);
    assert_int_equal(status, r->got.finished ? WEIR_END : WEIR_TIMEOUT);
}

static weir_flight *open_flight(rig *r, const weir_request *request, bool share, bool joins)
{
    weir_flight *flight = NULL;
    weir_error error = {0};
    bool joined = !joins;
    if (weir_flight_open(r->engine, request, share, &flight, &joined, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    assert_int_equal(joined, joins);
    return flight;
}

static void start(rig *r)
{
    r->params.n_slots = 4;
    rig_script(r, 'A', 20, "one two three four five six seven eight");
    rig_start(r);
}

/* ---- Readers ---- */

static void test_readers_from_any_place(void **state)
{
    rig *r = *state;
    static reading first, second, late, after;
    first = second = late = after = (reading){0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *a = open_flight(r, &request, true, false);
    rig_ticks(r, 6);
    read_on(a, &first);
    assert_true(first.at > 2 && !first.got.finished);
    weir_flight *b = open_flight(r, &request, true, true);
    assert_ptr_equal(a, b);
    read_on(b, &second);
    assert_string_equal(second.got.text, first.got.text);
    uint64_t from = late.at = first.at; /* as if its connection had been lost there */
    rig_run(r);
    read_on(a, &first);
    read_on(b, &second);
    read_on(a, &late);
    assert_sink(first.got, WEIR_REASON_END, "one two three four five six seven eight");
    assert_sink(second.got, WEIR_REASON_END, "one two three four five six seven eight");
    assert_true(late.got.finished && late.got.n_chunks == (int)(first.at - from));
    assert_string_equal(first.got.text + first.got.n_text - late.got.n_text, late.got.text);
    weir_flight_release(a);
    weir_flight *c = open_flight(r, &request, true, true); /* it has ended, and b still holds it */
    read_on(c, &after);
    assert_sink(after.got, WEIR_REASON_END, "one two three four five six seven eight");
    assert_int_equal(weir_stream_usage(weir_flight_stream(c)).n_prompt, 20);
    assert_int_equal(rig_stats(r).n_submitted, 1);
    weir_flight_release(b);
    weir_flight_release(c);
    c = open_flight(r, &request, true, false); /* nobody does */
    rig_run(r);
    assert_int_equal(rig_stats(r).n_submitted, 2);
    weir_flight_release(c);
}

static void test_the_last_one_out_cancels(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *a = open_flight(r, &request, true, false), *b = open_flight(r, &request, true, true);
    weir_stream *stream = weir_stream_hold(weir_flight_stream(a));
    rig_ticks(r, 4);
    weir_flight_release(weir_flight_hold(a));
    weir_flight_release(a);
    rig_ticks(r, 2);
    assert_false(weir_stream_cancelled(stream));
    weir_flight_release(b);
    assert_true(weir_stream_cancelled(stream)); /* though somebody holds the stream */
    weir_stream_release(stream);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 1);
    a = open_flight(r, &request, true, false);
    weir_flight_release(a);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 2);
}

static void test_one_that_failed_is_not_joined(void **state)
{
    rig *r = *state;
    static reading first;
    first = (reading){0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *a = open_flight(r, &request, true, false);
    rig_tick(r);
    atomic_store(&r->fake->fail_decode_at, 0);
    rig_run(r);
    atomic_store(&r->fake->fail_decode_at, -1);
    read_on(a, &first);
    assert_int_equal(first.got.reason, WEIR_REASON_ERROR);
    weir_flight *b = open_flight(r, &request, true, false);
    weir_stream_cancel(weir_flight_stream(b));
    weir_flight *c = open_flight(r, &request, true, false);
    rig_run(r);
    weir_flight_release(a);
    weir_flight_release(b);
    weir_flight_release(c);
    r->dirty = true; /* the failed pass */
}

static void ignore(weir_stream *stream, void *user)
{
    (void)stream, (void)user;
}

/* Taking its chunks, or its ready callback, takes them from all readers. */
static void test_its_stream_is_its_own(void **state)
{
    rig *r = *state;
    static reading all;
    weir_chunk chunk;
    weir_error error = {0};
    int fd = 7;
    all = (reading){0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = open_flight(r, &request, true, false);
    weir_stream *stream = weir_stream_hold(weir_flight_stream(flight));
    assert_int_equal(weir_stream_set_ready(stream, ignore, NULL), WEIR_STATE);
    assert_int_equal(weir_stream_set_ready(stream, NULL, NULL), WEIR_STATE);
    assert_int_equal(weir_stream_try_next(stream, &chunk), WEIR_STATE);
    assert_int_equal(weir_stream_next(stream, -1, &chunk), WEIR_STATE);
    assert_int_equal(weir_stream_descriptor(stream, &fd, &error), WEIR_STATE);
    assert_non_null(strstr(error.message, "weir_flight_watch"));
    assert_int_equal(fd, 7);
    rig_run(r);
    read_on(flight, &all);
    assert_sink(all.got, WEIR_REASON_END, "one two three four five six seven eight");
    weir_flight_release(flight);
    assert_int_equal(weir_stream_set_ready(stream, ignore, NULL), WEIR_STATE);
    weir_stream_release(stream);
}

/* A watcher's action on its flight. */
typedef struct guest {
    int n;
    weir_status watch, next;
    bool leaves, releases;
} guest;

static void be_a_guest(weir_flight *flight, void *user)
{
    guest *g = user;
    weir_chunk chunk;
    uint64_t at = UINT64_C(1) << 40;
    g->n++;
    g->watch = weir_flight_watch(flight, be_a_guest, g);
    g->next = weir_flight_next(flight, &at, -1, &chunk); /* would wait for this tick */
    if (g->leaves) weir_flight_unwatch(flight, be_a_guest, g);
    if (g->releases) weir_flight_release(flight);
}

static void test_a_watcher_may_leave_but_not_read(void **state)
{
    rig *r = *state;
    guest leaver = {.leaves = true}, stays = {0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = open_flight(r, &request, true, false);
    assert_int_equal(weir_flight_watch(flight, be_a_guest, &leaver), WEIR_OK);
    assert_int_equal(weir_flight_watch(flight, be_a_guest, &stays), WEIR_OK);
    rig_ticks(r, 6);
    assert_int_equal(leaver.n, 1);
    assert_true(stays.n > 1);
    assert_int_equal(stays.watch, WEIR_STATE);
    assert_int_equal(stays.next, WEIR_STATE);
    guest late = {.leaves = true}; /* called from within watch */
    assert_int_equal(weir_flight_watch(flight, be_a_guest, &late), WEIR_OK);
    assert_int_equal(late.n, 1);
    assert_int_equal(late.next, WEIR_STATE);
    rig_run(r);
    assert_int_equal(late.n, 1);
    assert_int_equal(leaver.n, 1);
    weir_flight_unwatch(flight, be_a_guest, &stays);
    weir_flight_release(flight);
}

static void test_a_watcher_may_be_the_last_one_out(void **state)
{
    rig *r = *state;
    guest last = {.leaves = true, .releases = true};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = open_flight(r, &request, true, false);
    assert_int_equal(weir_flight_watch(flight, be_a_guest, &last), WEIR_OK);
    rig_run(r);
    assert_int_equal(last.n, 1);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 1);
    flight = open_flight(r, &request, true, false);
    rig_ticks(r, 6);
    last.n = 0;
    assert_int_equal(weir_flight_watch(flight, be_a_guest, &last), WEIR_OK); /* within it */
    assert_int_equal(last.n, 1);
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_CANCELLED], 2);
}

static void test_it_outlives_its_engine(void **state)
{
    rig *r = *state;
    static reading all;
    all = (reading){0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = open_flight(r, &request, true, false);
    rig_ticks(r, 5);
    rig_stop(r);
    read_on(flight, &all);
    assert_int_equal(all.got.reason, WEIR_REASON_ERROR);
    assert_true(all.got.n_text > 0);
    weir_error error;
    weir_stream_error(weir_flight_stream(flight), &error);
    assert_int_equal(error.code, WEIR_STOPPED);
    weir_flight_release(flight);
}

/* ---- Who shares ---- */

/* Every member that is changed changes the key: then a request joins no other one that has a key. */
static void test_every_member_changes_the_key(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"x", "y"};
    static const weir_logit_bias bias = {5, 1};
    static const char *const breakers[] = {"|"};
    char *keys[64] = {NULL};
    size_t lengths[64], n = 0;
    for (int i = 0;; i++) {
        weir_sampler_params s = r->greedy;
        weir_request q = weir_request_default();
        q.sampler = &s;
        q.text = "hello";
        switch (i) {
        case 0: break;
        case 1: q.text = "hello "; break;
        case 2: q.add_special = false; break;
        case 3: q.parse_special = false; break;
        case 4: q.special = true; break;
        case 5: q.max_tokens = 5; break;
        case 6: q.stop = stops, q.n_stop = 1; break;
        case 7: q.stop = stops, q.n_stop = 2; break;
        case 8: q.stop = stops + 1, q.n_stop = 1; break;
        case 9: q.interval = 2; break;
        case 10: q.priority = 1; break;
        case 11: q.cache_salt = "a"; break;
        case 12: q.cache_salt = "b"; break;
        case 13: q.cache_salt = ""; break;
        case 14: q.cache_prompt = false; break;
        case 15: q.logprobs = true; break;
        case 16: q.n_logprobs = 1; break;
        case 17: s.seed = 7; break;
        case 18: s.seed = 7, s.temp = 1; break;
        case 19: s.seed = 7, s.top_k = 3; break;
        case 20: s.logit_bias = &bias, s.n_logit_bias = 1; break;
        case 21: s.dry_breakers = breakers, s.n_dry_breakers = 1; break;
        case 22: s.grammar = "root ::= \"a\""; break;
        case 23: s.json_schema = "root ::= \"a\""; break;
        case 24: s.ignore_eos = true; break;
        case 25: s.penalty_repeat = 1.5f; break;
        case 26: s.seed = 7, s.order = "top_k"; break;
        case 27: s.grammar = "root ::= \"a\"", s.grammar_root = "x"; break;
        case 28: q.n_draft_max = 3; break;
        default: i = -1; break;
        }
        if (i < 0) break;
        keys[n] = weir__flight_key(&q, &lengths[n]);
        assert_non_null(keys[n]);
        for (size_t k = 0; k < n; k++)
            if (lengths[k] == lengths[n] && memcmp(keys[k], keys[n], lengths[n]) == 0)
                fail_msg("the requests %zu and %zu are the same", k, n);
        size_t again;
        char *same = weir__flight_key(&q, &again);
        assert_int_equal(again, lengths[n]);
        assert_memory_equal(same, keys[n], again);
        weir__mem_free(same);
        n++;
    }
    while (n-- > 0) weir__mem_free(keys[n]);
}

static void test_unshareable_requests_run_alone(void **state)
{
    rig *r = *state;
    start(r);
    for (int i = 0; i < 7; i++) {
        weir_sampler_params s = r->greedy;
        weir_request q = rig_ask(r, 'A');
        q.sampler = &s;
        if (i == 0) s.temp = 0.5f; /* and no seed */
        if (i == 1) s.mirostat = 2;
        if (i == 2) s.order = "top_k";
        if (i == 3) q.deadline_ms = 100000;
        if (i == 4) q.sampler = NULL;
        if (i == 5) q.prompt_logprobs = true;
        weir_flight *a = open_flight(r, &q, i < 6, false), *b = open_flight(r, &q, true, false);
        rig_run(r);
        weir_flight_release(a);
        weir_flight_release(b);
    }
    weir_request q = rig_ask(r, 'A');
    q.cache_salt = "mine";
    weir_flight *a = open_flight(r, &q, true, false);
    q.cache_salt = "yours";
    weir_flight *b = open_flight(r, &q, true, false);
    q.cache_salt = "mine";
    weir_flight *c = open_flight(r, &q, true, true);
    weir_flight_release(a);
    weir_flight_release(b);
    weir_flight_release(c);
    rig_run(r);
}

/* A chat's form counts as its prompt does. */
static void test_chats(void **state)
{
    rig *r = *state;
    start(r);
    weir_flight *flights[3];
    const char *const texts[] = {"hello", "hello", "hullo"};
    for (int i = 0; i < 3; i++) {
        weir_chat_params params = weir_chat_params_default();
        const weir_message message = {"user", texts[i]};
        weir_chat *chat = NULL;
        params.messages = &message;
        params.n_messages = 1;
        assert_int_equal(weir_chat_create(r->model, &params, &chat, NULL), WEIR_OK);
        weir_request q = weir_request_default();
        q.chat = chat;
        q.sampler = &r->greedy;
        q.max_tokens = 3;
        flights[i] = open_flight(r, &q, true, i == 1);
        weir_chat_release(chat);
    }
    rig_run(r);
    for (int i = 0; i < 3; i++) weir_flight_release(flights[i]);
}

/* ---- Watchers ---- */

typedef struct watching {
    int n_calls;
    reading seen;
} watching;

static void watch_on(weir_flight *flight, void *user)
{
    watching *w = user;
    w->n_calls++;
    read_on(flight, &w->seen);
}

static void test_watchers(void **state)
{
    rig *r = *state;
    static watching early, late, gone;
    early = late = gone = (watching){0};
    start(r);
    weir_request request = rig_ask(r, 'A');
    weir_flight *flight = open_flight(r, &request, true, false);
    assert_int_equal(weir_flight_watch(flight, watch_on, &early), WEIR_OK);
    assert_int_equal(weir_flight_watch(flight, watch_on, &gone), WEIR_OK);
    assert_int_equal(early.n_calls, 0);
    rig_ticks(r, 6);
    assert_true(early.n_calls > 2);
    assert_int_equal(early.n_calls, early.seen.at); /* each chunk is reported */
    assert_int_equal(weir_flight_watch(flight, watch_on, &late), WEIR_OK);
    assert_int_equal(late.n_calls, 1); /* the text so far, at once */
    assert_int_equal(late.seen.at, early.seen.at);
    weir_flight_unwatch(flight, watch_on, &gone);
    weir_flight_unwatch(flight, watch_on, &gone);
    int before = gone.n_calls;
    rig_run(r);
    assert_int_equal(gone.n_calls, before);
    assert_sink(early.seen.got, WEIR_REASON_END, "one two three four five six seven eight");
    assert_sink(late.seen.got, WEIR_REASON_END, "one two three four five six seven eight");
    weir_flight_unwatch(flight, watch_on, &early);
    assert_int_equal(weir_flight_watch(flight, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_flight_watch(NULL, watch_on, NULL), WEIR_INVALID);
    weir_flight_unwatch(NULL, watch_on, NULL);
    weir__mem_fail_after(0);
    weir_status status = weir_flight_watch(flight, watch_on, &early);
    weir__mem_fail_after(-1);
    assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY); /* the list may have room */
    weir_flight_release(flight);
}

static void test_bad_requests(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_flight *flight = NULL;
    uint64_t at = 0;
    weir_chunk chunk;
    start(r);
    weir_request q = rig_ask(r, 'A');
    assert_int_equal(weir_flight_open(NULL, &q, true, &flight, NULL, &error), WEIR_INVALID);
    assert_int_equal(weir_flight_open(r->engine, NULL, true, &flight, NULL, &error), WEIR_INVALID);
    assert_int_equal(weir_flight_open(r->engine, &q, true, NULL, NULL, &error), WEIR_INVALID);
    q.priority = 1000;
    assert_int_equal(weir_flight_open(r->engine, &q, true, &flight, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].priority");
    q.size = 0;
    assert_int_equal(weir_flight_open(r->engine, &q, true, &flight, NULL, &error), WEIR_INVALID);
    assert_null(flight);
    assert_int_equal(weir_flight_next(NULL, &at, 0, &chunk), WEIR_INVALID);
    assert_null(weir_flight_hold(NULL));
    assert_null(weir_flight_stream(NULL));
    weir_flight_release(NULL);
}

static void test_without_memory(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    for (long n = 0;; n++) {
        weir_flight *flight = NULL;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_flight_open(r->engine, &request, true, &flight, NULL, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        weir_flight_release(flight);
        rig_run(r);
        if (pending) break;
        assert_true(n < 100);
    }
    /* while it runs: an end that says so, or nothing is noticed */
    for (long n = 0; n < 12; n++) {
        static reading all;
        all = (reading){0};
        weir_flight *flight = open_flight(r, &request, true, false);
        rig_ticks(r, 3);
        weir__mem_fail_after(n);
        rig_run(r);
        weir__mem_fail_after(-1);
        read_on(flight, &all);
        assert_true(all.got.finished);
        assert_true(all.got.reason == WEIR_REASON_END || all.got.reason == WEIR_REASON_ERROR);
        weir_flight_release(flight);
        rig_run(r);
    }
}

/* ---- Threads ---- */

#define READERS 4

typedef struct crowd {
    rig *r;
    weir_request request;
    int n_joined;
    pthread_mutex_t mutex;
} crowd;

static void *read_all(void *user)
{
    crowd *c = user;
    weir_chunk chunk;
    for (int i = 0; i < 20; i++) {
        uint64_t at = 0;
        weir_flight *flight = NULL;
        bool joined = false;
        static const char answer[] = "one two three four five six seven eight";
        char text[64] = "";
        if (weir_flight_open(c->r->engine, &c->request, true, &flight, &joined, NULL) != WEIR_OK)
            return "open";
        while (i % 5 != 4 && weir_flight_next(flight, &at, -1, &chunk) == WEIR_OK) {
            if (strlen(text) + chunk.length >= sizeof text) return "too much";
            strcat(text, chunk.text);
        }
        if (i % 5 != 4 && strcmp(text, answer) != 0) return "another answer";
        weir_flight_release(flight);
        pthread_mutex_lock(&c->mutex);
        c->n_joined += joined;
        pthread_mutex_unlock(&c->mutex);
    }
    return NULL;
}

static void test_many_at_once(void **state)
{
    rig *r = *state;
    crowd c = {.r = r, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[READERS];
    r->params.manual = false;
    start(r);
    c.request = rig_ask(r, 'A');
    for (int i = 0; i < READERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_all, &c), 0);
    for (int i = 0; i < READERS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        if (wrong != NULL) fail_msg("%s", (const char *)wrong);
    }
    weir_engine_drain(r->engine, -1);
    print_message("%d of %d joined another\n", c.n_joined, READERS * 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_readers_from_any_place),
        RIG_TEST(test_the_last_one_out_cancels),
        RIG_TEST(test_one_that_failed_is_not_joined),
        RIG_TEST(test_its_stream_is_its_own),
        RIG_TEST(test_a_watcher_may_leave_but_not_read),
        RIG_TEST(test_a_watcher_may_be_the_last_one_out),
        RIG_TEST(test_it_outlives_its_engine),
        RIG_TEST(test_every_member_changes_the_key),
        RIG_TEST(test_unshareable_requests_run_alone),
        RIG_TEST(test_chats),
        RIG_TEST(test_watchers),
        RIG_TEST(test_bad_requests),
        RIG_TEST(test_without_memory),
        RIG_TEST(test_many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
