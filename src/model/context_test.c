/* context_test.c: parameters, estimates, passes and rows of a context of the fake.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/context.h"

#include "base/cpu.h"
#include "support/model.h"

static int32_t argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The token that a row says. */
static int32_t said(weir_context *context, int32_t index)
{
    const float *logits = NULL;
    assert_ok(weir_logits(context, index, &logits, error));
    return argmax(logits, context->model->info.n_vocab);
}

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Create --------------------------------------------------------------------------------------- */

static void test_defaults_are_completed(void **state)
{
    (void)state;
    weir_model *model = fake_load("n_ctx_train=1000");
    weir_context *context = NULL;
    weir_context_info info = {.size = sizeof info};
    assert_ok(weir_context_create(model, NULL, &context, error));
    assert_int_equal(weir_context_describe(context, &info), WEIR_OK);
    assert_int_equal(info.n_ctx, 2048);
    assert_int_equal(info.n_ctx_seq, 2048);
    assert_int_equal(info.n_batch, 2048);
    assert_int_equal(info.n_ubatch, 512);
    assert_int_equal(info.n_seq_max, 1);
    assert_int_equal(info.n_threads, weir__cpu_count());
    assert_int_equal(info.layout, WEIR_LAYOUT_PER_SLOT);
    weir_context_destroy(context);

    weir_context_params params = weir_context_params_default();
    params.n_ctx = 0;
    params.n_threads = 3;
    params.layout = WEIR_LAYOUT_UNIFIED;
    assert_ok(weir_context_create(model, &params, &context, error));
    assert_int_equal(weir_context_describe(context, &info), WEIR_OK);
    assert_int_equal(info.n_ctx, 1024);
    assert_int_equal(info.n_batch, 1000);
    assert_int_equal(info.n_threads, 3);
    assert_int_equal(info.layout, WEIR_LAYOUT_UNIFIED);
    assert_int_equal(context->params.n_threads_batch, 3);

    info.size = sizeof info + 1;
    assert_int_equal(weir_context_describe(context, &info), WEIR_INVALID);
    assert_int_equal(weir_context_describe(context, NULL), WEIR_INVALID);
    assert_int_equal(weir_context_describe(NULL, &info), WEIR_INVALID);
    weir_context_destroy(context);
    weir_context_destroy(NULL);
    fake_release(model);
}

static void test_bad_params_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        int32_t below, above;
    } fields[] = {
#define FIELD(name, below, above) {#name, offsetof(weir_context_params, name), below, above}
        FIELD(n_ctx, -1, INT32_MAX), FIELD(n_batch, -1, INT32_MAX), FIELD(n_ubatch, 0, INT32_MAX),
        FIELD(n_seq_max, 0, 257),    FIELD(n_threads, -1, 513),     FIELD(n_threads_batch, -1, 513),
        FIELD(layout, -1, 3),        FIELD(type_k, -1, 5),          FIELD(type_v, -1, 5),
        FIELD(pooling, -2, 5),
#undef FIELD
    };
    weir_model *model = fake_load("");
    weir_context *context = NULL;
    for (size_t i = 0; i < N_ELEMENTS(fields); i++) {
        weir_context_params params = weir_context_params_default();
        memcpy((char *)&params + fields[i].offset, &fields[i].below, sizeof(int32_t));
        assert_refused(weir_context_create(model, &params, &context, error), WEIR_INVALID, fields[i].name);
        memcpy((char *)&params + fields[i].offset, &fields[i].above, sizeof(int32_t));
        assert_refused(weir_context_create(model, &params, &context, error), WEIR_INVALID, fields[i].name);
    }
    weir_context_params params = weir_context_params_default();
    params.size = 3;
    assert_refused(weir_context_create(model, &params, &context, error), WEIR_INVALID, "params");
    assert_refused(weir_context_create(NULL, NULL, &context, error), WEIR_INVALID, "model");
    assert_refused(weir_context_create(model, NULL, NULL, error), WEIR_INVALID, "context");
    fake_release(model);
}

