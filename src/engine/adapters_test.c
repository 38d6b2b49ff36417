/* adapters_test.c: requests with different adapters in one engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

#include <math.h>

#include "support/temp.h"

#define ANSWER 12
#define SETS   4

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Asking ---- */

typedef struct talk {
    int32_t tokens[200]; /* the prompt, then the answer that it must get */
    int32_t n_prompt;
    weir_adapter_use uses[2];
    size_t n_uses;
    weir_stream *stream;
    sink got;
} talk;

static weir_adapter *load(rig *r, const char *path)
{
    weir_adapter *adapter = NULL;
    weir_error error = {0};
    if (weir_adapter_load(r->model, path, &adapter, &error) != WEIR_OK) fail_msg("%s", error.message);
    return adapter;
}

/* Prompts of one `what` are the same. */
static void make(rig *r, talk *t, int what, int32_t n, const weir_adapter_use *uses, size_t n_uses)
{
    *t = (talk){.n_prompt = n, .n_uses = n_uses};
    if (n_uses > 0) memcpy(t->uses, uses, n_uses * sizeof *uses);
    for (int32_t i = 0; i < n; i++) t->tokens[i] = 'a' + (what * 7 + i * i) % 26;
    for (int32_t i = n; i < n + ANSWER; i++)
        t->tokens[i] = weir__fake_next_adapted(r->model, uses, n_uses, t->tokens, i);
}

static weir_request request_of(rig *r, const talk *t)
{
    weir_request request = weir_request_default();
    request.sampler = &r->greedy;
    request.tokens = t->tokens;
    request.n_tokens = (size_t)t->n_prompt;
    request.max_tokens = ANSWER;
    request.adapters = t->uses;
    request.n_adapters = t->n_uses;
    return request;
}

static void ask(rig *r, talk *t)
{
    weir_request request = request_of(r, t);
    t->got = (sink){0};
    t->stream = rig_submit(r, &request);
}

/* Checks that a request got its text, and that n_cached tokens of its prompt were not computed. */
static void judge(talk *t, int32_t n_cached)
{
    sink_take(&t->got, t->stream);
    assert_true(t->got.finished);
    assert_int_equal(t->got.reason, WEIR_REASON_LENGTH);
    assert_int_equal(t->got.n_tokens, ANSWER);
    assert_memory_equal(t->got.tokens, t->tokens + t->n_prompt, ANSWER * sizeof *t->tokens);
    assert_int_equal(weir_stream_usage(t->stream).n_cached, n_cached);
}

/* Sets of adapters: none, two scales of one, two together. */
typedef struct sets {
    weir_adapter *a, *b;
    weir_adapter_use uses[SETS][2];
    size_t n[SETS];
} sets;

static void load_sets(rig *r, sets *s)
{
    *s = (sets){.a = load(r, "fake:1"), .b = load(r, "fake:2"), .n = {0, 1, 1, 2}};
    s->uses[1][0] = (weir_adapter_use){s->a, 1.0f};
    s->uses[2][0] = (weir_adapter_use){s->a, 0.5f};
    s->uses[3][0] = (weir_adapter_use){s->b, 2.0f};
    s->uses[3][1] = (weir_adapter_use){s->a, 1.0f};
}

static void release_sets(sets *s)
{
    weir_adapter_release(s->a);
    weir_adapter_release(s->b);
}

/* An engine, and the sets for it. */
static void begin(rig *r, sets *s, weir_layout layout)
{
    load_sets(r, s);
    rig_start_caching(r, layout, 4);
}

/* A request with that set. */
static void say(rig *r, const sets *s, talk *t, int what, int32_t n, int set)
{
    make(r, t, what, n, s->uses[set], s->n[set]);
    ask(r, t);
}

/* ---- In company ---- */

static void each_gets_its_own_text(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk talks[2 * SETS];
        sets s;
        begin(r, &s, layouts[l]);
        for (int i = 0; i < 2 * SETS; i++) say(r, &s, &talks[i], i, 10 + 7 * i, i % SETS);
        release_sets(&s); /* requests hold theirs */
        assert_int_equal(atomic_load(&r->fake->n_adapters), 2);
        rig_run(r);
        for (int i = 0; i < 2 * SETS; i++) judge(&talks[i], 0);
        for (int i = 1; i < SETS; i++) /* the test can distinguish them */
            assert_memory_not_equal(talks[i].got.tokens, talks[0].got.tokens, sizeof(int32_t));
        rig_stop(r);
        for (int i = 0; i < 2 * SETS; i++) rig_release(r, talks[i].stream);
        assert_int_equal(atomic_load(&r->fake->n_adapters), 0);
    }
}

