/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

#define ANSWER 12

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Asking ---------------------------------------------------------------------------------------- */

typedef struct talk {
    int32_t tokens[400]; /* the prompt, then the answer that it must get */
    int32_t n_prompt, n;
    const char *salt; /* NULL = none */
    weir_stream *stream;
    sink got;
} talk;

/* n tokens that depend on `what`. */
static void add(talk *t, int what, int32_t n)
{
    for (int32_t i = 0; i < n; i++) t->tokens[t->n_prompt++] = 'a' + (what * 7 + i * i) % 26;
}

static weir_request request_of(rig *r, talk *t)
{
    weir_request request = weir_request_default();
    t->n = t->n_prompt;
    for (int i = 0; i < ANSWER; i++) {
        t->tokens[t->n] = weir__fake_next(r->model, t->tokens, t->n);
        t->n++;
    }
    request.sampler = &r->greedy;
    request.tokens = t->tokens;
    request.n_tokens = (size_t)t->n_prompt;
    request.max_tokens = ANSWER;
    request.cache_salt = t->salt;
    return request;
}

static void ask(rig *r, talk *t)
{
    weir_request request = request_of(r, t);
    t->stream = rig_submit(r, &request);
}

/* Checks that a request got its text, and that n_cached tokens of its prompt were not computed. */
static void judge(talk *t, int32_t n_cached, weir_miss miss)
{
    weir_miss_info info = {.size = sizeof info};
    sink_take(&t->got, t->stream);
    assert_true(t->got.finished);
    assert_int_equal(t->got.reason, WEIR_REASON_LENGTH);
    assert_int_equal(t->got.n_tokens, ANSWER);
    assert_memory_equal(t->got.tokens, t->tokens + t->n_prompt, ANSWER * sizeof *t->tokens);
    weir_usage usage = weir_stream_usage(t->stream);
    assert_int_equal(usage.n_cached, n_cached);
    assert_int_equal(usage.miss, miss);
    assert_int_equal(weir_stream_miss(t->stream, &info), WEIR_OK);
    assert_int_equal(info.miss, miss);
    if (t->salt != NULL) return;
    assert_true(info.n_matched <= n_cached); /* nothing of others' texts */
    assert_string_equal(info.cached, "");
    assert_string_equal(info.line, "");
}

/* ---- Finished requests ----------------------------------------------------------------------------- */

static void test_a_conversation_goes_on(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk first, again, next, other;
        first = again = next = other = (talk){0};
        rig_start_caching(r, layouts[l], 4);
        add(&first, 1, 40);
        ask(r, &first);
        rig_run(r);
        judge(&first, 0, WEIR_MISS_COLD);

        add(&again, 1, 40); /* the same: all but its last token is there */
        ask(r, &again);
        rig_run(r);
        judge(&again, 39, WEIR_MISS_NONE);

        next = first; /* with the answer, but for its last token, which was never fed */
        next.got = (sink){0};
        next.n_prompt = first.n;
        add(&next, 2, 10);
        ask(r, &next);
        rig_run(r);
        judge(&next, 40 + ANSWER - 1, WEIR_MISS_COLD);

        add(&other, 1, 20);
        add(&other, 3, 10);
        ask(r, &other);
        rig_run(r);
        judge(&other, 20, WEIR_MISS_DIVERGED);

        weir_engine_stats stats = rig_stats(r);
        assert_int_equal(stats.n_prompt_tokens, 40 + 1 + 11 + 10);
        assert_int_equal(stats.n_cached_tokens, 39 + 51 + 20);
        assert_int_equal(stats.n_misses[WEIR_MISS_COLD], 2);
        assert_int_equal(stats.n_misses[WEIR_MISS_NONE], 1);
        assert_int_equal(stats.n_misses[WEIR_MISS_DIVERGED], 1);
        assert_int_equal(stats.n_cache_entries, 2); /* the first two are beginnings of the third */
        assert_true(stats.n_kv_cached > 0 && stats.n_kv_cached == stats.n_kv_used);
        rig_stop(r);
    }
}

