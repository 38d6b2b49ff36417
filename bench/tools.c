/* tools.c: what many tools cost before and while an answer is generated.
 *
 * usage: tools MODEL.gguf TEMPLATE.jinja [PROPERTIES] : prints a row of Markdown for each of 16, 64, 256, 512
 * and 1,024 tools with PROPERTIES (1) properties each: the processor time in ms of the chat (the tools
 * checked, the prompt rendered, the parser and the grammar of calls made), of compiling that grammar, of the
 * mask of the first token of a call on an automaton that knows nothing yet, of all masks of one call, of the
 * same once more, and of reading that call from an answer in pieces of four bytes; or why there is no chat.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <llama.h>

#include "base/text.h"
#include "chat/chat.h"
#include "grammar/grammar.h"
#include "vocabulary.h"
#include "weir/more.h"

static double process_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void fail(const char *what, const weir_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, error->field, error->message);
    exit(1);
}

/* A text file, NUL-terminated. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    weir__text text = {0};
    char buffer[4096];
    size_t n;
    while (file != NULL && (n = fread(buffer, 1, sizeof buffer, file)) > 0) weir__text_add(&text, buffer, n);
    if (file == NULL || text.failed || !weir__text_add(&text, "", 1)) exit(1);
    fclose(file);
    return text.bytes;
}

static void write_tools(weir__text *text, int n, int n_properties)
{
    for (int i = 0; i < n; i++) {
        weir__text_printf(text,
                          "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"description\":"
                          "\"Does what is wanted of it.\",\"parameters\":{\"type\":\"object\","
                          "\"properties\":{",
                          i == 0 ? "[" : ",", i);
        for (int k = 0; k < n_properties; k++)
            weir__text_printf(text, "%s\"p%d\":{\"type\":\"%s\"}", k == 0 ? "" : ",", k,
                              k % 2 == 0 ? "string" : "integer");
        weir__text_add_string(text, "},\"required\":[\"p0\"]}}}");
    }
    weir__text_add_string(text, "]");
}

/* Walks along a text; returns the time of all masks, and of the one at byte `from` alone. */
static double walk(weir__automaton *automaton, const struct llama_vocab *vocab, const char *text, size_t from,
                   double *first)
{
    const int32_t room = (int32_t)strlen(text) + 8;
    uint64_t *bits = calloc(WEIR__AUTOMATON_WORDS(llama_vocab_n_tokens(vocab)), sizeof *bits);
    int32_t *tokens = calloc((size_t)room, sizeof *tokens);
    if (bits == NULL || tokens == NULL) exit(1);
    const int32_t n = llama_tokenize(vocab, text, (int32_t)strlen(text), tokens, room, false, true);
    weir__automaton_place place = weir__automaton_start(automaton);
    double all = 0;
    size_t at = 0;
    *first = 0;
    for (int32_t i = 0; i < n; i++) {
        char bytes[256];
        const double began = process_ms();
        if (at >= from && weir__automaton_mask(automaton, &place, bits) != WEIR_OK) exit(1);
        if (at >= from) all += process_ms() - began;
        if (at >= from && *first == 0) *first = process_ms() - began;
        if (weir__automaton_accept(automaton, &place, tokens[i]) != WEIR_OK) {
            fprintf(stderr, "the grammar does not have the call from byte %zu on: %s\n", at, text + at);
            exit(1);
        }
        at += (size_t)vocabulary_piece(vocab, tokens[i], bytes, sizeof bytes);
    }
    free(tokens);
    free(bits);
    return all;
}

static int count_calls(weir_chat_parser *parser)
{
    weir_delta delta;
    int n = 0;
    while (weir_chat_parser_next(parser, &delta) == WEIR_OK) n += delta.kind == WEIR_DELTA_TOOL_CALL;
    return n;
}

