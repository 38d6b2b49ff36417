/* parser_test.c: answers of several model families, however they are cut into pieces, and broken ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/parser.h"

#include <ctype.h>
#include <time.h>

#include "base/mem.h"
#include "support/effort.h"

/* ---- Answers that have their form ---- */

static const struct example {
    const char *template;
    bool tools;
    const char *text, *content, *reasoning;
    const char *calls[2][3]; /* name, arguments, id (NULL: made here) */
} examples[] = {
    {"Qwen-Qwen2.5-7B-Instruct",
     true,
     "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": "
     "3}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"get_weather_map\", \"arguments\": {\"zoom\": 1.5, \"layers\": [\"a\", "
     "\"[{\"]}}\n</tool_call>",
     "Let me see.\n",
     "",
     {{"get_weather", "{\"city\": \"Paris\", \"days\": 3}", NULL},
      {"get_weather_map", "{\"zoom\": 1.5, \"layers\": [\"a\", \"[{\"]}", NULL}}},
    {"Qwen-Qwen2.5-7B-Instruct",
     true,
     "2 < 3, {\"a\": [1]} and <tool> is no call.",
     "2 < 3, {\"a\": [1]} and <tool> is no call.",
     "",
     {{NULL}}},
    {"Qwen-Qwen2.5-7B-Instruct",
     false,
     "<tool_call> means nothing here",
     "<tool_call> means nothing here",
     "",
     {{NULL}}},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
     true,
     "<tool_call>\n{\"name\": \"get_weather_map\", \"arguments\": {}}\n</tool_call>",
     "",
     "",
     {{"get_weather_map", "{}", NULL}}},
    {"Qwen-Qwen3-0.6B",
     true,
     "<think>\nParis, \xC3\xA9t\xC3\xA9 \xE2\x82\xAC.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": "
     "\"Par\\\"is\"}}\n</tool_call>",
     "",
     "Paris, \xC3\xA9t\xC3\xA9 \xE2\x82\xAC.\n",
     {{"get_weather", "{\"city\": \"Par\\\"is\"}", NULL}}},
    {"Qwen-Qwen3-0.6B",
     false,
     "<think>\na < b\n</think>\n\nFour </think> five",
     "Four </think> five",
     "a < b\n",
     {{NULL}}},
    {"meta-llama-Llama-3.1-8B-Instruct",
     true,
     "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
     "",
     "",
     {{"get_weather", "{\"city\": \"Paris\"}", NULL}}},
    {"meta-llama-Llama-3.1-8B-Instruct", true, "Sunny, I guess.", "Sunny, I guess.", "", {{NULL}}},
    {"mistralai-Mistral-Nemo-Instruct-2407",
     true,
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"123456789\"}]",
     "",
     "",
     {{"get_weather", "{\"city\": \"Paris\"}", "123456789"}}},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
     false,
     "Two and two.\n</think>\n\nIt is 4.",
     "\n\nIt is 4.",
     "Two and two.\n",
     {{NULL}}},
    {"llama-cpp-deepseek-r1",
     true,
     "Hm.</think><\xEF\xBD\x9Ctool\xE2\x96\x81"
     "calls\xE2\x96\x81"
     "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
     "call\xE2\x96\x81"
     "begin\xEF\xBD\x9C>function<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>get_weather\n```json\n{\"city\":"
     " \"Paris\"}\n```<\xEF\xBD\x9C"
     "tool\xE2\x96\x81"
     "call\xE2\x96\x81"
     "end\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
     "calls\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     "",
     "Hm.",
     {{"get_weather", "{\"city\": \"Paris\"}", NULL}}},
    {"openai-gpt-oss-120b",
     true,
     "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather "
     "<|constrain|>json<|message|>{\"city\":\"Paris\"}",
     "",
     "Need weather.",
     {{"get_weather", "{\"city\":\"Paris\"}", NULL}}},
    {"openai-gpt-oss-120b",
     false,
     "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Four < five.",
     "Four < five.",
     "Easy.",
     {{NULL}}},
    {"meetkai-functionary-medium-v3.2",
     true,
     "get_weather\n{\"city\": \"Paris\"}",
     "",
     "",
     {{"get_weather", "{\"city\": \"Paris\"}", NULL}}},
    {"meetkai-functionary-medium-v3.2", true, "all\nIt is sunny.", "It is sunny.", "", {{NULL}}},
    {"meetkai-functionary-medium-v3.1",
     true,
     "<function=get_weather>{\"city\": \"Paris\"}</function>",
     "",
     "",
     {{"get_weather", "{\"city\": \"Paris\"}", NULL}}},
    {"Qwen3-Coder",
     true,
     "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\"is "
     "<b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
     "</function>\n</tool_call>",
     "Ok.\n",
     "",
     {{"get_weather", "{\"city\":\"Par\\\"is <b>\",\"days\":3}", NULL}}},
    {"moonshotai-Kimi-K2",
     true,
     "Hi<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"
     "\"city\":\"Paris\"}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "Hi",
     "",
     {{"get_weather", "{\"city\":\"Paris\"}", "functions.get_weather:0"}}},
    {"GLM-4.6",
     true,
     "<think>hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</"
     "tool_call>",
     "",
     "hm",
     {{"get_weather", "{\"city\":\"Paris\"}", NULL}}},
    {"GLM-4.6",
     true,
     "<think></think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     "",
     "",
     {{"get_weather", "{\"city\":\"Paris\",\"days\":3}", NULL}}},
    {"LFM2-8B-A1B",
     true,
     "x<|tool_call_start|>[get_weather(city=\"Paris\", days=3)]<|tool_call_end|>",
     "x",
     "",
     {{"get_weather", "{\"city\":\"Paris\",\"days\":3}", NULL}}},
    {"google-gemma-4-31B-it",
     true,
     "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>",
     "",
     "",
     {{"get_weather", "{\"city\":\"Paris\"}", NULL}}},
    {NULL,
     false,
     "plain <think>text</think> \xE2\x82\xAC",
     "plain <think>text</think> \xE2\x82\xAC",
     "",
     {{NULL}}},
    /* Templates that know no tools. */
    {NULL,
     true,
     "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par\\\"is\"}}",
     "",
     "",
     {{"get_weather", "{\"city\": \"Par\\\"is\"}", NULL}}},
    {NULL,
     true,
     "{\"response\": \"2 \\u20ac, \xC3\xA9t\xC3\xA9\"}",
     "2 \xE2\x82\xAC, \xC3\xA9t\xC3\xA9",
     "",
     {{NULL}}},
    {NULL, true, "Sunny, I guess.", "Sunny, I guess.", "", {{NULL}}},
    {"microsoft-Phi-3.5-mini-instruct",
     true,
     "{\"name\": \"get_weather_map\", \"arguments\": {\"layers\": [\"}\"]}}",
     "",
     "",
     {{"get_weather_map", "{\"layers\": [\"}\"]}", NULL}}},
};

