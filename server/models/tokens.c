/* tokens.c: the ids of texts and prompts. SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include "base/error.h"
#include "base/mem.h"
#include "loaded.h"
#include "server/request/body.h"
#include "server/request/call.h"

/* ---- How long a text may be ---- */

size_t serve_tokens_least(const weir_model *model, size_t length)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    return info.longest_piece > 0 ? length / (size_t)info.longest_piece : 0;
}

/* Checks a length with the engine's words for a prompt that is too long. */
weir_status serve_tokens_check(const serve_loaded *loaded, const char *field, size_t length,
                               weir_error *error)
{
    weir_engine_stats stats = {.size = sizeof stats};
    weir_model_info info = {.size = sizeof info};
    size_t least = serve_tokens_least(loaded->model, length);
    if (loaded->engine == NULL) {
        weir_model_describe(loaded->model, &info);
        if (info.n_ctx_train <= 0 || least <= (size_t)info.n_ctx_train) return WEIR_OK;
        return weir__error_set(error, WEIR_TOO_LONG, field,
                               "the text has %zu bytes, which are at least %zu tokens; this model reads at "
                               "most %d: shorten it",
                               length, least, info.n_ctx_train);
    }
    if (weir_engine_get_stats(loaded->engine, &stats) != WEIR_OK || least <= (size_t)stats.n_ctx)
        return WEIR_OK;
    return weir__error_set(
        error, WEIR_TOO_LONG, field,
        "the prompt has %zu bytes, which are at least %zu tokens; a request holds at most %d with its "
        "answer: shorten it, or give the engine a larger `n_ctx` or `n_kv`",
        length, least, stats.n_ctx);
}

/* ---- Ids ---- */

/* Reads the ids of a text or a chat. */
static weir_status read_ids(const weir_model *model, const weir_request *request, size_t length,
                            int32_t **tokens, size_t *n, weir_error *error)
{
    size_t capacity = 0;
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

weir_status serve_tokens_of_prompt(const serve_loaded *loaded, const weir_request *request, int32_t **tokens,
                                   size_t *n, weir_error *error)
{
    size_t length = request->text_length;
    if (request->tokens != NULL) {
        *n = request->n_tokens;
        *tokens = weir__mem_dup(request->tokens, *n * sizeof **tokens);
        return *tokens != NULL ? WEIR_OK : WEIR_NO_MEMORY;
    }
    if (request->chat != NULL) (void)weir_chat_prompt(request->chat, &length);
    weir_status status = serve_tokens_check(loaded, request->chat != NULL ? "chat" : "text", length, error);
    return status == WEIR_OK ? read_ids(loaded->model, request, length, tokens, n, error) : status;
}

static weir_request request_of(const json_t *string, bool special, bool parse)
{
    return (weir_request){.text = json_string_value(string),
                          .text_length = json_string_length(string),
                          .add_special = special,
                          .parse_special = parse};
}

weir_status serve_tokens_of(const serve_loaded *loaded, const json_t *string, bool special, bool parse,
                            int32_t **tokens, size_t *n, weir_error *error)
{
    const weir_request request = request_of(string, special, parse);
    return serve_tokens_of_prompt(loaded, &request, tokens, n, error);
}

weir_status serve_tokens_of_text(const weir_model *model, const json_t *string, bool special, bool parse,
                                 int32_t **tokens, size_t *n, weir_error *error)
{
    const weir_request request = request_of(string, special, parse);
    return read_ids(model, &request, request.text_length, tokens, n, error);
}

bool serve_call_read_ids(serve_call *call, const char *field, const json_t *list, int32_t **ids, size_t *n)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(call->loaded->model, &info);
    *n = json_array_size(list);
    *ids = weir__mem_calloc(*n, sizeof **ids);
    if (*ids == NULL) return serve_call_no_memory(call);
    for (size_t i = 0; i < *n; i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t id;
        if (!serve_call_goes_on(call)) return false;
        bool whole = serve_json_whole(one, &id);
        if (whole && id >= 0 && id < info.n_vocab) {
            (*ids)[i] = (int32_t)id;
            continue;
        }
        return whole ? serve_call_refuse(call, 400, field, "invalid_value",
                                         "token %zu in %s is %lld; the vocabulary has 0 to %d", i, field,
                                         (long long)id, info.n_vocab - 1)
                     : serve_call_refuse(call, 400, field, "invalid_value",
                                         "token %zu in %s is not a whole number from 0 to %d", i, field,
                                         info.n_vocab - 1);
    }
    return true;
}
