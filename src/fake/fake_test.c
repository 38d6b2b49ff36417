/* fake_test.c: the fake's options, tokenizer, contexts and faults, as tests rely on them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/fake.h"
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Options, vocabulary, tokenizer --------------------------------------------------------------- */

static void test_options_are_read_and_bad_ones_named(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "fake:nosuch=1",        "fake:n_vocab",
        "fake:n_vocab=",        "fake:n_vocab=12x",
        "fake:n_vocab=259",     "fake:seed=-1",
        "fake:any=2",           "fake:tick_us=99999999999999999999",
        "fake:seed=1,nosuch=2", "fake:seed=1,,any=1",
        "fake:n_ctx_train=0",
    };
    weir_model *model = fake_load("n_vocab=300,n_ctx_train=77,seed=5,");
    assert_int_equal(model->info.n_vocab, 300);
    assert_int_equal(model->info.n_ctx_train, 77);
    fake_release(model);
    for (size_t i = 0; i < N_ELEMENTS(bad); i++)
        assert_refused(weir_model_load(bad[i], NULL, &model, error), WEIR_INVALID, "path");

    weir_error error;
    assert_int_equal(weir_model_load("fake:nosuch=1", NULL, &model, &error), WEIR_INVALID);
    assert_non_null(strstr(error.message, "nosuch"));
    assert_non_null(strstr(error.message, "token_us"));
}

static bool give_up(float value, void *user)
{
    (void)value;
    return ++*(int *)user < 5;
}

static void test_a_load_may_take_its_time(void **state)
{
    (void)state;
    int n = 0;
    weir_model *model = NULL;
    weir_model_params params = weir_model_params_default();
    int64_t began = weir__clock_now_ns();
    fake_release(fake_load("load_us=20000,free_us=10000"));
    assert_true(weir__clock_now_ns() - began >= 30 * WEIR__NS_PER_MS);
    params.progress = give_up;
    params.progress_user = &n;
    assert_refused(weir_model_load("fake:load_us=60000000", &params, &model, error), WEIR_ABORTED,
                   "progress");
}

/* Reads the guide as it lies beside the sources; false where there are none. */
static bool read_guide(char *text, size_t capacity)
{
    char path[512];
    const char *root = getenv("WEIR_SOURCE_DIR");
    if (root == NULL) return false;
    snprintf(path, sizeof path, "%s/docs/guides/fake.md", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, capacity - 1, file)] = '\0';
    fclose(file);
    return true;
}

static void test_the_guide_names_every_option(void **state)
{
    (void)state;
    static char guide[16384];
    char row[64], *save = NULL;
    weir_model *model = NULL;
    weir_error error;
    int n = 0;
    if (!read_guide(guide, sizeof guide)) skip();
    assert_int_equal(weir_model_load("fake:nosuch=1", NULL, &model, &error), WEIR_INVALID);
    char *known = strstr(error.message, "known: ");
    assert_non_null(known);
    for (char *name = strtok_r(known + 7, ", ", &save); name != NULL;
         name = strtok_r(NULL, ", ", &save), n++) {
        snprintf(row, sizeof row, "| `%s` |", name);
        if (strstr(guide, row) == NULL) fail_msg("docs/guides/fake.md has no row for %s", name);
    }
    assert_true(n >= 10);
}

static size_t tokens_of(const weir_model *model, const char *text, size_t length, bool add, bool parse,
                        int32_t *tokens)
{
    size_t n = 0;
    assert_ok(model->ops->tokenize(model->model, text, length, add, parse, tokens, 64, &n, error));
    return n;
}

