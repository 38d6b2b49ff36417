/* chat_parser_test.c: answers of several model families, however they are cut into pieces, and broken ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_parser_testing.h"

#include <ctype.h>
#include <time.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/reasoning.h"
#include "support/effort.h"

/* ---- Results ---- */

typedef struct answer {
    char content[8192], reasoning[8192];
    struct {
        char name[64], id[64], arguments[2048];
    } calls[4];
    size_t n_calls;
} answer;

static void take(weir_chat_parser *parser, answer *a)
{
    weir_delta d;
    weir_status status;
    while ((status = weir_chat_parser_next(parser, &d)) == WEIR_OK) {
        assert_true(weir__utf8_valid(d.text, d.length));
        assert_int_equal(d.text[d.length], '\0');
        assert_int_equal(d.id != NULL, d.kind == WEIR_DELTA_TOOL_CALL);
        char *to = a->content;
        switch (d.kind) {
        case WEIR_DELTA_CONTENT: break;
        case WEIR_DELTA_REASONING: to = a->reasoning; break;
        case WEIR_DELTA_TOOL_CALL:
            assert_int_equal(d.index, a->n_calls);
            assert_true(a->n_calls < 4 && d.length > 0 && d.length < 64);
            strcpy(a->calls[a->n_calls].name, d.text);
            snprintf(a->calls[a->n_calls].id, 64, "%s", d.id);
            a->n_calls++;
            continue;
        case WEIR_DELTA_ARGUMENTS:
            assert_int_equal(d.index, (int32_t)a->n_calls - 1);
            assert_true(d.length > 0);
            to = a->calls[d.index].arguments;
            assert_true(strlen(to) + d.length < 2048);
            strcat(to, d.text);
            continue;
        }
        assert_true(d.length > 0);
        assert_int_equal(d.index, -1);
        assert_true(strlen(to) + d.length < 8192);
        strcat(to, d.text);
    }
    assert_int_equal(status, WEIR_END);
}

/* Feeds the text in pieces of the lengths that next_length draws from *seed; 0: one byte each; 1: all at
 * once. */
static void read_answer(weir_chat *chat, const char *text, size_t cut, uint64_t *seed, answer *a)
{
    weir_chat_parser *parser = NULL;
    size_t length = strlen(text);
    memset(a, 0, sizeof *a);
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    for (size_t i = 0; i < length || i == 0;) {
        size_t n = length - i;
        if (seed != NULL) {
            *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            n = (size_t)(*seed >> 33) % 9;
        } else if (cut > 0 && i < cut) {
            n = cut;
        } else if (cut == 0) {
            n = 1;
        }
        if (n > length - i) n = length - i;
        assert_int_equal(weir_chat_parser_feed(parser, text + i, n, false, NULL), WEIR_OK);
        if (seed == NULL || (*seed >> 50) % 3 != 0) take(parser, a);
        i += n;
        if (length == 0) break;
    }
    assert_int_equal(weir_chat_parser_feed(parser, NULL, 0, true, NULL), WEIR_OK);
    take(parser, a);
    assert_int_equal(weir_chat_parser_feed(parser, "more", 4, false, NULL), WEIR_STATE);
    weir_chat_parser_destroy(parser);
}

static bool same(const answer *a, const answer *b, bool ids)
{
    bool equal = strcmp(a->content, b->content) == 0 && strcmp(a->reasoning, b->reasoning) == 0 &&
                 a->n_calls == b->n_calls;
    for (size_t i = 0; equal && i < a->n_calls; i++)
        equal = strcmp(a->calls[i].name, b->calls[i].name) == 0 &&
                strcmp(a->calls[i].arguments, b->calls[i].arguments) == 0 &&
                (!ids || strcmp(a->calls[i].id, b->calls[i].id) == 0);
    return equal;
}

static void show(const char *what, const answer *a)
{
    print_message("%s: content [%s] reasoning [%s]", what, a->content, a->reasoning);
    for (size_t i = 0; i < a->n_calls; i++)
        print_message(" call %s %s %s", a->calls[i].id, a->calls[i].name, a->calls[i].arguments);
    print_message("\n");
}

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

