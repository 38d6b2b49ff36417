/* llama_sampler.c: sampling: biases, llama.cpp's chain, the grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/llama_internal.h"
#include "base/error.h"
#include "base/largest.h"
#include "base/mem.h"

/* Larger logits count as this one: so sums, divisions by the lowest temperature and bucket sorts stay within
 * float and int. Such a token is certain anyway. */
#define MOST_LOGIT 1e5f

/* The most tokens in a row that a waiting grammar may refuse, because they would start it wrongly, before it
 * counts as stuck. */
#define MAX_REFUSALS 16

struct weir__bsampler {
    weir__bmodel *model;
    struct llama_sampler *chain; /* NULL: takes the most likely token */
    bool selects;                /* the chain selects a token at its end */
    int32_t n_largest;           /* the chain keeps only this many of the largest logits; 0: it does not */
    weir__shim_grammar *grammar; /* NULL: none */
    size_t n_bias;
    weir_logit_bias bias[]; /* [n_bias] in any order; a token may have several */
};

/* ---- Life ----------------------------------------------------------------------------------------- */

static weir_status create_grammar(weir__bsampler *s, const weir_sampler_params *params,
                                  const weir__grammar *grammar, weir_error *error)
{
    const char *text = grammar != NULL ? grammar->text : params->grammar;
    const char *root = grammar != NULL ? grammar->root : params->grammar_root;
    if (text == NULL) {
        if (params->json_schema == NULL) return WEIR_OK;
        return weir__error_set(error, WEIR_INVALID, "json_schema",
                               "a schema must have been made a grammar before");
    }
    weir__automaton *automaton = NULL;
    weir_status status = weir__llama_grammar_get(s->model, text, root, &automaton, error);
    if (status != WEIR_OK) return status;
    bool lazy = grammar != NULL && grammar->lazy;
    status = weir__shim_grammar_create(s->model->vocab, automaton, lazy, &s->grammar, error);
    weir__automaton_release(automaton);
    if (status != WEIR_OK) return status;
    for (size_t i = 0; lazy && i < grammar->n_triggers && status == WEIR_OK; i++)
        status = weir__shim_grammar_trigger(s->grammar, &grammar->triggers[i], error);
    /* A lazy grammar describes the text after its trigger. */
    if (status == WEIR_OK && !lazy && grammar != NULL && grammar->prefill != NULL)
        status = weir__shim_grammar_begin(s->grammar, grammar->prefill, error);
    return status;
}

