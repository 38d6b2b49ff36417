/* sampler.c: sampler chains.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Above it, a look at each logit takes longer than a normal scheduler should give. */
#define VOCAB_MAX 65536

#define ROOT_MAX 256 /* bytes, of a grammar's rule */

/* sampler_init(model, seed, temp, top_k, top_p, min_p, penalty_repeat, penalty_freq, penalty_present,
 *              grammar, grammar_root) */
ERL_NIF_TERM nif_sampler_init(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_sampler_params params = weir_sampler_params_default();
    weir_error error = {0};
    weir_sampler *handle = NULL;
    char *grammar = NULL, *root = NULL;
    unsigned seed;
    ERL_NIF_TERM result = 0; /* stays 0: an argument is of the wrong type */
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_get_uint(env, argv[1], &seed) || !nif_get_float(env, argv[2], &params.temp) ||
        !nif_get_i32(env, argv[3], &params.top_k) || !nif_get_float(env, argv[4], &params.top_p) ||
        !nif_get_float(env, argv[5], &params.min_p) || !nif_get_float(env, argv[6], &params.penalty_repeat) ||
        !nif_get_float(env, argv[7], &params.penalty_freq) ||
        !nif_get_float(env, argv[8], &params.penalty_present))
        return enif_make_badarg(env);
    /* A grammar is compiled here. */
    if ((enif_is_binary(env, argv[9]) || nif_size(env, argv[10]) > ROOT_MAX) && nif_on_normal_scheduler())
        return nif_dirty(env, "sampler_init", nif_sampler_init, argc, argv);
    if (!nif_get_string(env, argv[9], true, &grammar) || !nif_get_string(env, argv[10], true, &root))
        goto end;
    params.seed = seed;
    params.grammar = grammar;
    params.grammar_root = root;

    nif_sampler *sampler = nif_resource_new(NIF_SAMPLER);
    if (sampler == NULL) {
        result = nif_no_memory(env);
        goto end;
    }
    weir_status status = weir_sampler_create(nif_model_handle(model), &params, &handle, &error);
    if (status != WEIR_OK) {
        nif_resource_drop(sampler);
        result = nif_refused(env, status, &error);
        goto end;
    }
    sampler->object.handle = handle;
    sampler->slow = grammar != NULL || model->info.n_vocab > VOCAB_MAX;
    result = nif_ok(env, nif_resource_term(env, sampler));
end:
    nif_free(grammar);
    nif_free(root);
    return result != 0 ? result : enif_make_badarg(env);
}

/* Locks both, context may be NULL; false: the call has to move to a dirty scheduler. */
static bool enter(nif_context *context, nif_sampler *sampler)
{
    if (sampler->slow && nif_on_normal_scheduler()) return false;
    return nif_lock(context, sampler);
}

ERL_NIF_TERM nif_sampler_accept(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t token;
    nif_sampler *sampler = nif_resource_get(env, argv[0], NIF_SAMPLER);
    if (sampler == NULL || !nif_get_i32(env, argv[1], &token)) return enif_make_badarg(env);
    if (!enter(NULL, sampler)) return nif_dirty(env, "sampler_accept", nif_sampler_accept, argc, argv);
    weir_status status = weir_sampler_accept(nif_sampler_handle(sampler), token, &error);
    nif_unlock(NULL, sampler);
    return nif_status(env, status, &error);
}

ERL_NIF_TERM nif_sampler_reset(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    nif_sampler *sampler = nif_resource_get(env, argv[0], NIF_SAMPLER);
    if (sampler == NULL) return enif_make_badarg(env);
    if (!enter(NULL, sampler)) return nif_dirty(env, "sampler_reset", nif_sampler_reset, argc, argv);
    weir_status status = weir_sampler_reset(nif_sampler_handle(sampler), &error);
    nif_unlock(NULL, sampler);
    return nif_status(env, status, &error);
}

/* sampler_sample_at(sampler, context, index): the token */
ERL_NIF_TERM nif_sampler_sample_at(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t token, index;
    nif_sampler *sampler = nif_resource_get(env, argv[0], NIF_SAMPLER);
    nif_context *context = nif_resource_get(env, argv[1], NIF_CONTEXT);
    if (sampler == NULL || context == NULL || !nif_get_i32(env, argv[2], &index))
        return enif_make_badarg(env);
    if (!enter(context, sampler))
        return nif_dirty(env, "sampler_sample_at", nif_sampler_sample_at, argc, argv);
    weir_status status =
        weir_sample_at(nif_sampler_handle(sampler), nif_context_handle(context), index, &token, &error);
    nif_unlock(context, sampler);
    return status == WEIR_OK ? enif_make_int(env, token) : nif_refused(env, status, &error);
}

ERL_NIF_TERM nif_sampler_sample(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    const ERL_NIF_TERM at[] = {argv[0], argv[1], enif_make_int(env, -1)};
    (void)argc;
    return nif_sampler_sample_at(env, 3, at);
}
