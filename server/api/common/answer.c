/* answer.c: an answer from its submit to its end, as events or as a whole. A worker submits the requests;
 * then the answer belongs to the service thread. As events, each pump takes the chunks of all choices and
 * writes them by the dialect's form, until so much output waits that the client has to read first. As a
 * whole, the pump waits until all streams have ended and gives the answer to a worker, which composes it.
 * With a tape, events go there instead of to the connection.
 * SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "error.h"
#include "lease.h"
#include "server/access/keys.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "tape.h"

#define PROGRESS_NS (WEIR__NS_PER_S / 8) /* between two events that tell how far a prompt is */
#define PIECE_MAX   ((size_t)8 << 10) /* of content in one event; longer ones are cut between code points */

/* ---- Life ---- */

serve_answer *serve_answer_create(serve_call *call, const serve_form *form, weir_chat *chat, int32_t n)
{
    serve_answer *answer = weir__mem_calloc(1, sizeof *answer + (size_t)n * sizeof *answer->choices);
    char token[SERVE_TOKEN + 1];
    if (answer == NULL || !serve_secret_make(token, SERVE_TOKEN)) {
        weir__mem_free(answer);
        return NULL;
    }
    snprintf(answer->id, sizeof answer->id, "%s%s", form->id, token);
    answer->call = call;
    answer->form = form;
    answer->chat = weir_chat_hold(chat);
    answer->chats = chat != NULL;
    answer->begins = true;
    answer->created_s = (int64_t)time(NULL);
    answer->model = call->model->name;
    answer->n = answer->n_each = answer->n_returned = n;
    for (int32_t i = 0; i < n; i++) {
        if (serve_choice_init(&answer->choices[i], answer, i)) continue;
        serve_answer_destroy(answer);
        return NULL;
    }
    return answer;
}

bool serve_answer_call_model(serve_answer *answer, const char *name)
{
    if (name == NULL) return true;
    answer->own_model = weir__mem_strdup(name);
    if (answer->own_model != NULL) answer->model = answer->own_model;
    return answer->own_model != NULL;
}

static void end_record(serve_answer *answer)
{
    weir__text list = {0};
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        serve_recorded_prompt(&choice->recorded, choice->stream);
        serve_recorded_add_choice(&choice->recorded,
                                  choice->finished ? weir_reason_name(choice->reason) : "left", &list);
    }
    serve_recorded_end(answer->call, &answer->recorded, &list);
}

void serve_answer_destroy(serve_answer *answer)
{
    if (answer == NULL) return;
    if (answer->recorded.on) end_record(answer);
    for (int32_t i = 0; i < answer->n; i++) {
        if (i % answer->n_each == 0) weir__mem_free((void *)answer->choices[i].echo);
        serve_choice_fini(&answer->choices[i]);
    }
    if (answer->tape != NULL) serve_tape_orphan(answer->tape);
    weir__text_fini(&answer->event);
    json_decref(answer->stops);
    json_decref(answer->namespaces);
    json_decref(answer->customs);
    weir__text_fini(&answer->repeated);
    serve_record_release(answer->record);
    weir_chat_release(answer->chat);
    weir__mem_free(answer->own_model);
    weir__mem_free(answer);
}

/* Releases all that holds the model before the client has read: others may wait for its memory. */
static void settle_answer(serve_answer *answer)
{
    serve_call *call = answer->call;
    if (call->lease == NULL) return;
    for (int32_t i = 0; i < answer->n; i++) serve_choice_settle(&answer->choices[i]);
    weir_chat_release(answer->chat);
    answer->chat = NULL;
    serve_lease_end(call);
}

bool serve_answer_is_custom(const serve_answer *answer, const char *name)
{
    return name != NULL && json_object_get(answer->customs, name) != NULL;
}

const char *serve_answer_stop_text(const serve_answer *answer, int32_t stop)
{
    return stop > 0 ? json_string_value(json_array_get(answer->stops, (size_t)stop - 1)) : NULL;
}

/* The choices' streams, freed with weir__mem_free; NULL: out of memory. */
static weir_stream **streams_of(const serve_answer *answer)
{
    weir_stream **streams = weir__mem_calloc((size_t)answer->n, sizeof *streams);
    for (int32_t i = 0; streams != NULL && i < answer->n; i++) streams[i] = answer->choices[i].stream;
    return streams;
}

static void keep_answer(const serve_answer *answer, const char *salt)
{
    weir_stream **streams = streams_of(answer);
    if (streams != NULL)
        serve_kept_add(answer->call->loaded->kept, answer->id, answer->call->owner, salt, answer->own_model,
                       answer->chat, streams, answer->n);
    weir__mem_free(streams);
}

