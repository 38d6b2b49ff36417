/* structured_model_test.c: grammars made of schemas and of tools, on a real vocabulary: compared with
 * llama.cpp's own grammar, token by token. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chat/chat.h"
#include "model/sampler.h"
#include "support/pin.h"

static weir_model *model;
static weir_model_info info = {.size = sizeof info};

static int load(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    params.vocab_only = true;
    const char *path = getenv("WEIR_TEST_MODEL");
    if (path == NULL || weir_model_load(path, &params, &model, NULL) != WEIR_OK) return -1;
    return weir_model_describe(model, &info) == WEIR_OK ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    return 0;
}

/* Whether the sampler's grammar takes all of the text and, with `whole`, the end after it. */
static bool takes(weir_sampler *sampler, const char *text, bool whole)
{
    int32_t tokens[512];
    size_t n = 0;
    weir_error error = {0};
    assert_int_equal(weir_sampler_reset(sampler, NULL), WEIR_OK);
    assert_int_equal(weir_tokenize(model, text, strlen(text), false, true, tokens, 512, &n, NULL), WEIR_OK);
    for (size_t i = 0; i < n; i++) {
        weir_status status = weir_sampler_accept(sampler, tokens[i], &error);
        if (status == WEIR_REFUSED) return false;
        if (status != WEIR_OK) fail_msg("%s: %s", text, error.message);
    }
    return !whole || weir_sampler_accept(sampler, info.token_eos, NULL) == WEIR_OK;
}

static const struct example {
    const char *schema;
    const char *made[4], *refused[4];
} examples[] = {
    {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":5},\"age\":{\"type\":"
     "\"integer\",\"minimum\":105}},"
     "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
     {"{\"name\":\"Ann\",\"age\":105}", "{\"name\": \"\xC3\xA4\\n\\\"\", \"age\": 1234}"},
     {"{\"name\":\"Ann\",\"age\":15}", "{\"name\":\"Annabel\",\"age\":105}", "{\"name\":\"Ann\"}",
      "{\"age\":105,\"name\":\"Ann\"}"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\"]},\"minItems\":1,\"maxItems\":2}",
     {"[\"red\"]", "[\"green\",\"red\"]"},
     {"[]", "[\"blue\"]", "[\"red\",\"red\",\"red\"]"}},
    {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{2,3}-\\\\d+$\"}",
     {"\"AB-1\"", "\"ABC-123\""},
     {"\"A-1\"", "\"AB-\"", "\"AB-1x\""}},
    {"{\"type\":\"string\",\"pattern\":\"^.*$\"}", {"\"a \\\"b\\\"\""}, {"\"a\",\"b\"", "\"a\nb\""}},
    {"{\"type\":\"string\",\"minLength\":3000,\"maxLength\":5000}", {NULL}, {"\"abc\""}},
    {"{\"$ref\":\"#/$defs/"
     "tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"sub\":{\"type\":\"array\",\"items\":{"
     "\"$ref\":"
     "\"#/$defs/tree\"}}},\"required\":[\"sub\"]}}}",
     {"{\"sub\":[]}", "{\"sub\":[{\"sub\":[]},{\"sub\":[{\"sub\":[]}]}]}"},
     {"{}", "{\"sub\":[{}]}"}},
    {"{\"type\":[\"integer\",\"null\"],\"minimum\":-3,\"maximum\":12}",
     {"-3", "12", "null", "0"},
     {"-4", "13", "007", "1.5"}},
    {"true", {"{\"a\":[1,2.5e3,null,\"x\"]}"}, {"{a:1}"}},
};

static void test_schemas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        weir_sampler_params params = weir_sampler_params_default();
        weir_sampler *sampler = NULL;
        weir_error error = {0};
        params.json_schema = e->schema;
        if (weir_sampler_create(model, &params, &sampler, &error) != WEIR_OK)
            fail_msg("%s: %s", e->schema, error.message);
        for (size_t k = 0; k < 4 && e->made[k] != NULL; k++)
            if (!takes(sampler, e->made[k], true)) fail_msg("%s refuses %s", e->schema, e->made[k]);
        for (size_t k = 0; k < 4 && e->refused[k] != NULL; k++)
            if (takes(sampler, e->refused[k], true)) fail_msg("%s takes %s", e->schema, e->refused[k]);
        weir_sampler_destroy(sampler);
    }
}

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":"
                            "\"\",\"parameters\":{\"type\":\"object\","
                            "\"properties\":{\"city\":{\"type\":\"string\",\"enum\":[\"Paris\",\"Rome\"]}},"
                            "\"required\":[\"city\"]}}}]";