static void test_tokenizer_gives_bytes_and_specials(void **state)
{
    (void)state;
    int32_t tokens[64];
    weir_model *model = fake_load("");
    assert_int_equal(tokens_of(model, "a\0\xff", 3, true, false, tokens), 4);
    assert_int_equal(tokens[0], WEIR__FAKE_BOS);
    assert_int_equal(tokens[1], 'a');
    assert_int_equal(tokens[2], 0);
    assert_int_equal(tokens[3], 255);
    assert_int_equal(tokens_of(model, "x<|im_end|>", 11, false, true, tokens), 2);
    assert_int_equal(tokens[1], WEIR__FAKE_EOT);
    assert_int_equal(tokens_of(model, "x<|im_end|>", 11, false, false, tokens), 11);
    assert_int_equal(tokens_of(model, "<|im_end", 8, false, true, tokens), 8);
    assert_int_equal(tokens_of(model, " the", 4, false, false, tokens), 4);
    weir_model_release(model);

    model = fake_load("longest=1");
    assert_int_equal(tokens_of(model, " the", 4, false, false, tokens), 1);
    assert_int_equal(tokens[0], WEIR__FAKE_WORDS);
    assert_int_equal(tokens_of(model, " thx", 4, false, false, tokens), 4);
    weir_model_release(model);
}

static void test_pieces_can_be_any_bytes(void **state)
{
    (void)state;
    char bytes[64];
    weir_model *model = fake_load("");
    const weir__backend *ops = model->ops;
    assert_int_equal(ops->piece(model->model, 'a', false, bytes, 64), 1);
    assert_int_equal(bytes[0], 'a');
    assert_int_equal(ops->piece(model->model, WEIR__FAKE_EOT, false, bytes, 64), 0);
    assert_int_equal(ops->piece(model->model, WEIR__FAKE_EOT, true, bytes, 64), 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_int_equal(ops->piece(model->model, WEIR__FAKE_EOT, true, bytes, 9), -10);
    assert_true(ops->is_eog(model->model, WEIR__FAKE_EOS));
    assert_false(ops->is_eog(model->model, WEIR__FAKE_IM_START));

    assert_true(weir__fake_set_piece(model, 300, "\xe2\x82", 2, WEIR__FAKE_TEXT));
    assert_true(weir__fake_set_piece(model, 301, "", 0, WEIR__FAKE_TEXT));
    assert_true(weir__fake_set_piece(model, 302, "bye", 3, WEIR__FAKE_END));
    assert_true(weir__fake_set_piece(model, 302, "end", 3, WEIR__FAKE_END));
    assert_int_equal(ops->piece(model->model, 300, false, bytes, 64), 2);
    assert_memory_equal(bytes, "\xe2\x82", 2);
    assert_int_equal(ops->piece(model->model, 301, false, bytes, 64), 0);
    assert_true(ops->is_eog(model->model, 302));
    assert_int_equal(ops->piece(model->model, 302, true, bytes, 64), 3);
    assert_memory_equal(bytes, "end", 3);
    weir_model_release(model);
}

static void test_sizes_round_as_llama_cpp_rounds(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "", 1000, 3, WEIR_LAYOUT_UNIFIED);
    assert_int_equal(r.info.n_ctx, 1024);
    assert_int_equal(r.info.n_ctx_seq, 1024);
    assert_int_equal(r.info.n_batch, 1000);
    rig_fini(&r);
    rig_init(&r, "", 1000, 3, WEIR_LAYOUT_PER_SLOT);
    assert_int_equal(r.info.n_ctx_seq, 512);
    assert_int_equal(r.info.n_ctx, 1536);
    rig_fini(&r);
    rig_init(&r, "exact=1", 1000, 3, WEIR_LAYOUT_PER_SLOT);
    assert_int_equal(r.info.n_ctx_seq, 333);
    assert_int_equal(r.info.n_ctx, 999);
    rig_fini(&r);
}

/* ---- The next token ------------------------------------------------------------------------------- */

