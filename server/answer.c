/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kept.h"
#include "keys.h"
#include "names.h"
#include "tape.h"

#define PIECE_MAX ((size_t)8 << 10) /* of content in one event; longer ones are cut between code points */

/* ---- Life ---- */

serve_answer *serve_answer_create(serve_call *call, const serve_form *form, weir_chat *chat, int32_t n)
{
    serve_answer *answer = weir__mem_calloc(1, sizeof *answer + (size_t)n * sizeof *answer->choices);
    char token[SERVE_TOKEN + 1];
    if (answer == NULL || !serve_secret_make(token, SERVE_TOKEN)) {
        weir__mem_free(answer);
        return NULL;
    }
    snprintf(answer->id, sizeof answer->id, "%s-%s", form->id, token);
    answer->call = call;
    answer->form = form;
    answer->chat = weir_chat_hold(chat);
    answer->begins = form->begin != NULL;
    answer->created_s = (int64_t)time(NULL);
    answer->model = call->server->name;
    answer->n = answer->n_each = answer->n_told = n;
    for (int32_t i = 0; i < n; i++) {
        serve_choice *choice = &answer->choices[i];
        choice->answer = answer;
        choice->index = i;
        if (weir_stream_create(&choice->stream, NULL) == WEIR_OK &&
            (chat == NULL || weir_chat_parser_create(chat, &choice->parser, NULL) == WEIR_OK))
            continue;
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

static void on_ready(weir_stream *stream, void *user)
{
    const serve_answer *answer = user;
    (void)stream;
    serve_server_post(answer->call);
}

static void on_flight(weir_flight *flight, void *user)
{
    (void)flight;
    on_ready(NULL, user);
}

static void forget_ready(serve_answer *answer)
{
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        if (choice->flight != NULL)
            weir_flight_unwatch(choice->flight, on_flight, answer);
        else
            weir_stream_set_ready(choice->stream, NULL, NULL);
    }
}

/* What came for a whole answer. */
static void forget_whole(serve_choice *choice)
{
    for (size_t i = 0; choice->tools != NULL && i < choice->n_tools; i++) {
        weir__mem_free(choice->tools[i].id);
        weir__mem_free(choice->tools[i].name);
        weir__text_fini(&choice->tools[i].arguments);
    }
    weir__mem_free(choice->tools);
    choice->tools = NULL;
    serve_scores_fini(&choice->scores);
    weir__text_fini(&choice->reasoning);
    weir__text_fini(&choice->content);
}

void serve_answer_destroy(serve_answer *answer)
{
    if (answer == NULL) return;
    forget_ready(answer);
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        if (choice->flight == NULL)
            weir_stream_cancel(choice->stream); /* it may be kept, and then a release ends nothing */
        weir_stream_release(choice->stream);
        weir_flight_release(choice->flight);
        weir_chat_parser_destroy(choice->parser);
        forget_whole(choice);
        if (i % answer->n_each == 0) weir__mem_free((void *)choice->echo);
    }
    if (answer->tape != NULL) serve_tape_orphan(answer->tape);
    weir__text_fini(&answer->event);
    weir_chat_release(answer->chat);
    weir__mem_free(answer->own_model);
    weir__mem_free(answer);
}

static weir_status submit_own(serve_answer *answer, weir_request *requests, size_t n_requests,
                              weir_error *error)
{
    weir_engine *engine = answer->call->server->engine;
    weir_stream **streams = weir__mem_calloc((size_t)answer->n, sizeof *streams);
    if (streams == NULL) return WEIR_NO_MEMORY;
    for (size_t i = 0; !answer->stream && i < n_requests; i++)
        requests[i].interval = INT32_MAX; /* nobody sees it grow */
    for (int32_t i = 0; i < answer->n; i++) streams[i] = answer->choices[i].stream;
    weir_status status = n_requests == 1
                             ? weir_engine_submit_n(engine, requests, (size_t)answer->n, streams, error)
                             : weir_engine_submit(engine, requests, n_requests, streams, error);
    weir__mem_free(streams);
    return status;
}

