/* kv_transfer_test.c: cached prefixes that go from one engine to another.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/shared.h"

#include <pthread.h>

#include "cache/snapshot.h"
#include "support/engine/talk.h"

#define LONG 200
#define MOST ((uint64_t)1 << 20)

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Asking ---- */

/* Goes on after the first `from` tokens of another prompt with n of its own. */
static void go_on(rig *r, talk *t, const talk *before, int32_t from, int what, int32_t n)
{
    talk_make(r, t, what, from + n);
    memcpy(t->tokens, before->tokens, (size_t)from * sizeof *t->tokens);
    talk_answer(r, t);
}

/* Asks, and compares the answer and the number of cached tokens. */
static void ask_as(rig *r, weir_engine *engine, talk *t, const char *salt, int32_t n_cached)
{
    talk_ask(r, engine, t, salt);
    assert_int_equal(t->usage.n_cached, n_cached);
}

static weir_engine *engine_of(rig *r, weir_layout layout, int32_t n_slots)
{
    weir_engine *engine = NULL;
    r->params.manual = false;
    r->params.n_slots = n_slots;
    r->params.chunk_size = 16;
    r->params.layout = layout;
    r->params.cache_sequences = -1;
    r->params.cache_bytes = 1000000;
    assert_int_equal(weir_engine_create(r->model, &r->params, &engine, NULL), WEIR_OK);
    return engine;
}

/* ---- Moving ---- */

static weir_snapshot *empty_for(const weir_engine *engine, const talk *t, const char *salt)
{
    weir_snapshot *snapshot = NULL;
    assert_int_equal(
        weir_snapshot_create(engine, t->tokens, (size_t)t->n - 1, salt, WEIR_NUL, MOST, &snapshot, NULL),
        WEIR_OK);
    return snapshot;
}

/* Passes the bytes on in small pieces. */
static weir_status copy_bytes(const weir_snapshot *from, weir_snapshot *to, size_t piece, weir_error *error)
{
    char bytes[4096];
    weir_status status = WEIR_OK;
    uint64_t at = 0;
    for (size_t n; status == WEIR_OK && (n = weir_snapshot_read(from, at, bytes, piece)) > 0; at += n)
        status = weir_snapshot_write(to, bytes, n, error);
    if (status == WEIR_OK) assert_int_equal(at, weir_snapshot_bytes(from));
    return status;
}

