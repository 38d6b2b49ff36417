/* sampler_test.c: every parameter's range and message, and the sampler's functions on the fake.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "model/sampler.h"
#include "support/model.h"

static weir_status check(const weir_model *model, const weir_sampler_params *params, weir_error *error)
{
    weir_sampler_params full;
    return weir__sampler_params_check(model, params, "requests[2].sampler.", &full, error);
}

/* ---- Ranges --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
    bool is_float;
    double min, max; /* that are allowed */
    bool minus_one;
} fields[] = {
#define FLOAT(name, min, max, off)                                                                           \
    {                                                                                                        \
#name, offsetof(weir_sampler_params, name), true, min, max, off                                      \
    }
#define INT(name, min, max)                                                                                  \
    {                                                                                                        \
#name, offsetof(weir_sampler_params, name), false, min, max, false                                   \
    }
    FLOAT(temp, 0, 100, false),
    FLOAT(dynatemp_range, 0, 100, false),
    FLOAT(dynatemp_exponent, 0, 100, false),
    INT(top_k, 0, INT32_MAX),
    FLOAT(top_p, 0, 1, false),
    FLOAT(min_p, 0, 1, false),
    FLOAT(typical_p, 0, 1, false),
    FLOAT(top_n_sigma, 0, 100, true),
    FLOAT(xtc_probability, 0, 1, false),
    FLOAT(xtc_threshold, 0, 1, false),
    INT(min_keep, 0, INT32_MAX),
    FLOAT(dry_multiplier, 0, 100, false),
    FLOAT(dry_base, 0, 100, false),
    INT(dry_allowed_length, 0, 1000000),
    INT(dry_penalty_last_n, 0, 1000000),
    INT(penalty_last_n, 0, 1000000),
    FLOAT(penalty_repeat, 0.01, 100, false),
    FLOAT(penalty_freq, -100, 100, false),
    FLOAT(penalty_present, -100, 100, false),
    INT(mirostat, 0, 2),
    FLOAT(mirostat_tau, 0, 100, false),
    FLOAT(mirostat_eta, 0, 1, false),
    FLOAT(adaptive_target, 0, 1, true),
    FLOAT(adaptive_decay, 0, 0.99, false),
#undef FLOAT
#undef INT
};

static weir_status check_value(const weir_model *model, size_t field, double value, weir_error *error)
{
    weir_sampler_params params = weir_sampler_params_default();
    float number = (float)value;
    int32_t integer = fields[field].is_float ? 0 : (int32_t)value;
    if (fields[field].is_float)
        memcpy((char *)&params + fields[field].offset, &number, sizeof number);
    else
        memcpy((char *)&params + fields[field].offset, &integer, sizeof integer);
    return check(model, &params, error);
}

static void test_every_number_has_its_range(void **state)
{
    (void)state;
    char field[64];
    weir_model *model = fake_load("");
    for (size_t i = 0; i < N_ELEMENTS(fields); i++) {
        double beyond = fields[i].is_float ? 0.001 : 1.0;
        snprintf(field, sizeof field, "requests[2].sampler.%s", fields[i].name);
        assert_ok(check_value(model, i, fields[i].min, error));
        assert_ok(check_value(model, i, fields[i].max, error));
        assert_refused(check_value(model, i, fields[i].min - beyond, error), WEIR_INVALID, field);
        if (fields[i].max < INT32_MAX)
            assert_refused(check_value(model, i, fields[i].max + beyond, error), WEIR_INVALID, field);
        if (fields[i].minus_one)
            assert_ok(check_value(model, i, -1.0, error));
        else if (fields[i].min > -1.0)
            assert_refused(check_value(model, i, -1.0, error), WEIR_INVALID, field);
        if (!fields[i].is_float) continue;
        assert_refused(check_value(model, i, NAN, error), WEIR_INVALID, field);
        assert_refused(check_value(model, i, INFINITY, error), WEIR_INVALID, field);
        assert_refused(check_value(model, i, -INFINITY, error), WEIR_INVALID, field);
        assert_refused(check_value(model, i, 3e38, error), WEIR_INVALID, field);
    }
    weir_model_release(model);
}

