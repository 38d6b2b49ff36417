/* sampler.c: sampler chains.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Above it, a look at each logit takes longer than a normal scheduler should give. */
#define VOCAB_MAX 65536

/* The same where candidates are sorted, or more of them than this are left to draw from. */
#define SORTED_MAX 4096
#define KEPT_MAX   1024

#define ROOT_MAX 256 /* bytes, of a grammar's rule */

/* What is compiled, what is looked up in the whole vocabulary (DRY's breakers are), and lists of any
 * length. */
bool nif_sampling_long(ErlNifEnv *env, ERL_NIF_TERM term)
{
    static const char *const keys[] = {"grammar",        "grammar_root", "json_schema", "order",
                                       "dry_multiplier", "dry_breakers", "logit_bias"};
    nif_map map = {.env = env, .term = term};
    ERL_NIF_TERM value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (nif_map_term(&map, keys[i], &value)) return true;
    }
    return false;
}

/* ---- Samplers ---- */

/* Whether a draw may sort all of the vocabulary: what begins without a cut by top_k does. Where weir.h's own
 * order is not the chain's, the sampler is slow anyway. */
static bool sorts_all(const weir_sampler_params *p)
{
    bool sorts = p->typical_p < 1.0f || p->xtc_probability > 0.0f;
    bool cut = p->top_k > 0 && p->top_k <= KEPT_MAX;
    if (p->temp > 0.0f) return p->mirostat != 0 || !cut;
    return sorts && !cut;
}

/* What both ways to make one have in common. */
static ERL_NIF_TERM create(ErlNifEnv *env, const nif_model *model, const weir_sampler_params *params,
                           bool slow)
{
    weir_error error = {0};
    weir_sampler *handle = NULL;
    nif_sampler *sampler = nif_resource_new(NIF_SAMPLER);
    if (sampler == NULL) return nif_no_memory(env);
    weir_status status = weir_sampler_create(nif_model_handle(model), params, &handle, &error);
    if (status != WEIR_OK) {
        nif_resource_drop(sampler);
        return nif_refused(env, status, &error);
    }
    sampler->object.handle = handle;
    sampler->slow = slow || model->info.n_vocab > VOCAB_MAX;
    sampler->sorts = model->info.n_vocab > SORTED_MAX && sorts_all(params);
    return nif_ok(env, nif_resource_term(env, sampler));
}

/* sampler_create(model, options): all of weir_sampler_params, by their names */
ERL_NIF_TERM nif_sampler_create(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_sampler_params params = weir_sampler_params_default();
    nif_map map = {.env = env, .term = argv[1]};
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_is_map(env, argv[1])) return enif_make_badarg(env);
    bool slow = nif_sampling_long(env, argv[1]);
    if (slow && nif_on_normal_scheduler())
        return nif_dirty(env, "sampler_create", nif_run_sampler_create, argc, argv);
    nif_map_members(&map, "sampler", &params);
    ERL_NIF_TERM result = map.wrong == NULL ? create(env, model, &params, slow) : enif_make_badarg(env);
    nif_map_fini(&map);
    return result;
}

/* sampler_init(model, seed, temp, top_k, top_p, min_p, penalty_repeat, penalty_freq, penalty_present,
 *              grammar, grammar_root) */
ERL_NIF_TERM nif_sampler_init(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_sampler_params params = weir_sampler_params_default();
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
        return nif_dirty(env, "sampler_init", nif_run_sampler_init, argc, argv);
    if (!nif_get_string(env, argv[9], true, &grammar) || !nif_get_string(env, argv[10], true, &root))
        goto end;
    params.seed = seed;
    params.grammar = grammar;
    params.grammar_root = root;
    result = create(env, model, &params, grammar != NULL);
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
    if (!enter(NULL, sampler)) return nif_dirty(env, "sampler_accept", nif_run_sampler_accept, argc, argv);
    weir_status status = weir_sampler_accept(nif_sampler_handle(sampler), token, &error);
    nif_unlock(NULL, sampler);
    return nif_status(env, status, &error);
}

ERL_NIF_TERM nif_sampler_reset(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    nif_sampler *sampler = nif_resource_get(env, argv[0], NIF_SAMPLER);
    if (sampler == NULL) return enif_make_badarg(env);
    if (!enter(NULL, sampler)) return nif_dirty(env, "sampler_reset", nif_run_sampler_reset, argc, argv);
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
    if ((sampler->sorts && nif_on_normal_scheduler()) || !enter(context, sampler))
        return nif_dirty(env, "sampler_sample_at", nif_run_sampler_sample_at, argc, argv);
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
