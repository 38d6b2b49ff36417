/* The engine on the real model: its greedy text beside a plain llama.h loop's, alone and in company, streamed
 * and not, and after cancels. Prompts and batches stay inside the region where llama.cpp's attention does not
 * depend on the company (docs/adr/0009): fewer than 512 cells, at most 60 rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include <llama.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/more.h>

#include "support/effort.h"
#include "support/engine/real.h"

#define N_STREAMS 8
#define N_TOKENS  EFFORT(28, 20)
#define N_PLAIN   EFFORT(40, 24)

static const char *const prompts[N_STREAMS] = {
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "int main(void) {",
    "Water boils at",
    "The three primary colours are",
    "Dear Sir or Madam,",
    "1, 1, 2, 3, 5, 8,",
    "A recipe for bread:",
};

static weir_model *model;
static const char *path;

/* ---- The plain loop ---- */

/* Greedy continuation of the prompt by llama.h alone; returns the tokens before an end. */
static size_t plain_greedy(const char *prompt, int32_t *out, size_t n_max)
{
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_model *plain = llama_model_load_from_file(path, model_params);
    assert_non_null(plain);
    const struct llama_vocab *vocab = llama_model_get_vocab(plain);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_threads = params.n_threads_batch = 1;
    struct llama_context *context = llama_init_from_model(plain, params);
    assert_non_null(context);

    llama_token tokens[128];
    int32_t n = llama_tokenize(vocab, prompt, (int32_t)strlen(prompt), tokens, 128, true, true);
    assert_true(n > 0);
    size_t n_out = 0;
    struct llama_batch batch = llama_batch_get_one(tokens, n);
    llama_token token;
    while (n_out < n_max) {
        assert_int_equal(llama_decode(context, batch), 0);
        const float *logits = llama_get_logits_ith(context, -1);
        token = 0;
        for (int32_t i = 1; i < llama_vocab_n_tokens(vocab); i++)
            if (logits[i] > logits[token]) token = i;
        if (llama_vocab_is_eog(vocab, token)) break;
        out[n_out++] = token;
        batch = llama_batch_get_one(&token, 1);
    }
    llama_free(context);
    llama_model_free(plain);
    return n_out;
}

/* ---- Engines and requests ---- */

static weir_engine *make_engine(weir_layout layout, int32_t n_slots)
{
    weir_engine_params params = small_params(n_slots, layout);
    params.n_ctx = 256;
    params.chunk_size = 40;
    return engine_of(model, &params);
}

static weir_request greedy(const char *prompt, int32_t max_tokens)
{
    static weir_sampler_params sampler;
    sampler = weir_sampler_params_default();
    sampler.temp = 0;
    weir_request request = weir_request_default();
    request.text = prompt;
    request.sampler = &sampler;
    request.max_tokens = max_tokens;
    return request;
}

typedef struct output {
    char text[4096];
    size_t length;
    int32_t tokens[512];
    size_t n_tokens;
    int n_terminal;
    weir_reason reason;
} output;

static void add(output *to, const weir_chunk *chunk)
{
    assert_int_equal(to->n_terminal, 0);
    assert_true(chunk->finished || chunk->length > 0);
    memcpy(to->text + to->length, chunk->text, chunk->length + 1);
    to->length += chunk->length;
    if (chunk->n_tokens > 0)
        memcpy(to->tokens + to->n_tokens, chunk->tokens, chunk->n_tokens * sizeof *to->tokens);
    to->n_tokens += chunk->n_tokens;
    to->n_terminal += chunk->finished;
    if (chunk->finished) to->reason = chunk->reason;
}

static void read_all(weir_stream *stream, output *to)
{
    weir_chunk chunk;
    memset(to, 0, sizeof *to);
    while (weir_stream_next(stream, -1, &chunk) == WEIR_OK) add(to, &chunk);
    assert_int_equal(to->n_terminal, 1);
    assert_int_equal(weir_stream_next(stream, 0, &chunk), WEIR_END);
}

static weir_stream *submit(weir_engine *engine, const weir_request *request)
{
    weir_error error = {0};
    weir_stream *stream = NULL;
    assert_int_equal(weir_stream_create(&stream, &error), WEIR_OK);
    if (weir_engine_submit(engine, request, 1, &stream, &error) != WEIR_OK) fail_msg("%s", error.message);
    return stream;
}

static void assert_nothing_is_left(weir_engine *engine)
{
    weir_engine_stats stats = stats_of(engine);
    assert_int_equal(stats.n_kv_used, stats.n_kv_cached);
    assert_int_equal(stats.n_kv_reserved, stats.n_kv_cached);
    assert_int_equal(stats.n_slots_prefilling + stats.n_slots_generating + stats.queue_depth, 0);
}

