/* The low level on the real model: passes, sequences, states, samplers and embeddings say the same whichever
 * way they are reached. Contexts stay inside the region where llama.cpp's attention does not depend on the
 * company (docs/adr/0009): fewer than 512 cells, at most 60 rows. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/more.h>

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        weir_error ok_error = {0};                                                                           \
        weir_error *error = &ok_error;                                                                       \
        if ((call) != WEIR_OK) fail_msg("%s: %s", #call, ok_error.message);                                  \
    } while (0)

static weir_model *model;
static weir_model_info info = {.size = sizeof info};
static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
static const char text[] = "The capital of France is Paris, and the capital of Italy is";

static int load(void **state)
{
    (void)state;
    weir_error error = {0};
    if (weir_model_load(getenv("WEIR_TEST_MODEL"), NULL, &model, &error) == WEIR_OK)
        return weir_model_describe(model, &info) == WEIR_OK ? 0 : -1;
    print_error("%s\n", error.message);
    return -1;
}

static int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    return 0;
}

static size_t tokens_of(const char *from, int32_t *tokens)
{
    size_t n = 0;
    assert_ok(weir_tokenize(model, from, WEIR_NUL, true, false, tokens, 60, &n, error));
    return n;
}

static weir_context *context_of(int32_t n_ctx, int32_t n_seq, weir_layout layout)
{
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_ctx = n_ctx;
    params.n_batch = 60;
    params.n_threads = 1; /* on a busy machine threads that wait for each other take far longer */
    params.n_seq_max = n_seq;
    params.layout = layout;
    assert_ok(weir_context_create(model, &params, &context, error));
    return context;
}

static weir_sampler *greedy(void)
{
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 0.0f;
    params.ignore_eos = true; /* its text does not matter here */
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    return sampler;
}

/* Goes on greedily for n tokens from the last row of a sequence. */
static void go_on(weir_context *context, weir_sampler *sampler, int32_t seq, int32_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        assert_ok(weir_sample(sampler, context, &out[i], error));
        assert_ok(weir_decode_token(context, out[i], weir_sequence_pos_max(context, seq) + 1, seq, error));
    }
}

/* ---- Text ----------------------------------------------------------------------------------------- */

static void test_any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const samples[] = {"hello", "größer 日本語 🙂", "a\xff\xfe z",
                                          " two  spaces\n\n\ttab"};
    static const char *const wanted[] = {"hello", "größer 日本語 🙂", "a\xef\xbf\xbd\xef\xbf\xbd z",
                                         " two  spaces\n\n\ttab"};
    int32_t tokens[60];
    char back[256];
    size_t n, length;
    for (size_t i = 0; i < N_ELEMENTS(samples); i++) {
        assert_ok(weir_tokenize(model, samples[i], WEIR_NUL, false, false, tokens, 60, &n, error));
        assert_ok(weir_detokenize(model, tokens, n, false, back, sizeof back, &length, error));
        assert_string_equal(back, wanted[i]);
        size_t need = 0;
        assert_int_equal(weir_tokenize(model, samples[i], WEIR_NUL, false, false, NULL, 0, &need, NULL),
                         WEIR_TOO_LONG);
        assert_int_equal(need, n);
    }
    assert_ok(weir_tokenize(model, "a\0b", 3, false, false, tokens, 60, &n, error));
    assert_ok(weir_detokenize(model, tokens, n, false, back, sizeof back, &length, error));
    assert_int_equal(length, 3);
    assert_memory_equal(back, "a\0b", 3);
    for (int32_t token = 0; token < info.n_vocab; token++)
        assert_ok(weir_piece(model, token, true, back, sizeof back, &length, error));
    assert_true(weir_is_eog(model, info.token_eos));
}

typedef struct heard {
    char text[1024];
    size_t length;
    int32_t tokens[64];
    size_t n;
} heard;

static bool hear(int32_t token, const char *bytes, size_t length, void *user)
{
    heard *h = user;
    memcpy(h->text + h->length, bytes, length);
    h->length += length;
    if (token >= 0) h->tokens[h->n++] = token;
    return true;
}

