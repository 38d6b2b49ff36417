/* tokens.c: the ids of texts and prompts. SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "serve.h"

weir_status serve_tokens_of_prompt(const weir_model *model, const weir_request *request, int32_t **tokens,
                                   size_t *n, weir_error *error)
{
    size_t capacity = 0, length = request->text_length;
    if (request->tokens != NULL) {
        *n = request->n_tokens;
        *tokens = weir__mem_dup(request->tokens, *n * sizeof **tokens);
        return *tokens != NULL ? WEIR_OK : WEIR_NO_MEMORY;
    }
    if (request->chat != NULL) (void)weir_chat_prompt(request->chat, &length);
    weir_status status = WEIR_TOO_LONG;
    for (size_t guess = length / 2 + 16; status == WEIR_TOO_LONG && guess > capacity; guess = *n) {
        if (!weir__mem_grow(tokens, &capacity, guess, sizeof **tokens)) return WEIR_NO_MEMORY;
        if (request->chat != NULL)
            status = weir_chat_tokenize(request->chat, *tokens, capacity, n, error);
        else
            status = weir_tokenize(model, request->text, length, request->add_special, request->parse_special,
                                   *tokens, capacity, n, error);
    }
    return status;
}

weir_status serve_tokens_of(const weir_model *model, const json_t *string, bool special, bool parse,
                            int32_t **tokens, size_t *n, weir_error *error)
{
    const weir_request request = {.text = json_string_value(string),
                                  .text_length = json_string_length(string),
                                  .add_special = special,
                                  .parse_special = parse};
    return serve_tokens_of_prompt(model, &request, tokens, n, error);
}
