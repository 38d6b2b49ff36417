/* continued_test.c: answers that continue the last message, with all templates of the pinned source.
 *
 * A template says how it renders a finished message. So the prompt must be that of the finished message up to
 * where the text ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/parser.h"

#include "base/mem.h"
#include "model/sampler.h"

#define END "Two!Q" /* how the texts end; nothing else in a prompt has it */

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"sum\":{\"type\":\"integer\"}},\"required\":"
    "[\"sum\"],\"additionalProperties\":false}";

/* The way a conversation is rendered. */
typedef struct terms {
    const char *name, *source; /* the template's */
    const char *last;          /* members of the last message */
    bool goes_on, thinks, with_tools;
    weir_tool_choice choice;
    const char *schema;
} terms;

/* NULL: there is an error. */
static weir_chat *try_chat(const terms *t, weir_error *error)
{
    weir_chat_params params = weir_chat_params_default();
    weir_chat *chat = NULL;
    static char messages[8192];
    snprintf(messages, sizeof messages,
             "[{\"role\":\"user\",\"content\":\"Add\"},{\"role\":\"assistant\",%s}]", t->last);
    params.messages_json = messages;
    params.template_source = t->source;
    params.continue_final = t->goes_on;
    params.add_generation_prompt = false;
    params.enable_thinking = t->thinks;
    params.tools_json = t->with_tools ? tools : NULL;
    params.tool_choice = t->choice;
    params.json_schema = t->schema;
    params.now = 1700000000;
    return weir_chat_create(model, &params, &chat, error) == WEIR_OK ? chat : NULL;
}

static weir_chat *get_chat(const terms *t)
{
    weir_error error = {0};
    weir_chat *chat = try_chat(t, &error);
    if (chat == NULL) fail_msg("%s, %s: [%s] %s", t->name, t->last, error.field, error.message);
    return chat;
}

static const char *find_end(const char *prompt)
{
    const char *end = NULL;
    for (const char *at = prompt; (at = strstr(at, END)) != NULL; at++) end = at + strlen(END);
    return end;
}

/* False: the template leaves the end out of the finished message. */
static bool is_finished_cut(const terms *t)
{
    terms finished = *t;
    weir_chat *on = get_chat(t);
    weir_error error = {0};
    finished.goes_on = false;
    weir_chat *whole = try_chat(&finished, &error);
    const char *prompt = weir_chat_prompt(on, NULL),
               *all = whole != NULL ? weir_chat_prompt(whole, NULL) : "";
    const char *end = find_end(all);
    if (on->calls) end = NULL; /* its text is within a response */
    if (end != NULL && (strlen(prompt) != (size_t)(end - all) || memcmp(prompt, all, strlen(prompt)) != 0))
        fail_msg("%s, %s, tools %d, thinking %d\n[%s]\nis no beginning up to \"" END "\" of\n[%s]", t->name,
                 t->last, t->with_tools, t->thinks, prompt, all);
    weir_chat_release(whole);
    weir_chat_release(on);
    return end != NULL;
}

/* All bytes of one kind that come when `text` is read, in pieces of `step` bytes. */
static void read_text(weir_chat *chat, const char *text, size_t step, weir_delta_kind *kind, char out[256])
{
    weir_chat_parser *parser = NULL;
    weir_delta d;
    size_t n = strlen(text);
    out[0] = '\0';
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    for (size_t i = 0; i <= n; i += step) {
        size_t left = n - i < step ? n - i : step;
        assert_int_equal(weir_chat_parser_feed(parser, text + i, left, i + step > n, NULL), WEIR_OK);
        while (weir_chat_parser_next(parser, &d) == WEIR_OK) {
            *kind = d.kind;
            assert_true(strlen(out) + d.length < 256);
            strcat(out, d.text);
        }
    }
    weir_chat_parser_destroy(parser);
}

static void expect_answer(const terms *t, weir_chat *chat, const char *text, const char *wanted,
                          weir_delta_kind wanted_kind)
{
    char got[256];
    for (size_t step = 1; step < 20; step += 18) {
        weir_delta_kind kind = WEIR_DELTA_TOOL_CALL;
        read_text(chat, text, step, &kind, got);
        if (strcmp(got, wanted) != 0 || kind != wanted_kind)
            fail_msg("%s, %s: the answer [%s] is read as [%s] of kind %d", t->name, t->last, text, got,
                     (int)kind);
    }
}

/* Asserts that the grammar, if there is one, can begin where the prompt ends. */
static void expect_sampler(const terms *t, weir_chat *chat)
{
    weir_sampler *sampler = NULL;
    weir_error error = {0};
    if (chat->constraint == NULL || chat->constraint->lazy) return;
    if (weir__sampler_create(model, NULL, chat->constraint, "", &sampler, &error) != WEIR_OK)
        fail_msg("%s, %s: %s: [%s]", t->name, t->last, error.message, chat->constraint->prefill);
    weir_sampler_destroy(sampler);
}

static terms terms_of(const pin_walk *walk, const char *source)
{
    use_model_of(walk->name);
    return (terms){.name = walk->name, .source = source, .goes_on = true, .thinks = true};
}

