/* prefix_model_test.c: cached prefixes on real memories: greedy texts must be those of engines that cache
 * nothing.
 *
 * Requests stay inside the region where stock attention does not depend on the company (docs/adr/0009).
 * SPDX-License-Identifier: Apache-2.0 */
#include <llama.h> /* this test is for builds with llama.cpp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/engine/real.h"
#include "support/temp.h"

#define N      4
#define ANSWER EFFORT(16, 12)

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

typedef struct ask {
    int32_t tokens[512];
    size_t n;
} ask;

static weir_engine *make_engine(weir_model *model, weir_layout layout, weir_kv_type type, int32_t sequences)
{
    weir_engine_params params = small_params(N, layout);
    params.type_k = params.type_v = type;
    params.cache_sequences = sequences;
    return engine_of(model, &params);
}

static void generate(weir_engine *engine, const ask *asks, size_t n, weir_result *results)
{
    weir_request requests[N];
    weir_error error = {0};
    for (size_t i = 0; i < n; i++) requests[i] = greedy_request(asks[i].tokens, asks[i].n, ANSWER);
    if (weir_generate(engine, requests, n, NULL, results, &error) != WEIR_OK) fail_msg("%s", error.message);
}

static void assert_same(weir_result *got, const weir_result *want, const char *what, size_t i)
{
    if (got->n_tokens != want->n_tokens || got->reason != want->reason ||
        memcmp(got->tokens, want->tokens, got->n_tokens * sizeof *got->tokens) != 0)
        fail_msg("%s %zu: '%s' instead of '%s'", what, i, got->text, want->text);
    weir_result_fini(got);
}

/* first: N prompts with one beginning; second: they go on after the answers. */
static void check(weir_model *model, weir_layout layout, weir_kv_type type, const ask *first,
                  int32_t n_common, bool exact)
{
    weir_result want[N], want_next[N], got[N];
    ask next[N];
    weir_engine *engine = make_engine(model, layout, type, 0);
    for (size_t i = 0; i < N; i++) { /* each alone */
        generate(engine, &first[i], 1, &want[i]);
        assert_int_equal(want[i].usage.n_cached, 0);
        next[i] = first[i];
        memcpy(next[i].tokens + next[i].n, want[i].tokens, want[i].n_tokens * sizeof(int32_t));
        next[i].n += want[i].n_tokens;
        for (int k = 0; k < 5; k++) next[i].tokens[next[i].n++] = first[i].tokens[k + 2];
        generate(engine, &next[i], 1, &want_next[i]);
    }
    weir_engine_destroy(engine);

    engine = make_engine(model, layout, type, -1);
    generate(engine, first, N, got); /* at once: one computes, the others join it */
    for (size_t i = 0; i < N; i++) assert_same(&got[i], &want[i], "joined", i);
    weir_engine_stats stats = stats_of(engine);
    assert_int_equal(stats.n_joined, N - 1);
    assert_true(stats.n_cached_tokens >= (uint64_t)(N - 1) * (uint64_t)n_common - (exact ? 3 : 0) * 40);
    generate(engine, first, N, got);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(got[i].usage.n_cached, first[i].n - 1);
        assert_int_equal(got[i].miss.miss, WEIR_MISS_NONE);
        assert_same(&got[i], &want[i], "cached", i);
    }
    generate(engine, next, N, got);
    for (size_t i = 0; i < N; i++) {
        assert_true(got[i].usage.n_cached >= (int32_t)first[i].n - 1);
        assert_same(&got[i], &want_next[i], "continued", i);
    }
    for (size_t i = 0; i < N; i++) { /* once more, in turn, after others have used the lanes */
        generate(engine, &first[N - 1 - i], 1, &got[0]);
        assert_true(got[0].usage.n_cached > n_common / 2);
        assert_same(&got[0], &want[N - 1 - i], "again", N - 1 - i);
    }
    print_message("layout %d, type %d: %llu tokens cached, %llu computed, %llu bytes\n", (int)layout,
                  (int)type, (unsigned long long)stats_of(engine).n_cached_tokens,
                  (unsigned long long)stats_of(engine).n_prompt_tokens,
                  (unsigned long long)stats_of(engine).cache_bytes);
    weir_engine_destroy(engine);
    for (size_t i = 0; i < N; i++) {
        weir_result_fini(&want[i]);
        weir_result_fini(&want_next[i]);
    }
}