static void test_a_message_names_value_and_range(void **state)
{
    (void)state;
    weir_error error;
    weir_model *model = fake_load("");
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = -1.0f;
    assert_int_equal(check(model, &params, &error), WEIR_INVALID);
    assert_string_equal(error.message, "`temp` is -1; allowed: 0 to 100");
    assert_int_equal(error.kind, WEIR_ERROR_RANGE);
    assert_true(error.value == -1 && error.low == 0 && error.high == 100);
    weir_model_release(model);
}

static void test_given_params_are_completed(void **state)
{
    (void)state;
    weir_sampler_params full, given = weir_sampler_params_default();
    weir_model *model = fake_load("");
    assert_ok(weir__sampler_params_check(model, NULL, "", &full, error));
    assert_float_equal(full.temp, 0.8f, 0.0);
    assert_int_equal(full.n_dry_breakers, 4);
    assert_string_equal(full.dry_breakers[3], "*");
    assert_string_equal(full.order, WEIR_SAMPLERS_DEFAULT);
    given.size = offsetof(weir_sampler_params, top_p);
    given.top_k = 7;
    given.top_p = 77.0f; /* a member beyond this caller's struct */
    assert_ok(weir__sampler_params_check(model, &given, "", &full, error));
    assert_int_equal(full.top_k, 7);
    assert_float_equal(full.top_p, 0.95f, 0.0);
    assert_int_equal(full.size, sizeof full);
    given.size = sizeof given + 8;
    assert_int_equal(weir__sampler_params_check(model, &given, "", &full, NULL), WEIR_INVALID);
    given.size = 0;
    assert_int_equal(weir__sampler_params_check(model, &given, "", &full, NULL), WEIR_INVALID);
    weir_model_release(model);
}

/* ---- Lists ---------------------------------------------------------------------------------------- */

static void test_biases(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_sampler_params params = weir_sampler_params_default();
    weir_logit_bias bias[] = {{.token = 0, .bias = -INFINITY}, {.token = 319, .bias = 1e30f}};
    params.logit_bias = bias;
    params.n_logit_bias = 2;
    assert_ok(check(model, &params, error));
    bias[1].bias = INFINITY;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.logit_bias");
    bias[1].bias = NAN;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.logit_bias");
    bias[1] = (weir_logit_bias){.token = 320};
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.logit_bias");
    bias[1].token = -1;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.logit_bias");
    params.logit_bias = NULL;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.logit_bias");
    params.n_logit_bias = SIZE_MAX;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.n_logit_bias");
    weir_model_release(model);
}

static void test_breakers(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_sampler_params full, params = weir_sampler_params_default();
    const char *breakers[] = {"x", "\n\n"};
    params.dry_breakers = breakers;
    params.n_dry_breakers = 2;
    assert_ok(weir__sampler_params_check(model, &params, "", &full, error));
    assert_ptr_equal(full.dry_breakers, breakers);
    params.n_dry_breakers = 0;
    assert_ok(weir__sampler_params_check(model, &params, "", &full, error));
    assert_int_equal(full.n_dry_breakers, 0);
    params.n_dry_breakers = 2;
    breakers[1] = "";
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.dry_breakers");
    breakers[1] = NULL;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.dry_breakers");
    params.dry_breakers = NULL;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.dry_breakers");
    params.n_dry_breakers = 257;
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.n_dry_breakers");
    weir_model_release(model);
}

static void test_order(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",
        "temperature",
        "top_k;",
        "infill;adaptive_p;xtc;min_p;top_p;typ_p;top_k;top_n_sigma;dry;penalties",
    };
    static const char *const bad[] = {"temp", "top_k;;top_p", "top_k, top_p", " top_k", "TOP_K", ";"};
    weir_model *model = fake_load("");
    weir_sampler_params params = weir_sampler_params_default();
    for (size_t i = 0; i < N_ELEMENTS(good); i++) {
        params.order = good[i];
        assert_ok(check(model, &params, error));
    }
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        params.order = bad[i];
        assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.order");
    }
    weir_error detail;
    params.order = "top_k;warmth";
    check(model, &params, &detail);
    assert_non_null(strstr(detail.message, "warmth"));
    assert_non_null(strstr(detail.message, "adaptive_p"));
    weir_model_release(model);
}