/* Requests as many as there are lanes come, and the same ones again: none takes a lane that another one
 * needs. */
static void test_the_same_requests_again(void **state)
{
    rig *r = *state;
    static talk talks[4];
    enum { N = COUNT(talks) };
    for (size_t l = 0; l < COUNT(layouts); l++) {
        memset(talks, 0, sizeof talks);
        rig_start_caching(r, layouts[l], N);
        for (int turn = 0; turn < 3; turn++) {
            for (int i = 0; i < N; i++) {
                talk *t = &talks[(turn + i) % N];
                *t = (talk){0};
                add(t, 1, 180);
                add(t, 2 + (turn + i) % N, 10);
                ask(r, t);
                if (i == 0) rig_ticks(r, 3); /* runs alone, on a lane between those of the others */
            }
            rig_run(r);
            for (int i = 0; i < N && turn > 0; i++) judge(&talks[i], 189, WEIR_MISS_NONE);
        }
        rig_stop(r);
    }
}

/* ---- Changes for routers --------------------------------------------------------------------------- */

#define BLOCK 8

typedef struct blocks {
    weir_cache_change changes[128];
    int32_t tokens[128 * BLOCK];
    size_t n;
} blocks;

static size_t take_changes(rig *r, blocks *b)
{
    weir_status status = weir_engine_cache_changes(r->engine, false, b->changes, b->tokens, 128, &b->n);
    assert_int_equal(status, b->n > 0 ? WEIR_OK : WEIR_END);
    return b->n;
}

/* The first n blocks of the text were stored, in order, and nothing else happened. */
static void judge_stored(const blocks *b, const int32_t *tokens, size_t n)
{
    assert_int_equal(b->n, n);
    assert_memory_equal(b->tokens, tokens, n * BLOCK * sizeof *tokens);
    for (size_t i = 0; i < n; i++) {
        assert_true(b->changes[i].stored && b->changes[i].memory == WEIR_CACHE_DEVICE);
        assert_true(b->changes[i].parent == (i > 0 ? b->changes[i - 1].id : 0));
    }
}

/* A block's id gives all tokens up to its end. */
static void judge_block(const rig *r, uint64_t id, const int32_t *tokens, size_t n_blocks)
{
    int32_t got[400];
    size_t n = n_blocks * BLOCK, n_got;
    assert_int_equal(weir_engine_block_tokens(r->engine, id, got, COUNT(got), &n_got), WEIR_OK);
    assert_int_equal(n_got, n);
    assert_memory_equal(got, tokens, n * sizeof *got);
    assert_int_equal(weir_engine_block_tokens(r->engine, id, got, n - 1, &n_got), WEIR_TOO_LONG);
    assert_int_equal(n_got, n);
    assert_int_equal(weir_engine_block_tokens(r->engine, id + 1, got, COUNT(got), &n_got), WEIR_NOT_FOUND);
    assert_int_equal(weir_engine_block_tokens(r->engine, id, NULL, 1, &n_got), WEIR_INVALID);
}

