/* chat_test.c: neither the analysis of a template nor the forms of answers that it keeps depend on earlier
 * conversations: templates that were used before, beside new ones. And what begins an answer, by definition.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "backend/chat.h"
#include "support/effort.h"
#include "support/pin.h"

#define N_ELEMENTS(a) (sizeof(a) / sizeof *(a))
#define TOOLS         4 /* the first way that has them */
#define WAYS          8

static const char weather[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Weather\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]";

static const char *const conversations[] = {
    "[{\"role\":\"user\",\"content\":\"What is 2 + 2?\"}]",
    "[{\"role\":\"user\",\"content\":\" Hi \"},{\"role\":\"assistant\",\"content\":\"Hello.\"},"
    "{\"role\":\"user\",\"content\":\"<think>\\n\\nWhat is 3?\"}]",
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"\\u00e9\\n\"}]",
    "[{\"role\":\"user\",\"content\":\"Rain?\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
    "\"type\":\"function\",\"id\":\"call12345\",\"function\":{\"name\":\"weather\",\"arguments\":\"{"
    "\\\"city\\\":"
    "\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call12345\",\"content\":\"no\"}]",
};

static const char *const answers[] = {
    "It is 4.",
    " \n4",
    "<think>\nsum</think>\n\n4",
    "sum</think>4",
    "<think>sum",
    "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
    "",
};

