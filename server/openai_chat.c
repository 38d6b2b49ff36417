/* openai_chat.c: POST /v1/chat/completions. SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "loaded.h"
#include "openai.h"

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
        weir__text_printf(text, "\"tool_calls\":[{\"index\":%d", given->index);
        weir__json_string(text, "id", given->id != NULL ? given->id : "");
        weir__text_add_string(text, ",\"type\":\"function\",\"function\":{");
        weir__json_bytes(text, "name", given->text, given->length);
        weir__text_add_string(text, ",\"arguments\":\"\"}}]");
        break;
    case WEIR_DELTA_ARGUMENTS:
        weir__text_printf(text, "\"tool_calls\":[{\"index\":%d,\"function\":{", given->index);
        weir__json_bytes(text, "arguments", given->text, given->length);
        weir__text_add_string(text, "}}]");
        break;
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
        const serve_part *tool = &choice->parts[i];
        if (tool->kind != WEIR_DELTA_TOOL_CALL) continue;
        weir__text_add_string(text, n == 0 ? ",\"tool_calls\":[{" : ",{");
        weir__json_string(text, "id", tool->id);
        weir__text_add_string(text, ",\"type\":\"function\",\"function\":{");
        weir__json_string(text, "name", tool->name);
        weir__json_bytes(text, "arguments", tool->text.bytes, tool->text.n);
        weir__text_add_string(text, ++n == n_calls ? "}}]" : "}}");
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
static void rest(const serve_answer *answer, weir__text *text)
{
    serve_openai_add_prompt(&answer->choices[0], text);
}

const serve_openai serve_openai_chat = {
    .object = "chat.completion",
    .chunk = "chat.completion.chunk",
    .begin = begin_message,
    .delta = add_delta,
    .silent = add_silence,
    .end = end_message,
    .whole = whole_message,
    .rest = rest,
};

void serve_chat(serve_call *call)
{
    static const serve_dialect dialect = {.where = SERVE_ASK_CHAT, .form = &serve_chat_form};
    serve_ask_converse(call, &dialect);
}
