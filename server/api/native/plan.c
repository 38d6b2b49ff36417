/* plan.c: a request without its answer: POST /v1/plan, its forecast; POST /v1/completions/render and
 * /v1/chat/completions/render, the tokens of its prompt, for routers that look for its prefix.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "native.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/prompts.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/call.h"

/* ---- Forecasts ---- */

static void add_ms(weir__text *text, const char *name, int64_t ns)
{
    weir__json_number(text, name, (double)ns / 1e6, 1);
}

static void answer_plan(const serve_ask *ask, const weir_forecast *forecast)
{
    serve_call *call = ask->call;
    weir__text text = {0};
    weir__text_printf(&text,
                      "{\"object\":\"plan\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"queue_place\":%d",
                      forecast->n_prompt, forecast->n_cached, forecast->queue_place);
    if (ask->n_dropped > 0) weir__text_printf(&text, ",\"dropped_lines\":%d", ask->n_dropped);
    serve_call_add_reshaped(call, ask->reshaped.bytes, &text);
    add_ms(&text, "ttft_ms", forecast->ttft_ns);
    add_ms(&text, "finish_ms", forecast->finish_ns);
    weir__text_printf(&text, ",\"fits\":%s,\"busy\":%s", forecast->fits ? "true" : "false",
                      forecast->busy ? "true" : "false");
    add_ms(&text, "retry_after_ms", forecast->retry_ns);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
}

/* Sets where the request's prompt comes from. False: the call has its answer. */
static bool set_prompt(serve_ask *ask, weir_request *request)
{
    serve_call *call = ask->call;
    if (ask->best_of > 1) { /* n at the least */
        const char *field = ask->n > 1 ? "n" : "best_of";
        return serve_call_refuse(call, 400, field, "invalid_value",
                                 "%s must be 1 or left out: a dry run forecasts one answer", field);
    }
    if (ask->prompt == NULL) return ask->fork != NULL || serve_ask_render(ask, request);
    if (ask->messages != NULL) return serve_field_refuse(call, "prompt", "left out beside messages");
    if (json_string_length(ask->suffix) > 0)
        return serve_field_refuse(call, "suffix", "left out of a dry run");
    if (!json_is_string(ask->prompt)) return serve_field_refuse(call, "prompt", "a string");
    request->text = json_string_value(ask->prompt);
    request->text_length = json_string_length(ask->prompt);
    ask->sampler.json_schema = ask->schema;
    return true;
}

/* The body of a request for chat, or with a prompt that is one string for completions. */
void serve_plan(serve_call *call)
{
    serve_ask ask;
    weir_request request;
    weir_forecast forecast = {.size = sizeof forecast};
    weir_error error = {0};
    if (serve_ask_read(&ask, call, SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS) &&
        serve_ask_request(&ask, &request) && set_prompt(&ask, &request) &&
        serve_call_passes(call, weir_engine_plan_request(call->loaded->engine, &request, &forecast, &error),
                          &error))
        answer_plan(&ask, &forecast);
    serve_ask_fini(&ask);
}

/* ---- Tokens of completions ---- */

static void add_ids(weir__text *text, const int32_t *tokens, size_t n)
{
    weir__json_next(text);
    weir__text_add_string(text, "{\"token_ids\":[");
    for (size_t i = 0; i < n && !text->failed; i++) weir__text_printf(text, i > 0 ? ",%d" : "%d", tokens[i]);
    weir__text_add_string(text, "]}");
}

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

/* ---- Tokens of chats ---- */

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
