/* call_trace.c: a call and its answer as spans, when the call ends. SPDX-License-Identifier: Apache-2.0
 *
 * The request has a span, each choice one for its generation, by OpenTelemetry's conventions for generative
 * AI, and within that its time in the queue, its prompt, its tokens and its calls of tools. The counts and
 * times are those of the log. No span has a text of the prompt or the answer, nor the name of a tool, nor an
 * id with which an answer can be resumed. */
#include "call_trace.h"

#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "base/clock.h"
#include "server/request/call.h"
#include "server/request/mask.h"

#define CHOICES_MAX 16 /* of an answer; the other ones have no spans */

/* A choice's times on the monotonic clock. */
typedef struct times {
    int64_t submit_ns, slot_ns, first_ns, end_ns; /* first_ns = 0: no token came */
} times;

static times times_of(const serve_answer *answer, const weir_usage *usage, int64_t now_ns)
{
    times t = {.submit_ns = answer->submitted_ns};
    t.slot_ns = t.submit_ns + usage->queue_ns;
    t.end_ns = t.submit_ns + usage->total_ns;
    if (t.end_ns > now_ns) t.end_ns = now_ns;
    if (t.slot_ns > t.end_ns) t.slot_ns = t.end_ns;
    if (usage->ttft_ns == 0) return t;
    t.first_ns = t.submit_ns + usage->ttft_ns;
    if (t.first_ns < t.slot_ns) t.first_ns = t.slot_ns;
    if (t.first_ns > t.end_ns) t.first_ns = t.end_ns;
    return t;
}

/* The words of OpenAI, as far as it has any. */
static const char *finish_reason(const serve_choice *choice)
{
    if (!choice->finished) return "left";
    if (serve_choice_ended_with_calls(choice)) return "tool_calls";
    const bool stops = choice->reason == WEIR_REASON_END || choice->reason == WEIR_REASON_STOP_WORDS;
    return stops ? "stop" : weir_reason_name(choice->reason);
}

/* Children of the request: an answer that is sent as a whole is read after its generation. */
static void add_calls(serve_call *call)
{
    size_t n;
    const serve_trace_call *calls = serve_trace_calls(call->trace, &n);
    for (size_t i = 0; i < n; i++) {
        if (!serve_span_begin(call->trace, "tool parse", SERVE_SPAN_INTERNAL, NULL, NULL, calls[i].from_ns,
                              calls[i].to_ns))
            return;
        serve_span_int(call->trace, "weir.choice.index", calls[i].choice);
        serve_span_int(call->trace, "weir.tool_call.index", calls[i].number);
        serve_span_int(call->trace, "weir.tool_call.argument_bytes", (int64_t)calls[i].n_bytes);
        serve_span_end(call->trace);
    }
}

/* The parts of a generation. */
static void add_parts(serve_call *call, const times *t, const weir_usage *usage, const char *parent)
{
    serve_trace *trace = call->trace;
    if (serve_span_begin(trace, "queue", SERVE_SPAN_INTERNAL, NULL, parent, t->submit_ns, t->slot_ns))
        serve_span_end(trace);
    if (t->slot_ns == t->end_ns && t->first_ns == 0) return; /* it got no slot */
    if (serve_span_begin(trace, "prefill", SERVE_SPAN_INTERNAL, NULL, parent, t->slot_ns,
                         t->first_ns != 0 ? t->first_ns : t->end_ns)) {
        serve_span_int(trace, "weir.prompt_tokens.computed", usage->n_prompt - usage->n_cached);
        serve_span_end(trace);
    }
    if (t->first_ns == 0) return;
    if (serve_span_begin(trace, "decode", SERVE_SPAN_INTERNAL, NULL, parent, t->first_ns, t->end_ns)) {
        if (usage->n_drafted > 0) {
            serve_span_int(trace, "weir.draft_tokens", usage->n_drafted);
            serve_span_int(trace, "weir.draft_tokens.accepted", usage->n_accepted);
        }
        serve_span_end(trace);
    }
}

static void add_counts(serve_trace *trace, const weir_usage *usage)
{
    serve_span_int(trace, "gen_ai.usage.input_tokens", usage->n_prompt);
    serve_span_int(trace, "gen_ai.usage.cache_read.input_tokens", usage->n_cached);
    serve_span_int(trace, "gen_ai.usage.output_tokens", usage->n_generated);
    if (usage->n_reasoning > 0)
        serve_span_int(trace, "gen_ai.usage.reasoning.output_tokens", usage->n_reasoning);
    if (usage->ttft_ns > 0)
        serve_span_number(trace, "gen_ai.response.time_to_first_chunk", (double)usage->ttft_ns / 1e9);
}