static size_t take_all(weir_stream *stream, int32_t *tokens, size_t n)
{
    weir_chunk chunk;
    while (weir_stream_next(stream, 240000, &chunk) == WEIR_OK)
        for (size_t i = 0; i < chunk.n_tokens && n < ANSWER; i++) tokens[n++] = chunk.tokens[i];
    return n;
}

/* Forks of a source that runs, and once more when it has ended, must go on as it does. */
static void check_forks(weir_model *model, weir_layout layout, weir_kv_type type, const ask *from)
{
    enum { FORKS = 3 };
    static const int32_t at[FORKS] = {0, 3, 7};
    weir_engine *engine = make_engine(model, layout, type, -1);
    weir_stream *source = NULL;
    weir_error error = {0};
    weir_request request = greedy_request(from->tokens, from->n, ANSWER);
    int32_t want[ANSWER], got[ANSWER];
    size_t n = 0;
    assert_int_equal(weir_stream_create(&source, NULL), WEIR_OK);
    assert_int_equal(weir_engine_submit(engine, &request, 1, &source, &error), WEIR_OK);
    for (int late = 0; late < 2; late++) {
        weir_stream *forks[FORKS];
        weir_chunk chunk;
        while (n <= (size_t)at[FORKS - 1] && weir_stream_next(source, 240000, &chunk) == WEIR_OK)
            for (size_t i = 0; i < chunk.n_tokens && n < ANSWER; i++) want[n++] = chunk.tokens[i];
        for (int i = 0; i < FORKS; i++) {
            weir_request more = greedy_request(NULL, 0, ANSWER - at[i]);
            assert_int_equal(weir_stream_create(&forks[i], NULL), WEIR_OK);
            if (weir_engine_fork(engine, source, at[i], &more, forks[i], &error) != WEIR_OK)
                fail_msg("%s", error.message);
        }
        n = take_all(source, want, n);
        for (int i = 0; i < FORKS; i++) {
            size_t n_got = take_all(forks[i], got, 0);
            assert_int_equal(n_got, n - (size_t)at[i]);
            assert_memory_equal(got, want + at[i], n_got * sizeof *got);
            weir_stream_release(forks[i]);
        }
    }
    weir_stream_release(source);
    weir_engine_destroy(engine);
}

static void texts_of_the_default_model(void **state)
{
    (void)state;
    static const char *const questions[N] = {"What is rain?", "Who was Ada Lovelace?", "Name three colours.",
                                             "What is rain made of?"};
    static const weir_kv_type types[] = {WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_Q4_0};
    const char *path = getenv("WEIR_TEST_MODEL");
    weir_model *model = NULL;
    weir_model_info info = {.size = sizeof info};
    ask asks[N];
    if (path == NULL || *path == '\0') skip();
    assert_int_equal(weir_model_load(path, NULL, &model, NULL), WEIR_OK);
    weir_model_describe(model, &info);
    for (size_t i = 0; i < N; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "<|im_start|>system\nYou are a friendly helper who answers in one short sentence and who "
                 "never, under "
                 "no circumstances, talks about the weather.<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n"
                 "<|im_start|>assistant\n",
                 questions[i]);
        assert_int_equal(
            weir_tokenize(model, text, WEIR_NUL, true, true, asks[i].tokens, 128, &asks[i].n, NULL), WEIR_OK);
    }
    for (size_t l = 0; l < 2; l++) {
        bool pool = layouts[l] == WEIR_LAYOUT_UNIFIED;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            /* in a pool stock attention adds in the order of the cells; weir's serves all but Q4_0 */
            if (pool && (*info.kernels == '\0' || types[t] == WEIR_KV_Q4_0)) continue;
            if (EFFORT(false, pool != (types[t] == WEIR_KV_F16))) continue; /* each layout, each type */
            check(model, layouts[l], types[t], asks, 30, false);
            check_forks(model, layouts[l], types[t], &asks[1]);
        }
    }
    weir_model_release(model);
}

