/* chat_test.c: conversations, rendered.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/effort.h"
#include "support/pin.h"

#define QWEN  "Qwen-Qwen2.5-7B-Instruct"
#define QWEN3 "Qwen-Qwen3-0.6B"

static const char weather[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                              "\"description\":\"Weather\",\"parameters\":{\"type\":"
                              "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"enum\":[\"Paris\","
                              "\"Rome\"]},\"days\":{\"type\":\"integer\","
                              "\"minimum\":105}},\"required\":[\"city\"]}}}]";

/* A pinned template, to be freed; NULL without llama.cpp. */
static char *template_of(const char *name)
{
    return no_llama() ? NULL : pin_template(name);
}

static void expect_part(const weir_chat_params *params, const char *part, bool there)
{
    weir_chat *chat = create(params);
    if ((strstr(weir_chat_prompt(chat, NULL), part) != NULL) != there)
        fail_msg("%s in %s", part, weir_chat_prompt(chat, NULL));
    weir_chat_release(chat);
}

static bool is_described(const weir_chat *chat)
{
    return chat->calls;
}

/* Tools stand in the prompt, and the grammar allows calls of them. */
static void expect_described(const weir_chat_params *params, const char *part)
{
    weir_chat *chat = create(params);
    assert_true(is_described(chat));
    assert_non_null(chat->constraint);
    assert_false(chat->constraint->lazy);
    weir_chat_release(chat);
    expect_part(params, part, true);
}

/* ---- Rendering ---- */

