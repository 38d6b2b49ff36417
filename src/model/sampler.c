/* sampler.c: sampler parameters, checked, and chains made of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/sampler.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "params/members.h"

/* Limits beyond any use; llama.cpp allocates by these numbers. */
#define BREAKERS_MAX 256
#define BIASES_MAX   (1 << 20)

/* All names that an order may have. The backend makes the samplers: is_active and make_sampler in
 * llama/sampler.cpp know the same names. */
static const char *const order_names[] = {
    "penalties", "dry", "top_n_sigma", "top_k",  "typ_p",      "top_p",
    "min_p",     "xtc", "temperature", "infill", "adaptive_p",
};
#define N_ORDER_NAMES (sizeof order_names / sizeof order_names[0])

static const char *const breakers_default[] = {"\n", ":", "\"", "*"};

void weir_sampler_params_init(weir_sampler_params *params, size_t size)
{
    weir__members_init(&weir__sampler_members, params, size);
}

/* ---- Checks --------------------------------------------------------------------------------------- */

static weir_status check_order(const char *order, weir_error *error)
{
    for (const char *at = order; *at != '\0';) {
        size_t length = strcspn(at, ";");
        bool known = false;
        for (size_t i = 0; i < N_ORDER_NAMES && !known; i++)
            known = strlen(order_names[i]) == length && memcmp(order_names[i], at, length) == 0;
        if (!known) {
            char names[160] = "";
            for (size_t i = 0; i < N_ORDER_NAMES; i++) {
                size_t used = strlen(names);
                snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", order_names[i]);
            }
            return weir__invalid(error, WEIR_ERROR_UNKNOWN, "order",
                                 "\"%.*s\" is not a sampler; known samplers, separated by ';': %s",
                                 length < 64 ? (int)length : 64, at, names);
        }
        at += length;
        if (*at == ';') at++;
    }
    return WEIR_OK;
}

static weir_status check_biases(const weir_model *model, const weir_sampler_params *params, weir_error *error)
{
    if (params->n_logit_bias > BIASES_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_logit_bias", (double)params->n_logit_bias, 0,
                                 BIASES_MAX, "`n_logit_bias` is %zu", params->n_logit_bias);
    if (params->logit_bias == NULL && params->n_logit_bias > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "logit_bias",
                             "`logit_bias` is NULL and `n_logit_bias` is %zu", params->n_logit_bias);
    for (size_t i = 0; i < params->n_logit_bias; i++) {
        const weir_logit_bias *bias = &params->logit_bias[i];
        if (bias->token < 0 || bias->token >= model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "logit_bias", bias->token, 0,
                                     model->info.n_vocab - 1, "`logit_bias[%zu].token` is %d", i,
                                     bias->token);
        if (isnan(bias->bias) || (isinf(bias->bias) && bias->bias > 0.0f))
            return weir__invalid(error, WEIR_ERROR_RANGE, "logit_bias",
                                 "`logit_bias[%zu].bias` is %g; allowed: finite numbers and -INFINITY", i,
                                 (double)bias->bias);
    }
    return WEIR_OK;
}

static weir_status check_breakers(const weir_sampler_params *params, weir_error *error)
{
    if (params->n_dry_breakers > BREAKERS_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_dry_breakers", (double)params->n_dry_breakers, 0,
                                 BREAKERS_MAX, "`n_dry_breakers` is %zu", params->n_dry_breakers);
    if (params->dry_breakers == NULL && params->n_dry_breakers > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "dry_breakers",
                             "`dry_breakers` is NULL and `n_dry_breakers` is %zu", params->n_dry_breakers);
    for (size_t i = 0; i < params->n_dry_breakers; i++)
        if (params->dry_breakers[i] == NULL || params->dry_breakers[i][0] == '\0')
            return weir__invalid(error, WEIR_ERROR_MISSING, "dry_breakers", "`dry_breakers[%zu]` is %s", i,
                                 params->dry_breakers[i] == NULL ? "NULL" : "empty");
    return WEIR_OK;
}

/* Puts the prefix before the field of an error from elsewhere, or before `name` instead of it. */
static weir_status name_field(weir_error *error, weir_status status, const char *prefix, const char *name)
{
    char field[sizeof error->field];
    if (error == NULL || status == WEIR_NO_MEMORY) return status;
    bool pointer = error->field[0] == '/'; /* a JSON pointer into the schema */
    snprintf(field, sizeof field, "%s%s%s", prefix, name != NULL ? name : "",
             name == NULL || pointer ? error->field : "");
    return weir__error_as(error, error, status, field);
}

