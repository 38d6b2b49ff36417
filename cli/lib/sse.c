/* sse.c: collects lines, and delivers an event at each empty one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "sse.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static cli_sse_status fail_sse(cli_sse *sse, cli_sse_status status, const char *problem)
{
    sse->problem = problem;
    return sse->status = status;
}

static cli_sse_status refuse_stream(cli_sse *sse, const char *problem)
{
    return fail_sse(sse, CLI_SSE_MALFORMED, problem);
}

static bool is_named(const char *line, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(line, name, n) == 0;
}

/* Adds a data line's value; the lines of one event are apart by newlines. */
static cli_sse_status add_data(cli_sse *sse, const char *value, size_t n)
{
    if (sse->data.n + n + 2 > CLI_SSE_MAX) return refuse_stream(sse, "an event is longer than 1 MiB");
    if ((sse->has_data && !weir__text_add(&sse->data, "\n", 1)) || !weir__text_add(&sse->data, value, n))
        return fail_sse(sse, CLI_SSE_NO_MEMORY, "out of memory");
    sse->has_data = true;
    return CLI_SSE_OK;
}

static cli_sse_status end_event(cli_sse *sse, cli_sse_fn on_event, void *user)
{
    bool dispatch = sse->has_data;
    size_t n = sse->data.n;
    sse->data.n = 0;
    sse->has_data = sse->has_field = false;
    if (dispatch && !on_event(sse->data.bytes, n, user)) return fail_sse(sse, CLI_SSE_LEFT, NULL);
    return CLI_SSE_OK;
}

static cli_sse_status end_line(cli_sse *sse, cli_sse_fn on_event, void *user)
{
    const char *line = sse->line.bytes;
    size_t n = sse->line.n;
    sse->line.n = 0;
    if (!sse->begun && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        n -= 3;
    }
    sse->begun = true;
    if (n == 0) return end_event(sse, on_event, user);
    if (memchr(line, '\0', n) != NULL) return refuse_stream(sse, "a line has a NUL byte");
    if (!weir__utf8_valid(line, n)) return refuse_stream(sse, "a line is not UTF-8");
    if (line[0] == ':') return CLI_SSE_OK;
    const char *colon = memchr(line, ':', n);
    size_t n_name = colon != NULL ? (size_t)(colon - line) : n;
    const char *value = colon != NULL ? colon + 1 : line + n;
    size_t n_value = n - (size_t)(value - line);
    if (n_value > 0 && value[0] == ' ') {
        value++;
        n_value--;
    }
    sse->has_field = true;
    if (is_named(line, n_name, "data")) return add_data(sse, value, n_value);
    if (is_named(line, n_name, "event") || is_named(line, n_name, "id")) return CLI_SSE_OK;
    if (!is_named(line, n_name, "retry"))
        return refuse_stream(sse, "a line is not a field of an event stream");
    for (size_t i = 0; i < n_value; i++)
        if (value[i] < '0' || value[i] > '9') n_value = 0;
    return n_value > 0 ? CLI_SSE_OK : refuse_stream(sse, "retry is not a number");
}

static cli_sse_status add_to_line(cli_sse *sse, const char *bytes, size_t n)
{
    if (sse->line.n + n > CLI_SSE_MAX) return refuse_stream(sse, "a line is longer than 1 MiB");
    return weir__text_add(&sse->line, bytes, n) ? CLI_SSE_OK
                                                : fail_sse(sse, CLI_SSE_NO_MEMORY, "out of memory");
}

cli_sse_status cli_sse_feed(cli_sse *sse, const char *bytes, size_t n, cli_sse_fn on_event, void *user)
{
    for (size_t at = 0; at < n && sse->status == CLI_SSE_OK;) {
        if (sse->after_cr && bytes[at] == '\n') at++;
        sse->after_cr = false;
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r') end++;
        if (add_to_line(sse, bytes + at, end - at) != CLI_SSE_OK) break;
        at = end + 1;
        if (end == n) break;
        sse->after_cr = bytes[end] == '\r';
        end_line(sse, on_event, user);
    }
    return sse->status;
}

bool cli_sse_complete(const cli_sse *sse)
{
    return sse->status == CLI_SSE_OK && sse->line.n == 0 && !sse->has_field;
}

void cli_sse_fini(cli_sse *sse)
{
    weir__text_fini(&sse->line);
    weir__text_fini(&sse->data);
    *sse = (cli_sse){0};
}

/* ---- Events of an answer ---- */

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