/* ---- Prompts ---- */

static void test_prompts(void **state)
{
    static const char *const lasts[] = {
        "\"content\":\"One, " END "\"",
        "\"content\":[{\"type\":\"text\",\"text\":\"One, " END "\"}]",
        "\"content\":[{\"type\":\"text\",\"text\":\"One\"},{\"type\":\"text\",\"text\":\"" END "\"}]",
        "\"reasoning_content\":\"Hm.\",\"content\":\"One, " END "\"",
        "\"reasoning_content\":\"Hm. " END "\",\"content\":\"\"",
    };
    size_t n = 0, n_cut[5] = {0};
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk); n++) {
        char *source = pin_template(walk.name);
        terms t = terms_of(&walk, source);
        for (size_t i = 0; i < 5; i++) {
            t.last = lasts[i];
            t.with_tools = false;
            t.thinks = true;
            bool cut = is_finished_cut(&t);
            t.thinks = false;
            cut = is_finished_cut(&t) || cut;
            if (i < 2 && !cut) fail_msg("%s leaves out the text", walk.name);
            n_cut[i] += cut;
            t.with_tools = true;
            if (i % 3 == 0) is_finished_cut(&t);
        }
        free(source);
    }
    print_message("%zu templates: two parts %zu, a text after reasoning %zu, reasoning %zu\n", n, n_cut[2],
                  n_cut[3], n_cut[4]);
    assert_true(n_cut[2] > n / 2 && n_cut[3] > n / 2 && n_cut[4] > 0);
}

/* A message without a text begins as one with a text does. */
static void test_empty(void **state)
{
    static const char *const empty[] = {"\"content\":\"\"", "\"content\":null", "\"content\":[]"};
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        terms t = terms_of(&walk, source);
        t.last = "\"content\":\"" END "\"";
        weir_chat *chat = get_chat(&t);
        const char *prompt = weir_chat_prompt(chat, NULL);
        size_t n = (size_t)(find_end(prompt) - prompt) - strlen(END);
        for (size_t i = 0; i < 3; i++) {
            t.last = empty[i];
            weir_chat *other = get_chat(&t);
            const char *begun = weir_chat_prompt(other, NULL);
            if (strlen(begun) != n || memcmp(begun, prompt, n) != 0)
                fail_msg("%s, %s:\n[%s]\nis not the beginning of\n[%s]", walk.name, t.last, begun, prompt);
            expect_answer(&t, other, "x", "x", WEIR_DELTA_CONTENT);
            weir_chat_release(other);
        }
        weir_chat_release(chat);
        free(source);
    }
}

/* ---- Answers ---- */

/* An answer has nothing of the prompt, and what goes on is of the message's kind. */
static void test_answers(void **state)
{
    (void)state;
    size_t n_reasoning = 0;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        for (int i = 0; i < 4; i++) {
            terms t = terms_of(&walk, source);
            t.thinks = i % 2 == 0;
            t.with_tools = i >= 2;
            t.last = "\"content\":\"One, two\"";
            weir_chat *chat = get_chat(&t);
            if (!chat->calls) expect_answer(&t, chat, "x", "x", WEIR_DELTA_CONTENT);
            if (!chat->calls) expect_answer(&t, chat, ", three\n\nx", ", three\n\nx", WEIR_DELTA_CONTENT);
            weir_chat_release(chat);
            t.last = "\"content\":\"\",\"reasoning_content\":\"Hm\"";
            chat = get_chat(&t);
            char got[256];
            weir_delta_kind kind = WEIR_DELTA_TOOL_CALL;
            read_text(chat, "x", 1, &kind, got);
            const char *prompt = weir_chat_prompt(chat, NULL);
            bool reasons = strlen(prompt) > 2 && strcmp(prompt + strlen(prompt) - 2, "Hm") == 0;
            if (strcmp(got, "x") != 0 || (kind == WEIR_DELTA_REASONING) != reasons)
                fail_msg("%s: after [%s], x is read as [%s] of kind %d", walk.name, prompt, got, (int)kind);
            n_reasoning += reasons;
            weir_chat_release(chat);
        }
        free(source);
    }
    print_message("%zu prompts within reasoning\n", n_reasoning);
    assert_true(n_reasoning > 0);
}

/* An answer that begins a message has nothing of the prompt either: the prompt of some templates ends with
 * space after the reasoning that they leave out, or with words in it. */
static void test_fresh_answers(void **state)
{
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        for (int i = 0; i < 4; i++) {
            weir_chat_params params = weir_chat_params_default();
            weir_message question = {"user", "Add"};
            weir_chat *chat = NULL;
            weir_error error = {0};
            char got[256];
            weir_delta_kind kind;
            params.messages = &question;
            params.n_messages = 1;
            params.template_source = source;
            params.enable_thinking = i % 2 == 0;
            params.tools_json = i >= 2 ? tools : NULL;
            if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK)
                fail_msg("%s: %s", walk.name, error.message);
            for (size_t step = 1; step < 5 && (chat->constraint == NULL || chat->grammar.lazy); step++) {
                bool named = strstr(walk.name, "functionary-medium-v3.2") != NULL;
                read_text(chat, named ? "all\nx y" : "x y", step, &kind, got);
                if (strcmp(got, "x y") != 0)
                    fail_msg("%s, %d: [%s] after [%s]", walk.name, i, got, weir_chat_prompt(chat, NULL));
            }
            weir_chat_release(chat);
        }
        free(source);
    }
}

