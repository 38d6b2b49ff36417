/* Required calls and forms, with every template of the pin and a model of random weights, which knows
 * nothing: a call of a tool, or a call or a text of a given form, comes all the same, also where the template
 * has no form of calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "chat/chat.h"
#include "support/pin.h"
#include "support/temp.h"

#define N_SEEDS 3

/* Neither texts nor numbers without end: random weights would not end them. */
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"set_alarm\",\"description\":\"\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"
    "\"loud\":{\"type\":\"boolean\"}},\"required\":[\"days\",\"loud\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"description\":\"\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"count\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99}},"
    "\"required\":[\"count\"],\"additionalProperties\":false}}}]";
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"sum\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":99}},\"required\":[\"sum\"],\"additionalProperties\":false}";

static weir_model *model;
static weir_engine *engine;
static int n_bad, n_thinking;
static bool described; /* the last chat: its template has no form of calls that can be enforced */

/* So that one run reports all templates. */
#define BAD(...) (n_bad++, print_error(__VA_ARGS__))

static void no_log(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

static int load(void **state)
{
    char path[TEMP_PATH_MAX];
    weir_error error = {0};
    weir_engine_params params = weir_engine_params_default();
    (void)state;
    weir_log_set(no_log, NULL);
    temp_model(path, "random.gguf", "llama");
    params.n_slots = N_SEEDS;
    params.n_ctx = 16384;
    params.layout = WEIR_LAYOUT_UNIFIED;
    params.n_kv = 32768;
    params.n_threads = 1; /* two that wait for each other take far longer beside other tests */
    if (weir_model_load(path, NULL, &model, &error) == WEIR_OK &&
        weir_engine_create(model, &params, &engine, &error) == WEIR_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

static int unload(void **state)
{
    (void)state;
    weir_engine_destroy(engine);
    weir_model_release(model);
    return 0;
}

/* An answer. */
typedef struct said {
    char content[4096], name[16][64], arguments[16][1024];
    size_t n_calls;
    bool thinks; /* nothing else */
} said;

static void join(char *text, size_t capacity, const weir_delta *delta)
{
    size_t n = strlen(text);
    assert_true(n + delta->length < capacity);
    memcpy(text + n, delta->text, delta->length);
    text[n + delta->length] = '\0';
}

static void take(weir_chat_parser *parser, said *s)
{
    weir_delta delta;
    while (weir_chat_parser_next(parser, &delta) == WEIR_OK) {
        assert_true(delta.index < 16);
        if (delta.kind == WEIR_DELTA_CONTENT) join(s->content, sizeof s->content, &delta);
        if (delta.kind == WEIR_DELTA_TOOL_CALL) {
            assert_int_equal(delta.index, s->n_calls);
            join(s->name[s->n_calls++], sizeof s->name[0], &delta);
        }
        if (delta.kind == WEIR_DELTA_ARGUMENTS)
            join(s->arguments[delta.index], sizeof s->arguments[0], &delta);
    }
}

/* As a stream comes: some bytes at a time. */
static void read_answer(weir_chat *chat, const weir_result *result, said *s)
{
    weir_chat_parser *parser;
    memset(s, 0, sizeof *s);
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    for (size_t at = 0; at < result->length; at += 7) {
        size_t n = result->length - at < 7 ? result->length - at : 7;
        assert_int_equal(weir_chat_parser_feed(parser, result->text + at, n, false, NULL), WEIR_OK);
        take(parser, s);
    }
    assert_int_equal(weir_chat_parser_feed(parser, "", 0, true, NULL), WEIR_OK);
    take(parser, s);
    weir_chat_parser_destroy(parser);
}

static bool within(const json_t *value, json_int_t least, json_int_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most;
}

static bool is_call(const char *name, const char *arguments)
{
    json_t *json = NULL;
    bool ok = false;
    if (weir__json_parse(arguments, WEIR_NUL, "arguments", WEIR_INVALID, &json, NULL) != WEIR_OK)
        return false;
    if (strcmp(name, "set_alarm") == 0)
        ok = json_object_size(json) == 2 && within(json_object_get(json, "days"), 1, 9) &&
             json_is_boolean(json_object_get(json, "loud"));
    else if (strcmp(name, "stop") == 0)
        ok = json_object_size(json) == 1 && within(json_object_get(json, "count"), 0, 99);
    json_decref(json);
    return ok;
}

static bool is_sum(const char *text)
{
    json_t *json = NULL;
    if (weir__json_parse(text, WEIR_NUL, "content", WEIR_INVALID, &json, NULL) != WEIR_OK) return false;
    bool ok = json_object_size(json) == 1 && within(json_object_get(json, "sum"), 0, 99);
    json_decref(json);
    return ok;
}

/* A handler of the pin lets thoughts stand also where they are off, and its parser takes those that do not
 * end for content. */
static bool is_open_thought(const char *text)
{
    const char *tag = strstr(text, "think>");
    return text[0] == '<' && text[1] != '/' && tag != NULL &&
           strcspn(text, ">") == (size_t)(tag - text) + 5 && strstr(tag + 1, "think>") == NULL;
}

static void ask(const char *name, const weir_chat_params *params, said *answers)
{
    weir_chat *chat;
    weir_error error = {0};
    weir_result results[N_SEEDS];
    weir_request requests[N_SEEDS];
    weir_sampler_params samplers[N_SEEDS];
    if (weir_chat_create(model, params, &chat, &error) != WEIR_OK)
        fail_msg("%s: %s: %s", name, error.field, error.message);
    described = chat->calls;
    for (uint32_t i = 0; i < N_SEEDS; i++) {
        samplers[i] = weir_sampler_params_default();
        samplers[i].temp = 1;
        samplers[i].seed = i;
        requests[i] = weir_request_default();
        requests[i].chat = chat;
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = 600;
        requests[i].special = true;
    }
    if (weir_generate(engine, requests, N_SEEDS, NULL, results, &error) != WEIR_OK)
        fail_msg("%s: %s: %s", name, error.field, error.message);
    for (uint32_t i = 0; i < N_SEEDS; i++) {
        read_answer(chat, &results[i], &answers[i]);
        /* Where the prompt itself has begun to think, thoughts go on. */
        answers[i].thinks = results[i].reason == WEIR_REASON_LENGTH && answers[i].n_calls == 0 &&
                            (answers[i].content[0] == '\0' || is_open_thought(results[i].text));
        n_thinking += answers[i].thinks;
        if (results[i].reason != WEIR_REASON_END && !answers[i].thinks)
            BAD("%s, seed %u: %s: %.300s\n", name, i, weir_reason_name(results[i].reason), results[i].text);
        if (getenv("SHOW") != NULL) print_message("%s: %s\n", name, results[i].text);
        weir_result_fini(&results[i]);
    }
    weir_chat_release(chat);
}

/* fn of each template; returns how many have a form of calls of their own. */
static size_t each_template(void (*fn)(const char *name, weir_chat_params *params), size_t *n)
{
    static const weir_message question = {"user", "Wake me up."};
    size_t count = 0;
    *n = 0;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        if (getenv("ONLY") != NULL && strstr(walk.name, getenv("ONLY")) == NULL) continue;
        char *source = pin_template(walk.name);
        weir_chat_params params = weir_chat_params_default();
        params.messages = &question;
        params.n_messages = 1;
        params.template_source = source;
        params.tools_json = tools;
        params.enable_thinking = false; /* thoughts may be of any length */
        fn(walk.name, &params);
        free(source);
        if (described) print_message("described: %s\n", walk.name);
        count += !described;
        ++*n;
    }
    return count;
}

static void require(const char *name, weir_chat_params *params)
{
    said answers[N_SEEDS];
    params->tool_choice = WEIR_TOOLS_REQUIRED;
    for (int parallel = 0; parallel <= 1; parallel++) {
        params->parallel_tool_calls = parallel;
        ask(name, params, answers);
        for (size_t i = 0; i < N_SEEDS; i++) {
            const said *s = &answers[i];
            if (s->thinks) continue;
            if (s->n_calls < 1 || (!parallel && s->n_calls > 1) || s->content[0] != '\0')
                BAD("%s, parallel %d, seed %zu: %zu calls, content \"%.200s\"\n", name, parallel, i,
                    s->n_calls, s->content);
            for (size_t k = 0; k < s->n_calls; k++)
                if (!is_call(s->name[k], s->arguments[k]))
                    BAD("%s, seed %zu: %s(%s)\n", name, i, s->name[k], s->arguments[k]);
        }
    }
}

static void test_required(void **state)
{
    (void)state;
    size_t n, done = each_template(require, &n);
    print_message("%zu of %zu templates; %d answers only think\n", done, n, n_thinking);
    assert_int_equal(n_bad, 0);
    assert_true(done * 10 >= n * 6 && n_thinking <= 2 * 4 * N_SEEDS);
}

static size_t n_called, n_answered;

static void either(const char *name, weir_chat_params *params)
{
    said answers[N_SEEDS];
    params->json_schema = schema;
    ask(name, params, answers);
    for (size_t i = 0; i < N_SEEDS; i++) {
        const said *s = &answers[i];
        if (s->thinks) continue;
        bool ok = s->n_calls == 0
                      ? is_sum(s->content)
                      : s->n_calls == 1 && s->content[0] == '\0' && is_call(s->name[0], s->arguments[0]);
        if (!ok)
            BAD("%s, seed %zu: %zu calls, %s(%s), content \"%.200s\"\n", name, i, s->n_calls, s->name[0],
                s->arguments[0], s->content);
        n_called += s->n_calls;
        n_answered += s->n_calls == 0;
    }
}

static void test_either(void **state)
{
    (void)state;
    size_t n, done = each_template(either, &n);
    print_message("%zu of %zu templates; %zu calls, %zu texts\n", done, n, n_called, n_answered);
    assert_true(n_called > 0 && n_answered > 0);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_either),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
