/* pass_test.c: contexts, passes and embeddings, with the real model.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "support/effort.h"
#include "support/llama.h"

#define PROMPT "<|im_start|>user\nName three rivers of Europe.<|im_end|>\n<|im_start|>assistant\n"

/* ---- Context -------------------------------------------------------------------------------------- */

static void sizes_are_rounded_up(void **state)
{
    (void)state;
    static const struct {
        int32_t n_ctx, n_batch, n_ubatch, n_seq;
        weir_layout layout;
        int32_t want_ctx, want_seq;
    } cases[] = {
        {1, 1, 1, 1, WEIR_LAYOUT_AUTO, 256, 256},
        {1, 1, 1, 8, WEIR_LAYOUT_PER_SLOT, 2048, 256},
        {1, 1, 1, 8, WEIR_LAYOUT_UNIFIED, 256, 256},
        {300, 7, 3, 3, WEIR_LAYOUT_PER_SLOT, 768, 256},
        {1024, 512, 32, 4, WEIR_LAYOUT_PER_SLOT, 1024, 256},
        {1024, 4096, 512, 4, WEIR_LAYOUT_UNIFIED, 1024, 1024},
        {512, 1, 1, 256, WEIR_LAYOUT_UNIFIED, 512, 512},
    };
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        rig r;
        weir_context_params params = rig_params(cases[i].n_ctx, cases[i].n_seq, cases[i].layout);
        params.n_batch = cases[i].n_batch;
        params.n_ubatch = cases[i].n_ubatch;
        rig_init_with(&r, &params);
        assert_int_equal(r.info.n_ctx, cases[i].want_ctx);
        assert_int_equal(r.info.n_ctx_seq, cases[i].want_seq);
        assert_int_equal(r.info.n_seq_max, cases[i].n_seq);
        assert_true(r.info.n_batch >= cases[i].n_seq && r.info.n_ubatch >= 1);
        feed_text(&r, cases[i].n_seq - 1, "a");
        assert_true(chosen(&r) >= 0);
        rig_fini(&r);
    }
}

static void every_kv_type(void **state)
{
    (void)state;
    for (int k = WEIR_KV_F16; k <= WEIR_KV_Q4_0; k++)
        for (int i = 0; i < 2; i++) {
            int v = i == 0 ? k : WEIR_KV_Q4_0 - k;
            weir_context_params params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
            rig r = {0};
            weir_error why = {0};
            params.type_k = (weir_kv_type)k;
            params.type_v = (weir_kv_type)v;
            weir_status status = ops->context_create(model, &params, &r.context, &r.info, &why);
            if (status == WEIR_OK) {
                assert_ok(weir__batch_init(&r.batch, r.info.n_batch, error));
                feed_text(&r, 0, "The capital of France is");
                assert_true(chosen(&r) >= 0);
                rig_fini(&r);
            } else {
                assert_int_equal(status, WEIR_UNSUPPORTED);
                assert_true(strlen(why.message) > 20);
            }
        }
    /* 30 layers of 3 heads of 64, K and V */
    if (model_is.n_layer == 30) {
        assert_int_equal(ops->cell_bytes(model, WEIR_KV_F16, WEIR_KV_F16), 30 * 2 * 3 * 64 * 2);
        assert_int_equal(ops->cell_bytes(model, WEIR_KV_Q8_0, WEIR_KV_F32), 30 * 3 * (2 * 34 + 64 * 4));
    }
}

static void contexts_that_cannot_be(void **state)
{
    (void)state;
    weir__bcontext *context = NULL;
    weir_context_info info;
    weir_context_params params = rig_params(1 << 30, 1, WEIR_LAYOUT_AUTO);
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_NO_MEMORY, "n_ctx");
    params = rig_params(256, 257, WEIR_LAYOUT_AUTO);
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_INVALID, "n_seq_max");
    params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    params.n_threads = 0;
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_INVALID, "n_threads");
    params.n_threads = 1 << 20;
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_INVALID, "n_threads");
    params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    params.embeddings = true;
    params.pooling = WEIR_POOLING_RANK;
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_UNSUPPORTED, "pooling");

    params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    params.n_threads = 1;
    long live = weir__mem_live();
    int n_cleared = 0; /* buffers that are cleared by writing to them, without memory for a note */
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = ops->context_create(model, &params, &context, &info, NULL);
        bool reached = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) ops->context_free(context);
        assert_int_equal(weir__mem_live(), live);
        if (!reached) {
            assert_int_equal(status, WEIR_OK);
            break;
        }
        if (status == WEIR_OK)
            n_cleared++;
        else
            assert_int_equal(status, WEIR_NO_MEMORY);
    }
    assert_in_range(n_cleared, 0, 2); /* cells, logits */
}

