/* responses.c: POST /v1/responses and /v1/responses/input_tokens. The parts of the one choice are the
 * response's items: as events, an item begins with its first delta and stops when the next one begins; as a
 * whole, all are written at the end. So the parts are kept in both cases. A response that is to be kept takes
 * the request's conversation along, and goes to the records when it has ended.
 * SPDX-License-Identifier: Apache-2.0 */
#include "openai.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/access/keys.h"
#include "server/api/common/answer.h"
#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

/* ---- Items ---- */

/* True if a part is the call of a custom tool. */
static bool is_custom(const serve_answer *answer, const serve_part *part)
{
    return serve_answer_is_custom(answer, part->name);
}

static const char *prefix_of(const serve_answer *answer, const serve_part *part)
{
    return part->kind == WEIR_DELTA_REASONING ? "rs"
           : part->kind == WEIR_DELTA_CONTENT ? "msg"
           : is_custom(answer, part)          ? "ctc"
                                              : "fc";
}

/* "msg_TOKEN_2": the answer's token, and the item's place. */
static void add_id(const serve_choice *choice, const char *member, size_t index, weir__text *text)
{
    weir__json_key(text, member);
    weir__text_printf(text, "\"%s_%s_%zu\"", prefix_of(choice->answer, &choice->parts[index]),
                      choice->answer->id + strlen(serve_responses_form.id), index);
}

static void add_scores(const weir__text *scores, weir__text *text)
{
    weir__text_add_string(text, ",\"logprobs\":[");
    weir__text_add(text, scores->bytes, scores->n);
    weir__text_add_string(text, "]");
    text->failed = text->failed || scores->failed;
}

/* The content of a message or of reasoning. */
static void add_content(const serve_part *part, bool empty, weir__text *text)
{
    static const weir__text none;
    bool reasoning = part->kind == WEIR_DELTA_REASONING;
    weir__text_printf(text, "{\"type\":\"%s\"", reasoning ? "reasoning_text" : "output_text");
    weir__json_bytes(text, "text", empty ? "" : part->text.bytes, empty ? 0 : part->text.n);
    if (!reasoning) weir__text_add_string(text, ",\"annotations\":[]");
    if (!reasoning) add_scores(empty ? &none : &part->scores, text);
    weir__text_add_string(text, "}");
}

/* The input of a custom tool, or a function's arguments. */
static void add_arguments(const serve_answer *answer, const serve_part *part, bool empty, weir__text *text)
{
    weir__text input = {0};
    size_t at = 0;
    if (!is_custom(answer, part)) {
        weir__json_bytes(text, "arguments", part->text.bytes, empty ? 0 : part->text.n);
        return;
    }
    if (!empty) serve_ask_custom_input(&part->text, &at, &input);
    weir__json_bytes(text, "input", input.bytes, input.n);
    text->failed = text->failed || input.failed;
    weir__text_fini(&input);
}

/* A tool's name, and its namespace if it has one. */
static void add_name(const serve_answer *answer, const char *name, weir__text *text)
{
    for (size_t i = 0; i < json_array_size(answer->namespaces); i++) {
        const char *space = json_string_value(json_array_get(answer->namespaces, i));
        size_t n = strlen(space);
        if (strncmp(name, space, n) != 0 || name[n] != '.') continue;
        weir__json_string(text, "namespace", space);
        name += n + 1;
        break;
    }
    weir__json_string(text, "name", name);
}