static void test_generate_equals_the_steps_it_is_made_of(void **state)
{
    (void)state;
    int32_t prompt[60], steps[32];
    char all[1024];
    size_t n = tokens_of(text, prompt), length;
    static heard h;
    weir_reason reason;
    weir_context *context = context_of(256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = greedy();
    assert_ok(weir_context_generate(context, sampler, prompt, n, 32, hear, &h, &reason, error));
    assert_int_equal(reason, WEIR_REASON_LENGTH);
    assert_int_equal(h.n, 32);
    assert_ok(weir_detokenize(model, h.tokens, h.n, false, all, sizeof all, &length, error));
    assert_int_equal(h.length, length);
    assert_memory_equal(h.text, all, length);

    assert_ok(weir_context_clear(context, error));
    assert_ok(weir_prefill(context, prompt, n, 0, NULL, error));
    go_on(context, sampler, 0, steps, 32);
    assert_memory_equal(steps, h.tokens, sizeof steps);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
}

/* ---- Passes and sequences ------------------------------------------------------------------------- */

static void test_a_sequence_says_the_same_however_it_was_filled(void **state)
{
    (void)state;
    int32_t prompt[60], want[16], got[16];
    size_t n = tokens_of(text, prompt), half = n / 2;
    for (size_t i = 0; i < 2; i++) {
        weir_context *context = context_of(448, 4, layouts[i]);
        weir_sampler *sampler = greedy();
        assert_ok(weir_prefill(context, prompt, n, 0, NULL, error));
        go_on(context, sampler, 0, want, 16);

        /* in two passes */
        assert_ok(weir_prefill(context, prompt, half, 1, NULL, error));
        assert_ok(weir_prefill(context, prompt + half, n - half, 1, NULL, error));
        go_on(context, sampler, 1, got, 16);
        assert_memory_equal(got, want, sizeof want);

        /* from the prefix of another */
        assert_ok(weir_sequence_copy(context, 0, 2, 0, (int32_t)half, error));
        assert_int_equal(weir_sequence_pos_max(context, 2), half - 1);
        assert_ok(weir_prefill(context, prompt + half, n - half, 2, NULL, error));
        go_on(context, sampler, 2, got, 16);
        assert_memory_equal(got, want, sizeof want);

        /* after its end was cut off */
        assert_ok(weir_sequence_remove(context, 2, (int32_t)half, -1, error));
        assert_ok(weir_prefill(context, prompt + half, n - half, 2, NULL, error));
        go_on(context, sampler, 2, got, 16);
        assert_memory_equal(got, want, sizeof want);

        assert_ok(weir_sequence_keep(context, 2, error));
        assert_int_equal(weir_sequence_pos_max(context, 0), -1);
        assert_int_equal(weir_sequence_pos_max(context, 1), -1);
        assert_int_equal(weir_sequence_pos_max(context, 2), n + 15);
        weir_sampler_destroy(sampler);
        weir_context_destroy(context);
    }
}

static void test_a_batch_of_two_sequences(void **state)
{
    (void)state;
    static const char *const texts[] = {"Water boils at", "Once upon a time"};
    int32_t prompt[2][60], want[2];
    size_t n[2];
    for (size_t i = 0; i < 2; i++) {
        weir_context *context = context_of(448, 2, layouts[i]);
        weir_sampler *sampler = greedy();
        weir_batch_entry entries[60];
        weir_sampler *samplers[60] = {NULL};
        int32_t sampled[60];
        size_t n_entries = 0, last[2];
        for (int32_t s = 0; s < 2; s++) {
            n[s] = tokens_of(texts[s], prompt[s]);
            assert_ok(weir_prefill(context, prompt[s], n[s], s, NULL, error));
            assert_ok(weir_sample(sampler, context, &want[s], error));
            for (size_t k = 0; k < n[s]; k++)
                entries[n_entries++] = (weir_batch_entry){prompt[s][k], (int32_t)k, s, k + 1 == n[s]};
            last[s] = n_entries - 1;
            samplers[last[s]] = sampler;
        }
        assert_ok(weir_context_clear(context, error));
        assert_ok(weir_decode_batch(context, entries, n_entries, samplers, sampled, error));
        for (size_t k = 0; k < n_entries; k++)
            assert_int_equal(sampled[k], k == last[0] ? want[0] : k == last[1] ? want[1] : -1);
        const float *logits;
        assert_ok(weir_logits(context, (int32_t)last[0], &logits, error));
        for (int32_t t = 0; t < info.n_vocab; t++) assert_true(logits[t] <= logits[want[0]]);
        assert_int_equal(weir_logits(context, 0, &logits, NULL), WEIR_INVALID);
        weir_sampler_destroy(sampler);
        weir_context_destroy(context);
    }
}

static void test_a_full_context_says_so_and_goes_on(void **state)
{
    (void)state;
    int32_t prompt[60], got;
    size_t n = tokens_of(text, prompt);
    for (size_t i = 0; i < 2; i++) {
        weir_context *context = context_of(256, 1, layouts[i]);
        weir_sampler *sampler = greedy();
        weir_context_info allotted = {.size = sizeof allotted};
        assert_int_equal(weir_context_describe(context, &allotted), WEIR_OK);
        assert_int_equal(allotted.n_ctx_seq, 256);
        int32_t n_past = 0;
        while (n_past + (int32_t)n <= 256) assert_ok(weir_prefill(context, prompt, n, 0, &n_past, error));
        assert_int_equal(weir_prefill(context, prompt, n, 0, NULL, NULL), WEIR_TOO_LONG);
        for (; n_past < 256; n_past++) assert_ok(weir_decode_token(context, prompt[1], n_past, 0, error));
        assert_int_equal(weir_decode_token(context, prompt[1], 256, 0, NULL), WEIR_NO_SPACE);
        assert_int_equal(weir_sequence_pos_max(context, 0), 255);
        assert_ok(weir_sequence_remove(context, 0, 255, -1, error));
        assert_ok(weir_decode_token(context, prompt[1], 255, 0, error));
        assert_ok(weir_sample(sampler, context, &got, error));
        weir_sampler_destroy(sampler);
        weir_context_destroy(context);
    }
}

/* ---- State ---------------------------------------------------------------------------------------- */

static void test_a_state_goes_on_where_it_was_saved(void **state)
{
    (void)state;
    int32_t prompt[60], want[16], got[16], next;
    size_t n = tokens_of(text, prompt), need = 0, length = 0;
    for (size_t i = 0; i < 2; i++) {
        weir_context *context = context_of(448, 3, layouts[i]), *other = context_of(448, 3, layouts[i]);
        weir_context *alien = context_of(448, 3, layouts[1 - i]);
        weir_sampler *sampler = greedy();
        assert_ok(weir_prefill(context, prompt, n - 1, 0, NULL, error));
        /* saved from a copy that no pass has done yet */
        assert_ok(weir_sequence_copy(context, 0, 1, -1, -1, error));
        assert_int_equal(weir_state_save(context, 1, NULL, 0, &need, NULL), WEIR_TOO_LONG);
        char *bytes = malloc(need);
        assert_non_null(bytes);
        assert_ok(weir_state_save(context, 1, bytes, need, &length, error));
        assert_int_equal(length, need);

        assert_ok(weir_decode_token(context, prompt[n - 1], (int32_t)n - 1, 0, error));
        go_on(context, sampler, 0, want, 16);
        weir_context *const takers[] = {context, other};
        for (size_t k = 0; k < 2; k++) {
            assert_ok(weir_state_load(takers[k], 2, bytes, length, error));
            assert_int_equal(weir_sequence_pos_max(takers[k], 2), n - 2);
            assert_ok(weir_decode_token(takers[k], prompt[n - 1], (int32_t)n - 1, 2, error));
            go_on(takers[k], sampler, 2, got, 16);
            assert_memory_equal(got, want, sizeof want);
        }
        assert_int_equal(weir_state_load(alien, 0, bytes, length, NULL), WEIR_FORMAT);
        bytes[length / 2] ^= 1;
        assert_int_equal(weir_state_load(other, 2, bytes, length, NULL), WEIR_FORMAT);
        assert_int_equal(weir_sequence_pos_max(other, 2), n + 15);
        assert_ok(weir_sample(sampler, other, &next, error));
        free(bytes);
        weir_sampler_destroy(sampler);
        weir_context_destroy(alien);
        weir_context_destroy(other);
        weir_context_destroy(context);
    }
}

/* ---- Samplers ------------------------------------------------------------------------------------- */

static void draw(weir_context *context, const weir_sampler_params *params, int32_t *out, int n)
{
    weir_sampler *sampler = NULL;
    assert_ok(weir_sampler_create(model, params, &sampler, error));
    for (int i = 0; i < n; i++) {
        assert_ok(weir_sample(sampler, context, &out[i], error));
        assert_in_range(out[i], 0, info.n_vocab - 1);
    }
    weir_sampler_destroy(sampler);
}

/* Whatever is in range works: alone at its least and at its most. */
static void test_every_allowed_value_can_be_sampled_with(void **state)
{
    (void)state;
    size_t n_members, n_tried = 0;
    const weir_member *members = weir_members("sampler", &n_members);
    int32_t prompt[60], got[3];
    size_t n = tokens_of(text, prompt);
    weir_context *context = context_of(256, 1, WEIR_LAYOUT_AUTO);
    assert_ok(weir_prefill(context, prompt, n, 0, NULL, error));
    for (size_t i = 0; i < n_members; i++)
        for (int end = 0; end < 2; end++) {
            const weir_member *member = &members[i];
            bool is_float = member->type == WEIR_MEMBER_FLOAT;
            if (!is_float && member->type != WEIR_MEMBER_INT32) continue;
            n_tried += end == 0;
            double value = end == 0 ? member->min : member->max;
            float number = (float)value;
            int32_t integer = is_float ? 0 : (int32_t)value;
            for (int around = 0; around < 4; around++) {
                weir_sampler_params params = weir_sampler_params_default();
                params.seed = 1;
                if (around == 1) params.mirostat = 1;
                if (around == 2) params.mirostat = 2;
                if (around == 3) {
                    params.order = WEIR_SAMPLERS_DEFAULT ";adaptive_p";
                    params.dry_multiplier = 1.0f;
                    params.xtc_probability = 1.0f;
                    params.penalty_repeat = 1.1f;
                    params.dynatemp_range = 0.5f;
                }
                memcpy((char *)&params + member->offset,
                       is_float ? (const void *)&number : (const void *)&integer, sizeof integer);
                draw(context, &params, got, 3);
            }
        }
    assert_true(n_tried >= 24);
    weir_context_destroy(context);
}

static void test_draws_follow_the_seed(void **state)
{
    (void)state;
    int32_t prompt[60], a[40], b[40];
    size_t n = tokens_of("I like", prompt);
    weir_context *context = context_of(256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 1.5f;
    params.seed = 11;
    assert_ok(weir_prefill(context, prompt, n, 0, NULL, error));
    draw(context, &params, a, 40);
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 40; i++) assert_ok(weir_sample(sampler, context, &b[i], error));
        assert_memory_equal(a, b, sizeof a);
        assert_ok(weir_sampler_reset(sampler, error));
    }
    weir_sampler_destroy(sampler);
    params.seed = 12;
    draw(context, &params, b, 40);
    assert_memory_not_equal(a, b, sizeof a);

    /* a forbidden token does not come */
    weir_logit_bias bias = {.token = a[0], .bias = -INFINITY};
    params.logit_bias = &bias;
    params.n_logit_bias = 1;
    draw(context, &params, b, 40);
    for (int i = 0; i < 40; i++) assert_int_not_equal(b[i], a[0]);
    weir_context_destroy(context);
}

