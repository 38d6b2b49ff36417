/* json_schema_suite_helper.c [relax]: reads lines [schema, [text, …]], and writes for each the reason why the
 * schema has no grammar, or true or false for each text that the grammar has or has not.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"

/* A token for each byte but NUL, and one that ends the text. */
enum { N_TOKENS = 257, END = 256 };

static int32_t piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    (void)model;
    if (token == 0 || token == END) return 0;
    if (capacity < 1) return -1;
    bytes[0] = (char)token;
    return 1;
}

static bool is_end(const void *model, int32_t token)
{
    (void)model;
    return token == END;
}

static bool has_text(weir__automaton *automaton, const char *text)
{
    weir__automaton_place place = weir__automaton_start(automaton);
    for (; *text != '\0'; text++)
        if (weir__automaton_accept(automaton, &place, (unsigned char)*text) != WEIR_OK) return false;
    return weir__automaton_accept(automaton, &place, END) == WEIR_OK;
}

static json_t *judge(const json_t *schema, const json_t *texts, bool relax, const weir__trie *trie)
{
    const weir__schema_terms terms = {.where = "", .tag = "w", .relax = relax};
    json_t *rewritten = NULL, *verdicts = json_array(), *text;
    weir__automaton *automaton = NULL;
    char *grammar = NULL;
    weir_error error = {0};
    size_t i;
    weir_status status = weir__schema_rewrite(schema, &terms, &rewritten, &error);
    if (status == WEIR_OK) status = weir__grammar_from_schema(rewritten, "schema", &grammar, &error);
    if (status == WEIR_OK) status = weir__grammar_compile(grammar, NULL, NULL, trie, &automaton, &error);
    if (status != WEIR_OK) {
        json_decref(verdicts);
        verdicts = json_string(error.message);
    }
    json_array_foreach((json_t *)texts, i, text)
    {
        if (status == WEIR_OK)
            json_array_append_new(verdicts, json_boolean(has_text(automaton, json_string_value(text))));
    }
    weir__automaton_release(automaton);
    weir_free(grammar);
    json_decref(rewritten);
    return verdicts;
}

int main(int argc, char **argv)
{
    static const weir__trie_source source = {NULL, N_TOKENS, piece_of, is_end};
    bool relax = argc > 1 && strcmp(argv[1], "relax") == 0;
    weir__trie *trie = weir__trie_create(&source);
    char *line = NULL;
    size_t capacity = 0;
    if (trie == NULL) return 1;
    while (getline(&line, &capacity, stdin) > 0) {
        json_t *pair = json_loads(line, JSON_ALLOW_NUL, NULL);
        if (pair == NULL) return 1;
        json_t *verdicts = judge(json_array_get(pair, 0), json_array_get(pair, 1), relax, trie);
        char *text = weir__json_dump(verdicts);
        if (text == NULL) return 1;
        puts(text);
        fflush(stdout);
        weir__mem_free(text);
        json_decref(verdicts);
        json_decref(pair);
    }
    free(line);
    weir__trie_destroy(trie);
    return 0;
}
