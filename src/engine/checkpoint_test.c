/* checkpoint_test.c: edits in the middle of conversations, for models whose memory cannot be cut everywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/talk.h"

#define N      4000
#define EDIT   2400
#define MOST   (EDIT / 20) /* tokens that may be computed again */
#define BUDGET (UINT64_C(256) << 20)

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

static void start(rig *r, const char *model, weir_layout layout, uint64_t n_bytes)
{
    rig_load(r, model);
    r->params.n_slots = 2;
    r->params.n_ctx = N + 500;
    r->params.n_kv = 0;
    r->params.layout = layout;
    r->params.cache_sequences = -1;
    r->params.cache_bytes = n_bytes;
    r->params.n_batch = 512;
    rig_start(r);
}

/* The first n tokens of t, and then others. */
static void edit(rig *r, talk *edited, const talk *t, int32_t n)
{
    talk_make(r, edited, 3, t->n);
    memcpy(edited->tokens, t->tokens, (size_t)n * sizeof *t->tokens);
    edited->tokens[n] = t->tokens[n] == 'a' ? 'b' : 'a';
    talk_answer(r, edited);
}

/* A text without ends of messages, the same with an edit, and the first one again. Answers are those of the
 * model alone, which talk_ask compares. */
static void an_edit_in_the_middle(void **state)
{
    static const struct {
        const char *model;
        int32_t most; /* tokens before the edit that are computed again */
    } cases[] = {
        {"fake:exact=1,recurrent=1", MOST}, {"fake:exact=1,hybrid=1", MOST},
        {"fake:exact=1,n_swa=64", 256},     {"fake:exact=1,n_swa=64,hybrid=1", MOST},
        {"fake:exact=1,n_swa=100000", 0}, /* the window holds all of the text */
    };
    rig *r = *state;
    static talk t, edited, again;
    for (size_t i = 0; i < COUNT(cases) * 4; i++) {
        int32_t most = cases[i / 4].most;
        bool evicts = i % 2 == 1; /* into host memory */
        start(r, cases[i / 4].model, layouts[i / 2 % 2], BUDGET);
        talk_make(r, &t, 1, N);
        talk_ask(r, r->engine, &t, NULL);
        assert_int_equal(t.usage.n_cached, 0);
        if (evicts) weir__cache_evict(r->engine->driver.prefix.cache, NULL);
        if (evicts && most == 0) most = 256; /* a state has the window of its end */
        edit(r, &edited, &t, EDIT);
        talk_ask(r, r->engine, &edited, "");
        assert_in_range(edited.usage.n_cached, EDIT - most, EDIT);
        again = t;
        talk_ask(r, r->engine, &again, NULL);
        assert_in_range(again.usage.n_cached, N - 1 - most, N - 1);
        again = edited;
        talk_ask(r, r->engine, &again, NULL);
        assert_in_range(again.usage.n_cached, N - 1 - most, N - 1);
        assert_true(rig_stats(r).cache_bytes <= BUDGET);
        rig_stop(r);
    }
}

/* The conversation goes on where it ended, and the place where it ended stays. */
static void a_conversation_goes_on_and_its_last_message_is_edited(void **state)
{
    static const char *const models[] = {"fake:exact=1,hybrid=1", "fake:exact=1,n_swa=64"};
    rig *r = *state;
    static talk t, next;
    for (size_t i = 0; i < COUNT(models) * 2; i++) {
        start(r, models[i / 2], layouts[i % 2], BUDGET);
        talk_make(r, &t, 1, 1000);
        talk_ask(r, r->engine, &t, NULL);
        int32_t end = t.n + TALK_ANSWER - 1; /* the last token was not computed */
        for (int round = 0; round < 3; round++) {
            talk_make(r, &next, 4 + round, 1200);
            memcpy(next.tokens, t.tokens, (size_t)end * sizeof *t.tokens);
            talk_answer(r, &next);
            talk_ask(r, r->engine, &next, NULL);
            assert_int_equal(next.usage.n_cached, end);
        }
        rig_stop(r);
    }
}