static void test_more_cells_than_memory_are_refused(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 1 << 30;
    params.n_seq_max = 256;
    params.n_batch = 512;
    params.layout = WEIR_LAYOUT_UNIFIED;
    if (weir__cpu_memory_available() > 0)
        assert_refused(weir_context_create(model, &params, &context, error), WEIR_NO_MEMORY, "n_ctx");
    assert_null(context);
    fake_release(model);
}

static void test_a_model_that_cannot_generate(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    model->info.has_decoder = false;
    assert_refused(weir_context_create(model, &params, &context, error), WEIR_UNSUPPORTED, "embeddings");
    params.embeddings = true;
    assert_ok(weir_context_create(model, &params, &context, error));
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_create_survives_each_failing_allocation(void **state)
{
    (void)state;
    bool pending = false;
    weir_model *model = fake_load("");
    long live = weir__mem_live();
    for (long n = 0; !pending; n++) {
        weir_error error = {0};
        weir_context *context = NULL;
        weir__mem_fail_after(n);
        weir_status status = weir_context_create(model, NULL, &context, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(error.code, status);
        weir_context_destroy(context);
        assert_int_equal(weir__mem_live(), live);
        assert_true(n < 100);
    }
    fake_release(model);
}

/* ---- Prefill -------------------------------------------------------------------------------------- */

static void test_prefill_appends_in_passes(void **state)
{
    (void)state;
    static const int32_t tokens[] = {'a', 'b', 'c', 'd', 'e', 'f', 'g'};
    for (size_t i = 0; i < 2; i++) {
        int32_t n_past = -1;
        weir_model *model = fake_load("");
        weir_context *context = NULL;
        weir_context_params params = weir_context_params_default();
        params.n_batch = 3;
        params.n_seq_max = 2;
        params.layout = layouts[i];
        assert_ok(weir_context_create(model, &params, &context, error));
        assert_ok(weir_prefill(context, tokens, 7, 1, &n_past, error));
        assert_int_equal(n_past, 7);
        assert_int_equal(weir_sequence_pos_max(context, 1), 6);
        assert_int_equal(atomic_load(&weir__fake_of(model)->n_passes), 3);
        assert_int_equal(atomic_load(&weir__fake_of(model)->n_rows), 1);
        assert_int_equal(said(context, -1), weir__fake_next(model, tokens, 7));

        assert_ok(weir_prefill(context, tokens, 2, 0, NULL, error));
        assert_ok(weir_prefill(context, tokens + 2, 1, 0, &n_past, error));
        assert_int_equal(n_past, 3);
        assert_int_equal(said(context, -1), weir__fake_next(model, tokens, 3));
        assert_ok(weir_context_clear(context, error));
        assert_int_equal(weir_sequence_pos_max(context, 0), -1);
        assert_int_equal(weir_sequence_pos_max(context, 1), -1);
        weir_context_destroy(context);
        fake_release(model);
    }
}

static void test_prefill_that_does_not_fit(void **state)
{
    (void)state;
    int32_t tokens[20], n_past = 77;
    for (int32_t i = 0; i < 20; i++) tokens[i] = i;
    weir_model *model = fake_load("exact=1");
    weir_context *context = fake_context(model, 16, 1, WEIR_LAYOUT_PER_SLOT);
    assert_refused(weir_prefill(context, tokens, 17, 0, &n_past, error), WEIR_TOO_LONG, "n_tokens");
    assert_ok(weir_prefill(context, tokens, 10, 0, NULL, error));
    assert_refused(weir_prefill(context, tokens, 7, 0, &n_past, error), WEIR_TOO_LONG, "n_tokens");
    assert_refused(weir_prefill(context, tokens, SIZE_MAX, 0, &n_past, error), WEIR_TOO_LONG, "n_tokens");
    assert_int_equal(n_past, 77);
    assert_int_equal(weir_sequence_pos_max(context, 0), 9);
    assert_ok(weir_prefill(context, tokens, 6, 0, &n_past, error));
    assert_int_equal(n_past, 16);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_failing_prefill_is_undone(void **state)
{
    (void)state;
    int32_t tokens[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const weir_status statuses[] = {WEIR_NO_SPACE, WEIR_BACKEND};
    for (size_t i = 0; i < 2; i++) {
        weir_model *model = fake_load("exact=1");
        weir__fake *fake = weir__fake_of(model);
        weir_context *context = NULL;
        weir_context_params params = weir_context_params_default();
        params.n_batch = 3;
        assert_ok(weir_context_create(model, &params, &context, error));
        assert_ok(weir_prefill(context, tokens, 2, 0, NULL, error));
        atomic_store(&fake->fail_decode_at, 1);
        atomic_store(&fake->fail_decode_status, statuses[i]);
        atomic_store(&fake->fail_decode_keep, 1);
        assert_refused(weir_prefill(context, tokens, 9, 0, NULL, error), statuses[i], "");
        assert_int_equal(weir_sequence_pos_max(context, 0), 1);
        assert_int_equal(atomic_load(&fake->n_cells), 2);
        const float *logits;
        assert_refused(weir_logits(context, -1, &logits, error), WEIR_INVALID, "index");
        assert_ok(weir_prefill(context, tokens + 2, 7, 0, NULL, error));
        assert_int_equal(said(context, -1), weir__fake_next(model, tokens, 9));
        weir_context_destroy(context);
        fake_release(model);
    }
}

static void test_a_failing_pass_leaves_no_rows(void **state)
{
    (void)state;
    const float *logits;
    int32_t token = 'a';
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    assert_ok(weir_decode_token(context, 'a', 0, 0, error));
    atomic_store(&weir__fake_of(model)->fail_decode_at, 0);
    assert_refused(weir_decode_token(context, 'b', 1, 0, error), WEIR_BACKEND, "");
    assert_refused(weir_logits(context, 0, &logits, error), WEIR_INVALID, "index");
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_INVALID, "index");
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_pool_that_others_fill(void **state)
{
    (void)state;
    int32_t tokens[12] = {0};
    weir_model *model = fake_load("exact=1");
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 16;
    params.n_batch = 4;
    params.n_seq_max = 2;
    params.layout = WEIR_LAYOUT_UNIFIED;
    assert_ok(weir_context_create(model, &params, &context, error));
    assert_ok(weir_prefill(context, tokens, 8, 0, NULL, error));
    assert_refused(weir_prefill(context, tokens, 12, 1, NULL, error), WEIR_NO_SPACE, "");
    assert_int_equal(weir_sequence_pos_max(context, 1), -1);
    assert_int_equal(weir_sequence_pos_max(context, 0), 7);
    assert_ok(weir_prefill(context, tokens, 8, 1, NULL, error));
    assert_refused(weir_decode_token(context, 1, 8, 1, error), WEIR_NO_SPACE, "");
    weir_context_destroy(context);
    fake_release(model);
}

static void test_memory_that_cannot_be_cut_loses_the_sequence(void **state)
{
    (void)state;
    int32_t tokens[4] = {1, 2, 3, 4};
    weir_model *model = fake_load("recurrent=1");
    weir__fake *fake = weir__fake_of(model);
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_UNIFIED);
    weir_error detail;
    assert_ok(weir_prefill(context, tokens, 2, 0, NULL, error));
    atomic_store(&fake->fail_decode_at, 0);
    atomic_store(&fake->fail_decode_keep, 1);
    assert_int_equal(weir_prefill(context, tokens, 4, 0, NULL, &detail), WEIR_BACKEND);
    assert_non_null(strstr(detail.message, "is empty now"));
    assert_int_equal(weir_sequence_pos_max(context, 0), -1);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_bad_arguments_of_prefill_are_named(void **state)
{
    (void)state;
    int32_t tokens[2] = {1, 320};
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 2, WEIR_LAYOUT_AUTO);
    assert_refused(weir_prefill(NULL, tokens, 1, 0, NULL, error), WEIR_INVALID, "context");
    assert_refused(weir_prefill(context, tokens, 1, 2, NULL, error), WEIR_INVALID, "seq");
    assert_refused(weir_prefill(context, tokens, 1, -1, NULL, error), WEIR_INVALID, "seq");
    assert_refused(weir_prefill(context, tokens, 0, 0, NULL, error), WEIR_INVALID, "n_tokens");
    assert_refused(weir_prefill(context, NULL, 1, 0, NULL, error), WEIR_INVALID, "tokens");
    assert_refused(weir_prefill(context, tokens, 2, 0, NULL, error), WEIR_INVALID, "tokens");
    tokens[1] = -1;
    assert_refused(weir_prefill(context, tokens, 2, 0, NULL, error), WEIR_INVALID, "tokens");
    assert_refused(weir_context_clear(NULL, error), WEIR_INVALID, "context");
    weir_context_destroy(context);
    fake_release(model);
}

/* ---- One token, one batch ------------------------------------------------------------------------- */

static void test_decode_token_continues_its_sequence(void **state)
{
    (void)state;
    static const int32_t history[] = {'x', 'y', 'z'};
    weir_model *model = fake_load("exact=1");
    weir_context *context = fake_context(model, 3, 1, WEIR_LAYOUT_PER_SLOT);
    for (int32_t i = 0; i < 3; i++) {
        assert_refused(weir_decode_token(context, history[i], i + 1, 0, error), WEIR_INVALID, "pos");
        assert_refused(weir_decode_token(context, history[i], i - 1, 0, error), WEIR_INVALID, "pos");
        assert_ok(weir_decode_token(context, history[i], i, 0, error));
        assert_int_equal(said(context, 0), weir__fake_next(model, history, i + 1));
        assert_int_equal(said(context, -1), said(context, 0));
    }
    assert_refused(weir_decode_token(context, 'a', 3, 0, error), WEIR_NO_SPACE, "");
    assert_refused(weir_decode_token(context, 'a', 3, 1, error), WEIR_INVALID, "seq");
    assert_refused(weir_decode_token(context, 320, 3, 0, error), WEIR_INVALID, "token");
    assert_refused(weir_decode_token(NULL, 'a', 3, 0, error), WEIR_INVALID, "context");
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_batch_of_several_sequences(void **state)
{
    (void)state;
    static const int32_t ab[] = {'a', 'b'}, xy[] = {'x', 'y'};
    weir_batch_entry entries[] = {
        {.token = 'a', .pos = 0, .seq = 0, .logits = true},
        {.token = 'x', .pos = 0, .seq = 2},
        {.token = 'b', .pos = 1, .seq = 0, .logits = true},
        {.token = 'y', .pos = 1, .seq = 2, .logits = true},
    };
    for (size_t i = 0; i < 2; i++) {
        weir_model *model = fake_load("");
        weir_context *context = fake_context(model, 1024, 3, layouts[i]);
        const float *logits;
        assert_ok(weir_batch_eval(context, entries, 4, error));
        assert_int_equal(said(context, 0), weir__fake_next(model, ab, 1));
        assert_int_equal(said(context, 2), weir__fake_next(model, ab, 2));
        assert_int_equal(said(context, 3), weir__fake_next(model, xy, 2));
        assert_int_equal(said(context, -1), said(context, 3));
        assert_refused(weir_logits(context, 1, &logits, error), WEIR_INVALID, "index");
        assert_ok(weir_batch_eval(context, &(weir_batch_entry){'a', 2, 0, true}, 1, error));
        static const int32_t outside[] = {-2, 1, 3, INT32_MAX, INT32_MIN}; /* 3: of the pass before */
        for (size_t k = 0; k < N_ELEMENTS(outside); k++) {
            weir_error error = {0};
            assert_int_equal(weir_logits(context, outside[k], &logits, &error), WEIR_INVALID);
            assert_non_null(strstr(error.message, "entries 0 to 0"));
        }
        assert_refused(weir_logits(context, 0, NULL, error), WEIR_INVALID, "logits");
        assert_refused(weir_logits(NULL, 0, &logits, error), WEIR_INVALID, "context");
        weir_context_destroy(context);
        fake_release(model);
    }
}

static void test_bad_batches_change_nothing(void **state)
{
    (void)state;
    static const struct {
        weir_batch_entry entry;
        const char *field;
    } bad[] = {
        {{.token = 320, .pos = 1, .seq = 0}, "token"},     {{.token = -1, .pos = 1, .seq = 0}, "token"},
        {{.token = 1, .pos = 1, .seq = 2}, "seq"},         {{.token = 1, .pos = 1, .seq = -1}, "seq"},
        {{.token = 1, .pos = 0, .seq = 0}, "pos"},         {{.token = 1, .pos = 2, .seq = 0}, "pos"},
        {{.token = 1, .pos = 1, .seq = 1}, "pos"},         {{.token = 1, .pos = -1, .seq = 1}, "pos"},
        {{.token = 1, .pos = INT32_MAX, .seq = 1}, "pos"},
    };
    weir_model *model = fake_load("");
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_batch = 3;
    params.n_seq_max = 2;
    assert_ok(weir_context_create(model, &params, &context, error));
    weir_batch_entry entries[4] = {{.token = 1, .pos = 0, .seq = 0, .logits = true}};
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        entries[1] = bad[i].entry;
        assert_refused(weir_batch_eval(context, entries, 2, error), WEIR_INVALID, bad[i].field);
        assert_refused(weir_decode_batch(context, entries, 2, NULL, NULL, error), WEIR_INVALID, bad[i].field);
    }
    assert_refused(weir_batch_eval(context, entries, 0, error), WEIR_INVALID, "n_entries");
    assert_refused(weir_batch_eval(context, entries, 4, error), WEIR_INVALID, "n_entries");
    assert_refused(weir_batch_eval(context, NULL, 1, error), WEIR_INVALID, "entries");
    assert_refused(weir_batch_eval(NULL, entries, 1, error), WEIR_INVALID, "context");
    assert_int_equal(weir_sequence_pos_max(context, 0), -1);
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_passes), 0);
    /* none of it was the backend's to refuse: fake_release looks at its faults */
    weir_context_destroy(context);
    fake_release(model);
}

/* ---- Sampling ------------------------------------------------------------------------------------- */

static void test_sample_takes_the_last_row_or_any(void **state)
{
    (void)state;
    static const int32_t ab[] = {'a', 'b'};
    weir_batch_entry entries[] = {
        {.token = 'a', .pos = 0, .seq = 0, .logits = true},
        {.token = 'b', .pos = 1, .seq = 0, .logits = true},
        {.token = 'c', .pos = 2, .seq = 0},
    };
    int32_t token = -7;
    weir_model *model = fake_load(""), *other = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model), *stranger = fake_greedy(other);
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_INVALID, "index");
    assert_ok(weir_batch_eval(context, entries, 3, error));
    assert_ok(weir_sample_at(sampler, context, 0, &token, error));
    assert_int_equal(token, weir__fake_next(model, ab, 1));
    assert_ok(weir_sample(sampler, context, &token, error));
    assert_int_equal(token, weir__fake_next(model, ab, 2));

    token = -7;
    assert_refused(weir_sample_at(sampler, context, 2, &token, error), WEIR_INVALID, "index");
    assert_refused(weir_sample_at(sampler, context, 3, &token, error), WEIR_INVALID, "index");
    assert_refused(weir_sample_at(sampler, context, -2, &token, error), WEIR_INVALID, "index");
    assert_refused(weir_sample(NULL, context, &token, error), WEIR_INVALID, "sampler");
    assert_refused(weir_sample(sampler, NULL, &token, error), WEIR_INVALID, "context");
    assert_refused(weir_sample(sampler, context, NULL, error), WEIR_INVALID, "token");
    assert_refused(weir_sample(stranger, context, &token, error), WEIR_INVALID, "sampler");
    atomic_store(&weir__fake_of(model)->fail_sample_at, 0);
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_BACKEND, "");
    assert_int_equal(token, -7);

    /* a pass that keeps nothing leaves nothing to sample from */
    entries[2].pos = 3;
    assert_ok(weir_batch_eval(context, &entries[2], 1, error));
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_INVALID, "index");
    weir_context_clear(context, NULL);
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_INVALID, "index");
    weir_sampler_destroy(sampler);
    weir_sampler_destroy(stranger);
    weir_context_destroy(context);
    fake_release(model);
    fake_release(other);
}