static void test_chatml(void **state)
{
    (void)state;
    weir_chat_params params = params_of(NULL);
    expect_prompt(
        &params,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    params.add_generation_prompt = false;
    expect_prompt(&params, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
    params.messages = NULL;
    params.n_messages = 0;
    params.messages_json = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
                           "\"text\",\"text\":\"b\"}]}]";
    expect_prompt(&params, "<|im_start|>user\na\nb<|im_end|>\n");

    weir_chat *chat = create(&params);
    assert_ptr_equal(chat->model, model);
    assert_null(chat->constraint);
    assert_int_equal(chat->n_stops, 0);
    assert_int_equal(chat->n_preserved, 0);
    assert_ptr_equal(weir_chat_hold(chat), chat);
    weir_chat_release(chat);
    weir_chat_release(chat);
    weir_chat_release(NULL);
    assert_null(weir_chat_hold(NULL));
}

/* The value of the text; NULL for NULL. */
static json_t *value_of(const char *text)
{
    json_t *value = NULL;
    if (text != NULL)
        assert_int_equal(weir__json_parse_texts(text, WEIR_NUL, "x", WEIR_INVALID, &value, NULL), 0);
    return value;
}

/* Values give the chat that their texts give, and stay as they were. */
static void expect_same_by_value(weir_chat_params params)
{
    weir_chat *by_text = create(&params);
    json_t *messages = value_of(params.messages_json), *tools = value_of(params.tools_json);
    json_t *before = json_deep_copy(messages), *tools_before = json_deep_copy(tools);
    params.messages_json = params.tools_json = NULL;
    params.messages_value = messages;
    params.tools_value = tools;
    weir_chat *by_value = create(&params);
    assert_string_equal(weir_chat_prompt(by_value, NULL), weir_chat_prompt(by_text, NULL));
    assert_int_equal(by_value->constraint != NULL, by_text->constraint != NULL);
    if (by_text->constraint != NULL)
        assert_string_equal(by_value->constraint->text, by_text->constraint->text);
    assert_true(json_equal(messages, before));
    assert_true(tools == NULL || json_equal(tools, tools_before));
    weir_chat_release(by_value);
    weir_chat_release(by_text);
    json_decref(tools_before);
    json_decref(before);
    json_decref(tools);
    json_decref(messages);
}

static void test_values(void **state)
{
    (void)state;
    char *source = template_of(QWEN3);
    weir_chat_params params = weir_chat_params_default();
    params.messages_json = "[{\"role\":\"user\",\"content\":\"Hi\",\"name\":null}]";
    expect_same_by_value(params);
    params.template_source = source;
    if (source != NULL) {
        params.tools_json = weather;
        params.messages_json =
            "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Rain?\"}]},"
            "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":null,\"function\":{\"name\":"
            "\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\",\\\"n\\\":[0.10,1e22,"
            "123456789012345678901]}\"}},{\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"ci\"}}]"
            "},"
            "{\"role\":\"tool\",\"content\":\"no\"}]";
        expect_same_by_value(params);
    }
    free(source);
    params = weir_chat_params_default();
    json_t *bad = json_pack("[{s:s,s:o}]", "role", "user", "content", json_stringn("a\0b", 3)),
           *object = json_object(), *message = json_pack("[{s:s,s:s}]", "role", "user", "content", "Hi");
    params.messages_value = bad;
    expect_error(&params, WEIR_INVALID, "messages_json", "U+0000");
    params.messages_value = object;
    expect_error(&params, WEIR_INVALID, "messages_json", "array");
    params.messages_value = message;
    params.tools_value = object;
    expect_error(&params, WEIR_INVALID, "tools_json", "array");
    params.tools_json = weather;
    expect_error(&params, WEIR_INVALID, "tools_json", "both");
    params.messages_json = "[]";
    expect_error(&params, WEIR_INVALID, "messages", "give one of");
    json_decref(message);
    json_decref(object);
    json_decref(bad);
}

/* Two such characters mark integers beyond 64 bits in llama.cpp's JSON. */
static void test_noncharacters(void **state)
{
    (void)state;
    if (no_llama()) skip();
    weir_chat_params params =
        params_of("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | tojson }}"
                  "<|im_end|>\n{% endfor %}");
    params.messages = NULL;
    params.n_messages = 0;
    static const char *const texts[] = {"\\ufdd0\\ufdd012345678901234567890",
                                        "say \\\"\\ufdd0\\ufdd012345678901234567890",
                                        "\xef\xb7\x90\xef\xb7\x90"};
    for (size_t i = 0; i < 3; i++) {
        char json[200];
        snprintf(json, sizeof json,
                 "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"user\",\"content\":\"%s\"}]", texts[i]);
        params.messages_json = json;
        expect_error(&params, WEIR_INVALID, "messages[1]", "U+FDD0");
    }
    /* One alone is a text, and so is an integer. */
    params.messages_json = "[{\"role\":\"user\",\"content\":\"\\ufdd0 12345678901234567890\"}]";
    expect_part(&params, " 12345678901234567890\"", true);
    params.tools_json =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\\ufdd0\\ufdd0\"}}]";
    params.template_source =
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>"
        "{{ m.role }}\n{{ m.content | tojson }}<|im_end|>\n{% endfor %}";
    expect_error(&params, WEIR_INVALID, "tools_json", "U+FDD0");
}

static void test_continue(void **state)
{
    (void)state;
    static const weir_message messages[] = {{"user", "Count"}, {"assistant", "One, two"}};
    weir_chat_params params = weir_chat_params_default();
    params.messages = messages;
    params.n_messages = 2;
    params.continue_final = true;
    expect_prompt(&params, "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\nOne, two");
    params.n_messages = 1;
    expect_error(&params, WEIR_INVALID, "continue_final", "\"user\"");
    params.messages = NULL;
    params.n_messages = 0;
    params.messages_json =
        "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]";
    expect_error(&params, WEIR_INVALID, "continue_final", "calls tools");

    /* The answer's deltas begin after the continued text. */
    weir_chat_parser *parser = NULL;
    weir_delta d;
    params.messages_json = NULL;
    params.messages = messages;
    params.n_messages = 2;
    weir_chat *chat = create(&params);
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser, ", three", WEIR_NUL, true, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_next(parser, &d), WEIR_OK);
    assert_string_equal(d.text, ", three");
    assert_int_equal(weir_chat_parser_next(parser, &d), WEIR_END);
    weir_chat_parser_destroy(parser);
    weir_chat_release(chat);
}

static void test_history(void **state)
{
    char *source = template_of(QWEN3);
    (void)state;
    if (source == NULL) skip();
    weir_chat_params params = weir_chat_params_default();
    params.template_source = source;
    params.tools_json = weather;
    params.messages_json =
        "[{\"role\":\"user\",\"content\":\"Weather?\"},"
        "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"I "
        "look.\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]"
        "},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"get_weather\",\"content\":\"sunny\"}]";
    expect_part(&params, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}", true);
    expect_part(&params, "<tool_response>\nsunny\n</tool_response>", true);
    expect_part(&params, "<think>\nI look.\n</think>", true);
    /* The prompt shows the tools as they were given, whatever became of their parameters. */
    expect_part(&params, "\"minimum\": 105}", true);
    expect_part(&params, "$defs", false);
    /* Calls that broke off, or whose arguments are no object, and that a client sends back. */
    const char *history = params.messages_json;
    static const char *const back[] = {"{\\\"ci", "[1]", "null"};
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        char messages[256], wanted[96];
        snprintf(messages, sizeof messages,
                 "[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\",\"content\":null,"
                 "\"tool_calls\":[{\"function\":{\"name\":\"get_weather\",\"arguments\":\"%s\"}}]}]",
                 back[i]);
        snprintf(wanted, sizeof wanted, "{\"name\": \"get_weather\", \"arguments\": {\"arguments\": \"%s\"}}",
                 back[i]);
        params.messages_json = messages;
        expect_part(&params, wanted, true);
    }
    params.messages_json = history;
    params.enable_thinking = false;
    expect_part(&params, "<think>\n\n</think>", true);
    params.enable_thinking = true;
    static const weir_template_arg off[] = {{"enable_thinking", "false"}};
    expect_part(&params, "<think>\n\n</think>", false);
    params.args = off;
    params.n_args = 1;
    expect_part(&params, "<think>\n\n</think>", true);
    free(source);
}

