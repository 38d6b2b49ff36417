/* figures.c: rates, sizes and counts of a request, and how they are written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "figures.h"

#include <float.h>
#include <string.h>
#include <weir/more.h>

#include "base/error.h"
#define BILLION UINT64_C(1000000000)

/* Tokens per second, 0 = unknown. Prompt: tokens computed, from slot to first token. Answer: tokens
 * after the first, from then to the end. */
static double prompt_rate(const weir_usage *usage)
{
    int64_t ns = usage->ttft_ns - usage->queue_ns;
    return usage->ttft_ns > 0 && ns > 0 ? (usage->n_prompt - usage->n_cached) * 1e9 / (double)ns : 0;
}

static double answer_rate(const weir_usage *usage)
{
    int64_t ns = usage->total_ns - usage->ttft_ns;
    return usage->ttft_ns > 0 && usage->n_generated > 1 && ns > 0
               ? (usage->n_generated - 1) * 1e9 / (double)ns
               : 0;
}

json_t *cli_figures_usage(const weir_usage *usage)
{
    json_t *json = json_pack("{s:i, s:i, s:i}", "prompt_tokens", usage->n_prompt, "cached_tokens",
                             usage->n_cached, "generated_tokens", usage->n_generated);
    if (json != NULL && usage->n_image_tokens > 0)
        json_object_set_new(json, "image_tokens", json_integer(usage->n_image_tokens));
    if (json != NULL && usage->n_audio_tokens > 0)
        json_object_set_new(json, "audio_tokens", json_integer(usage->n_audio_tokens));
    return json;
}

json_t *cli_figures_timings(const weir_usage *usage)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "queue_ms", (double)usage->queue_ns / 1e6, "ttft_ms",
                     (double)usage->ttft_ns / 1e6, "total_ms", (double)usage->total_ns / 1e6,
                     "prompt_per_second", prompt_rate(usage), "generated_per_second", answer_rate(usage));
}

weir_miss_info cli_figures_miss_of(const weir_stream *stream)
{
    weir_miss_info miss = {.size = sizeof miss};
    (void)weir_stream_miss(stream, &miss);
    return miss;
}

json_t *cli_figures_miss(const weir_miss_info *miss)
{
    json_t *json =
        json_pack("{s:s, s:i}", "reason", weir_miss_name(miss->miss), "matched_tokens", miss->n_matched);
    if (json == NULL || miss->miss != WEIR_MISS_DIVERGED) return json;
    json_object_set_new(json, "prompt", json_string(miss->prompt));
    if (miss->cached[0] != '\0') json_object_set_new(json, "cached", json_string(miss->cached));
    if (miss->message < 0) return json;
    json_object_set_new(json, "message", json_integer(miss->message));
    json_object_set_new(json, "in_message", json_boolean(miss->in_message));
    json_object_set_new(json, "role", json_string(miss->role));
    if (miss->line[0] != '\0') json_object_set_new(json, "line", json_string(miss->line));
    return json;
}

void cli_figures_miss_line(cli_text *text, const weir_miss_info *miss)
{
    char line[512];
    if (weir_miss_text(miss, line, sizeof line) == 0) return;
    cli_text_puts(text, "cache: ");
    cli_text_add_safe(text, line, strlen(line));
    cli_text_puts(text, "\n");
}

static void add_rate(cli_text *text, double value)
{
    if (value > 0) cli_text_printf(text, value < 100 ? ", %.1f tok/s" : ", %.0f tok/s", value);
}

void cli_figures_line(cli_text *text, const weir_usage *usage, weir_reason reason)
{
    cli_text_printf(text, "prompt %d token%s", usage->n_prompt, usage->n_prompt == 1 ? "" : "s");
    if (usage->n_cached > 0) cli_text_printf(text, " (%d cached)", usage->n_cached);
    add_rate(text, prompt_rate(usage));
    cli_text_printf(text, " · answer %d token%s", usage->n_generated, usage->n_generated == 1 ? "" : "s");
    add_rate(text, answer_rate(usage));
    if (usage->ttft_ns > 0) cli_text_printf(text, " · first token after %s", cli_time(usage->ttft_ns).text);
    switch (reason) {
    case WEIR_REASON_LENGTH: cli_text_puts(text, " · ended by its length"); break;
    case WEIR_REASON_CANCELLED: cli_text_puts(text, " · cancelled"); break;
    case WEIR_REASON_ERROR: cli_text_puts(text, " · failed"); break;
    case WEIR_REASON_STOP_WORDS: cli_text_puts(text, " · ended by a stop text"); break;
    case WEIR_REASON_DEADLINE: cli_text_puts(text, " · ended by the deadline"); break;
    default: break;
    }
}

