/* openai.c: objects of choices, as chat, completions and llama-server have them. This file is the serve_form
 * of three endpoints: answer.c calls it at each step of an answer, on the service thread for events and on a
 * worker for a whole answer. It writes the frame: the head, usage, times and ids. The endpoint's serve_openai
 * writes what stands within a choice, and says by `bare` that there is no frame, as in llama-server's own
 * format. Usage is the sum of all choices, but a prompt counts once for all of its answers; of more answers
 * than are returned, the best ones come first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "openai.h"

#include <stdio.h>

#include "base/mem.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

/* ---- Shared by whole answers and events ---- */

/* Adds the misses, one for each prompt, where there are several. */
static void add_misses(const serve_answer *answer, weir__text *text)
{
    bool texts = answer->shows_texts, any = false;
    size_t before = text->n;
    if (answer->n == answer->n_each) {
        serve_choice_add_miss_member(&answer->choices[0], texts, text);
        return;
    }
    weir__text_add_string(text, ",\"misses\":[");
    for (int32_t i = 0; i < answer->n; i += answer->n_each) {
        if (i > 0) weir__text_add_string(text, ",");
        bool some = serve_choice_add_miss(&answer->choices[i], texts, text);
        if (!some) weir__text_add_string(text, "null");
        any = any || some;
    }
    weir__text_add_string(text, "]");
    if (!any) weir__text_cut(text, before);
}

static void add_counts(int64_t prompt, int64_t cached, int64_t generated, weir__text *text)
{
    weir__text_printf(text,
                      "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":%lld",
                      (long long)prompt, (long long)generated, (long long)prompt + (long long)generated,
                      (long long)cached);
}

static void add_usage(const serve_answer *answer, weir__text *text)
{
    int64_t prompt = 0, cached = 0, generated = 0, drafted = 0, accepted = 0, images = 0, sounds = 0,
            reasoning = 0;
    int64_t predicted = 0, right = 0; /* of drafted and accepted, those of the request's prediction */
    for (int32_t i = 0; i < answer->n; i++) {
        const weir_usage *usage = &answer->choices[i].usage;
        generated += usage->n_generated;
        drafted += usage->n_drafted;
        accepted += usage->n_accepted;
        predicted += usage->n_predicted;
        right += usage->n_predicted_accepted;
        reasoning += usage->n_reasoning;
        if (i % answer->n_each != 0) continue; /* a prompt counts once, whatever n is */
        prompt += usage->n_prompt;
        cached += usage->n_cached;
        images += usage->n_image_tokens;
        sounds += usage->n_audio_tokens;
    }
    add_counts(prompt, cached, generated, text);
    if (images > 0) weir__text_printf(text, ",\"image_tokens\":%lld", (long long)images);
    if (sounds > 0) weir__text_printf(text, ",\"audio_tokens\":%lld", (long long)sounds);
    if (answer->n_dropped > 0) weir__text_printf(text, ",\"dropped_lines\":%d", answer->n_dropped);
    add_misses(answer, text);
    weir__text_add_string(text, "}");
    if (reasoning > 0 || drafted > 0)
        weir__text_printf(text, ",\"completion_tokens_details\":{\"reasoning_tokens\":%lld",
                          (long long)reasoning);
    if (drafted > 0)
        weir__text_printf(text,
                          ",\"accepted_prediction_tokens\":%lld,\"rejected_prediction_tokens\":%lld,"
                          "\"draft_tokens\":%lld,\"accepted_draft_tokens\":%lld",
                          (long long)right, (long long)(predicted - right), (long long)(drafted - predicted),
                          (long long)(accepted - right));
    weir__text_add_string(text, reasoning > 0 || drafted > 0 ? "}}" : "}");
}

static void add_head(const serve_answer *answer, const char *object, weir__text *text)
{
    weir__text_printf(text, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld", answer->id, object,
                      (long long)answer->created_s);
    weir__json_string(text, "model", answer->model);
    weir__text_printf(text, ",\"system_fingerprint\":\"%s\",\"choices\":[",
                      answer->call->server->fingerprint);
}

/* ---- Of a choice ---- */

void serve_openai_add_reason(const serve_choice *choice, weir__text *text)
{
    bool cut = serve_choice_is_cut(choice);
    weir__text_printf(text, ",\"finish_reason\":\"%s\",\"finish_detail\":\"%s\"}",
                      cut                                     ? "length"
                      : serve_choice_ended_with_calls(choice) ? "tool_calls"
                                                              : "stop",
                      weir_reason_name(choice->reason));
}