/* ---- Bad input ---- */

/* llama.cpp's JSON compares each member with all before it. */
static void test_wide_arguments(void **state)
{
    (void)state;
    enum { N = 9000 };
    static char text[N * 16 + 256];
    size_t n = (size_t)sprintf(text, "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                                     "\"arguments\":\"{");
    for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "%s\\\"k%d\\\":1", i > 0 ? "," : "", i);
    sprintf(text + n, "}\"}}]}]");
    weir_chat_params params = weir_chat_params_default();
    params.messages_json = text;
    expect_error(&params, WEIR_INVALID, "messages_json", "too many members");
}

static void test_bad_messages(void **state)
{
    static const struct {
        const char *json, *field, *word;
    } bad[] = {
        {"", "messages_json", "not JSON"},
        {"{}", "messages_json", "array"},
        {"[]", "messages_json", "at least one"},
        {"[1]", "messages[0]", "object"},
        {"[{\"content\":\"x\"}]", "messages[0].role", "string"},
        {"[{\"role\":\"\",\"content\":\"x\"}]", "messages[0].role", "empty"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\"}]", "messages[1].content", "given"},
        {"[{\"role\":\"user\",\"content\":3}]", "messages[0].content", "string"},
        {"[{\"role\":\"user\",\"content\":null}]", "messages[0].content", "string"},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]", "messages[0].content[0]", "type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0]", "text"},
        {"[{\"role\":\"user\",\"content\":\"\xFF\"}]", "messages_json", "UTF-8"},
        {"[{\"role\":\"user\",\"role\":\"user\",\"content\":\"\"}]", "messages_json", "duplicate"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "messages[0].tool_calls", "array"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{}]}]", "messages[0].tool_calls[0]", "function"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]", "messages[0].tool_calls[0]",
         "name"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"x\",\"function\":{\"name\":\"f\"}}]}]",
         "messages[0].tool_calls[0]", "function"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":3}}]}]",
         "messages[0].tool_calls[0]", "JSON"},
        {"[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":3}]",
         "messages[0].reasoning_content", "string"},
        {"[{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":3}]", "messages[0].tool_call_id", "string"},
    };
    (void)state;
    weir_chat_params params = weir_chat_params_default();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        params.messages_json = bad[i].json;
        expect_error(&params, WEIR_INVALID, bad[i].field, bad[i].word);
    }
    params.messages_json = "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]";
    expect_error(&params, WEIR_INVALID, "messages[0].content[0]", "0 are given");
    params.messages_json = "[{\"role\":\"user\",\"content\":[{\"type\":\"video_url\"}]}]";
    expect_error(&params, WEIR_UNSUPPORTED, "messages[0].content[0]", "video_url");

    char *deep = malloc(400000);
    assert_non_null(deep);
    memset(deep, '[', 399999);
    deep[399999] = '\0';
    params.messages_json = deep;
    expect_error(&params, WEIR_INVALID, "messages_json", "deeper than 100");
    free(deep);

    weir_message messages[2] = {{"user", "x"}, {"user", "\xC3"}};
    params.messages = messages;
    expect_error(&params, WEIR_INVALID, "messages", "give one");
    params.messages_json = NULL;
    expect_error(&params, WEIR_INVALID, "n_messages", "0");
    params.n_messages = 2;
    expect_error(&params, WEIR_INVALID, "messages[1].content", "UTF-8");
    messages[1].content = NULL;
    expect_error(&params, WEIR_INVALID, "messages[1].content", "NULL");
    messages[1] = (weir_message){"", "x"};
    expect_error(&params, WEIR_INVALID, "messages[1].role", "empty");
    messages[1].role = NULL;
    expect_error(&params, WEIR_INVALID, "messages[1].role", "NULL");
    params.messages = NULL;
    expect_error(&params, WEIR_INVALID, "messages", "no messages");
    params.size = 3;
    expect_error(&params, WEIR_INVALID, "params", "size");
    weir_chat *chat = NULL;
    assert_int_equal(weir_chat_create(NULL, NULL, &chat, NULL), WEIR_INVALID);
    size_t length = 1;
    assert_string_equal(weir_chat_prompt(NULL, &length), "");
    assert_string_equal(weir_chat_relaxed(NULL), "");
    assert_int_equal(length, 0);
    assert_int_equal(weir_chat_create(model, NULL, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_chat_create(model, NULL, &chat, NULL), WEIR_INVALID);
}

