/* sampler_test.c: choosing tokens with llama.cpp's chain, on made-up rows and with the real vocabulary.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <pthread.h>

#include "support/llama.h"

/* A pass that never ran: one row, [n_vocab], that the test writes. */
static weir__bcontext made_up;
static float *row;
static int32_t row_of[1];

static int begin(void **state)
{
    load_model(state);
    row = calloc((size_t)model_is.n_vocab, sizeof *row);
    made_up = (weir__bcontext){
        .model = model, .row_of = row_of, .n_entries = 1, .n_rows = 1, .settled = true, .logits = row};
    return row != NULL ? 0 : -1;
}

static int end(void **state)
{
    free(row);
    return free_model(state);
}

static uint32_t random_state;

static float random_unit(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / (float)(1 << 24);
}

/* Logits about as a model's are: most low, a few high. */
static void fill_row(uint32_t seed)
{
    random_state = seed;
    for (int32_t i = 0; i < model_is.n_vocab; i++) {
        float u = random_unit();
        row[i] = -8.0f + 4.0f * random_unit() + 22.0f * u * u * u * u * u * u * u * u;
    }
}

static void flat_row(float value)
{
    for (int32_t i = 0; i < model_is.n_vocab; i++) row[i] = value;
}

static int32_t sample(weir__bsampler *sampler)
{
    int32_t token = -1;
    assert_ok(ops->sample(sampler, &made_up, 0, NULL, &token, error));
    assert_in_range(token, 0, model_is.n_vocab - 1);
    return token;
}

static void sample_many(const weir_sampler_params *params, int32_t *tokens, size_t n)
{
    weir__bsampler *sampler = sampler_of(params, NULL);
    for (size_t i = 0; i < n; i++) {
        fill_row(77 + (uint32_t)i % 5);
        tokens[i] = sample(sampler);
    }
    ops->sampler_free(sampler);
}

/* ---- Greedy --------------------------------------------------------------------------------------- */

static void the_first_of_the_largest(void **state)
{
    (void)state;
    weir_sampler_params params = greedy_params();
    weir__bsampler *sampler = sampler_of(&params, NULL);
    int32_t n = model_is.n_vocab;
    const int32_t places[] = {0, 1, 15, 16, 17, 1000, n - 17, n - 16, n - 2, n - 1};
    for (size_t i = 0; i < N_ELEMENTS(places); i++) {
        flat_row(-3.0f);
        row[places[i]] = 2.0f;
        assert_int_equal(sample(sampler), places[i]);
        for (int32_t j = places[i] + 1; j < n; j += 1001) row[j] = 2.0f;
        assert_int_equal(sample(sampler), places[i]);
        for (int32_t j = 0; j < n; j += 3)
            if (j != places[i]) row[j] = NAN;
        assert_int_equal(sample(sampler), places[i]);
    }
    flat_row(0.0f);
    assert_int_equal(sample(sampler), 0);
    flat_row(-INFINITY);
    row[4711] = -FLT_MAX;
    assert_int_equal(sample(sampler), 4711);
    row[99] = INFINITY;
    assert_int_equal(sample(sampler), 99);
    ops->sampler_free(sampler);
}

/* The choice is the same with something that makes the sampler list candidates. */
static void greedy_by_candidates(void **state)
{
    (void)state;
    weir_sampler_params plain = greedy_params(), listed = greedy_params();
    weir_logit_bias bias = {7, -INFINITY};
    listed.logit_bias = &bias;
    listed.n_logit_bias = 1;
    weir__bsampler *a = sampler_of(&plain, NULL), *b = sampler_of(&listed, NULL);
    for (uint32_t seed = 1; seed <= 8; seed++) {
        fill_row(seed);
        row[100 + seed] = row[5000] = 50.0f;
        assert_int_equal(sample(a), 100 + seed);
        assert_int_equal(sample(b), 100 + seed);
    }
    flat_row(0.0f);
    row[7] = 9.0f;
    assert_int_equal(sample(a), 7);
    assert_int_equal(sample(b), 0);
    ops->sampler_free(b);
    ops->sampler_free(a);
}