void serve_openai_add_prompt(const serve_choice *choice, weir__text *text)
{
    weir_chunk prompt;
    if (!choice->answer->returns_prompt || serve_choice_prompt(choice, &prompt) != WEIR_OK) return;
    weir__text_add_string(text, ",\"prompt_logprobs\":");
    serve_scores_add_prompt(&prompt, choice->answer->call->loaded->model, text);
}

void serve_openai_add_ids(serve_choice *choice, weir__text *text)
{
    if (!choice->answer->returns_ids) return;
    weir__text_add_string(text, ",\"token_ids\":[");
    weir__text_add(text, choice->ids.bytes, choice->ids.n);
    weir__text_add_string(text, "]");
    weir__text_cut(&choice->ids, 0);
}

void serve_openai_add_prompt_ids(serve_choice *choice, weir__text *text)
{
    const serve_answer *answer = choice->answer;
    size_t n = 0;
    if (!answer->returns_ids || choice->told_prompt || choice->index % answer->n_returned != 0) return;
    (void)weir_stream_prompt(choice->stream, NULL, 0, &n);
    int32_t *tokens = weir__mem_calloc(n, sizeof *tokens);
    if (tokens == NULL || weir_stream_prompt(choice->stream, tokens, n, &n) != WEIR_OK) {
        text->failed = text->failed || tokens == NULL;
        weir__mem_free(tokens);
        return;
    }
    weir__text_add_string(text, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < n; i++) weir__text_printf(text, i > 0 ? ",%d" : "%d", tokens[i]);
    weir__text_add_string(text, "]");
    weir__mem_free(tokens);
    choice->told_prompt = true;
}

static void add_time(weir__text *text, const char *name, int n, double ms)
{
    char key[64];
    weir__text_printf(text, ",\"%s_n\":%d", name, n);
    snprintf(key, sizeof key, "%s_ms", name);
    weir__json_number(text, key, ms, 3);
    snprintf(key, sizeof key, "%s_per_token_ms", name);
    weir__json_number(text, key, n > 0 ? ms / n : 0, 3);
    snprintf(key, sizeof key, "%s_per_second", name);
    weir__json_number(text, key, ms > 0 ? n * 1e3 / ms : 0, 3);
}

void serve_openai_add_timings(const weir_usage *usage, weir__text *text)
{
    bool begun = usage->ttft_ns > 0;
    double first_ms = (double)(usage->ttft_ns - usage->queue_ns) / 1e6;
    double rest_ms = (double)(usage->total_ns - usage->ttft_ns) / 1e6;
    weir__text_printf(text, ",\"timings\":{\"cache_n\":%d", usage->n_cached);
    add_time(text, "prompt", usage->n_prompt - usage->n_cached, begun ? first_ms : 0);
    add_time(text, "predicted", usage->n_generated, begun ? rest_ms : 0);
    if (usage->n_drafted > 0)
        weir__text_printf(text, ",\"draft_n\":%d,\"draft_n_accepted\":%d", usage->n_drafted,
                          usage->n_accepted);
    weir__text_add_string(text, "}");
}

/* ---- Events ---- */

static void head_event(const serve_answer *answer, weir__text *text)
{
    add_head(answer, answer->form->openai->chunk, text);
}

/* Around a choice's object. */
static weir__text *begin_event(serve_answer *answer)
{
    weir__text *out = serve_answer_begin_event(answer, "");
    if (!answer->form->openai->bare) head_event(answer, out);
    return out;
}

/* The rest of the frame without its last bracket: as vLLM and llama-server have the counts and times so
 * far. */
static void add_frame_end(const serve_choice *choice, weir__text *out)
{
    const serve_answer *answer = choice->answer;
    weir_usage usage = {0};
    if (answer->continuous_usage || answer->timings) usage = serve_choice_usage(choice);
    weir__text_add_string(out, "]");
    if (answer->continuous_usage) {
        weir__text_add_string(out, ",\"usage\":");
        add_counts(usage.n_prompt, usage.n_cached, usage.n_generated, out);
        weir__text_add_string(out, "}}");
    } else if (answer->include_usage) {
        weir__text_add_string(out, ",\"usage\":null");
    }
    if (answer->timings) serve_openai_add_timings(&usage, out);
}

static void end_event(serve_choice *choice, weir__text *out)
{
    if (!choice->answer->form->openai->bare) {
        add_frame_end(choice, out);
        /* vLLM has a chat's ids of the prompt beside the choices. */
        if (choice->answer->chat != NULL) serve_openai_add_prompt_ids(choice, out);
        weir__text_add_string(out, "}");
    }
    serve_answer_end_event(choice->answer);
}