/* Text that must come out whole, in whatever form: all of it is in the given pieces. */
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

/* From the end of the first of these on it is certain that a call has begun: a text of the form that is
 * complete, or a name in a form without one. */
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

/* ---- Answers that end within their reasoning ---- */

/* Whether the prompt ends within reasoning, by its own marks. Not every parser of llama.cpp's knows them. */
static bool opens_reasoning(const weir_chat *chat)
{
    const char *end = "", *next = weir_chat_prompt(chat, NULL);
    while ((next = strstr(next, "<think>")) != NULL) end = next++;
    return end[0] != '\0' && strstr(end, "</think>") == NULL;
}

static const char *past_space(const char *text)
{
    return text + strspn(text, " \n");
}

/* Of each template and each beginning of each answer: its pieces put together are the whole answer, and what
 * comes before the end of reasoning that the prompt opens is reasoning. */
static void test_ends_within_reasoning(void **state)
{
    static const char *const texts[] = {"Sum <b> it.\n\nThen</think>\n\nIt is 4 </th",
                                        "<think>\nSum it.</think>It is 4.", "\n\n", "It is 4."};
    static answer whole, split;
    size_t n_templates = 0, n_open = 0;
    uint64_t seed = 5;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk); n_templates++) {
        for (int with_tools = 0; with_tools < 2; with_tools++) {
            weir_error error = {0};
            weir_chat *chat = chat_tried(walk.name, with_tools, &error);
            if (chat == NULL) continue; /* it does not know tools */
            read_answer(chat, "Sum it.</think>4", 16, NULL, &whole);
            bool open = opens_reasoning(chat) && whole.reasoning[0] != '\0';
            bool held =
                chat->constraint != NULL && !chat->grammar.lazy; /* these are no answers of its form */
            n_open += open;
            for (size_t i = 0; i < sizeof texts / sizeof *texts && !held; i++) {
                for (size_t n = 0; n <= strlen(texts[i]); n += EFFORT(1, 7)) {
                    char text[64];
                    snprintf(text, n + 1, "%s", texts[i]);
                    read_answer(chat, text, n, NULL, &whole);
                    read_answer(chat, text, 0, NULL, &split);
                    bool equal = same(&split, &whole, false);
                    read_answer(chat, text, n + 1, &seed, &split);
                    equal = equal && same(&split, &whole, false);
                    bool within = open && strstr(text, "</think>") == NULL && texts[i][0] != '<';
                    if (within)
                        equal = equal && whole.content[0] == '\0' &&
                                strncmp(past_space(whole.reasoning), past_space(text),
                                        strlen(past_space(text))) == 0;
                    if (equal) continue;
                    show("whole", &whole);
                    show("split", &split);
                    fail_msg("%s: %s", walk.name, text);
                }
            }
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu prompts that open reasoning\n", n_templates, n_open);
    assert_true(n_open > 0);
}

/* Beside tools, reasoning is read as without them, also where weir's own form of calls forbids the text
 * behind it. */
static void test_reasoning_beside_tools(void **state)
{
    static const char *const texts[] = {"Sum <b> it.</think>\n\nIt is 4.",
                                        "<think>\nSum it.\n</think>\n\nIt is 4.", "It is 4."};
    static answer alone, beside;
    size_t n_templates = 0;
    bool good = true;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        weir_error error = {0};
        weir_chat *without = chat_tried(walk.name, false, &error),
                  *with = chat_tried(walk.name, true, &error);
        for (size_t i = 0; without != NULL && with != NULL && i < sizeof texts / sizeof *texts; i++) {
            bool held =
                with->constraint != NULL && !with->grammar.lazy; /* these are no answers of its form */
            read_answer(without, texts[i], 16, NULL, &alone);
            if (strcmp(past_space(alone.content), "It is 4.") != 0) continue;
            n_templates += i == 0;
            read_answer(with, texts[i], 16, NULL, &beside);
            if (strcmp(past_space(beside.content), "It is 4.") == 0) continue;
            print_message("%s: %s\n", walk.name, texts[i]);
            show("without tools", &alone);
            show("beside tools", &beside);
            good = false;
        }
        weir_chat_release(without);
        weir_chat_release(with);
    }
    print_message("%zu templates\n", n_templates);
    assert_true(good);
}

