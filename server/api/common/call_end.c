/* call_end.c: the end of a call: its line in the log, and all that it held; the end of a resumable stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call_end.h"

#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "call_trace.h"
#include "lease.h"
#include "server/access/keys.h"
#include "server/models/model.h"
#include "server/models/pull.h"
#include "server/request/call.h"
#include "server/request/mask.h"
#include "server/request/workers.h"
#include "server/system/log.h"
#include "tape.h"

/* ---- The log. Prompts and answers only if asked for ---- */

#define TEXT_MAX 65536 /* of a body, with log_text */

static void add_answer(weir__text *line, const serve_answer *answer)
{
    bool shows = answer->call->server->params.log_text;
    if (answer->n_dropped > 0) weir__text_printf(line, ",\"dropped_lines\":%d", answer->n_dropped);
    for (int32_t i = 0; i < answer->n; i++) {
        const serve_choice *choice = &answer->choices[i];
        weir_usage usage = choice->finished ? choice->usage : weir_stream_usage(choice->stream);
        weir__text_printf(line, "%s{\"reason\":\"%s\",\"prompt\":%d,\"cached\":%d,\"generated\":%d",
                          i == 0 ? ",\"choices\":[" : ",",
                          choice->finished ? weir_reason_name(choice->reason) : "left", usage.n_prompt,
                          usage.n_cached, usage.n_generated);
        weir__json_number(line, "queue_ms", (double)usage.queue_ns / 1e6, 2);
        weir__json_number(line, "ttft_ms", (double)usage.ttft_ns / 1e6, 2);
        if (choice->stream != NULL)
            serve_choice_add_miss_member(choice, shows, line);
        else if (choice->miss.n > 0)
            weir__text_printf(line, ",%.*s", (int)choice->miss.n, choice->miss.bytes);
        weir__text_add_string(line, "}");
    }
    weir__text_add_string(line, "]");
}

/* True if anything was generated for it; a client that left in the queue has no status. */
static bool has_answer(const serve_call *call)
{
    return call->answer != NULL && (call->status == 200 || (call->left && !call->begun));
}

/* Adds what a client gave, of this capacity. */
static void add_given(weir__text *line, const char *name, const char *given, size_t capacity)
{
    char shown[256];
    if (given[0] == '\0') return;
    snprintf(shown, sizeof shown, "%s", given);
    serve_mask_ids(shown, capacity);
    weir__json_string(line, name, shown);
}

/* POST /v1/chat/completions 200 in 123 ms: prompt 36 (12 cached), answer 60 (stop) */
static void add_call_plain(weir__text *line, const serve_call *call)
{
    int status = serve_call_status(call);
    serve_log_begin(line, status >= 500 ? "warning" : "info", "");
    weir__text_printf(line, "%s ", call->method);
    serve_log_text(line, call->path, strlen(call->path));
    weir__text_printf(line, " %d in %.0f ms", status, (double)(weir__clock_now_ns() - call->began_ns) / 1e6);
    if (call->code != NULL) weir__text_printf(line, ", %s", call->code);
    const serve_answer *answer = has_answer(call) ? call->answer : NULL;
    for (int32_t i = 0; answer != NULL && i < answer->n; i++) {
        const serve_choice *choice = &answer->choices[i];
        weir_usage usage = choice->finished ? choice->usage : weir_stream_usage(choice->stream);
        weir__text_printf(line, "%s prompt %d (%d cached), answer %d (%s)", i == 0 ? ":" : ";",
                          usage.n_prompt, usage.n_cached, usage.n_generated,
                          choice->finished ? weir_reason_name(choice->reason) : "left");
    }
    if (!call->server->params.log_text || call->body.n == 0) return;
    weir__text_add_string(line, " ");
    serve_log_text(line, call->body.bytes,
                   call->body.n < TEXT_MAX ? call->body.n : weir__utf8_cut(call->body.bytes, TEXT_MAX));
}