static weir_status submit_shared(serve_answer *answer, const weir_request *request, weir_error *error)
{
    serve_server *server = answer->call->server;
    serve_choice *choice = &answer->choices[0];
    bool joined = false;
    weir_status status = weir_flight_open(server->engine, request, true, &choice->flight, &joined, error);
    if (status != WEIR_OK) return status;
    weir_stream_release(choice->stream);
    choice->stream = weir_stream_hold(weir_flight_stream(choice->flight));
    if (joined) atomic_fetch_add_explicit(&server->n_shared, 1, memory_order_relaxed);
    return WEIR_OK;
}

/* Each answer of a request is one among its key's. */
static bool count_answers(serve_answer *answer)
{
    serve_call *call = answer->call;
    int32_t more = answer->n - 1, most;
    if (serve_keys_more(call->server->keys, call->key, more, &most)) {
        call->counted += more;
        return true;
    }
    if (answer->n > most) {
        serve_call_refuse(call, 400, answer->n_each > 1 ? "n" : "prompt", "invalid_value",
                          "this request wants %d answers; this key may have %d at a time", answer->n, most);
        return false;
    }
    return serve_call_refuse(call, 429, NULL, "rate_limit_exceeded",
                             "with the %d answers of this request too many of this key run at the moment",
                             answer->n);
}

bool serve_answer_submit(serve_answer *answer, weir_request *requests, size_t n_requests)
{
    serve_call *call = answer->call;
    weir_error error = {0};
    if (answer->share && answer->n > 1)
        return serve_call_refuse(call, 400, "share", "invalid_value",
                                 "share must be left out where there are several answers or prompts");
    if (!count_answers(answer)) return false;
    weir_status status = answer->share ? submit_shared(answer, requests, &error)
                                       : submit_own(answer, requests, n_requests, &error);
    if (status == WEIR_OK && answer->kept) serve_kept_add(call->server->kept, answer, requests[0].cache_salt);
    return serve_call_passes(call, status, &error);
}

/* ---- Shared by whole answers and events ---- */

void serve_answer_tell_reason(const serve_choice *choice, weir__text *text)
{
    bool cut = choice->reason == WEIR_REASON_LENGTH || choice->reason == WEIR_REASON_DEADLINE;
    weir__text_printf(text, ",\"finish_reason\":\"%s\",\"finish_detail\":\"%s\"}",
                      cut                   ? "length"
                      : choice->n_tools > 0 ? "tool_calls"
                                            : "stop",
                      weir_reason_name(choice->reason));
}

void serve_answer_tell_prompt(const serve_choice *choice, weir__text *text)
{
    weir_chunk prompt;
    if (!choice->answer->tells_prompt || serve_answer_prompt(choice, &prompt) != WEIR_OK) return;
    weir__text_add_string(text, ",\"prompt_logprobs\":");
    serve_scores_tell_prompt(&prompt, choice->answer->call->server->model, text);
}

/* One for each prompt, where there are several. */
static void add_misses(const serve_answer *answer, weir__text *text)
{
    bool many = answer->n > answer->n_each, told = false;
    size_t before = text->n;
    weir__text_add_string(text, many ? ",\"misses\":[" : ",\"miss\":");
    for (int32_t i = 0; i < answer->n; i += answer->n_each) {
        if (i > 0) weir__text_add_string(text, ",");
        bool some =
            serve_miss_tell(answer->choices[i].stream, answer->shows_prompt, answer->shows_cached, text);
        if (many && !some) weir__text_add_string(text, "null");
        told = told || some;
    }
    if (many) weir__text_add_string(text, "]");
    if (!told) text->n = before;
}

