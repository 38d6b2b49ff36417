/* sampler_test.c: the fake's draws, biases, grammars and masks.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/fake.h"

/* ---- Samplers ------------------------------------------------------------------------------------- */

/* Draws from the last row n times. */
static void draws(rig *r, const weir_sampler_params *params, int32_t *tokens, int n)
{
    weir__bsampler *sampler = sampler_of(r, params);
    for (int i = 0; i < n; i++) assert_ok(r->ops->sample(sampler, r->context, -1, NULL, &tokens[i], error));
    r->ops->sampler_free(sampler);
}

static void test_draws_follow_seed_and_temperature(void **state)
{
    (void)state;
    int32_t a[200], b[200], best;
    weir_sampler_params params = weir_sampler_params_default();
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, "abc");
    best = chosen(&r);

    params.seed = 1;
    draws(&r, &params, a, 200);
    draws(&r, &params, b, 200);
    assert_memory_equal(a, b, sizeof a);
    params.seed = 2;
    draws(&r, &params, b, 200);
    assert_memory_not_equal(a, b, sizeof a);
    params.seed = WEIR_SEED_RANDOM;
    draws(&r, &params, a, 200);
    draws(&r, &params, b, 200);
    assert_memory_not_equal(a, b, sizeof a);
    int hits = 0;
    for (int i = 0; i < 200; i++) hits += a[i] == best;
    assert_in_range(hits, 20, 140);

    params.top_k = 1;
    draws(&r, &params, a, 10);
    params.top_k = 40;
    params.temp = 0.0f;
    draws(&r, &params, b, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(a[i], best);
        assert_int_equal(b[i], best);
    }
    rig_fini(&r);
}

static int32_t always_end(void *user, const int32_t *history, int32_t n)
{
    (void)user, (void)history, (void)n;
    return WEIR__FAKE_EOS;
}

static void test_bias_and_ignored_ends(void **state)
{
    (void)state;
    int32_t token[50];
    weir_logit_bias bias[] = {{.token = WEIR__FAKE_EOS, .bias = -INFINITY}, {.token = 'q', .bias = 50.0f}};
    weir_sampler_params params = weir_sampler_params_default();
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    r.fake->next = always_end;
    append(&r, 0, "abc");
    draws(&r, &params, token, 50);
    params.temp = 0.0f;
    draws(&r, &params, token, 1);
    assert_int_equal(token[0], WEIR__FAKE_EOS);
    params.ignore_eos = true;
    draws(&r, &params, token, 1);
    assert_int_not_equal(token[0], WEIR__FAKE_EOS);
    params.ignore_eos = false;
    params.logit_bias = bias;
    params.n_logit_bias = 1;
    params.temp = 5.0f;
    draws(&r, &params, token, 50);
    for (int i = 0; i < 50; i++) assert_int_not_equal(token[i], WEIR__FAKE_EOS);
    params.n_logit_bias = 2;
    params.temp = 1.0f;
    draws(&r, &params, token, 50);
    for (int i = 0; i < 50; i++) assert_int_equal(token[i], 'q');
    rig_fini(&r);
}

static void test_grammar_allows_its_alternatives_alone(void **state)
{
    (void)state;
    int32_t token;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 0.0f;
    params.grammar = "# a comment\nroot ::= \"abc\" | \"abd\" |\n  \"a\\\"\\\\\\n\"";
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, "x");
    weir__bsampler *sampler = sampler_of(&r, &params);
    for (int round = 0; round < 2; round++) {
        assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_int_equal(token, 'a');
        assert_int_equal(r.ops->accept(sampler, 'c', NULL), WEIR_REFUSED);
        assert_int_equal(r.ops->accept(sampler, WEIR__FAKE_EOS, NULL), WEIR_REFUSED);
        assert_int_equal(r.ops->accept(sampler, WEIR__FAKE_IM_START, NULL), WEIR_REFUSED);
        assert_int_equal(r.ops->accept(sampler, 'b', NULL), WEIR_OK);
        assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_true(token == 'c' || token == 'd');
        assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_true(weir_is_eog(r.model, token));
        assert_ok(r.ops->sampler_reset(sampler, error));
    }
    static const int32_t third[] = {'a', '"', '\\', '\n', WEIR__FAKE_EOT};
    for (size_t i = 0; i < N_ELEMENTS(third); i++) assert_ok(r.ops->accept(sampler, third[i], error));
    r.ops->sampler_free(sampler);

    /* nothing in the vocabulary may come */
    for (int32_t i = 0; i < 320; i++)
        if (i == 'z' || (i >= WEIR__FAKE_WORDS))
            assert_true(weir__fake_set_piece(r.model, i, "", 0, WEIR__FAKE_TEXT));
    params.grammar = "root ::= \"z\"";
    sampler = sampler_of(&r, &params);
    assert_refused(r.ops->sample(sampler, r.context, -1, NULL, &token, error), WEIR_GRAMMAR, "grammar");
    r.ops->sampler_free(sampler);
    rig_fini(&r);
}

