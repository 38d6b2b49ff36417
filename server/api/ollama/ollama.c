/* ollama.c: POST /api/chat and /api/generate, as Ollama has them. SPDX-License-Identifier: Apache-2.0 */
#include "ollama.h"
#include "server/api/common/field.h"
#include "server/api/openai/openai.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/call.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- Shared ---- */

/* Ollama's member, and weir's names of the field and of the cause. Clients tell a prompt that is too long by
 * llama-server's words. */
void serve_ollama_error(const serve_call *call, int status, const char *field, const char *code,
                        const char *message, weir__text *text)
{
    char full[640];
    (void)call;
    (void)status;
    snprintf(full, sizeof full, "%s%s",
             serve_ask_is(code, "context_length_exceeded")
                 ? "the request exceeds the available context size: "
                 : "",
             message);
    weir__text_add_string(text, "{");
    weir__json_string(text, "error", full);
    weir__json_string(text, "param", field != NULL && field[0] != '\0' ? field : NULL);
    weir__json_string(text, "code", code);
    weir__text_add_string(text, "}");
}

void serve_ollama_add_time(weir__text *text, const char *member, int64_t seconds)
{
    char stamp[64] = "";
    time_t time = (time_t)seconds;
    struct tm utc;
    if (gmtime_r(&time, &utc) != NULL) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    weir__json_string(text, member, stamp);
}

/* ---- Answers ---- */

static bool is_chat(const serve_answer *answer)
{
    return answer->form == &serve_ollama_chat_form;
}

static void begin_object(const serve_answer *answer, weir__text *text)
{
    weir__text_add_string(text, "{");
    weir__json_string(text, "model", answer->model);
    serve_ollama_add_time(text, "created_at", answer->created_s);
}

/* A message, or a response. reasoning: NULL = none. */
static void begin_message(const serve_answer *answer, const char *content, size_t n, const char *reasoning,
                          size_t n_reasoning, weir__text *text)
{
    if (is_chat(answer)) weir__text_add_string(text, ",\"message\":{\"role\":\"assistant\"");
    weir__json_bytes(text, is_chat(answer) ? "content" : "response", content, n);
    if (reasoning != NULL) weir__json_bytes(text, "thinking", reasoning, n_reasoning);
}

static void end_message(const serve_answer *answer, weir__text *text)
{
    if (is_chat(answer)) weir__text_add_string(text, "}");
}

/* Adds the logprobs of the tokens since the last line, or of all. */
static void add_scores(serve_choice *choice, weir__text *text)
{
    if (!choice->answer->returns_scores || choice->scores.n == 0) return;
    weir__text_add_string(text, ",\"logprobs\":");
    serve_scores_add_entries(&choice->scores, choice->answer->call->loaded->model, text);
}

static void add_call(const serve_choice *choice, size_t index, size_t number, weir__text *text)
{
    const serve_part *part = &choice->parts[index];
    weir__text_add_string(text, "{");
    weir__json_string(text, "id", part->id);
    weir__text_printf(text, ",\"function\":{\"index\":%zu", number);
    weir__json_string(text, "name", part->name);
    weir__text_add_string(text, ",\"arguments\":");
    size_t at = text->n;
    serve_part_add_arguments(part, text);
    for (; at < text->n; at++) /* they are white space, and would end the line */
        if (text->bytes[at] == '\n' || text->bytes[at] == '\r') text->bytes[at] = ' ';
    weir__text_add_string(text, "}}");
}

/* The counts; times in nanoseconds. */
static void add_end(const serve_choice *choice, weir__text *text)
{
    const weir_usage *usage = &choice->usage;
    int64_t load_ns = choice->answer->call->load_ns, total_ns = load_ns + usage->total_ns;
    bool first = usage->ttft_ns > 0;
    weir__text_printf(text,
                      ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":%lld,"
                      "\"prompt_eval_count\":%d,\"prompt_eval_duration\":%lld,\"eval_count\":%d,"
                      "\"eval_duration\":%lld",
                      serve_choice_is_cut(choice) ? "length" : "stop", (long long)total_ns,
                      (long long)load_ns, usage->n_prompt,
                      first ? (long long)(usage->ttft_ns - usage->queue_ns) : 0LL, usage->n_generated,
                      first ? (long long)(usage->total_ns - usage->ttft_ns) : 0LL);
    if (usage->n_reasoning > 0) weir__text_printf(text, ",\"reasoning_tokens\":%d", usage->n_reasoning);
    if (choice->answer->n_dropped > 0)
        weir__text_printf(text, ",\"dropped_lines\":%d", choice->answer->n_dropped);
    weir__text_add_string(text, "}");
}

/* ---- Lines of a stream ---- */

static void send_text(serve_choice *choice, const weir_delta *delta)
{
    serve_answer *answer = choice->answer;
    bool reasoning = delta->kind == WEIR_DELTA_REASONING;
    weir__text *text = serve_answer_begin_event(answer, "");
    begin_object(answer, text);
    begin_message(answer, reasoning ? NULL : delta->text, reasoning ? 0 : delta->length,
                  reasoning ? delta->text : NULL, delta->length, text);
    end_message(answer, text);
    add_scores(choice, text);
    weir__text_add_string(text, ",\"done\":false}");
    serve_answer_end_event(answer);
}