static void test_next_token_depends_on_history_and_seed_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig r;
        rig_init(&r, "seed=3", 256, 4, layouts[i]);
        assert_int_equal(append(&r, 0, "hello"), WEIR_OK);
        assert_int_equal(chosen(&r), expected(&r, "hello"));
        /* the same in parts, in another sequence, in company */
        assert_int_equal(append(&r, 2, "he"), WEIR_OK);
        assert_int_equal(append(&r, 1, "world"), WEIR_OK);
        assert_int_equal(append(&r, 2, "llo"), WEIR_OK);
        assert_int_equal(chosen(&r), expected(&r, "hello"));
        rig_fini(&r);
    }
    rig a, b;
    int different = 0;
    rig_init(&a, "seed=3", 256, 1, WEIR_LAYOUT_UNIFIED);
    rig_init(&b, "seed=4", 256, 1, WEIR_LAYOUT_UNIFIED);
    static const char *const texts[] = {"a", "b", "c", "d", "e"};
    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        different += expected(&a, texts[i]) != expected(&b, texts[i]);
    assert_true(different >= 3);
    rig_fini(&a);
    rig_fini(&b);
}

static int32_t length_as_token(void *user, const int32_t *history, int32_t n)
{
    (void)history;
    *(int *)user += 1;
    return n == 4 ? -1 : n;
}

static void test_next_can_be_the_tests_own(void **state)
{
    (void)state;
    rig r;
    int calls = 0;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    int32_t by_hash = expected(&r, "abcd");
    r.fake->next = length_as_token;
    r.fake->next_user = &calls;
    append(&r, 0, "abc");
    assert_int_equal(calls, 1);
    assert_int_equal(chosen(&r), 3);
    assert_int_equal(expected(&r, "abc"), 3);
    append(&r, 0, "d");
    assert_int_equal(chosen(&r), by_hash);
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static int32_t no_token(void *user, const int32_t *history, int32_t n)
{
    (void)user, (void)history, (void)n;
    return 100000;
}

static void test_a_next_that_is_no_token_is_seen(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "", 256, 1, WEIR_LAYOUT_UNIFIED);
    r.fake->next = no_token;
    append(&r, 0, "abc");
    assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_NEXT);
    rig_fini(&r);
}

static void test_ends_come_as_often_as_asked(void **state)
{
    (void)state;
    int ends = 0, odd = 0;
    weir_model *model = fake_load("eos_every=20"), *any = fake_load("any=1");
    for (int32_t i = 0; i < 20000; i++) {
        int32_t history[2] = {i % 256, i / 256};
        ends += weir_is_eog(model, weir__fake_next(model, history, 2));
        int32_t token = weir__fake_next(any, history, 2);
        assert_false(weir_is_eog(any, token));
        odd += (token >= 128 && token < 256) || token == WEIR__FAKE_BOS || token == WEIR__FAKE_IM_START;
    }
    assert_in_range(ends, 850, 1150);
    assert_true(odd > 5000);
    weir_model_release(model);
    weir_model_release(any);
}

/* ---- Failures on demand --------------------------------------------------------------------------- */