/* ---- Grammars ------------------------------------------------------------------------------------- */

static void test_grammar_and_schema_exclude_each_other(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    weir__grammar chat = {.text = "root ::= \"abc\""};
    params.grammar = "root ::= \"abc\"";
    params.json_schema = "{}";
    assert_refused(check(model, &params, error), WEIR_INVALID, "requests[2].sampler.json_schema");
    assert_refused(weir_sampler_create(model, &params, &sampler, error), WEIR_INVALID, "json_schema");
    params.json_schema = NULL;
    assert_refused(weir__sampler_create(model, &params, &chat, "", &sampler, error), WEIR_INVALID, "grammar");
    params.grammar = NULL;
    params.json_schema = "{}";
    assert_refused(weir__sampler_create(model, &params, &chat, "x.", &sampler, error), WEIR_INVALID,
                   "x.json_schema");
    params.json_schema = NULL;
    assert_ok(weir__sampler_create(model, &params, &chat, "", &sampler, error));
    weir_sampler_destroy(sampler);
    fake_release(model);
}

static void test_broken_grammars_and_schemas(void **state)
{
    (void)state;
    weir_error detail;
    weir_model *model = fake_load("");
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= \"a\"\nbroken";
    assert_int_equal(weir__sampler_create(model, &params, NULL, "r.", &sampler, &detail), WEIR_GRAMMAR);
    assert_string_equal(detail.field, "r.grammar");
    assert_non_null(strstr(detail.message, "line 2"));
    params.grammar = "start ::= \"a\"";
    assert_refused(weir_sampler_create(model, &params, &sampler, error), WEIR_GRAMMAR, "grammar_root");
    params.grammar_root = "start";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    weir_sampler_destroy(sampler);
    params.grammar = params.grammar_root = NULL;
    params.json_schema = "{\"type\":";
    assert_int_equal(weir__sampler_create(model, &params, NULL, "r.", &sampler, &detail), WEIR_GRAMMAR);
    assert_string_equal(detail.field, "r.json_schema");
    fake_release(model);
}

/* ---- Life ----------------------------------------------------------------------------------------- */

static void test_accept_refuses_what_the_grammar_refuses(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= \"abc\" | \"abd\"";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    assert_refused(weir_sampler_accept(sampler, 'b', error), WEIR_REFUSED, "token");
    assert_ok(weir_sampler_accept(sampler, 'a', error));
    assert_ok(weir_sampler_accept(sampler, 'b', error));
    assert_refused(weir_sampler_accept(sampler, WEIR__FAKE_EOS, error), WEIR_REFUSED, "token");
    assert_ok(weir_sampler_accept(sampler, 'd', error));
    assert_ok(weir_sampler_accept(sampler, WEIR__FAKE_EOS, error));
    assert_ok(weir_sampler_reset(sampler, error));
    assert_ok(weir_sampler_accept(sampler, 'a', error));

    assert_refused(weir_sampler_accept(sampler, 320, error), WEIR_INVALID, "token");
    assert_refused(weir_sampler_accept(sampler, -1, error), WEIR_INVALID, "token");
    assert_refused(weir_sampler_accept(NULL, 1, error), WEIR_INVALID, "sampler");
    assert_refused(weir_sampler_reset(NULL, error), WEIR_INVALID, "sampler");
    weir_sampler_destroy(sampler);
    weir_sampler_destroy(NULL);
    fake_release(model);
}

