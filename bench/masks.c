/* masks.c: what it takes to know which tokens may follow, at each token of given texts with a JSON Schema,
 * for constraints.py.
 *
 * usage: masks VOCABULARY.gguf < LINES : a line [SCHEMA, [TEXT, …], [TEXT, …]] of JSON texts each, with those
 * that the schema has and others. Prints a line of JSON with the vocabulary's numbers, then one for each
 * schema: the times of the thread in ns, `first` on an automaton that knows nothing yet, `again` when it has
 * seen the same texts; how many texts were refused and accepted wrongly; or why there is no grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <llama.h>

#include "grammar/grammar.h"
#include "vocabulary.h"
#include "weir/more.h"

static double thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Walks along a text; times NULL: none are taken. True if the grammar has it. */
static bool walk(weir__automaton *automaton, const struct llama_vocab *vocab, const char *text, json_t *times)
{
    const size_t n_words = WEIR__AUTOMATON_WORDS(llama_vocab_n_tokens(vocab)), length = strlen(text);
    const int32_t room = (int32_t)length + 8;
    uint64_t *bits = calloc(n_words, sizeof *bits);
    int32_t *tokens = calloc((size_t)room, sizeof *tokens);
    if (bits == NULL || tokens == NULL) exit(1);
    int32_t n = llama_tokenize(vocab, text, (int32_t)length, tokens, room, false, false);
    weir__automaton_place place = weir__automaton_start(automaton);
    bool ok = n >= 0;
    for (int32_t i = 0; ok && i <= n; i++) { /* the last mask is that of the end */
        double began = thread_ns();
        if (times != NULL && weir__automaton_mask(automaton, &place, bits) != WEIR_OK) exit(1);
        if (times != NULL) json_array_append_new(times, json_integer((json_int_t)(thread_ns() - began)));
        ok = weir__automaton_accept(automaton, &place, i < n ? tokens[i] : llama_vocab_eos(vocab)) == WEIR_OK;
    }
    free(tokens);
    free(bits);
    return ok;
}

static json_t *measure(const struct llama_vocab *vocab, const weir__trie *trie, const json_t *line)
{
    const char *schema = json_string_value(json_array_get(line, 0));
    char *grammar = NULL;
    const json_t *texts = json_array_get(line, 1);
    weir_error error = {0};
    weir__automaton *automaton = NULL;
    json_t *times[2] = {json_array(), json_array()}, *result = NULL;
    int32_t refused = 0, accepted = 0;
    uint64_t computed[2] = {0};
    if (schema == NULL) exit(1);
    double began = thread_ns();
    weir_status status = weir_grammar_from_json_schema(schema, WEIR_NUL, &grammar, &error);
    if (status == WEIR_OK) status = weir__grammar_compile(grammar, NULL, NULL, trie, &automaton, &error);
    double compiled = thread_ns() - began;
    if (status == WEIR_OK) {
        const json_t *text;
        size_t i;
        for (int round = 0; round < 2; round++) {
            json_array_foreach(texts, i, text) refused +=
                !walk(automaton, vocab, json_string_value(text), times[round]) && round == 0;
            computed[round] = weir__automaton_n_masks(automaton);
        }
        json_array_foreach(json_array_get(line, 2), i, text) accepted +=
            walk(automaton, vocab, json_string_value(text), NULL);
        result =
            json_pack("{s:I, s:O, s:O, s:i, s:i, s:I, s:I, s:I}", "compile", (json_int_t)compiled, "first",
                      times[0], "again", times[1], "refused", refused, "accepted", accepted, "computed",
                      (json_int_t)computed[0], "computed again", (json_int_t)(computed[1] - computed[0]),
                      "bytes", (json_int_t)weir__automaton_size(automaton));
    } else {
        result = json_pack("{s:I, s:s}", "compile", (json_int_t)compiled, "error", error.message);
    }
    weir__automaton_release(automaton);
    json_decref(times[0]);
    json_decref(times[1]);
    weir_free(grammar);
    return result;
}

static void print_line(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT);
    puts("");
    json_decref(line);
}

int main(int argc, char **argv)
{
    struct llama_model *model = argc == 2 ? vocabulary_load(argv[1]) : NULL;
    if (model == NULL) {
        fprintf(stderr, "usage: masks VOCABULARY.gguf < LINES\n");
        return 1;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    double began = thread_ns();
    weir__trie *trie = vocabulary_trie(vocab);
    if (trie == NULL) return 1;
    print_line(json_pack("{s:i, s:i, s:I}", "tokens", trie->n_vocab, "longest", (int)trie->most_depth, "trie",
                         (json_int_t)(thread_ns() - began)));
    json_t *line;
    while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, NULL)) != NULL) {
        print_line(measure(vocab, trie, line));
        json_decref(line);
    }
    weir__trie_destroy(trie);
    llama_model_free(model);
    return 0;
}
