/* choice.c: one of an answer's choices: its stream, its output and its end. The stream is the choice's own,
 * or that of a flight which several requests share. Chunks are taken without waiting; a parser divides their
 * text into deltas, where the answer is a chat's, and each delta goes to a function: it writes an event, or
 * keeps the delta as a part of the answer. A choice that has finished has its usage and releases what holds
 * the engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "base/mem.h"
#include "error.h"
#include "server/request/workers.h"

/* ---- Cache misses ---- */

/* Adds how the line begins in which both texts diverge, if it is in a system message or a tool's result: such
 * a line may change with each request, and --drop-line or --drop-last-line could drop it. */
static void add_line(const weir_miss_info *info, weir__text *text)
{
    bool told = strcmp(info->role, "system") == 0 || strcmp(info->role, "developer") == 0 ||
                strcmp(info->role, "tool") == 0;
    if (told && info->line[0] != '\0') weir__json_string(text, "line", info->line);
}

bool serve_choice_add_miss(const serve_choice *choice, bool texts, weir__text *text)
{
    weir_miss_info info = {.size = sizeof info};
    if (weir_stream_miss(choice->stream, &info) != WEIR_OK || info.miss == WEIR_MISS_NONE ||
        info.miss == WEIR_MISS_COLD || info.miss == WEIR_MISS_OFF)
        return false;
    weir__text_printf(text, "{\"reason\":\"%s\",\"matched_tokens\":%d", weir_miss_name(info.miss),
                      info.n_matched);
    if (info.message >= 0) {
        weir__text_printf(text, ",\"message\":%d,\"in_message\":%s", info.message,
                          info.in_message ? "true" : "false");
        weir__json_string(text, "role", info.role);
    }
    if (texts && info.miss == WEIR_MISS_DIVERGED) {
        weir__json_string(text, "prompt", info.prompt);
        if (info.cached[0] != '\0') weir__json_string(text, "cached", info.cached);
        add_line(&info, text);
    }
    weir__text_add_string(text, "}");
    return true;
}

void serve_choice_add_miss_member(const serve_choice *choice, bool texts, weir__text *text)
{
    size_t before = text->n;
    weir__json_key(text, "miss");
    if (!serve_choice_add_miss(choice, texts, text)) weir__text_cut(text, before);
}

/* ---- When something can be taken ---- */

static void on_ready(weir_stream *stream, void *user)
{
    const serve_answer *answer = user;
    (void)stream;
    serve_ready_post(answer->call);
}

static void on_flight(weir_flight *flight, void *user)
{
    (void)flight;
    on_ready(NULL, user);
}

bool serve_choice_watch(serve_choice *choice)
{
    if (choice->flight != NULL)
        return weir_flight_watch(choice->flight, on_flight, choice->answer) == WEIR_OK;
    weir_stream_set_ready(choice->stream, on_ready, choice->answer);
    return true;
}

void serve_choice_unwatch(serve_choice *choice)
{
    if (choice->flight != NULL)
        weir_flight_unwatch(choice->flight, on_flight, choice->answer);
    else
        weir_stream_set_ready(choice->stream, NULL, NULL);
}

/* ---- Life ---- */

bool serve_choice_init(serve_choice *choice, serve_answer *answer, int32_t index)
{
    choice->answer = answer;
    choice->index = index;
    return weir_stream_create(&choice->stream, NULL) == WEIR_OK &&
           (answer->chat == NULL || weir_chat_parser_create(answer->chat, &choice->parser, NULL) == WEIR_OK);
}

void serve_choice_forget(serve_choice *choice)
{
    for (size_t i = 0; i < choice->n_kept; i++) {
        weir__mem_free(choice->parts[i].id);
        weir__mem_free(choice->parts[i].name);
        weir__text_fini(&choice->parts[i].text);
        weir__text_fini(&choice->parts[i].scores);
    }
    weir__mem_free(choice->parts);
    choice->parts = NULL;
    choice->n_kept = choice->parts_capacity = 0;
    serve_scores_fini(&choice->scores);
    weir__text_fini(&choice->ids);
}

void serve_choice_cancel(serve_choice *choice)
{
    if (choice->flight == NULL) weir_stream_cancel(choice->stream);
}

/* Releases what holds the engine and the model. */
static void release_choice(serve_choice *choice)
{
    weir_stream_release(choice->stream);
    weir_flight_release(choice->flight);
    weir_chat_parser_destroy(choice->parser);
    choice->stream = NULL;
    choice->flight = NULL;
    choice->parser = NULL;
}

void serve_choice_settle(serve_choice *choice)
{
    bool shows = choice->answer->call->server->params.log_text;
    if (!choice->finished) return;
    serve_choice_add_miss_member(choice, shows, &choice->miss);
    serve_choice_unwatch(choice);
    release_choice(choice);
}

void serve_choice_fini(serve_choice *choice)
{
    if (choice->stream != NULL) { /* else it is settled, or was never created */
        serve_choice_unwatch(choice);
        serve_choice_cancel(choice); /* it may be kept, and then a release ends nothing */
    }
    release_choice(choice);
    serve_choice_forget(choice);
    weir__text_fini(&choice->miss);
    serve_recorded_fini(&choice->recorded);
}