/* ---- Scenarios ---- */

static void greedy_stream_equals_a_plain_loop(void **state)
{
    (void)state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    for (int p = 0; p < EFFORT(3, 1); p++) {
        int32_t expected[N_PLAIN];
        size_t n = plain_greedy(prompts[p], expected, N_PLAIN);
        assert_true(n > 4);
        for (int l = 0; l < 2; l++) {
            weir_engine *engine = make_engine(layouts[l], 2);
            weir_request request = greedy(prompts[p], N_PLAIN);
            weir_stream *stream = submit(engine, &request);
            output got;
            read_all(stream, &got);
            assert_int_equal(got.n_tokens, n);
            assert_memory_equal(got.tokens, expected, n * sizeof *expected);
            assert_int_equal(got.reason, n == N_PLAIN ? WEIR_REASON_LENGTH : WEIR_REASON_END);

            char text[4096];
            size_t length;
            assert_int_equal(weir_detokenize(model, expected, n, false, text, sizeof text, &length, NULL),
                             WEIR_OK);
            assert_int_equal(length, got.length);
            assert_string_equal(text, got.text);
            weir_stream_release(stream);
            weir_engine_destroy(engine);
        }
    }
}

static void eight_streams_at_once_equal_each_alone(void **state)
{
    (void)state;
    static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
    for (int l = 0; l < 2; l++) {
        weir_engine *engine = make_engine(layouts[l], N_STREAMS);
        weir_request requests[N_STREAMS];
        weir_result alone[N_STREAMS];
        weir_stream *streams[N_STREAMS];
        for (int i = 0; i < N_STREAMS; i++) {
            requests[i] = greedy(prompts[i], N_TOKENS - i);
            assert_int_equal(weir_generate(engine, &requests[i], 1, NULL, &alone[i], NULL), WEIR_OK);
            assert_int_equal(weir_stream_create(&streams[i], NULL), WEIR_OK);
        }
        assert_int_equal(weir_engine_submit(engine, requests, N_STREAMS, streams, NULL), WEIR_OK);
        for (int i = 0; i < N_STREAMS; i++) {
            output got;
            read_all(streams[i], &got);
            assert_int_equal(weir_stream_index(streams[i]), i);
            assert_string_equal(got.text, alone[i].text);
            assert_int_equal(got.n_tokens, alone[i].n_tokens);
            assert_memory_equal(got.tokens, alone[i].tokens, got.n_tokens * sizeof *got.tokens);
            assert_int_equal(got.reason, alone[i].reason);
            weir_stream_release(streams[i]);
            weir_result_fini(&alone[i]);
        }
        assert_nothing_is_left(engine);
        weir_engine_destroy(engine);
    }
}

/* A prompt of about 200 tokens, prefilled in several ticks. */
static char *long_prompt(void)
{
    static char text[2048];
    text[0] = '\0';
    for (int i = 0; i < 24; i++) strcat(text, "The quick brown fox jumps over dogs. ");
    return text;
}

static void cancel_in_each_state_frees_the_cells(void **state)
{
    (void)state;
    weir_engine *engine = make_engine(WEIR_LAYOUT_PER_SLOT, 2);
    weir_request request = greedy(prompts[1], 60);
    weir_result alone;
    output got;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &alone, NULL), WEIR_OK);

    /* A neighbour that runs through all of it, a stream that is cancelled while it prefills, one that waits.
     */
    weir_stream *neighbour = submit(engine, &request);
    weir_request longer = greedy(long_prompt(), 20);
    weir_stream *prefilling = submit(engine, &longer);
    weir_stream *queued = submit(engine, &request);
    weir_stream_cancel(queued);
    read_all(queued, &got);
    assert_int_equal(got.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(got.n_tokens, 0);
    weir_stream_cancel(prefilling);
    read_all(prefilling, &got);
    assert_int_equal(got.reason, WEIR_REASON_CANCELLED);

    /* While generating: after its first chunk. */
    weir_stream *generating = submit(engine, &request);
    weir_chunk chunk;
    assert_int_equal(weir_stream_next(generating, -1, &chunk), WEIR_OK);
    assert_false(chunk.finished);
    size_t n_first = chunk.n_tokens;
    weir_stream_cancel(generating);
    read_all(generating, &got);
    assert_int_equal(got.reason, WEIR_REASON_CANCELLED);
    assert_true(n_first + got.n_tokens < 60);

    read_all(neighbour, &got);
    assert_string_equal(got.text, alone.text);

    /* Ended but unread: nothing happens. */
    weir_stream *ended = submit(engine, &request);
    while (!weir_stream_finished(ended)) usleep(1000);
    weir_stream_cancel(ended);
    read_all(ended, &got);
    assert_int_equal(got.reason, alone.reason);
    assert_string_equal(got.text, alone.text);
    assert_false(weir_stream_cancelled(ended));

    assert_nothing_is_left(engine);
    weir_stream *const all[] = {neighbour, prefilling, queued, generating, ended};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) weir_stream_release(all[i]);
    weir_result_fini(&alone);
    weir_engine_destroy(engine);
}