static const struct example described = {
    NULL, true, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"\\u20ac\", \"days\": 3}}",
    "",   "",   {{NULL}}};

static bool letters_or_digits(const char *id)
{
    while (isalnum((unsigned char)*id)) id++;
    return *id == '\0';
}

static void test_forms(void **state)
{
    (void)state;
    uint64_t seed = 20261121;
    print_message("seed %llu\n", (unsigned long long)seed);
    size_t n_run = 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        weir_chat *chat = chat_with(e->template, e->tools);
        static answer whole, split, wanted;
        if (chat == NULL) continue;
        n_run++;
        memset(&wanted, 0, sizeof wanted);
        strcpy(wanted.content, e->content);
        strcpy(wanted.reasoning, e->reasoning);
        for (; wanted.n_calls < 2 && e->calls[wanted.n_calls][0] != NULL; wanted.n_calls++) {
            strcpy(wanted.calls[wanted.n_calls].name, e->calls[wanted.n_calls][0]);
            strcpy(wanted.calls[wanted.n_calls].arguments, e->calls[wanted.n_calls][1]);
        }
        read_answer(chat, e->text, strlen(e->text), NULL, &whole);
        if (!same(&whole, &wanted, false)) {
            show("wanted", &wanted);
            show("read", &whole);
            fail_msg("%s: %s", e->template, e->text);
        }
        for (size_t k = 0; k < whole.n_calls; k++) {
            const char *id = e->calls[k][2];
            if (id != NULL)
                assert_string_equal(whole.calls[k].id, id);
            else
                assert_true(strlen(whole.calls[k].id) == 9 && letters_or_digits(whole.calls[k].id));
            if (k > 0) assert_string_not_equal(whole.calls[k].id, whole.calls[k - 1].id);
        }
        bool ids = e->calls[0][2] != NULL;
        for (size_t cut = 0; cut < strlen(e->text) + 20; cut += EFFORT(1, 5)) {
            bool random = cut > strlen(e->text);
            read_answer(chat, e->text, cut, random ? &seed : NULL, &split);
            if (same(&split, &whole, ids)) continue;
            show("whole", &whole);
            show("split", &split);
            fail_msg("%s, cut at %zu: %s", e->template, cut, e->text);
        }
        weir_chat_release(chat);
    }
    print_message("%zu answers\n", n_run);
    if (n_run <= 1) skip();
}

