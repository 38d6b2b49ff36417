/* model.c: loading models, and their descriptions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

const float *nif_shares(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    float *shares = nif_list(call, list, sizeof *shares, n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) shares[i] = nif_float(call, head);
    return *n > 0 ? shares : NULL;
}

/* model_load(path, n_gpu_layers, use_mmap, main_gpu, split_mode, tensor_split, use_mlock,
 *            use_direct_io, vocab_only, options): the others of weir_model_params by their names */
ERL_NIF_TERM nif_model_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_model *model = NULL;
    weir_model_params params = weir_model_params_default();
    const char *path = nif_text(call, argv[0]);
    params.n_gpu_layers = nif_i32(call, argv[1]);
    params.use_mmap = nif_bool(call, argv[2]);
    params.main_gpu = nif_i32(call, argv[3]);
    params.split_mode = (weir_split_mode)nif_i32_in(call, argv[4], WEIR_SPLIT_NONE, WEIR_SPLIT_ROW);
    params.tensor_split = nif_shares(call, argv[5], &params.n_tensor_split);
    params.use_mlock = nif_bool(call, argv[6]);
    params.use_direct_io = nif_bool(call, argv[7]);
    params.vocab_only = nif_bool(call, argv[8]);
    nif_options(call, argv[9], "model", NULL, &params);
    nif_object *object = nif_resource_new(call, NIF_MODEL);
    if (object == NULL) return 0;
    weir_status status = weir_model_load(path, &params, &model, &call->error);
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
        list = enif_make_list_cell(env, map, list);
    }
    enif_make_reverse_list(env, list, &in_order);
    return in_order;
}

/* A function of a model that returns a part of its description. */
#define DESCRIBE(name, term)                                                                                 \
    ERL_NIF_TERM nif_##name(nif_call *call, const ERL_NIF_TERM argv[])                                       \
    {                                                                                                        \
        ErlNifEnv *env = call->env;                                                                          \
        weir_model_info info = {.size = sizeof info};                                                        \
        if (weir_model_describe(nif_model(call, argv[0]), &info) != WEIR_OK) return 0;                       \
        return term;                                                                                         \
    }

DESCRIBE(model_n_ctx_train, enif_make_int(env, info.n_ctx_train))
DESCRIBE(model_n_embd, enif_make_int(env, info.n_embd))
DESCRIBE(model_desc, nif_binary(env, info.description, WEIR_NUL))
DESCRIBE(model_size, enif_make_uint64(env, info.n_bytes))
DESCRIBE(model_fingerprint, enif_make_uint64(env, info.fingerprint))
DESCRIBE(model_n_params, enif_make_uint64(env, info.n_params))
DESCRIBE(model_chat_template,
         info.chat_template == NULL ? nif_atom(env, "nil") : nif_binary(env, info.chat_template, WEIR_NUL))

/* {reads images, reads sounds} */
DESCRIBE(model_modalities,
         enif_make_tuple2(env, nif_truth(env, info.reads_images), nif_truth(env, info.reads_sounds)))

DESCRIBE(vocab_n_tokens, enif_make_int(env, info.n_vocab))
DESCRIBE(vocab_bos, enif_make_int(env, info.token_bos))
DESCRIBE(vocab_eos, enif_make_int(env, info.token_eos))
