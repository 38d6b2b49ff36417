/* model.c: models, their descriptions and vocabulary, and adapters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

const float *nif_shares(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    float *shares = nif_list(call, list, sizeof *shares, n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) shares[i] = nif_float(call, head);
    return *n > 0 ? shares : NULL;
}

#define STEP 0.01f /* of a load, between two messages */

/* A load's call, and who gets its progress. */
typedef struct loading {
    nif_call *call;
    ErlNifEnv *messages; /* NULL: nobody */
    ErlNifPid to;
    ERL_NIF_TERM ref;
    float told; /* -1 before the first message */
} loading;

/* Ends the load of a process that was killed. */
static bool load_progress(float done, void *user)
{
    loading *l = user;
    ErlNifEnv *env = l->messages;
    if (!enif_is_current_process_alive(l->call->env)) return false;
    bool due = l->told < 0.0f || done >= l->told + STEP || (done >= 1.0f && l->told < 1.0f);
    if (env == NULL || !due) return true;
    l->told = done;
    ERL_NIF_TERM what = enif_make_tuple2(env, nif_atom(env, "progress"), enif_make_double(env, (double)done));
    enif_send(l->call->env, &l->to, env, enif_make_tuple2(env, enif_make_copy(env, l->ref), what));
    enif_clear_env(env);
    return true;
}

/* {pid, ref} */
static void loading_read(loading *l, ERL_NIF_TERM term)
{
    int arity = 0;
    const ERL_NIF_TERM *pair = NULL;
    if (!enif_get_tuple(l->call->env, term, &arity, &pair) || arity != 2 ||
        !enif_is_ref(l->call->env, pair[1])) {
        nif_stop(l->call, NIF_WRONG);
        return;
    }
    l->to = nif_pid(l->call, pair[0]);
    l->ref = pair[1];
    if (l->call->end != NIF_RESULT) return;
    l->messages = enif_alloc_env();
    if (l->messages == NULL) nif_stop(l->call, NIF_NO_MEMORY);
}

/* model_load(path, options): the members of weir_model_params by their names, and tensor_split; with
 * `progress: {pid, ref}` the process gets {ref, {:progress, 0.0 to 1.0}} meanwhile */
ERL_NIF_TERM nif_model_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_model *model = NULL;
    weir_model_params params = weir_model_params_default();
    loading l = {.call = call, .told = -1.0f};
    ERL_NIF_TERM value;
    const char *path = nif_text(call, argv[0]);
    nif_options(call, argv[1], "model", NULL, &params);
    if (nif_key(call, argv[1], "tensor_split", &value))
        params.tensor_split = nif_shares(call, value, &params.n_tensor_split);
    nif_object *object = nif_resource_new(call, NIF_MODEL);
    if (object == NULL) return 0;
    if (nif_key(call, argv[1], "progress", &value)) loading_read(&l, value);
    if (call->end != NIF_RESULT) return 0;
    params.progress = load_progress;
    params.progress_user = &l;
    weir_status status = weir_model_load(path, &params, &model, &call->error);
    if (l.messages != NULL) enif_free_env(l.messages);
    return nif_made(call, status, object, model);
}

/* The devices that the library can compute on, in its order */
ERL_NIF_TERM nif_devices(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    weir_device device = {.size = sizeof device};
    ERL_NIF_TERM list = enif_make_list(env, 0), in_order;
    (void)argv;
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++) {
        ERL_NIF_TERM map = enif_make_new_map(env);
        nif_put(env, &map, "name", nif_binary(env, device.name, WEIR_NUL));
        nif_put(env, &map, "description", nif_binary(env, device.description, WEIR_NUL));
        nif_put(env, &map, "type", nif_atom(env, device.type));
        nif_put(env, &map, "memory_free", enif_make_uint64(env, device.memory_free));
        nif_put(env, &map, "memory_total", enif_make_uint64(env, device.memory_total));
        nif_put(env, &map, "n_processors", enif_make_int(env, device.n_processors));
        list = enif_make_list_cell(env, map, list);
    }
    enif_make_reverse_list(env, list, &in_order);
    return in_order;
}

/* model_info(model): a map */
ERL_NIF_TERM nif_model_info(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    weir_model_info info = {.size = sizeof info};
    if (weir_model_describe(nif_model(call, argv[0]), &info) != WEIR_OK) return 0;
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "description", nif_binary(env, info.description, WEIR_NUL));
    nif_put(env, &map, "chat_template",
            info.chat_template == NULL ? nif_atom(env, "nil")
                                       : nif_binary(env, info.chat_template, WEIR_NUL));
    nif_put(env, &map, "n_params", enif_make_uint64(env, info.n_params));
    nif_put(env, &map, "n_bytes", enif_make_uint64(env, info.n_bytes));
    nif_put(env, &map, "fingerprint", enif_make_uint64(env, info.fingerprint));
    nif_put(env, &map, "n_vocab", enif_make_int(env, info.n_vocab));
    nif_put(env, &map, "n_ctx_train", enif_make_int(env, info.n_ctx_train));
    nif_put(env, &map, "n_embd", enif_make_int(env, info.n_embd));
    nif_put(env, &map, "token_bos", enif_make_int(env, info.token_bos));
    nif_put(env, &map, "token_eos", enif_make_int(env, info.token_eos));
    nif_put(env, &map, "reads_images", nif_truth(env, info.reads_images));
    nif_put(env, &map, "reads_sounds", nif_truth(env, info.reads_sounds));
    return map;
}

/* ---- Adapters ---- */

/* adapter_load(model, path) */
ERL_NIF_TERM nif_adapter_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_adapter *adapter = NULL;
    weir_model *model = nif_model(call, argv[0]);
    const char *path = nif_text(call, argv[1]);
    nif_object *object = nif_resource_new(call, NIF_ADAPTER);
    if (object == NULL) return 0;
    weir_status status = weir_adapter_load(model, path, &adapter, &call->error);
    return nif_made(call, status, object, adapter);
}

weir_adapter_use *nif_adapters(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    const ERL_NIF_TERM *at;
    weir_adapter_use *uses = nif_list(call, list, sizeof *uses, n);
    if (*n > WEIR_ADAPTERS_MAX) nif_stop(call, NIF_WRONG);
    for (size_t i = 0; nif_next_tuple(call, &list, 2, &at); i++)
        uses[i] = (weir_adapter_use){nif_handle(call, at[0], NIF_ADAPTER), nif_float(call, at[1])};
    return uses;
}

/* ---- Vocabulary ---- */

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
