/* model.c: loading models, and what can be read of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

static float *get_shares(ErlNifEnv *env, ERL_NIF_TERM list, size_t *n)
{
    unsigned length;
    ERL_NIF_TERM head;
    if (!enif_get_list_length(env, list, &length)) return NULL;
    float *shares = enif_alloc(length > 0 ? length * sizeof *shares : 1);
    if (shares == NULL) return NULL;
    for (*n = 0; enif_get_list_cell(env, list, &head, &list); (*n)++) {
        if (!nif_get_float(env, head, &shares[*n])) {
            nif_free(shares);
            return NULL;
        }
    }
    return shares;
}

/* model_load(path, n_gpu_layers, use_mmap, main_gpu, split_mode, tensor_split, use_mlock,
 *            use_direct_io, vocab_only) */
ERL_NIF_TERM nif_model_load(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_model_params params = weir_model_params_default();
    weir_error error = {0};
    weir_model *handle = NULL;
    float *shares = NULL;
    char *path = NULL;
    int32_t split_mode;
    ERL_NIF_TERM result = 0; /* stays 0: an argument is of the wrong type */
    if (!nif_get_i32(env, argv[1], &params.n_gpu_layers) || !nif_get_bool(env, argv[2], &params.use_mmap) ||
        !nif_get_i32(env, argv[3], &params.main_gpu) || !nif_get_i32(env, argv[4], &split_mode) ||
        !nif_get_bool(env, argv[6], &params.use_mlock) ||
        !nif_get_bool(env, argv[7], &params.use_direct_io) ||
        !nif_get_bool(env, argv[8], &params.vocab_only) || !nif_get_string(env, argv[0], false, &path))
        return enif_make_badarg(env);
    if (split_mode < WEIR_SPLIT_NONE || split_mode > WEIR_SPLIT_ROW) goto end;
    shares = get_shares(env, argv[5], &params.n_tensor_split);
    if (shares == NULL) goto end;
    params.split_mode = (weir_split_mode)split_mode;
    params.tensor_split = params.n_tensor_split > 0 ? shares : NULL;

    nif_model *model = nif_resource_new(NIF_MODEL);
    if (model == NULL) {
        result = nif_no_memory(env);
        goto end;
    }
    weir_status status = weir_model_load(path, &params, &handle, &error);
    if (status == WEIR_OK) {
        model->object.handle = handle;
        model->info.size = sizeof model->info;
        status = weir_model_describe(handle, &model->info);
    }
    if (status != WEIR_OK) {
        nif_resource_drop(model);
        result = nif_refused(env, status, &error);
        goto end;
    }
    result = nif_ok(env, nif_resource_term(env, model));
end:
    nif_free(shares);
    nif_free(path);
    return result != 0 ? result : enif_make_badarg(env);
}

/* A function of one model that reads its description. */
#define DESCRIBE(name, term)                                                                                 \
    ERL_NIF_TERM nif_##name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])                             \
    {                                                                                                        \
        (void)argc;                                                                                          \
        const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);                                  \
        if (model == NULL) return enif_make_badarg(env);                                                     \
        const weir_model_info *info = &model->info;                                                          \
        return term;                                                                                         \
    }

DESCRIBE(model_n_ctx_train, enif_make_int(env, info->n_ctx_train))
DESCRIBE(model_n_embd, enif_make_int(env, info->n_embd))
DESCRIBE(model_desc, nif_binary(env, info->description, WEIR_NUL))
DESCRIBE(model_size, enif_make_uint64(env, info->n_bytes))
DESCRIBE(model_n_params, enif_make_uint64(env, info->n_params))
DESCRIBE(model_chat_template,
         info->chat_template == NULL ? nif_atom(env, "nil") : nif_binary(env, info->chat_template, WEIR_NUL))
DESCRIBE(vocab_n_tokens, enif_make_int(env, info->n_vocab))
DESCRIBE(vocab_bos, enif_make_int(env, info->token_bos))
DESCRIBE(vocab_eos, enif_make_int(env, info->token_eos))
