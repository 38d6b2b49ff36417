/* sampler.c: sampler chains.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Above it, a look at each logit takes longer than a normal scheduler should give. */
#define VOCAB_MAX 65536

/* The same where candidates are sorted, or more of them than this are left to draw from. */
#define SORTED_MAX 4096
#define KEPT_MAX   1024

#define ROOT_MAX 256 /* bytes, of a grammar's rule */

/* ---- Parameters by name ---- */

static void read_breakers(nif_map *map, nif_sampling *s)
{
    ERL_NIF_TERM list, head;
    unsigned n;
    if (!nif_map_given(map, "dry_breakers", &list)) return;
    map->wrong = "dry_breakers";
    if (!enif_get_list_length(map->env, list, &n)) return;
    s->breakers = enif_alloc((n + 1) * sizeof *s->breakers);
    if (s->breakers == NULL) return;
    s->params.dry_breakers = (const char *const *)s->breakers;
    while (enif_get_list_cell(map->env, list, &head, &list)) {
        if (!nif_get_string(map->env, head, false, &s->breakers[s->params.n_dry_breakers])) return;
        s->params.n_dry_breakers++;
    }
    map->wrong = NULL;
}

static void read_biases(nif_map *map, nif_sampling *s)
{
    ERL_NIF_TERM list, head;
    const ERL_NIF_TERM *pair;
    unsigned n;
    int arity;
    if (!nif_map_given(map, "logit_bias", &list)) return;
    map->wrong = "logit_bias";
    if (!enif_get_list_length(map->env, list, &n)) return;
    s->biases = enif_alloc((n + 1) * sizeof *s->biases);
    if (s->biases == NULL) return;
    s->params.logit_bias = s->biases;
    for (; enif_get_list_cell(map->env, list, &head, &list); s->params.n_logit_bias++) {
        weir_logit_bias *bias = &s->biases[s->params.n_logit_bias];
        if (!enif_get_tuple(map->env, head, &arity, &pair) || arity != 2 ||
            !nif_get_i32(map->env, pair[0], &bias->token) || !nif_get_float(map->env, pair[1], &bias->bias))
            return;
    }
    map->wrong = NULL;
}

void nif_sampling_read(nif_map *map, nif_sampling *s)
{
    weir_sampler_params *p = &s->params;
    *s = (nif_sampling){.params = weir_sampler_params_default()};
#define FLOAT(name) nif_map_float(map, #name, &p->name)
#define INT(name)   nif_map_i32(map, #name, &p->name)
    nif_map_u32(map, "seed", &p->seed);
    FLOAT(temp);
    FLOAT(dynatemp_range);
    FLOAT(dynatemp_exponent);
    INT(top_k);
    FLOAT(top_p);
    FLOAT(min_p);
    FLOAT(typical_p);
    FLOAT(top_n_sigma);
    FLOAT(xtc_probability);
    FLOAT(xtc_threshold);
    INT(min_keep);
    FLOAT(dry_multiplier);
    FLOAT(dry_base);
    INT(dry_allowed_length);
    INT(dry_penalty_last_n);
    INT(penalty_last_n);
    FLOAT(penalty_repeat);
    FLOAT(penalty_freq);
    FLOAT(penalty_present);
    INT(mirostat);
    FLOAT(mirostat_tau);
    FLOAT(mirostat_eta);
    FLOAT(adaptive_target);
    FLOAT(adaptive_decay);
    nif_map_bool(map, "ignore_eos", &p->ignore_eos);
    nif_map_string(map, "order", &s->order);
    nif_map_string(map, "grammar", &s->grammar);
    nif_map_string(map, "grammar_root", &s->root);
    nif_map_string(map, "json_schema", &s->schema);
    if (map->wrong == NULL) read_breakers(map, s);
    if (map->wrong == NULL) read_biases(map, s);
#undef FLOAT
#undef INT
    p->order = s->order;
    p->grammar = s->grammar;
    p->grammar_root = s->root;
    p->json_schema = s->schema;
}

void nif_sampling_fini(nif_sampling *s)
{
    for (size_t i = 0; s->breakers != NULL && i < s->params.n_dry_breakers; i++) nif_free(s->breakers[i]);
    nif_free(s->breakers);
    nif_free(s->biases);
    nif_free(s->order);
    nif_free(s->grammar);
    nif_free(s->root);
    nif_free(s->schema);
}

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
    nif_sampling sampling;
    nif_map map = {.env = env, .term = argv[1]};
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_is_map(env, argv[1])) return enif_make_badarg(env);
    bool slow = nif_sampling_long(env, argv[1]);
    if (slow && nif_on_normal_scheduler())
        return nif_dirty(env, "sampler_create", nif_run_sampler_create, argc, argv);
    nif_sampling_read(&map, &sampling);
    ERL_NIF_TERM result = map.wrong == NULL ? create(env, model, &sampling.params, slow) : 0;
    nif_sampling_fini(&sampling);
    return result != 0 ? result : enif_make_badarg(env);
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