static void test_changes_of_the_cache(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk first, salted;
        static blocks b;
        first = salted = (talk){0};
        r->params.cache_block = BLOCK;
        rig_start_caching(r, layouts[l], 4);
        assert_int_equal(take_changes(r, &b), 0);

        add(&first, 1, 40);
        ask(r, &first);
        rig_tick(r); /* the first chunk of the prompt: others could use it at once */
        take_changes(r, &b);
        judge_stored(&b, first.tokens, 16 / BLOCK);
        uint64_t last = b.changes[b.n - 1].id;
        judge_block(r, last, first.tokens, 16 / BLOCK);
        rig_run(r);
        judge(&first, 0, WEIR_MISS_COLD);
        take_changes(r, &b);
        judge_block(r, b.changes[b.n - 1].id, first.tokens, (40 + ANSWER - 1) / BLOCK);
        assert_true(b.changes[0].parent == last);
        b.changes[0].parent = 0;
        judge_stored(&b, first.tokens + 16, (40 + ANSWER - 1) / BLOCK - 16 / BLOCK);

        add(&salted, 2, 40);
        weir_request request = request_of(r, &salted);
        request.cache_salt = "a tenant";
        rig_submit(r, &request);
        rig_run(r);
        assert_int_equal(take_changes(r, &b), 0);

        while (weir__cache_evict(r->engine->driver.prefix.cache, NULL) >= 0) {
        } /* to host memory */
        size_t n_stored = 0, n = take_changes(r, &b);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(b.changes[i].memory, b.changes[i].stored ? WEIR_CACHE_HOST : WEIR_CACHE_DEVICE);
            n_stored += b.changes[i].stored;
        }
        assert_int_equal(n_stored, (40 + ANSWER - 1) / BLOCK);
        assert_int_equal(n, 2 * n_stored);
        rig_stop(r);
    }
    assert_int_equal(weir_engine_cache_changes(NULL, false, NULL, NULL, 0, NULL), WEIR_INVALID);
    r->params.cache_block = 0;
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    static blocks none;
    assert_int_equal(weir_engine_cache_changes(r->engine, false, none.changes, none.tokens, 1, &none.n),
                     WEIR_STATE);
    assert_int_equal(weir_engine_block_tokens(r->engine, 1, NULL, 0, &none.n), WEIR_STATE);
    rig_stop(r);
}

static void test_a_miss_says_where_and_what(void **state)
{
    rig *r = *state;
    static talk t, u;
    t = u = (talk){0};
    weir_miss_info info = {.size = sizeof info};
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    static const char known[] = "you are a helpful one", asked[] = "you are a helpless one";
    t.salt = u.salt = "a secret";
    for (const char *at = known; *at != '\0'; at++) t.tokens[t.n_prompt++] = *at;
    for (const char *at = asked; *at != '\0'; at++) u.tokens[u.n_prompt++] = *at;
    ask(r, &t);
    rig_run(r);
    ask(r, &u);
    assert_int_equal(weir_stream_miss(u.stream, &info), WEIR_OK);
    assert_int_equal(info.n_matched, 0); /* it is not known yet */
    rig_run(r);
    judge(&u, 14, WEIR_MISS_DIVERGED);
    assert_int_equal(weir_stream_miss(u.stream, &info), WEIR_OK);
    assert_int_equal(info.n_matched, 14);
    assert_string_equal(info.prompt, "e a helpless one");
    assert_int_equal(strncmp(info.cached, "e a helpful one", 15), 0);
    assert_true(weir__utf8_valid(info.cached, strlen(info.cached)));
    assert_int_equal(weir_stream_miss(NULL, &info), WEIR_INVALID);
    assert_int_equal(weir_stream_miss(u.stream, NULL), WEIR_INVALID);

    static talk v;
    v = (talk){.salt = t.salt};
    weir_result result;
    for (const char *at = "you are idle"; *at != '\0'; at++) v.tokens[v.n_prompt++] = *at;
    weir_request request = request_of(r, &v);
    assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.usage.n_cached, 8);
    assert_int_equal(result.miss.miss, WEIR_MISS_DIVERGED);
    assert_string_equal(result.miss.prompt, "you are idle");
    assert_string_not_equal(result.miss.cached, "");
    weir_result_fini(&result);
}

/* A request that waits for another one's prompt has had nothing of it when it ends. */
static void test_what_a_look_up_finds_is_not_told_before_the_start(void **state)
{
    rig *r = *state;
    static talk t, u;
    t = u = (talk){0};
    weir_miss_info info = {.size = sizeof info};
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    add(&t, 1, 100);
    add(&u, 1, 60);
    add(&u, 2, 20);
    ask(r, &t);
    ask(r, &u);
    rig_ticks(r, 2);
    weir_stream_cancel(u.stream);
    rig_run(r);
    assert_int_equal(weir_stream_reason(u.stream), WEIR_REASON_CANCELLED);
    assert_int_equal(weir_stream_usage(u.stream).n_cached, 0);
    assert_int_equal(weir_stream_usage(u.stream).miss, WEIR_MISS_NONE);
    assert_int_equal(weir_stream_miss(u.stream, &info), WEIR_OK);
    assert_int_equal(info.miss, WEIR_MISS_NONE);
    assert_int_equal(info.n_matched, 0);
}