static void unchanged_adapters_cost_nothing(void **state)
{
    rig *r = *state;
    static talk talks[3];
    sets s;
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    for (int i = 0; i < 3; i++) say(r, &s, &talks[i], i, 20, 0);
    rig_run(r);
    assert_int_equal(atomic_load(&r->fake->n_adapter_sets), 0);
    for (int i = 0; i < 3; i++) {
        make(r, &talks[i], 3 + i, 20, s.uses[3], 2);
        if (i > 0) { /* in another order: the same */
            talks[i].uses[0] = s.uses[3][1];
            talks[i].uses[1] = s.uses[3][0];
        }
        ask(r, &talks[i]);
    }
    rig_run(r);
    for (int i = 0; i < 3; i++) judge(&talks[i], 0);
    assert_int_equal(atomic_load(&r->fake->n_adapter_sets), 1);
    assert_int_equal(rig_stats(r).n_adapter_changes, 1);
    release_sets(&s);
}

/* The sets take turns, each tick's slots are of one, and a plan that names another's is bad. */
static void a_view_has_one_set(void **state)
{
    rig *r = *state;
    static talk talks[4];
    sets s;
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    for (int i = 0; i < 4; i++) say(r, &s, &talks[i], i, 8, i / 2);
    for (int tick = 0; tick < 6; tick++) {
        const weir_view *view = NULL;
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->n_slots, 2);
        assert_int_equal(view->itl_target_ns, 25 * WEIR__NS_PER_MS);
        for (size_t i = 0; i < 2; i++) assert_int_equal(view->slots[i].slot / 2, tick % 2);
        rig_tick(r);
    }
    const weir_plan_entry other = {.slot = 3, .n_tokens = 1};
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, &other, 1, &report, NULL), WEIR_OK);
    assert_true(report.bad_plan);
    assert_int_equal(weir_engine_step(r->engine, &other, 1, &report, NULL), WEIR_OK);
    assert_false(report.bad_plan);
    /* The set whose turn it was is gone: that is not the plan's mistake. */
    const weir_view *view = NULL;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    const weir_plan_entry first = {.slot = view->slots[0].slot, .n_tokens = 1};
    int gone = first.slot / 2, left = 1 - gone;
    for (int i = 2 * gone; i < 2 * gone + 2; i++) weir_stream_cancel(talks[i].stream);
    assert_int_equal(weir_engine_step(r->engine, &first, 1, &report, NULL), WEIR_OK);
    assert_false(report.bad_plan);
    assert_true(report.idle);
    rig_run(r);
    for (int i = 2 * left; i < 2 * left + 2; i++) judge(&talks[i], 0);
    release_sets(&s);
}

static void a_set_that_fails_ends_its_own(void **state)
{
    rig *r = *state;
    static talk with, without;
    sets s;
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    atomic_store(&r->fake->fail_adapters, true);
    say(r, &s, &with, 0, 8, 1);
    say(r, &s, &without, 1, 8, 0);
    rig_run(r);
    judge(&without, 0);
    sink_take(&with.got, with.stream);
    assert_int_equal(with.got.reason, WEIR_REASON_ERROR);
    weir_error error;
    weir_stream_error(with.stream, &error);
    assert_int_equal(error.code, WEIR_BACKEND);
    atomic_store(&r->fake->fail_adapters, false);
    ask(r, &with);
    rig_run(r);
    judge(&with, 0);
    release_sets(&s);
}

/* ---- Caches ---- */

static void prompts_are_shared_by_equal_sets_only(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk t;
        sets s;
        begin(r, &s, layouts[l]);
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < SETS; i++) {
                weir_forecast forecast = {.size = sizeof forecast};
                make(r, &t, 1, 40, s.uses[i], s.n[i]);
                weir_request request = request_of(r, &t);
                assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
                assert_int_equal(forecast.n_cached, 39 * round);
                ask(r, &t);
                rig_run(r);
                judge(&t, 39 * round);
            }
        weir_adapter *again = load(r, "fake:1"); /* the same contents */
        const weir_adapter_use use = {again, 1.0f}, naught = {again, 0.0f};
        make(r, &t, 1, 40, &use, 1);
        ask(r, &t);
        rig_run(r);
        judge(&t, 39);
        make(r, &t, 1, 40, &naught, 1); /* as without */
        ask(r, &t);
        rig_run(r);
        judge(&t, 39);
        weir_adapter_release(again);
        release_sets(&s);
        rig_stop(r);
    }
}

static void nobody_waits_for_a_prefill_with_other_adapters(void **state)
{
    rig *r = *state;
    static talk talks[4];
    sets s;
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    for (int i = 0; i < 4; i++) say(r, &s, &talks[i], 1, 100, i / 2);
    rig_run(r);
    for (int i = 0; i < 4; i++) judge(&talks[i], i % 2 == 0 ? 0 : 99);
    assert_int_equal(rig_stats(r).n_joined, 2);
    release_sets(&s);
}