/* Moves n_moved of the prompt's tokens from an engine to the other. */
static void move_as(weir_engine *from, weir_engine *to, const talk *t, const char *salt, int32_t n_moved)
{
    weir_error error = {0};
    weir_snapshot *given = empty_for(from, t, salt), *taken = empty_for(to, t, salt);
    assert_int_equal(weir_snapshot_known(given, from), n_moved);
    if (weir_snapshot_export(given, from, n_moved - 1, -1, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(weir_snapshot_length(given), n_moved);
    if (copy_bytes(given, taken, 100, &error) != WEIR_OK) fail_msg("%s", error.message);
    if (weir_snapshot_import(taken, to, -1, &error) != WEIR_OK) fail_msg("%s", error.message);
    if (weir_snapshot_import(taken, to, -1, &error) != WEIR_OK) /* OK: the engine had it and took nothing */
        assert_string_equal(error.message, "the snapshot was already imported: create a new one");
    assert_int_equal(weir_snapshot_known(taken, to), n_moved);
    weir_snapshot_destroy(given);
    weir_snapshot_destroy(taken);
}

static void test_an_engine_takes_prefixes_of_another_one(void **state)
{
    rig *r = *state;
    static talk first, next, other, big;
    for (size_t a = 0; a < COUNT(layouts); a++)
        for (size_t b = 0; b < COUNT(layouts); b++) {
            weir_engine *from = engine_of(r, layouts[a], 2), *to = engine_of(r, layouts[b], 3);
            talk_make(r, &first, 1, 40);
            ask_as(r, from, &first, NULL, 0);
            go_on(r, &next, &first, 40 + TALK_ANSWER, 2, 10); /* all of a conversation */
            move_as(from, to, &next, NULL, 40 + TALK_ANSWER - 1);
            ask_as(r, to, &next, NULL, 40 + TALK_ANSWER - 1);
            go_on(r, &other, &first, 24, 3,
                  30); /* a part of it: a copy in a free lane, or in an evicted one */
            weir_engine *third = engine_of(r, layouts[b], 1);
            talk_make(r, &big, 4, 50);
            ask_as(r, from, &big, NULL, 0);
            move_as(from, third, &other, NULL, 24);
            ask_as(r, third, &other, NULL, 24);
            ask_as(r, from, &next, NULL, 40 + TALK_ANSWER - 1); /* it is still there */
            assert_int_equal(weir_engine_destroy(third), WEIR_OK);
            assert_int_equal(weir_engine_destroy(from), WEIR_OK);
            assert_int_equal(weir_engine_destroy(to), WEIR_OK);
        }
}

/* The prefix comes from host memory: the lanes had to go to others. */
static void test_from_host_memory(void **state)
{
    rig *r = *state;
    static talk first, next, other;
    weir_engine *from = engine_of(r, WEIR_LAYOUT_PER_SLOT, 1), *to = engine_of(r, WEIR_LAYOUT_PER_SLOT, 2);
    talk_make(r, &first, 1, 60);
    talk_make(r, &other, 2, 60);
    ask_as(r, from, &first, NULL, 0);
    ask_as(r, from, &other, NULL, 0);
    go_on(r, &next, &first, 60 + TALK_ANSWER, 3, 5);
    move_as(from, to, &next, NULL, 60 + TALK_ANSWER - 1);
    ask_as(r, to, &next, NULL, 60 + TALK_ANSWER - 1);
    go_on(r, &next, &other, 30, 3, 30);
    move_as(from, to, &next, NULL, 30); /* of the only lane, which goes to host memory for that */
    go_on(r, &next, &first, 30, 3, 30);
    move_as(from, to, &next, NULL, 30); /* the part of it that is there already is not taken again */
    ask_as(r, to, &next, NULL, 30);
    ask_as(r, from, &other, NULL, 59);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
    assert_int_equal(weir_engine_destroy(to), WEIR_OK);
}

/* The prefix is that of a request that still runs. */
static void test_from_a_running_request(void **state)
{
    rig *r = *state;
    static talk first, other;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        weir_report report = {.size = sizeof report};
        weir_error error = {0};
        r->params.manual = true;
        rig_start_caching(r, layouts[l], 2);
        talk_make(r, &first, 1, 60);
        go_on(r, &other, &first, 40, 2, 20);
        weir_request request = weir_request_default();
        request.sampler = &r->greedy;
        request.tokens = first.tokens;
        request.n_tokens = (size_t)first.n;
        rig_submit(r, &request);
        rig_ticks(r, 2); /* 32 tokens of it */
        weir__kv_transfer transfer = {.tokens = other.tokens, .n = other.n - 1, .most = MOST};
        assert_int_equal(weir__kv_transfers_post(&r->engine->shared.transfers, &transfer, NULL), WEIR_OK);
        assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, NULL), WEIR_OK);
        assert_int_equal(weir__kv_transfers_wait(&r->engine->shared.transfers, &transfer, 0, &error),
                         WEIR_OK);
        assert_int_equal(transfer.n, 32);
        weir__mem_free(transfer.state);
        rig_stop(r);
    }
}

static void test_salts_are_apart(void **state)
{
    rig *r = *state;
    static talk t;
    static const char *const salts[] = {NULL, "", "one", "two"};
    weir_engine *from = engine_of(r, WEIR_LAYOUT_UNIFIED, 2), *to = engine_of(r, WEIR_LAYOUT_UNIFIED, 2);
    talk_make(r, &t, 1, 60);
    ask_as(r, from, &t, "one", 0);
    for (size_t i = 0; i < COUNT(salts); i++) {
        weir_snapshot *s = empty_for(from, &t, salts[i]);
        weir_status status = weir_snapshot_export(s, from, 0, -1, NULL);
        assert_int_equal(status, i == 2 ? WEIR_OK : WEIR_NOT_FOUND);
        for (size_t other = 0; i == 2 && other < COUNT(salts); other++) {
            weir_snapshot *taken = empty_for(to, &t, salts[other]);
            assert_int_equal(copy_bytes(s, taken, 64, NULL), other == 2 ? WEIR_OK : WEIR_FORMAT);
            assert_int_equal(weir_snapshot_import(taken, to, -1, NULL), other == 2 ? WEIR_OK : WEIR_STATE);
            weir_snapshot_destroy(taken);
        }
        weir_snapshot_destroy(s);
    }
    ask_as(r, to, &t, "two", 0);
    ask_as(r, to, &t, "one", 59);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
    assert_int_equal(weir_engine_destroy(to), WEIR_OK);
}

