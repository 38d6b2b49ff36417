/* plan.c: POST /v1/plan: a forecast for a request, without starting it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "native.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

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