static weir__llama_template *template_of(const char *source)
{
    weir__llama_template *t = NULL;
    weir_error error = {0};
    if (weir__llama_template_create(source, "<s>", "</s>", &t, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    return t;
}

/* Four ways, each with tools or without. */
static weir_status create_with(const weir__llama_template *t, const char *messages, int way,
                               const char *tools_json, weir__llama_chat **chat)
{
    weir_error error = {0};
    json_t *given = json_loads(messages, 0, NULL), *args = json_object(),
           *tools = way >= TOOLS ? json_loads(tools_json, 0, NULL) : NULL;
    weir__llama_render in = {
        .messages = given,
        .args = args,
        .tool_choice = WEIR_TOOLS_AUTO,
        .tools = tools,
        .enforced_tools = tools,
        .add_generation_prompt = true,
        .enable_thinking = (way & 1) != 0,
        .parse_reasoning = (way & 2) != 0,
    };
    *chat = NULL;
    weir_status status = weir__llama_chat_create(t, &in, chat, &error);
    json_decref(tools);
    json_decref(args);
    json_decref(given);
    return status;
}

static weir_status create(const weir__llama_template *t, const char *messages, int way,
                          weir__llama_chat **chat)
{
    return create_with(t, messages, way, weather, chat);
}

static void expect_same_answers(const weir__llama_chat *a, const weir__llama_chat *b)
{
    for (size_t i = 0; i < N_ELEMENTS(answers); i++) {
        for (int whole = 0; whole <= 1; whole++) {
            weir__llama_message x = {0}, y = {0};
            weir_error error = {0};
            size_t n = strlen(answers[i]);
            weir_status status = weir__llama_chat_parse(a, answers[i], n, whole, &x, &error);
            assert_int_equal(weir__llama_chat_parse(b, answers[i], n, whole, &y, &error), status);
            if (status == WEIR_OK) {
                assert_int_equal(x.content_length, y.content_length);
                assert_memory_equal(x.content, y.content, x.content_length);
                assert_int_equal(x.reasoning_length, y.reasoning_length);
                assert_memory_equal(x.reasoning, y.reasoning, x.reasoning_length);
                assert_int_equal(x.n_calls, y.n_calls);
                assert_int_equal(x.broken, y.broken);
            }
            weir__llama_message_fini(&x);
            weir__llama_message_fini(&y);
        }
    }
}

static void expect_same(const weir__llama_chat *a, const weir__llama_chat *b)
{
    const weir__llama_rendered x = *weir__llama_chat_rendered(a), y = *weir__llama_chat_rendered(b);
    assert_string_equal(x.prompt, y.prompt);
    assert_string_equal(x.generation_prompt, y.generation_prompt);
    assert_string_equal(x.grammar, y.grammar);
    assert_int_equal(x.lazy, y.lazy);
    assert_int_equal(x.n_triggers, y.n_triggers);
    assert_int_equal(x.n_stops, y.n_stops);
    assert_int_equal(x.n_preserved, y.n_preserved);
    for (size_t i = 0; i < x.n_stops; i++) assert_string_equal(x.stops[i], y.stops[i]);
    for (size_t i = 0; i < x.n_preserved; i++) assert_string_equal(x.preserved[i], y.preserved[i]);
    assert_int_equal(x.form.plain_tail, y.form.plain_tail);
    assert_memory_equal(x.form.breaks, y.form.breaks, sizeof x.form.breaks);
    assert_int_equal(x.form.loose_arguments, y.form.loose_arguments);
    assert_int_equal(x.form.has_ids, y.form.has_ids);
    assert_int_equal(x.form.has_breaks, y.form.has_breaks);
    expect_same_answers(a, b);
}

static void test_earlier_chats_change_nothing(void **state)
{
    size_t n = 0, n_compared = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        weir__llama_template *used = template_of(source);
        for (int way = 0; way < WAYS; way++) {
            weir__llama_chat *chat;
            create(used, conversations[0], way, &chat);
            weir__llama_chat_destroy(chat);
        }
        for (size_t i = 1; i < N_ELEMENTS(conversations); i++) {
            for (int way = 0; way < TOOLS; way++) {
                weir__llama_template *fresh = template_of(source);
                weir__llama_chat *a, *b;
                weir_status status = create(used, conversations[i], way, &a);
                assert_int_equal(create(fresh, conversations[i], way, &b), status);
                if (status == WEIR_OK) expect_same(a, b);
                n_compared += status == WEIR_OK;
                weir__llama_chat_destroy(a);
                weir__llama_chat_destroy(b);
                weir__llama_template_destroy(fresh);
            }
        }
        weir__llama_template_destroy(used);
        free(source);
        n++;
    }
    print_message("%zu templates, %zu conversations\n", n, n_compared);
    assert_true(n > EFFORT(40, 6) && n_compared > n * 2 * TOOLS);
}

#define FUNCTION(name, properties)                                                                           \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\","       \
    "\"properties\":{" properties "},\"required\":[\"city\"]}}}]"
#define CITY "\"city\":{\"type\":\"string\"}"
#define DAYS "\"days\":{\"type\":\"integer\"}"

/* Tools with forms of their own, also by the order of their members: more of them than are kept. */
static const char *const tools[] = {
    FUNCTION("weather", CITY),
    FUNCTION("weather", CITY "," DAYS),
    FUNCTION("weather", DAYS "," CITY),
    FUNCTION("forecast", CITY),
    FUNCTION("weather", "\"city\":{\"type\":\"integer\"}"),
    FUNCTION("weather", "\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}"),
    FUNCTION("weather", "\"city\":{\"type\":[\"string\",\"null\"]}"),
    FUNCTION("rain", CITY),
    FUNCTION("rain", CITY "," DAYS),
    FUNCTION("rain", DAYS "," CITY),
};

/* A chat whose form is just made and one that gets the kept form, both beside one of a new template. */
static void test_kept_forms(void **state)
{
    (void)state;
    char *source = pin_template("Qwen-Qwen3-0.6B");
    if (source == NULL) skip();
    weir__llama_template *used = template_of(source);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N_ELEMENTS(tools); i++) {
            const int way = TOOLS + (int)(i + (size_t)round) % (WAYS - TOOLS);
            const char *messages = conversations[way % 4];
            weir__llama_template *fresh = template_of(source);
            weir__llama_chat *a, *b, *kept;
            assert_int_equal(create_with(used, messages, way, tools[i], &a), WEIR_OK);
            assert_int_equal(create_with(used, messages, way, tools[i], &kept), WEIR_OK);
            assert_int_equal(create_with(fresh, messages, way, tools[i], &b), WEIR_OK);
            assert_true(weir__llama_chat_rendered(a)->grammar[0] != '\0');
            assert_ptr_equal(weir__llama_chat_rendered(kept)->grammar, weir__llama_chat_rendered(a)->grammar);
            expect_same(a, b);
            weir__llama_chat_destroy(a);
            expect_same(kept, b);
            weir__llama_chat_destroy(kept);
            weir__llama_chat_destroy(b);
            weir__llama_template_destroy(fresh);
        }
    }
    weir__llama_template_destroy(used);
    free(source);
}