/* Eight streams of up to 80 tokens in 256 cells, less than half of those that they need; and by turns in one
 * slot. */
static void suspended_streams_say_what_they_would_have_said(void **state)
{
    (void)state;
    enum { LONG = 72 };
    weir_request requests[N_STREAMS];
    weir_result roomy[N_STREAMS], tight[N_STREAMS];
    weir_engine_params params = small_params(N_STREAMS, WEIR_LAYOUT_UNIFIED);
    params.chunk_size = 40;
    for (int i = 0; i < N_STREAMS; i++) requests[i] = greedy(prompts[i], LONG);
    for (int run = 0; run < 3; run++) {
        weir_result *results = run == 0 ? roomy : tight;
        params.n_kv = run == 0 ? N_STREAMS * 128 : N_STREAMS * 128 / 4;
        params.cache_bytes = run < 2 ? WEIR_AUTO : 0; /* states are restored, then computed again */
        weir_engine *engine = engine_of(model, &params);
        assert_int_equal(weir_generate(engine, requests, N_STREAMS, NULL, results, NULL), WEIR_OK);
        weir_engine_stats stats = stats_of(engine);
        print_message("%d cells: %llu suspensions, %llu prompt tokens\n", stats.n_kv,
                      (unsigned long long)stats.n_suspensions, (unsigned long long)stats.n_prompt_tokens);
        assert_true((run > 0) == (stats.n_suspensions > 0));
        assert_int_equal(stats.n_failed_ticks, 0);
        assert_nothing_is_left(engine);
        weir_engine_destroy(engine);
        for (int i = 0; i < N_STREAMS && run > 0; i++) {
            assert_string_equal(tight[i].text, roomy[i].text);
            assert_int_equal(tight[i].n_tokens, roomy[i].n_tokens);
            assert_memory_equal(tight[i].tokens, roomy[i].tokens, tight[i].n_tokens * sizeof(int32_t));
            assert_int_equal(tight[i].reason, roomy[i].reason);
            weir_result_fini(&tight[i]);
        }
    }
    for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        weir_engine *engine = make_engine((weir_layout)layout, 1);
        weir_stream *low = submit(engine, &requests[0]);
        weir_chunk chunk;
        output got;
        memset(&got, 0, sizeof got);
        assert_int_equal(weir_stream_next(low, -1, &chunk), WEIR_OK);
        add(&got, &chunk);
        weir_request high = requests[1];
        high.priority = 1;
        weir_result result;
        assert_int_equal(weir_generate(engine, &high, 1, NULL, &result, NULL), WEIR_OK);
        assert_string_equal(result.text, roomy[1].text);
        weir_result_fini(&result);
        assert_int_equal(stats_of(engine).n_suspensions, 1);
        while (weir_stream_next(low, -1, &chunk) == WEIR_OK) add(&got, &chunk);
        assert_string_equal(got.text, roomy[0].text);
        weir_stream_release(low);
        weir_engine_destroy(engine);
    }
    for (int i = 0; i < N_STREAMS; i++) weir_result_fini(&roomy[i]);
}

static void stop_strings_and_intervals_on_the_real_text(void **state)
{
    (void)state;
    weir_engine *engine = make_engine(WEIR_LAYOUT_PER_SLOT, 4);
    weir_request request = greedy(prompts[1], 60);
    weir_result whole;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &whole, NULL), WEIR_OK);
    assert_true(whole.length > 60);

    /* A stop string from the middle of the text, cut so that it begins and ends inside tokens. */
    char stop[13];
    memcpy(stop, whole.text + whole.length / 2, 12);
    stop[12] = '\0';
    const char *stops[] = {stop};
    const char *found = strstr(whole.text, stop);
    for (int32_t interval = 1; interval <= 7; interval += 3) {
        request.stop = stops;
        request.n_stop = 1;
        request.interval = interval;
        weir_stream *stream = submit(engine, &request);
        output got;
        read_all(stream, &got);
        assert_int_equal(got.reason, WEIR_REASON_STOP_WORDS);
        assert_int_equal(got.length, (size_t)(found - whole.text));
        assert_memory_equal(got.text, whole.text, got.length);
        weir_stream_release(stream);
    }
    assert_nothing_is_left(engine);
    weir_result_fini(&whole);
    weir_engine_destroy(engine);
}