static void add_usage(const serve_answer *answer, weir__text *text)
{
    int64_t prompt = 0, cached = 0, generated = 0, drafted = 0, accepted = 0;
    for (int32_t i = 0; i < answer->n; i++) {
        const weir_usage *usage = &answer->choices[i].usage;
        generated += usage->n_generated;
        drafted += usage->n_drafted;
        accepted += usage->n_accepted;
        if (i % answer->n_each != 0) continue; /* a prompt counts once, whatever n is */
        prompt += usage->n_prompt;
        cached += usage->n_cached;
    }
    weir__text_printf(text,
                      "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":%lld",
                      (long long)prompt, (long long)generated, (long long)prompt + (long long)generated,
                      (long long)cached);
    add_misses(answer, text);
    weir__text_add_string(text, "}");
    if (drafted > 0) /* where OpenAI counts what a client predicted */
        weir__text_printf(text,
                          ",\"completion_tokens_details\":{\"accepted_prediction_tokens\":%lld,"
                          "\"rejected_prediction_tokens\":%lld}",
                          (long long)accepted, (long long)(drafted - accepted));
    weir__text_add_string(text, "}");
}

static void add_head(const serve_answer *answer, const char *object, weir__text *text)
{
    weir__text_printf(text, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld", answer->id, object,
                      (long long)answer->created_s);
    weir__json_string(text, "model", answer->model);
    weir__text_printf(text, ",\"system_fingerprint\":\"%s\",\"choices\":[",
                      answer->call->server->fingerprint);
}

static bool has_failed(const serve_choice *choice)
{
    return choice->finished && (choice->reason == WEIR_REASON_ERROR ||
                                (choice->reason == WEIR_REASON_CANCELLED && !choice->answer->stopped));
}

/* What ended with an error, or by the server; NULL: all is well. */
static const serve_choice *failed_choice(const serve_answer *answer)
{
    for (int32_t i = 0; i < answer->n; i++)
        if (has_failed(&answer->choices[i])) return &answer->choices[i];
    return NULL;
}

static int error_status(const serve_choice *choice)
{
    return choice->reason == WEIR_REASON_CANCELLED || choice->error.code == WEIR_STOPPED ||
                   choice->error.code == WEIR_NO_MEMORY
               ? 503
               : 500;
}

/* text: as long as an error's message; may be what is given back. */
static const char *error_message(const serve_choice *choice, char *text)
{
    if (choice->reason == WEIR_REASON_CANCELLED || choice->error.code == WEIR_STOPPED)
        return "the server is going down";
    if (choice->error.message[0] == '\0') return weir_status_text(choice->error.code);
    serve_names_message(&choice->error, choice->answer->call->schema_field, text,
                        sizeof choice->error.message);
    return text;
}

static void finish(serve_choice *choice, weir_reason reason)
{
    choice->finished = true;
    choice->reason = reason;
    choice->usage = weir_stream_usage(choice->stream);
    if (reason == WEIR_REASON_ERROR && choice->error.code == WEIR_OK)
        weir_stream_error(choice->stream, &choice->error);
    choice->answer->n_finished++;
}

static void fail_no_memory(serve_choice *choice)
{
    choice->error = (weir_error){.code = WEIR_NO_MEMORY, .message = "the server is out of memory"};
    if (choice->flight == NULL) weir_stream_cancel(choice->stream);
    finish(choice, WEIR_REASON_ERROR);
}

/* ---- Chunks ---- */

static bool take_chunk(serve_choice *choice, weir_chunk *chunk)
{
    return (choice->flight != NULL ? weir_flight_next(choice->flight, &choice->flight_at, 0, chunk)
                                   : weir_stream_try_next(choice->stream, chunk)) == WEIR_OK;
}

/* Whether all of it can be taken. */
static bool is_complete(const serve_choice *choice)
{
    uint64_t beyond = UINT64_MAX;
    weir_chunk chunk;
    return choice->flight != NULL ? weir_flight_next(choice->flight, &beyond, 0, &chunk) == WEIR_END
                                  : weir_stream_finished(choice->stream);
}

/* False: out of memory. */
typedef bool (*take_fn)(serve_choice *choice, const weir_delta *delta);

/* What a chunk means. False: out of memory. */
static bool read_chunk(serve_choice *choice, const weir_chunk *chunk, take_fn take)
{
    weir_delta delta = {
        .kind = WEIR_DELTA_CONTENT, .index = -1, .text = chunk->text, .length = chunk->length};
    if (choice->answer->tells_scores && !serve_scores_add(&choice->scores, chunk)) return false;
    if (choice->parser == NULL) return take(choice, &delta);
    if (weir_chat_parser_feed(choice->parser, chunk->text, chunk->length, chunk->finished, NULL) != WEIR_OK)
        return false;
    while (weir_chat_parser_next(choice->parser, &delta) == WEIR_OK)
        if (!take(choice, &delta)) return false;
    return true;
}