#define TOOL(name, parameters)                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"

#define STRICT(name, parameters)                                                                             \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"strict\":true,\"parameters\":" parameters  \
    "}}"

static void test_bad_tools(void **state)
{
    static const struct {
        const char *json;
        weir_status status;
        const char *field, *word;
    } bad[] = {
        {"", WEIR_INVALID, "tools_json", "not JSON"},
        {"{}", WEIR_INVALID, "tools_json", "array"},
        {"[" TOOL("a", "{\"type\":\"object\",\"title\":\"\\u0000\"}") "]", WEIR_INVALID, "tools_json",
         "U+0000 or half"},
        {"[" TOOL("a", "{\"type\":\"object\",\"title\":\"\\ud83d\"}") "]", WEIR_INVALID, "tools_json",
         "U+0000 or half"},
        {"[1]", WEIR_INVALID, "tools[0].function", "object"},
        {"[{\"type\":\"web\",\"function\":{}}]", WEIR_INVALID, "tools[0].type", "function"},
        {"[{\"function\":{}}]", WEIR_INVALID, "tools[0].function.name", "letters"},
        {"[" TOOL("a b", "{}") "]", WEIR_INVALID, "tools[0].function.name", "letters"},
        {"[" TOOL("0123456789012345678901234567890123456789012345678901234567890123456789", "{}") "]",
         WEIR_INVALID, "tools[0].function.name", "64"},
        {"[" TOOL("a", "{}") "," TOOL("a", "{}") "]", WEIR_INVALID, "tools[1].function.name",
         "tools 0 and 1 both have the name \"a\""},
        {"[" TOOL("a_b", "{}") "," TOOL("a-b", "{}") "]", WEIR_INVALID, "tools[1].function.name", "similar"},
        {"[" TOOL("get", "{}") "," TOOL("get_schema", "{}") "]", WEIR_INVALID, "tools[1].function.name",
         "similar"},
        {"[" TOOL("a", "3") "]", WEIR_GRAMMAR, "/0/function/parameters", "object"},
        {"[" STRICT("a", "{\"type\":\"string\"}") "]", WEIR_GRAMMAR, "/0/function/parameters", "object"},
        {"[" TOOL("a", "{}") "," STRICT(
             "b", "{\"type\":\"object\",\"properties\":{\"p\":{\"uniqueItems\":true}}}") "]",
         WEIR_GRAMMAR, "/1/function/parameters/properties/p", "'uniqueItems'"},
        {"[{\"function\":{\"name\":\"a\",\"strict\":1}}]", WEIR_INVALID, "tools[0].function.strict",
         "true or false"},
    };
    (void)state;
    char *source = template_of(QWEN);
    weir_chat_params params = params_of(source);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        params.tools_json = bad[i].json;
        expect_error(&params, bad[i].status, bad[i].field, bad[i].word);
    }
    params.tools_json = weather;
    params.tool_choice = (weir_tool_choice)7;
    expect_error(&params, WEIR_INVALID, "tool_choice", "7");
    params.tool_choice = WEIR_TOOLS_AUTO;
    params.tools_json = "[]";
    params.tool_choice = WEIR_TOOLS_REQUIRED;
    expect_error(&params, WEIR_INVALID, "tool_choice", "no tools");
    params = params_of(NULL); /* ChatML */
    params.tools_json = weather;
    if (no_llama()) expect_error(&params, WEIR_UNSUPPORTED, "tools_json", "no llama.cpp");
    free(source);
}