/* llama.cpp's own chain over all candidates, as an oracle. */
static int32_t chosen_of_all(struct llama_sampler *chain, const weir_logit_bias *bias, size_t n_bias)
{
    size_t n = 0;
    llama_token_data *all = calloc((size_t)model_is.n_vocab, sizeof *all);
    assert_non_null(all);
    for (int32_t i = 0; i < model_is.n_vocab; i++) {
        float logit = row[i];
        for (size_t b = 0; b < n_bias; b++) logit += bias[b].token == i ? bias[b].bias : 0.0f;
        if (logit > -INFINITY) all[n++] = (llama_token_data){.id = i, .logit = logit};
    }
    llama_token_data_array array = {.data = all, .size = n, .selected = -1};
    llama_sampler_apply(chain, &array);
    int32_t token = array.data[array.selected].id;
    free(all);
    return token;
}

/* Few candidates are listed where few can be chosen; the choice is that among all. */
static void few_candidates_decide_as_all(void **state)
{
    (void)state;
    const int32_t ks[] = {1,   2,   40,  250,
                          252, 253, 1000}; /* with 4 biases up to 256 are looked for by blocks */
    for (size_t i = 0; i < N_ELEMENTS(ks); i++)
        for (uint32_t seed = 1; seed <= 12; seed++) {
            weir_sampler_params params = complete_params();
            weir_logit_bias bias[4];
            params.top_k = ks[i];
            params.top_p = 1.0f;
            params.min_p = 0.0f;
            params.temp = 1.0f;
            params.seed = seed;
            params.logit_bias = bias;
            params.n_logit_bias = seed % 2 == 0 ? 4 : 0;
            fill_row(seed);
            if (seed % 3 == 0) /* the largest beside each other, others not numbers or impossible */
                for (int32_t j = 0; j < model_is.n_vocab; j++)
                    row[j] = j / 100 == 200 + (int32_t)seed ? row[j] + 20.0f
                             : j % 7 == 0                   ? NAN
                             : j % 3 == 0                   ? -INFINITY
                                                            : row[j];
            if (seed % 5 == 0) /* fewer than are looked for */
                for (int32_t j = 0; j < model_is.n_vocab; j++)
                    if (j % 1000 != 17) row[j] = -INFINITY;
            int32_t best = 0;
            for (int32_t j = 0; j < model_is.n_vocab; j++)
                if (row[j] > row[best] || isnan(row[best])) best = j;
            bias[0] = (weir_logit_bias){best, seed % 4 == 0 ? -INFINITY : -1.0f};
            bias[1] = (weir_logit_bias){(best + 1) % model_is.n_vocab, 12.0f};
            bias[2] = (weir_logit_bias){(best + 1) % model_is.n_vocab, -3.0f};
            bias[3] = (weir_logit_bias){0, 5.0f};

            struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
            llama_sampler_chain_add(chain, llama_sampler_init_top_k(ks[i]));
            llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
            weir__bsampler *sampler = sampler_of(&params, NULL);
            for (int draws = 0; draws < 8; draws++)
                assert_int_equal(sample(sampler), chosen_of_all(chain, bias, params.n_logit_bias));
            ops->sampler_free(sampler);
            llama_sampler_free(chain);
        }
}

static void rows_of_nothing(void **state)
{
    (void)state;
    weir_sampler_params params[3] = {greedy_params(), complete_params(), complete_params()};
    const float nothing[] = {NAN, -INFINITY};
    params[2].mirostat = 2;
    for (size_t p = 0; p < N_ELEMENTS(params); p++) {
        weir__bsampler *sampler = sampler_of(&params[p], NULL);
        int32_t token = -1;
        for (size_t i = 0; i < 2; i++) {
            flat_row(nothing[i]);
            assert_refused(ops->sample(sampler, &made_up, 0, NULL, &token, error), WEIR_BACKEND, "");
        }
        flat_row(NAN);
        row[123] = 1.0f;
        assert_int_equal(sample(sampler), 123);
        ops->sampler_free(sampler);
    }
}

/* ---- Each sampler --------------------------------------------------------------------------------- */

/* A sampler that leaves only one candidate is greedy at any temperature. */
static void truncations_to_one(void **state)
{
    (void)state;
    weir_sampler_params params[6];
    for (size_t i = 0; i < N_ELEMENTS(params); i++) {
        params[i] = complete_params();
        params[i].temp = 50.0f;
        params[i].top_k = 0;
        params[i].top_p = 1.0f;
        params[i].min_p = 0.0f;
    }
    params[0].top_k = 1;
    params[1].top_p = 0.0f;
    params[2].min_p = 1.0f;
    params[3].top_n_sigma = 1e-6f;
    params[4].temp = 1e-4f; /* counts as 0 */
    params[5].temp = 0.002f;
    for (size_t i = 0; i < N_ELEMENTS(params); i++) {
        weir__bsampler *sampler = sampler_of(&params[i], NULL);
        for (uint32_t seed = 1; seed < 6; seed++) {
            fill_row(seed);
            row[seed * 1000] += 40.0f;
            assert_int_equal(sample(sampler), seed * 1000);
        }
        ops->sampler_free(sampler);
    }
}