/* Salts of one length, whose hashes share buckets, and texts that say the same. */
static void test_no_tenant_sees_another(void **state)
{
    rig *r = *state;
    enum { TENANTS = 20, STRANGERS = 780 };
    static talk tenants[TENANTS];
    char salt[16];
    memset(tenants, 0, sizeof tenants);
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 4);
    for (int i = 0; i < TENANTS + STRANGERS; i++) {
        talk stranger = {0}, *t = i < TENANTS ? &tenants[i] : &stranger;
        weir_forecast forecast = {.size = sizeof forecast};
        add(t, 1, 60);
        weir_request request = request_of(r, t);
        snprintf(salt, sizeof salt, "tenant-%03d", i);
        request.cache_salt = salt;
        assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
        assert_int_equal(forecast.n_cached, 0);
        if (i >= TENANTS) continue;
        t->stream = rig_submit(r, &request);
        rig_run(r);
        judge(t, 0, WEIR_MISS_COLD);
        assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
        assert_int_equal(forecast.n_cached, 59); /* its own */
    }
    assert_int_equal(rig_stats(r).n_cached_tokens, 0);
}

static void test_requests_without_the_cache_or_with_a_salt(void **state)
{
    rig *r = *state;
    static talk t[6];
    memset(t, 0, sizeof t);
    for (size_t i = 0; i < COUNT(t); i++) add(&t[i], 1, 30);
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    weir_request request = request_of(r, &t[0]);
    request.cache_prompt = false; /* neither takes nor gives */
    t[0].stream = rig_submit(r, &request);
    rig_run(r);
    judge(&t[0], 0, WEIR_MISS_OFF);
    ask(r, &t[1]);
    rig_run(r);
    judge(&t[1], 0, WEIR_MISS_COLD);
    request = request_of(r, &t[2]);
    request.cache_prompt = false;
    t[2].stream = rig_submit(r, &request);
    rig_run(r);
    judge(&t[2], 0, WEIR_MISS_OFF);
    t[3].salt = t[5].salt = "mine";
    t[4].salt = "yours";
    request = request_of(r, &t[3]); /* knows that there is one without a salt, no more */
    t[3].stream = rig_submit(r, &request);
    rig_run(r);
    judge(&t[3], 0, WEIR_MISS_SALT);
    request = request_of(r, &t[4]);
    request.cache_salt_length = 4; /* "your" */
    t[4].stream = rig_submit(r, &request);
    rig_run(r);
    judge(&t[4], 0, WEIR_MISS_SALT);
    request = request_of(r, &t[5]);
    t[5].stream = rig_submit(r, &request);
    rig_run(r);
    judge(&t[5], 29, WEIR_MISS_NONE);
    rig_stop(r);

    static talk u[2];
    memset(u, 0, sizeof u);
    r->params.cache_sequences = 0;
    rig_start(r);
    for (size_t i = 0; i < COUNT(u); i++) {
        add(&u[i], 1, 30);
        ask(r, &u[i]);
        rig_run(r);
        judge(&u[i], 0, WEIR_MISS_OFF);
    }
    assert_int_equal(rig_stats(r).n_cache_entries, 0);
}

static void test_parameters(void **state)
{
    rig *r = *state;
    weir_error error;
    r->params.n_slots = 4;
    const int32_t bad[] = {-2, 253, INT32_MAX};
    for (size_t i = 0; i < COUNT(bad); i++) {
        r->params.cache_sequences = bad[i];
        assert_int_equal(weir_engine_create(r->model, &r->params, &r->engine, &error), WEIR_INVALID);
        assert_string_equal(error.field, "cache_sequences");
    }
    r->params.cache_sequences = 252;
    rig_start(r);
}

