/* render.c: POST /v1/completions/render and /v1/chat/completions/render: the tokens of a prompt, for routers
 * that look for its prefix. SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "native.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/prompts.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/call.h"

static void add_ids(weir__text *text, const int32_t *tokens, size_t n)
{
    weir__json_next(text);
    weir__text_add_string(text, "{\"token_ids\":[");
    for (size_t i = 0; i < n && !text->failed; i++) weir__text_printf(text, i > 0 ? ",%d" : "%d", tokens[i]);
    weir__text_add_string(text, "]}");
}

/* ---- Completions ---- */

static bool add_prompt(serve_call *call, serve_prompt *one, weir__text *text)
{
    weir_error error = {0};
    weir_status status = WEIR_OK;
    if (one->text != NULL)
        status = serve_tokens_of(call->loaded, one->text, true, true, &one->tokens, &one->n, &error);
    if (!serve_call_passes(call, status, &error)) return false;
    add_ids(text, one->tokens, one->n);
    return true;
}

static bool add_prompts(serve_ask *ask, weir__text *text)
{
    serve_prompts list = {0};
    bool ok = serve_prompts_read(ask, &list);
    for (size_t i = 0; ok && i < list.n; i++) ok = add_prompt(ask->call, &list.all[i], text);
    serve_prompts_fini(&list);
    return ok;
}

void serve_render_completions(serve_call *call)
{
    serve_ask ask;
    weir__text text = {.quota = &call->answers};
    weir__text_add_string(&text, "[");
    if (serve_ask_read(&ask, call, SERVE_ASK_COMPLETIONS) &&
        (ask.fork == NULL || serve_field_refuse(call, "fork", "left out: it has no prompt")) &&
        add_prompts(&ask, &text)) {
        weir__text_add_string(&text, "]");
        serve_call_answer_json(call, &text);
    }
    weir__text_fini(&text);
    serve_ask_fini(&ask);
}

/* ---- Chats ---- */

static bool add_chat(serve_ask *ask, weir__text *text)
{
    weir_error error = {0};
    int32_t *tokens = NULL;
    size_t n = 0;
    const weir_request request = {.chat = ask->rendered};
    weir_status status = serve_tokens_of_prompt(ask->call->loaded, &request, &tokens, &n, &error);
    bool ok = serve_call_passes(ask->call, status, &error);
    if (ok) add_ids(text, tokens, n);
    weir__mem_free(tokens);
    return ok;
}

void serve_render_chat(serve_call *call)
{
    serve_ask ask;
    weir_request request;
    weir__text text = {.quota = &call->answers};
    if (serve_ask_read(&ask, call, SERVE_ASK_CHAT) && serve_ask_request(&ask, &request) &&
        (ask.fork == NULL || serve_field_refuse(call, "fork", "left out: it has no prompt")) &&
        serve_ask_render(&ask, &request) &&
        (ask.n_media == 0 || serve_field_refuse(call, "messages", "without images and sounds here")) &&
        add_chat(&ask, &text)) {
        serve_call_answer_json(call, &text);
    }
    weir__text_fini(&text);
    serve_ask_fini(&ask);
}