/* The budget bounds the states, and a longer distance between them makes them fit. */
static void checkpoints_are_bounded(void **state)
{
    static const char *const models[] = {"fake:exact=1,recurrent=1", "fake:exact=1,hybrid=1",
                                         "fake:exact=1,n_swa=64"};
    rig *r = *state;
    static talk t, edited;
    for (size_t i = 0; i < COUNT(models) * 2; i++) {
        const uint64_t n_bytes = i / 2 == 0 ? 150000 : 40000; /* a whole state of N tokens has 32,100 */
        start(r, models[i / 2], layouts[i % 2], n_bytes);
        for (int round = 0; round < 6; round++) {
            talk_make(r, &t, 5 * round, N - round);
            talk_ask(r, r->engine, &t, NULL);
            assert_true(rig_stats(r).cache_bytes <= n_bytes);
            edit(r, &edited, &t, EDIT);
            talk_ask(r, r->engine, &edited, NULL);
            assert_in_range(edited.usage.n_cached, i / 2 == 0 ? 0 /* recurrent: any */ : EDIT - 256, EDIT);
            assert_true(rig_stats(r).cache_bytes <= n_bytes);
        }
        rig_stop(r);
    }
}

/* A request waits for the last checkpoint that it shares with one that computes. */
static void a_prefix_is_computed_once(void **state)
{
    static const char *const models[] = {"fake:exact=1,recurrent=1", "fake:exact=1,hybrid=1",
                                         "fake:exact=1,n_swa=64"};
    rig *r = *state;
    static talk t[2];
    for (size_t i = 0; i < COUNT(models) * 2; i++) {
        weir_stream *streams[2];
        sink got[2] = {{0}};
        start(r, models[i / 2], layouts[i % 2], BUDGET);
        talk_make(r, &t[0], 1, 1000);
        edit(r, &t[1], &t[0], 900);
        for (int k = 0; k < 2; k++) {
            weir_request request = weir_request_default();
            request.sampler = &r->greedy;
            request.tokens = t[k].tokens;
            request.n_tokens = (size_t)t[k].n;
            request.max_tokens = TALK_ANSWER;
            streams[k] = rig_submit(r, &request);
        }
        rig_run(r);
        for (int k = 0; k < 2; k++) {
            sink_take(&got[k], streams[k]);
            assert_int_equal(got[k].n_tokens, TALK_ANSWER);
            assert_memory_equal(got[k].tokens, t[k].tokens + t[k].n, TALK_ANSWER * sizeof(int32_t));
        }
        assert_int_equal(weir_stream_usage(streams[0]).n_cached, 0);
        assert_int_equal(weir_stream_usage(streams[1]).n_cached, i / 2 == 2 ? 768 : 864);
        assert_int_equal(rig_stats(r).n_joined, 1);
        rig_stop(r);
    }
}

/* Without the part that was saved there, a sequence serves at its own length only: failures cost time. */
static void a_part_that_cannot_be_loaded(void **state)
{
    rig *r = *state;
    static talk t, edited;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        start(r, "fake:exact=1,hybrid=1", layouts[l], BUDGET);
        talk_make(r, &t, 1, 1000);
        talk_ask(r, r->engine, &t, NULL);
        edit(r, &edited, &t, 500);
        atomic_store(&r->fake->fail_state_load, true);
        talk_ask(r, r->engine, &edited, NULL);
        atomic_store(&r->fake->fail_state_load, false);
        assert_int_equal(edited.usage.n_cached, 0);
        talk_ask(r, r->engine, &t, NULL);
        assert_in_range(t.usage.n_cached, 1, 999);
        rig_stop(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(an_edit_in_the_middle),
        RIG_TEST(a_conversation_goes_on_and_its_last_message_is_edited),
        RIG_TEST(checkpoints_are_bounded),
        RIG_TEST(a_prefix_is_computed_once),
        RIG_TEST(a_part_that_cannot_be_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
