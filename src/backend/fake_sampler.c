/* fake_sampler.c: the fake's sampling, and a toy grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/fake_internal.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

/* Literal alternatives: the text so far is the first `offset` bytes of each one alive. */
typedef struct toy {
    struct {
        char *text; /* the bytes of all alternatives */
        size_t start[32], length[32];
        size_t n;
    } all;
    bool alive[32];
    size_t offset;
} toy;

struct weir__bsampler {
    const weir__bmodel *model;
    bool greedy;
    float temp;
    uint32_t seed;
    uint64_t state; /* of the random numbers */
    bool ignore_eos;
    weir_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    toy *grammar, *start; /* current, and as created; NULL = none */
};

/* ---- The grammar ---------------------------------------------------------------------------------- */

typedef struct scanner {
    const char *at;
    int line;
} scanner;

static void skip_space(scanner *s)
{
    for (; *s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n' || *s->at == '#'; s->at++) {
        if (*s->at == '#') s->at += strcspn(s->at, "\n");
        if (*s->at == '\0') return;
        if (*s->at == '\n') s->line++;
    }
}

/* Reads a quoted literal; false: there is none. */
static bool literal(scanner *s, char *out, size_t *length)
{
    size_t n = 0;
    if (*s->at != '"') return false;
    for (s->at++; *s->at != '"'; s->at++) {
        bool escaped = *s->at == '\\';
        if (escaped) s->at++;
        if (*s->at == '\0' || *s->at == '\n') return false;
        if (escaped && *s->at != '"' && *s->at != '\\' && *s->at != 'n') return false;
        out[n++] = escaped && *s->at == 'n' ? '\n' : *s->at;
    }
    s->at++;
    *length = n;
    return true;
}

/* root ::= "abc" | "abd" */
static weir_status toy_parse(const char *text, const char *root, toy **grammar, weir_error *error)
{
    weir_status status = WEIR_NO_MEMORY;
    scanner s = {.at = text, .line = 1};
    size_t used = 0, name = strlen(root);
    toy *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) goto no_memory;
    made->all.text = weir__mem_alloc(strlen(text) + 1);
    if (made->all.text == NULL) goto no_memory;

    skip_space(&s);
    if (strncmp(s.at, root, name) != 0) goto refuse;
    s.at += name;
    skip_space(&s);
    if (strncmp(s.at, "::=", 3) != 0) goto refuse;
    s.at += 3;
    for (;;) {
        skip_space(&s);
        size_t i = made->all.n;
        if (i == sizeof made->alive / sizeof made->alive[0]) goto refuse;
        if (!literal(&s, made->all.text + used, &made->all.length[i])) goto refuse;
        made->all.start[i] = used;
        used += made->all.length[i];
        made->alive[i] = true;
        made->all.n++;
        skip_space(&s);
        if (*s.at == '\0') break;
        if (*s.at++ != '|') goto refuse;
    }
    *grammar = made;
    return WEIR_OK;

refuse:
    status = weir__error_set(
        error, WEIR_GRAMMAR, "grammar",
        "line %d: the fake model knows grammars of the form %s ::= \"abc\" | \"abd\" only", s.line, root);
    goto fail;
no_memory:
    weir__error_set(error, status, NULL, "no memory for a grammar");
fail:
    if (made != NULL) weir__mem_free(made->all.text);
    weir__mem_free(made);
    return status;
}

/* Whether alternative i, which is alive, continues with these bytes. */
static bool toy_fits(const toy *grammar, size_t i, const char *bytes, size_t n)
{
    return grammar->all.length[i] - grammar->offset >= n &&
           memcmp(grammar->all.text + grammar->all.start[i] + grammar->offset, bytes, n) == 0;
}

static bool toy_allows(const toy *grammar, const weir__bmodel *model, int32_t token)
{
    const weir__fake_token *piece = &model->pieces[token];
    bool end = piece->kind == WEIR__FAKE_END;
    if (!end && (piece->kind == WEIR__FAKE_CONTROL || piece->length == 0)) return false;
    for (size_t i = 0; i < grammar->all.n; i++)
        if (grammar->alive[i] && (end ? grammar->all.length[i] == grammar->offset
                                      : toy_fits(grammar, i, piece->bytes, (size_t)piece->length)))
            return true;
    return false;
}

static void toy_advance(toy *grammar, const char *bytes, size_t n)
{
    for (size_t i = 0; i < grammar->all.n; i++)
        if (grammar->alive[i]) grammar->alive[i] = toy_fits(grammar, i, bytes, n);
    grammar->offset += n;
}

/* ---- Life ----------------------------------------------------------------------------------------- */

static weir_status refused(weir_error *error, int32_t token)
{
    return weir__error_set(error, WEIR_REFUSED, "token",
                           "the grammar does not allow token %d here; the sampler is unchanged", token);
}

void weir__fake_sampler_free(weir__bsampler *sampler)
{
    if (sampler == NULL) return;
    /* the model outlives its samplers, and its counters may change */
    atomic_fetch_sub((_Atomic int32_t *)&sampler->model->hooks.n_samplers, 1);
    if (sampler->start != NULL) weir__mem_free(sampler->start->all.text);
    weir__mem_free(sampler->start);
    weir__mem_free(sampler->grammar);
    weir__mem_free(sampler->bias);
    weir__mem_free(sampler);
}