/* ---- Keywords that are not enforced ---- */

#define ODD                                                                                                  \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"multipleOf\":1009}},\"required\":["  \
    "\"n\"]}"

static void expect_relaxed(const weir_chat_params *params, const char *lines)
{
    weir_chat *chat = create(params);
    assert_string_equal(weir_chat_relaxed(chat), lines);
    weir_chat_release(chat);
}

static void test_relaxed(void **state)
{
    static const char tools[] = "[" TOOL("a", ODD) "," TOOL("b", "{}") "]",
                      strict[] = "[" STRICT("a", ODD) "]";
    static const char place[] = "/0/function/parameters/properties/n: multipleOf\n";
    (void)state;
    if (no_llama()) skip();
    char *source = template_of(QWEN);
    const char *const sources[] = {NULL, source}; /* described in a message, and by a template */
    for (size_t i = 0; i < (source != NULL ? 2 : 1); i++) {
        weir_chat_params params = params_of(sources[i]);
        expect_relaxed(&params, "");
        params.tools_json = tools;
        expect_relaxed(&params, place);
        params.tool_choice = WEIR_TOOLS_REQUIRED;
        expect_relaxed(&params, place);
        params.tool_choice = WEIR_TOOLS_NONE;
        expect_relaxed(&params, "");
        params.tools_json = strict;
        expect_relaxed(&params, "");
        params.tool_choice = WEIR_TOOLS_AUTO;
        expect_error(&params, WEIR_GRAMMAR, "/0/function/parameters/properties/n", "'multipleOf'");
        params.tools_json = NULL;
        params.json_schema = ODD;
        expect_error(&params, WEIR_GRAMMAR, "json_schema/properties/n", "'multipleOf'");
        params.strict_schema = false;
        expect_relaxed(&params, "json_schema/properties/n: multipleOf\n");
        params.tools_json = weather;
        expect_relaxed(&params, "json_schema/properties/n: multipleOf\n");
    }
    free(source);
}

/* ---- Constraints ---- */

