/* chat.c: POST /v1/chat/completions. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "openai.h"
#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/models/loaded.h"

/* always: also where there are none. */
static void add_logprobs(serve_choice *choice, bool always, weir__text *text)
{
    weir__text_add_string(text, ",\"logprobs\":");
    serve_scores_add_chat(&choice->scores, choice->answer->call->loaded->model, always, text);
}

static void begin_message(serve_choice *choice, weir__text *text)
{
    weir__text_printf(text,
                      "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                      "\"finish_reason\":null}",
                      choice->index);
}

/* The call that is being written; NULL: it is a function's. */
static serve_part *custom_call(const serve_choice *choice)
{
    serve_part *part = choice->n_kept > 0 ? &choice->parts[choice->n_kept - 1] : NULL;
    return part != NULL && serve_answer_is_custom(choice->answer, part->name) ? part : NULL;
}

/* A custom tool's name and input, as far as it was generated. */
static void add_custom(const char *name, size_t n, serve_part *part, weir__text *text)
{
    weir__text input = {0};
    size_t at = 0;
    serve_ask_custom_input(&part->text, name != NULL ? &at : &part->n_read, &input);
    weir__text_add_string(text, "\"custom\":{");
    if (name != NULL) weir__json_bytes(text, "name", name, n);
    weir__json_bytes(text, "input", input.bytes, input.n);
    weir__text_add_string(text, "}}");
    text->failed = text->failed || input.failed;
    weir__text_fini(&input);
}

/* False: a piece of a custom tool's arguments that has nothing of its input, such as the JSON around it. Its
 * logprobs and ids come with the next event. */
static bool shows(const serve_choice *choice, const weir_delta *given)
{
    weir__text input = {0};
    if (given->kind != WEIR_DELTA_ARGUMENTS) return true;
    const serve_part *custom = custom_call(choice);
    if (custom == NULL) return true;
    size_t at = custom->n_read;
    serve_ask_custom_input(&custom->text, &at, &input);
    bool any = input.n > 0 || input.failed;
    weir__text_fini(&input);
    return any;
}

/* Adds what comes first of a call, or what follows. */
static void add_call(serve_choice *choice, const weir_delta *given, weir__text *text)
{
    bool first = given->kind == WEIR_DELTA_TOOL_CALL;
    serve_part *custom = custom_call(choice);
    weir__text_printf(text, "\"tool_calls\":[{\"index\":%d", given->index);
    if (first) {
        weir__json_string(text, "id", given->id != NULL ? given->id : "");
        weir__json_string(text, "type", custom != NULL ? "custom" : "function");
    }
    weir__text_add_string(text, ",");
    if (custom != NULL) {
        add_custom(first ? given->text : NULL, given->length, custom, text);
    } else {
        weir__text_add_string(text, "\"function\":{");
        if (first) weir__json_bytes(text, "name", given->text, given->length);
        weir__json_bytes(text, "arguments", first ? "" : given->text, first ? 0 : given->length);
        weir__text_add_string(text, "}}");
    }
    weir__text_add_string(text, "]");
}

static void add_silence(const serve_choice *choice, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d,\"delta\":{},\"logprobs\":null,\"finish_reason\":null}",
                      choice->index);
}

static void add_delta(serve_choice *choice, const weir_delta *given, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d,\"delta\":{", choice->index);
    switch (given->kind) {
    case WEIR_DELTA_CONTENT:
    case WEIR_DELTA_REASONING:
        weir__json_bytes(text, given->kind == WEIR_DELTA_CONTENT ? "content" : "reasoning_content",
                         given->text, given->length);
        break;
    case WEIR_DELTA_TOOL_CALL:
    case WEIR_DELTA_ARGUMENTS: add_call(choice, given, text); break;
    }
    weir__text_add_string(text, "}");
    add_logprobs(choice, false, text);
    serve_openai_add_ids(choice, text);
    weir__text_add_string(text, ",\"finish_reason\":null}");
}

static void end_message(serve_choice *choice, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d,\"delta\":{}", choice->index);
    add_logprobs(choice, false, text);
    serve_openai_add_ids(choice, text);
    serve_openai_add_reason(choice, text);
}

static void whole_message(serve_choice *choice, weir__text *text)
{
    weir__text content = {0}, reasoning = {0};
    size_t n_calls = serve_choice_calls(choice);
    serve_choice_add_text(choice, WEIR_DELTA_CONTENT, &content);
    serve_choice_add_text(choice, WEIR_DELTA_REASONING, &reasoning);
    weir__text_printf(text, "{\"index\":%d,\"message\":{\"role\":\"assistant\"", choice->index);
    if (content.n == 0 && n_calls > 0)
        weir__json_string(text, "content", NULL);
    else
        weir__json_bytes(text, "content", content.bytes, content.n);
    if (reasoning.n > 0) weir__json_bytes(text, "reasoning_content", reasoning.bytes, reasoning.n);
    for (size_t i = 0, n = 0; n < n_calls; i++) {
        serve_part *tool = &choice->parts[i];
        bool custom = serve_answer_is_custom(choice->answer, tool->name);
        if (tool->kind != WEIR_DELTA_TOOL_CALL) continue;
        weir__text_add_string(text, n == 0 ? ",\"tool_calls\":[{" : ",{");
        weir__json_string(text, "id", tool->id);
        weir__json_string(text, "type", custom ? "custom" : "function");
        weir__text_add_string(text, custom ? "," : ",\"function\":{");
        if (custom) {
            add_custom(tool->name, strlen(tool->name), tool, text);
        } else {
            weir__json_string(text, "name", tool->name);
            weir__json_bytes(text, "arguments", tool->text.bytes, tool->text.n);
            weir__text_add_string(text, "}}");
        }
        if (++n == n_calls) weir__text_add_string(text, "]");
    }
    weir__text_add_string(text, ",\"refusal\":null}");
    add_logprobs(choice, choice->answer->returns_scores, text);
    serve_openai_add_ids(choice, text);
    serve_openai_add_reason(choice, text);
    text->failed = text->failed || content.failed || reasoning.failed;
    weir__text_fini(&content);
    weir__text_fini(&reasoning);
}

/* vLLM has them beside the choices. */
static void add_prompt(const serve_answer *answer, weir__text *text)
{
    serve_openai_add_prompt(&answer->choices[0], text);
}

const serve_openai serve_openai_chat = {
    .object = "chat.completion",
    .chunk = "chat.completion.chunk",
    .begin = begin_message,
    .shows = shows,
    .delta = add_delta,
    .silent = add_silence,
    .end = end_message,
    .whole = whole_message,
    .rest = add_prompt,
};

void serve_chat(serve_call *call)
{
    static const serve_dialect dialect = {.where = SERVE_ASK_CHAT, .form = &serve_chat_form};
    serve_ask_converse(call, &dialect);
}