static void test_passes_fail_when_asked(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "", 256, 2, WEIR_LAYOUT_UNIFIED);
    atomic_store(&r.fake->fail_decode_at, 1);
    assert_int_equal(append(&r, 0, "a"), WEIR_OK);
    assert_int_equal(append(&r, 0, "bcd"), WEIR_BACKEND);
    assert_int_equal(r.ops->seq_pos_max(r.context, 0), 0);
    assert_int_equal(append(&r, 0, "b"), WEIR_OK);

    atomic_store(&r.fake->fail_decode_at, 0);
    atomic_store(&r.fake->fail_decode_more, 2);
    atomic_store(&r.fake->fail_decode_status, WEIR_NO_SPACE);
    for (int i = 0; i < 3; i++) assert_int_equal(append(&r, 0, "c"), WEIR_NO_SPACE);
    assert_int_equal(append(&r, 0, "c"), WEIR_OK);

    atomic_store(&r.fake->fail_decode_at, 0);
    atomic_store(&r.fake->fail_decode_more, INT64_MAX);
    atomic_store(&r.fake->fail_decode_status, WEIR_BACKEND);
    atomic_store(&r.fake->fail_decode_keep, 2);
    assert_int_equal(append(&r, 1, "wxyz"), WEIR_BACKEND);
    assert_int_equal(r.ops->seq_pos_max(r.context, 1), 1);
    for (int i = 0; i < 5; i++) assert_int_equal(append(&r, 0, "d"), WEIR_BACKEND);
    assert_int_equal(atomic_load(&r.fake->n_passes), 3);
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static void test_other_calls_fail_when_asked(void **state)
{
    (void)state;
    char bytes[256];
    int32_t token;
    weir_sampler_params params = weir_sampler_params_default();
    rig r;
    rig_init(&r, "", 256, 2, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, "abc");
    weir__bsampler *sampler = sampler_of(&r, &params);
    atomic_store(&r.fake->fail_sample_at, 1);
    assert_int_equal(r.ops->sample(sampler, r.context, -1, NULL, &token, NULL), WEIR_OK);
    assert_int_equal(r.ops->sample(sampler, r.context, -1, NULL, &token, NULL), WEIR_BACKEND);
    assert_int_equal(r.ops->sample(sampler, r.context, -1, NULL, &token, NULL), WEIR_OK);
    assert_int_equal(atomic_load(&r.fake->n_samples), 2);
    r.ops->sampler_free(sampler);

    atomic_store(&r.fake->fail_state_save, true);
    assert_int_equal(r.ops->state_save(r.context, 0, bytes, sizeof bytes), 0);
    atomic_store(&r.fake->fail_state_save, false);
    size_t n = r.ops->state_save(r.context, 0, bytes, sizeof bytes);
    assert_true(n > 0);
    atomic_store(&r.fake->fail_state_load, true);
    assert_int_equal(r.ops->state_load(r.context, 1, bytes, n, NULL), WEIR_BACKEND);
    atomic_store(&r.fake->fail_state_load, false);
    assert_int_equal(r.ops->state_load(r.context, 1, bytes, n - 1, NULL), WEIR_FORMAT);
    assert_int_equal(r.ops->state_load(r.context, 1, bytes, 0, NULL), WEIR_FORMAT);
    bytes[5] = 0x7f;
    assert_int_equal(r.ops->state_load(r.context, 1, bytes, n, NULL), WEIR_FORMAT);
    atomic_store(&r.fake->fail_share, true);
    assert_int_equal(r.ops->share(r.context, 0, 1, 2, NULL), WEIR_BACKEND);
    rig_fini(&r);
}

/* ---- Counters for tests --------------------------------------------------------------------------- */

typedef struct seen {
    int decodes, samples;
    int32_t tokens, row;
} seen;

static void see_decode(void *user, const weir__batch *batch)
{
    seen *s = user;
    s->decodes++;
    s->tokens += batch->n;
}

static void see_sample(void *user, int32_t row)
{
    seen *s = user;
    s->samples++;
    s->row = row;
}

static void test_hooks_log_and_counters(void **state)
{
    (void)state;
    seen s = {0};
    size_t n;
    int32_t token;
    weir_sampler_params params = weir_sampler_params_default();
    rig r;
    rig_init(&r, "", 256, 2, WEIR_LAYOUT_UNIFIED);
    r.fake->before_decode = see_decode;
    r.fake->before_decode_user = &s;
    r.fake->before_sample = see_sample;
    r.fake->before_sample_user = &s;
    append(&r, 0, "a");
    weir__fake_log_start(r.model);
    append(&r, 1, "bc");
    weir__bsampler *sampler = sampler_of(&r, &params);
    assert_ok(r.ops->sample(sampler, r.context, 1, NULL, &token, error));
    r.ops->sampler_free(sampler);

    assert_int_equal(s.decodes, 2);
    assert_int_equal(s.tokens, 3);
    assert_int_equal(s.samples, 1);
    assert_int_equal(s.row, 1);
    const weir__fake_entry *log = weir__fake_log(r.model, &n);
    assert_int_equal(n, 2);
    assert_int_equal(log[1].pass, 1);
    assert_int_equal(log[1].token, 'c');
    assert_int_equal(log[1].pos, 1);
    assert_int_equal(log[1].seq, 1);
    assert_true(log[1].logits);
    assert_false(log[0].logits);
    assert_int_equal(atomic_load(&r.fake->n_passes), 2);
    assert_int_equal(atomic_load(&r.fake->n_tokens), 3);
    assert_int_equal(atomic_load(&r.fake->n_rows), 2);
    rig_fini(&r);
}