static void a_seed_decides(void **state)
{
    (void)state;
    weir_sampler_params params = complete_params();
    int32_t first[64], second[64];
    sample_many(&params, first, 64);
    sample_many(&params, second, 64);
    assert_memory_equal(first, second, sizeof first);
    params.seed = 2;
    sample_many(&params, second, 64);
    assert_memory_not_equal(first, second, sizeof first);
    params.seed = WEIR_SEED_RANDOM;
    sample_many(&params, first, 64);
    sample_many(&params, second, 64);
    assert_memory_not_equal(first, second, sizeof first);
}

/* Every parameter, by itself, changes what is drawn. */
static void every_sampler_has_an_effect(void **state)
{
    (void)state;
    enum { N = 96 };
    weir_sampler_params base = complete_params();
    int32_t plain[N], got[N];
    base.temp = 1.5f;
    base.top_k = 0;
    base.top_p = 1.0f;
    base.min_p = 0.0f;
    sample_many(&base, plain, N);

    weir_logit_bias bias = {4242, 12.0f};
    weir_sampler_params p[20];
    size_t n = 0;
#define CASE(assignments)                                                                                    \
    do {                                                                                                     \
        assert_true(n < N_ELEMENTS(p));                                                                      \
        p[n] = base;                                                                                         \
        weir_sampler_params *c = &p[n++];                                                                    \
        assignments;                                                                                         \
    } while (0)
    CASE(c->temp = 0.5f);
    CASE(c->dynatemp_range = 1.0f);
    CASE(c->dynatemp_range = 1.0f; c->dynatemp_exponent = 4.0f);
    CASE(c->top_k = 10);
    CASE(c->top_p = 0.5f);
    CASE(c->min_p = 0.3f);
    CASE(c->typical_p = 0.3f);
    CASE(c->top_n_sigma = 2.0f);
    CASE(c->xtc_probability = 1.0f; c->xtc_threshold = 0.0f);
    CASE(c->top_p = 0.01f; c->min_keep = 5);
    CASE(c->penalty_repeat = 10.0f);
    CASE(c->penalty_freq = 5.0f);
    CASE(c->penalty_present = 5.0f);
    CASE(c->mirostat = 1);
    CASE(c->mirostat = 2);
    CASE(c->mirostat = 2; c->mirostat_tau = 1.0f; c->mirostat_eta = 0.5f);
    CASE(c->adaptive_target = 0.3f);
    CASE(c->adaptive_target = 0.3f; c->adaptive_decay = 0.5f);
    CASE(c->logit_bias = &bias; c->n_logit_bias = 1);
#undef CASE
    for (size_t i = 0; i < n; i++) {
        sample_many(&p[i], got, N);
        if (memcmp(got, plain, sizeof got) == 0) fail_msg("case %zu changes nothing", i);
    }
}

static void the_order_matters(void **state)
{
    (void)state;
    weir_sampler_params params = complete_params();
    int32_t first[64], second[64];
    params.top_k = 0;
    params.min_p = 0.0f;
    params.top_p = 0.6f;
    params.temp = 4.0f;
    params.order = "top_p;temperature";
    sample_many(&params, first, 64);
    params.order = "temperature;top_p";
    sample_many(&params, second, 64);
    assert_memory_not_equal(first, second, sizeof first);
    params.order = ""; /* draws from everything */
    sample_many(&params, second, 64);
    assert_memory_not_equal(first, second, sizeof first);
    params.order = "top_k;infill";
    params.top_k = 20;
    sample_many(&params, first, 64);
    params.ignore_eos = true;
    weir__bsampler *sampler = NULL;
    assert_refused(ops->sampler_create(model, &params, NULL, &sampler, error), WEIR_INVALID, "order");
}

/* What cannot be drawn does not change what is drawn: neither what top_n_sigma excludes nor what a bias puts
 * far below. The oracle is a row that has -INFINITY there from the beginning, with the same samplers. */