/* ---- Running requests ------------------------------------------------------------------------------ */

static void test_a_new_prefix_is_computed_once(void **state)
{
    rig *r = *state;
    enum { N = 8, PREFIX = 64, OWN = 5 };
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk t[N];
        memset(t, 0, sizeof t);
        rig_start_caching(r, layouts[l], N);
        for (int i = 0; i < N; i++) {
            add(&t[i], 1, PREFIX);
            t[i].tokens[t[i].n_prompt++] = 'A' + i;
            add(&t[i], i, OWN - 1);
            ask(r, &t[i]);
        }
        const weir_view *view;
        assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
        assert_int_equal(view->n_slots, N);
        for (size_t i = 0; i < view->n_slots; i++) {
            assert_int_equal(view->slots[i].state, i == 0 ? WEIR_SLOT_PREFILLING : WEIR_SLOT_JOINED);
            assert_int_equal(view->slots[i].n_prompt_left, i == 0 ? PREFIX + OWN : 0);
        }
        weir_plan_entry plan = {.slot = view->slots[1].slot, .n_tokens = 1}; /* may not be named */
        weir_report report = {.size = sizeof report};
        assert_int_equal(weir_engine_step(r->engine, &plan, 1, &report, NULL), WEIR_OK);
        assert_true(report.bad_plan);
        rig_run(r);
        for (int i = 0; i < N; i++)
            judge(&t[i], i == 0 ? 0 : PREFIX, i == 0 ? WEIR_MISS_COLD : WEIR_MISS_DIVERGED);
        weir_engine_stats stats = rig_stats(r);
        assert_int_equal(stats.n_joined, N - 1);
        assert_int_equal(stats.n_prompt_tokens, PREFIX + N * OWN);
        rig_stop(r);
    }
}

/* Waiting requests continue from the cells that the leader computed, whatever its end. */
static void test_a_leader_that_leaves(void **state)
{
    rig *r = *state;
    enum { N = 4, PREFIX = 64 };
    for (int way = 0; way < 3; way++)
        for (size_t l = 0; l < COUNT(layouts); l++) {
            static talk t[N];
            memset(t, 0, sizeof t);
            rig_start_caching(r, layouts[l], N);
            for (int i = 0; i < N; i++) {
                add(&t[i], 1, PREFIX);
                add(&t[i], i, 4);
                ask(r, &t[i]);
            }
            rig_ticks(r, 2); /* 32 tokens */
            uint64_t computed = PREFIX;
            if (way == 0) {
                weir_stream_cancel(t[0].stream);
            } else if (way == 1) { /* its cells are kept by nobody: they are computed again */
                atomic_store(&r->fake->fail_decode_status, WEIR_BACKEND);
                atomic_store(&r->fake->fail_decode_at, 0);
                computed += 32;
            } else { /* one that waits goes, nobody notices */
                weir_stream_cancel(t[1].stream);
            }
            rig_run(r);
            int gone = way == 2 ? 1 : 0, leader = way == 2 ? 0 : 1;
            sink_take(&t[gone].got, t[gone].stream);
            assert_int_equal(t[gone].got.reason, way == 1 ? WEIR_REASON_ERROR : WEIR_REASON_CANCELLED);
            for (int i = 0; i < N; i++) {
                weir_usage usage = weir_stream_usage(t[i].stream);
                if (i == gone) continue;
                judge(&t[i], usage.n_cached, usage.miss);
                if (i == leader) assert_int_equal(usage.n_cached, way == 0 ? 32 : 0);
                if (i != leader) assert_true(usage.n_cached >= PREFIX);
            }
            assert_int_equal(rig_stats(r).n_prompt_tokens, computed + (N - 1) * 4);
            rig_stop(r);
        }
}

