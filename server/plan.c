/* plan.c: POST /v1/plan: what would become of a request, without starting it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "base/clock.h"

static void add_ms(weir__text *text, const char *name, int64_t ns)
{
    weir__json_number(text, name, (double)ns / 1e6, 1);
}

static void tell(serve_call *call, const weir_forecast *forecast)
{
    weir__text text = {0};
    weir__text_printf(&text,
                      "{\"object\":\"plan\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"queue_place\":%d",
                      forecast->n_prompt, forecast->n_cached, forecast->queue_place);
    add_ms(&text, "ttft_ms", forecast->ttft_ns);
    add_ms(&text, "finish_ms", forecast->finish_ns);
    weir__text_printf(&text, ",\"fits\":%s,\"busy\":%s", forecast->fits ? "true" : "false",
                      forecast->busy ? "true" : "false");
    add_ms(&text, "retry_after_ms", forecast->retry_ns);
    weir__text_add_string(&text, "}\n");
    serve_call_answer_text(call, 200, "application/json", &text);
}

/* The body of a request for chat, or with a prompt that is one string for completions. */
void serve_plan(serve_call *call)
{
    serve_ask ask;
    weir_request request;
    weir_forecast forecast = {.size = sizeof forecast};
    weir_error error = {0};
    weir_chat *chat = NULL;
    char salt[SERVE_SALT_MAX];
    serve_kept_choice source = {0};
    if (!serve_ask_read(&ask, call, SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS)) goto out;
    if (ask.best_of > 1) { /* n at the least */
        const char *field = ask.n > 1 ? "n" : "best_of";
        serve_call_refuse(call, 400, field, "invalid_value",
                          "%s must be 1 or left out: a dry run tells of one answer", field);
        goto out;
    }
    serve_ask_request(&ask, call, salt, &request);
    if (ask.fork != NULL) {
        if (!serve_ask_fork(&ask, call, salt, &request, &source)) goto out;
    } else if (ask.prompt != NULL && ask.messages != NULL) {
        serve_call_refuse(call, 400, "prompt", "invalid_value", "prompt must be left out beside messages");
        goto out;
    } else if (ask.prompt != NULL) {
        if (!json_is_string(ask.prompt)) {
            serve_call_refuse(call, 400, "prompt", "invalid_value", "prompt must be a string");
            goto out;
        }
        request.text = json_string_value(ask.prompt);
        request.text_length = json_string_length(ask.prompt);
        ask.sampler.json_schema = ask.schema;
    } else if ((chat = serve_ask_render(&ask, call)) == NULL) {
        goto out;
    }
    request.chat = chat;
    weir_status status = weir_engine_plan_request(call->server->engine, &request, &forecast, &error);
    error.code = status;
    if (status == WEIR_OK)
        tell(call, &forecast);
    else
        serve_call_refuse_error(call, &error);
out:
    serve_kept_choice_fini(&source);
    weir_chat_release(chat);
    serve_ask_fini(&ask);
}