static void what_is_excluded_counts_nowhere(void **state)
{
    (void)state;
    enum { N = 64 };
    weir_sampler_params plain = complete_params(), p[6];
    const float sigmas = 3.0f;
    static weir_logit_bias bias[300];
    plain.top_k = 0;
    plain.top_p = 1.0f;
    plain.min_p = 0.0f;
    plain.temp = 1.0f;
    for (size_t i = 0; i < N_ELEMENTS(p); i++) p[i] = plain;
    p[0].typical_p = 0.5f;
    p[1].typical_p = 0.1f;
    p[1].min_keep = 5;
    p[2].dynatemp_range = 0.9f;
    p[2].dynatemp_exponent = 2.0f;
    p[3].xtc_probability = 1.0f;
    p[3].xtc_threshold = 0.01f;
    p[4].top_p = 0.5f;
    p[5].typical_p = 0.5f;
    p[5].temp = 0.0f;
    for (size_t i = 0; i < N_ELEMENTS(p); i++)
        for (int biased = 0; biased < 2; biased++) {
            int32_t got[N], want[N];
            weir_sampler_params cut = p[i];
            fill_row(20 + (uint32_t)i);
            if (biased) {
                for (size_t b = 0; b < N_ELEMENTS(bias); b++)
                    bias[b] = (weir_logit_bias){100 * (int32_t)b, -150.0f};
                cut.logit_bias = bias;
                cut.n_logit_bias = N_ELEMENTS(bias);
                if (i == 2) continue; /* far below is in the number of candidates of its formula */
            } else {
                cut.top_n_sigma = sigmas;
            }
            weir__bsampler *sampler = sampler_of(&cut, NULL);
            for (int n = 0; n < N; n++) got[n] = sample(sampler);
            ops->sampler_free(sampler);

            double sum = 0, squares = 0, max = -DBL_MAX;
            for (int32_t j = 0; j < model_is.n_vocab; j++) {
                sum += (double)row[j];
                max = (double)row[j] > max ? (double)row[j] : max;
            }
            for (int32_t j = 0; j < model_is.n_vocab; j++) {
                double off = (double)row[j] - sum / model_is.n_vocab;
                squares += off * off;
            }
            for (int32_t j = 0; j < model_is.n_vocab; j++) {
                bool excluded =
                    biased ? j % 100 == 0 && j < 100 * (int32_t)N_ELEMENTS(bias)
                           : (double)row[j] < max - (double)sigmas * sqrt(squares / model_is.n_vocab);
                if (excluded) row[j] = -INFINITY;
            }
            sampler = sampler_of(&p[i], NULL);
            for (int n = 0; n < N; n++) want[n] = sample(sampler);
            ops->sampler_free(sampler);
            if (memcmp(got, want, sizeof got) != 0)
                fail_msg("case %zu, %s", i, biased ? "biased" : "top_n_sigma");
        }
}

static void penalties_forbid_repetition(void **state)
{
    (void)state;
    weir_sampler_params params = greedy_params();
    params.penalty_present = 100.0f;
    params.penalty_last_n = 50;
    weir__bsampler *sampler = sampler_of(&params, NULL);
    int32_t seen[51];
    fill_row(3);
    for (int i = 0; i < 51; i++) {
        seen[i] = sample(sampler);
        for (int j = 0; j < i; j++) assert_int_not_equal(seen[i], seen[j]);
    }
    assert_int_equal(sample(sampler), seen[0]); /* that far back nobody looks */
    ops->sampler_free(sampler);
}

static void a_prompt_counts_for_penalties_and_not_for_the_grammar(void **state)
{
    (void)state;
    weir_sampler_params params = greedy_params();
    params.penalty_present = 100.0f;
    fill_row(3);
    int32_t best = plain_argmax(row);
    weir__bsampler *sampler = sampler_of(&params, NULL);
    assert_ok(ops->count(sampler, best, error));
    assert_int_not_equal(sample(sampler), best);
    ops->sampler_free(sampler);

    int32_t yes;
    assert_int_equal(tokens_of("yes", false, &yes, 1), 1);
    params.grammar = "root ::= \"yes\"";
    sampler = sampler_of(&params, NULL);
    assert_ok(ops->count(sampler, best, error)); /* which the grammar would refuse */
    assert_int_equal(ops->accept(sampler, best, NULL), WEIR_REFUSED);
    assert_int_equal(sample(sampler), yes);
    ops->sampler_free(sampler);
}