static void files_are_of_their_adapters(void **state)
{
    rig *r = *state;
    static talk t;
    char path[TEMP_PATH_MAX];
    sets s;
    load_sets(r, &s);
    temp_remove();
    temp_path(path, "kept");
    for (int round = 0; round < 2; round++) {
        r->params.cache_dir = path;
        rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 4);
        for (int i = 0; i < SETS; i++) {
            say(r, &s, &t, 1, 40, i);
            rig_run(r);
            judge(&t, 39 * round);
        }
        rig_stop(r);
    }
    release_sets(&s);
}

static void flights_are_shared_by_equal_sets_only(void **state)
{
    rig *r = *state;
    static talk t;
    weir_flight *flights[SETS];
    sets s;
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    for (int i = 0; i < SETS; i++) {
        bool joined = true;
        make(r, &t, 1, 8, s.uses[i], s.n[i]);
        weir_request request = request_of(r, &t);
        assert_int_equal(weir_flight_open(r->engine, &request, true, &flights[i], &joined, NULL), WEIR_OK);
        assert_false(joined);
        weir_flight *again = NULL;
        assert_int_equal(weir_flight_open(r->engine, &request, true, &again, &joined, NULL), WEIR_OK);
        assert_true(joined && again == flights[i]);
        weir_flight_release(again);
    }
    rig_run(r);
    for (int i = 0; i < SETS; i++) weir_flight_release(flights[i]);
    release_sets(&s);
}

/* ---- Out of a slot and back ---- */

static void a_suspended_request_keeps_its_own(void **state)
{
    rig *r = *state;
    for (int round = 0; round < 4; round++) {
        static talk low, high;
        sets s;
        load_sets(r, &s);
        r->params.n_slots = 1;
        r->params.layout = layouts[round % 2];
        r->params.cache_bytes = round < 2 ? 100000 : 0; /* saved, or computed again */
        rig_start(r);
        make(r, &low, 1, 20, s.uses[1], 1);
        make(r, &high, 1, 20, s.uses[2], 1);
        ask(r, &low);
        rig_ticks(r, 5);
        weir_request request = request_of(r, &high);
        request.priority = 1;
        high.stream = rig_submit(r, &request);
        rig_run(r);
        assert_int_equal(rig_stats(r).n_suspensions, 1);
        judge(&low, 0);
        judge(&high, 0);
        release_sets(&s);
        rig_stop(r);
    }
}

/* The ticks of its set have no other work. */
static void a_prompt_goes_on_beside_a_higher_priority_of_another_set(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk low, high;
        sets s;
        load_sets(r, &s);
        r->params.n_slots = 2;
        r->params.chunk_size = 16;
        r->params.layout = layouts[l];
        rig_start(r);
        make(r, &low, 1, 150, s.uses[1], 1);
        make(r, &high, 1, 20, s.uses[2], 1);
        ask(r, &low);
        rig_ticks(r, 2);
        weir_request request = request_of(r, &high);
        request.priority = 1;
        high.stream = rig_submit(r, &request);
        rig_run(r);
        judge(&low, 0);
        judge(&high, 0);
        release_sets(&s);
        rig_stop(r);
    }
}

static void a_fork_has_its_sources(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk t;
        sets s;
        begin(r, &s, layouts[l]);
        say(r, &s, &t, 1, 20, 1);
        rig_ticks(r, 6);
        sink_take(&t.got, t.stream);
        int32_t at = (int32_t)t.got.n_tokens;
        assert_true(at > 1 && !t.got.finished);
        for (int running = 1; running >= 0; running--) {
            weir_request more = weir_request_default();
            more.sampler = &r->greedy;
            more.max_tokens = ANSWER - at;
            more.adapters = s.uses[2]; /* not looked at */
            more.n_adapters = 1;
            weir_stream *fork = rig_stream(r);
            static sink got;
            got = (sink){0};
            assert_int_equal(weir_engine_fork(r->engine, t.stream, at, &more, fork, NULL), WEIR_OK);
            rig_run(r);
            sink_take(&got, fork);
            assert_int_equal(got.n_tokens, ANSWER - at);
            assert_memory_equal(got.tokens, t.tokens + 20 + at, got.n_tokens * sizeof *got.tokens);
        }
        judge(&t, 0);
        release_sets(&s);
        rig_stop(r);
    }
}

