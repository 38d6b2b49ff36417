/* adapter.c: adapters, and who uses them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* adapter_load(model, path) */
ERL_NIF_TERM nif_adapter_load(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_adapter *handle = NULL;
    char *path;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !nif_get_string(env, argv[1], false, &path)) return enif_make_badarg(env);
    nif_adapter *adapter = nif_resource_new(NIF_ADAPTER);
    if (adapter == NULL) {
        nif_free(path);
        return nif_no_memory(env);
    }
    weir_status status = weir_adapter_load(nif_model_handle(model), path, &handle, &error);
    nif_free(path);
    if (status != WEIR_OK) {
        nif_resource_drop(adapter);
        return nif_refused(env, status, &error);
    }
    adapter->object.handle = handle;
    return nif_ok(env, nif_resource_term(env, adapter));
}

bool nif_get_adapters(ErlNifEnv *env, ERL_NIF_TERM list, nif_adapters *adapters)
{
    ERL_NIF_TERM head;
    const ERL_NIF_TERM *at;
    int arity;
    for (adapters->n = 0; enif_get_list_cell(env, list, &head, &list); adapters->n++) {
        if (adapters->n == WEIR_ADAPTERS_MAX || !enif_get_tuple(env, head, &arity, &at) || arity != 2)
            return false;
        const nif_adapter *adapter = nif_resource_get(env, at[0], NIF_ADAPTER);
        weir_adapter_use *use = &adapters->uses[adapters->n];
        if (adapter == NULL || !nif_get_float(env, at[1], &use->scale)) return false;
        use->adapter = adapter->object.handle;
    }
    return enif_is_empty_list(env, list) != 0;
}

/* context_set_adapters(context, [{adapter, scale}]) */
ERL_NIF_TERM nif_context_set_adapters(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    nif_adapters adapters;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_adapters(env, argv[1], &adapters)) return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status =
        weir_context_set_adapters(nif_context_handle(context), adapters.uses, adapters.n, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}
