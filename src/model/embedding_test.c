/* embedding_test.c: embeddings beside those of each text alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/model.h"

#define WIDTH WEIR__FAKE_WIDTH

static const int32_t abc[] = {'a', 'b', 'c'}, xy[] = {'x', 'y'}, q[] = {'q'};
static const weir_tokens inputs[] = {{abc, 3}, {xy, 2}, {abc, 2}, {q, 1}, {abc, 3}};

static weir_context *make_with(weir_model *model, int32_t n_batch, int32_t n_seq, weir_pooling pooling,
                               weir_layout layout)
{
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_batch = n_batch;
    params.n_seq_max = n_seq;
    params.embeddings = true;
    params.pooling = pooling;
    params.layout = layout;
    assert_ok(weir_context_create(model, &params, &context, error));
    return context;
}

static weir_context *make(weir_model *model, int32_t n_batch, int32_t n_seq, weir_pooling pooling)
{
    return make_with(model, n_batch, n_seq, pooling, WEIR_LAYOUT_AUTO);
}

static double length_of(const float *vector, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)vector[i] * (double)vector[i];
    return sqrt(sum);
}

static double largest(const float *vector, size_t n)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)vector[i]));
    return most;
}

/* Asserts that both vectors point the same way. */
static void assert_parallel(const float *a, const float *b, size_t n)
{
    double dot = 0.0;
    for (size_t i = 0; i < n; i++) dot += (double)a[i] * (double)b[i];
    assert_true(dot / length_of(a, n) / length_of(b, n) > 0.999999);
}

static void test_a_texts_embedding_is_its_own_in_any_company(void **state)
{
    (void)state;
    static const struct {
        int32_t n_batch, n_seq;
        weir_layout layout;
        int passes;
    } shapes[] = {
        {64, 8, WEIR_LAYOUT_AUTO, 1},    {64, 1, WEIR_LAYOUT_AUTO, 5},   {64, 2, WEIR_LAYOUT_UNIFIED, 3},
        {3, 8, WEIR_LAYOUT_AUTO, 4},     {5, 2, WEIR_LAYOUT_UNIFIED, 3}, {64, 8, WEIR_LAYOUT_PER_SLOT, 4},
        {3, 8, WEIR_LAYOUT_PER_SLOT, 5},
    };
    static const weir_pooling poolings[] = {WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_MEAN, WEIR_POOLING_CLS,
                                            WEIR_POOLING_LAST};
    for (size_t p = 0; p < N_ELEMENTS(poolings); p++) {
        float alone[5][WIDTH], together[5][WIDTH];
        for (size_t i = 0; i < N_ELEMENTS(shapes); i++) {
            weir_model *model = fake_load("");
            weir_context *context =
                make_with(model, shapes[i].n_batch, shapes[i].n_seq, poolings[p], shapes[i].layout);
            size_t n = 0;
            assert_int_equal(weir_embedding_width(context), WIDTH);
            assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, together[0], 5 * WIDTH, &n, error));
            assert_int_equal(n, 5 * WIDTH);
            assert_int_equal(atomic_load(&weir__fake_of(model)->n_passes), shapes[i].passes);
            for (int k = 0; k < 5; k++) {
                assert_ok(weir_embed_decode(context, inputs[k].ids, inputs[k].n, 0, error));
                assert_ok(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, alone[k], WIDTH, error));
                assert_float_equal(length_of(alone[k], WIDTH), 1.0, 1e-5);
            }
            assert_memory_equal(alone, together, sizeof alone);
            assert_memory_equal(alone[0], alone[4], sizeof alone[0]);
            assert_memory_not_equal(alone[0], alone[1], sizeof alone[0]);
            weir_context_destroy(context);
            fake_release(model);
        }
    }
}

static void test_normalization(void **state)
{
    (void)state;
    float none[WIDTH], l2[WIDTH], most[WIDTH];
    weir_model *model = fake_load("");
    weir_context *context = make(model, 64, 2, WEIR_POOLING_MEAN);
    assert_ok(weir_embed(context, inputs, 1, WEIR_NORMALIZE_NONE, none, WIDTH, NULL, error));
    assert_ok(weir_embed(context, inputs, 1, WEIR_NORMALIZE_L2, l2, WIDTH, NULL, error));
    assert_ok(weir_embed(context, inputs, 1, WEIR_NORMALIZE_MAX_ABS, most, WIDTH, NULL, error));
    assert_float_equal(length_of(l2, WIDTH), 1.0, 1e-6);
    assert_float_equal(largest(most, WIDTH), 1.0, 0.0);
    assert_true(fabs(length_of(none, WIDTH) - 1.0) > 0.1);
    assert_parallel(none, l2, WIDTH);
    assert_parallel(none, most, WIDTH);
    for (int bad = -2; bad <= 3; bad++) {
        if (bad == -1 || bad == 0 || bad == 2) continue;
        assert_refused(weir_embed(context, inputs, 1, (weir_normalize)bad, l2, WIDTH, NULL, error),
                       WEIR_INVALID, "normalize");
        assert_refused(weir_embeddings(context, 0, (weir_normalize)bad, l2, WIDTH, error), WEIR_INVALID,
                       "normalize");
    }
    weir_context_destroy(context);
    fake_release(model);
}