static weir_status submit_own(serve_answer *answer, weir_request *requests, size_t n_requests,
                              weir_error *error)
{
    weir_engine *engine = answer->call->loaded->engine;
    weir_stream **streams = streams_of(answer);
    if (streams == NULL) return WEIR_NO_MEMORY;
    for (size_t i = 0; !answer->stream && i < n_requests; i++)
        requests[i].interval = INT32_MAX; /* nobody sees it grow */
    weir_status status = n_requests == 1
                             ? weir_engine_submit_n(engine, requests, (size_t)answer->n, streams, error)
                             : weir_engine_submit(engine, requests, n_requests, streams, error);
    weir__mem_free(streams);
    return status;
}

static weir_status submit_shared(serve_answer *answer, const weir_request *request, weir_error *error)
{
    serve_server *server = answer->call->server;
    weir_engine *engine = answer->call->loaded->engine;
    serve_choice *choice = &answer->choices[0];
    bool joined = false;
    weir_status status = weir_flight_open(engine, request, true, &choice->flight, &joined, error);
    if (status != WEIR_OK) return status;
    weir_stream_release(choice->stream);
    choice->stream = weir_stream_hold(weir_flight_stream(choice->flight));
    if (joined) atomic_fetch_add_explicit(&server->n_shared, 1, memory_order_relaxed);
    return WEIR_OK;
}

/* The field that makes a request's answers so many. */
static const char *count_field(const serve_answer *answer)
{
    return answer->n_each > 1 ? answer->each : "prompt";
}

/* Counts the answers: each of a request is one among its key's. */
static bool count_answers(serve_answer *answer)
{
    serve_call *call = answer->call;
    int32_t more = answer->n - 1, most;
    if (serve_keys_more(call->server->keys, call->key, more, &most)) {
        call->counted += more;
        return true;
    }
    if (answer->n > most)
        return serve_call_refuse(call, 400, count_field(answer), "invalid_value",
                                 "this request asks for %d answers; this key may have %d at a time",
                                 answer->n, most);
    return serve_call_refuse(
        call, 429, NULL, "rate_limit_exceeded",
        "this request needs %d answers at a time, more than this key may have running now", answer->n);
}

bool serve_answer_submit(serve_answer *answer, weir_request *requests, size_t n_requests)
{
    serve_call *call = answer->call;
    weir_error error = {0};
    if (answer->share && answer->n > 1)
        return serve_call_refuse(call, 400, "share", "invalid_value",
                                 "share must be left out where there are several answers or prompts");
    if (!count_answers(answer)) return false;
    answer->submitted_ns = weir__clock_now_ns();
    weir_status status = answer->share ? submit_shared(answer, requests, &error)
                                       : submit_own(answer, requests, n_requests, &error);
    if (status == WEIR_INVALID && error.has_high && strcmp(error.field, "n") == 0)
        return serve_call_refuse(call, 400, count_field(answer), "invalid_value",
                                 "this request asks for %d answers; allowed: 1 to %.0f, the requests that "
                                 "slots and queue (--queue) hold",
                                 answer->n, error.high);
    if (status == WEIR_OK && answer->kept) keep_answer(answer, requests[0].cache_salt);
    if (status == WEIR_OK) serve_recorded_begin(call, &answer->recorded, answer->model, answer->n);
    return serve_call_passes(call, status, &error);
}

/* The choice that ended with an error, or by the server; NULL: none. */
static const serve_choice *failed_choice(const serve_answer *answer)
{
    for (int32_t i = 0; i < answer->n; i++)
        if (serve_choice_failed(&answer->choices[i])) return &answer->choices[i];
    return NULL;
}

/* ---- Events ---- */

weir__text *serve_answer_begin_event(serve_answer *answer, const char *name)
{
    weir__text *out = answer->tape != NULL ? &answer->event : &answer->call->out;
    if (answer->tape != NULL) {
        out->n = 0;
        return out;
    }
    answer->event_at = serve_call_begin_piece(answer->call);
    if (name[0] != '\0') weir__text_printf(out, "event: %s\n", name);
    if (!answer->form->lines) weir__text_add_string(out, "data: ");
    return out;
}

void serve_answer_end_event(serve_answer *answer)
{
    if (answer->tape != NULL) {
        serve_tape_add(answer->tape, &answer->event);
        if (answer->event.capacity > SERVE_BUFFER_MAX) weir__text_fini(&answer->event);
        return;
    }
    weir__text_add_string(&answer->call->out, answer->form->lines ? "\n" : "\n\n");
    serve_call_end_piece(answer->call, answer->event_at);
}

static bool send_delta(serve_choice *choice, const weir_delta *delta)
{
    bool keeps = choice->answer->form->keeps || choice->answer->customs != NULL;
    if (keeps && !serve_choice_keep(choice, delta)) return false;
    choice->answer->form->delta(choice, delta);
    choice->fresh = false;
    return true;
}