static void several_answers_have_the_same(void **state)
{
    rig *r = *state;
    static talk t;
    sets s;
    weir_result results[3];
    begin(r, &s, WEIR_LAYOUT_UNIFIED);
    make(r, &t, 1, 30, s.uses[3], 2);
    weir_request request = request_of(r, &t);
    assert_int_equal(weir_generate_best(r->engine, &request, 3, 3, results, NULL), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(results[i].n_tokens, ANSWER);
        assert_memory_equal(results[i].tokens, t.tokens + 30, ANSWER * sizeof *t.tokens);
        weir_result_fini(&results[i]);
    }
    release_sets(&s);
}

/* ---- Refusals ---- */

static void refused(rig *r, const weir_adapter_use *uses, size_t n, const char *field, const char *part)
{
    static const int32_t token = 'a';
    weir_request request = weir_request_default();
    weir_error error = {0};
    request.tokens = &token;
    request.n_tokens = 1;
    request.adapters = uses;
    request.n_adapters = n;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, field);
    assert_non_null(strstr(error.message, part));
}

static void unusable_adapters_are_refused(void **state)
{
    rig *r = *state;
    sets s;
    weir_model *other = NULL;
    weir_adapter *foreign = NULL;
    load_sets(r, &s);
    assert_int_equal(weir_model_load("fake:", NULL, &other, NULL), WEIR_OK);
    assert_int_equal(weir_adapter_load(other, "fake:1", &foreign, NULL), WEIR_OK);
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 4);
    const weir_adapter_use none = {NULL, 1}, another = {foreign, 1};
    const weir_adapter_use twice[] = {{s.a, 1}, {s.b, 1}, {s.a, 1}};
    const weir_adapter_use scales[] = {{s.a, NAN}, {s.a, INFINITY}, {s.a, -100.5f}};
    weir_adapter_use many[WEIR_ADAPTERS_MAX + 1] = {{NULL, 0}};
    refused(r, NULL, 1, "requests[0].adapters", "NULL");
    refused(r, &none, 1, "requests[0].adapters", "`adapters[0]` is NULL");
    refused(r, &another, 1, "requests[0].adapters", "another model");
    refused(r, twice, 3, "requests[0].adapters", "`adapters[2]` stands twice");
    for (size_t i = 0; i < COUNT(scales); i++)
        refused(r, &scales[i], 1, "requests[0].adapters", "-100 to 100");
    refused(r, many, COUNT(many), "requests[0].n_adapters", "0 to 8");
    weir_adapter_release(foreign);
    weir_model_release(other);
    release_sets(&s);
}

/* Requests that use the adapter now. */
static void assert_counts(const weir_adapter *adapter, int32_t n_running, int32_t n_waiting)
{
    weir_adapter_info info = {.size = sizeof info};
    assert_int_equal(weir_adapter_describe(adapter, &info), WEIR_OK);
    assert_int_equal(info.n_running, n_running);
    assert_int_equal(info.n_waiting, n_waiting);
}

/* Two slots run the requests; the last one preempts one. */
static void adapters_count_their_requests(void **state)
{
    rig *r = *state;
    static talk talks[4];
    sets s;
    load_sets(r, &s);
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    for (int i = 0; i < 3; i++) say(r, &s, &talks[i], i, 20, 1 + i); /* a, a, both */
    assert_counts(s.a, 0, 3);
    assert_counts(s.b, 0, 1);
    rig_ticks(r, 3);
    assert_counts(s.a, 2, 1);
    assert_counts(s.b, 0, 1);
    make(r, &talks[3], 3, 20, NULL, 0);
    weir_request request = request_of(r, &talks[3]);
    request.priority = 50;
    talks[3].got = (sink){0};
    talks[3].stream = rig_submit(r, &request);
    rig_ticks(r, 1);
    assert_int_equal(rig_stats(r).n_suspended, 1);
    assert_counts(s.a, 1, 2);
    weir_stream_cancel(talks[2].stream);
    rig_run(r);
    assert_counts(s.a, 0, 0);
    assert_counts(s.b, 0, 0);
    rig_stop(r);
    for (int i = 0; i < 4; i++) rig_release(r, talks[i].stream);
    release_sets(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_gets_its_own_text),
        RIG_TEST(unchanged_adapters_cost_nothing),
        RIG_TEST(a_view_has_one_set),
        RIG_TEST(a_set_that_fails_ends_its_own),
        RIG_TEST(prompts_are_shared_by_equal_sets_only),
        RIG_TEST(nobody_waits_for_a_prefill_with_other_adapters),
        RIG_TEST(files_are_of_their_adapters),
        RIG_TEST(flights_are_shared_by_equal_sets_only),
        RIG_TEST(a_suspended_request_keeps_its_own),
        RIG_TEST(a_prompt_goes_on_beside_a_higher_priority_of_another_set),
        RIG_TEST(a_fork_has_its_sources),
        RIG_TEST(several_answers_have_the_same),
        RIG_TEST(unusable_adapters_are_refused),
        RIG_TEST(adapters_count_their_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
