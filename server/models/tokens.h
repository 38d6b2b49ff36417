/* tokens.h: the ids of texts and prompts. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_TOKENS_H
#define WEIR_SERVER_MODELS_TOKENS_H

#include "loaded.h"
#include "server/request/serve.h"

/* Token ids, an array in a request's `field`, into *ids, [*n], which the caller frees in any case. False: the
 * call has its answer. */
bool serve_call_read_ids(serve_call *call, const char *field, const json_t *list, int32_t **ids, size_t *n);

/* The ids of a request's prompt, which has no media, and of a JSON string; into *tokens, [*n], which the
 * caller frees in any case. TOO_LONG ("text" or "chat") if no request has room for so many bytes.
 * serve_tokens_of_text leaves that check to the caller. */
weir_status serve_tokens_of_prompt(const serve_loaded *loaded, const weir_request *request, int32_t **tokens,
                                   size_t *n, weir_error *error);
weir_status serve_tokens_of(const serve_loaded *loaded, const json_t *string, bool special, bool parse,
                            int32_t **tokens, size_t *n, weir_error *error);
weir_status serve_tokens_of_text(const weir_model *model, const json_t *string, bool special, bool parse,
                                 int32_t **tokens, size_t *n, weir_error *error);

/* The check alone, of a prompt of `length` bytes. field: the library's name for it. */
weir_status serve_tokens_check(const serve_loaded *loaded, const char *field, size_t length,
                               weir_error *error);

/* The number of tokens that so many bytes of text are at least; 0 = unknown. */
size_t serve_tokens_least(const weir_model *model, size_t length);

#endif