/* Calls that are JSON without a mark begin with a tool's name and the key of its arguments. */
static void test_tools_without_mark(void **state)
{
    char *source = template_of("meta-llama-Llama-3.1-8B-Instruct");
    (void)state;
    if (source == NULL) skip();
    weir_chat_params params = params_of(source);
    params.tools_json = weather;
    weir_chat *chat = create(&params);
    const weir__grammar *grammar = chat->constraint;
    assert_non_null(grammar);
    assert_true(grammar->lazy);
    assert_int_equal(grammar->n_triggers, 2);
    assert_string_equal(grammar->triggers[0].value, "{\"name\": \"get_weather\", \"parameters\":");
    assert_string_equal(grammar->triggers[1].value, "{\"name\":\"get_weather\",\"parameters\":");
    assert_null(grammar->prefill);
    assert_non_null(strstr(grammar->text, "Rome"));
    weir_chat_release(chat);
    params.tool_choice = WEIR_TOOLS_NONE;
    chat = create(&params);
    assert_null(chat->constraint);
    weir_chat_release(chat);
    free(source);
}

static void test_tools(void **state)
{
    char *source = template_of(QWEN);
    (void)state;
    if (source == NULL) skip();
    weir_chat_params params = params_of(source);
    params.tools_json = weather;
    weir_chat *chat = create(&params);
    const weir__grammar *grammar = chat->constraint;
    assert_non_null(grammar);
    assert_true(grammar->lazy);
    assert_int_equal(grammar->n_triggers, 1);
    assert_true(strncmp(grammar->triggers[0].value, "<tool_call>", 11) == 0);
    assert_int_equal(grammar->triggers[0].kind, 0);
    assert_null(grammar->prefill);
    assert_non_null(strstr(grammar->text, "Rome"));
    /* days is at least 105, in the grammar too: the converter alone would let 15 pass. */
    assert_non_null(strstr(grammar->text, "([5-9])"));
    weir_chat_release(chat);

    params.tool_choice = WEIR_TOOLS_REQUIRED;
    chat = create(&params);
    grammar = chat->constraint;
    assert_false(grammar->lazy);
    assert_string_equal(grammar->prefill, "<|im_start|>assistant\n");
    weir_chat_release(chat);

    params.tool_choice = WEIR_TOOLS_NONE;
    chat = create(&params);
    assert_null(chat->constraint);
    assert_non_null(strstr(weir_chat_prompt(chat, NULL), "get_weather"));
    weir_chat_release(chat);

    /* Long integers stand in the prompt, and bound what is enforced as the nearest real. */
    params.tools_json = "[" TOOL("f", "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\","
                                      "\"minimum\":0,\"maximum\":18446744073709551615}}}") "]";
    chat = create(&params);
    assert_non_null(strstr(weir_chat_prompt(chat, NULL), "18446744073709551615"));
    weir_chat_release(chat);

    /* Two tools whose parameters refer to definitions of one name. */
    params.tool_choice = WEIR_TOOLS_REQUIRED;
    params.tools_json =
        "[" TOOL("one", "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
                        "d\"}},\"required\":[\"x\"],\"$defs\":{\"d\":{"
                        "\"enum\":[\"first\"]}}}") "," TOOL("two", "{\"type\":\"object\",\"properties\":{"
                                                                   "\"x\":{\"$ref\":\"#/$defs/d\"}},"
                                                                   "\"required\":[\"x\"],\"$defs\":{\"d\":{"
                                                                   "\"enum\":[\"second\"]}}}") "]";
    chat = create(&params);
    assert_non_null(strstr(chat->constraint->text, "first"));
    assert_non_null(strstr(chat->constraint->text, "second"));
    weir_chat_release(chat);
    free(source);

    /* Arguments one by one and unquoted: not to the letter. */
    source = template_of("Qwen3-Coder");
    params = params_of(source);
    params.tools_json = "[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{"
                        "\"a\":{\"enum\":[\"b\"]}}}}}]";
    expect_described(&params, "\"enum\":[\"b\"]");
    params.tools_json = weather;
    chat = create(&params);
    assert_false(is_described(chat));
    weir_chat_release(chat);
    free(source);

    source = template_of("microsoft-Phi-3.5-mini-instruct");
    params = params_of(source);
    params.tools_json = weather;
    expect_described(&params, "get_weather");
    free(source);
}