static void dry_ends_a_repetition(void **state)
{
    (void)state;
    static const int32_t said[] = {5000, 6000, 7000, 8000, 5000, 6000, 7000};
    weir_sampler_params params = greedy_params();
    params.dry_multiplier = 10.0f;
    fill_row(4);
    int32_t best = plain_argmax(row);
    row[8000] = row[best] + 5.0f;
    for (int32_t allowed = 2; allowed <= 4; allowed += 2) {
        params.dry_allowed_length = allowed;
        weir__bsampler *sampler = sampler_of(&params, NULL);
        for (size_t i = 0; i < N_ELEMENTS(said); i++) assert_ok(ops->accept(sampler, said[i], error));
        assert_int_equal(sample(sampler), allowed == 2 ? best : 8000);
        ops->sampler_free(sampler);
    }
    /* a breaker in between ends the repeated part */
    int32_t colon;
    assert_int_equal(tokens_of(":", false, &colon, 1), 1);
    params.dry_allowed_length = 2;
    weir__bsampler *sampler = sampler_of(&params, NULL);
    for (size_t i = 0; i < N_ELEMENTS(said); i++) {
        assert_ok(ops->accept(sampler, said[i], error));
        if (i == 5) assert_ok(ops->accept(sampler, colon, error));
    }
    assert_int_equal(sample(sampler), 8000);
    ops->sampler_free(sampler);
}

static void biases(void **state)
{
    (void)state;
    const weir_logit_bias bias[] = {{10, 100.0f}, {11, -INFINITY}, {12, 60.0f}, {12, 60.0f}};
    weir_sampler_params params = complete_params();
    params.logit_bias = bias;
    params.n_logit_bias = 1;
    fill_row(1);
    weir__bsampler *sampler = sampler_of(&params, NULL);
    for (int i = 0; i < 10; i++) assert_int_equal(sample(sampler), 10);
    ops->sampler_free(sampler);

    params.n_logit_bias = 4; /* two for one token add up */
    sampler = sampler_of(&params, NULL);
    row[11] = 1000.0f;
    for (int i = 0; i < 10; i++) assert_int_equal(sample(sampler), 12);
    ops->sampler_free(sampler);

    params = greedy_params();
    params.ignore_eos = true;
    sampler = sampler_of(&params, NULL);
    for (size_t i = 0; i < model->n_eog; i++) row[model->eog[i]] = 5000.0f;
    assert_true(model->n_eog > 0);
    assert_int_equal(sample(sampler), 11);
    ops->sampler_free(sampler);
}

static void biases_that_leave_nothing_are_the_callers_error(void **state)
{
    (void)state;
    const size_t n = (size_t)model_is.n_vocab;
    weir_logit_bias *bias = calloc(n, sizeof *bias);
    weir_sampler_params params = complete_params();
    for (size_t i = 0; i < n; i++) bias[i] = (weir_logit_bias){(int32_t)i, -INFINITY};
    params.logit_bias = bias;
    fill_row(1);
    for (int round = 0; round < 3; round++) { /* all tokens; all but one, which the grammar does not allow */
        int32_t token;
        bias[11].bias = round == 0 ? -INFINITY : 1.0f;
        params.n_logit_bias = n;
        params.grammar = round == 0 ? NULL : "root ::= \"yes\"";
        if (round == 2) params.temp = 0.0f;
        weir__bsampler *sampler = sampler_of(&params, NULL);
        assert_refused(ops->sample(sampler, &made_up, 0, NULL, &token, error), WEIR_INVALID, "logit_bias");
        ops->sampler_free(sampler);
    }
    free(bias);
}

