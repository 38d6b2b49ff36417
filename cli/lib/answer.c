/* answer.c: reads the members of an event that weir uses, and refuses those of another kind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* The largest count that is believed: no context is longer. */
#define COUNT_MAX (INT64_C(1) << 40)

static void refuse_answer(cli_answer *answer, const char *problem)
{
    answer->kind = CLI_ANSWER_MALFORMED;
    snprintf(answer->message, sizeof answer->message, "%s", problem);
}

static bool read_count(const json_t *object, const char *key, int64_t *value)
{
    const json_t *member = json_object_get(object, key);
    if (!json_is_integer(member) || json_integer_value(member) < 0 || json_integer_value(member) > COUNT_MAX)
        return false;
    *value = json_integer_value(member);
    return true;
}

static void read_usage(cli_answer *answer, const json_t *usage)
{
    if (usage == NULL || json_is_null(usage)) return;
    if (!json_is_object(usage) || !read_count(usage, "prompt_tokens", &answer->n_prompt) ||
        !read_count(usage, "completion_tokens", &answer->n_generated)) {
        refuse_answer(answer, "usage has no prompt_tokens and completion_tokens");
        return;
    }
    answer->has_usage = true;
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    if (!read_count(details, "cached_tokens", &answer->n_cached)) answer->n_cached = -1;
}

/* Keeps a text member if there is one; null is none. False: it is of another kind. */
static bool take_text(cli_answer *answer, const json_t *object, const char *key)
{
    const json_t *text = json_object_get(object, key);
    if (text == NULL || json_is_null(text)) return true;
    if (!json_is_string(text)) return false;
    if (json_string_length(text) == 0) return true;
    answer->text = json_string_value(text);
    answer->n_text = json_string_length(text);
    return true;
}

static bool take_calls(cli_answer *answer, const json_t *delta)
{
    const json_t *calls = json_object_get(delta, "tool_calls");
    if (calls == NULL || json_is_null(calls)) return true;
    if (!json_is_array(calls)) return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        if (!take_text(answer, function, "name") || !take_text(answer, function, "arguments")) return false;
    }
    return true;
}

static void read_choice(cli_answer *answer, const json_t *choice, bool plain)
{
    const json_t *finish = json_object_get(choice, "finish_reason");
    const json_t *delta = plain ? choice : json_object_get(choice, "delta");
    if (!json_is_object(choice) || !json_is_object(delta)) {
        refuse_answer(answer, plain ? "a choice is not an object" : "a choice has no delta");
        return;
    }
    bool good = plain ? take_text(answer, delta, "text")
                      : take_calls(answer, delta) && take_text(answer, delta, "reasoning_content") &&
                            take_text(answer, delta, "content");
    if (!good)
        refuse_answer(answer, "a choice's text is not a string");
    else if (finish != NULL && !json_is_null(finish) && !json_is_string(finish))
        refuse_answer(answer, "finish_reason is not a string");
    else
        answer->finish = json_string_value(finish);
}

static void error_text(const json_t *error, char *text, size_t capacity)
{
    const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
    if (json_is_string(message))
        weir__utf8_copy(text, capacity, json_string_value(message), json_string_length(message));
    else
        snprintf(text, capacity, "an error without a message");
}

void cli_answer_read(cli_answer *answer, const char *data, size_t length, bool plain)
{
    *answer = (cli_answer){.n_cached = -1};
    if (length == 6 && memcmp(data, "[DONE]", 6) == 0) {
        answer->kind = CLI_ANSWER_DONE;
        return;
    }
    json_error_t problem;
    json_t *root = answer->root = json_loadb(data, length, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(root)) {
        refuse_answer(answer,
                      root == NULL ? "an event's data is not JSON" : "an event's data is not an object");
        return;
    }
    const json_t *error = json_object_get(root, "error"), *choices = json_object_get(root, "choices");
    if (error != NULL && !json_is_null(error)) {
        answer->kind = CLI_ANSWER_ERROR;
        error_text(error, answer->message, sizeof answer->message);
        return;
    }
    if (!json_is_array(choices)) {
        refuse_answer(answer, "an event has no choices");
        return;
    }
    if (json_array_size(choices) > 1) {
        refuse_answer(answer, "an event has more choices than the one that was asked for");
        return;
    }
    if (json_array_size(choices) == 1) read_choice(answer, json_array_get(choices, 0), plain);
    if (answer->kind == CLI_ANSWER_PIECE) read_usage(answer, json_object_get(root, "usage"));
}

void cli_answer_fini(cli_answer *answer)
{
    json_decref(answer->root);
    *answer = (cli_answer){0};
}

void cli_answer_error_text(const char *body, size_t length, char *text, size_t capacity)
{
    json_error_t problem;
    json_t *root = json_loadb(body, length, 0, &problem);
    const json_t *error = json_object_get(root, "error");
    if (error != NULL)
        error_text(error, text, capacity);
    else
        weir__utf8_copy(text, capacity, body, length);
    json_decref(root);
}