/* Tools are described to a template that knows none: ChatML. */
static void test_described_tools(void **state)
{
    static const char history[] =
        "[{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
        "\"function\":{\"name\":\"get_weather\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"rain and wind\"}]";
    bool within;
    (void)state;
    if (no_llama()) skip();
    weir_chat_params params = params_of(NULL);
    params.tools_json = weather;
    expect_described(&params, "Be brief.\n\nYou can call these functions:\n{\"name\":\"get_weather\"");
    expect_part(&params, "To answer in words", true);
    params.tool_choice = WEIR_TOOLS_REQUIRED;
    expect_described(&params, "get_weather");
    expect_part(&params, "To answer in words", false);
    params.json_schema = "{\"type\":\"object\",\"properties\":{\"sum\":{\"type\":\"integer\"}}}";
    expect_part(&params, "\"sum\"", false); /* a call must come: there is no other form */
    params.tool_choice = WEIR_TOOLS_AUTO;
    expect_described(&params, "\"sum\"");

    /* Tools that must not be called are as if there were none. No error is left of a success. */
    params.tool_choice = WEIR_TOOLS_NONE;
    params.json_schema = NULL;
    weir_chat *chat;
    weir_error untouched = {0};
    assert_int_equal(weir_chat_create(model, &params, &chat, &untouched), WEIR_OK);
    assert_int_equal(untouched.code, WEIR_OK);
    assert_string_equal(untouched.message, "");
    assert_null(strstr(weir_chat_prompt(chat, NULL), "get_weather"));
    assert_null(chat->constraint);
    assert_false(is_described(chat));
    weir_chat_release(chat);

    /* Schemas are refused by their places. */
    params = params_of(NULL);
    params.tools_json = weather;
    params.json_schema = "{\"properties\":{\"a\":{\"multipleOf\":1009,\"type\":\"integer\"}}}";
    expect_error(&params, WEIR_GRAMMAR, "json_schema/properties/a", "'multipleOf'");

    /* Marks are of the messages as they were given. */
    params = weir_chat_params_default();
    params.messages_json = history;
    params.tools_json = weather;
    chat = create(&params);
    const char *prompt = weir_chat_prompt(chat, NULL), *place = strstr(prompt, "rain and wind");
    assert_non_null(place);
    assert_non_null(strstr(prompt, "{\"name\":\"get_weather\",\"arguments\":{}}<|im_end|>"));
    assert_int_equal(chat->n_messages, 3);
    assert_int_equal(weir__chat_mark_at(chat->marks, 3, (size_t)(place - prompt), &within), 2);
    assert_true(within);
    weir_chat_release(chat);
}

static void test_json_schema(void **state)
{
    (void)state;
    weir_chat_params params = params_of(NULL);
    params.json_schema =
        "{\"type\":\"object\",\"properties\":{\"answer\":{\"type\":\"integer\"}},\"required\":[\"answer\"]}";
    if (no_llama()) {
        expect_error(&params, WEIR_UNSUPPORTED, "json_schema", "no llama.cpp");
        skip();
    }
    weir_chat *chat = create(&params);
    const weir__grammar *grammar = chat->constraint;
    assert_false(grammar->lazy);
    assert_non_null(strstr(grammar->text, "answer"));
    assert_null(strstr(grammar->text, "```")); /* a limit within a fence would leave no JSON at all */
    weir_chat_release(chat);
    params.json_schema = "{\"properties\":{\"a\":{\"multipleOf\":1009,\"type\":\"integer\"}}}";
    expect_error(&params, WEIR_GRAMMAR, "json_schema/properties/a", "'multipleOf'");
    params.json_schema = "{";
    expect_error(&params, WEIR_GRAMMAR, "json_schema", "not JSON");
    params.json_schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}";
    expect_error(&params, WEIR_GRAMMAR, "json_schema", "never comes to an end");

    /* A form that llama.cpp's handler of the template does not constrain by itself. */
    char *source = template_of("meetkai-functionary-medium-v3.2");
    if (source == NULL) return;
    params = params_of(source);
    params.json_schema = "{\"const\":\"only this\"}";
    chat = create(&params);
    grammar = chat->constraint;
    assert_non_null(grammar);
    assert_non_null(strstr(grammar->text, "only this"));
    assert_true(chat->plain);
    weir_chat_release(chat);
    free(source);
}