/* ---- Passes --------------------------------------------------------------------------------------- */

/* n_tokens: up to 64 */
static void check_greedy(int32_t n_ctx, int32_t n_seq, weir_layout layout, int32_t n_threads, size_t n_tokens)
{
    int32_t want[64], tokens[256];
    plain_greedy(PROMPT, n_ctx, n_seq, layout == WEIR_LAYOUT_UNIFIED, n_threads, want, n_tokens);
    rig r;
    weir_context_params context = rig_params(n_ctx, n_seq, layout);
    context.n_threads = context.n_threads_batch = n_threads;
    rig_init_with(&r, &context);
    size_t n = tokens_of(PROMPT, true, tokens, N_ELEMENTS(tokens));
    assert_ok(feed(&r, 0, tokens, n, error));
    weir_sampler_params params = greedy_params();
    weir__bsampler *sampler = sampler_of(&params, NULL);
    for (size_t i = 0; i < n_tokens; i++) {
        int32_t token = -1;
        ops->logits_ready(r.context);
        assert_ok(ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_int_equal(token, want[i]);
        assert_ok(feed(&r, 0, &token, 1, error));
    }
    ops->sampler_free(sampler);
    rig_fini(&r);
}

static void greedy_is_what_a_plain_loop_gives(void **state)
{
    (void)state;
    check_greedy(512, 1, WEIR_LAYOUT_PER_SLOT, 2, 16);
    check_greedy(1024, 4, WEIR_LAYOUT_PER_SLOT, 1, EFFORT(64, 16));
    check_greedy(1024, 4, WEIR_LAYOUT_UNIFIED, 1, EFFORT(64, 16));
}

/* Rows come back under the index of their entry, also when llama.cpp computes lanes in another order. */
static void rows_are_those_of_their_entries(void **state)
{
    (void)state;
    static const char *const texts[] = {"One two three", "The sun is", "Alpha beta gamma delta", "x"};
    for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        rig r;
        int32_t ids[4][16];
        size_t n[4];
        float *alone[4];
        rig_init(&r, 1024, 4, (weir_layout)layout);
        for (int s = 0; s < 4; s++) {
            n[s] = tokens_of(texts[s], false, ids[s], 16);
            ops->clear(r.context);
            assert_ok(feed(&r, s, ids[s], n[s], error));
            alone[s] = row_copy(&r, -1);
        }
        ops->clear(r.context);
        /* the lanes from the last to the first, their tokens interleaved */
        int32_t last[4];
        r.batch.n = 0;
        for (size_t i = 0; i < 16; i++)
            for (int s = 3; s >= 0; s--)
                if (i < n[s]) last[s] = weir__batch_add(&r.batch, ids[s][i], (int32_t)i, s, i + 1 == n[s]);
        assert_ok(ops->decode(r.context, &r.batch, error));
        ops->logits_ready(r.context);
        for (int s = 0; s < 4; s++) assert_row_is(&r, last[s], alone[s]);
        assert_null(ops->logits(r.context, last[3] + 1)); /* lane 2 goes on there */
        assert_null(ops->logits(r.context, r.batch.n));
        for (int s = 0; s < 4; s++) free(alone[s]);
        rig_fini(&r);
    }
}

static void rows_without_logits(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    assert_null(ops->logits(r.context, -1));
    r.batch.n = 0;
    weir__batch_add(&r.batch, 100, 0, 0, false);
    assert_ok(ops->decode(r.context, &r.batch, error));
    assert_null(ops->logits(r.context, 0));
    assert_null(ops->logits(r.context, -1));
    assert_null(ops->embedding(r.context, 0, 0));
    weir_sampler_params params = greedy_params();
    weir__bsampler *sampler = sampler_of(&params, NULL);
    int32_t token;
    assert_refused(ops->sample(sampler, r.context, -1, NULL, &token, error), WEIR_INVALID, "index");
    ops->sampler_free(sampler);
    rig_fini(&r);
}