static void begin_choice(serve_choice *choice)
{
    const serve_openai *form = choice->answer->form->openai;
    if (form->begin == NULL) return;
    weir__text *out = begin_event(choice->answer);
    form->begin(choice, out);
    end_event(choice, out);
}

static void send_delta(serve_choice *choice, const weir_delta *delta)
{
    const serve_openai *form = choice->answer->form->openai;
    if (form->shows != NULL && !form->shows(choice, delta)) return;
    weir__text *out = begin_event(choice->answer);
    form->delta(choice, delta, out);
    end_event(choice, out);
}

static void write_progress(const serve_choice *choice, const weir_progress *progress, weir__text *out)
{
    const serve_openai *form = choice->answer->form->openai;
    weir__text_add_string(out, "data: ");
    if (!form->bare) head_event(choice->answer, out);
    form->silent(choice, out);
    if (!form->bare) add_frame_end(choice, out);
    weir__text_add_string(out, ",");
    serve_answer_add_progress(progress, out);
    weir__text_add_string(out, "}\n\n");
}

static void end_choice(serve_choice *choice)
{
    weir__text *out = begin_event(choice->answer);
    choice->answer->form->openai->end(choice, out);
    end_event(choice, out);
}

static void add_done(serve_answer *answer)
{
    if (answer->form->openai->bare) return;
    weir__text_add_string(serve_answer_begin_event(answer, ""), "[DONE]");
    serve_answer_end_event(answer);
}

static void finish_answer(serve_answer *answer)
{
    if (answer->include_usage && !answer->form->openai->bare) {
        weir__text *out = serve_answer_begin_event(answer, "");
        head_event(answer, out);
        weir__text_add_string(out, "],\"usage\":");
        add_usage(answer, out);
        weir__text_add_string(out, "}");
        serve_answer_end_event(answer);
    }
    add_done(answer);
}

static void fail_answer(serve_answer *answer, const serve_failure *why)
{
    weir__text *out = serve_answer_begin_event(answer, "");
    weir__text_add_string(out, "{\"error\":");
    serve_call_error_json(out, why->status, why->field, why->code, why->message);
    weir__text_add_string(out, "}");
    serve_answer_end_event(answer);
    add_done(answer);
}

/* ---- Whole answers ---- */

/* Adds the choices of one prompt, in their order where all are returned, else the best ones first. */
static void add_best(serve_answer *answer, int32_t first, weir__text *text)
{
    serve_choice *choices = answer->choices + first;
    bool taken[SERVE_CHOICES_MAX] = {false};
    bool all = answer->n_returned == answer->n_each;
    for (int32_t k = 0; k < answer->n_returned; k++) {
        int32_t best = k;
        if (!all) {
            best = -1;
            for (int32_t i = 0; i < answer->n_each; i++)
                if (!taken[i] && (best < 0 || weir_usage_score(&choices[i].usage) >
                                                  weir_usage_score(&choices[best].usage)))
                    best = i;
            taken[best] = true;
            choices[best].index = first / answer->n_each * answer->n_returned + k;
        }
        if (first > 0 || k > 0) weir__text_add_string(text, ",");
        answer->form->openai->whole(&choices[best], text);
    }
}

static void whole_answer(serve_answer *answer, weir__text *text)
{
    const serve_openai *form = answer->form->openai;
    bool list = form->bare && answer->n / answer->n_each * answer->n_returned > 1;
    if (!form->bare) add_head(answer, form->object, text);
    if (list) weir__text_add_string(text, "[");
    for (int32_t i = 0; i < answer->n; i += answer->n_each) add_best(answer, i, text);
    if (list) weir__text_add_string(text, "]");
    if (form->bare) return;
    weir__text_add_string(text, "],\"usage\":");
    add_usage(answer, text);
    if (answer->chat != NULL) serve_openai_add_prompt_ids(&answer->choices[0], text);
    if (form->rest != NULL) form->rest(answer, text);
    weir__text_add_string(text, "}");
}

/* clang-format off */
#define FORM(prefix, written) {.id = (prefix), .openai = &(written), .head = head_event, .begin = begin_choice, .delta = send_delta, .progress = write_progress, .end = end_choice, .finish = finish_answer, .fail = fail_answer, .whole = whole_answer}
/* clang-format on */

const serve_form serve_chat_form = FORM("chatcmpl-", serve_openai_chat);
const serve_form serve_completions_form = FORM("cmpl-", serve_openai_completions);
const serve_form serve_native_form = FORM("cmpl-", serve_openai_native);