/* Every template of the pinned source: renders, and constrains answers as it reports. */
static void test_all_templates(void **state)
{
    size_t n = 0, n_tools = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = template_of(walk.name);
        weir_error error = {0};
        weir_chat *chat = NULL;
        static const weir_message one[] = {{"user", "What is 2 + 2?"}};
        weir_chat_params params = weir_chat_params_default();
        params.template_source = source;
        params.messages = one;
        params.n_messages = 1;
        if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK)
            fail_msg("%s: %s", walk.name, error.message);
        assert_non_null(strstr(weir_chat_prompt(chat, NULL), "2 + 2"));
        weir_chat_release(chat);
        n++;

        params.json_schema = "{\"type\":\"object\",\"properties\":{\"sum\":{\"type\":\"integer\",\"minimum\":"
                             "0}},\"required\":[\"sum\"]}";
        if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK)
            fail_msg("%s: %s", walk.name, error.message);
        assert_non_null(chat->constraint);
        assert_false(chat->constraint->lazy);
        if (strstr(chat->constraint->text, "```") != NULL) fail_msg("%s: a fence around JSON", walk.name);
        weir_chat_release(chat);

        params.tools_json = weather;
        if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK)
            fail_msg("%s: %s", walk.name, error.message);
        /* Some forms of calls have a fence, after other words. */
        if (strstr(chat->constraint->text, "\"```json\"") != NULL)
            fail_msg("%s: a fence around JSON beside calls", walk.name);
        weir_chat_release(chat);
        params.json_schema = NULL;
        for (int parallel = 0; parallel <= 1; parallel++) {
            params.parallel_tool_calls = parallel;
            for (int choice = 0; choice <= (parallel ? 0 : 2); choice++) {
                params.tool_choice = (weir_tool_choice)choice;
                if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK)
                    fail_msg("%s, tool_choice %d: %s", walk.name, choice, error.message);
                n_tools += choice == 1 && !parallel && !is_described(chat);
                if (choice == 1) assert_non_null(chat->constraint);
                assert_true(choice != 1 || !chat->constraint->lazy);
                assert_true(choice != 2 || chat->constraint == NULL);
                weir_chat_release(chat);
            }
        }
        free(source);
    }
    print_message("%zu templates, %zu with tools\n", n, n_tools);
    assert_true(n > EFFORT(40, 6) && n_tools > EFFORT(30, 4));
}

/* ---- Memory ---- */

static void test_no_memory(void **state)
{
    char *source = template_of("Qwen3-Coder"); /* the quickest one with tools */
    (void)state;
    weir_chat_params params = params_of(source);
    if (source != NULL) params.tools_json = weather;
    weir_chat_release(create(&params)); /* the cache is then as it will be */
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_chat *chat = NULL;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_chat_create(model, &params, &chat, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status != (pending ? WEIR_OK : WEIR_NO_MEMORY)) fail_msg("allocation %ld: %s", n, error.message);
        weir_chat_release(chat);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chatml),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_wide_arguments),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_relaxed),
        cmocka_unit_test(test_bad_tools),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_tools_without_mark),
        cmocka_unit_test(test_noncharacters),
        cmocka_unit_test(test_json_schema),
        cmocka_unit_test(test_all_templates),
        cmocka_unit_test(test_described_tools),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
