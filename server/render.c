/* render.c: POST /v1/completions/render and /v1/chat/completions/render: the tokens of a prompt, for routers
 * that look for its prefix. SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "base/mem.h"
#include "field.h"
#include "fim.h"

#define PROMPTS_MAX 128 /* of one request */

static void add_ids(weir__text *text, const int32_t *tokens, size_t n)
{
    weir__json_next(text);
    weir__text_add_string(text, "{\"token_ids\":[");
    for (size_t i = 0; i < n && !text->failed; i++) weir__text_printf(text, i > 0 ? ",%d" : "%d", tokens[i]);
    weir__text_add_string(text, "]}");
}

/* ---- Completions ---- */

static bool add_prompt(serve_call *call, void *to, const char *name, const json_t *value)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    weir_error error = {0};
    bool ok =
        json_is_array(value)
            ? serve_call_read_ids(call, name, value, &tokens, &n)
            : serve_call_passes(
                  call, serve_tokens_of(call->loaded->model, value, true, true, &tokens, &n, &error), &error);
    if (ok) add_ids(to, tokens, n);
    weir__mem_free(tokens);
    return ok;
}

static bool add_infill(const serve_ask *ask, weir__text *text)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    if (!json_is_string(ask->prompt))
        return serve_field_refuse(ask->call, "prompt", "a string beside suffix");
    bool ok = serve_fim_make(ask->call, "suffix", ask->prompt, NULL, ask->suffix, NULL, &tokens, &n);
    if (ok) add_ids(text, tokens, n);
    weir__mem_free(tokens);
    return ok;
}

static bool add_prompts(serve_ask *ask, weir__text *text)
{
    if (json_string_length(ask->suffix) > 0) return add_infill(ask, text);
    return serve_field_texts(ask->call, "prompt", ask->prompt, PROMPTS_MAX, add_prompt, text);
}

void serve_render_completions(serve_call *call)
{
    serve_ask ask;
    weir__text text = {.quota = &call->server->answers};
    weir__text_add_string(&text, "[");
    if (serve_ask_read(&ask, call, SERVE_ASK_COMPLETIONS) &&
        (ask.fork == NULL || serve_field_refuse(call, "fork", "left out: it has no prompt")) &&
        add_prompts(&ask, &text)) {
        weir__text_add_string(&text, "]\n");
        serve_call_answer_text(call, 200, "application/json", &text);
    }
    weir__text_fini(&text);
    serve_ask_fini(&ask);
}

/* ---- Chats ---- */

static bool add_chat(serve_ask *ask, weir__text *text)
{
    weir_error error = {0};
    int32_t *tokens = NULL;
    size_t n = 0, capacity = 0, guess = 256;
    weir_status status = WEIR_TOO_LONG;
    for (; status == WEIR_TOO_LONG && guess > capacity; guess = n)
        status = weir__mem_grow(&tokens, &capacity, guess, sizeof *tokens)
                     ? weir_chat_tokenize(ask->rendered, tokens, capacity, &n, &error)
                     : WEIR_NO_MEMORY;
    bool ok = serve_call_passes(ask->call, status, &error);
    if (ok) add_ids(text, tokens, n);
    weir__mem_free(tokens);
    return ok;
}

void serve_render_chat(serve_call *call)
{
    serve_ask ask;
    weir_request request;
    weir__text text = {.quota = &call->server->answers};
    if (serve_ask_read(&ask, call, SERVE_ASK_CHAT) && serve_ask_request(&ask, &request) &&
        (ask.fork == NULL || serve_field_refuse(call, "fork", "left out: it has no prompt")) &&
        serve_ask_render(&ask, &request) &&
        (ask.n_media == 0 || serve_field_refuse(call, "messages", "without images and sounds here")) &&
        add_chat(&ask, &text)) {
        weir__text_add_string(&text, "\n");
        serve_call_answer_text(call, 200, "application/json", &text);
    }
    weir__text_fini(&text);
    serve_ask_fini(&ask);
}
