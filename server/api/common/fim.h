/* fim.h: prompts of models that fill in the middle (FIM). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_FIM_H
#define WEIR_SERVER_API_COMMON_FIM_H

#include "ask.h"

/* Whether the vocabulary has the tokens for it. */
static inline bool serve_fim_is_known(const weir_model_info *info)
{
    return info->token_fim_prefix >= 0 && info->token_fim_suffix >= 0 && info->token_fim_middle >= 0;
}

/* The tokens of a prompt for the text between two others, into *tokens, [*n], which the caller frees in any
 * case. before, between, after: strings, or NULL for ""; the generated text goes behind before and between.
 * extra: NULL, or an array of {"filename": …, "text": …} that the model sees first, as llama-server's /infill
 * has it. field: of the request, for errors. False: the call has its answer. */
bool serve_fim_make(serve_call *call, const char *field, const json_t *before, const json_t *between,
                    const json_t *after, const json_t *extra, int32_t **tokens, size_t *n);

#endif