static void test_a_prompt_is_counted_as_far_as_penalties_look(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir__fake *fake = weir__fake_of(model);
    int32_t prompt[] = {'a', 'b', 'c', 'd', 'e'};
    size_t n = sizeof prompt / sizeof prompt[0];
    for (int i = 0; i < 4; i++) {
        static const uint64_t want[] = {0, 5, 2, 3};
        weir_sampler *sampler = NULL;
        weir_sampler_params params = weir_sampler_params_default();
        params.grammar = "root ::= \"xyz\""; /* which does not see them */
        if (i > 0) params.penalty_repeat = 1.1f;
        if (i > 1) params.penalty_last_n = 2;
        if (i > 2) {
            params.dry_multiplier = 1.0f;
            params.dry_penalty_last_n = 3;
        }
        atomic_store(&fake->n_counted, 0);
        assert_ok(weir_sampler_create(model, &params, &sampler, error));
        assert_ok(weir_sampler_count(sampler, prompt, n, error));
        assert_int_equal(atomic_load(&fake->n_counted), want[i]);
        assert_ok(weir_sampler_accept(sampler, 'x', error));
        assert_ok(weir_sampler_count(sampler, NULL, 0, error));
        assert_refused(weir_sampler_count(sampler, NULL, 1, error), WEIR_INVALID, "tokens");
        prompt[1] = 320;
        assert_refused(weir_sampler_count(sampler, prompt, n, error), WEIR_INVALID, "tokens");
        prompt[1] = 'b';
        assert_int_equal(atomic_load(&fake->n_counted), want[i]);
        weir_sampler_destroy(sampler);
    }
    assert_refused(weir_sampler_count(NULL, prompt, n, error), WEIR_INVALID, "sampler");
    fake_release(model);
}

static void test_a_reset_sampler_draws_the_same_again(void **state)
{
    (void)state;
    int32_t first[50], again[50], prompt[] = {'h', 'i'};
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.seed = 7;
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    assert_ok(weir_prefill(context, prompt, 2, 0, NULL, error));
    for (int i = 0; i < 50; i++) assert_ok(weir_sample(sampler, context, &first[i], error));
    assert_ok(weir_sampler_reset(sampler, error));
    for (int i = 0; i < 50; i++) assert_ok(weir_sample(sampler, context, &again[i], error));
    assert_memory_equal(first, again, sizeof first);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_bad_arguments_of_create_are_named(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_sampler *sampler = NULL;
    assert_refused(weir_sampler_create(NULL, NULL, &sampler, error), WEIR_INVALID, "model");
    assert_refused(weir_sampler_create(model, NULL, NULL, error), WEIR_INVALID, "sampler");
    fake_release(model);
}

static void test_a_create_survives_each_failing_allocation(void **state)
{
    (void)state;
    bool pending = false;
    weir_model *model = fake_load("");
    weir_logit_bias bias = {.token = 1, .bias = 1.0f};
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= \"abc\"";
    params.logit_bias = &bias;
    params.n_logit_bias = 1;
    long live = weir__mem_live();
    for (long n = 0; !pending; n++) {
        weir_error error = {0};
        weir_sampler *sampler = NULL;
        weir__mem_fail_after(n);
        weir_status status = weir_sampler_create(model, &params, &sampler, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(error.code, status);
        weir_sampler_destroy(sampler);
        assert_int_equal(weir__mem_live(), live);
        assert_true(n < 1000);
    }
    fake_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_every_number_has_its_range, nothing_left),
        cmocka_unit_test_teardown(test_a_message_names_value_and_range, nothing_left),
        cmocka_unit_test_teardown(test_given_params_are_completed, nothing_left),
        cmocka_unit_test_teardown(test_biases, nothing_left),
        cmocka_unit_test_teardown(test_breakers, nothing_left),
        cmocka_unit_test_teardown(test_order, nothing_left),
        cmocka_unit_test_teardown(test_grammar_and_schema_exclude_each_other, nothing_left),
        cmocka_unit_test_teardown(test_broken_grammars_and_schemas, nothing_left),
        cmocka_unit_test_teardown(test_accept_refuses_what_the_grammar_refuses, nothing_left),
        cmocka_unit_test_teardown(test_a_prompt_is_counted_as_far_as_penalties_look, nothing_left),
        cmocka_unit_test_teardown(test_a_reset_sampler_draws_the_same_again, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_create_are_named, nothing_left),
        cmocka_unit_test_teardown(test_a_create_survives_each_failing_allocation, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
