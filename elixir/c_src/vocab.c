/* vocab.c: text to tokens and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Limits for a normal scheduler: a tokenizer takes some hundred nanoseconds per byte or token. */
#define TEXT_MAX   1024
#define TOKENS_MAX 512
#define PIECE_MAX  256

/* vocab_is_eog(model, token) */
ERL_NIF_TERM nif_vocab_is_eog(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_model *model = nif_model(call, argv[0]);
    int32_t token = nif_i32(call, argv[1]);
    return call->end != NIF_RESULT ? 0 : nif_truth(call->env, weir_is_eog(model, token));
}

/* tokenize(model, text, add_special, parse_special) */
ERL_NIF_TERM nif_tokenize(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_model *model = nif_model(call, argv[0]);
    ErlNifBinary text = nif_bytes(call, argv[1]);
    bool add_special = nif_bool(call, argv[2]), parse_special = nif_bool(call, argv[3]);
    if (text.size > TEXT_MAX && nif_move(call)) return 0;
    size_t n = text.size + 4, capacity; /* most tokens have a byte or more */
    int32_t *tokens;
    weir_status status;
    do {
        capacity = n;
        tokens = nif_alloc(call, capacity * sizeof *tokens);
        if (call->end != NIF_RESULT) return 0;
        status = weir_tokenize(model, (const char *)text.data, text.size, add_special, parse_special, tokens,
                               capacity, &n, &call->error);
    } while (status == WEIR_TOO_LONG && n > capacity);
    return status == WEIR_OK ? nif_ok(call->env, nif_ids(call->env, tokens, n)) : nif_status(call, status);
}

/* detokenize(model, tokens) */
ERL_NIF_TERM nif_detokenize(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_model *model = nif_model(call, argv[0]);
    if (nif_longer_than(call->env, argv[1], TOKENS_MAX) && nif_move(call)) return 0;
    weir_tokens tokens = nif_tokens(call, argv[1]);
    size_t length = tokens.n * 8 + 64, capacity;
    char *text;
    weir_status status;
    do {
        capacity = length;
        text = nif_alloc(call, capacity);
        if (call->end != NIF_RESULT) return 0;
        status = weir_detokenize(model, tokens.ids, tokens.n, false, text, capacity, &length, &call->error);
    } while (status == WEIR_TOO_LONG && length > capacity);
    return status == WEIR_OK ? nif_ok(call->env, nif_binary(call->env, text, length))
                             : nif_status(call, status);
}

/* token_to_piece(model, token): the token's own bytes, also of a control token */
ERL_NIF_TERM nif_token_to_piece(nif_call *call, const ERL_NIF_TERM argv[])
{
    char buffer[PIECE_MAX], *piece = buffer;
    size_t length, capacity = sizeof buffer;
    const weir_model *model = nif_model(call, argv[0]);
    int32_t token = nif_i32(call, argv[1]);
    if (call->end != NIF_RESULT) return 0;
    weir_status status = weir_piece(model, token, true, piece, capacity, &length, &call->error);
    if (status == WEIR_TOO_LONG && length > capacity) {
        piece = nif_alloc(call, length);
        if (piece == NULL) return 0;
        status = weir_piece(model, token, true, piece, length, &length, &call->error);
    }
    return status == WEIR_OK ? nif_binary(call->env, piece, length) : nif_status(call, status);
}