/* Reads an answer in pieces of four bytes. */
static double parse(weir_chat *chat, const char *answer)
{
    weir_error error = {0};
    weir_chat_parser *parser = NULL;
    const size_t length = strlen(answer);
    int n_calls = 0;
    const double began = process_ms();
    if (weir_chat_parser_create(chat, &parser, &error) != WEIR_OK) fail("parser", &error);
    for (size_t i = 0; i < length; i += 4) {
        const size_t n = length - i < 4 ? length - i : 4;
        if (weir_chat_parser_feed(parser, answer + i, n, i + n == length, &error) != WEIR_OK)
            fail("answer", &error);
        n_calls += count_calls(parser);
    }
    const double took = process_ms() - began;
    weir_chat_parser_destroy(parser);
    if (n_calls != 1) exit(1);
    return took;
}

static void measure(weir_model *model, const struct llama_vocab *vocab, const weir__trie *trie,
                    const char *source, int n, int n_properties)
{
    const weir_message message = {"user", "Please call one of them."};
    weir__text tools = {0}, answer = {0}, text = {0};
    weir_chat_params params = weir_chat_params_default();
    weir_error error = {0};
    weir_chat *chat = NULL;
    weir__automaton *automaton = NULL;
    write_tools(&tools, n, n_properties);
    params.messages = &message;
    params.n_messages = 1;
    params.template_source = source;
    params.tools_json = tools.bytes;
    params.tool_choice = WEIR_TOOLS_REQUIRED;
    double began = process_ms();
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) {
        printf("| %d | %d | %zu | %s |\n", n, n_properties, tools.n, error.message);
        weir__text_fini(&tools);
        return;
    }
    const double created = process_ms() - began;
    began = process_ms();
    if (weir__grammar_compile(chat->grammar.text, NULL, NULL, trie, &automaton, &error) != WEIR_OK)
        fail("grammar", &error);
    const double compiled = process_ms() - began;
    weir__text_printf(&answer,
                      "<tool_call>\n{\"name\": \"tool_%d\", \"arguments\": {\"p0\": \"words of a call, "
                      "which go on for some time\"}}\n</tool_call>",
                      n / 2);
    const char *prefill = chat->grammar.prefill != NULL ? chat->grammar.prefill : "";
    weir__text_printf(&text, "%s%s", prefill, answer.bytes);
    double first, again, all[2];
    all[0] = walk(automaton, vocab, text.bytes, strlen(prefill), &first);
    all[1] = walk(automaton, vocab, text.bytes, strlen(prefill), &again);
    printf("| %d | %d | %zu | %zu | %.1f | %.1f | %.2f | %.2f | %.2f | %.1f |\n", n, n_properties, tools.n,
           strlen(chat->grammar.text), created, compiled, first, all[0], all[1], parse(chat, answer.bytes));
    fflush(stdout);
    weir__automaton_release(automaton);
    weir_chat_release(chat);
    weir__text_fini(&tools);
    weir__text_fini(&answer);
    weir__text_fini(&text);
}

int main(int argc, char **argv)
{
    weir_error error = {0};
    weir_model *own = NULL;
    if (argc < 3) return fprintf(stderr, "usage: tools MODEL.gguf TEMPLATE.jinja [PROPERTIES]\n"), 2;
    if (weir_model_load(argv[1], NULL, &own, &error) != WEIR_OK) fail("model", &error);
    struct llama_model *model = vocabulary_load(argv[1]);
    if (model == NULL) return 1;
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    weir__trie *trie = vocabulary_trie(vocab);
    char *template = read_file(argv[2]);
    if (trie == NULL) return 1;
    puts("| tools | properties | bytes | bytes of grammar | chat, ms | compile, ms | first mask, ms | "
         "masks of a call, ms | again, ms | answer, ms |\n|---|---|---|---|---|---|---|---|---|---|");
    for (int n = 16; n <= 1024; n *= n == 16 || n == 64 ? 4 : 2)
        measure(own, vocab, trie, template, n, argc > 3 ? atoi(argv[3]) : 1);
    free(template);
    weir__trie_destroy(trie);
    llama_model_free(model);
    weir_model_release(own);
    return 0;
}