weir_status weir__sampler_params_check(const weir_model *model, const weir_sampler_params *given,
                                       const char *prefix, weir_sampler_params *full, weir_error *error)
{
    weir_sampler_params params = weir_sampler_params_default();
    weir_status status = weir__sized_take(&params, sizeof params, given, "sampler", error);
    if (status != WEIR_OK) return status;
    status = weir__members_check(&weir__sampler_members, &params, "", error);
    if (status == WEIR_OK) status = check_biases(model, &params, error);
    if (status == WEIR_OK) status = check_breakers(&params, error);
    if (status == WEIR_OK && params.order != NULL) status = check_order(params.order, error);
    if (status == WEIR_OK && params.grammar != NULL && params.json_schema != NULL)
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, "json_schema",
                               "`grammar` and `json_schema` are both set; give one of them");
    if (status != WEIR_OK) return name_field(error, status, prefix, NULL);
    if (params.dry_breakers == NULL) {
        params.dry_breakers = breakers_default;
        params.n_dry_breakers = sizeof breakers_default / sizeof breakers_default[0];
    }
    if (params.order == NULL) params.order = WEIR_SAMPLERS_DEFAULT;
    *full = params;
    return WEIR_OK;
}

/* ---- Create --------------------------------------------------------------------------------------- */

weir_status weir__sampler_create(weir_model *model, const weir_sampler_params *params,
                                 const weir__grammar *grammar, const char *prefix, weir_sampler **sampler,
                                 weir_error *error)
{
    weir_sampler_params full = weir_sampler_params_default();
    char *converted = NULL;
    weir_sampler *made = NULL;
    weir_status status = weir__sampler_params_check(model, params, prefix, &full, error);
    if (status != WEIR_OK) return status;
    if (grammar != NULL && (full.grammar != NULL || full.json_schema != NULL)) {
        status =
            weir__invalid(error, WEIR_ERROR_CONFLICT, full.grammar != NULL ? "grammar" : "json_schema",
                          "the chat has a grammar of its own (tools or a schema): leave the sampler's out");
        return name_field(error, status, prefix, NULL);
    }
    if (full.json_schema != NULL) {
        status = weir_grammar_from_json_schema(full.json_schema, WEIR_NUL, &converted, error);
        if (status != WEIR_OK) return name_field(error, status, prefix, "json_schema");
        full.grammar = converted;
        full.grammar_root = NULL; /* a converted schema's root is "root" */
        full.json_schema = NULL;
    }

    made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) {
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
        goto end;
    }
    status = model->ops->sampler_create(model->model, &full, grammar, &made->chain, error);
    if (status != WEIR_OK) {
        bool schema = converted != NULL && error != NULL && strcmp(error->field, "grammar") == 0;
        status = name_field(error, status, prefix, schema ? "json_schema" : NULL);
        goto end;
    }
    made->model = weir_model_hold(model);
    if (full.penalty_repeat != 1 || full.penalty_freq != 0 || full.penalty_present != 0)
        made->window = (size_t)full.penalty_last_n;
    if (full.dry_multiplier != 0 && (size_t)full.dry_penalty_last_n > made->window)
        made->window = (size_t)full.dry_penalty_last_n;
    *sampler = made;
    made = NULL;

end:
    weir__mem_free(made);
    weir_free(converted);
    return status;
}

weir_status weir_sampler_create(weir_model *model, const weir_sampler_params *params, weir_sampler **sampler,
                                weir_error *error)
{
    if (model == NULL) return weir__error_null(error, "model");
    if (sampler == NULL) return weir__error_null(error, "sampler");
    return weir__sampler_create(model, params, NULL, "", sampler, error);
}

void weir_sampler_destroy(weir_sampler *sampler)
{
    if (sampler == NULL) return;
    weir_model *model = sampler->model;
    model->ops->sampler_free(sampler->chain);
    weir__mem_free(sampler);
    weir_model_release(model);
}

weir_status weir_sampler_reset(weir_sampler *sampler, weir_error *error)
{
    if (sampler == NULL) return weir__error_null(error, "sampler");
    return sampler->model->ops->sampler_reset(sampler->chain, error);
}

weir_status weir_sampler_count(weir_sampler *sampler, const int32_t *tokens, size_t n, weir_error *error)
{
    if (sampler == NULL) return weir__error_null(error, "sampler");
    if (tokens == NULL && n > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and n is %zu", n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= sampler->model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "tokens", (double)tokens[i], 0,
                                     (double)(sampler->model->info.n_vocab - 1), "`tokens[%zu]` is %d", i,
                                     tokens[i]);
    weir_status status = WEIR_OK;
    for (size_t i = n > sampler->window ? n - sampler->window : 0; i < n && status == WEIR_OK; i++)
        status = sampler->model->ops->count(sampler->chain, tokens[i], error);
    return status;
}

weir_status weir_sampler_accept(weir_sampler *sampler, int32_t token, weir_error *error)
{
    if (sampler == NULL) return weir__error_null(error, "sampler");
    if (token < 0 || token >= sampler->model->info.n_vocab)
        return weir__error_range(error, WEIR_INVALID, "token", (double)token, 0,
                                 (double)(sampler->model->info.n_vocab - 1), "`token` is %d", token);
    return sampler->model->ops->accept(sampler->chain, token, error);
}