static weir_chat *tool_chat(const char *name, weir_tool_choice choice)
{
    static const weir_message question = {"user", "Weather?"};
    weir_chat *chat = NULL;
    weir_error error = {0};
    weir_chat_params params = weir_chat_params_default();
    char *source = pin_template(name);
    if (source == NULL) return NULL;
    params.messages = &question;
    params.n_messages = 1;
    params.template_source = source;
    params.tools_json = tools;
    params.tool_choice = choice;
    params.parallel_tool_calls = true;
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) fail_msg("%s: %s", name, error.message);
    free(source);
    return chat;
}

static void test_tools(void **state)
{
    static const char good[] =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    static const char bad[] =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    weir_sampler *sampler = NULL;
    weir_error error = {0};
    (void)state;
    for (int choice = WEIR_TOOLS_AUTO; choice <= WEIR_TOOLS_REQUIRED; choice++) {
        weir_chat *chat = tool_chat("Qwen-Qwen2.5-7B-Instruct", (weir_tool_choice)choice);
        if (chat == NULL) skip();
        const weir__grammar *grammar = chat->constraint;
        if (weir__sampler_create(model, NULL, grammar, "", &sampler, &error) != WEIR_OK)
            fail_msg("%s", error.message);
        assert_true(takes(sampler, good, true));
        assert_false(takes(sampler, bad, false));
        assert_true(takes(sampler, "It is sunny.", true) == (choice == WEIR_TOOLS_AUTO));
        assert_true(takes(sampler, "It", false) == (choice == WEIR_TOOLS_AUTO)); /* no words before it */
        if (choice == WEIR_TOOLS_AUTO) {
            assert_true(takes(sampler, "I look. <tool_call>\n{\"name\": \"get_weather\"", false));
            assert_false(takes(sampler, "I look. <tool_call>\n{\"name\": \"other\"", false));
        }
        weir_sampler_destroy(sampler);
        weir_chat_release(chat);
    }
}

/* The grammar of every family works: it accepts the beginning of a valid answer. */
static void test_families(void **state)
{
    static const struct {
        const char *template, *good, *bad;
    } families[] = {
        {"meta-llama-Llama-3.1-8B-Instruct",
         "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}", "Sunny"},
        {"mistralai-Mistral-Nemo-Instruct-2407",
         "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": "
         "\"123456789\"}]",
         "[TOOL_CALLS][]"},
        {"openai-gpt-oss-120b",
         "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Rome\"}",
         "<|channel|>commentary to=functions.other <|message|>{}"},
        {"meetkai-functionary-medium-v3.2", "get_weather\n{\"city\": \"Rome\"}",
         "get_weather\n{\"city\": \"Oslo\"}"},
        {"Qwen3-Coder",
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</"
         "tool_call>",
         "<tool_call>\n<function=other>"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        weir_chat *chat = tool_chat(families[i].template, WEIR_TOOLS_REQUIRED);
        weir_sampler *sampler = NULL;
        weir_error error = {0};
        if (chat == NULL) skip();
        if (weir__sampler_create(model, NULL, chat->constraint, "", &sampler, &error) != WEIR_OK)
            fail_msg("%s: %s", families[i].template, error.message);
        if (!takes(sampler, families[i].good, true))
            fail_msg("%s refuses %s", families[i].template, families[i].good);
        if (takes(sampler, families[i].bad, true))
            fail_msg("%s takes %s", families[i].template, families[i].bad);
        weir_sampler_destroy(sampler);
        weir_chat_release(chat);
    }
}

/* The model's own template, and its control tokens. */
static void test_own_template(void **state)
{
    static const weir_message messages[] = {{"system", "Be brief."}, {"user", "Hi"}};
    weir_chat_params params = weir_chat_params_default();
    weir_chat *chat = NULL;
    weir_error error = {0};
    (void)state;
    params.messages = messages;
    params.n_messages = 2;
    if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_string_equal(
        weir_chat_prompt(chat, NULL),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    weir_chat_release(chat);

    chat = tool_chat("Qwen-Qwen2.5-7B-Instruct", WEIR_TOOLS_AUTO);
    if (chat == NULL) skip();
    for (size_t i = 1; i < chat->n_preserved; i++) assert_true(chat->preserved[i - 1] < chat->preserved[i]);
    weir_chat_release(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_own_template),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