/* A text without ends of messages; then the same with an edit in the middle, in an engine that has the first
 * one's cells, on the device or in host memory. least: of the tokens before the edit, those that are cached
 * at least. */
static void check_edit(weir_model *model, weir_layout layout, int32_t least)
{
    enum { LENGTH = 400, EDIT = 300 };
    weir_engine_params params = small_params(1, layout);
    params.n_ctx = 500;
    ask asks[3] = {{.n = LENGTH}, {.n = LENGTH}, {.n = LENGTH}};
    weir_result want[3], got;
    for (int32_t i = 0; i < 3; i++)
        for (int32_t t = 0; t < LENGTH; t++)
            asks[i].tokens[t] = 20 + (t * 37 + (i == 2 || (i == 1 && t >= EDIT) ? 1 + t % 7 : 0)) % 400;
    for (int evicts = 0; evicts < 2; evicts++) {
        params.cache_sequences = 0;
        weir_engine *engine = engine_of(model, &params);
        for (int i = 0; i < 3; i++) generate(engine, &asks[i], 1, &want[i]);
        weir_engine_destroy(engine);
        params.cache_sequences = layout == WEIR_LAYOUT_UNIFIED ? 1 : -1;
        engine = engine_of(model, &params);
        static const int orders[][4] = {{0, 1, 0, 1}, {0, 2, 1, 0}};
        for (int i = 0; i < 4; i++) {
            int at = orders[evicts][i];
            generate(engine, &asks[at], 1, &got);
            if (at == 1 || i > 1)
                assert_in_range(got.usage.n_cached, evicts && least > 256 ? 256 : least, LENGTH);
            assert_same(&got, &want[at], evicts ? "edited, after another" : "edited", (size_t)at);
        }
        weir_engine_destroy(engine);
        for (int i = 0; i < 3; i++) weir_result_fini(&want[i]);
    }
}

/* Messages of a vocabulary without texts, each with the token that ends it. */
static void texts_of_uncuttable_models(void **state)
{
    (void)state;
    static const char *const kinds[] = {"mamba", "jamba", "swa"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[TEMP_PATH_MAX];
        temp_model(path, "model.gguf", kinds[k]);
        weir_model *model = NULL;
        weir_error error = {0};
        if (weir_model_load(path, NULL, &model, &error) != WEIR_OK) fail_msg("%s", error.message);
        weir_model_info info = {.size = sizeof info};
        weir_model_describe(model, &info);
        ask asks[N];
        for (size_t i = 0; i < N; i++) {
            asks[i].n = 0;
            for (int32_t t = 0; t < 40; t++) asks[i].tokens[asks[i].n++] = 20 + t * 37 % 400;
            asks[i].tokens[asks[i].n++] = info.token_eos;
            for (int32_t t = 0; t < 12; t++) asks[i].tokens[asks[i].n++] = 30 + (t + (int32_t)i) * 53 % 400;
        }
        for (size_t l = 0; l < 2; l++) {
            if (EFFORT(false, l != k % 2)) continue;
            check(model, layouts[l], WEIR_KV_F16, asks, 41, true);
            check_forks(model, layouts[l], WEIR_KV_F16, &asks[1]);
            check_edit(model, layouts[l], info.n_swa > 0 ? 300 : 288);
        }
        weir_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_the_default_model),
        cmocka_unit_test(texts_of_uncuttable_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
