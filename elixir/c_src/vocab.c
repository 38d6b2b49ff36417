/* vocab.c: text to tokens and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* What a normal scheduler takes: a tokenizer needs some hundred nanoseconds for a byte, a token or so. */
#define TEXT_MAX   1024
#define TOKENS_MAX 512
#define PIECE_MAX  256

ERL_NIF_TERM nif_vocab_is_eog(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    int32_t token;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !nif_get_i32(env, argv[1], &token)) return enif_make_badarg(env);
    return nif_atom(env, weir_is_eog(nif_model_handle(model), token) ? "true" : "false");
}

static ERL_NIF_TERM token_list(ErlNifEnv *env, const int32_t *tokens, size_t n)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    while (n > 0) list = enif_make_list_cell(env, enif_make_int(env, tokens[--n]), list);
    return list;
}

/* tokenize(model, text, add_special, parse_special) */
ERL_NIF_TERM nif_tokenize(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    ErlNifBinary text;
    bool add_special, parse_special;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_inspect_binary(env, argv[1], &text) ||
        !nif_get_bool(env, argv[2], &add_special) || !nif_get_bool(env, argv[3], &parse_special))
        return enif_make_badarg(env);
    if (text.size > TEXT_MAX && nif_on_normal_scheduler())
        return nif_dirty(env, "tokenize", nif_run_tokenize, argc, argv);

    size_t n = text.size + 4, capacity; /* most tokens have a byte or more */
    int32_t *tokens = NULL;
    weir_status status;
    do {
        capacity = n;
        nif_free(tokens);
        tokens = enif_alloc(capacity * sizeof *tokens);
        if (tokens == NULL) return nif_no_memory(env);
        status = weir_tokenize(nif_model_handle(model), (const char *)text.data, text.size, add_special,
                               parse_special, tokens, capacity, &n, &error);
    } while (status == WEIR_TOO_LONG && n > capacity);
    ERL_NIF_TERM result =
        status == WEIR_OK ? nif_ok(env, token_list(env, tokens, n)) : nif_refused(env, status, &error);
    nif_free(tokens);
    return result;
}

/* detokenize(model, tokens) */
ERL_NIF_TERM nif_detokenize(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    nif_tokens tokens;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL) return enif_make_badarg(env);
    if (nif_on_normal_scheduler() && nif_longer_than(env, argv[1], TOKENS_MAX))
        return nif_dirty(env, "detokenize", nif_run_detokenize, argc, argv);
    if (!nif_get_tokens(env, argv[1], &tokens)) return enif_make_badarg(env);

    size_t length = tokens.n * 8 + 64, capacity;
    char *text = NULL;
    weir_status status = WEIR_NO_MEMORY;
    do {
        capacity = length;
        nif_free(text);
        text = enif_alloc(capacity);
        if (text == NULL) break;
        status = weir_detokenize(nif_model_handle(model), tokens.ids, tokens.n, false, text, capacity,
                                 &length, &error);
    } while (status == WEIR_TOO_LONG && length > capacity);
    ERL_NIF_TERM result =
        status == WEIR_OK ? nif_ok(env, nif_binary(env, text, length)) : nif_refused(env, status, &error);
    nif_free(text);
    nif_free(tokens.ids);
    return result;
}

/* token_to_piece(model, token): the token's own bytes, also of a control token */
ERL_NIF_TERM nif_token_to_piece(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    int32_t token;
    char short_piece[PIECE_MAX], *piece = short_piece;
    size_t length, capacity = sizeof short_piece;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !nif_get_i32(env, argv[1], &token)) return enif_make_badarg(env);
    weir_status status = weir_piece(nif_model_handle(model), token, true, piece, capacity, &length, &error);
    if (status == WEIR_TOO_LONG && length > capacity) {
        capacity = length;
        piece = enif_alloc(capacity);
        if (piece == NULL) return nif_no_memory(env);
        status = weir_piece(nif_model_handle(model), token, true, piece, capacity, &length, &error);
    }
    ERL_NIF_TERM result =
        status == WEIR_OK ? nif_binary(env, piece, length) : nif_refused(env, status, &error);
    if (piece != short_piece) nif_free(piece);
    return result;
}