/* ---- Refusals ---- */

static void test_unusable_snapshots_are_refused(void **state)
{
    rig *r = *state;
    static talk t, u;
    char bytes[4096], changed[4096];
    weir_error error = {0};
    weir_engine *from = engine_of(r, WEIR_LAYOUT_UNIFIED, 2), *to = engine_of(r, WEIR_LAYOUT_PER_SLOT, 2);
    talk_make(r, &t, 1, 40);
    talk_make(r, &u, 2, 40);
    ask_as(r, from, &t, NULL, 0);
    weir_snapshot *given = empty_for(from, &t, NULL);
    assert_int_equal(weir_snapshot_export(given, from, 39, -1, NULL), WEIR_NOT_FOUND);
    assert_int_equal(weir_snapshot_bytes(given), 0);
    assert_int_equal(weir_snapshot_export(given, from, 38, -1, NULL), WEIR_OK);
    assert_int_equal(weir_snapshot_export(given, from, 0, -1, NULL), WEIR_STATE); /* it has one */
    assert_int_equal(weir_snapshot_write(given, bytes, 1, NULL), WEIR_STATE);
    size_t n = weir_snapshot_read(given, 0, bytes, sizeof bytes);
    assert_int_equal(n, weir_snapshot_bytes(given));
    assert_true(n < sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) { /* too short: it is not complete */
        weir_snapshot *taken = empty_for(to, &t, NULL);
        assert_int_equal(weir_snapshot_write(taken, bytes, cut, NULL), WEIR_OK);
        assert_int_equal(weir_snapshot_import(taken, to, -1, NULL), WEIR_STATE);
        weir_snapshot_destroy(taken);
    }
    for (size_t at = 0; at < n; at++) { /* each byte counts */
        weir_snapshot *taken = empty_for(to, &t, NULL);
        memcpy(changed, bytes, n);
        changed[at] ^= 0x10;
        weir_status status = weir_snapshot_write(taken, changed, n, &error);
        if (status == WEIR_OK) status = weir_snapshot_import(taken, to, -1, &error);
        assert_true(status != WEIR_OK && error.message[0] != '\0');
        weir_snapshot_destroy(taken);
    }
    weir_snapshot *taken = empty_for(to, &t, NULL);
    assert_int_equal(weir_snapshot_write(taken, bytes, n, NULL), WEIR_OK);
    assert_int_equal(weir_snapshot_write(taken, bytes, 1, NULL), WEIR_FORMAT); /* too long */
    assert_int_equal(weir_snapshot_import(taken, to, -1, NULL), WEIR_STATE);
    weir_snapshot_destroy(taken);
    taken = empty_for(to, &u, NULL); /* another prompt */
    assert_int_equal(weir_snapshot_write(taken, bytes, n, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "another text"));
    weir_snapshot_destroy(taken);
    for (uint64_t most = 0; most < n; most += 7) {
        assert_int_equal(weir_snapshot_create(to, t.tokens, 39, NULL, 0, most, &taken, NULL), WEIR_OK);
        assert_int_equal(weir_snapshot_write(taken, bytes, n, NULL), WEIR_TOO_LONG);
        weir_snapshot_destroy(taken);
    }
    weir_snapshot_destroy(given);
    assert_int_equal(weir_snapshot_create(from, t.tokens, 39, NULL, 0, 10, &given, NULL), WEIR_OK);
    assert_int_equal(weir_snapshot_export(given, from, 0, -1, NULL), WEIR_TOO_LONG);
    weir_snapshot_destroy(given);
    ask_as(r, to, &t, NULL, 0);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
    assert_int_equal(weir_engine_destroy(to), WEIR_OK);
}

