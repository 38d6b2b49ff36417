/* sampler.c: the fake's sampling, and its grammars.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "fake/internal.h"
#include "grammar/grammar.h"

struct weir__bsampler {
    const weir__bmodel *model;
    bool greedy;
    float temp;
    uint32_t seed;
    bool calls_only;
    uint64_t state; /* of the random numbers */
    bool ignore_eos;
    weir_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    weir__trie *trie;           /* the vocabulary when the sampler was created */
    weir__automaton *automaton; /* the grammar; NULL = none */
    weir__automaton_place place, start;
    uint64_t *mask;          /* [WEIR__AUTOMATON_WORDS(n_vocab)] the tokens that it allows next */
    const uint64_t *allowed; /* the caller's mask during a draw; NULL = all */
};

/* ---- The grammar ---------------------------------------------------------------------------------- */

static int32_t piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    return weir__fake_piece(model, token, true, bytes, capacity);
}

static bool token_ends(const void *model, int32_t token)
{
    return weir__fake_is_eog(model, token);
}

static int32_t find_token(const void *model, const char *text, size_t length)
{
    int32_t token;
    size_t n = 0;
    weir__fake_tokenize(model, text, length, false, true, &token, 1, &n, NULL);
    return n == 1 ? token : WEIR__GRAMMAR_NO_TOKEN;
}

static weir_status report_sample(weir_status status, int32_t token, weir_error *error)
{
    if (status == WEIR_OK) return status;
    if (status != WEIR_REFUSED) return weir__error_set(error, status, NULL, "no memory for the grammar");
    return weir__error_set(error, status, "token",
                           "the grammar does not allow token %d here; the sampler is unchanged", token);
}

/* The grammar starts behind the text that the prompt already holds of the answer. */
static weir_status start_grammar(weir__bsampler *s, const char *text, const char *root, const char *prefill,
                                 weir_error *error)
{
    const weir__trie_source source = {s->model, (int32_t)s->model->options.n_vocab, piece_of, token_ends};
    const weir__grammar_tokens tokens = {s->model, find_token};
    s->trie = weir__trie_create(&source);
    s->mask = weir__mem_calloc(WEIR__AUTOMATON_WORDS(source.n_vocab), sizeof *s->mask);
    if (s->trie == NULL || s->mask == NULL) return report_sample(WEIR_NO_MEMORY, -1, error);
    weir_status status = weir__grammar_compile(text, root, &tokens, s->trie, &s->automaton, error);
    if (status != WEIR_OK) return status;
    s->start = weir__automaton_start(s->automaton);
    for (; status == WEIR_OK && prefill != NULL && *prefill != '\0'; prefill++)
        status = weir__automaton_accept(s->automaton, &s->start, (unsigned char)*prefill);
    if (status != WEIR_REFUSED) return report_sample(status, -1, error);
    return weir__error_set(error, WEIR_GRAMMAR, "grammar",
                           "the grammar does not allow the part of the answer that the prompt already holds");
}

/* ---- Life ----------------------------------------------------------------------------------------- */

void weir__fake_sampler_free(weir__bsampler *sampler)
{
    if (sampler == NULL) return;
    /* the model outlives its samplers, and its counters may change */
    atomic_fetch_sub((_Atomic int32_t *)&sampler->model->hooks.n_samplers, 1);
    weir__automaton_release(sampler->automaton);
    weir__trie_destroy(sampler->trie);
    weir__mem_free(sampler->mask);
    weir__mem_free(sampler->bias);
    weir__mem_free(sampler);
}

weir_status weir__fake_sampler_create(const weir__bmodel *model, const weir_sampler_params *params,
                                      const weir__grammar *grammar, weir__bsampler **sampler,
                                      weir_error *error)
{
    const char *text = grammar != NULL ? grammar->text : params->grammar;
    const char *root = grammar != NULL ? grammar->root : params->grammar_root;
    if (text == NULL && params->json_schema != NULL)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "json_schema",
                             "a schema must have been made a grammar before");
    if (grammar != NULL && grammar->lazy)
        return weir__error_set(error, WEIR_GRAMMAR, "grammar", "the fake model knows no lazy grammar");
    weir__bsampler *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
    atomic_fetch_add((_Atomic int32_t *)&model->hooks.n_samplers, 1);
    made->model = model;
    made->greedy = params->temp <= 0.0f || params->top_k == 1;
    made->temp = params->temp;
    made->seed = params->seed;
    made->calls_only = grammar != NULL && grammar->calls_only;
    made->ignore_eos = params->ignore_eos;
    made->n_bias = params->n_logit_bias;
    made->bias = weir__mem_dup(params->logit_bias, made->n_bias * sizeof *made->bias);
    weir_status status = WEIR_OK;
    if (made->bias == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
    else if (text != NULL)
        status = start_grammar(made, text, root, grammar != NULL ? grammar->prefill : NULL, error);
    if (status == WEIR_OK) status = weir__fake_sampler_reset(made, error);
    if (status == WEIR_OK)
        *sampler = made;
    else
        weir__fake_sampler_free(made);
    return status;
}