weir_status weir__llama_sampler_create(const weir__bmodel *model, const weir_sampler_params *params,
                                       const weir__grammar *grammar, weir__bsampler **sampler,
                                       weir_error *error)
{
    if (model->info.n_vocab < 1)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this model has no vocabulary to choose from");
    size_t n_bias = params->n_logit_bias + model->n_banned + (params->ignore_eos ? model->n_eog : 0);
    weir__bsampler *s = weir__mem_calloc(1, sizeof *s + n_bias * sizeof s->bias[0]);
    if (s == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
    s->model = (weir__bmodel *)model;
    for (size_t i = 0; i < params->n_logit_bias; i++) s->bias[s->n_bias++] = params->logit_bias[i];
    for (size_t i = 0; i < model->n_banned; i++) s->bias[s->n_bias++] = model->banned[i];
    for (size_t i = 0; params->ignore_eos && i < model->n_eog; i++)
        s->bias[s->n_bias++] = (weir_logit_bias){model->eog[i], -INFINITY};

    weir_status status =
        weir__shim_chain_create(model->vocab, params, &s->chain, &s->selects, &s->n_largest, error);
    if (status == WEIR_OK) status = create_grammar(s, params, grammar, error);
    if (status != WEIR_OK) {
        weir__llama_sampler_free(s);
        return status;
    }
    *sampler = s;
    return WEIR_OK;
}

void weir__llama_sampler_free(weir__bsampler *s)
{
    if (s == NULL) return;
    weir__shim_grammar_free(s->grammar);
    llama_sampler_free(s->chain);
    weir__mem_free(s);
}

weir_status weir__llama_sampler_reset(weir__bsampler *s, weir_error *error)
{
    weir_status status = WEIR_OK;
    if (s->grammar != NULL) status = weir__shim_grammar_reset(s->grammar, error);
    if (status == WEIR_OK && s->chain != NULL) status = weir__shim_chain_reset(s->chain, error);
    return status;
}

/* ---- Scratch -------------------------------------------------------------------------------------- */

struct weir__llama_scratch {
    weir__llama_scratch *next;     /* while it is free */
    float *allowed;                /* [n_vocab] logits of what a grammar allows, else -INFINITY */
    uint64_t *mask;                /* [WEIR__AUTOMATON_WORDS(n_vocab)] */
    llama_token_data candidates[]; /* [n_vocab] */
};

void weir__llama_scratch_free(weir__llama_scratch *all)
{
    while (all != NULL) {
        weir__llama_scratch *next = all->next;
        weir__mem_free(all);
        all = next;
    }
}

static weir__llama_scratch *take_scratch(weir__bmodel *model)
{
    pthread_mutex_lock(&model->scratch_lock);
    weir__llama_scratch *scratch = model->scratch;
    if (scratch != NULL) model->scratch = scratch->next;
    pthread_mutex_unlock(&model->scratch_lock);
    if (scratch != NULL) return scratch;
    /* One block: the candidates, then the mask, then the logits. */
    size_t n = (size_t)model->info.n_vocab, n_words = WEIR__AUTOMATON_WORDS(n);
    size_t size = sizeof *scratch + n * sizeof scratch->candidates[0];
    size_t at = (size + sizeof *scratch->mask - 1) / sizeof *scratch->mask * sizeof *scratch->mask;
    scratch = weir__mem_alloc(at + n_words * sizeof *scratch->mask + n * sizeof *scratch->allowed);
    if (scratch == NULL) return NULL;
    scratch->mask = (uint64_t *)(void *)((char *)scratch + at);
    scratch->allowed = (float *)(void *)(scratch->mask + n_words);
    return scratch;
}

static void give_scratch(weir__bmodel *model, weir__llama_scratch *scratch)
{
    if (scratch == NULL) return;
    pthread_mutex_lock(&model->scratch_lock);
    scratch->next = model->scratch;
    model->scratch = scratch;
    pthread_mutex_unlock(&model->scratch_lock);
}

/* ---- Candidates ----------------------------------------------------------------------------------- */

/* Moves the tokens that may be chosen to the front, in order, and returns their number. NaN is excluded. */
static size_t keep_possible(llama_token_data *candidates, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        float logit = candidates[i].logit;
        candidates[kept] = candidates[i];
        candidates[kept].logit = logit < MOST_LOGIT ? logit : MOST_LOGIT;
        kept += logit > -INFINITY;
    }
    return kept;
}

static size_t list_candidates(const weir__bsampler *s, const float *logits, llama_token_data *candidates)
{
    size_t n = (size_t)s->model->info.n_vocab;
    if (s->n_bias > 0) {
        for (size_t i = 0; i < n; i++)
            candidates[i] = (llama_token_data){.id = (llama_token)i, .logit = logits[i]};
        for (size_t i = 0; i < s->n_bias; i++) candidates[s->bias[i].token].logit += s->bias[i].bias;
        return keep_possible(candidates, n);
    }
    size_t kept = 0; /* lists and filters in one pass */
    for (size_t i = 0; i < n; i++) {
        float logit = logits[i] < MOST_LOGIT ? logits[i] : MOST_LOGIT;
        candidates[kept] = (llama_token_data){.id = (llama_token)i, .logit = logit};
        kept += logits[i] > -INFINITY;
    }
    return kept;
}

