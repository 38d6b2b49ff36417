/* end_test.c: calls are read whatever text the model's end token has: each of the pin's templates with
 * one and without, and an answer that the template itself wrote.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/chat.h"
#include "support/effort.h"
#include "support/pin.h"

#define END "</s>"

static const char weather[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Weather\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]";
static const char question[] = "{\"role\":\"user\",\"content\":\"Rain?\"}";
static const char call[] = "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
                           "\"id\":\"call12345\",\"function\":{\"name\":\"weather\",\"arguments\":"
                           "\"{\\\"city\\\":\\\"Rome\\\"}\"}}]}";

static weir__llama_template *template_of(const char *source, const char *end)
{
    weir__llama_template *t = NULL;
    weir_error error = {0};
    if (weir__llama_template_create(source, "<s>", end, &t, &error) != WEIR_OK) fail_msg("%s", error.message);
    return t;
}

static weir__llama_chat *create(const weir__llama_template *t, bool called)
{
    char text[512];
    snprintf(text, sizeof text, "[%s%s%s]", question, called ? "," : "", called ? call : "");
    json_t *messages = json_loads(text, 0, NULL), *args = json_object(),
           *tools = json_loads(weather, 0, NULL);
    weir_error error = {0};
    weir__llama_chat *chat = NULL;
    const weir__llama_render in = {
        .messages = messages,
        .args = args,
        .tool_choice = WEIR_TOOLS_AUTO,
        .tools = tools,
        .enforced_tools = tools,
        .add_generation_prompt = !called,
        .parse_reasoning = true,
    };
    if (weir__llama_chat_create(t, &in, &chat, &error) != WEIR_OK) chat = NULL;
    json_decref(tools);
    json_decref(args);
    json_decref(messages);
    return chat;
}

/* The answer that the template writes as that call, in memory of *answered; NULL: its prompts do not show. */
static char *answer_of(const weir__llama_template *t)
{
    weir__llama_chat *asked = create(t, false), *answered = create(t, true);
    char *answer = NULL;
    if (asked != NULL && answered != NULL) {
        const weir__llama_rendered *a = weir__llama_chat_rendered(asked),
                                   *b = weir__llama_chat_rendered(answered);
        if (strncmp(a->prompt, b->prompt, a->prompt_length) == 0)
            answer = strdup(b->prompt + a->prompt_length);
    }
    weir__llama_chat_destroy(asked);
    weir__llama_chat_destroy(answered);
    return answer;
}

/* The calls that are read; whole: the last one is the call above, and has its id if the answer has it. */
static size_t read_calls(const weir__llama_template *t, const char *answer, bool *whole)
{
    weir__llama_chat *chat = create(t, false);
    weir__llama_message message = {0};
    weir_error error = {0};
    size_t n = 0;
    *whole = false;
    if (weir__llama_chat_parse(chat, answer, strlen(answer), false, &message, &error) == WEIR_OK) {
        n = message.n_calls;
        const weir__llama_call *last = n > 0 ? &message.calls[n - 1] : NULL;
        *whole =
            n == 1 && strncmp(last->name, "weather", last->name_length) == 0 &&
            strstr(last->arguments, "Rome") != NULL &&
            (strstr(answer, "call12345") == NULL || strncmp(last->id, "call12345", last->id_length) == 0);
    }
    weir__llama_message_fini(&message);
    weir__llama_chat_destroy(chat);
    return n;
}

static void test_calls_are_read_with_any_end(void **state)
{
    size_t n = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        weir__llama_template *with = template_of(source, END), *without = template_of(source, "");
        char *answer = answer_of(without);
        if (answer != NULL) {
            bool whole_with, whole_without;
            size_t a = read_calls(without, answer, &whole_without), b = read_calls(with, answer, &whole_with);
            if (a != b || whole_with < whole_without)
                fail_msg("%s: %zu and %zu calls in: %s", walk.name, a, b, answer);
            n += whole_with;
        }
        free(answer);
        weir__llama_template_destroy(without);
        weir__llama_template_destroy(with);
        free(source);
    }
    print_message("%zu templates\n", n);
    assert_true(n > EFFORT(10, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls_are_read_with_any_end)};
    return cmocka_run_group_tests_name("llama_end", tests, NULL, NULL);
}