/* Deltas that were merged for a slow reader go out in events of limited size. */
static bool send_pieces(serve_choice *choice, const weir_delta *given)
{
    weir_delta delta = *given;
    size_t left = delta.length;
    if (delta.kind == WEIR_DELTA_TOOL_CALL) return send_delta(choice, &delta);
    while (left > 0) {
        size_t n = left < PIECE_MAX ? left : PIECE_MAX;
        while (n < left && ((unsigned char)delta.text[n] & 0xC0) == 0x80) n--;
        delta.length = n;
        if (!send_delta(choice, &delta)) return false;
        delta.text += n;
        left -= n;
    }
    return true;
}

static void begin_choice(serve_choice *choice)
{
    if (choice->answer->form->begin != NULL) choice->answer->form->begin(choice);
}

static void end_choice(serve_choice *choice)
{
    if (!serve_choice_failed(choice)) choice->answer->form->end(choice);
}

static void end_events(serve_answer *answer)
{
    const serve_choice *failed = failed_choice(answer);
    if (failed != NULL) {
        serve_failure why;
        serve_choice_explain(failed, &why);
        answer->form->fail(answer, &why);
    } else if (answer->form->finish != NULL) {
        answer->form->finish(answer);
    }
    if (answer->tape != NULL) serve_tape_end(answer->tape);
    serve_call_end(answer->call);
    settle_answer(answer);
}

/* ---- Progress ---- */

void serve_answer_add_progress(const weir_progress *progress, weir__text *text)
{
    weir__text_printf(text,
                      "\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%lld}",
                      progress->n_prompt, progress->n_cached, progress->n_processed,
                      (long long)(progress->prefill_ns / WEIR__NS_PER_MS));
}

/* urgent: also where the client has not read what came before. */
static void write_progress(serve_choice *choice, const weir_progress *progress, bool urgent)
{
    serve_answer *answer = choice->answer;
    serve_call *call = answer->call;
    if (answer->tape != NULL) {
        answer->event.n = 0;
        answer->form->progress(choice, progress, &answer->event);
        serve_tape_pass(answer->tape, &answer->event, urgent);
    } else if (urgent || call->out.n == call->out_at) {
        size_t at = serve_call_begin_piece(call);
        answer->form->progress(choice, progress, &call->out);
        serve_call_end_piece(call, at);
    } else {
        return;
    }
    choice->shown = *progress;
    choice->shown_ns = weir__clock_now_ns();
}

/* Shows the progress of a prompt, by the first of its choices: where the prefill begins and where it has
 * ended, and between these from time to time. */
static void show_progress(serve_choice *choice)
{
    const serve_answer *answer = choice->answer;
    const weir_progress *shown = &choice->shown;
    weir_progress now = {.size = sizeof now};
    if (!answer->progress || choice->finished || (choice - answer->choices) % answer->n_each != 0 ||
        (shown->started && shown->n_processed == shown->n_prompt) ||
        weir_stream_progress(choice->stream, &now) != WEIR_OK || !now.started)
        return;
    if (!shown->started) {
        weir_progress first = now;
        first.n_processed = now.n_cached;
        first.prefill_ns = 0;
        write_progress(choice, &first, true);
    }
    bool changed = now.n_processed != shown->n_processed || now.n_cached != shown->n_cached;
    bool last = now.n_processed == now.n_prompt;
    if (changed && (last || weir__clock_now_ns() - choice->shown_ns >= PROGRESS_NS))
        write_progress(choice, &now, last);
}

/* ---- Chunks ---- */

static void pump_choice(serve_choice *choice)
{
    serve_answer *answer = choice->answer;
    serve_call *call = answer->call;
    weir_chunk chunk;
    show_progress(choice);
    if (!choice->begun && answer->echoes_scores && serve_choice_prompt(choice, &chunk) == WEIR_TIMEOUT)
        return;
    while (!choice->finished) {
        if (call->out.n - call->out_at >= SERVE_BUFFER_MAX) {
            answer->starved = true;
            return;
        }
        if (!choice->begun) {
            if (!serve_choice_begin(choice, send_pieces)) {
                serve_choice_fail(choice);
                continue;
            }
            if (answer->echoes_scores) begin_choice(choice);
        }
        if (!serve_choice_take(choice, &chunk)) return;
        show_progress(choice); /* the prefill has ended before the first chunk */
        if (!serve_choice_read(choice, &chunk, send_pieces)) {
            serve_choice_fail(choice);
        } else if (chunk.finished) {
            serve_choice_finish(choice, chunk.reason);
            end_choice(choice);
        }
    }
}

/* ---- Whole answers ---- */

