/* embedding.c: a text's vector.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Above it, the list takes longer than a normal scheduler should give. */
#define WIDTH_MAX 8192

/* embed_decode(context, tokens, seq) */
ERL_NIF_TERM nif_embed_decode(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    nif_tokens tokens;
    int32_t seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[2], &seq) || !nif_get_tokens(env, argv[1], &tokens))
        return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_embed_decode(nif_context_handle(context), tokens.ids, tokens.n, seq, &error);
    nif_unlock(context, NULL);
    nif_free(tokens.ids);
    return nif_status(env, status, &error);
}

/* get_embeddings(context, seq, normalize): {:ok, [float]} */
ERL_NIF_TERM nif_get_embeddings(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t seq, normalize;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq) || !nif_get_i32(env, argv[2], &normalize))
        return enif_make_badarg(env);
    if (normalize != WEIR_NORMALIZE_NONE && normalize != WEIR_NORMALIZE_MAX_ABS &&
        normalize != WEIR_NORMALIZE_L2)
        return nif_failed(env, "normalize is -1 (none), 0 (max-abs) or 2 (L2)");
    if ((context->width > WIDTH_MAX && nif_on_normal_scheduler()) || !nif_lock(context, NULL))
        return nif_dirty(env, "get_embeddings", nif_run_get_embeddings, argc, argv);
    float *values = enif_alloc((context->width + 1) * sizeof *values);
    weir_status status = WEIR_NO_MEMORY;
    if (values != NULL)
        status = weir_embeddings(nif_context_handle(context), seq, (weir_normalize)normalize, values,
                                 context->width, &error);
    nif_unlock(context, NULL);
    ERL_NIF_TERM result;
    if (status == WEIR_OK) {
        ERL_NIF_TERM list = enif_make_list(env, 0);
        for (size_t i = context->width; i-- > 0;)
            list = enif_make_list_cell(env, enif_make_double(env, (double)values[i]), list);
        result = nif_ok(env, list);
    } else {
        result = nif_refused(env, status, &error);
    }
    nif_free(values);
    return result;
}