static void test_a_grammar_holds(void **state)
{
    (void)state;
    int32_t prompt[60], x[8];
    size_t n = tokens_of("Is the sky blue? Answer:", prompt), n_x;
    static heard h;
    weir_reason reason;
    weir_context *context = context_of(256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 0.0f;
    params.grammar = "root ::= \"certainly\" | \"no\"";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    for (int round = 0; round < 2; round++) {
        memset(&h, 0, sizeof h);
        assert_ok(weir_context_generate(context, sampler, prompt, n, 20, hear, &h, &reason, error));
        assert_int_equal(reason, WEIR_REASON_END);
        assert_true((h.length == 9 && memcmp(h.text, "certainly", 9) == 0) ||
                    (h.length == 2 && memcmp(h.text, "no", 2) == 0));
        assert_ok(weir_sampler_reset(sampler, error));
    }
    /* refusals leave the sampler as it was */
    assert_ok(weir_tokenize(model, "x", 1, false, false, x, 8, &n_x, error));
    assert_int_equal(weir_sampler_accept(sampler, x[0], NULL), WEIR_REFUSED);
    assert_int_equal(weir_sampler_accept(sampler, info.token_eos, NULL), WEIR_REFUSED);
    assert_ok(weir_tokenize(model, "no", 2, false, false, x, 8, &n_x, error));
    for (size_t i = 0; i < n_x; i++) assert_ok(weir_sampler_accept(sampler, x[i], error));
    assert_ok(weir_sampler_accept(sampler, info.token_eos, error));
    weir_sampler_destroy(sampler);

    params.grammar = NULL;
    params.grammar_root = "not_root";
    params.json_schema = "{\"type\":\"object\",\"properties\":{\"blue\":{\"type\":\"boolean\"}},"
                         "\"required\":[\"blue\"],\"additionalProperties\":false}";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    memset(&h, 0, sizeof h);
    assert_ok(weir_context_generate(context, sampler, prompt, n, 40, hear, &h, &reason, error));
    assert_int_equal(reason, WEIR_REASON_END);
    assert_int_equal(h.text[0], '{');
    assert_non_null(strstr(h.text, "\"blue\""));
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
}

/* ---- Embeddings ----------------------------------------------------------------------------------- */

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa) / sqrt(bb);
}