/* ---- Answers that break off within a call ---- */

/* Reads the text whole, byte by byte and in random pieces, which must come to the same. */
static void read_cut(weir_chat *chat, const char *text, uint64_t *seed, answer *a)
{
    static answer split;
    read_answer(chat, text, strlen(text), NULL, a);
    for (int i = 0; i < 2; i++) {
        read_answer(chat, text, 0, i == 0 ? NULL : seed, &split);
        if (same(&split, a, false)) continue;
        show("whole", a);
        show("split", &split);
        fail_msg("%s", text);
    }
}

/* However an answer breaks off, the markup of a call is no content once it is certain. */
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

#define ASKED "{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}"
#define CALLED                                                                                               \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"123456789\",\"type\":\"function\","  \
    "\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Paris\\\"}\"}}]}"

static weir_chat *chat_of(const char *template, const char *messages, bool begins, weir_tool_choice choice)
{
    weir_chat_params params = weir_chat_params_default();
    char *source = pin_template(template);
    weir_chat *chat = NULL;
    params.messages_json = messages;
    params.template_source = source;
    params.tools_json = tools;
    params.tool_choice = choice;
    params.enable_thinking = false;
    params.add_generation_prompt = begins;
    if (weir_chat_create(model, &params, &chat, NULL) != WEIR_OK) chat = NULL;
    free(source);
    return chat;
}

/* A call as the template writes it, up to its last bracket or mark; false: it writes none that its parser
 * reads. */
static bool write_call(const char *template, weir_chat *chat, char text[1024])
{
    static answer a;
    weir_chat *told = chat_of(template, "[" ASKED "," CALLED "]", false, WEIR_TOOLS_AUTO);
    const char *all = told != NULL ? weir_chat_prompt(told, NULL) : "",
               *prompt = weir_chat_prompt(chat, NULL);
    size_t n = strlen(prompt), found = 0;
    bool begins = told != NULL && strncmp(all, prompt, n) == 0;
    snprintf(text, 1024, "%s", begins ? all + n : "");
    weir_chat_release(told);
    for (size_t k = strlen(text); k > 0 && found == 0; k--) {
        text[k] = '\0';
        read_answer(chat, text, k, NULL, &a);
        bool city =
            strstr(a.calls[0].arguments, "Paris") != NULL && strchr(a.calls[0].arguments, '}') != NULL;
        if (a.n_calls == 1 && city && past_space(a.content)[0] == '\0') found = k;
    }
    return found > 0;
}

static bool has_trigger(const weir_chat *chat, const char *text)
{
    for (size_t i = 0; i < chat->grammar.n_triggers; i++) {
        const char *word = chat->grammar.triggers[i].value;
        size_t n = strlen(word);
        while (n > 0 && isspace((unsigned char)word[n - 1])) n--;
        for (const char *at = text; (at = strchr(at, word[0])) != NULL; at++)
            if (strncmp(at, word, n) == 0) return true;
    }
    return false;
}

/* Of each template: the call that it writes, cut anywhere, where calls are required and where they are not.
 * There it is certain once the trigger of the grammar is complete. */