static void batches_that_are_refused(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 256, 2, WEIR_LAYOUT_UNIFIED);
    feed_text(&r, 0, "The sun is");
    int32_t last = ops->seq_pos_max(r.context, 0);
    float *before = row_copy(&r, -1);

    r.batch.n = 0;
    assert_refused(ops->decode(r.context, &r.batch, error), WEIR_INVALID, "batch");
    weir__batch_add(&r.batch, 100, last + 2, 0, true); /* a gap */
    assert_refused(ops->decode(r.context, &r.batch, error), WEIR_INVALID, "batch");
    r.batch.n = 0;
    weir__batch_add(&r.batch, 100, last, 0, true); /* again */
    assert_refused(ops->decode(r.context, &r.batch, error), WEIR_INVALID, "batch");
    assert_null(ops->logits(r.context, -1));
    assert_int_equal(ops->seq_pos_max(r.context, 0), last);
    r.batch.n = r.info.n_batch + 1;
    assert_refused(ops->decode(r.context, &r.batch, error), WEIR_INVALID, "batch");

    /* as if nothing had happened */
    int32_t id = 260;
    assert_ok(feed(&r, 0, &id, 1, error));
    float *after = row_copy(&r, -1);
    ops->clear(r.context);
    feed_text(&r, 0, "The sun is");
    assert_row_is(&r, -1, before);
    assert_ok(feed(&r, 0, &id, 1, error));
    assert_row_is(&r, -1, after);
    free(after);
    free(before);
    rig_fini(&r);
}

static void no_cells_left(void **state)
{
    (void)state;
    for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        rig r;
        rig_init(&r, 256, 1, (weir_layout)layout);
        int32_t ids[200];
        for (int i = 0; i < 200; i++) ids[i] = 300 + i;
        assert_ok(feed(&r, 0, ids, 200, error));
        assert_refused(feed(&r, 0, ids, 57, error), WEIR_NO_SPACE, "");
        assert_int_equal(ops->seq_pos_max(r.context, 0), 199);
        assert_ok(feed(&r, 0, ids, 56, error));
        assert_refused(feed(&r, 0, ids, 1, error), WEIR_NO_SPACE, "");
        assert_int_equal(ops->seq_pos_max(r.context, 0), 255);
        assert_true(ops->seq_remove(r.context, 0, 10, -1));
        assert_ok(feed(&r, 0, ids, 1, error));
        rig_fini(&r);
    }
}

static bool abort_now(void *user)
{
    ++*(int *)user;
    return true;
}

static void a_pass_is_aborted(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    int asked = 0;
    int32_t ids[] = {100, 200, 300};
    ops->set_abort(r.context, abort_now, &asked);
    assert_refused(feed(&r, 0, ids, 3, error), WEIR_ABORTED, "");
    assert_true(asked > 0);
    assert_null(ops->logits(r.context, -1));
    ops->set_abort(r.context, NULL, NULL);
    ops->clear(r.context);
    assert_ok(feed(&r, 0, ids, 3, error));
    assert_true(chosen(&r) >= 0);
    rig_fini(&r);
}

static void *generate_apart(void *out)
{
    rig r;
    int32_t ids[256], *got = out;
    rig_init(&r, 512, 1, WEIR_LAYOUT_AUTO);
    size_t n = tokens_of(PROMPT, true, ids, N_ELEMENTS(ids));
    assert_ok(feed(&r, 0, ids, n, error));
    for (int i = 0; i < 32; i++) {
        got[i] = chosen(&r);
        assert_ok(feed(&r, 0, &got[i], 1, error));
    }
    rig_fini(&r);
    return NULL;
}