static void test_embeddings_do_not_depend_on_the_company(void **state)
{
    (void)state;
    static const char *const texts[] = {"The cat sat on the mat.", "A kitten was sitting on a rug.",
                                        "Interest rates rose again in March."};
    static const weir_pooling poolings[] = {WEIR_POOLING_MEAN, WEIR_POOLING_CLS, WEIR_POOLING_LAST,
                                            WEIR_POOLING_NONE};
    int32_t tokens[3][60];
    weir_tokens inputs[3];
    size_t total = 0;
    for (size_t i = 0; i < 3; i++) {
        inputs[i] = (weir_tokens){tokens[i], tokens_of(texts[i], tokens[i])};
        total += inputs[i].n;
    }
    for (size_t p = 0; p < N_ELEMENTS(poolings); p++)
        for (size_t layout = 0; layout < 2; layout++) {
            weir_context *context = NULL;
            weir_context_params params = weir_context_params_default();
            params.n_ctx = 384;
            params.n_batch = 60;
            params.n_threads = 1;
            params.n_seq_max = 3;
            params.layout = layouts[layout];
            params.embeddings = true;
            params.pooling = poolings[p];
            assert_ok(weir_context_create(model, &params, &context, error));
            size_t width = weir_embedding_width(context), n = 0;
            assert_int_equal(width, info.n_embd_out);
            bool each = poolings[p] == WEIR_POOLING_NONE;
            float *all = calloc(total * width, sizeof *all), *one = calloc(width, sizeof *one);
            assert_true(all != NULL && one != NULL);
            assert_ok(weir_embed(context, inputs, 3, WEIR_NORMALIZE_L2, all, total * width, &n, error));
            assert_int_equal(n, (each ? total : 3) * width);
            for (size_t i = 0, row = 0; i < 3; i++) {
                row += each ? inputs[i].n : 1;
                assert_ok(weir_embed_decode(context, inputs[i].ids, inputs[i].n, 1, error));
                assert_ok(weir_embeddings(context, 1, WEIR_NORMALIZE_L2, one, width, error));
                assert_true(cosine(one, all + (row - 1) * width, width) > 0.999);
                double size = 0.0;
                for (size_t k = 0; k < width; k++) size += (double)one[k] * (double)one[k];
                assert_float_equal(size, 1.0, 1e-4);
            }
            if (poolings[p] == WEIR_POOLING_MEAN) {
                double near = cosine(all, all + width, width), far = cosine(all, all + 2 * width, width);
                assert_true(near > far);
            }
            free(one);
            free(all);
            weir_context_destroy(context);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_generate_equals_the_steps_it_is_made_of),
        cmocka_unit_test(test_a_sequence_says_the_same_however_it_was_filled),
        cmocka_unit_test(test_a_batch_of_two_sequences),
        cmocka_unit_test(test_a_full_context_says_so_and_goes_on),
        cmocka_unit_test(test_a_state_goes_on_where_it_was_saved),
        cmocka_unit_test(test_every_allowed_value_can_be_sampled_with),
        cmocka_unit_test(test_draws_follow_the_seed),
        cmocka_unit_test(test_a_grammar_holds),
        cmocka_unit_test(test_embeddings_do_not_depend_on_the_company),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
