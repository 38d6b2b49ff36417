/* messages.c: POST /v1/messages and /v1/messages/count_tokens, in the format of Anthropic's API.
 * SPDX-License-Identifier: Apache-2.0 */
#include "anthropic.h"

#include <stdio.h>

#include "base/json.h"
#include "server/api/common/answer.h"
#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/request/call.h"

/* ---- Errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* Anthropic's members, and weir's names of the field and of the cause. Agents shorten a conversation when
 * they read Anthropic's own words. */
void serve_messages_error(const serve_call *call, int status, const char *field, const char *code,
                          const char *message, weir__text *text)
{
    char full[640];
    snprintf(full, sizeof full, "%s%s",
             serve_ask_is(code, "context_length_exceeded") ? "prompt is too long: " : "", message);
    weir__text_printf(text, "{\"type\":\"error\",\"error\":{\"type\":\"%s\"", error_type(status));
    weir__json_string(text, "message", full);
    weir__json_string(text, "param", field != NULL && field[0] != '\0' ? field : NULL);
    weir__json_string(text, "code", code);
    weir__text_add_string(text, "}");
    weir__json_string(text, "request_id", serve_call_request_id(call));
    weir__text_add_string(text, "}");
}

/* ---- Shared by whole answers and events ---- */

/* input_tokens are those of the prompt that did not come from the cache. */
static void add_usage(const serve_answer *answer, bool ended, weir__text *text)
{
    const serve_choice *choice = &answer->choices[0];
    weir_usage usage = ended ? choice->usage : weir_stream_usage(choice->stream);
    weir__text_printf(text,
                      "{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
                      "\"output_tokens\":%d",
                      usage.n_prompt - usage.n_cached, usage.n_cached, usage.n_generated);
    if (ended && usage.n_reasoning > 0)
        weir__text_printf(text, ",\"output_tokens_details\":{\"thinking_tokens\":%d}", usage.n_reasoning);
    if (ended && answer->n_dropped > 0) weir__text_printf(text, ",\"dropped_lines\":%d", answer->n_dropped);
    if (ended) serve_choice_add_miss_member(choice, answer->shows_texts, text);
    weir__text_add_string(text, "}");
}

static void add_stop(const serve_choice *choice, weir__text *text)
{
    bool cut = serve_choice_is_cut(choice), calls = serve_choice_ended_with_calls(choice);
    const char *stop = choice->reason == WEIR_REASON_STOP_WORDS
                           ? serve_answer_stop_text(choice->answer, choice->usage.stop)
                           : NULL;
    weir__json_string(text, "stop_reason",
                      cut            ? "max_tokens"
                      : calls        ? "tool_use"
                      : stop != NULL ? "stop_sequence"
                                     : "end_turn");
    weir__json_string(text, "stop_sequence", cut || calls ? NULL : stop);
}

