/* Several answers to one request, and the best of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/engine/engine.h"

/* ---- Best of several ------------------------------------------------------------------------------- */

static void the_best_answers_are_the_likeliest(void **state)
{
    rig *r = *state;
    enum { BEST_OF = 8, KEPT = 3 };
    weir_result all[BEST_OF], best[KEPT];
    weir_request requests[BEST_OF];
    weir_sampler_params samplers[BEST_OF];
    double means[BEST_OF];
    rig_load(r, "fake:seed=5,eos_every=20");
    rig_start(r);
    for (int i = 0; i < BEST_OF; i++) {
        samplers[i] = rig_hot(100 + (uint32_t)i);
        samplers[i].ignore_eos = false;
        requests[i] = rig_ask_text(r, "tell me", 30);
        requests[i].sampler = &samplers[i];
    }
    assert_int_equal(weir_generate_best(r->engine, requests, BEST_OF, KEPT, best, NULL), WEIR_OK);
    for (int i = 0; i < BEST_OF; i++) requests[i].logprobs = true;
    assert_int_equal(weir_generate(r->engine, requests, BEST_OF, NULL, all, NULL), WEIR_OK);
    for (int i = 0; i < BEST_OF; i++) {
        double sum = 0;
        for (size_t k = 0; k < all[i].n_tokens; k++) sum += (double)all[i].logprobs[k];
        means[i] = weir_usage_score(&all[i].usage);
        /* the end token is one of those that were generated */
        assert_true(all[i].usage.logprob <= sum + 1e-9);
        if (all[i].reason == WEIR_REASON_LENGTH) assert_true(fabs(all[i].usage.logprob - sum) < 1e-9);
        assert_true(fabs(means[i] - all[i].usage.logprob / all[i].usage.n_generated) < 1e-12);
    }
    for (int k = 0; k < KEPT; k++) {
        int n_above = 0, of = -1;
        for (int i = 0; i < BEST_OF; i++)
            if (means[i] == weir_usage_score(&best[k].usage)) of = i;
        assert_true(of >= 0);
        for (int i = 0; i < BEST_OF; i++) n_above += means[i] > means[of];
        assert_int_equal(n_above, k);
        assert_string_equal(best[k].text, all[of].text);
        assert_non_null(best[k].logprobs);
        weir_result_fini(&best[k]);
    }
    for (int i = 0; i < BEST_OF; i++) weir_result_fini(&all[i]);
    assert_true(weir_usage_score(&(weir_usage){0}) == -INFINITY);
    assert_true(weir_usage_score(NULL) == -INFINITY);
}