/* status "in_progress": the item has no content yet. */
static void add_item(const serve_choice *choice, size_t index, const char *status, weir__text *text)
{
    const serve_part *part = &choice->parts[index];
    bool begins = strcmp(status, "in_progress") == 0;
    weir__text_add_string(text, "{");
    add_id(choice, "id", index, text);
    switch (part->kind) {
    case WEIR_DELTA_REASONING:
        weir__text_printf(text, ",\"type\":\"reasoning\",\"status\":\"%s\",\"summary\":[],\"content\":[",
                          status);
        break;
    case WEIR_DELTA_CONTENT:
        weir__text_printf(
            text, ",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[", status);
        break;
    default:
        weir__text_printf(text, ",\"type\":\"%s\",\"status\":\"%s\"",
                          is_custom(choice->answer, part) ? "custom_tool_call" : "function_call", status);
        weir__json_string(text, "call_id", part->id);
        add_name(choice->answer, part->name, text);
        add_arguments(choice->answer, part, begins, text);
        weir__text_add_string(text, "}");
        return;
    }
    if (!begins) add_content(part, false, text);
    weir__text_add_string(text, "]}");
}

/* ---- Responses ---- */

static const char *status_of(const serve_choice *choice)
{
    return choice->finished && choice->reason == WEIR_REASON_CANCELLED                         ? "cancelled"
           : serve_choice_is_cut(choice) || (choice->finished && serve_choice_is_open(choice)) ? "incomplete"
                                                                                               : "completed";
}

/* The status of an item: only the last one may have been cut. status: the response's. */
static const char *item_status(const serve_choice *choice, size_t index, const char *status)
{
    bool whole = index + 1 < choice->n_kept || strcmp(status, "completed") == 0;
    return whole ? "completed" : "incomplete";
}

static void add_usage(const serve_answer *answer, weir__text *text)
{
    const serve_choice *choice = &answer->choices[0];
    const weir_usage *usage = &choice->usage;
    weir__text_printf(text,
                      "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
                      "\"cache_write_tokens\":0",
                      usage->n_prompt, usage->n_cached);
    if (answer->n_dropped > 0) weir__text_printf(text, ",\"dropped_lines\":%d", answer->n_dropped);
    serve_choice_add_miss_member(choice, answer->shows_texts, text);
    weir__text_printf(text,
                      "},\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},"
                      "\"total_tokens\":%d}",
                      usage->n_generated, usage->n_reasoning, usage->n_prompt + usage->n_generated);
}