weir_status weir__fake_sampler_reset(weir__bsampler *sampler, weir_error *error)
{
    (void)error;
    uint64_t seed = sampler->seed;
    if (sampler->seed == WEIR_SEED_RANDOM)
        seed = (uint64_t)weir__clock_now_ns() ^ (uint64_t)(uintptr_t)sampler;
    sampler->state = weir__fake_mix(seed + 1);
    sampler->place = sampler->start;
    return WEIR_OK;
}

/* ---- Draws ---------------------------------------------------------------------------------------- */

/* A double in [0, 1). */
static double draw_number(weir__bsampler *sampler)
{
    sampler->state += UINT64_C(0x9e3779b97f4a7c15);
    return (double)(weir__fake_mix(sampler->state) >> 11) * 0x1p-53;
}

/* The logit with biases, ignore_eos, grammar and mask; -INFINITY forbids the token. */
static float logit_of(const weir__bsampler *sampler, const weir__fake_row *row, int32_t token)
{
    float value = weir__fake_logit(row->hash, row->chosen, token);
    for (size_t i = 0; i < sampler->n_bias; i++)
        if (sampler->bias[i].token == token) value += sampler->bias[i].bias;
    if (sampler->ignore_eos && sampler->model->pieces[token].kind == WEIR__FAKE_END) return -INFINITY;
    if (sampler->automaton != NULL && (sampler->mask[token / 64] >> (token % 64) & 1) == 0) return -INFINITY;
    if (sampler->allowed != NULL && (sampler->allowed[token / 64] >> (token % 64) & 1) == 0) return -INFINITY;
    return value;
}

/* -1: nothing is allowed. */
/* True if a token that could be chosen is not there only because of the biases. */
static bool bias_excludes(const weir__bsampler *sampler, const weir__fake_row *row)
{
    weir__bsampler plain = *sampler;
    bool excludes = false;
    plain.n_bias = 0;
    for (size_t i = 0; i < sampler->n_bias; i++)
        excludes |= logit_of(&plain, row, sampler->bias[i].token) > -INFINITY;
    return excludes;
}

static int32_t choose_token(weir__bsampler *sampler, const weir__fake_row *row)
{
    int32_t n = (int32_t)sampler->model->options.n_vocab, best = -1;
    float highest = -INFINITY;
    if (sampler->greedy && sampler->n_bias == 0 && sampler->automaton == NULL && sampler->allowed == NULL &&
        !(sampler->ignore_eos && sampler->model->pieces[row->chosen].kind == WEIR__FAKE_END))
        return row->chosen;
    for (int32_t i = 0; i < n; i++) {
        float value = logit_of(sampler, row, i);
        if (value > highest) {
            highest = value;
            best = i;
        }
    }
    if (sampler->greedy || best < 0) return best;

    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += exp((logit_of(sampler, row, i) - highest) / (double)sampler->temp);
    double left = draw_number(sampler) * sum;
    for (int32_t i = 0; i < n; i++) {
        left -= exp((logit_of(sampler, row, i) - highest) / (double)sampler->temp);
        if (left < 0.0) return i;
    }
    return best;
}

weir_status weir__fake_accept(weir__bsampler *sampler, int32_t token, weir_error *error)
{
    if (sampler->automaton == NULL) return WEIR_OK;
    return report_sample(weir__automaton_accept(sampler->automaton, &sampler->place, token), token, error);
}

size_t weir__fake_text_before_call(const weir__bsampler *sampler)
{
    return sampler->calls_only ? 0 : WEIR__NO_CALL;
}

weir_status weir__fake_count(weir__bsampler *sampler, int32_t token, weir_error *error)
{
    (void)token;
    (void)error;
    atomic_fetch_add((_Atomic uint64_t *)&sampler->model->hooks.n_counted, 1);
    return WEIR_OK;
}

weir_status weir__fake_sample(weir__bsampler *sampler, weir__bcontext *context, int32_t row,
                              const uint64_t *mask, int32_t *token, weir_error *error)
{
    weir__fake *hooks = &context->model->hooks;
    if (hooks->before_sample != NULL) hooks->before_sample(hooks->before_sample_user, row);
    if (weir__fake_fails(&hooks->fail_sample_at, &hooks->fail_sample_more))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for this sample to fail");
    const weir__fake_row *from = weir__fake_row_of(context, row);
    if (from == NULL)
        return weir__error_set(error, WEIR_BACKEND, NULL,
                               "the fake backend was misused: row %d kept no logits", row);
    weir_status status = sampler->automaton != NULL
                             ? weir__automaton_mask(sampler->automaton, &sampler->place, sampler->mask)
                             : WEIR_OK;
    if (status != WEIR_OK) return report_sample(status, -1, error);
    sampler->allowed = mask;
    int32_t chosen = choose_token(sampler, from);
    sampler->allowed = NULL;
    if (chosen < 0 && mask != NULL)
        return weir__error_set(error, WEIR_REFUSED, "", "the mask leaves no token that may come next");
    if (chosen < 0 && bias_excludes(sampler, from))
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "logit_bias",
                             "`logit_bias` excludes every token that may come next");
    if (chosen < 0)
        return weir__error_set(error, WEIR_GRAMMAR, "grammar", "nothing in the vocabulary is allowed here");
    *token = chosen;
    atomic_fetch_add(&hooks->n_samples, 1);
    return weir__fake_accept(sampler, chosen, error);
}