/* ---- Calls ---- */

static void read_arguments(serve_arguments *a, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !a->ended; i++) {
        char c = bytes[i];
        if (a->escaped || (a->quoted && c == '\\'))
            a->escaped = !a->escaped;
        else if (c == '"')
            a->quoted = !a->quoted;
        else if (!a->quoted && (c == '{' || c == '['))
            a->depth++;
        else if (!a->quoted && (c == '}' || c == ']'))
            a->ended = --a->depth <= 0;
    }
}

bool serve_choice_is_open(const serve_choice *choice)
{
    return choice->n_parts > 0 && choice->kind == WEIR_DELTA_TOOL_CALL && !choice->arguments.ended;
}

size_t serve_choice_calls(const serve_choice *choice)
{
    return choice->n_tools - serve_choice_is_open(choice);
}

bool serve_choice_ended_with_calls(const serve_choice *choice)
{
    return !serve_choice_is_cut(choice) && choice->n_tools > 0 && !serve_choice_is_open(choice);
}

/* ---- Ends ---- */

bool serve_choice_is_cut(const serve_choice *choice)
{
    return choice->finished &&
           (choice->reason == WEIR_REASON_LENGTH || choice->reason == WEIR_REASON_DEADLINE);
}

bool serve_choice_failed(const serve_choice *choice)
{
    return choice->finished && (choice->reason == WEIR_REASON_ERROR ||
                                (choice->reason == WEIR_REASON_CANCELLED && !choice->answer->stopped));
}

void serve_choice_explain(const serve_choice *choice, serve_failure *why)
{
    const weir_error *error = &choice->error;
    const serve_terms *terms = &choice->answer->call->terms;
    bool stops = choice->reason == WEIR_REASON_CANCELLED || error->code == WEIR_STOPPED;
    bool grammar = error->code == WEIR_GRAMMAR; /* that it allows no token shows here only; so for biases */
    bool callers = grammar || (error->code == WEIR_INVALID && (strcmp(error->field, "logit_bias") == 0 ||
                                                               strcmp(error->field, "allowed_tokens") == 0 ||
                                                               strcmp(error->field, "bad_words") == 0));
    const char *field = grammar && terms->schema_field != NULL ? "json_schema" : error->field;
    *why = (serve_failure){
        .status = stops || error->code == WEIR_NO_MEMORY ? 503
                  : callers                              ? 400
                                                         : 500,
        .code = callers ? "invalid_value" : weir_status_name(error->code),
    };
    if (callers) serve_names_field(field, terms, why->field, sizeof why->field);
    if (stops)
        snprintf(why->message, sizeof why->message, "the server is going down");
    else
        serve_names_message(error, terms, why->message, sizeof why->message);
}

void serve_choice_finish(serve_choice *choice, weir_reason reason)
{
    choice->finished = true;
    choice->reason = reason;
    choice->usage = weir_stream_usage(choice->stream);
    if (choice->answer->recorded.on) serve_recorded_prompt(&choice->recorded, choice->stream);
    if (reason == WEIR_REASON_ERROR && choice->error.code == WEIR_OK)
        weir_stream_error(choice->stream, &choice->error);
    choice->answer->n_finished++;
}

weir_usage serve_choice_usage(const serve_choice *choice)
{
    if (choice->finished) return choice->usage;
    weir_usage usage = weir_stream_usage(choice->stream); /* the engine is ahead of who reads */
    usage.n_generated = choice->n_generated;
    usage.total_ns = choice->total_ns;
    if (choice->n_generated == 0) usage.ttft_ns = 0;
    return usage;
}

void serve_choice_fail(serve_choice *choice)
{
    choice->error = (weir_error){.code = WEIR_NO_MEMORY, .message = "the server is out of memory"};
    serve_choice_cancel(choice);
    serve_choice_finish(choice, WEIR_REASON_ERROR);
}

/* ---- Chunks ---- */

bool serve_choice_take(serve_choice *choice, weir_chunk *chunk)
{
    return (choice->flight != NULL ? weir_flight_next(choice->flight, &choice->flight_at, 0, chunk)
                                   : weir_stream_try_next(choice->stream, chunk)) == WEIR_OK;
}

bool serve_choice_complete(const serve_choice *choice)
{
    uint64_t beyond = UINT64_MAX;
    weir_chunk chunk;
    return choice->flight != NULL ? weir_flight_next(choice->flight, &beyond, 0, &chunk) == WEIR_END
                                  : weir_stream_finished(choice->stream);
}

static void trace_call(const serve_choice *choice, const weir_delta *delta)
{
    serve_trace *trace = choice->answer->call->trace;
    const int32_t number = (int32_t)choice->n_tools - 1;
    if (delta->kind == WEIR_DELTA_TOOL_CALL)
        serve_trace_call_begins(trace, choice->index, number);
    else if (delta->kind == WEIR_DELTA_ARGUMENTS)
        serve_trace_call_goes_on(trace, choice->index, number, delta->length);
}