static void test_sampling_accepts_once(void **state)
{
    (void)state;
    int32_t token = 'x';
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= \"aab\"";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    assert_ok(weir_prefill(context, &token, 1, 0, NULL, error));
    static const int32_t want[] = {'a', 'a', 'b'};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(weir_sample(sampler, context, &token, error));
        assert_int_equal(token, want[i]);
    }
    assert_refused(weir_sampler_accept(sampler, 'b', error), WEIR_REFUSED, "token");
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_decode_batch_samples_each_row(void **state)
{
    (void)state;
    static const int32_t ab[] = {'a', 'b'}, x[] = {'x'};
    weir_batch_entry entries[] = {
        {.token = 'a', .pos = 0, .seq = 0},
        {.token = 'b', .pos = 1, .seq = 0, .logits = true},
        {.token = 'x', .pos = 0, .seq = 1, .logits = true},
        {.token = 'q', .pos = 0, .seq = 2, .logits = true},
    };
    weir_model *model = fake_load(""), *other = fake_load("");
    weir_context *context = fake_context(model, 1024, 3, WEIR_LAYOUT_PER_SLOT);
    weir_sampler *one = fake_greedy(model), *two = fake_greedy(model), *stranger = fake_greedy(other);
    weir_sampler *samplers[] = {one, one, two, NULL};
    int32_t sampled[4] = {7, 7, 7, 7};
    assert_ok(weir_decode_batch(context, entries, 4, samplers, sampled, error));
    assert_int_equal(sampled[0], -1);
    assert_int_equal(sampled[1], weir__fake_next(model, ab, 2));
    assert_int_equal(sampled[2], weir__fake_next(model, x, 1));
    assert_int_equal(sampled[3], -1);
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_samples), 2);

    weir_batch_entry more[] = {{.token = 'c', .pos = 2, .seq = 0, .logits = true}};
    sampled[0] = 7;
    samplers[0] = stranger;
    assert_refused(weir_decode_batch(context, more, 1, samplers, sampled, error), WEIR_INVALID, "sampler");
    samplers[0] = one;
    assert_refused(weir_decode_batch(context, more, 1, samplers, NULL, error), WEIR_INVALID, "sampled");
    assert_refused(weir_decode_batch(NULL, more, 1, samplers, sampled, error), WEIR_INVALID, "context");
    assert_int_equal(weir_sequence_pos_max(context, 0), 1);
    atomic_store(&weir__fake_of(model)->fail_decode_at, 0);
    assert_refused(weir_decode_batch(context, more, 1, samplers, sampled, error), WEIR_BACKEND, "");
    assert_int_equal(sampled[0], 7);
    atomic_store(&weir__fake_of(model)->fail_sample_at, 0);
    assert_refused(weir_decode_batch(context, more, 1, samplers, sampled, error), WEIR_BACKEND, "");
    more[0].pos = 3;
    assert_ok(weir_decode_batch(context, more, 1, NULL, sampled, error));
    assert_int_equal(sampled[0], -1);
    more[0].pos = 4;
    assert_ok(weir_decode_batch(context, more, 1, NULL, NULL, error));
    weir_sampler_destroy(one);
    weir_sampler_destroy(two);
    weir_sampler_destroy(stranger);
    weir_context_destroy(context);
    fake_release(model);
    fake_release(other);
}