static void best_of_refuses_what_it_cannot_do(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_result results[4];
    rig_script(r, 'A', 3, "abc");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    assert_int_equal(weir_generate_best(r->engine, &request, 3, 4, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    assert_int_equal(weir_generate_best(r->engine, &request, 3, 0, results, &error), WEIR_INVALID);
    assert_int_equal(weir_generate_best(r->engine, &request, 3, 1, NULL, &error), WEIR_INVALID);
    assert_int_equal(weir_generate_best(r->engine, NULL, 3, 1, results, &error), WEIR_INVALID);
    assert_int_equal(weir_generate_best(NULL, &request, 3, 1, results, &error), WEIR_INVALID);
    assert_int_equal(weir_generate_best(r->engine, &request, SIZE_MAX, 1, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "best_of");
    assert_int_equal(weir_generate_best(r->engine, &request, 1 << 20, 1, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "best_of");
    request.max_tokens = -7;
    assert_int_equal(weir_generate_best(r->engine, &request, 3, 1, results, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].max_tokens");
    request.max_tokens = -1;
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = weir_generate_best(r->engine, &request, 4, 2, results, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
        for (int i = 0; i < 2; i++) weir_result_fini(&results[i]);
        rig_run(r);
        if (pending) break;
    }
}

/* ---- Several answers ------------------------------------------------------------------------------- */

#define N 4

static void take_texts(rig *r, weir_stream *const *streams, sink *sinks)
{
    rig_run(r);
    for (int i = 0; i < N; i++) {
        memset(&sinks[i], 0, sizeof sinks[i]);
        sink_take(&sinks[i], streams[i]);
        assert_true(sinks[i].finished);
        assert_int_equal(weir_stream_index(streams[i]), i);
    }
}

/* The answers of n submits with these seeds. */
static void each_answer_is_that_of_its_seed(void **state)
{
    rig *r = *state;
    static const uint32_t seeds[] = {0, 77, UINT32_MAX - 2};
    static sink got[N], want[N];
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    for (size_t s = 0; s < COUNT(seeds); s++) {
        weir_stream *streams[N];
        weir_sampler_params sampler = rig_hot(seeds[s]);
        weir_request request = rig_ask_text(r, "a prompt of some length", 20);
        request.sampler = &sampler;
        for (int i = 0; i < N; i++) streams[i] = rig_stream(r);
        assert_int_equal(weir_engine_submit_n(r->engine, &request, N, streams, NULL), WEIR_OK);
        take_texts(r, streams, got);
        weir_sampler_params samplers[N];
        weir_request requests[N];
        for (int i = 0; i < N; i++) {
            uint64_t seed = (uint64_t)seeds[s] + (uint64_t)i;
            samplers[i] =
                rig_hot((uint32_t)(seed >= UINT32_MAX ? seed - UINT32_MAX : seed)); /* never "random" */
            requests[i] = request;
            requests[i].sampler = &samplers[i];
            streams[i] = rig_stream(r);
        }
        assert_int_equal(weir_engine_submit(r->engine, requests, N, streams, NULL), WEIR_OK);
        take_texts(r, streams, want);
        for (int i = 0; i < N; i++) {
            assert_string_equal(got[i].text, want[i].text);
            for (int k = 0; k < i; k++) assert_string_not_equal(got[i].text, got[k].text);
        }
    }
}

static void random_seeds_give_different_answers(void **state)
{
    rig *r = *state;
    static sink got[N];
    weir_stream *streams[N];
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    weir_sampler_params sampler = rig_hot(WEIR_SEED_RANDOM);
    weir_request request = rig_ask_text(r, "a prompt", 40);
    request.sampler = &sampler;
    for (int i = 0; i < N; i++) streams[i] = rig_stream(r);
    assert_int_equal(weir_engine_submit_n(r->engine, &request, N, streams, NULL), WEIR_OK);
    take_texts(r, streams, got);
    for (int i = 1; i < N; i++) assert_string_not_equal(got[0].text, got[i].text);
}

/* All answers have it computed once, also those that find no slot at once. */
static void the_prompt_is_computed_once(void **state)
{
    rig *r = *state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    enum { N_PROMPT = 200, N_ANSWERS = 8 };
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 'a' + i % 23;
    r->params.cache_sequences = -1;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        weir_stream *streams[N_ANSWERS];
        r->params.layout = layouts[l];
        rig_start(r);
        weir_request request = weir_request_default();
        request.tokens = prompt;
        request.n_tokens = N_PROMPT;
        request.sampler = &r->greedy;
        request.max_tokens = 10;
        for (int i = 0; i < N_ANSWERS; i++) streams[i] = rig_stream(r);
        assert_int_equal(weir_engine_submit_n(r->engine, &request, N_ANSWERS, streams, NULL), WEIR_OK);
        rig_run(r);
        assert_true(rig_stats(r).n_prompt_tokens <= N_PROMPT + (N_ANSWERS - 1));
        for (int i = 1; i < N_ANSWERS; i++)
            assert_int_equal(weir_stream_usage(streams[i]).n_cached, N_PROMPT - 1);
        rig_stop(r);
    }
}

static void assert_all_answered(weir_stream *const *streams)
{
    for (int i = 0; i < N; i++) {
        static sink got;
        memset(&got, 0, sizeof got);
        sink_take(&got, streams[i]);
        assert_sink(got, WEIR_REASON_END, "some text");
    }
}

static void all_answers_are_queued_or_none(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    weir_stream *streams[N];
    r->params.n_slots = 2;
    r->params.queue_limit = 2;
    rig_script(r, 'A', 5, "some text");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    for (int i = 0; i < N; i++) streams[i] = rig_stream(r);
    assert_int_equal(weir_engine_submit_n(r->engine, &request, N + 1, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n");
    rig_submit_key(r, 'A');
    assert_int_equal(weir_engine_submit_n(r->engine, &request, N, streams, &error), WEIR_BUSY);
    for (int i = 0; i < N; i++) assert_int_equal(weir_stream_index(streams[i]), -1);
    rig_run(r);
    request.max_tokens = -7;
    assert_int_equal(weir_engine_submit_n(r->engine, &request, N, streams, &error), WEIR_INVALID);
    assert_string_equal(error.field, "requests[0].max_tokens");
    request.max_tokens = -1;
    assert_int_equal(weir_engine_submit_n(r->engine, NULL, N, streams, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_submit_n(NULL, &request, N, streams, &error), WEIR_INVALID);
    assert_int_equal(weir_engine_submit_n(r->engine, &request, 0, NULL, &error), WEIR_INVALID);
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = weir_engine_submit_n(r->engine, &request, N, streams, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (pending) break;
        assert_int_equal(status, WEIR_NO_MEMORY);
        assert_int_equal(rig_stats(r).queue_depth, 0);
    }
    rig_run(r);
    assert_all_answered(streams);
}

typedef struct asker {
    rig *r;
    weir_request request;
    weir_stream *streams[N];
    weir_status status;
    int n_asked;
} asker;

static void ask_at_the_end(weir_stream *stream, void *user)
{
    asker *a = user;
    weir_chunk chunk;
    while (weir_stream_try_next(stream, &chunk) == WEIR_OK)
        if (chunk.reason != WEIR_REASON_NOT_FINISHED && a->n_asked++ == 0)
            a->status = weir_engine_submit_n(a->r->engine, &a->request, N, a->streams, NULL);
}

/* A caller that has seen the end of an answer may have asked again before the driver goes on. */
static void the_place_of_an_answer_is_free_when_its_end_is_seen(void **state)
{
    rig *r = *state;
    asker a = {.r = r};
    r->params.n_slots = 2;
    r->params.queue_limit = N - 2;
    rig_script(r, 'A', 5, "some text");
    rig_start(r);
    a.request = rig_ask(r, 'A');
    for (int i = 0; i < N; i++) a.streams[i] = rig_stream(r);
    weir_stream *first = rig_stream(r);
    weir_stream_set_ready(first, ask_at_the_end, &a);
    assert_int_equal(weir_engine_submit(r->engine, &a.request, 1, &first, NULL), WEIR_OK);
    rig_run(r);
    assert_int_equal(a.n_asked, 1);
    assert_int_equal(a.status, WEIR_OK);
    assert_all_answered(a.streams);
    weir_stream_set_ready(first, NULL, NULL);
}

/* ---- Logprobs and stop texts ----------------------------------------------------------------------- */

static void a_result_tells_the_tokens_of_its_stop_text(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"de"};
    weir_result result;
    rig_script(r, 'A', 3, "abcdef");
    rig_start(r);
    weir_request request = rig_ask(r, 'A');
    request.logprobs = true;
    request.stop = stops;
    request.n_stop = 1;
    assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_STOP_WORDS);
    assert_string_equal(result.text, "abc");
    assert_int_equal(result.n_tokens, 5);
    assert_int_equal(result.n_hidden, 2);
    weir_result_fini(&result);

    request.max_tokens = 4; /* "d" was held back and is text after all */
    assert_int_equal(weir_generate(r->engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_LENGTH);
    assert_string_equal(result.text, "abcd");
    assert_int_equal(result.n_tokens, 4);
    assert_int_equal(result.n_hidden, 0);
    weir_result_fini(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_best_answers_are_the_likeliest),
        RIG_TEST(best_of_refuses_what_it_cannot_do),
        RIG_TEST(each_answer_is_that_of_its_seed),
        RIG_TEST(random_seeds_give_different_answers),
        RIG_TEST(the_prompt_is_computed_once),
        RIG_TEST(all_answers_are_queued_or_none),
        RIG_TEST(the_place_of_an_answer_is_free_when_its_end_is_seen),
        RIG_TEST(a_result_tells_the_tokens_of_its_stop_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