/* A call is one line, once its arguments are complete. */
static void send_call(serve_choice *choice, size_t index, size_t number)
{
    weir__text *text = serve_answer_begin_event(choice->answer, "");
    begin_object(choice->answer, text);
    begin_message(choice->answer, NULL, 0, NULL, 0, text);
    weir__text_add_string(text, ",\"tool_calls\":[");
    add_call(choice, index, number, text);
    weir__text_add_string(text, "]");
    end_message(choice->answer, text);
    weir__text_add_string(text, ",\"done\":false}");
    serve_answer_end_event(choice->answer);
}

static void send_delta(serve_choice *choice, const weir_delta *given)
{
    size_t index = choice->n_kept - 1;
    bool call = given->kind == WEIR_DELTA_TOOL_CALL;
    if (choice->fresh && index > 0 && choice->parts[index - 1].kind == WEIR_DELTA_TOOL_CALL)
        send_call(choice, index - 1, choice->n_tools - 1 - call);
    if (given->kind == WEIR_DELTA_CONTENT || given->kind == WEIR_DELTA_REASONING) send_text(choice, given);
}

static void write_progress(const serve_choice *choice, const weir_progress *progress, weir__text *text)
{
    const serve_answer *answer = choice->answer;
    begin_object(answer, text);
    begin_message(answer, NULL, 0, NULL, 0, text);
    end_message(answer, text);
    weir__text_add_string(text, ",\"done\":false,");
    serve_answer_add_progress(progress, text);
    weir__text_add_string(text, "}\n");
}

static void end_choice(serve_choice *choice)
{
    serve_answer *answer = choice->answer;
    if (choice->kind == WEIR_DELTA_TOOL_CALL && choice->n_kept > 0 && !serve_choice_is_open(choice))
        send_call(choice, choice->n_kept - 1, choice->n_tools - 1);
    weir__text *text = serve_answer_begin_event(answer, "");
    begin_object(answer, text);
    begin_message(answer, NULL, 0, NULL, 0, text);
    end_message(answer, text);
    add_scores(choice, text);
    add_end(choice, text);
    serve_answer_end_event(answer);
}

static void fail_message(serve_answer *answer, const serve_failure *why)
{
    weir__text *text = serve_answer_begin_event(answer, "");
    serve_ollama_error(answer->call, why->status, why->field, why->code, why->message, text);
    serve_answer_end_event(answer);
}

/* ---- Whole answers ---- */

static void whole_message(serve_answer *answer, weir__text *text)
{
    serve_choice *choice = &answer->choices[0];
    weir__text content = {0}, reasoning = {0};
    size_t n_calls = 0;
    serve_choice_add_text(choice, WEIR_DELTA_CONTENT, &content);
    serve_choice_add_text(choice, WEIR_DELTA_REASONING, &reasoning);
    begin_object(answer, text);
    begin_message(answer, content.bytes, content.n, reasoning.bytes, reasoning.n, text);
    for (size_t i = 0; n_calls < serve_choice_calls(choice); i++) {
        if (choice->parts[i].kind != WEIR_DELTA_TOOL_CALL) continue;
        weir__text_add_string(text, n_calls == 0 ? ",\"tool_calls\":[" : ",");
        add_call(choice, i, n_calls++, text);
    }
    if (n_calls > 0) weir__text_add_string(text, "]");
    end_message(answer, text);
    add_scores(choice, text);
    add_end(choice, text);
    text->failed = text->failed || content.failed || reasoning.failed;
    weir__text_fini(&content);
    weir__text_fini(&reasoning);
}

/* clang-format off */
#define FORM {.id = "ollama-", .lines = true, .keeps = true, .delta = send_delta, .progress = write_progress, .end = end_choice, .fail = fail_message, .whole = whole_message}
/* clang-format on */

const serve_form serve_ollama_chat_form = FORM;
static const serve_form generate_form = FORM;

/* ---- The endpoints ---- */

/* A request without a prompt loads the model, or with "keep_alive": 0 and an operator's key unloads it where
 * there are several. */
static void answer_load(serve_ask *ask, bool chat)
{
    serve_call *call = ask->call;
    weir__text text = {0};
    weir__text_add_string(&text, "{");
    weir__json_string(&text, "model", ask->adapter != NULL ? ask->adapter : call->model->name);
    serve_ollama_add_time(&text, "created_at", (int64_t)time(NULL));
    weir__text_add_string(&text, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                                      : ",\"response\":\"\"");
    weir__text_printf(&text, ",\"done\":true,\"done_reason\":\"%s\"}\n", call->unloads ? "unload" : "load");
    serve_call_answer_text(call, 200, ask->stream ? "application/x-ndjson" : "application/json", &text);
}

void serve_ollama_chat(serve_call *call)
{
    static const serve_dialect dialect = {.where = SERVE_ASK_OLLAMA, .form = &serve_ollama_chat_form};
    serve_ask ask;
    if (serve_ask_read(&ask, call, dialect.where) && serve_ask_ollama(&ask)) {
        if (json_array_size(ask.messages) == 0)
            answer_load(&ask, true);
        else
            serve_ask_submit(&ask, &dialect);
    }
    serve_ask_fini(&ask);
}

void serve_ollama_generate(serve_call *call)
{
    static const serve_dialect dialect = {.where = SERVE_ASK_GENERATE, .form = &generate_form};
    serve_ask ask;
    if (serve_ask_read(&ask, call, dialect.where) && serve_ask_generate(&ask)) {
        if (ask.messages != NULL)
            serve_ask_submit(&ask, &dialect);
        else if (json_string_length(ask.prompt) == 0 && json_string_length(ask.suffix) == 0)
            answer_load(&ask, false);
        else
            serve_complete_ask(&ask, &generate_form);
    }
    serve_ask_fini(&ask);
}
