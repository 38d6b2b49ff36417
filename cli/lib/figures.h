/* figures.h: a request's tokens and times, as numbers, as JSON and in words.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_FIGURES_H
#define WEIR_CLI_FIGURES_H

#include <jansson.h>

#include "text.h"

#include <weir/weir.h>

/* {"prompt_tokens", "cached_tokens", "generated_tokens"}, with "image_tokens" and "audio_tokens" if there are
 * any; and {"queue_ms", "ttft_ms", "total_ms", "prompt_per_second", "generated_per_second"}. NULL: out of
 * memory. */
json_t *cli_figures_usage(const weir_usage *usage);
json_t *cli_figures_timings(const weir_usage *usage);

/* "prompt 31 tokens, 512 tok/s · answer …", without newline. */
void cli_figures_line(cli_text *text, const weir_usage *usage, weir_reason reason);

/* The reason for which the prompt was not cached as far as it might have been; as JSON (NULL: out of memory),
 * and as a line with its newline, nothing where all was cached. */
weir_miss_info cli_figures_miss_of(const weir_stream *stream);
json_t *cli_figures_miss(const weir_miss_info *miss);
void cli_figures_miss_line(cli_text *text, const weir_miss_info *miss);

/* Adds a model's name, size and type: "SmolLM2 135M Instruct, 134.5M parameters, Q4_1". */
void cli_figures_title(cli_text *text, const weir_model *model);

/* A string that may be no UTF-8, such as a path. NULL: out of memory. */
json_t *cli_figures_string(const char *string);

/* [ids]. NULL: out of memory. */
json_t *cli_figures_tokens(const int32_t *tokens, size_t n);

/* An item for each token of the chunk, [] without logprobs: {"token", "logprob", "top": [{"token",
 * "logprob"}]}. NULL: out of memory. */
json_t *cli_figures_logprobs(const weir_chunk *chunk);

/* The items of cli_figures_logprobs for the tokens whose text is in the chunks so far. held: those of the
 * others, which come with a later chunk, or never if they are the stop string; at first a pointer to NULL, in
 * the end json_decref. */
json_t *cli_figures_shown(json_t **held, const weir_chunk *chunk);

/* {"code", "field", "message"}; of the library, so the texts are well-formed. NULL: out of memory. */
json_t *cli_figures_error(const weir_error *error);

#endif