static void test_masks_hold(void **state)
{
    (void)state;
    int32_t token;
    uint64_t mask[5] = {0};
    weir_sampler_params params = weir_sampler_params_default();
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, "x");
    for (int round = 0; round < 3; round++) {
        params.temp = round == 0 ? 0.0f : 1.0f;
        params.grammar = round == 2 ? "root ::= [a-z]" : NULL;
        weir__bsampler *sampler = sampler_of(&r, &params);
        memset(mask, 0, sizeof mask);
        assert_refused(r.ops->sample(sampler, r.context, -1, mask, &token, error), WEIR_REFUSED, "");
        mask['q' / 64] |= UINT64_C(1) << ('q' % 64);
        mask['Q' / 64] |= UINT64_C(1) << ('Q' % 64);
        assert_ok(r.ops->sample(sampler, r.context, -1, mask, &token, error));
        assert_true(token == 'q' || (round < 2 && token == 'Q'));
        r.ops->sampler_free(sampler);
    }
    rig_fini(&r);
}

static void test_any_grammar_holds(void **state)
{
    (void)state;
    int32_t token;
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= [0-9]{3} \"é\"? <|im_start|>";
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, "x");
    weir__bsampler *sampler = sampler_of(&r, &params);
    for (int i = 0; i < 3; i++) {
        assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_in_range(token, '0', '9');
    }
    assert_int_equal(r.ops->accept(sampler, 'x', NULL), WEIR_REFUSED);
    assert_ok(r.ops->accept(sampler, 0xc3, error));
    assert_int_equal(r.ops->accept(sampler, WEIR__FAKE_IM_START, NULL), WEIR_REFUSED);
    assert_ok(r.ops->accept(sampler, 0xa9, error));
    assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
    assert_int_equal(token, WEIR__FAKE_IM_START);
    assert_ok(r.ops->sample(sampler, r.context, -1, NULL, &token, error));
    assert_true(weir_is_eog(r.model, token));
    r.ops->sampler_free(sampler);
    rig_fini(&r);
}

static void test_bad_grammars_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *word;
    } bad[] = {
        {"", "empty"},
        {"other ::= \"a\"", "no rule 'root'"},
        {"root ::= \"a", "line 1"},
        {"root ::= \"a\" |\n\n)", "line 3"},
        {"root ::= <|im_middle|>", "im_middle"},
    };
    weir_model *model = fake_load("");
    weir_sampler_params params = weir_sampler_params_default();
    weir__bsampler *sampler = NULL;
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        weir_error error = {0};
        params.grammar = bad[i].text;
        assert_int_equal(model->ops->sampler_create(model->model, &params, NULL, &sampler, &error),
                         WEIR_GRAMMAR);
        if (strstr(error.message, bad[i].word) == NULL) fail_msg("%s", error.message);
    }
    params.grammar = NULL;
    params.json_schema = "{}"; /* never silently unconstrained */
    assert_refused(model->ops->sampler_create(model->model, &params, NULL, &sampler, error), WEIR_INVALID,
                   "json_schema");
    weir__grammar grammar = {.text = "start ::= \"abc\"", .root = "start", .lazy = true};
    params.json_schema = NULL;
    assert_refused(model->ops->sampler_create(model->model, &params, &grammar, &sampler, error), WEIR_GRAMMAR,
                   "grammar");
    grammar.lazy = false;
    grammar.prefill = "b";
    assert_refused(model->ops->sampler_create(model->model, &params, &grammar, &sampler, error), WEIR_GRAMMAR,
                   "grammar");
    grammar.prefill = "ab";
    assert_ok(model->ops->sampler_create(model->model, &params, &grammar, &sampler, error));
    assert_int_equal(model->ops->accept(sampler, 'a', NULL), WEIR_REFUSED);
    assert_int_equal(model->ops->accept(sampler, 'c', NULL), WEIR_OK);
    model->ops->sampler_free(sampler);
    fake_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_draws_follow_seed_and_temperature, nothing_left),
        cmocka_unit_test_teardown(test_bias_and_ignored_ends, nothing_left),
        cmocka_unit_test_teardown(test_grammar_allows_its_alternatives_alone, nothing_left),
        cmocka_unit_test_teardown(test_any_grammar_holds, nothing_left),
        cmocka_unit_test_teardown(test_masks_hold, nothing_left),
        cmocka_unit_test_teardown(test_bad_grammars_are_refused, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