/* ---- Answers that do not ---- */

/* Texts that must come out whole, in one form or another: the given pieces together have all of it. */
static const struct broken {
    const char *template, *text;
    const char *content; /* when read at once */
    const char *call;    /* its name, or NULL */
    const char *arguments;
} broken[] = {
    {"Qwen-Qwen2.5-7B-Instruct", "a <tool_c", "a <tool_c", NULL, NULL},
    {"Qwen-Qwen2.5-7B-Instruct", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par",
     "", "get_weather", "{\"city\": \"Par"},
    {"Qwen-Qwen2.5-7B-Instruct",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool", "",
     "get_weather", "{\"city\": \"Paris\"}"},
    {"Qwen-Qwen2.5-7B-Instruct", "b <tool_call>\nno JSON\n</tool_call> and more",
     "b <tool_call>\nno JSON\n</tool_call> and more", NULL, NULL},
    {"Qwen-Qwen2.5-7B-Instruct", "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>", NULL, NULL},
    {"openai-gpt-oss-120b", "no channel at all", "no channel at all", NULL, NULL},
    {"llama-cpp-deepseek-r1", "never ends thinking", "", NULL, NULL},
    {"meetkai-functionary-medium-v3.2", "nobody\n{}", "nobody\n{}", NULL, NULL},
    {"Qwen3-Coder", "<tool_call>\n<function=get_weather>\n<parameter=town>\nx", "", NULL, NULL},
    {"GLM-4.6", "<think>x</think>y<tool_call>get_weather\n<arg_key>", "", NULL, NULL},
};

static void test_broken(void **state)
{
    (void)state;
    uint64_t seed = 1;
    if (getenv("WEIR_LLAMA_SOURCE") == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const struct broken *b = &broken[i];
        weir_chat *chat = chat_with(b->template, true);
        static answer a;
        read_answer(chat, b->text, strlen(b->text), NULL, &a);
        if (b->content[0] != '\0' || b->call != NULL) {
            if (strcmp(a.content, b->content) != 0) fail_msg("%s became [%s]", b->text, a.content);
            assert_int_equal(a.n_calls, b->call != NULL);
            if (b->call != NULL) assert_string_equal(a.calls[0].name, b->call);
            if (b->call != NULL) assert_string_equal(a.calls[0].arguments, b->arguments);
        } else {
            if (strlen(a.content) + strlen(a.reasoning) + a.n_calls == 0) fail_msg("%s vanished", b->text);
        }
        for (size_t cut = 0; cut < strlen(b->text) + 5; cut += EFFORT(1, 5)) {
            read_answer(chat, b->text, cut, cut > strlen(b->text) ? &seed : NULL, &a);
            /* The end of the text is the end of something that came out, or a call swallowed it. */
            size_t n = strlen(a.content) + strlen(a.reasoning);
            if (n == 0 && a.n_calls == 0) fail_msg("%s vanished, cut at %zu", b->text, cut);
            if (b->call == NULL && b->content[0] != '\0' && a.n_calls == 0)
                assert_string_equal(a.content, b->content);
        }
        weir_chat_release(chat);
    }
}

/* A call has certainly begun from the end of the first of these on: a text of the form that is complete, or a
 * name in a form without one. */
static const char *const marks[] = {"<tool_call>",
                                    "[TOOL_CALLS]",
                                    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
                                    "calls\xE2\x96\x81"
                                    "begin\xEF\xBD\x9C>",
                                    "<|message|>",
                                    "<function=",
                                    "<|tool_calls_section_begin|>",
                                    "<|tool_call_start|>",
                                    "<|tool_call>",
                                    "{\"name\"",
                                    "get_weather\n"};

static size_t call_is_certain(const struct example *e)
{
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(e->text, marks[i]);
        if (at == NULL) continue;
        return e->template == NULL ? 1 : (size_t)(at - e->text) + strlen(marks[i]);
    }
    return SIZE_MAX;
}

/* Every prefix of every answer, and every answer with one byte changed: nothing is lost unless a call has
 * begun, and nothing else happens. */