bool serve_choice_pass(serve_choice *choice, const weir_delta *delta, serve_choice_fn take)
{
    weir_delta_kind kind = delta->kind;
    bool call = kind == WEIR_DELTA_TOOL_CALL;
    choice->fresh = kind != WEIR_DELTA_ARGUMENTS && (call || choice->n_parts == 0 || kind != choice->kind);
    if (choice->fresh) {
        choice->kind_before = choice->kind;
        choice->kind = kind;
        choice->n_parts++;
        choice->n_tools += call;
        if (call) choice->arguments = (serve_arguments){0};
    }
    if (kind == WEIR_DELTA_ARGUMENTS) read_arguments(&choice->arguments, delta->text, delta->length);
    if (choice->answer->call->trace != NULL) trace_call(choice, delta);
    return take(choice, delta);
}

bool serve_choice_read(serve_choice *choice, const weir_chunk *chunk, serve_choice_fn take)
{
    weir_delta delta = {
        .kind = WEIR_DELTA_CONTENT, .index = -1, .text = chunk->text, .length = chunk->length};
    if (chunk->n_generated > choice->n_generated) { /* a chunk of the server's own has none */
        choice->n_generated = chunk->n_generated;
        choice->total_ns = chunk->total_ns;
    }
    if (choice->answer->recorded.on && !serve_recorded_add(&choice->recorded, chunk)) return false;
    if (choice->answer->returns_scores && !serve_scores_add(&choice->scores, chunk, INT32_MAX)) return false;
    for (size_t i = 0; choice->answer->returns_ids && i < chunk->n_tokens; i++)
        if (!weir__text_printf(&choice->ids, choice->ids.n > 0 ? ",%d" : "%d", chunk->tokens[i]))
            return false;
    if (choice->parser == NULL) return serve_choice_pass(choice, &delta, take);
    if (weir_chat_parser_feed(choice->parser, chunk->text, chunk->length, chunk->finished, NULL) != WEIR_OK)
        return false;
    while (weir_chat_parser_next(choice->parser, &delta) == WEIR_OK)
        if (!serve_choice_pass(choice, &delta, take)) return false;
    return true;
}

weir_status serve_choice_prompt(const serve_choice *choice, weir_chunk *prompt)
{
    const serve_answer *answer = choice->answer;
    int32_t at = (int32_t)(choice - answer->choices);
    at -= at % answer->n_each; /* they are the first one's, and the same for all of a prompt */
    return weir_stream_prompt_logprobs(answer->choices[at].stream, prompt);
}

bool serve_choice_begin(serve_choice *choice, serve_choice_fn take)
{
    const serve_answer *answer = choice->answer;
    weir_chunk prompt, before = {0};
    choice->begun = true;
    if (answer->echoes_scores && serve_choice_prompt(choice, &prompt) == WEIR_OK &&
        !serve_scores_add(&choice->scores, &prompt, answer->n_top))
        return false;
    before.text = weir_stream_source_text(choice->stream, &before.length);
    return answer->chat == NULL || before.length == 0 || serve_choice_read(choice, &before, take);
}

/* ---- Parts ---- */

static bool add_part(serve_choice *choice, const weir_delta *delta)
{
    if (!weir__mem_grow(&choice->parts, &choice->parts_capacity, choice->n_kept + 1, sizeof *choice->parts))
        return false;
    serve_part part = {.kind = delta->kind};
    if (delta->kind == WEIR_DELTA_TOOL_CALL) {
        part.id = weir__mem_strdup(delta->id != NULL ? delta->id : "");
        part.name = weir__mem_alloc(delta->length + 1);
        if (part.id == NULL || part.name == NULL) { /* the failure's event has the parts before it */
            weir__mem_free(part.id);
            weir__mem_free(part.name);
            return false;
        }
        memcpy(part.name, delta->text, delta->length);
        part.name[delta->length] = '\0';
    }
    choice->parts[choice->n_kept++] = part;
    return true;
}

bool serve_choice_keep(serve_choice *choice, const weir_delta *delta)
{
    if (choice->fresh && !add_part(choice, delta)) return false;
    if (delta->kind == WEIR_DELTA_TOOL_CALL || choice->n_kept == 0) return true;
    return weir__text_add(&choice->parts[choice->n_kept - 1].text, delta->text, delta->length);
}

void serve_choice_add_text(const serve_choice *choice, weir_delta_kind kind, weir__text *text)
{
    for (size_t i = 0; i < choice->n_kept; i++)
        if (choice->parts[i].kind == kind)
            weir__text_add(text, choice->parts[i].text.bytes, choice->parts[i].text.n);
}

void serve_part_add_arguments(const serve_part *part, weir__text *text)
{
    json_t *value = NULL;
    const char *bytes = part->text.bytes != NULL ? part->text.bytes : "";
    weir_status status = weir__json_parse_texts(bytes, part->text.n, "arguments", WEIR_INVALID, &value, NULL);
    text->failed = text->failed || status == WEIR_NO_MEMORY || status == WEIR_ABORTED;
    if (status == WEIR_OK && json_is_object(value))
        weir__text_add(text, bytes, part->text.n);
    else
        weir__text_add_string(text, "{}");
    json_decref(value);
}