static void two_contexts_at_once(void **state)
{
    (void)state;
    int32_t got[2][32];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate_apart, got[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* ---- Embeddings ----------------------------------------------------------------------------------- */

static void pooled_embeddings(void **state)
{
    (void)state;
    weir_context_params params = rig_params(512, 2, WEIR_LAYOUT_UNIFIED);
    params.embeddings = true;
    params.pooling = WEIR_POOLING_MEAN;
    params.n_ubatch = 8; /* smaller than the texts: an embedding takes one micro-batch all the same */
    rig r;
    rig_init_with(&r, &params);
    assert_int_equal(r.info.pooling, WEIR_POOLING_MEAN);
    assert_int_equal(ops->embedding_width(r.context), model_is.n_embd_out);
    int32_t ids[2][64];
    size_t n[2] = {tokens_of("A dog runs over the green field.", false, ids[0], 64),
                   tokens_of("Quarterly profits rose by nine percent.", false, ids[1], 64)};
    r.batch.n = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < n[s]; i++) weir__batch_add(&r.batch, ids[s][i], (int32_t)i, s, true);
    assert_ok(ops->decode(r.context, &r.batch, error));
    ops->logits_ready(r.context);
    const float *a = ops->embedding(r.context, -1, 0), *b = ops->embedding(r.context, -1, 1);
    assert_non_null(a);
    assert_non_null(b);
    double dot = 0, aa = 0, bb = 0;
    for (int32_t i = 0; i < model_is.n_embd_out; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    assert_true(aa > 0 && bb > 0 && dot < 0.999 * sqrt(aa * bb));
    assert_null(ops->embedding(r.context, 0, 0));
    rig_fini(&r);
}

/* Sequences that do not divide the batch made llama.cpp abort. */
static void any_sequences_and_batches(void **state)
{
    (void)state;
    static const int32_t batches[] = {7, 61, 255, 256, 300, 511, 512};
    static const weir_pooling poolings[] = {WEIR_POOLING_MEAN, WEIR_POOLING_CLS, WEIR_POOLING_LAST,
                                            WEIR_POOLING_NONE};
    for (size_t p = 0; p < N_ELEMENTS(poolings); p++)
        for (size_t b = 0; b < N_ELEMENTS(batches); b++)
            for (int32_t n = 1; n <= 7; n += EFFORT(1, 3)) {
                weir_context_params params =
                    rig_params(500, n, n % 2 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT);
                params.embeddings = true;
                params.pooling = poolings[p];
                params.n_batch = batches[b];
                rig r;
                rig_init_with(&r, &params);
                assert_in_range(r.info.n_batch, batches[b] - n, batches[b] + n);
                feed_text(&r, n - 1, "one two");
                rig_fini(&r);
            }
}

static void token_embeddings(void **state)
{
    (void)state;
    weir_context_params params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    params.embeddings = true;
    params.pooling = WEIR_POOLING_NONE;
    rig r;
    rig_init_with(&r, &params);
    feed_text(&r, 0, "one two three");
    ops->logits_ready(r.context);
    for (int32_t i = 0; i < r.batch.n; i++) {
        const float *row = ops->embedding(r.context, i, 0);
        assert_non_null(row);
        assert_true(isfinite(row[0]) && row[0] != 0.0f);
    }
    assert_null(ops->embedding(r.context, r.batch.n, 0));
    assert_null(ops->embedding(r.context, -1, 0));
    rig_fini(&r);
}

/* Rows of logits, one for each token, would be most of what a long text takes. */
static void embeddings_have_no_logits(void **state)
{
    (void)state;
    static const weir_pooling poolings[] = {WEIR_POOLING_MEAN, WEIR_POOLING_LAST, WEIR_POOLING_NONE};
    for (size_t p = 0; p < N_ELEMENTS(poolings); p++) {
        weir_context_params params = rig_params(2048, 1, WEIR_LAYOUT_AUTO);
        params.embeddings = true;
        params.pooling = poolings[p];
        params.n_batch = 2048;
        weir_context_info info;
        uint64_t kv_bytes, compute_bytes;
        assert_ok(ops->context_estimate(model, &params, &info, &kv_bytes, &compute_bytes, error));
        const uint64_t logits = (uint64_t)params.n_batch * (uint64_t)model_is.n_vocab * sizeof(float);
        assert_true(compute_bytes < logits / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_up),
        cmocka_unit_test(every_kv_type),
        cmocka_unit_test(contexts_that_cannot_be),
        cmocka_unit_test(greedy_is_what_a_plain_loop_gives),
        cmocka_unit_test(rows_are_those_of_their_entries),
        cmocka_unit_test(rows_without_logits),
        cmocka_unit_test(batches_that_are_refused),
        cmocka_unit_test(no_cells_left),
        cmocka_unit_test(a_pass_is_aborted),
        cmocka_unit_test(two_contexts_at_once),
        cmocka_unit_test(pooled_embeddings),
        cmocka_unit_test(any_sequences_and_batches),
        cmocka_unit_test(token_embeddings),
        cmocka_unit_test(embeddings_have_no_logits),
    };
    return RUN_MODEL_TESTS(tests);
}