static void compose_answer(serve_call *call)
{
    serve_answer *answer = call->answer;
    weir__text text = {.quota = &call->answers};
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        weir_chunk chunk;
        if (!serve_choice_begin(choice, serve_choice_keep)) serve_choice_fail(choice);
        while (!choice->finished && serve_choice_take(choice, &chunk)) {
            if (!serve_choice_read(choice, &chunk, serve_choice_keep))
                serve_choice_fail(choice);
            else if (chunk.finished)
                serve_choice_finish(choice, chunk.reason);
        }
    }
    const serve_choice *failed = failed_choice(answer);
    if (failed != NULL) {
        serve_failure why;
        serve_choice_explain(failed, &why);
        serve_call_refuse(call, why.status, why.field, why.code, "%s", why.message);
        return;
    }
    answer->form->whole(answer, &text);
    for (int32_t i = 0; i < answer->n; i++) serve_choice_forget(&answer->choices[i]);
    serve_call_answer_json(call, &text);
}

/* A worker's job, once all streams have ended. */
static void answer_whole(serve_call *call)
{
    compose_answer(call);
    settle_answer(call->answer);
}

/* ---- The service thread ---- */

static bool start_tape(serve_answer *answer)
{
    serve_call *call = answer->call, *maker = NULL;
    weir__text head = {0};
    if (answer->form->head != NULL) answer->form->head(answer, &head);
    answer->tape = serve_tape_start(call, answer->id, &head, answer->background, answer->unread, &maker);
    weir__text_fini(&head);
    bool started = answer->tape != NULL;
    if (started) answer->call = maker;
    if (started && answer->unread) {
        weir__text text = {0};
        answer->form->pending(answer, &text);
        serve_call_answer_json(call, &text);
        serve_call_send(call);
    }
    if (started) return true;
    call->answer = NULL;
    serve_answer_destroy(answer);
    serve_call_send(call);
    return false;
}

void serve_answer_start(serve_answer *answer)
{
    if (answer->resume) {
        if (!start_tape(answer)) return;
    } else if (answer->stream) {
        serve_call_begin(answer->call,
                         answer->form->lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
    }
    if (answer->stream) {
        bool begin = answer->begins && !answer->echoes_scores; /* else with the first chunk */
        if (answer->form->start != NULL) answer->form->start(answer);
        for (int32_t i = 0; i < answer->n && begin; i++) begin_choice(&answer->choices[i]);
        serve_call_send(answer->call);
    }
    for (int32_t i = 0; i < answer->n; i++) {
        if (answer->progress && i % answer->n_each == 0)
            weir_stream_watch_progress(answer->choices[i].stream, true);
        if (!serve_choice_watch(&answer->choices[i])) serve_choice_fail(&answer->choices[i]);
    }
    if (answer->n_finished > 0 || answer->progress) serve_ready_post(answer->call);
}

void serve_answer_pump(serve_answer *answer)
{
    serve_call *call = answer->call;
    if (call->ended) return;
    if (!answer->stream) {
        for (int32_t i = 0; i < answer->n; i++)
            if (!answer->choices[i].finished && !serve_choice_complete(&answer->choices[i])) return;
        for (int32_t i = 0; i < answer->n; i++) serve_choice_unwatch(&answer->choices[i]);
        serve_ready_unlist(call);
        serve_workers_give(call->server->workers, call, answer_whole);
        return;
    }
    answer->starved = false;
    for (int32_t i = 0; i < answer->n; i++) pump_choice(&answer->choices[i]);
    if (answer->n_finished == answer->n) end_events(answer);
    if (answer->tape != NULL && serve_tape_failed(answer->tape)) call->ended = true;
    serve_call_send(call);
}

void serve_answer_stop(serve_answer *answer, bool asked)
{
    const weir_chunk end = {.text = "", .finished = true, .reason = WEIR_REASON_CANCELLED};
    serve_answer_pump(answer);
    if (answer->call->ended) return;
    answer->stopped = asked;
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        if (choice->finished) continue;
        serve_choice_cancel(choice);
        serve_choice_read(choice, &end, send_pieces); /* text that was held back */
        if (!asked) choice->error.code = WEIR_STOPPED;
        serve_choice_finish(choice, end.reason);
        end_choice(choice);
    }
    end_events(answer);
}

bool serve_answer_comment(serve_call *call)
{
    bool stream = call->tape != NULL || (call->answer != NULL && call->answer->stream);
    bool lines = call->answer != NULL && call->answer->form->lines; /* which have no comments */
    if (!stream || lines || call->ended) return false;
    size_t at = serve_call_begin_piece(call);
    weir__text_add_string(&call->out, call->answer != NULL && call->answer->form->ping != NULL
                                          ? call->answer->form->ping
                                          : ": still here\n\n");
    serve_call_end_piece(call, at);
    return true;
}
