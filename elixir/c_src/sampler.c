/* sampler.c: sampler chains.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* Above these limits a call takes longer than a normal scheduler should give. */
#define VOCAB_MAX  65536 /* logits that are looked at */
#define SORTED_MAX 4096  /* candidates that are sorted, or looked at more than once */
#define KEPT_MAX   256   /* candidates left to draw from */

/* Grammars are compiled; DRY's breakers are looked up in the whole vocabulary; lists have any length. */
bool nif_sampling_long(nif_call *call, ERL_NIF_TERM map)
{
    static const char *const keys[] = {"grammar",        "grammar_root", "json_schema", "order",
                                       "dry_multiplier", "dry_breakers", "logit_bias"};
    ERL_NIF_TERM value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (nif_key(call, map, keys[i], &value)) return true;
    }
    return false;
}

/* Penalties look up each token of the vocabulary among the last ones. */
static bool sampler_penalizes(const weir_sampler_params *p)
{
    return p->penalty_last_n > 0 &&
           (p->penalty_repeat != 1.0f || p->penalty_freq != 0.0f || p->penalty_present != 0.0f);
}

/* True if a draw may sort the whole vocabulary, or walk it more than once: it does unless the chain starts
 * with a cut by top_k. A sampler whose chain has another order is slow anyway. */
static bool walks_all(const weir_sampler_params *p)
{
    bool sorts = p->typical_p < 1.0f || p->xtc_probability > 0.0f;
    bool cut = p->top_k > 0 && p->top_k <= KEPT_MAX;
    if (sampler_penalizes(p)) return true;
    if (p->temp > 0.0f) return p->mirostat != 0 || p->top_n_sigma > 0.0f || !cut;
    return sorts && !cut;
}

/* sampler_create(model, options): the members of weir_sampler_params by their names */
ERL_NIF_TERM nif_sampler_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_sampler *handle = NULL;
    weir_model_info info = {.size = sizeof info};
    weir_sampler_params params = weir_sampler_params_default();
    weir_model *model = nif_model(call, argv[0]);
    bool slow = nif_sampling_long(call, argv[1]);
    if (slow && nif_move(call)) return 0;
    nif_options(call, argv[1], "sampler", NULL, &params);
    nif_sampler *sampler = nif_resource_new(call, NIF_SAMPLER);
    if (sampler == NULL) return 0;
    weir_status status = weir_model_describe(model, &info);
    if (status == WEIR_OK) status = weir_sampler_create(model, &params, &handle, &call->error);
    sampler->slow = slow || info.n_vocab > VOCAB_MAX;
    sampler->walks = info.n_vocab > SORTED_MAX && walks_all(&params);
    return nif_made(call, status, &sampler->object, handle);
}

/* Locks the sampler. NULL: the call ends otherwise. */
static weir_sampler *enter_sampler(nif_call *call, nif_sampler *sampler)
{
    if (call->end != NIF_RESULT || (sampler->slow && nif_move(call))) return NULL;
    return nif_lock(call, &sampler->object) ? sampler->object.handle : NULL;
}

/* sampler_accept(sampler, token) */
ERL_NIF_TERM nif_sampler_accept(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t token = nif_i32(call, argv[1]);
    weir_sampler *sampler = enter_sampler(call, nif_resource(call, argv[0], NIF_SAMPLER));
    return sampler == NULL ? 0 : nif_status(call, weir_sampler_accept(sampler, token, &call->error));
}

ERL_NIF_TERM nif_sampler_reset(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_sampler *sampler = enter_sampler(call, nif_resource(call, argv[0], NIF_SAMPLER));
    return sampler == NULL ? 0 : nif_status(call, weir_sampler_reset(sampler, &call->error));
}

/* sampler_sample_at(sampler, context, index): a token from this row; -1: the last one */
ERL_NIF_TERM nif_sampler_sample_at(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t token, index = nif_i32(call, argv[2]);
    nif_sampler *sampler = nif_resource(call, argv[0], NIF_SAMPLER);
    nif_object *context = nif_resource(call, argv[1], NIF_CONTEXT);
    if (call->end != NIF_RESULT || (sampler->walks && nif_move(call)) || !nif_lock(call, context)) return 0;
    weir_sampler *handle = enter_sampler(call, sampler);
    if (handle == NULL) return 0;
    weir_status status = weir_sample_at(handle, context->handle, index, &token, &call->error);
    return status == WEIR_OK ? enif_make_int(call->env, token) : nif_status(call, status);
}