static void test_damaged(void **state)
{
    (void)state;
    uint64_t seed = 7;
    if (getenv("WEIR_LLAMA_SOURCE") == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        static answer a;
        char text[1024];
        weir_chat *chat = chat_with(e->template, e->tools);
        size_t length = strlen(e->text);
        for (size_t n = 1; n < length; n += EFFORT(1, 5)) {
            memcpy(text, e->text, n);
            text[n] = '\0';
            read_answer(chat, text, n / 2, NULL, &a);
            strcpy(text, e->text);
            text[n] ^= (char)(1u << n % 8);
            if (text[n] == '\0') text[n] = 'x';
            read_answer(chat, text, n, &seed, &a);
            bool call = e->calls[0][0] != NULL && n >= call_is_certain(e);
            if (a.n_calls == 0 && a.content[0] == '\0' && a.reasoning[0] == '\0' && !call)
                fail_msg("%s vanished", text);
        }
        weir_chat_release(chat);
    }
}

/* ---- Answers that break off within a call ---- */

/* The markup of a call is no content once it is certain, however an answer breaks off. */
static void test_cut(void **state)
{
    (void)state;
    uint64_t seed = 3;
    if (getenv("WEIR_LLAMA_SOURCE") == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        static answer a;
        char text[1024];
        if (e->calls[0][0] == NULL) continue;
        weir_chat *chat = chat_with(e->template, e->tools);
        for (size_t n = call_is_certain(e); n < strlen(e->text); n += EFFORT(1, 3)) {
            snprintf(text, n + 1, "%s", e->text);
            read_cut(chat, text, &seed, &a);
            if (strcmp(a.content, e->content) == 0) continue;
            show("read", &a);
            fail_msg("%s: %s", e->template, text);
        }
        weir_chat_release(chat);
    }
}

/* ---- Long answers, odd bytes, memory ---- */

/* Seconds of processor time: other programs do not matter. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static size_t feed_long(weir_chat *chat, const char *begin, const char *piece, size_t n, weir_delta_kind kind)
{
    weir_chat_parser *parser = NULL;
    weir_delta d;
    size_t total = 0;
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser, begin, WEIR_NUL, false, NULL), WEIR_OK);
    for (size_t i = 0; i <= n; i++) {
        assert_int_equal(weir_chat_parser_feed(parser, i < n ? piece : "", WEIR_NUL, i == n, NULL), WEIR_OK);
        while (weir_chat_parser_next(parser, &d) == WEIR_OK)
            if (d.kind == kind) total += d.length;
    }
    weir_chat_parser_destroy(parser);
    return total;
}

/* 200,000 pieces: with a parse of everything for each, this would take hours. */
static void test_long_answers(void **state)
{
    enum { PIECES = 200000 };
    (void)state;
    double before = seconds();
    weir_chat *chat = chat_with(NULL, false);
    assert_int_equal(feed_long(chat, "", "word ", PIECES, WEIR_DELTA_CONTENT), 5 * PIECES);
    weir_chat_release(chat);
    if ((chat = chat_with("Qwen-Qwen3-0.6B", true)) != NULL) {
        assert_int_equal(feed_long(chat, "<think>\n", "word ", PIECES, WEIR_DELTA_REASONING), 5 * PIECES);
        assert_int_equal(feed_long(chat, "", "a <b ", PIECES, WEIR_DELTA_CONTENT), 5 * PIECES);
        feed_long(chat, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"", "word ",
                  PIECES / 4, WEIR_DELTA_ARGUMENTS);
        /* Nested deeper than any stack is: taken as text, or read; nothing else. */
        feed_long(chat, "<tool_call>\n{\"name\": \"get_weather_map\", \"arguments\": {\"layers\": ", "[",
                  PIECES / 4, WEIR_DELTA_ARGUMENTS);
        weir_chat_release(chat);
    }
    print_message("%.2f s\n", seconds() - before);
    assert_true(seconds() - before < 60);
}

static void test_bytes(void **state)
{
    (void)state;
    weir_chat_parser *parser = NULL;
    weir_chat *chat = chat_with(NULL, false);
    static answer a;
    weir_delta d;
    memset(&a, 0, sizeof a);
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser,
                                           "a\xFF"
                                           "b\xE2\x82",
                                           5, false, NULL),
                     WEIR_OK);
    take(parser, &a);
    assert_string_equal(a.content, "a\xEF\xBF\xBD"
                                   "b");
    assert_int_equal(weir_chat_parser_feed(parser, "\xAC\xF0\x9F", 3, true, NULL), WEIR_OK);
    take(parser, &a);
    assert_string_equal(a.content, "a\xEF\xBF\xBD"
                                   "b\xE2\x82\xAC\xEF\xBF\xBD");
    weir_chat_parser_destroy(parser);

    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser, "x\0y", 3, true, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_next(parser, &d), WEIR_OK);
    assert_int_equal(d.length, 3);
    assert_memory_equal(d.text, "x\0y", 4);
    assert_int_equal(weir_chat_parser_next(parser, &d), WEIR_END);
    assert_int_equal(weir_chat_parser_feed(parser, NULL, 3, true, NULL), WEIR_INVALID);
    weir_chat_parser_destroy(parser);

    assert_int_equal(weir_chat_parser_create(NULL, &parser, NULL), WEIR_INVALID);
    assert_int_equal(weir_chat_parser_create(chat, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_chat_parser_feed(NULL, "", 0, true, NULL), WEIR_INVALID);
    assert_int_equal(weir_chat_parser_next(NULL, &d), WEIR_INVALID);
    weir_chat_parser_destroy(NULL);
    weir_chat_release(chat);
}