static void test_a_pass_takes_its_time(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "tick_us=2000,token_us=1000", 256, 1, WEIR_LAYOUT_UNIFIED);
    int64_t start = weir__clock_now_ns();
    append(&r, 0, "abc");
    assert_true(weir__clock_now_ns() - start >= 5 * WEIR__NS_PER_MS);
    atomic_store(&r.fake->tick_us, 0);
    atomic_store(&r.fake->token_us, 0);
    rig_fini(&r);
}

/* ---- Logits and embeddings ------------------------------------------------------------------------ */

static void test_rows_keep_their_own_logits(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "", 256, 2, WEIR_LAYOUT_UNIFIED);
    r.batch.n = 0;
    weir__batch_add(&r.batch, 'a', 0, 0, true);
    weir__batch_add(&r.batch, 'x', 0, 1, false);
    weir__batch_add(&r.batch, 'b', 1, 0, true);
    assert_ok(r.ops->decode(r.context, &r.batch, error));
    const float *first = r.ops->logits(r.context, 0), *last = r.ops->logits(r.context, 2);
    assert_ptr_not_equal(first, last);
    assert_ptr_equal(last, r.ops->logits(r.context, -1));
    assert_int_equal(argmax(first, 320), expected(&r, "a"));
    assert_int_equal(argmax(last, 320), expected(&r, "ab"));
    rig_fini(&r);
}

static void test_embeddings_pool(void **state)
{
    (void)state;
    static const weir_pooling poolings[] = {WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_MEAN, WEIR_POOLING_CLS,
                                            WEIR_POOLING_LAST};
    float rows[3][WEIR__FAKE_WIDTH];
    weir_model *model = fake_load("");
    const weir__backend *ops = model->ops;
    weir_context_params params = weir_context_params_default();
    weir__batch batch;
    assert_ok(weir__batch_init(&batch, 8, error));
    for (int32_t i = 0; i < 3; i++) weir__batch_add(&batch, 'a' + i, i, 1, true);
    params.n_batch = 64;
    params.n_seq_max = 2;
    params.layout = WEIR_LAYOUT_UNIFIED;
    params.embeddings = true;
    params.pooling = WEIR_POOLING_NONE;
    for (int pass = 0; pass < 5; pass++) {
        weir__bcontext *context = NULL;
        weir_context_info info;
        if (pass > 0) params.pooling = poolings[pass - 1];
        assert_ok(ops->context_create(model->model, &params, &context, &info, error));
        assert_ok(ops->decode(context, &batch, error));
        assert_int_equal(ops->embedding_width(context), WEIR__FAKE_WIDTH);
        if (pass == 0) {
            for (int32_t i = 0; i < 3; i++) memcpy(rows[i], ops->embedding(context, i, 1), sizeof rows[i]);
            assert_null(ops->embedding(context, -1, 1));
            assert_null(ops->embedding(context, 3, 1));
        } else {
            const float *pool = ops->embedding(context, -1, 1);
            assert_null(ops->embedding(context, 0, 1));
            assert_null(ops->embedding(context, -1, 0));
            for (int32_t k = 0; k < WEIR__FAKE_WIDTH; k++) {
                float mean = (rows[0][k] + rows[1][k] + rows[2][k]) / 3.0f;
                float want = info.pooling == WEIR_POOLING_MEAN  ? mean
                             : info.pooling == WEIR_POOLING_CLS ? rows[0][k]
                                                                : rows[2][k];
                assert_float_equal(pool[k], want, 1e-5);
            }
        }
        ops->context_free(context);
    }
    weir__batch_fini(&batch);
    fake_release(model);
}