#define THREADS 4

typedef struct client {
    const weir__llama_template *used;
    weir__llama_chat *chats[N_ELEMENTS(tools)];
} client;

static void *make_chats(void *user)
{
    client *c = user;
    for (size_t i = 0; i < N_ELEMENTS(tools); i++)
        create_with(c->used, conversations[i % 4], TOOLS, tools[i], &c->chats[i]);
    return NULL;
}

/* Threads make and keep the same forms of one template at once. */
static void test_forms_of_many_threads(void **state)
{
    pthread_t threads[THREADS];
    client clients[THREADS], alone = {0};
    (void)state;
    char *source = pin_template("Qwen-Qwen3-0.6B");
    if (source == NULL) skip();
    weir__llama_template *used = template_of(source), *fresh = template_of(source);
    for (size_t i = 0; i < THREADS; i++) {
        clients[i] = (client){.used = used};
        assert_int_equal(pthread_create(&threads[i], NULL, make_chats, &clients[i]), 0);
    }
    alone.used = fresh;
    make_chats(&alone);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t k = 0; k < N_ELEMENTS(tools); k++) {
        assert_non_null(alone.chats[k]);
        for (size_t i = 0; i < THREADS; i++) {
            assert_non_null(clients[i].chats[k]);
            expect_same(clients[i].chats[k], alone.chats[k]);
            weir__llama_chat_destroy(clients[i].chats[k]);
        }
        weir__llama_chat_destroy(alone.chats[k]);
    }
    weir__llama_template_destroy(used);
    weir__llama_template_destroy(fresh);
    free(source);
}

/* Lets the interrupt be asked so often. */
typedef struct patience {
    size_t n_asked, most;
} patience;

static bool asked_enough(void *user)
{
    patience *p = user;
    return ++p->n_asked > p->most;
}

static weir_status create_interrupted(const weir__llama_template *t, const char *tools_json, patience *p)
{
    weir__llama_chat *chat;
    weir_interrupt_set(asked_enough, p);
    weir_status status = create_with(t, conversations[0], TOOLS, tools_json, &chat);
    weir_interrupt_set(NULL, NULL);
    weir__llama_chat_destroy(chat);
    return status;
}

/* Wherever a chat is interrupted, it says so. */
static void test_interrupts(void **state)
{
    char *large = malloc(1 << 14), words[8192];
    patience p = {.most = SIZE_MAX};
    weir__llama_chat *chat;
    (void)state;
    assert_non_null(large);
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    snprintf(large, 1 << 14,
             "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"%s\","
             "\"parameters\":{\"type\":\"object\",\"properties\":{" CITY "}}}}]",
             words);
    weir__llama_template *t = template_of("{% for m in messages %}{{ m.content }}{% endfor %}");
    assert_int_equal(create_with(t, conversations[0], TOOLS, large, &chat), WEIR_OK);
    weir__llama_chat_destroy(chat);
    /* The form is kept now. How often it asks is the same each time. */
    assert_int_equal(create_interrupted(t, large, &p), WEIR_OK);
    const size_t n = p.n_asked;
    assert_true(n > 0);
    for (size_t most = 0; most < n; most++) {
        p = (patience){.most = most};
        assert_int_equal(create_interrupted(t, large, &p), WEIR_ABORTED);
    }
    weir__llama_template_destroy(t);
    free(large);
}