weir_status serve_answer_prompt(const serve_choice *choice, weir_chunk *prompt)
{
    const serve_answer *answer = choice->answer;
    int32_t at = (int32_t)(choice - answer->choices);
    at -= at % answer->n_each; /* they are the first one's, and the same for all of a prompt */
    return weir_stream_prompt_logprobs(answer->choices[at].stream, prompt);
}

/* What goes before the first chunk: the prompt's scores, and of a fork of a chat the message so far, which
 * the parser has to see. False: out of memory. */
static bool begin_choice(serve_choice *choice, take_fn take)
{
    const serve_answer *answer = choice->answer;
    weir_chunk prompt, before = {0};
    choice->begun = true;
    if (answer->echoes_scores && serve_answer_prompt(choice, &prompt) == WEIR_OK &&
        !serve_scores_add_prompt(&choice->scores, &prompt, answer->n_top))
        return false;
    before.text = weir_stream_before(choice->stream, &before.length);
    return answer->chat == NULL || before.length == 0 || read_chunk(choice, &before, take);
}

/* ---- Events ---- */

/* Around an event's data; what begin gives is written to. */
static weir__text *begin_data(serve_answer *answer, size_t *at)
{
    weir__text *out = answer->tape != NULL ? &answer->event : &answer->call->out;
    if (answer->tape != NULL) {
        out->n = 0;
        return out;
    }
    *at = serve_call_begin_piece(answer->call);
    weir__text_add_string(out, "data: ");
    return out;
}

static void end_data(serve_answer *answer, size_t at)
{
    if (answer->tape != NULL) {
        serve_tape_add(answer->tape, &answer->event);
        return;
    }
    weir__text_add_string(&answer->call->out, "\n\n");
    serve_call_end_piece(answer->call, at);
}

typedef enum part { BEGIN, DELTA, END } part;

static void send_part(serve_choice *choice, part what, const weir_delta *delta)
{
    serve_answer *answer = choice->answer;
    const serve_form *form = answer->form;
    size_t at = 0;
    weir__text *out = begin_data(answer, &at);
    if (!form->bare) add_head(answer, form->chunk, out);
    switch (what) {
    case BEGIN: form->begin(choice, out); break;
    case DELTA: form->delta(choice, delta, out); break;
    case END: form->end(choice, out); break;
    }
    if (!form->bare) weir__text_add_string(out, answer->include_usage ? "],\"usage\":null}" : "]}");
    end_data(answer, at);
}

static void send_delta(serve_choice *choice, const weir_delta *delta)
{
    send_part(choice, DELTA, delta);
    if (delta->kind == WEIR_DELTA_TOOL_CALL) choice->n_tools++;
}

/* What was merged while the reader was slow goes out in events of a bearable size. */
static void send_text(serve_choice *choice, weir_delta delta)
{
    size_t left = delta.length;
    while (left > 0) {
        size_t n = left < PIECE_MAX ? left : PIECE_MAX;
        while (n < left && ((unsigned char)delta.text[n] & 0xC0) == 0x80) n--;
        delta.length = n;
        send_delta(choice, &delta);
        delta.text += n;
        left -= n;
    }
}

static bool send_one(serve_choice *choice, const weir_delta *delta)
{
    if (delta->kind == WEIR_DELTA_TOOL_CALL)
        send_delta(choice, delta);
    else
        send_text(choice, *delta);
    return true;
}

static void end_choice(serve_choice *choice)
{
    if (!has_failed(choice)) send_part(choice, END, NULL);
}