static void test_without_pooling_each_token_has_its_vector(void **state)
{
    (void)state;
    float rows[7][WIDTH], last[WIDTH], pooled[WIDTH];
    size_t n = 0;
    weir_model *model = fake_load("");
    weir_context *context = make(model, 4, 3, WEIR_POOLING_NONE);
    assert_refused(weir_embed(context, inputs, 3, WEIR_NORMALIZE_NONE, rows[0], 3 * WIDTH, &n, error),
                   WEIR_TOO_LONG, "capacity");
    assert_int_equal(n, 7 * WIDTH);
    assert_ok(weir_embed(context, inputs, 3, WEIR_NORMALIZE_NONE, rows[0], 7 * WIDTH, &n, error));
    assert_ok(weir_embed_decode(context, xy, 2, 1, error));
    assert_ok(weir_embeddings(context, 1, WEIR_NORMALIZE_NONE, last, WIDTH, error));
    assert_memory_equal(last, rows[4], sizeof last);
    weir_context_destroy(context);

    context = make(model, 64, 1, WEIR_POOLING_MEAN);
    assert_ok(weir_embed(context, inputs, 1, WEIR_NORMALIZE_NONE, pooled, WIDTH, &n, error));
    for (int k = 0; k < WIDTH; k++)
        assert_float_equal(pooled[k], (rows[0][k] + rows[1][k] + rows[2][k]) / 3.0f, 1e-5);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_scores_are_not_normalized(void **state)
{
    (void)state;
    float scores[5], same[5];
    weir_model *model = fake_load("");
    weir_context *context = make(model, 64, 8, WEIR_POOLING_RANK);
    assert_int_equal(weir_embedding_width(context), 1);
    assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, scores, 5, NULL, error));
    assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_NONE, same, 5, NULL, error));
    assert_memory_equal(scores, same, sizeof scores);
    assert_true(fabsf(fabsf(scores[0]) - 1.0f) > 1e-4f);
    assert_float_equal(scores[0], scores[4], 0.0);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_an_embedding_is_of_the_last_pass(void **state)
{
    (void)state;
    float out[WIDTH];
    weir_model *model = fake_load("");
    weir_context *context = make(model, 64, 3, WEIR_POOLING_MEAN);
    assert_refused(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_STATE, "seq");
    assert_ok(weir_embed_decode(context, abc, 3, 1, error));
    assert_refused(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_STATE, "seq");
    assert_ok(weir_embeddings(context, 1, WEIR_NORMALIZE_L2, out, WIDTH, error));
    /* a text replaces the one before */
    assert_ok(weir_embed_decode(context, xy, 2, 1, error));
    assert_int_equal(weir_sequence_pos_max(context, 1), 1);
    weir_context_clear(context, NULL);
    assert_refused(weir_embeddings(context, 1, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_STATE, "seq");
    weir_context_destroy(context);
    fake_release(model);
}

static void test_bad_arguments_are_named(void **state)
{
    (void)state;
    float out[5 * WIDTH];
    size_t n = 0;
    static const int32_t bad_token[] = {'a', 320};
    weir_tokens bad[2] = {{abc, 3}, {abc, 0}};
    weir_model *model = fake_load("");
    weir_context *context = make(model, 4, 3, WEIR_POOLING_MEAN);
    weir_context *other = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_error detail;
#define EMBED(context, inputs, n_inputs, out, capacity)                                                      \
    weir_embed(context, inputs, n_inputs, WEIR_NORMALIZE_L2, out, capacity, &n, error)
    assert_refused(EMBED(NULL, inputs, 1, out, WIDTH), WEIR_INVALID, "context");
    assert_refused(EMBED(other, inputs, 1, out, WIDTH), WEIR_STATE, "context");
    assert_refused(EMBED(context, NULL, 1, out, WIDTH), WEIR_INVALID, "inputs");
    assert_refused(EMBED(context, inputs, 0, out, WIDTH), WEIR_INVALID, "n_inputs");
    assert_refused(EMBED(context, bad, 2, out, 2 * WIDTH), WEIR_INVALID, "inputs");
    assert_int_equal(weir_embed(context, bad, 2, WEIR_NORMALIZE_L2, out, 2 * WIDTH, &n, &detail),
                     WEIR_INVALID);
    assert_non_null(strstr(detail.message, "inputs[1]"));
    bad[1].n = 5; /* over n_batch */
    assert_refused(EMBED(context, bad, 2, out, 2 * WIDTH), WEIR_INVALID, "inputs");
    bad[1] = (weir_tokens){bad_token, 2};
    assert_refused(EMBED(context, bad, 2, out, 2 * WIDTH), WEIR_INVALID, "inputs");
    bad[1] = (weir_tokens){NULL, 2};
    assert_refused(EMBED(context, bad, 2, out, 2 * WIDTH), WEIR_INVALID, "inputs");
    assert_refused(EMBED(context, inputs, 5, NULL, 5 * WIDTH), WEIR_INVALID, "out");
    assert_refused(EMBED(context, inputs, 5, out, 5 * WIDTH - 1), WEIR_TOO_LONG, "capacity");
    assert_int_equal(n, 5 * WIDTH);
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_passes), 0);

    assert_refused(weir_embed_decode(NULL, abc, 3, 0, error), WEIR_INVALID, "context");
    assert_refused(weir_embed_decode(other, abc, 3, 0, error), WEIR_STATE, "context");
    assert_refused(weir_embed_decode(context, abc, 0, 0, error), WEIR_INVALID, "n_tokens");
    assert_refused(weir_embed_decode(context, abc, 5, 0, error), WEIR_INVALID, "n_tokens");
    assert_refused(weir_embed_decode(context, NULL, 3, 0, error), WEIR_INVALID, "tokens");
    assert_refused(weir_embed_decode(context, bad_token, 2, 0, error), WEIR_INVALID, "tokens");
    assert_refused(weir_embed_decode(context, abc, 3, 3, error), WEIR_INVALID, "seq");
    assert_ok(weir_embed_decode(context, abc, 3, 0, error));
    assert_refused(weir_embeddings(NULL, 0, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_INVALID, "context");
    assert_refused(weir_embeddings(other, 0, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_STATE, "context");
    assert_refused(weir_embeddings(context, -1, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_INVALID, "seq");
    assert_refused(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, NULL, WIDTH, error), WEIR_INVALID, "out");
    assert_refused(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, out, WIDTH - 1, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(weir_embedding_width(NULL), 0);
    assert_int_equal(weir_embedding_width(other), 0);
    weir_context_destroy(other);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_pass_that_fails(void **state)
{
    (void)state;
    float out[5 * WIDTH];
    size_t n = 77;
    weir_model *model = fake_load("");
    weir__fake *fake = weir__fake_of(model);
    weir_context *context = make(model, 3, 1, WEIR_POOLING_MEAN);
    atomic_store(&fake->fail_decode_at, 2);
    assert_refused(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, out, 5 * WIDTH, &n, error), WEIR_BACKEND,
                   "");
    assert_int_equal(n, 77);
    atomic_store(&fake->fail_decode_at, 0);
    assert_refused(weir_embed_decode(context, abc, 3, 0, error), WEIR_BACKEND, "");
    assert_refused(weir_embeddings(context, 0, WEIR_NORMALIZE_L2, out, WIDTH, error), WEIR_STATE, "seq");
    weir_context_destroy(context);
    fake_release(model);
}

/* Embedding allocates nothing: the context has all that it needs. */
static bool at_once(void *user)
{
    return ++*(int *)user >= 3;
}

static void test_an_interrupt_ends_a_pass(void **state)
{
    (void)state;
    float before[5 * WIDTH], after[5 * WIDTH];
    int asked = 0;
    weir_model *model = fake_load("");
    weir_context *context = make(model, 64, 8, WEIR_POOLING_MEAN);
    assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, before, 5 * WIDTH, NULL, error));
    weir_interrupt_set(at_once, &asked);
    assert_refused(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, after, 5 * WIDTH, NULL, error),
                   WEIR_ABORTED, "");
    weir_interrupt_set(NULL, NULL);
    assert_int_equal(asked, 3);
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_passes), 1);
    assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, after, 5 * WIDTH, NULL, error));
    assert_memory_equal(before, after, sizeof before);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_it_needs_no_allocation(void **state)
{
    (void)state;
    float out[5 * WIDTH];
    size_t n;
    weir_model *model = fake_load("");
    weir_context *context = make(model, 64, 4, WEIR_POOLING_MEAN);
    weir__mem_fail_after(0);
    assert_ok(weir_embed(context, inputs, 5, WEIR_NORMALIZE_L2, out, 5 * WIDTH, &n, error));
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    weir_context_destroy(context);
    fake_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_texts_embedding_is_its_own_in_any_company, nothing_left),
        cmocka_unit_test_teardown(test_normalization, nothing_left),
        cmocka_unit_test_teardown(test_without_pooling_each_token_has_its_vector, nothing_left),
        cmocka_unit_test_teardown(test_scores_are_not_normalized, nothing_left),
        cmocka_unit_test_teardown(test_an_embedding_is_of_the_last_pass, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_are_named, nothing_left),
        cmocka_unit_test_teardown(test_a_pass_that_fails, nothing_left),
        cmocka_unit_test_teardown(test_an_interrupt_ends_a_pass, nothing_left),
        cmocka_unit_test_teardown(test_it_needs_no_allocation, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