#define LANES WEIR__LARGEST_LANES
#define BLOCK WEIR__LARGEST_BLOCK

/* Adds a bias to a token, which is listed first if it was not. Returns the number listed. */
static size_t add_bias(const weir_logit_bias *bias, const float *logits, llama_token_data *candidates,
                       size_t n)
{
    size_t i = 0;
    while (i < n && candidates[i].id != bias->token) i++;
    if (i == n) candidates[n++] = (llama_token_data){.id = bias->token, .logit = logits[bias->token]};
    candidates[i].logit += bias->bias;
    return n;
}

/* Lists at least the tokens with the k largest logits, biases included: a few more, or all. */
static size_t list_largest(const weir__bsampler *s, const float *logits, size_t k,
                           llama_token_data *candidates)
{
    size_t n = (size_t)s->model->info.n_vocab, n_blocks = n / BLOCK, kept = 0;
    k += s->n_bias; /* biases may remove that many */
    if (k > WEIR__LARGEST_MOST || k > n_blocks / 2) return list_candidates(s, logits, candidates);
    float bound = weir__largest_bound(logits, n_blocks, k);
    for (size_t b = 0; b * BLOCK < n; b++) {
        size_t end = b < n_blocks ? (b + 1) * BLOCK : n;
        if (b < n_blocks && !(weir__largest(logits + b * BLOCK, BLOCK) >= bound)) continue;
        for (size_t i = b * BLOCK; i < end; i++)
            if (logits[i] >= bound)
                candidates[kept++] = (llama_token_data){.id = (llama_token)i, .logit = logits[i]};
    }
    for (size_t i = 0; i < s->n_bias; i++) kept = add_bias(&s->bias[i], logits, candidates, kept);
    return keep_possible(candidates, kept);
}

/* ---- Choice --------------------------------------------------------------------------------------- */

/* The lowest index of the largest number; -1: all are NaN or -infinity. */
static int32_t argmax(const float *x, int32_t n)
{
    int32_t whole = n / LANES * LANES;
    float max = weir__largest(x, (size_t)whole);
    for (int32_t i = whole; i < n; i++) max = x[i] > max ? x[i] : max;
    if (!(max > -INFINITY)) return -1;
    int32_t i = 0;
    for (; i < whole; i += LANES) {
        int found = 0;
        for (int32_t j = 0; j < LANES; j++) found |= x[i + j] == max;
        if (found) break;
    }
    while (x[i] != max) i++;
    return i;
}

static int32_t likeliest(const llama_token_data *candidates, size_t n)
{
    const llama_token_data *best = candidates;
    for (const llama_token_data *c = candidates; c < candidates + n; c++)
        if (c->logit > best->logit || (c->logit == best->logit && c->id < best->id)) best = c;
    return best->id;
}

/* Runs the chain over candidates [n], n > 0, and chooses. */
static weir_status choose(weir__bsampler *s, llama_token_data *candidates, size_t n, int32_t *token,
                          weir_error *error)
{
    llama_token_data_array array = {.data = candidates, .size = n, .selected = -1};
    if (s->chain != NULL) {
        weir_status status = weir__shim_chain_apply(s->chain, &array, error);
        if (status != WEIR_OK) return status;
    }
    if (s->selects ? array.selected < 0 || (size_t)array.selected >= array.size : array.size == 0)
        return weir__error_set(error, WEIR_BACKEND, NULL, "the sampler chain chose no token");
    *token = s->selects ? array.data[array.selected].id : likeliest(array.data, array.size);
    return WEIR_OK;
}