static void end_events(serve_answer *answer)
{
    char text[sizeof((weir_error *)0)->message];
    const serve_choice *failed = failed_choice(answer);
    weir__text *out;
    size_t at = 0;
    if (failed != NULL) {
        out = begin_data(answer, &at);
        weir__text_add_string(out, "{\"error\":");
        serve_call_error_json(out, error_status(failed), NULL, weir_status_name(failed->error.code),
                              error_message(failed, text));
        weir__text_add_string(out, "}");
        end_data(answer, at);
    } else if (answer->include_usage && !answer->form->bare) {
        out = begin_data(answer, &at);
        add_head(answer, answer->form->chunk, out);
        weir__text_add_string(out, "],\"usage\":");
        add_usage(answer, out);
        weir__text_add_string(out, "}");
        end_data(answer, at);
    }
    if (!answer->form->bare) {
        out = begin_data(answer, &at);
        weir__text_add_string(out, "[DONE]");
        end_data(answer, at);
    }
    if (answer->tape != NULL) serve_tape_end(answer->tape);
    serve_call_end(answer->call);
}

static void pump_choice(serve_choice *choice)
{
    serve_answer *answer = choice->answer;
    serve_call *call = answer->call;
    weir_chunk chunk;
    if (!choice->begun && answer->echoes_scores && serve_answer_prompt(choice, &chunk) == WEIR_TIMEOUT)
        return;
    while (!choice->finished) {
        if (call->out.n - call->out_at >= SERVE_BUFFER_MAX) {
            answer->starved = true;
            return;
        }
        if (!choice->begun) {
            if (!begin_choice(choice, send_one)) {
                fail_no_memory(choice);
                continue;
            }
            if (answer->echoes_scores) send_part(choice, BEGIN, NULL);
        }
        if (!take_chunk(choice, &chunk)) return;
        if (!read_chunk(choice, &chunk, send_one)) {
            fail_no_memory(choice);
        } else if (chunk.finished) {
            finish(choice, chunk.reason);
            end_choice(choice);
        }
    }
}

/* ---- Whole answers ---- */

static bool keep_tool(serve_choice *choice, const weir_delta *delta)
{
    if (!weir__mem_grow(&choice->tools, &choice->tools_capacity, choice->n_tools + 1, sizeof *choice->tools))
        return false;
    serve_tool *tool = &choice->tools[choice->n_tools];
    *tool = (serve_tool){.id = weir__mem_strdup(delta->id != NULL ? delta->id : ""),
                         .name = weir__mem_alloc(delta->length + 1)};
    choice->n_tools++;
    if (tool->id == NULL || tool->name == NULL) return false;
    memcpy(tool->name, delta->text, delta->length);
    tool->name[delta->length] = '\0';
    return true;
}

static bool keep_one(serve_choice *choice, const weir_delta *delta)
{
    switch (delta->kind) {
    case WEIR_DELTA_CONTENT: weir__text_add(&choice->content, delta->text, delta->length); break;
    case WEIR_DELTA_REASONING: weir__text_add(&choice->reasoning, delta->text, delta->length); break;
    case WEIR_DELTA_TOOL_CALL: return keep_tool(choice, delta);
    case WEIR_DELTA_ARGUMENTS:
        if (delta->index < 0 || (size_t)delta->index >= choice->n_tools) return true;
        weir__text_add(&choice->tools[delta->index].arguments, delta->text, delta->length);
        return !choice->tools[delta->index].arguments.failed;
    }
    return !choice->content.failed && !choice->reasoning.failed;
}

/* Those of one prompt, in their order where all are told, else the best ones first. */
static void tell_best(serve_answer *answer, int32_t first, weir__text *text)
{
    serve_choice *choices = answer->choices + first;
    bool told[SERVE_CHOICES_MAX] = {false};
    bool all = answer->n_told == answer->n_each;
    for (int32_t k = 0; k < answer->n_told; k++) {
        int32_t best = k;
        if (!all) {
            best = -1;
            for (int32_t i = 0; i < answer->n_each; i++)
                if (!told[i] && (best < 0 || weir_usage_score(&choices[i].usage) >
                                                 weir_usage_score(&choices[best].usage)))
                    best = i;
            told[best] = true;
            choices[best].index = first / answer->n_each * answer->n_told + k;
        }
        if (first > 0 || k > 0) weir__text_add_string(text, ",");
        answer->form->whole(&choices[best], text);
    }
}

