/* masks.c: what it takes to know which tokens may follow, at each token of answers with a JSON Schema, for
 * masks.py, which measures llguidance on the same answers.
 *
 * usage: masks MODEL SCHEMA... : a line of JSON with the vocabulary, then one for each schema. Times are
 * those of the thread, ns: `first` on an automaton that knows nothing yet, `again` when it has seen the same
 * answers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <llama.h>

#include "backend/shim.h"
#include "grammar/grammar.h"
#include <weir/weir.h>

#define N_ANSWERS 4
#define N_TOKENS  160

static int fail(const char *what, const weir_error *error)
{
    fprintf(stderr, "masks: %s: %s\n", what, error != NULL ? error->message : "");
    return 1;
}

static double thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int32_t piece(const void *vocab, int32_t token, char *bytes, int32_t capacity)
{
    return weir__shim_piece(vocab, token, true, bytes, capacity);
}

static bool is_eog(const void *vocab, int32_t token)
{
    return llama_vocab_is_eog(vocab, token);
}

static json_t *vocabulary(const struct llama_vocab *vocab)
{
    json_t *pieces = json_array();
    for (int32_t t = 0; t < llama_vocab_n_tokens(vocab); t++) {
        char bytes[512], hex[1025] = "";
        int32_t n = llama_vocab_is_control(vocab, t) ? 0 : piece(vocab, t, bytes, sizeof bytes);
        for (int32_t i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
        json_array_append_new(pieces, json_string(hex));
    }
    return json_pack("{s:o, s:i}", "pieces", pieces, "eos", llama_vocab_eos(vocab));
}

/* The times of a walk along an answer, and how many tokens were allowed at each place. */
static void walk(weir__automaton *automaton, const weir_result *answer, size_t n_vocab, json_t *times,
                 json_t *allowed)
{
    size_t n_words = WEIR__AUTOMATON_WORDS(n_vocab);
    uint64_t *bits = calloc(n_words, sizeof *bits);
    weir__automaton_place place = weir__automaton_start(automaton);
    for (size_t i = 0; bits != NULL && i < answer->n_tokens; i++) {
        int64_t n = 0;
        double began = thread_ns();
        weir_status status = weir__automaton_mask(automaton, &place, bits);
        double took = thread_ns() - began;
        if (status != WEIR_OK) break;
        for (size_t k = 0; k < n_words; k++) n += __builtin_popcountll(bits[k]);
        json_array_append_new(times, json_real(took));
        if (allowed != NULL) json_array_append_new(allowed, json_integer(n));
        if (weir__automaton_accept(automaton, &place, answer->tokens[i]) != WEIR_OK) break;
    }
    free(bits);
}

static int measure(weir_engine *engine, const struct llama_vocab *vocab, const weir__trie *trie,
                   const char *path)
{
    json_error_t bad;
    json_t *schema = json_load_file(path, 0, &bad), *answers = json_array(), *allowed = json_array();
    json_t *times[2] = {json_array(), json_array()};
    char *text = schema != NULL ? json_dumps(schema, JSON_COMPACT) : NULL, *grammar = NULL;
    weir_error error = {0};
    weir_result results[N_ANSWERS];
    weir_request requests[N_ANSWERS];
    weir_sampler_params samplers[N_ANSWERS];
    weir__automaton *automaton = NULL;
    if (text == NULL) return fail(path, NULL);
    for (uint32_t i = 0; i < N_ANSWERS; i++) {
        samplers[i] = weir_sampler_params_default();
        samplers[i].json_schema = text;
        samplers[i].temp = 0.8F;
        samplers[i].seed = i;
        requests[i] = weir_request_default();
        requests[i].text = "Invent something, and write it as JSON:\n";
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = N_TOKENS;
    }
    if (weir_generate(engine, requests, N_ANSWERS, NULL, results, &error) != WEIR_OK ||
        weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error) != WEIR_OK)
        return fail(path, &error);
    double began = thread_ns();
    if (weir__grammar_compile(grammar, NULL, NULL, trie, &automaton, &error) != WEIR_OK)
        return fail(path, &error);
    double compiled = thread_ns() - began;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < N_ANSWERS; i++)
            walk(automaton, &results[i], (size_t)llama_vocab_n_tokens(vocab), times[round],
                 round == 0 ? allowed : NULL);
    for (size_t i = 0; i < N_ANSWERS; i++) {
        json_t *tokens = json_array();
        for (size_t k = 0; k < results[i].n_tokens; k++)
            json_array_append_new(tokens, json_integer(results[i].tokens[k]));
        json_array_append_new(answers, tokens);
        weir_result_fini(&results[i]);
    }
    json_t *line =
        json_pack("{s:s, s:o, s:o, s:f, s:o, s:o, s:o}", "path", path, "schema", schema, "answers", answers,
                  "compile", compiled, "first", times[0], "again", times[1], "allowed", allowed);
    json_dumpf(line, stdout, JSON_COMPACT);
    puts("");
    json_decref(line);
    weir__automaton_release(automaton);
    weir_free(grammar);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    weir_model *model;
    weir_engine *engine;
    weir_error error = {0};
    if (argc < 3) return fail("usage: masks MODEL SCHEMA...", NULL);
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N_ANSWERS;
    params.n_ctx = 512;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK ||
        weir_engine_create(model, &params, &engine, &error) != WEIR_OK)
        return fail(argv[1], &error);
    struct llama_model_params plain = llama_model_default_params();
    plain.vocab_only = true;
    struct llama_model *words = llama_model_load_from_file(argv[1], plain);
    if (words == NULL) return fail(argv[1], NULL);
    const struct llama_vocab *vocab = llama_model_get_vocab(words);
    const weir__trie_source source = {vocab, llama_vocab_n_tokens(vocab), piece, is_eog};
    double began = thread_ns();
    weir__trie *trie = weir__trie_create(&source);
    double took = thread_ns() - began;
    if (trie == NULL) return fail("no memory", NULL);
    json_t *first = vocabulary(vocab);
    json_object_set_new(first, "trie", json_real(took));
    json_dumpf(first, stdout, JSON_COMPACT);
    puts("");
    json_decref(first);
    int code = 0;
    for (int i = 2; code == 0 && i < argc; i++) code = measure(engine, vocab, trie, argv[i]);
    weir__trie_destroy(trie);
    llama_model_free(words);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return code;
}