static void log_call(const serve_call *call)
{
    const serve_params *params = &call->server->params;
    weir__text line = {0};
    if (!params->live.log) return;
    if (serve_log_is_plain()) {
        add_call_plain(&line, call);
        serve_log_end(&line);
        return;
    }
    bool taped = call->answer != NULL && call->answer->tape != NULL;
    int status = serve_call_status(call);
    serve_log_begin(&line, status >= 500 ? "warning" : "info", taped ? "stream" : "request");
    weir__text_printf(&line, ",\"id\":\"%s\",\"method\":\"%s\"", call->id, call->method);
    weir__json_string(&line, "path", call->path);
    weir__text_printf(&line, ",\"status\":%d", status);
    weir__json_number(&line, "ms", (double)(weir__clock_now_ns() - call->began_ns) / 1e6, 2);
    weir__text_printf(&line, ",\"received\":%zu,\"sent\":%llu", call->n_received,
                      (unsigned long long)call->n_sent);
    if (call->client[0] != '\0') weir__json_string(&line, "client", call->client);
    add_given(&line, "agent", call->agent, sizeof call->agent);
    add_given(&line, "request_id", call->request_id, sizeof call->request_id);
    add_given(&line, "session", call->session, sizeof call->session);
    if (call->trace != NULL) weir__json_string(&line, "trace", serve_trace_id(call->trace));
    if (call->code != NULL) weir__text_printf(&line, ",\"code\":\"%s\"", call->code);
    if (call->prefix_end != NULL) weir__text_printf(&line, ",\"prefix\":\"%s\"", call->prefix_end);
    if (call->key >= 0) weir__text_printf(&line, ",\"key\":%d", call->key);
    if (call->answer != NULL) weir__json_string(&line, "model", call->answer->model);
    if (call->left) weir__text_add_string(&line, ",\"left\":true");
    if (has_answer(call)) add_answer(&line, call->answer);
    if (params->log_text && call->body.n > 0)
        weir__json_bytes(&line, "body", call->body.bytes,
                         call->body.n < TEXT_MAX ? call->body.n : weir__utf8_cut(call->body.bytes, TEXT_MAX));
    serve_log_end(&line);
}

/* ---- Ends ---- */

void serve_call_destroy(serve_call *call)
{
    serve_server *server = call->server;
    bool taped = call->answer != NULL && call->answer->tape != NULL; /* clients see its readers instead */
    int status = serve_call_status(call);
    if (call->leave != NULL) call->leave(call);
    log_call(call);
    if (call->trace != NULL) serve_call_trace(call);
    if (call->tape != NULL) serve_tape_leave(call);
    if (call->left)
        server->n_left++;
    else if (call->answer != NULL && call->status == 200 && (!taped || call->ended))
        weir__histogram_observe(&server->e2e_seconds, (double)(weir__clock_now_ns() - call->began_ns) / 1e9);
    if (call->pull != NULL) serve_pull_leave(call);
    serve_answer_destroy(call->answer); /* from here on nobody puts it on the ready list */
    serve_lease_end(call);              /* nor from here on */
    serve_ready_unlist(call);
    if (call->counted > 0) serve_keys_leave(server->keys, call->key, call->counted);
    if (status >= 100 && status < 600 && !taped) {
        server->n_answers[status == SERVE_LEFT ? 0 : status / 100]++;
        server->n_codes[status]++;
    }
    serve_share_release(&server->bodies, call->owner, call->body_length);
    serve_call_drop_media(call, call->media_bytes);
    *(call->before != NULL ? &call->before->after : &server->calls) = call->after;
    if (call->after != NULL) call->after->before = call->before;
    server->n_calls--;
    weir__text_fini(&call->out);
    weir__text_fini(&call->body);
    serve_model_release(call->model);
    weir__mem_free(call->relaxed);
    weir__mem_free(call->reshaped);
    weir__mem_free(call->terms.messages.at);
    weir__mem_free(call->terms.tools.at);
    weir__mem_free(call);
}

void serve_call_leave(serve_call *call)
{
    call->connection = NULL;
    /* A client that leaves an endless stream ends it. */
    call->left = !call->starved && call->events == NULL &&
                 (call->state == SERVE_WORKING || !call->ended || call->out_at < call->out.n);
    atomic_store_explicit(&call->gone, true, memory_order_release);
    if (call->state != SERVE_WORKING) serve_call_destroy(call);
}

/* ---- Streams ---- */

/* POST /v1/streams/ID/cancel */
void serve_stream_cancel(serve_call *call)
{
    const serve_tape *tape = serve_tape_find(call);
    if (tape == NULL) return;
    serve_answer *answer = serve_tape_answer(tape);
    if (answer != NULL) {
        serve_call *maker = answer->call;
        serve_answer_stop(answer, true);
        serve_call_destroy(maker);
    }
    serve_call_answer_more(call, 204, NULL, "", "", 0);
}

void serve_tapes_sweep(serve_tapes *tapes, int64_t now_ns)
{
    serve_answer *answer;
    while ((answer = serve_tapes_drop(tapes, now_ns)) != NULL) serve_call_destroy(answer->call);
}