static void test_other_models_and_small_caches(void **state)
{
    rig *r = *state;
    static talk t;
    weir_error error = {0};
    weir_engine *from = engine_of(r, WEIR_LAYOUT_UNIFIED, 2), *to;
    talk_make(r, &t, 1, 40);
    ask_as(r, from, &t, NULL, 0);
    weir_snapshot *given = empty_for(from, &t, NULL);
    assert_int_equal(weir_snapshot_export(given, from, 0, -1, NULL), WEIR_OK);
    for (int what = 0; what < 4; what++) {
        weir_model *model = weir_model_hold(r->model);
        weir_engine_params params = r->params;
        weir_snapshot *taken;
        if (what == 0) {
            weir_model_release(model);
            assert_int_equal(weir_model_load("fake:seed=7", NULL, &model, NULL), WEIR_OK);
        }
        if (what == 1) params.type_k = WEIR_KV_Q8_0;
        if (what == 2) params.cache_bytes = 10;
        if (what == 3) params.cache_sequences = 0;
        assert_int_equal(weir_engine_create(model, &params, &to, NULL), WEIR_OK);
        taken = empty_for(to, &t, NULL);
        weir_status status = copy_bytes(given, taken, 100, &error);
        if (what < 2) {
            assert_int_equal(status, WEIR_UNSUPPORTED);
            assert_non_null(strstr(error.message, "another model"));
            assert_int_equal(weir_snapshot_import(given, to, -1, NULL), WEIR_UNSUPPORTED);
            assert_int_equal(weir_snapshot_export(taken, from, 0, -1, NULL), WEIR_UNSUPPORTED);
        } else {
            assert_int_equal(status, WEIR_OK);
            assert_int_equal(weir_snapshot_import(taken, to, -1, &error),
                             what == 2 ? WEIR_NO_SPACE : WEIR_UNSUPPORTED);
            assert_int_equal(weir_snapshot_import(taken, from, -1, &error), WEIR_OK); /* which has it */
        }
        weir_snapshot_destroy(taken);
        assert_int_equal(weir_engine_destroy(to), WEIR_OK);
        weir_model_release(model);
    }
    weir_snapshot_destroy(given);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
}