/* ---- Forms that are enforced ---- */

/* A text that begins an answer of the schema goes on; another one is refused by its place. */
static void test_schemas(void **state)
{
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        for (int i = 0; i < 3; i++) {
            weir_error error = {0};
            terms t = terms_of(&walk, source);
            t.thinks = i != 1;
            t.with_tools = i == 2;
            t.schema = schema;
            t.last = "\"content\":\"{\\\"sum\\\": 1\"";
            weir_chat *chat = get_chat(&t);
            expect_sampler(&t, chat);
            expect_answer(&t, chat, chat->calls ? "2}}" : "2}", "2}", WEIR_DELTA_CONTENT);
            weir_chat_release(chat);
            t.last = "\"content\":\"\"";
            chat = get_chat(&t);
            expect_sampler(&t, chat);
            weir_chat_release(chat);
            t.last = "\"content\":\"Well\"";
            chat = try_chat(&t, &error);
            if (chat != NULL || error.code != WEIR_INVALID || strcmp(error.field, "messages[1].content") != 0)
                fail_msg("%s: [%s] %s", walk.name, error.field, error.message);
        }
        free(source);
    }
}

/* Parsers recurse over brackets, also over those of the text that goes on. */
static void test_many_brackets(void **state)
{
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name), last[4096] = "\"content\":\"";
        size_t n = strlen(last);
        for (int i = 0; i < 2; i++) {
            weir_error error = {0};
            terms t = terms_of(&walk, source);
            size_t brackets = i == 0 ? 1900 : 2100;
            memset(last + n, '[', brackets);
            strcpy(last + n + brackets, "\"");
            t.schema = "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}";
            t.last = last;
            weir_chat *chat = try_chat(&t, &error);
            weir_chat_parser *parser = NULL;
            bool refused = error.code == WEIR_INVALID && strcmp(error.field, "messages[1].content") == 0;
            if (i == 0 && chat != NULL)
                assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
            if (i == 1 && !refused) fail_msg("%s: [%s] %s", walk.name, error.field, error.message);
            weir_chat_parser_destroy(parser);
            weir_chat_release(chat);
        }
        free(source);
    }
}

/* A call may follow the text, or must. In two forms it cannot: a call is another message there, or has a
 * plan before it. */
static void test_calls(void **state)
{
    static const char *const cannot[] = {"openai-gpt-oss-120b", "Cohere2MoE"};
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        for (int i = 0; i < 3; i++) {
            weir_error error = {0};
            terms t = terms_of(&walk, source);
            t.thinks = i != 1;
            t.with_tools = true;
            t.choice = i < 2 ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO;
            t.last = "\"content\":\"Well, " END "\"";
            if (i < 2 && (strcmp(walk.name, cannot[0]) == 0 || strcmp(walk.name, cannot[1]) == 0)) {
                assert_null(try_chat(&t, &error));
                assert_string_equal(error.field, "messages[1].content");
                assert_non_null(strstr(error.message, "tool_choice"));
                continue;
            }
            weir_chat *chat = get_chat(&t);
            const char *prompt = weir_chat_prompt(chat, NULL);
            if (find_end(prompt) != prompt + strlen(prompt)) fail_msg("%s: [%s]", walk.name, prompt);
            expect_sampler(&t, chat);
            if (chat->calls && i == 2) expect_answer(&t, chat, " Yes.\"}", " Yes.", WEIR_DELTA_CONTENT);
            if (chat->calls && i < 2)
                expect_answer(&t, chat, "{\"name\":\"get_weather_map\",\"arguments\":{}}",
                              "get_weather_map{}", WEIR_DELTA_ARGUMENTS);
            weir_chat_release(chat);
        }
        free(source);
    }
}

/* ---- Memory ---- */

static void test_no_memory(void **state)
{
    (void)state;
    pin_walk walk = {.name = "Qwen-Qwen3-0.6B"};
    char *source = pin_template(walk.name);
    if (source == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    terms t = terms_of(&walk, source);
    t.last = "\"content\":\"One\",\"reasoning_content\":\"Hm\"";
    weir_chat_release(get_chat(&t)); /* the cache is then as it will be */
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_chat *chat = try_chat(&t, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (pending != (chat != NULL) || (chat == NULL && error.code != WEIR_NO_MEMORY))
            fail_msg("allocation %ld: %s", n, error.message);
        weir_chat_release(chat);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),   cmocka_unit_test(test_empty),
        cmocka_unit_test(test_answers),   cmocka_unit_test(test_fresh_answers),
        cmocka_unit_test(test_schemas),   cmocka_unit_test(test_calls),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_many_brackets),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