/* error: a failure's message; NULL: none. */
static void add_response(const serve_answer *answer, const char *status, const char *error, weir__text *text)
{
    const serve_choice *choice = &answer->choices[0];
    bool begins = strcmp(status, "in_progress") == 0;
    weir__text_printf(text, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\"",
                      answer->id, (long long)answer->created_s, status);
    weir__json_string(text, "model", answer->model);
    weir__text_add_string(text, ",\"output\":[");
    for (size_t i = 0; i < choice->n_kept && !begins; i++) {
        if (i > 0) weir__text_add_string(text, ",");
        add_item(choice, i, item_status(choice, i, status), text);
    }
    weir__text_add_string(text, "],\"error\":");
    if (error != NULL) {
        weir__text_add_string(text, "{\"code\":\"server_error\"");
        weir__json_string(text, "message", error);
        weir__text_add_string(text, "}");
    } else {
        weir__text_add_string(text, "null");
    }
    weir__text_printf(text, ",\"incomplete_details\":%s,\"usage\":",
                      serve_choice_is_cut(choice) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (begins || error != NULL)
        weir__text_add_string(text, "null");
    else
        add_usage(answer, text);
    weir__text_add(text, answer->repeated.bytes, answer->repeated.n);
    weir__text_add_string(text, "}");
}

/* ---- Events ---- */

static weir__text *begin_event(serve_answer *answer, const char *name)
{
    weir__text *text = serve_answer_begin_event(answer, name);
    weir__text_printf(text, "{\"type\":\"%s\",\"sequence_number\":%llu", name,
                      (unsigned long long)answer->n_events++);
    return text;
}

static void end_event(serve_answer *answer, weir__text *text)
{
    weir__text_add_string(text, "}");
    serve_answer_end_event(answer);
}

static void send_response(serve_answer *answer, const char *name, const char *status, const char *error)
{
    weir__text *text = begin_event(answer, name);
    weir__text_add_string(text, ",\"response\":");
    add_response(answer, status, error, text);
    end_event(answer, text);
}

static void send_item(serve_choice *choice, const char *name, size_t index, const char *status)
{
    weir__text *text = begin_event(choice->answer, name);
    weir__text_printf(text, ",\"output_index\":%zu,\"item\":", index);
    add_item(choice, index, status, text);
    end_event(choice->answer, text);
}

/* Begins an event within an item. */
static weir__text *begin_inner(serve_choice *choice, const char *name, size_t index)
{
    weir__text *text = begin_event(choice->answer, name);
    add_id(choice, "item_id", index, text);
    weir__text_printf(text, ",\"output_index\":%zu", index);
    if (choice->parts[index].kind != WEIR_DELTA_TOOL_CALL)
        weir__text_add_string(text, ",\"content_index\":0");
    return text;
}

static void send_content(serve_choice *choice, const char *name, size_t index, bool empty)
{
    weir__text *text = begin_inner(choice, name, index);
    weir__text_add_string(text, ",\"part\":");
    add_content(&choice->parts[index], empty, text);
    end_event(choice->answer, text);
}

static void start_response(serve_answer *answer)
{
    send_response(answer, "response.created", "in_progress", NULL);
    send_response(answer, "response.in_progress", "in_progress", NULL);
}

static void start_item(serve_choice *choice, size_t index)
{
    send_item(choice, "response.output_item.added", index, "in_progress");
    if (choice->parts[index].kind != WEIR_DELTA_TOOL_CALL)
        send_content(choice, "response.content_part.added", index, true);
}

static void stop_item(serve_choice *choice, size_t index)
{
    const serve_part *part = &choice->parts[index];
    weir__text *text;
    switch (part->kind) {
    case WEIR_DELTA_REASONING:
    case WEIR_DELTA_CONTENT:
        text = begin_inner(choice,
                           part->kind == WEIR_DELTA_REASONING ? "response.reasoning_text.done"
                                                              : "response.output_text.done",
                           index);
        weir__json_bytes(text, "text", part->text.bytes, part->text.n);
        if (part->kind == WEIR_DELTA_CONTENT) add_scores(&part->scores, text);
        end_event(choice->answer, text);
        send_content(choice, "response.content_part.done", index, false);
        break;
    default:
        text = begin_inner(choice,
                           is_custom(choice->answer, part) ? "response.custom_tool_call_input.done"
                                                           : "response.function_call_arguments.done",
                           index);
        if (!is_custom(choice->answer, part)) add_name(choice->answer, part->name, text);
        add_arguments(choice->answer, part, false, text);
        end_event(choice->answer, text);
    }
    send_item(choice, "response.output_item.done", index, item_status(choice, index, status_of(choice)));
}

/* Takes the tokens of a part's next piece; of content, their logprobs into *scores and the part's own. */
static void score_piece(serve_choice *choice, serve_part *part, const char *bytes, size_t n,
                        weir__text *scores)
{
    const serve_answer *answer = choice->answer;
    bool content = part->kind == WEIR_DELTA_CONTENT;
    if (!answer->returns_scores) return;
    serve_scores_take(&choice->scores, answer->call->loaded->model, bytes, n, content ? scores : NULL);
    part->scores.quota = &answer->call->answers;
    if (scores->n > 0 && part->scores.n > 0) weir__text_add_string(&part->scores, ",");
    weir__text_add(&part->scores, scores->bytes, scores->n);
    part->scores.failed = part->scores.failed || scores->failed;
}

static void send_input(serve_choice *choice, serve_part *part)
{
    weir__text input = {0};
    serve_ask_custom_input(&part->text, &part->n_read, &input);
    if (input.n > 0 || input.failed) {
        weir__text *text = begin_inner(choice, "response.custom_tool_call_input.delta", choice->n_kept - 1);
        weir__json_bytes(text, "delta", input.bytes, input.n);
        text->failed = text->failed || input.failed;
        end_event(choice->answer, text);
    }
    weir__text_fini(&input);
}

static void send_delta(serve_choice *choice, const weir_delta *given)
{
    size_t index = choice->n_kept - 1;
    serve_part *part = &choice->parts[index];
    weir__text scores = {0};
    if (choice->fresh && index > 0) stop_item(choice, index - 1);
    if (choice->fresh) start_item(choice, index);
    if (given->kind == WEIR_DELTA_TOOL_CALL) return;
    score_piece(choice, part, given->text, given->length, &scores);
    if (is_custom(choice->answer, part)) {
        send_input(choice, part);
    } else {
        weir__text *text =
            begin_inner(choice,
                        given->kind == WEIR_DELTA_REASONING ? "response.reasoning_text.delta"
                        : given->kind == WEIR_DELTA_CONTENT ? "response.output_text.delta"
                                                            : "response.function_call_arguments.delta",
                        index);
        weir__json_bytes(text, "delta", given->text, given->length);
        if (given->kind == WEIR_DELTA_CONTENT) add_scores(&scores, text);
        end_event(choice->answer, text);
    }
    weir__text_fini(&scores);
}

static void end_response(serve_choice *choice)
{
    if (choice->n_kept > 0) stop_item(choice, choice->n_kept - 1);
}

/* Keeps the response for later requests. */
static void keep_response(serve_answer *answer, const char *status, const char *error)
{
    serve_record *record = answer->record;
    if (record == NULL) return;
    add_response(answer, status, error, &record->response);
    answer->record = NULL;
    serve_records_put(answer->call->server->records, record,
                      weir__clock_now_ns() + answer->call->response_s * WEIR__NS_PER_S);
}

static void finish_response(serve_answer *answer)
{
    const char *status = status_of(&answer->choices[0]);
    bool whole = strcmp(status, "completed") == 0;
    keep_response(answer, status, NULL);
    send_response(answer, whole ? "response.completed" : "response.incomplete", status, NULL);
}

static void fail_response(serve_answer *answer, const serve_failure *why)
{
    if (answer->background) keep_response(answer, "failed", why->message); /* its client learns it later */
    send_response(answer, "response.failed", "failed", why->message);
}

static void whole_response(serve_answer *answer, weir__text *text)
{
    serve_choice *choice = &answer->choices[0];
    for (size_t i = 0; i < choice->n_kept; i++) {
        weir__text scores = {0};
        score_piece(choice, &choice->parts[i], choice->parts[i].text.bytes, choice->parts[i].text.n, &scores);
        weir__text_fini(&scores);
    }
    add_response(answer, status_of(&answer->choices[0]), NULL, text);
    keep_response(answer, status_of(&answer->choices[0]), NULL);
}

/* A comment: the API has no event for it, and a response's own events have numbers that clients count. */
static void write_progress(const serve_choice *choice, const weir_progress *progress, weir__text *text)
{
    (void)choice;
    weir__text_add_string(text, ": {");
    serve_answer_add_progress(progress, text);
    weir__text_add_string(text, "}\n\n");
}

static void add_pending(const serve_answer *answer, weir__text *text)
{
    add_response(answer, "in_progress", NULL, text);
}

const serve_form serve_responses_form = {
    .id = "resp_",
    .keeps = true,
    .start = start_response,
    .delta = send_delta,
    .progress = write_progress,
    .end = end_response,
    .finish = finish_response,
    .fail = fail_response,
    .whole = whole_response,
    .pending = add_pending,
};

/* ---- The endpoints ---- */

static bool repeat_option(const serve_ask *ask, const char *name, const char *standard, weir__text *text)
{
    const json_t *value = serve_ask_given(ask, name);
    char *dump = value != NULL ? weir__json_dump(value) : NULL;
    weir__json_key(text, name);
    weir__text_add_string(text, dump != NULL ? dump : standard);
    weir__mem_free(dump);
    return value == NULL || dump != NULL;
}

/* As it was given. */
static bool repeat_number(const serve_ask *ask, const char *name, float standard, weir__text *text)
{
    bool given = json_is_number(serve_ask_given(ask, name));
    if (!given) weir__json_float(text, name, standard);
    return !given || repeat_option(ask, name, "null", text);
}

/* ---- Kept responses ---- */

/* False also where the call was interrupted, and it has its answer then. */
static bool add_items(serve_call *call, const json_t *items, const char *token, weir__text *text)
{
    size_t i;
    json_t *item;
    bool ok = true;
    json_array_foreach((json_t *)items, i, item)
    {
        char id[SERVE_RECORD_ID + 24];
        if (!serve_call_goes_on(call)) return false;
        snprintf(id, sizeof id, "item_%s_%zu", token, i);
        json_t *lean = serve_item_lean(item, id);
        char *dump = lean != NULL ? weir__json_dump(lean) : NULL;
        if (text->n > 0) weir__text_add_string(text, ",");
        ok = ok && dump != NULL && weir__text_add_string(text, dump);
        weir__mem_free(dump);
        json_decref(lean);
    }
    return ok;
}

/* Keeps the conversation, for a response that is to be kept. False: out of memory. */
static bool record_conversation(const serve_ask *ask, serve_answer *answer)
{
    serve_call *call = ask->call;
    const json_t *input = serve_ask_given(ask, "input");
    const char *token = answer->id + strlen(serve_responses_form.id);
    if (ask->unkept || call->server->params.response_bytes == 0) return true;
    answer->record =
        serve_record_create(answer->id, call->owner, serve_keys_salt(call->server->keys, call->key));
    json_t *items = json_is_string(input) ? json_pack("[{s:s,s:O}]", "role", "user", "content", input)
                                          : json_incref((json_t *)input);
    bool ok = answer->record != NULL && items != NULL &&
              add_items(call, ask->previous, token, &answer->record->before) &&
              add_items(call, items, token, &answer->record->input);
    json_decref(items);
    return ok;
}

/* The request's options, which a response repeats: as given, or else their defaults. */
static bool repeat_options(const serve_ask *ask, serve_answer *answer)
{
    weir__text *text = &answer->repeated;
    static const struct {
        const char *name, *standard;
    } members[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"previous_response_id", "null"},
        {"prompt_cache_key", "null"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"safety_identifier", "null"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"user", "null"},
    };
    bool ok = true;
    /* json_key would omit the comma at the start of a text. */
    weir__text_printf(text, ",\"background\":%s,\"parallel_tool_calls\":%s,\"service_tier\":\"default\"",
                      ask->background ? "true" : "false", ask->chat.parallel_tool_calls ? "true" : "false");
    ok = record_conversation(ask, answer);
    weir__text_printf(text, ",\"store\":%s,\"truncation\":\"disabled\"",
                      answer->record != NULL ? "true" : "false");
    ok = repeat_number(ask, "temperature", ask->sampler.temp, text) &&
         repeat_number(ask, "top_p", ask->sampler.top_p, text) && ok;
    weir__text_printf(text, ",\"top_logprobs\":%d", ask->request.n_logprobs);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        ok = repeat_option(ask, members[i].name, members[i].standard, text) && ok;
    weir__text_close(text, "", 0); /* it is there as long as the answer */
    return ok && !text->failed;
}

static const serve_dialect dialect = {
    .where = SERVE_ASK_RESPONSES,
    .read = serve_ask_responses,
    .form = &serve_responses_form,
    .repeat = repeat_options,
    .count = "{\"object\":\"response.input_tokens\",\"input_tokens\":",
};

void serve_responses(serve_call *call)
{
    serve_ask_converse(call, &dialect);
}

void serve_input_tokens(serve_call *call)
{
    serve_ask_count(call, &dialect);
}