json_t *cli_figures_string(const char *string)
{
    cli_text text = {0};
    cli_text_add_safe(&text, string, strlen(string));
    json_t *json = json_string(text.n > 0 ? text.bytes : "");
    weir__text_fini(&text);
    return json;
}

json_t *cli_figures_tokens(const int32_t *tokens, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < n; i++) {
        if (json_array_append_new(array, json_integer(tokens[i])) == 0) continue;
        json_decref(array);
        array = NULL;
    }
    return array;
}

/* {"token": 5, "logprob": -0.1}; null: impossible, no predecessor, or in the place of an image or a sound. */
static json_t *logprob_json(int32_t token, float logprob)
{
    json_t *value = logprob >= -FLT_MAX ? json_real((double)logprob) : json_null();
    json_t *id = token >= 0 ? json_integer(token) : json_null();
    return json_pack("{s:o, s:o}", "token", id, "logprob", value);
}

static json_t *top_json(const weir_logprob *top, int32_t n)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < n; i++) json_array_append_new(array, logprob_json(top[i].token, top[i].logprob));
    return array;
}

json_t *cli_figures_logprobs(const weir_chunk *chunk)
{
    json_t *array = json_array();
    for (size_t i = 0; chunk->logprobs != NULL && i < chunk->n_tokens; i++) {
        json_t *one = logprob_json(chunk->tokens[i], chunk->logprobs[i]);
        if (chunk->n_top_logprobs > 0 && chunk->top_logprobs[i * (size_t)chunk->n_top_logprobs].token >= 0)
            json_object_set_new(
                one, "top",
                top_json(chunk->top_logprobs + i * (size_t)chunk->n_top_logprobs, chunk->n_top_logprobs));
        json_array_append_new(array, one);
    }
    return array;
}

json_t *cli_figures_shown(json_t **held, const weir_chunk *chunk)
{
    json_t *shown = *held != NULL ? *held : json_array(), *more = cli_figures_logprobs(chunk);
    json_array_extend(shown, more);
    json_decref(more);
    size_t n = json_array_size(shown), n_hidden = (size_t)chunk->n_hidden;
    size_t n_shown = n > n_hidden ? n - n_hidden : 0;
    *held = json_array();
    for (size_t i = n_shown; i < n; i++) json_array_append(*held, json_array_get(shown, i));
    while (json_array_size(shown) > n_shown) json_array_remove(shown, json_array_size(shown) - 1);
    return shown;
}

json_t *cli_figures_error(const weir_error *error)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "code", weir_status_name(error->code), "kind",
                     weir_error_kind_name(error->kind), "field", error->field, "message",
                     weir__error_words(error).text);
}

/* 134.5M, 8.19B */
static void add_parameters(cli_text *text, uint64_t n)
{
    double value = (double)n / (n >= BILLION ? 1e9 : 1e6);
    cli_text_printf(text, ", %.*f%s parameters", n >= BILLION ? 2 : 1, value, n >= BILLION ? "B" : "M");
}

void cli_figures_title(cli_text *text, const weir_model *model)
{
    weir_model_info info = {.size = sizeof info};
    char name[128] = "";
    size_t length;
    weir_model_describe(model, &info);
    if (weir_model_meta(model, "general.name", name, sizeof name, &length) != WEIR_OK || name[0] == '\0') {
        cli_text_add_safe(text, info.description, strlen(info.description));
        return;
    }
    cli_text_add_safe(text, name, strlen(name));
    if (info.n_params == 0) return;
    add_parameters(text, info.n_params);
    /* The description: architecture, the size that llama.cpp takes it for, type. */
    const char *type = strchr(info.description, ' ');
    type = type != NULL ? strchr(type + 1, ' ') : NULL;
    if (type == NULL) return;
    cli_text_puts(text, ",");
    cli_text_add_safe(text, type, strlen(type));
}