/* A conversation of one message, "Hi", or of another "No" in front of it. */
static void expect_end(const char *source, bool begins, bool two, const char *prompt, const char *beginning)
{
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "Hi"), *args = json_object();
    if (two) json_array_insert_new(messages, 0, json_pack("{s:s,s:s}", "role", "user", "content", "No"));
    weir__llama_template *t = template_of(source);
    weir__llama_chat *chat = NULL;
    weir_error error = {0};
    const weir__llama_render in = {
        .messages = messages, .args = args, .add_generation_prompt = begins, .parse_reasoning = true};
    if (weir__llama_chat_create(t, &in, &chat, &error) != WEIR_OK) fail_msg("%s: %s", source, error.message);
    assert_string_equal(weir__llama_chat_rendered(chat)->prompt, prompt);
    assert_string_equal(weir__llama_chat_rendered(chat)->generation_prompt, beginning);
    weir__llama_chat_destroy(chat);
    weir__llama_template_destroy(t);
    json_decref(args);
    json_decref(messages);
}

/* The prompt with what begins the answer, and the one without. The beginning is what the first has behind
 * all that both have, whatever the template's end changes. */
static void test_beginnings_of_answers(void **state)
{
    static const struct {
        const char *source, *with, *without, *beginning;
    } all[] = {
        {"{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
         "[Hi]A:", "[Hi]", "A:"},
        {"{{ messages[0].content }}", "Hi", "Hi", ""},
        {"{% if add_generation_prompt %}+{% endif %}{{ messages[0].content }}", "+Hi", "Hi", "+Hi"},
        {"{% set ns = namespace(n=0) %}{{ messages[0].content }}{% if add_generation_prompt %}"
         "{% set ns.n = 1 %}{% endif %}{{ ns.n }}",
         "Hi1", "Hi0", "1"},
        {"{% set l = [] %}{{ messages[0].content }}{% if add_generation_prompt %}{% set x = l.append(1) %}"
         "{% endif %}{{ l | length }}",
         "Hi1", "Hi0", "1"},
        {"{% set l = [1, 2] %}{{ messages[0].content }}{% if add_generation_prompt %}{% set x = l.pop() %}"
         "{% endif %}{{ l | length }}",
         "Hi1", "Hi2", "1"},
        {"{% macro m() %}{{ x }}{% endmacro %}{{ messages[0].content }}"
         "{% set x = 'b' if add_generation_prompt else 'a' %}{{ m() }}",
         "Hib", "Hia", "b"},
        {"{% macro m() %}{{ 'G' if add_generation_prompt else '' }}{% endmacro %}{{ messages[0].content }}"
         "{{ m() }}",
         "HiG", "Hi", "G"},
    };
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(all); i++) {
        expect_end(all[i].source, true, false, all[i].with, all[i].beginning);
        expect_end(all[i].source, false, false, all[i].without, all[i].beginning);
    }
}

#define TAKES(call)                                                                                          \
    "{% if not messages %}{{ raise_exception('none') }}{% endif %}{% if messages[-1].content == 'Hi' %}"     \
    "[{{ " call ".content }}]{% endif %}{% if add_generation_prompt %}A:{% endif %}"

/* A template that takes a message from the conversation's list finds it again for the second text. */
static void test_beginnings_behind_pop(void **state)
{
    static const char *const all[] = {
        TAKES("messages.pop()"),
        TAKES("messages.pop(-1)"),
        TAKES("messages['po' ~ 'p']()"),
        TAKES("messages['po' ~ 'p'] ()"),
        "{% set g = add_generation_prompt %}" TAKES("messages['po' ~ 'p']()"),
    };
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(all); i++) {
        for (int two = 0; two <= 1; two++) {
            expect_end(all[i], true, two, "[Hi]A:", "A:");
            expect_end(all[i], false, two, "[Hi]", "A:");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_earlier_chats_change_nothing),
        cmocka_unit_test(test_kept_forms),
        cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_beginnings_of_answers),
        cmocka_unit_test(test_beginnings_behind_pop),
    };
    const struct CMUnitTest of_threads[] = {cmocka_unit_test(test_forms_of_many_threads)};
    int failed = EFFORT_RACES ? 0 : cmocka_run_group_tests_name("llama_chat", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("llama_chat_threads", of_threads, NULL, NULL);
}