static void test_cut_templates(void **state)
{
    static answer a;
    size_t n_required = 0, n_auto = 0;
    uint64_t seed = 9;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        for (int required = 0; required < 2; required++) {
            char text[1024], cut[1024];
            weir_chat *chat =
                chat_of(walk.name, "[" ASKED "]", true, required ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO);
            if (chat == NULL || chat->calls || !write_call(walk.name, chat, text)) {
                weir_chat_release(chat);
                continue;
            }
            *(required ? &n_required : &n_auto) += 1;
            for (size_t n = 1; n < strlen(text); n += EFFORT(1, 5)) {
                memcpy(cut, text, n);
                cut[n] = '\0';
                read_cut(chat, cut, &seed, &a);
                bool certain = required || has_trigger(chat, cut);
                if (!certain || past_space(a.content)[0] == '\0') continue;
                show("read", &a);
                fail_msg("%s: %s", walk.name, cut);
            }
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu with a required call\n", n_auto, n_required);
    assert_true(n_auto > 5 && n_required > 5);
}

/* ---- Answers whose reasoning is ended early ---- */

#define THOUGHT "Sum it, as 2 < 3"

/* What this template's answers have between the end of reasoning and the content. */
static const char *before_content(const weir_chat *chat)
{
    return strcmp(weir_chat_reasoning_end(chat), "<|end|>") == 0
               ? "<|start|>assistant<|channel|>final<|message|>"
               : "";
}

/* The end of the text, but for white space. */
static bool ends_as(const char *text, const char *wanted)
{
    const char *at = strstr(text, wanted);
    return at != NULL && *past_space(at + strlen(wanted)) == '\0';
}

/* The chat's answer that thinks, is ended, and says `said`. */
static void end_reasoning(weir_chat *chat, bool open, const char *said, char *text, size_t capacity,
                          answer *a)
{
    snprintf(text, capacity, "%s" THOUGHT "%s%s", open ? "" : chat->reasoning.start,
             weir_chat_reasoning_end(chat), said);
    read_answer(chat, text, 0, NULL, a);
}

/* Whether the parser takes for reasoning what comes before the closing text, and for content what follows;
 * *exact: without the closing text, which is content in forms that have marks around content. never: the
 * prompt has ended the reasoning. */
static bool reads_ended(weir_chat *chat, bool open, bool never, bool *exact)
{
    static answer thought, read;
    char text[512], said[128];
    end_reasoning(chat, open, "", text, sizeof text, &thought);
    snprintf(said, sizeof said, "%sIt is 4.", before_content(chat));
    end_reasoning(chat, open, said, text, sizeof text, &read);
    *exact = never || strcmp(past_space(read.content), "It is 4.") == 0;
    bool good = never ? read.reasoning[0] == '\0'
                      : ends_as(thought.reasoning, THOUGHT) && ends_as(read.reasoning, THOUGHT) &&
                            ends_as(read.content, "It is 4.");
    if (good) return true;
    print_message("%s\n", text);
    show("thought", &thought);
    show("read", &read);
    return false;
}

/* The tokens of reasoning that the engine finds in the same answer, of one byte each. */
static int32_t count_ended(weir_chat *chat, weir__reasoning *reasoning, bool open)
{
    static answer read;
    char text[512];
    end_reasoning(chat, open, "It is 4, not <think>5.", text, sizeof text, &read);
    for (const char *at = text; *at != '\0'; at++)
        assert_true(weir__reasoning_take(reasoning, (unsigned char)*at, false));
    return weir__reasoning_n(reasoning);
}

/* Of each template whose reasoning can be ended: the parser and the engine find it in the same place. */
static void test_reasoning_that_is_ended(void **state)
{
    size_t n_templates = 0, n_open = 0, n_exact = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        for (int with_tools = 0; with_tools < 2; with_tools++) {
            weir_error error = {0};
            weir__reasoning reasoning = {0};
            weir_request request = weir_request_default();
            weir_chat *chat = chat_tried(walk.name, with_tools, &error);
            if (chat == NULL) continue; /* it does not know tools */
            assert_int_equal(weir__reasoning_init(&reasoning, model, &request, chat, NULL), WEIR_OK);
            bool open = reasoning.place == WEIR__REASONING_WITHIN, exact;
            bool never = reasoning.place == WEIR__REASONING_NEVER; /* the prompt has ended it */
            if (weir_chat_reasoning_end(chat)[0] != '\0') {
                if (!reads_ended(chat, open, never, &exact)) fail_msg("%s", walk.name);
                int32_t spaces = weir_chat_reasoning_end(chat)[0] == '\n'; /* before the mark */
                assert_in_range(count_ended(chat, &reasoning, open), never ? 0 : sizeof THOUGHT - 1,
                                never ? 0 : sizeof THOUGHT - 1 + (size_t)spaces);
                n_templates++;
                n_open += open;
                n_exact += exact;
            }
            weir__reasoning_fini(&reasoning);
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu prompts that open reasoning, %zu with plain content\n", n_templates,
                  n_open, n_exact);
    assert_true(n_open > 0 ? n_exact * 10 > n_templates * 9 : n_templates == 0);
}

/* A template's marks may have any length; the engine compares those of WEIR__MARK_MAX bytes. */
static void test_long_marks(void **state)
{
    static const char *const parts[] = {
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
        "{{ m.reasoning_content }}\n</think",
        ">\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{%- if add_generation_prompt %}"
        "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking "
        "%}<think>\n\n</think",
        ">\n\n{% endif %}{% endif %}"};
    (void)state;
    if (strcmp(weir_backend_version(), "none") == 0) skip();
    for (int n = 0; n < 600; n += 50) {
        char source[4096], more[600];
        weir_chat_params params = weir_chat_params_default();
        weir_message message = {"user", "Hello"};
        weir_chat *chat = NULL;
        memset(more, 'k', (size_t)n);
        more[n] = '\0';
        snprintf(source, sizeof source, "%s%s%s%s%s", parts[0], more, parts[1], more, parts[2]);
        params.messages = &message;
        params.n_messages = 1;
        params.template_source = source;
        assert_int_equal(weir_chat_create(model, &params, &chat, NULL), WEIR_OK);
        assert_int_equal(weir_chat_reasoning_end(chat)[0] != '\0', n + 8 <= WEIR__MARK_MAX);
        weir_chat_release(chat);
    }
}

/* ---- Long answers, odd bytes, memory ---- */

/* Of processor time: other programs do not matter. */
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

/* After a feed that ran out of memory the next one goes on, and nothing is lost or given twice. */
static void no_memory(const struct example *e)
{
    weir_chat *chat = chat_with(e->template, e->tools);
    static answer whole, a;
    if (chat == NULL) chat = chat_with(NULL, false);
    read_answer(chat, e->text, strlen(e->text), NULL, &whole);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_chat_parser *parser = NULL;
        memset(&a, 0, sizeof a);
        weir__mem_fail_after(n);
        weir_status status = weir_chat_parser_create(chat, &parser, NULL);
        bool failed = status == WEIR_NO_MEMORY;
        for (size_t i = 0, step = 37; parser != NULL && i < strlen(e->text); i += step) {
            size_t left = strlen(e->text) - i;
            status = weir_chat_parser_feed(parser, e->text + i, left < step ? left : step, false, NULL);
            failed |= status == WEIR_NO_MEMORY;
            if (status == WEIR_NO_MEMORY) { /* the same once more */
                take(parser, &a);
                status = weir_chat_parser_feed(parser, e->text + i, left < step ? left : step, false, NULL);
            }
            assert_int_equal(status, WEIR_OK);
        }
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(failed != pending);
        if (parser != NULL) {
            assert_int_equal(weir_chat_parser_feed(parser, NULL, 0, true, NULL), WEIR_OK);
            take(parser, &a);
            assert_true(same(&a, &whole, false));
        }
        weir_chat_parser_destroy(parser);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    weir_chat_release(chat);
}

static void test_no_memory(void **state)
{
    (void)state;
    no_memory(&examples[0]);
    no_memory(&described);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_ends_within_reasoning),
        cmocka_unit_test(test_reasoning_beside_tools),
        cmocka_unit_test(test_reasoning_that_is_ended),
        cmocka_unit_test(test_long_marks),
        cmocka_unit_test(test_long_answers),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_cut_templates),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