static void begin_message(const serve_answer *answer, weir__text *text)
{
    weir__text_printf(text, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", answer->id);
    weir__json_string(text, "model", answer->model);
    weir__text_add_string(text, ",\"content\":[");
}

/* ---- Events ---- */

static void start_message(serve_answer *answer)
{
    weir__text *text = serve_answer_begin_event(answer, "message_start");
    weir__text_add_string(text, "{\"type\":\"message_start\",\"message\":");
    begin_message(answer, text);
    weir__text_add_string(text, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    add_usage(answer, false, text);
    weir__text_add_string(text, "}}");
    serve_answer_end_event(answer);
}

static weir__text *begin_event(const serve_choice *choice, const char *name, size_t index)
{
    weir__text *text = serve_answer_begin_event(choice->answer, name);
    weir__text_printf(text, "{\"type\":\"%s\",\"index\":%zu", name, index);
    return text;
}

static void end_event(const serve_choice *choice, weir__text *text)
{
    weir__text_add_string(text, "}");
    serve_answer_end_event(choice->answer);
}

static void start_block(const serve_choice *choice, const weir_delta *delta)
{
    weir__text *text = begin_event(choice, "content_block_start", choice->n_parts - 1);
    weir__text_add_string(text, ",\"content_block\":");
    if (delta->kind == WEIR_DELTA_TOOL_CALL) {
        weir__text_add_string(text, "{\"type\":\"tool_use\"");
        weir__json_string(text, "id", delta->id != NULL ? delta->id : "");
        weir__json_bytes(text, "name", delta->text, delta->length);
        weir__text_add_string(text, ",\"input\":{}}");
    } else {
        weir__text_add_string(text, delta->kind == WEIR_DELTA_REASONING
                                        ? "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                                        : "{\"type\":\"text\",\"text\":\"\"}");
    }
    end_event(choice, text);
}

static void add_delta(const serve_choice *choice, const char *type, const char *member, const char *bytes,
                      size_t n, size_t index)
{
    weir__text *text = begin_event(choice, "content_block_delta", index);
    weir__text_printf(text, ",\"delta\":{\"type\":\"%s\"", type);
    weir__json_bytes(text, member, bytes, n);
    weir__text_add_string(text, "}");
    end_event(choice, text);
}

/* A signature says that thinking is unchanged when it comes back; weir needs none, clients expect one. */
static void stop_block(const serve_choice *choice, size_t index, weir_delta_kind kind)
{
    if (kind == WEIR_DELTA_REASONING) add_delta(choice, "signature_delta", "signature", "", 0, index);
    end_event(choice, begin_event(choice, "content_block_stop", index));
}

static void send_delta(serve_choice *choice, const weir_delta *given)
{
    size_t index = choice->n_parts - 1;
    if (choice->fresh && index > 0) stop_block(choice, index - 1, choice->kind_before);
    if (choice->fresh) start_block(choice, given);
    switch (given->kind) {
    case WEIR_DELTA_CONTENT:
        add_delta(choice, "text_delta", "text", given->text, given->length, index);
        break;
    case WEIR_DELTA_REASONING:
        add_delta(choice, "thinking_delta", "thinking", given->text, given->length, index);
        break;
    case WEIR_DELTA_ARGUMENTS:
        add_delta(choice, "input_json_delta", "partial_json", given->text, given->length, index);
        break;
    case WEIR_DELTA_TOOL_CALL: break; /* the block's start has it */
    }
}

static void end_message(serve_choice *choice)
{
    serve_answer *answer = choice->answer;
    if (choice->n_parts > 0) stop_block(choice, choice->n_parts - 1, choice->kind);
    weir__text *text = serve_answer_begin_event(answer, "message_delta");
    weir__text_add_string(text, "{\"type\":\"message_delta\",\"delta\":{");
    add_stop(choice, text);
    weir__text_add_string(text, "},\"usage\":");
    add_usage(answer, true, text);
    weir__text_add_string(text, "}");
    serve_answer_end_event(answer);
}

/* A ping may come at any time, and clients ignore all of it. */
static void write_progress(const serve_choice *choice, const weir_progress *progress, weir__text *text)
{
    (void)choice;
    weir__text_add_string(text, "event: ping\ndata: {\"type\":\"ping\",");
    serve_answer_add_progress(progress, text);
    weir__text_add_string(text, "}\n\n");
}

static void finish_message(serve_answer *answer)
{
    weir__text_add_string(serve_answer_begin_event(answer, "message_stop"), "{\"type\":\"message_stop\"}");
    serve_answer_end_event(answer);
}

static void fail_message(serve_answer *answer, const serve_failure *why)
{
    weir__text *text = serve_answer_begin_event(answer, "error");
    serve_messages_error(answer->call, why->status, why->field, why->code, why->message, text);
    serve_answer_end_event(answer);
}

/* ---- Whole answers ---- */

static void add_part(const serve_part *part, weir__text *text)
{
    switch (part->kind) {
    case WEIR_DELTA_CONTENT:
        weir__text_add_string(text, "{\"type\":\"text\"");
        weir__json_bytes(text, "text", part->text.bytes, part->text.n);
        break;
    case WEIR_DELTA_REASONING:
        weir__text_add_string(text, "{\"type\":\"thinking\"");
        weir__json_bytes(text, "thinking", part->text.bytes, part->text.n);
        weir__text_add_string(text, ",\"signature\":\"\"");
        break;
    default:
        weir__text_add_string(text, "{\"type\":\"tool_use\"");
        weir__json_string(text, "id", part->id);
        weir__json_string(text, "name", part->name);
        weir__text_add_string(text, ",\"input\":");
        serve_part_add_arguments(part, text);
    }
    weir__text_add_string(text, "}");
}

static void whole_message(serve_answer *answer, weir__text *text)
{
    const serve_choice *choice = &answer->choices[0];
    begin_message(answer, text);
    for (size_t i = 0; i + serve_choice_is_open(choice) < choice->n_kept; i++) {
        if (i > 0) weir__text_add_string(text, ",");
        add_part(&choice->parts[i], text);
    }
    weir__text_add_string(text, "]");
    add_stop(choice, text);
    weir__text_add_string(text, ",\"usage\":");
    add_usage(answer, true, text);
    weir__text_add_string(text, "}");
}

const serve_form serve_messages_form = {
    .id = "msg_",
    .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .start = start_message,
    .delta = send_delta,
    .progress = write_progress,
    .end = end_message,
    .finish = finish_message,
    .fail = fail_message,
    .whole = whole_message,
};

/* ---- The endpoints ---- */

static const serve_dialect dialect = {
    .where = SERVE_ASK_MESSAGES,
    .read = serve_ask_messages,
    .form = &serve_messages_form,
    .count = "{\"input_tokens\":",
};

void serve_messages(serve_call *call)
{
    serve_ask_converse(call, &dialect);
}

void serve_count_tokens(serve_call *call)
{
    serve_ask_count(call, &dialect);
}