/* A mask works as a bias of minus infinity for all tokens out of it: greedy, drawn, with a grammar. */
static void a_mask_is_as_biases(void **state)
{
    (void)state;
    const size_t n = (size_t)model_is.n_vocab;
    weir_logit_bias *bias = calloc(n, sizeof *bias);
    uint64_t *mask = calloc((n + 63) / 64, sizeof *mask);
    for (uint32_t round = 0; round < 24; round++) {
        weir_sampler_params plain = complete_params();
        plain.seed = round;
        if (round % 3 == 0) plain.temp = 0.0f;
        if (round % 3 == 2) plain.grammar = "root ::= [a-z ]+";
        size_t n_out = 0;
        memset(mask, 0, (n + 63) / 64 * sizeof *mask);
        random_state = round;
        for (size_t i = 0; i < n; i++) {
            if (random_unit() < 0.5f)
                mask[i / 64] |= UINT64_C(1) << (i % 64);
            else
                bias[n_out++] = (weir_logit_bias){(int32_t)i, -INFINITY};
        }
        weir_sampler_params biased = plain;
        biased.logit_bias = bias;
        biased.n_logit_bias = n_out;
        weir__bsampler *by_mask = sampler_of(&plain, NULL), *by_bias = sampler_of(&biased, NULL);
        for (uint32_t i = 0; i < 8; i++) {
            int32_t token = -1;
            fill_row(round * 8 + i);
            assert_ok(ops->sample(by_mask, &made_up, 0, mask, &token, error));
            assert_true((mask[token / 64] >> (token % 64) & 1) != 0);
            assert_int_equal(token, sample(by_bias));
        }
        ops->sampler_free(by_mask);
        ops->sampler_free(by_bias);
    }
    memset(mask, 0, (n + 63) / 64 * sizeof *mask);
    for (int round = 0; round < 4; round++) {
        weir_sampler_params params = complete_params();
        int32_t token;
        if (round % 2 == 1) params.temp = 0.0f;
        if (round >= 2) params.grammar = "root ::= [a-z ]+";
        weir__bsampler *sampler = sampler_of(&params, NULL);
        fill_row(1);
        assert_refused(ops->sample(sampler, &made_up, 0, mask, &token, error), WEIR_REFUSED, "");
        sample(sampler); /* as if nothing had been asked */
        ops->sampler_free(sampler);
    }
    free(mask);
    free(bias);
}

/* No value in range may hang, abort or choose a token that is not there. */
static void extremes(void **state)
{
    (void)state;
    const float values[] = {0.0f, FLT_MAX, -FLT_MAX, INFINITY, 1e30f, -1e-38f};
    weir_sampler_params p[14];
    for (size_t i = 0; i < N_ELEMENTS(p); i++) p[i] = complete_params();
    p[0].temp = 100.0f;
    p[1].temp = 0.001f;
    p[2].temp = 0.01f, p[2].dynatemp_range = 100.0f, p[2].dynatemp_exponent = 100.0f;
    p[3].dry_multiplier = 100.0f, p[3].dry_base = 100.0f, p[3].dry_allowed_length = 0;
    p[4].penalty_repeat = 0.01f, p[4].penalty_freq = -100.0f, p[4].penalty_present = -100.0f;
    p[4].penalty_last_n = 1000000;
    p[5].penalty_repeat = 100.0f, p[5].penalty_freq = 100.0f, p[5].temp = 0.001f;
    p[6].typical_p = 0.0f, p[6].top_k = 0;
    p[7].xtc_probability = 1.0f, p[7].xtc_threshold = 0.0f, p[7].top_k = 0;
    p[8].mirostat = 1, p[8].mirostat_tau = 0.0f, p[8].mirostat_eta = 1.0f;
    p[9].mirostat = 2, p[9].mirostat_tau = 100.0f, p[9].temp = 0.001f;
    p[10].adaptive_target = 1.0f, p[10].adaptive_decay = 0.99f;
    p[11].min_keep = INT32_MAX, p[11].top_k = INT32_MAX;
    p[12].order = "temperature;typ_p;top_n_sigma;dry;penalties;xtc;min_p;top_p;top_k";
    p[12].temp = 0.001f, p[12].typical_p = 0.5f, p[12].top_n_sigma = 1.0f, p[12].dry_multiplier = 1.0f;
    p[12].penalty_freq = 1.0f, p[12].xtc_probability = 0.5f;
    p[13].order = "temperature;temperature;temperature";
    p[13].temp = 0.001f;
    for (size_t i = 0; i < N_ELEMENTS(p); i++) {
        weir__bsampler *sampler = sampler_of(&p[i], NULL);
        for (size_t v = 0; v < N_ELEMENTS(values); v++) {
            flat_row(values[v]);
            sample(sampler);
            row[5] = -row[6];
            sample(sampler);
            for (int32_t j = 0; j < model_is.n_vocab; j += 2) row[j] = NAN;
            sample(sampler);
            fill_row((uint32_t)v);
            row[17] = values[v];
            for (int k = 0; k < 3; k++) sample(sampler);
        }
        ops->sampler_free(sampler);
    }
}