static void test_wrong_arguments(void **state)
{
    rig *r = *state;
    int32_t tokens[4] = {1, 2, -1, 4};
    weir_snapshot *s = NULL;
    weir_engine *engine = engine_of(r, WEIR_LAYOUT_UNIFIED, 2);
    assert_int_equal(weir_snapshot_create(NULL, tokens, 2, NULL, 0, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, NULL, 2, NULL, 0, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, tokens, 2, NULL, 0, MOST, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, tokens, 0, NULL, 0, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, tokens, 100000, NULL, 0, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, tokens, 3, NULL, 0, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_create(engine, tokens, 2, "x", 5000, MOST, &s, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_export(NULL, engine, 0, 0, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_import(NULL, engine, 0, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_write(NULL, "", 1, NULL), WEIR_INVALID);
    assert_int_equal(weir_snapshot_read(NULL, 0, tokens, 1), 0);
    assert_int_equal(weir_snapshot_known(NULL, engine), 0);
    assert_int_equal(weir_snapshot_length(NULL), 0);
    assert_int_equal(weir_snapshot_bytes(NULL), 0);
    weir_snapshot_destroy(NULL);
    assert_int_equal(weir_engine_destroy(engine), WEIR_OK);
}

static bool yes(void *user)
{
    ++*(int *)user;
    return true;
}

/* Transfers of an engine that nobody drives, of one that was stopped, and from a thread that is to end. */
static void test_an_engine_that_does_not_come(void **state)
{
    rig *r = *state;
    static talk t;
    int n_asked = 0;
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    talk_make(r, &t, 1, 40);
    weir_snapshot *s = empty_for(r->engine, &t, NULL);
    assert_int_equal(weir_snapshot_export(s, r->engine, 0, 0, NULL), WEIR_TIMEOUT);
    weir_interrupt_set(yes, &n_asked);
    assert_int_equal(weir_snapshot_export(s, r->engine, 0, -1, NULL), WEIR_ABORTED);
    weir_interrupt_set(NULL, NULL);
    assert_true(n_asked > 0);
    assert_null(r->engine->shared.transfers.first); /* nobody does it later */
    weir_engine_stop(r->engine);
    assert_int_equal(weir_snapshot_export(s, r->engine, 0, -1, NULL), WEIR_STOPPED);
    weir_snapshot_destroy(s);
}

static void test_without_memory(void **state)
{
    rig *r = *state;
    static talk t;
    char bytes[4096];
    weir_engine *from = engine_of(r, WEIR_LAYOUT_UNIFIED, 2), *to = engine_of(r, WEIR_LAYOUT_UNIFIED, 2);
    talk_make(r, &t, 1, 40);
    ask_as(r, from, &t, NULL, 0);
    weir_snapshot *given = empty_for(from, &t, NULL);
    assert_int_equal(weir_snapshot_export(given, from, 0, -1, NULL), WEIR_OK);
    size_t n = weir_snapshot_read(given, 0, bytes, sizeof bytes);
    weir_snapshot_destroy(given);
    for (long i = 0;; i++) {
        weir_snapshot *s = NULL;
        weir__mem_fail_after(i);
        weir_status status = weir_snapshot_create(from, t.tokens, 39, NULL, 0, MOST, &s, NULL);
        if (status == WEIR_OK) status = weir_snapshot_export(s, from, 0, -1, NULL);
        weir_snapshot_destroy(s);
        s = NULL;
        if (status == WEIR_OK) status = weir_snapshot_create(to, t.tokens, 39, NULL, 0, MOST, &s, NULL);
        if (status == WEIR_OK) status = weir_snapshot_write(s, bytes, n, NULL);
        if (status == WEIR_OK) status = weir_snapshot_import(s, to, -1, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        weir_snapshot_destroy(s);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        if (pending) break;
    }
    ask_as(r, to, &t, NULL, 39);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
    assert_int_equal(weir_engine_destroy(to), WEIR_OK);
}

/* ---- Many at once ---- */

typedef struct crowd {
    rig *r;
    weir_engine *from, *to;
    int number;
    int n_moved;
} crowd;

static void *carry(void *user)
{
    crowd *c = user;
    talk *t = malloc(sizeof *t);
    for (int turn = 0; turn < 20 && t != NULL; turn++) {
        talk_make(c->r, t, 1 + turn % 3, 60);
        weir_snapshot *given = empty_for(c->from, t, NULL), *taken = empty_for(c->to, t, NULL);
        if (weir_snapshot_export(given, c->from, weir_snapshot_known(taken, c->to), 20000, NULL) == WEIR_OK &&
            copy_bytes(given, taken, 1000, NULL) == WEIR_OK)
            c->n_moved += weir_snapshot_import(taken, c->to, 20000, NULL) == WEIR_OK;
        weir_snapshot_destroy(given);
        weir_snapshot_destroy(taken);
    }
    free(t);
    return NULL;
}

static void test_while_requests_run(void **state)
{
    rig *r = *state;
    static talk t;
    pthread_t threads[3];
    crowd each[3];
    weir_engine *from = engine_of(r, WEIR_LAYOUT_UNIFIED, 2), *to = engine_of(r, WEIR_LAYOUT_PER_SLOT, 2);
    for (int i = 0; i < 3; i++) {
        each[i] = (crowd){.r = r, .from = from, .to = to, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, carry, &each[i]), 0);
    }
    for (int turn = 0; turn < 30; turn++) {
        weir_request request = weir_request_default();
        weir_result result;
        talk_make(r, &t, 1 + turn % 3, 60);
        request.sampler = &r->greedy;
        request.tokens = t.tokens;
        request.n_tokens = (size_t)t.n;
        request.max_tokens = TALK_ANSWER;
        for (int e = 0; e < 2; e++) {
            assert_int_equal(weir_generate(e ? to : from, &request, 1, NULL, &result, NULL), WEIR_OK);
            assert_memory_equal(result.tokens, t.tokens + t.n, TALK_ANSWER * sizeof *t.tokens);
            weir_result_fini(&result);
        }
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(weir_engine_destroy(from), WEIR_OK);
    assert_int_equal(weir_engine_destroy(to), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_an_engine_takes_prefixes_of_another_one),
        RIG_TEST(test_from_host_memory),
        RIG_TEST(test_from_a_running_request),
        RIG_TEST(test_salts_are_apart),
        RIG_TEST(test_unusable_snapshots_are_refused),
        RIG_TEST(test_other_models_and_small_caches),
        RIG_TEST(test_wrong_arguments),
        RIG_TEST(test_an_engine_that_does_not_come),
        RIG_TEST(test_without_memory),
        RIG_TEST(test_while_requests_run),
    };
    return cmocka_run_group_tests_name("kv_transfer", tests, NULL, NULL);
}