weir_status weir__fake_sampler_create(const weir__bmodel *model, const weir_sampler_params *params,
                                      const weir__grammar *grammar, weir__bsampler **sampler,
                                      weir_error *error)
{
    const char *text = grammar != NULL ? grammar->text : params->grammar;
    const char *root = grammar != NULL ? grammar->root : params->grammar_root;
    weir_status status;
    weir__bsampler *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
    atomic_fetch_add((_Atomic int32_t *)&model->hooks.n_samplers, 1);
    made->model = model;
    made->greedy = params->temp <= 0.0f || params->top_k == 1;
    made->temp = params->temp;
    made->seed = params->seed;
    made->ignore_eos = params->ignore_eos;
    made->n_bias = params->n_logit_bias;
    made->bias = weir__mem_dup(params->logit_bias, made->n_bias * sizeof *made->bias);
    if (made->bias == NULL) goto no_memory;

    if (text == NULL && params->json_schema != NULL) {
        status = weir__error_set(error, WEIR_GRAMMAR, "json_schema", "the fake model knows no JSON Schema");
        goto fail;
    }
    if (text != NULL && grammar != NULL && grammar->lazy) {
        status = weir__error_set(error, WEIR_GRAMMAR, "grammar", "the fake model knows no lazy grammar");
        goto fail;
    }
    if (text != NULL) {
        status = weir_grammar_check(text, root, error);
        if (status == WEIR_OK) status = toy_parse(text, root != NULL ? root : "root", &made->start, error);
        if (status != WEIR_OK) goto fail;
        const char *prefill = grammar != NULL && grammar->prefill != NULL ? grammar->prefill : "";
        toy_advance(made->start, prefill, strlen(prefill));
        made->grammar = weir__mem_alloc(sizeof *made->grammar);
        if (made->grammar == NULL) goto no_memory;
    }
    status = weir__fake_sampler_reset(made, error);
    if (status != WEIR_OK) goto fail;
    *sampler = made;
    return WEIR_OK;

no_memory:
    status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a sampler");
fail:
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
    if (sampler->grammar != NULL) *sampler->grammar = *sampler->start;
    return WEIR_OK;
}

/* ---- Draws ---------------------------------------------------------------------------------------- */

/* A double in [0, 1). */
static double draw(weir__bsampler *sampler)
{
    sampler->state += UINT64_C(0x9e3779b97f4a7c15);
    return (double)(weir__fake_mix(sampler->state) >> 11) * 0x1p-53;
}

/* The logit with biases, ignore_eos and grammar; -INFINITY forbids the token. */
static float logit(const weir__bsampler *sampler, const weir__fake_row *row, int32_t token)
{
    float value = weir__fake_logit(row->hash, row->chosen, token);
    for (size_t i = 0; i < sampler->n_bias; i++)
        if (sampler->bias[i].token == token) value += sampler->bias[i].bias;
    if (sampler->ignore_eos && sampler->model->pieces[token].kind == WEIR__FAKE_END) return -INFINITY;
    if (sampler->grammar != NULL && !toy_allows(sampler->grammar, sampler->model, token)) return -INFINITY;
    return value;
}

/* -1: nothing is allowed. */
static int32_t choose(weir__bsampler *sampler, const weir__fake_row *row)
{
    int32_t n = (int32_t)sampler->model->options.n_vocab, best = -1;
    float highest = -INFINITY;
    if (sampler->greedy && sampler->n_bias == 0 && sampler->grammar == NULL &&
        !(sampler->ignore_eos && sampler->model->pieces[row->chosen].kind == WEIR__FAKE_END))
        return row->chosen;
    for (int32_t i = 0; i < n; i++) {
        float value = logit(sampler, row, i);
        if (value > highest) {
            highest = value;
            best = i;
        }
    }
    if (sampler->greedy || best < 0) return best;

    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += exp((logit(sampler, row, i) - highest) / (double)sampler->temp);
    double left = draw(sampler) * sum;
    for (int32_t i = 0; i < n; i++) {
        left -= exp((logit(sampler, row, i) - highest) / (double)sampler->temp);
        if (left < 0.0) return i;
    }
    return best;
}

weir_status weir__fake_accept(weir__bsampler *sampler, int32_t token, weir_error *error)
{
    if (sampler->grammar == NULL) return WEIR_OK;
    if (!toy_allows(sampler->grammar, sampler->model, token)) return refused(error, token);
    const weir__fake_token *piece = &sampler->model->pieces[token];
    if (piece->kind == WEIR__FAKE_TEXT) toy_advance(sampler->grammar, piece->bytes, (size_t)piece->length);
    return WEIR_OK;
}

weir_status weir__fake_count(weir__bsampler *sampler, int32_t token, weir_error *error)
{
    (void)token;
    (void)error;
    atomic_fetch_add((_Atomic uint64_t *)&sampler->model->hooks.n_counted, 1);
    return WEIR_OK;
}

weir_status weir__fake_sample(weir__bsampler *sampler, weir__bcontext *context, int32_t row, int32_t *token,
                              weir_error *error)
{
    weir__fake *hooks = &context->model->hooks;
    if (hooks->before_sample != NULL) hooks->before_sample(hooks->before_sample_user, row);
    if (weir__fake_fails(&hooks->fail_sample_at, &hooks->fail_sample_more))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for this sample to fail");
    const weir__fake_row *from = weir__fake_row_of(context, row);
    if (from == NULL)
        return weir__error_set(error, WEIR_BACKEND, NULL,
                               "the fake backend was misused: row %d kept no logits", row);
    int32_t chosen = choose(sampler, from);
    if (chosen < 0)
        return weir__error_set(error, WEIR_GRAMMAR, "grammar", "nothing in the vocabulary is allowed here");
    *token = chosen;
    atomic_fetch_add(&hooks->n_samples, 1);
    return weir__fake_accept(sampler, chosen, error);
}