/* Adds what a client gave, of this capacity, as the log has it. */
static void add_given(serve_trace *trace, const char *key, const char *given, size_t capacity)
{
    char shown[256];
    snprintf(shown, sizeof shown, "%s", given);
    serve_mask_ids(shown, capacity);
    serve_span_text(trace, key, shown);
}

static void add_choice(serve_call *call, const serve_choice *choice, int64_t now_ns)
{
    const serve_answer *answer = call->answer;
    const char *operation = answer->chats ? "chat" : "text_completion";
    const weir_usage usage = choice->finished ? choice->usage : weir_stream_usage(choice->stream);
    const times t = times_of(answer, &usage, now_ns);
    char name[300], id[SERVE_SPAN_ID + 1];
    snprintf(name, sizeof name, "%s %s", operation, answer->model);
    if (!serve_span_make(id) ||
        !serve_span_begin(call->trace, name, SERVE_SPAN_INTERNAL, id, NULL, t.submit_ns, t.end_ns))
        return;
    const char *reason = finish_reason(choice);
    serve_span_text(call->trace, "gen_ai.operation.name", operation);
    serve_span_text(call->trace, "gen_ai.provider.name", "weir");
    if (call->asked[0] != '\0')
        add_given(call->trace, "gen_ai.request.model", call->asked, sizeof call->asked);
    else
        serve_span_text(call->trace, "gen_ai.request.model", answer->model);
    serve_span_text(call->trace, "gen_ai.response.model", answer->model);
    serve_span_flag(call->trace, "gen_ai.request.stream", answer->stream);
    if (answer->n > 1) serve_span_int(call->trace, "gen_ai.request.choice.count", answer->n);
    add_counts(call->trace, &usage);
    serve_span_texts(call->trace, "gen_ai.response.finish_reasons", &reason, 1);
    if (serve_choice_failed(choice)) {
        serve_span_text(call->trace, "error.type", weir_status_name(choice->error.code));
        serve_span_fail(call->trace);
    }
    if (t.first_ns != 0) serve_span_event(call->trace, "first token", t.first_ns);
    serve_span_end(call->trace);
    add_parts(call, &t, &usage, id);
}

static void add_request(serve_call *call, int64_t now_ns)
{
    serve_trace *trace = call->trace;
    const int status = serve_call_status(call);
    char name[300], text[16];
    snprintf(name, sizeof name, "%s %s", call->method, call->path);
    if (!serve_span_begin_own(trace, name, call->began_ns, now_ns)) return;
    serve_span_text(trace, "http.request.method", call->method);
    serve_span_text(trace, "http.route", call->path);
    serve_span_text(trace, "url.path", call->path);
    serve_span_text(trace, "url.scheme", call->server->params.tls_cert != NULL ? "https" : "http");
    if (status > 0) serve_span_int(trace, "http.response.status_code", status);
    if (call->agent[0] != '\0') add_given(trace, "user_agent.original", call->agent, sizeof call->agent);
    serve_span_text(trace, "weir.request.id", call->id);
    if (call->load_ns > 0) serve_span_number(trace, "weir.model.load_seconds", (double)call->load_ns / 1e9);
    if (call->left) serve_span_flag(trace, "weir.client.left", true);
    if (status >= 500) {
        snprintf(text, sizeof text, "%d", status);
        serve_span_text(trace, "error.type", call->code != NULL ? call->code : text);
        serve_span_fail(trace);
    }
    serve_span_end(trace);
}

void serve_call_trace(serve_call *call)
{
    if (serve_trace_is_sampled(call->trace)) {
        const int64_t now_ns = weir__clock_now_ns();
        add_request(call, now_ns);
        const serve_answer *answer = call->answer;
        for (int32_t i = 0; answer != NULL && answer->submitted_ns != 0 && i < answer->n && i < CHOICES_MAX;
             i++)
            if (answer->choices[i].finished || answer->choices[i].stream != NULL)
                add_choice(call, &answer->choices[i], now_ns);
        add_calls(call);
    }
    serve_trace_end(call->trace);
    call->trace = NULL;
}