/* Feeds `step` bytes at a time. A feed that ran out of memory is repeated, after its deltas were taken, or
 * with them still queued. True: one ran out. */
static bool feed_again(weir_chat_parser *parser, const char *text, size_t step, bool taken, answer *a)
{
    bool failed = false;
    for (size_t i = 0, length = strlen(text); i < length; i += step) {
        size_t n = length - i < step ? length - i : step;
        weir_status status = weir_chat_parser_feed(parser, text + i, n, false, NULL);
        if (status == WEIR_NO_MEMORY) {
            failed = true;
            if (taken) take(parser, a);
            status = weir_chat_parser_feed(parser, text + i, n, false, NULL);
        }
        assert_int_equal(status, WEIR_OK);
    }
    return failed;
}

/* A feed after one that ran out of memory goes on, and nothing is lost or given twice. */
static void no_memory(const char *template, bool with_tools, const char *text, size_t step, bool taken)
{
    weir_chat *chat = chat_with(template, with_tools);
    static answer whole, a;
    if (chat == NULL) chat = chat_with(NULL, false);
    read_answer(chat, text, strlen(text), NULL, &whole);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_chat_parser *parser = NULL;
        memset(&a, 0, sizeof a);
        weir__mem_fail_after(n);
        bool failed = weir_chat_parser_create(chat, &parser, NULL) == WEIR_NO_MEMORY;
        if (parser != NULL) failed = feed_again(parser, text, step, taken, &a);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(failed != pending);
        if (parser != NULL) {
            assert_int_equal(weir_chat_parser_feed(parser, NULL, 0, true, NULL), WEIR_OK);
            take(parser, &a);
            if (!same(&a, &whole, false)) {
                show("with memory", &whole);
                show("without", &a);
                fail_msg("allocation %ld, steps of %zu, %s: %s", n, step, taken ? "taken" : "queued", text);
            }
        }
        weir_chat_parser_destroy(parser);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    weir_chat_release(chat);
}

/* Texts that break their form right after the piece that memory was lacking for, and long after it. */
#define QWEN_CALL "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {"
#define LONG_TEXT                                                                                            \
    "this is no JSON, and it goes on for as long as a parser hopes that the form of calls comes back: "      \
    "seven ships came in the morning, and eight ships went in the evening, and nine of them were here "      \
    "before the tenth was seen, and of all of them only one had a name that anybody could read aloud. "

static void test_no_memory(void **state)
{
    static const struct {
        const char *template, *text;
    } texts[] = {
        {"Qwen-Qwen2.5-7B-Instruct", "Look: " QWEN_CALL "no JSON\n</tool_call> and more"},
        {"Qwen-Qwen2.5-7B-Instruct", "Look: " QWEN_CALL "\"city\": \"Paris\"}}\n</tool_call>" LONG_TEXT},
        {"Qwen-Qwen3-0.6B", "<think>\nHm</think></think>" QWEN_CALL "}}\n</tool_call><tool_call>" LONG_TEXT},
        {"Qwen-Qwen3-0.6B", "<think>\nHm, as 2 < 3"},
        {"google-gemma-4-31B-it", "<|tool_call>call:get_weather{c}}]"},
        {"GLM-4.6", "<think>hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n< zq"},
        {"mistralai-Mistral-Nemo-Instruct-2407",
         "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": "
         "\"123456789\"}]<zq"},
    };
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        no_memory(examples[0].template, examples[0].tools, examples[0].text, 37, taken != 0);
        no_memory(described.template, described.tools, described.text, 37, taken != 0);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            no_memory(texts[i].template, true, texts[i].text, 37, taken != 0);
            no_memory(texts[i].template, true, texts[i].text, strlen(texts[i].text), taken != 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),        cmocka_unit_test(test_broken), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_long_answers), cmocka_unit_test(test_bytes),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