/* The answer that is being generated is not known yet, its prompt is. */
static void test_from_a_running_request(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        static talk t[2];
        memset(t, 0, sizeof t);
        rig_start_caching(r, layouts[l], 2);
        add(&t[0], 1, 30);
        ask(r, &t[0]);
        rig_ticks(r, 4);
        add(&t[1], 1, 25);
        add(&t[1], 2, 5);
        ask(r, &t[1]);
        rig_run(r);
        judge(&t[0], 0, WEIR_MISS_COLD);
        judge(&t[1], 25, WEIR_MISS_DIVERGED);
        rig_stop(r);
    }
}

/* ---- Pressure -------------------------------------------------------------------------------------- */

/* Prefixes give way to requests, the least recently used first, and come back from host memory. */
static void test_cached_cells_give_way(void **state)
{
    rig *r = *state;
    enum { N = 12 };
    for (size_t l = 0; l < 2 * COUNT(layouts); l++) {
        weir_layout layout = layouts[l / 2];
        const char *salt = l % 2 == 0 ? NULL : "a secret";
        static talk t[N], again[N];
        memset(t, 0, sizeof t);
        memset(again, 0, sizeof again);
        rig_load(r, "fake:exact=1");
        r->params.n_kv = layout == WEIR_LAYOUT_UNIFIED ? 200 : 2 * 128;
        rig_start_caching(r, layout, 2);
        for (int i = 0; i < N; i++) {
            t[i].salt = salt;
            add(&t[i], i, 60);
            t[i].tokens[0] = 'A' + i;
            again[i] = t[i];
            ask(r, &t[i]);
        }
        rig_run(r);
        for (int i = 0; i < N; i++) judge(&t[i], 0, WEIR_MISS_COLD);
        weir_engine_stats stats = rig_stats(r);
        assert_int_equal(stats.n_cache_entries, N);
        assert_int_equal(stats.n_evicted, 0);
        assert_int_equal(stats.n_suspensions, 0);
        assert_true(stats.cache_bytes > 0 && stats.cache_bytes <= 100000);
        for (int i = 0; i < N; i++) {
            ask(r, &again[i]);
            rig_run(r);
            judge(&again[i], 59, WEIR_MISS_NONE);
        }
        rig_stop(r);

        r->params.n_kv = layout == WEIR_LAYOUT_UNIFIED ? 200 : 2 * 128;
        rig_start_caching(r, layout, 2); /* the same without host memory */
        rig_stop(r);
        r->params.cache_bytes = 0;
        rig_start(r);
        memset(again, 0, sizeof again);
        for (int i = 0; i < N; i++) {
            again[i].salt = salt;
            add(&again[i], i, 60);
            again[i].tokens[0] = 'A' + i;
            ask(r, &again[i]);
        }
        rig_run(r);
        assert_true(rig_stats(r).n_cache_entries < 4);
        assert_true(rig_stats(r).n_evicted >= N - 3);
        talk first = again[0];
        first.got = (sink){0};
        ask(r, &first);
        rig_run(r);
        judge(&first, 0, salt != NULL ? WEIR_MISS_EVICTED : WEIR_MISS_COLD);
        assert_int_equal(rig_stats(r).n_misses[WEIR_MISS_EVICTED], 1);
        rig_stop(r);
    }
}

/* A failure on the way to the cache costs time, never the answer. */
static void test_a_prefix_that_cannot_be_fetched_is_computed(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < COUNT(layouts); l++)
        for (int way = 0; way < 3; way++) {
            static talk t, blocker, u;
            t = blocker = u = (talk){.salt = "a secret"};
            rig_start_caching(r, layouts[l], 1);
            add(&t, 1, 40);
            ask(r, &t);
            rig_run(r);
            judge(&t, 0, WEIR_MISS_COLD);
            if (way > 0) { /* into host memory */
                atomic_store(&r->fake->fail_state_save, way == 2);
                assert_true(weir__cache_evict(r->engine->driver.prefix.cache, NULL) >= 0);
                atomic_store(&r->fake->fail_state_save, false);
            }
            add(&u, 1, 20);
            add(&u, 2, 20);
            atomic_store(&r->fake->fail_share, way == 0);
            atomic_store(&r->fake->fail_state_load, way == 1);
            ask(r, &u);
            rig_tick(r);
            atomic_store(&r->fake->fail_share, false);
            atomic_store(&r->fake->fail_state_load, false);
            rig_run(r);
            /* with one lane the entry's own is taken over */
            if (way == 0 && layouts[l] == WEIR_LAYOUT_PER_SLOT)
                judge(&u, 20, WEIR_MISS_DIVERGED);
            else
                judge(&u, 0, WEIR_MISS_EVICTED);
            rig_stop(r);
        }
}