/* ---- Threads -------------------------------------------------------------------------------------- */

typedef struct worker {
    rig *r;
    int32_t row;
    int32_t sampled, read;
} worker;

static void *work(void *user)
{
    worker *w = user;
    weir_sampler_params params = weir_sampler_params_default();
    weir__bsampler *sampler = NULL;
    const weir__backend *ops = w->r->ops;
    params.temp = 0.0f;
    if (ops->sampler_create(w->r->model->model, &params, NULL, &sampler, NULL) != WEIR_OK) return NULL;
    for (int i = 0; i < 100; i++)
        if (ops->sample(sampler, w->r->context, w->row, NULL, &w->sampled, NULL) != WEIR_OK) w->sampled = -1;
    w->read = argmax(ops->logits(w->r->context, w->row), w->r->model->info.n_vocab);
    ops->sampler_free(sampler);
    return NULL;
}

static void test_rows_are_sampled_in_parallel(void **state)
{
    (void)state;
    rig r;
    pthread_t threads[8];
    worker workers[8];
    rig_init(&r, "", 256, 8, WEIR_LAYOUT_UNIFIED);
    r.batch.n = 0;
    for (int32_t i = 0; i < 8; i++) weir__batch_add(&r.batch, 'a' + i / 2, 0, i, true);
    assert_ok(r.ops->decode(r.context, &r.batch, error));
    r.ops->logits_ready(r.context);
    for (int32_t i = 0; i < 8; i++) {
        workers[i] = (worker){.r = &r, .row = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int32_t i = 0; i < 8; i++) {
        int32_t history = 'a' + i / 2;
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].sampled, weir__fake_next(r.model, &history, 1));
        assert_int_equal(workers[i].read, workers[i].sampled);
    }
    assert_int_equal(atomic_load(&r.fake->n_samples), 800);
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_options_are_read_and_bad_ones_named, nothing_left),
        cmocka_unit_test_teardown(test_a_load_may_take_its_time, nothing_left),
        cmocka_unit_test_teardown(test_the_guide_names_every_option, nothing_left),
        cmocka_unit_test_teardown(test_tokenizer_gives_bytes_and_specials, nothing_left),
        cmocka_unit_test_teardown(test_pieces_can_be_any_bytes, nothing_left),
        cmocka_unit_test_teardown(test_sizes_round_as_llama_cpp_rounds, nothing_left),
        cmocka_unit_test_teardown(test_next_token_depends_on_history_and_seed_alone, nothing_left),
        cmocka_unit_test_teardown(test_next_can_be_the_tests_own, nothing_left),
        cmocka_unit_test_teardown(test_a_next_that_is_no_token_is_seen, nothing_left),
        cmocka_unit_test_teardown(test_ends_come_as_often_as_asked, nothing_left),
        cmocka_unit_test_teardown(test_passes_fail_when_asked, nothing_left),
        cmocka_unit_test_teardown(test_other_calls_fail_when_asked, nothing_left),
        cmocka_unit_test_teardown(test_hooks_log_and_counters, nothing_left),
        cmocka_unit_test_teardown(test_a_pass_takes_its_time, nothing_left),
        cmocka_unit_test_teardown(test_rows_keep_their_own_logits, nothing_left),
        cmocka_unit_test_teardown(test_embeddings_pool, nothing_left),
        cmocka_unit_test_teardown(test_rows_are_sampled_in_parallel, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