static void add_all(serve_answer *answer, weir__text *text)
{
    const serve_form *form = answer->form;
    bool list = form->bare && answer->n / answer->n_each * answer->n_told > 1;
    if (!form->bare) add_head(answer, form->object, text);
    if (list) weir__text_add_string(text, "[");
    for (int32_t i = 0; i < answer->n; i += answer->n_each) tell_best(answer, i, text);
    if (list) weir__text_add_string(text, "]");
    if (!form->bare) {
        weir__text_add_string(text, "],\"usage\":");
        add_usage(answer, text);
        if (form->rest != NULL) form->rest(answer, text);
        weir__text_add_string(text, "}");
    }
    weir__text_add_string(text, "\n");
}

/* A worker's job, once all streams have ended. */
static void answer_whole(serve_call *call)
{
    serve_answer *answer = call->answer;
    weir__text text = {.quota = &call->server->answers};
    char message[sizeof((weir_error *)0)->message];
    for (int32_t i = 0; i < answer->n; i++) {
        serve_choice *choice = &answer->choices[i];
        weir_chunk chunk;
        if (!begin_choice(choice, keep_one)) fail_no_memory(choice);
        while (!choice->finished && take_chunk(choice, &chunk)) {
            if (!read_chunk(choice, &chunk, keep_one))
                fail_no_memory(choice);
            else if (chunk.finished)
                finish(choice, chunk.reason);
        }
    }
    const serve_choice *failed = failed_choice(answer);
    if (failed != NULL) {
        serve_call_refuse(call, error_status(failed), NULL, weir_status_name(failed->error.code), "%s",
                          error_message(failed, message));
        return;
    }
    add_all(answer, &text);
    for (int32_t i = 0; i < answer->n; i++) forget_whole(&answer->choices[i]);
    serve_call_answer_text(call, 200, "application/json", &text);
}

/* ---- The service thread ---- */

static bool start_tape(serve_answer *answer)
{
    serve_call *call = answer->call;
    weir__text head = {0};
    add_head(answer, answer->form->chunk, &head);
    bool started = serve_tape_start(answer, &head);
    weir__text_fini(&head);
    if (started) return true;
    call->answer = NULL;
    serve_answer_destroy(answer);
    serve_call_send(call);
    return false;
}

/* False: out of memory. */
static bool watch(serve_choice *choice)
{
    if (choice->flight != NULL)
        return weir_flight_watch(choice->flight, on_flight, choice->answer) == WEIR_OK;
    weir_stream_set_ready(choice->stream, on_ready, choice->answer);
    return true;
}

void serve_answer_start(serve_answer *answer)
{
    if (answer->resume) {
        if (!start_tape(answer)) return;
    } else if (answer->stream) {
        serve_call_begin(answer->call, "text/event-stream; charset=utf-8");
    }
    if (answer->stream) {
        bool begin = answer->begins && !answer->echoes_scores; /* else with the first chunk */
        for (int32_t i = 0; i < answer->n && begin; i++) send_part(&answer->choices[i], BEGIN, NULL);
        serve_call_send(answer->call);
    }
    for (int32_t i = 0; i < answer->n; i++)
        if (!watch(&answer->choices[i])) fail_no_memory(&answer->choices[i]);
    if (answer->n_finished > 0) serve_server_post(answer->call);
}

void serve_answer_pump(serve_answer *answer)
{
    serve_call *call = answer->call;
    if (call->ended) return;
    if (!answer->stream) {
        for (int32_t i = 0; i < answer->n; i++)
            if (!answer->choices[i].finished && !is_complete(&answer->choices[i])) return;
        forget_ready(answer);
        serve_server_unlist(call);
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
        if (choice->flight == NULL) weir_stream_cancel(choice->stream);
        read_chunk(choice, &end, send_one); /* what was held back */
        if (!asked) choice->error.code = WEIR_STOPPED;
        finish(choice, end.reason);
        end_choice(choice);
    }
    end_events(answer);
}