/* ---- Memory that cannot be cut --------------------------------------------------------------------- */

static void test_checkpoints_at_message_boundaries(void **state)
{
    rig *r = *state;
    for (size_t l = 0; l < 2 * COUNT(layouts); l++) {
        const char *salt = l % 2 == 0 ? NULL : "a secret";
        static talk t, u, v, w;
        t = u = v = w = (talk){.salt = salt};
        rig_load(r, "fake:recurrent=1");
        rig_start_caching(r, layouts[l / 2], 4);
        add(&t, 1, 20);
        t.tokens[t.n_prompt++] = WEIR__FAKE_EOT; /* 21 tokens: the system's message */
        u = t;
        add(&t, 2, 20);
        add(&u, 3, 15);
        v = u;
        ask(r, &t);
        ask(r, &u); /* waits for the first message only */
        rig_run(r);
        judge(&t, 0, WEIR_MISS_COLD);
        judge(&u, 21, WEIR_MISS_DIVERGED);
        ask(r, &v); /* the same as u: all but the last token */
        rig_run(r);
        judge(&v, 35, WEIR_MISS_NONE);
        w = t; /* goes on after the answer */
        w.got = (sink){0};
        w.n_prompt = t.n - 1;
        add(&w, 4, 9);
        ask(r, &w);
        rig_run(r);
        judge(&w, 41 + ANSWER - 1, WEIR_MISS_COLD);
        static talk x;
        x = (talk){.salt = salt};
        add(&x, 1, 20);
        add(&x, 9, 10); /* agrees in 20 tokens, and there is no checkpoint there */
        ask(r, &x);
        rig_run(r);
        judge(&x, 0, salt != NULL ? WEIR_MISS_UNCUTTABLE : WEIR_MISS_COLD);
        assert_int_equal(rig_stats(r).n_misses[WEIR_MISS_UNCUTTABLE], 1);
        rig_stop(r);
    }
}

/* ---- The dry run ----------------------------------------------------------------------------------- */

static void test_the_forecast_knows(void **state)
{
    rig *r = *state;
    static talk t, u;
    t = u = (talk){0};
    weir_forecast forecast = {.size = sizeof forecast};
    rig_start_caching(r, WEIR_LAYOUT_PER_SLOT, 2);
    add(&t, 1, 40);
    u = t;
    weir_request request = request_of(r, &u);
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_int_equal(forecast.n_cached, 0);
    ask(r, &t);
    rig_run(r);
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_int_equal(forecast.n_cached, 39);
    assert_int_equal(forecast.queue_place, 0);
    request.cache_salt = "another";
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_int_equal(forecast.n_cached, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_a_conversation_goes_on),
        RIG_TEST(test_the_same_requests_again),
        RIG_TEST(test_changes_of_the_cache),
        RIG_TEST(test_a_miss_says_where_and_what),
        RIG_TEST(test_what_a_look_up_finds_is_not_told_before_the_start),
        RIG_TEST(test_no_tenant_sees_another),
        RIG_TEST(test_requests_without_the_cache_or_with_a_salt),
        RIG_TEST(test_parameters),
        RIG_TEST(test_a_new_prefix_is_computed_once),
        RIG_TEST(test_a_leader_that_leaves),
        RIG_TEST(test_from_a_running_request),
        RIG_TEST(test_cached_cells_give_way),
        RIG_TEST(test_a_prefix_that_cannot_be_fetched_is_computed),
        RIG_TEST(test_checkpoints_at_message_boundaries),
        RIG_TEST(test_the_forecast_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