static void chat_answers_through_the_models_template(void **state)
{
    (void)state;
    weir_error error = {0};
    weir_engine *engine = make_engine(WEIR_LAYOUT_AUTO, 1);
    const weir_message messages[] = {{"system", "Be brief."}, {"user", "What is the capital of France?"}};
    weir_chat_params params = weir_chat_params_default();
    weir_chat *chat = NULL;
    params.messages = messages;
    params.n_messages = 2;
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_non_null(
        strstr(weir_chat_prompt(chat, NULL), "<|im_start|>user\nWhat is the capital of France?<|im_end|>"));
    weir_request request = greedy(NULL, 60);
    request.chat = chat;
    weir_result result;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &result, &error), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_END);
    assert_null(strstr(result.text, "<|im_end|>"));
    int32_t expected[60];
    size_t n = plain_greedy(weir_chat_prompt(chat, NULL), expected, 60);
    assert_int_equal(result.n_tokens, n);
    assert_memory_equal(result.tokens, expected, n * sizeof *expected);
    weir_result_fini(&result);
    weir_chat_release(chat);
    weir_engine_destroy(engine);
}

static void grammar_and_schema_constrain_the_answer(void **state)
{
    (void)state;
    weir_engine *engine = make_engine(WEIR_LAYOUT_AUTO, 2);
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request requests[2] = {greedy("Is the sky blue? Answer:", 40), greedy("A person as JSON: ", 60)};
    weir_sampler_params second = sampler;
    sampler.grammar = "root ::= \"maybe\" | \"perhaps\"";
    second.json_schema =
        "{\"type\":\"object\",\"properties\":{\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120}},"
        "\"required\":[\"age\"],\"additionalProperties\":false}";
    requests[0].sampler = &sampler;
    requests[1].sampler = &second;
    weir_result results[2];
    weir_error error = {0};
    if (weir_generate(engine, requests, 2, NULL, results, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_true(strcmp(results[0].text, "maybe") == 0 || strcmp(results[0].text, "perhaps") == 0);
    assert_int_equal(results[0].reason, WEIR_REASON_END);
    int age = -1;
    assert_int_equal(results[1].reason, WEIR_REASON_END);
    assert_int_equal(sscanf(results[1].text, " { \"age\" : %d", &age), 1);
    assert_in_range(age, 0, 120);
    for (int i = 0; i < 2; i++) weir_result_fini(&results[i]);
    weir_engine_destroy(engine);
}

static void same_seed_gives_the_same_text(void **state)
{
    (void)state;
    weir_engine *engine = make_engine(WEIR_LAYOUT_PER_SLOT, 2);
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_result results[3];
    for (int i = 0; i < 3; i++) {
        sampler.seed = i < 2 ? 42 : 43;
        weir_request request = greedy(prompts[1], 30);
        request.sampler = &sampler;
        assert_int_equal(weir_generate(engine, &request, 1, NULL, &results[i], NULL), WEIR_OK);
    }
    assert_string_equal(results[0].text, results[1].text);
    assert_string_not_equal(results[0].text, results[2].text);
    for (int i = 0; i < 3; i++) weir_result_fini(&results[i]);
    weir_engine_destroy(engine);
}

static int load(void **state)
{
    (void)state;
    weir_error error = {0};
    path = getenv("WEIR_TEST_MODEL");
    if (path == NULL) {
        fprintf(stderr, "WEIR_TEST_MODEL is not set\n");
        return -1;
    }
    if (weir_model_load(path, NULL, &model, &error) == WEIR_OK) return 0;
    fprintf(stderr, "%s\n", error.message);
    return -1;
}

static int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_stream_equals_a_plain_loop),
        cmocka_unit_test(eight_streams_at_once_equal_each_alone),
        cmocka_unit_test(cancel_in_each_state_frees_the_cells),
        cmocka_unit_test(suspended_streams_say_what_they_would_have_said),
        cmocka_unit_test(stop_strings_and_intervals_on_the_real_text),
        cmocka_unit_test(chat_answers_through_the_models_template),
        cmocka_unit_test(grammar_and_schema_constrain_the_answer),
        cmocka_unit_test(same_seed_gives_the_same_text),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