/* The first choice, without the grammar. */
static weir_status first_choice(weir__bsampler *s, const float *logits, weir__llama_scratch **scratch,
                                int32_t *token, weir_error *error)
{
    if (s->chain == NULL && s->n_bias == 0) {
        *token = argmax(logits, s->model->info.n_vocab);
        if (*token >= 0) return WEIR_OK;
    } else {
        if (*scratch == NULL) *scratch = take_scratch(s->model);
        if (*scratch == NULL)
            return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the candidates");
        llama_token_data *candidates = (*scratch)->candidates;
        size_t n = s->n_largest > 0 ? list_largest(s, logits, (size_t)s->n_largest, candidates)
                                    : list_candidates(s, logits, candidates);
        if (n > 0) return choose(s, candidates, n, token, error);
    }
    return weir__error_set(error, WEIR_BACKEND, NULL,
                           "no token can be chosen: all logits are NaN or minus infinity");
}

/* Copies the logits of the tokens that the mask allows. */
static void allow(const float *logits, const uint64_t *mask, size_t n, float *allowed)
{
    for (size_t i = 0; i < n; i++) allowed[i] = mask[i / 64] >> (i % 64) & 1 ? logits[i] : -INFINITY;
}

/* Chooses among the tokens that the grammar allows, after it refused `token`. A waiting grammar allows all,
 * but may refuse one that would start it wrongly. */
static weir_status constrained_choice(weir__bsampler *s, const float *logits, weir__llama_scratch **scratch,
                                      int32_t *token, weir_error *error)
{
    size_t n = (size_t)s->model->info.n_vocab;
    weir_error why = {0};
    if (*scratch == NULL) *scratch = take_scratch(s->model);
    if (*scratch == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the candidates");
    float *allowed = (*scratch)->allowed;
    weir_status status = weir__shim_grammar_mask(s->grammar, (*scratch)->mask, error);
    if (status != WEIR_OK) return status;
    allow(logits, (*scratch)->mask, n, allowed);
    for (int n_refused = 1; n_refused <= MAX_REFUSALS; n_refused++) {
        allowed[*token] = -INFINITY;
        status = first_choice(s, allowed, scratch, token, &why);
        if (status == WEIR_BACKEND) break; /* no token is left */
        if (status == WEIR_OK) status = weir__shim_grammar_accept(s->grammar, *token, &why);
        if (status == WEIR_OK) return status;
        if (status != WEIR_REFUSED) return weir__error_copy(error, &why);
    }
    return weir__error_set(error, WEIR_GRAMMAR, "grammar",
                           "the grammar allows none of the model's tokens here");
}

weir_status weir__llama_sample(weir__bsampler *s, weir__bcontext *context, int32_t row, int32_t *token,
                               weir_error *error)
{
    const float *logits = weir__llama_logits(context, row);
    if (logits == NULL)
        return weir__error_set(error, WEIR_INVALID, "index", "row %d of the last pass kept no logits", row);
    weir__llama_scratch *scratch = NULL;
    int32_t chosen = -1;
    weir_status status = first_choice(s, logits, &scratch, &chosen, error);
    if (status == WEIR_OK && s->grammar != NULL) {
        weir_error why; /* separate, as a refusal is no failure */
        status = weir__shim_grammar_accept(s->grammar, chosen, &why);
        if (status == WEIR_REFUSED)
            status = constrained_choice(s, logits, &scratch, &chosen, error);
        else if (status != WEIR_OK)
            weir__error_copy(error, &why);
    }
    give_scratch(s->model, scratch);
    if (status == WEIR_OK) status = weir__llama_count(s, chosen, error);
    if (status == WEIR_OK) *token = chosen;
    return status;
}

weir_status weir__llama_count(weir__bsampler *s, int32_t token, weir_error *error)
{
    return s->chain != NULL ? weir__shim_chain_accept(s->chain, token, error) : WEIR_OK;
}

weir_status weir__llama_accept(weir__bsampler *s, int32_t token, weir_error *error)
{
    weir_status status = WEIR_OK;
    if (s->grammar != NULL) status = weir__shim_grammar_accept(s->grammar, token, error);
    return status == WEIR_OK ? weir__llama_count(s, token, error) : status;
}