static void test_logits_without_memory(void **state)
{
    (void)state;
    const float *logits = NULL;
    int32_t token = 'a';
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    assert_ok(weir_prefill(context, &token, 1, 0, NULL, error));
    weir__mem_fail_after(0);
    assert_refused(weir_logits(context, -1, &logits, error), WEIR_BACKEND, "");
    assert_null(logits);
    assert_ok(weir_logits(context, -1, &logits, error));
    assert_non_null(logits);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_context_for_embeddings_does_not_generate(void **state)
{
    (void)state;
    int32_t token = 'a';
    const float *logits;
    weir_model *model = fake_load("");
    weir_context *context = NULL;
    weir_sampler *sampler = fake_greedy(model);
    weir_context_params params = weir_context_params_default();
    params.embeddings = true;
    assert_ok(weir_context_create(model, &params, &context, error));
    assert_int_equal(context->params.n_ubatch, context->params.n_batch);
    assert_refused(weir_prefill(context, &token, 1, 0, NULL, error), WEIR_STATE, "context");
    assert_refused(weir_decode_token(context, 1, 0, 0, error), WEIR_STATE, "context");
    assert_refused(weir_logits(context, 0, &logits, error), WEIR_STATE, "context");
    assert_refused(weir_sample(sampler, context, &token, error), WEIR_STATE, "context");
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

/* An estimate has as many bytes as there are cells, whatever is allocated beside them; more cells are
 * more. */
static void test_an_estimate_is_of_the_context_that_is_made(void **state)
{
    (void)state;
    weir_model *model = fake_load("exact=1");
    weir_context_params params = weir_context_params_default();
    uint64_t few = 0, many = 0;
    params.n_ctx = 1000;
    params.embeddings = true;
    assert_ok(weir_context_estimate(model, &params, &few, error));
    params.n_ctx = 3000;
    assert_ok(weir_context_estimate(model, &params, &many, error));
    assert_true(few > 0);
    assert_int_equal(many, 3 * few);
    params.n_ctx = -1;
    assert_refused(weir_context_estimate(model, &params, &few, error), WEIR_INVALID, "n_ctx");
    assert_refused(weir_context_estimate(NULL, NULL, &few, error), WEIR_INVALID, "model");
    assert_refused(weir_context_estimate(model, NULL, NULL, error), WEIR_INVALID, "");
    assert_ok(weir_context_estimate(model, NULL, &few, error));
    fake_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_estimate_is_of_the_context_that_is_made),
        cmocka_unit_test_teardown(test_defaults_are_completed, nothing_left),
        cmocka_unit_test_teardown(test_bad_params_are_named, nothing_left),
        cmocka_unit_test_teardown(test_more_cells_than_memory_are_refused, nothing_left),
        cmocka_unit_test_teardown(test_a_model_that_cannot_generate, nothing_left),
        cmocka_unit_test_teardown(test_a_create_survives_each_failing_allocation, nothing_left),
        cmocka_unit_test_teardown(test_prefill_appends_in_passes, nothing_left),
        cmocka_unit_test_teardown(test_prefill_that_does_not_fit, nothing_left),
        cmocka_unit_test_teardown(test_a_failing_prefill_is_undone, nothing_left),
        cmocka_unit_test_teardown(test_a_failing_pass_leaves_no_rows, nothing_left),
        cmocka_unit_test_teardown(test_a_pool_that_others_fill, nothing_left),
        cmocka_unit_test_teardown(test_memory_that_cannot_be_cut_loses_the_sequence, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_prefill_are_named, nothing_left),
        cmocka_unit_test_teardown(test_decode_token_continues_its_sequence, nothing_left),
        cmocka_unit_test_teardown(test_a_batch_of_several_sequences, nothing_left),
        cmocka_unit_test_teardown(test_bad_batches_change_nothing, nothing_left),
        cmocka_unit_test_teardown(test_sample_takes_the_last_row_or_any, nothing_left),
        cmocka_unit_test_teardown(test_sampling_accepts_once, nothing_left),
        cmocka_unit_test_teardown(test_decode_batch_samples_each_row, nothing_left),
        cmocka_unit_test_teardown(test_logits_without_memory, nothing_left),
        cmocka_unit_test_teardown(test_a_context_for_embeddings_does_not_generate, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