/* ---- State ---------------------------------------------------------------------------------------- */

static void reset_comes_back_to_the_start(void **state)
{
    (void)state;
    weir_sampler_params p[4] = {complete_params(), complete_params(), complete_params(), complete_params()};
    p[0].penalty_freq = 2.0f;
    p[1].mirostat = 2;
    p[2].adaptive_target = 0.4f;
    p[3].xtc_probability = 0.5f, p[3].dry_multiplier = 4.0f, p[3].temp = 2.0f;
    for (size_t i = 0; i < N_ELEMENTS(p); i++) {
        weir__bsampler *sampler = sampler_of(&p[i], NULL);
        int32_t first[40], second[40];
        for (int k = 0; k < 40; k++) {
            fill_row(1 + (uint32_t)k % 3);
            first[k] = sample(sampler);
        }
        assert_ok(ops->sampler_reset(sampler, error));
        for (int k = 0; k < 40; k++) {
            fill_row(1 + (uint32_t)k % 3);
            second[k] = sample(sampler);
        }
        assert_memory_equal(first, second, sizeof first);
        ops->sampler_free(sampler);
    }
}

static void accepted_tokens_count(void **state)
{
    (void)state;
    weir_sampler_params params = greedy_params();
    params.penalty_present = 100.0f;
    weir__bsampler *sampler = sampler_of(&params, NULL);
    fill_row(9);
    int32_t best = plain_argmax(row);
    assert_ok(ops->accept(sampler, best, error));
    assert_int_not_equal(sample(sampler), best);
    ops->sampler_free(sampler);
}

static void create_survives_failing_allocations(void **state)
{
    (void)state;
    weir_sampler_params params = complete_params();
    params.grammar = "root ::= [a-z]+";
    ops->sampler_free(sampler_of(&params, NULL)); /* the model remembers the grammar */
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__bsampler *sampler = NULL;
        weir__mem_fail_after(n);
        weir_status status = ops->sampler_create(model, &params, NULL, &sampler, NULL);
        bool reached = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        ops->sampler_free(sampler);
        assert_int_equal(weir__mem_live(), live);
        assert_int_equal(status, reached ? WEIR_NO_MEMORY : WEIR_OK);
        if (!reached) break;
    }
}

typedef struct drawing {
    int32_t tokens[60];
} drawing;

static void *draw(void *user)
{
    drawing *d = user;
    weir_sampler_params params = complete_params();
    weir__bsampler *sampler = sampler_of(&params, NULL);
    for (size_t i = 0; i < N_ELEMENTS(d->tokens); i++) d->tokens[i] = sample(sampler);
    ops->sampler_free(sampler);
    return NULL;
}

static void samplers_on_many_threads(void **state)
{
    (void)state;
    drawing d[6];
    pthread_t threads[N_ELEMENTS(d)];
    fill_row(5);
    draw(&d[0]);
    for (size_t i = 1; i < N_ELEMENTS(d); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, draw, &d[i]), 0);
    for (size_t i = 1; i < N_ELEMENTS(d); i++) {
        pthread_join(threads[i], NULL);
        assert_memory_equal(d[i].tokens, d[0].tokens, sizeof d[0].tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_the_largest),
        cmocka_unit_test(greedy_by_candidates),
        cmocka_unit_test(few_candidates_decide_as_all),
        cmocka_unit_test(rows_of_nothing),
        cmocka_unit_test(truncations_to_one),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(every_sampler_has_an_effect),
        cmocka_unit_test(the_order_matters),
        cmocka_unit_test(what_is_excluded_counts_nowhere),
        cmocka_unit_test(penalties_forbid_repetition),
        cmocka_unit_test(biases_that_leave_nothing_are_the_callers_error),
        cmocka_unit_test(a_prompt_counts_for_penalties_and_not_for_the_grammar),
        cmocka_unit_test(dry_ends_a_repetition),
        cmocka_unit_test(biases),
        cmocka_unit_test(a_mask_is_as_biases),
        cmocka_unit_test(extremes),
        cmocka_unit_test(reset_comes_back_to_the_start),
        cmocka_unit_test(accepted_tokens_count),
        cmocka_unit_test(create_survives_failing_allocations),
        cmocka_unit_test(samplers_on_many_threads),
    };
    return RUN_MODEL_TESTS_WITH(tests, begin, end);
}
