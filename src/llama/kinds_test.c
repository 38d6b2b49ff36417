/* kinds_test.c: models that are not like the default one: recurrent, hybrid, sliding window, experts,
 * embeddings, ranking; made by scripts/tiny_gguf.py.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>
#include <unistd.h>

#include "hook/hook.h"
#include "llama/internal.h"
#include "support/llama.h"
#include "support/temp.h"

/* kind: the generator's arguments. */
static void make(const char *kind)
{
    char path[TEMP_PATH_MAX];
    temp_model(path, "model.gguf", kind);
    use_model(path);
}

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* Feeds tokens in passes of few rows, so that ggml computes all of them in one way. */
static void feed_slowly(rig *r, int32_t seq, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i += 16) assert_ok(feed(r, seq, ids + i, n - i < 16 ? n - i : 16, error));
}

/* The logits after n tokens and one more, computed alone. */
static float *expected(const int32_t *ids, size_t n, int32_t next, weir_layout layout)
{
    rig r;
    rig_init(&r, 2048, 4, layout);
    feed_slowly(&r, 0, ids, n);
    assert_ok(feed(&r, 0, &next, 1, error));
    float *row = row_copy(&r, -1);
    rig_fini(&r);
    return row;
}

/* A refused cut does nothing at all. */
static void is_not_cut(const char *kind)
{
    make(kind);
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t ids[12];
        some_tokens(ids, 0, 12);
        float *want = expected(ids, 12, 3, layouts[l]);
        rig_init(&r, 2048, 4, layouts[l]);
        assert_ok(feed(&r, 0, ids, 12, error));
        assert_false(ops->seq_remove(r.context, 0, 5, -1));
        assert_false(ops->seq_remove(r.context, 0, 0, 5));
        assert_false(ops->seq_remove(r.context, 0, 3, 5));
        assert_refused(ops->share(r.context, 0, 1, 5, error), WEIR_UNSUPPORTED, "");
        assert_int_equal(ops->seq_pos_max(r.context, 1), -1);
        assert_ok(ops->share(r.context, 0, 1, 12, error));
        ops->seq_copy(r.context, 0, 2, 0, 12);
        ops->seq_copy(r.context, 0, 2, 0, 5);
        size_t size = ops->state_size(r.context, 0);
        void *bytes = malloc(size);
        assert_int_equal(ops->state_save(r.context, 0, bytes, size), size);
        assert_ok(ops->state_load(r.context, 3, bytes, size, error));
        for (int32_t s = 0; s < 4; s++) check_next(&r, s, 3, want);
        assert_true(ops->seq_remove(r.context, 0, 0, -1));
        assert_ok(feed(&r, 0, ids, 12, error));
        check_next(&r, 0, 3, want);
        free(bytes);
        free(want);
        rig_fini(&r);
    }
}

static void recurrent_memory_is_not_cut(void **state)
{
    (void)state;
    is_not_cut("mamba");
    assert_true(model_is.is_recurrent && !model_is.is_hybrid);
}

static void hybrid_memory_is_not_cut(void **state)
{
    (void)state;
    is_not_cut("jamba");
    assert_true(model_is.is_hybrid);
}

static void a_window_that_slid_away(void **state)
{
    (void)state;
    make("swa");
    assert_int_equal(model_is.n_swa, 32);
    for (size_t l = 0; l < 2; l++) {
        enum {
            N = 150,
            CUT = 90
        }; /* together under the 512 cells from which on ggml computes in another way */
        rig r;
        int32_t ids[N];
        some_tokens(ids, 0, N);
        float *want = expected(ids, CUT, 3, layouts[l]);
        rig_init(&r, 2048, 4, layouts[l]);
        for (int32_t s = 0; s < 2; s++) feed_slowly(&r, s, ids, N);
        /* A share gives the right result if the cells are still there; otherwise it is refused, and nothing
         * was done. In this order no token comes into a cell before those it looks back on: sums are made in
         * the order of cells, so that would change the bits. */
        if (ops->share(r.context, 1, 3, CUT, NULL) == WEIR_OK)
            check_next(&r, 3, 3, want);
        else
            assert_int_equal(ops->seq_pos_max(r.context, 3), -1);
        if (ops->seq_remove(r.context, 0, CUT, -1))
            check_next(&r, 0, 3, want);
        else
            assert_int_equal(ops->seq_pos_max(r.context, 0), N - 1);
        free(want);
        rig_fini(&r);
    }
}

/* The shortest beginning of a sequence to which it can be cut goes on with the right bits. */
static int32_t cut_as_far_as_it_goes(rig *r, int32_t seq, const int32_t *ids, weir_layout layout)
{
    int32_t least = 1;
    while (!ops->seq_remove(r->context, seq, least, -1)) least++;
    if (*weir__hook_kernels() == '\0') return least; /* ggml adds in the order of the cells */
    float *want = expected(ids, (size_t)least, 3, layout);
    check_next(r, seq, 3, want);
    free(want);
    return least;
}

/* Of the tokens that one micro-batch appended, all but the first can be removed again, while sequences come
 * and go, so that in a pool cells of their windows are overwritten. */
static void a_window_gives_back_what_a_pass_added(void **state)
{
    (void)state;
    make("swa");
    for (size_t l = 0; l < 2; l++) {
        enum { N_SEQ = 4, N = 110, N_PASSES = 200 };
        rig r;
        int32_t ids[N_SEQ][N], wrong[8], n[N_SEQ] = {0}, n_lost = 0;
        uint32_t dice = 1;
        rig_init(&r, layouts[l] == WEIR_LAYOUT_UNIFIED ? 512 : 2048, N_SEQ, layouts[l]);
        some_tokens(wrong, 300, 8);
        for (int32_t s = 0; s < N_SEQ; s++) some_tokens(ids[s], s, N);
        for (int pass = 0; pass < N_PASSES; pass++) {
            int32_t kept[N_SEQ], added = 1 + (int32_t)(dice >> 16) % 8;
            r.batch.n = 0;
            for (int32_t s = 0; s < N_SEQ; s++) {
                dice = dice * 1664525 + 1013904223;
                kept[s] = 1 + (int32_t)(dice >> 16) % added;
                if (n[s] + added > N) { /* a new text */
                    assert_true(ops->seq_remove(r.context, s, 0, -1));
                    n[s] = 0;
                }
                for (int32_t i = 0; i < added; i++)
                    weir__batch_add(&r.batch, i < kept[s] ? ids[s][n[s] + i] : wrong[i], n[s] + i, s, true);
            }
            assert_ok(ops->decode(r.context, &r.batch, error));
            for (int32_t s = 0; s < N_SEQ; s++)
                assert_true(ops->seq_remove(r.context, s, n[s] += kept[s], -1));
        }
        for (int32_t s = 0; s < N_SEQ; s++) n_lost += cut_as_far_as_it_goes(&r, s, ids[s], layouts[l]) > 1;
        assert_true(n_lost > 0 || layouts[l] == WEIR_LAYOUT_PER_SLOT);
        rig_fini(&r);
    }
}

/* Loads the state of the first tokens into a context of each layout, with another number of sequences, and
 * computes the rest there. */
static void goes_on_elsewhere(const void *bytes, size_t size, const int32_t *ids, size_t cut, size_t n)
{
    for (size_t l = 0; l < 2; l++) {
        rig r;
        float *want = expected(ids, n, 3, layouts[l]);
        rig_init(&r, 2048, 3, layouts[l]);
        assert_ok(ops->state_load(r.context, 2, bytes, size, error));
        assert_int_equal(ops->state_size(r.context, 2), size);
        feed_slowly(&r, 2, ids + cut, n - cut);
        check_next(&r, 2, 3, want);
        free(want);
        rig_fini(&r);
    }
}

/* A sequence that is saved during its prefill continues in another context with the same bits as if it had
 * been computed there. */
static void saved_on_the_way(const char *kind)
{
    enum { N = 150, CUT = 90 };
    make(kind);
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t ids[N];
        some_tokens(ids, 0, N);
        float *want = expected(ids, N, 3, layouts[l]);
        rig_init(&r, 2048, 4, layouts[l]);
        feed_slowly(&r, 0, ids, CUT);
        size_t size = ops->state_size(r.context, 0);
        void *bytes = malloc(size);
        assert_int_equal(ops->state_save(r.context, 0, bytes, size), size);
        feed_slowly(&r, 0, ids + CUT, N - CUT);
        assert_ok(ops->state_load(r.context, 2, bytes, size, error));
        assert_int_equal(ops->seq_pos_max(r.context, 2), CUT - 1);
        feed_slowly(&r, 2, ids + CUT, N - CUT);
        check_next(&r, 0, 3, want);
        check_next(&r, 2, 3, want);
        goes_on_elsewhere(bytes, size, ids, CUT, N);
        free(bytes);
        free(want);
        rig_fini(&r);
    }
}

static void a_recurrent_state_saved_on_the_way(void **state)
{
    (void)state;
    saved_on_the_way("mamba");
}

static void a_hybrid_state_saved_on_the_way(void **state)
{
    (void)state;
    saved_on_the_way("jamba");
}

static void a_window_saved_on_the_way(void **state)
{
    (void)state;
    saved_on_the_way("swa");
}

/* A sequence with a longer text is cut to where a part of its state was saved, beside its first owner and in
 * another context, and goes on with other tokens to the bits of one that was computed there. */
static void cut_by_a_part(const char *kind)
{
    enum { N = 150, CUT = 90 };
    make(kind);
    for (size_t l = 0; l < 4; l++) {
        weir_layout layout = layouts[l % 2];
        bool elsewhere = l / 2 == 1;
        rig r, other;
        int32_t ids[N], edited[N];
        some_tokens(ids, 0, N);
        some_tokens(edited, 5, N);
        memcpy(edited, ids, CUT * sizeof *ids);
        float *want = expected(edited, N, 3, layout), *want_first = expected(ids, N, 3, layout);
        rig_init(&r, 2048, 4, layout);
        rig_init(&other, 2048, 3, layouts[(l + 1) % 2]);
        feed_slowly(&r, 0, ids, CUT);
        size_t size = ops->part_size(r.context, 0);
        void *part = malloc(size);
        assert_true(size > 0 && size < ops->state_size(r.context, 0));
        assert_int_equal(ops->part_save(r.context, 0, part, size), size);
        feed_slowly(&r, 0, ids + CUT, N - CUT);
        rig *to = elsewhere ? &other : &r;
        if (elsewhere) {
            size_t n_state = ops->state_size(r.context, 0);
            void *bytes = malloc(n_state);
            assert_int_equal(ops->state_save(r.context, 0, bytes, n_state), n_state);
            assert_ok(ops->state_load(other.context, 2, bytes, n_state, error));
            free(bytes);
        } else {
            assert_ok(ops->share(r.context, 0, 2, N, error));
            assert_ok(ops->settle(r.context, error));
        }
        assert_ok(ops->part_load(to->context, 2, CUT, part, size, error));
        assert_int_equal(ops->seq_pos_max(to->context, 2), CUT - 1);
        assert_true(ops->can_end_at(to->context, 2, CUT));
        feed_slowly(to, 2, edited + CUT, N - CUT);
        check_next(to, 2, 3, want);
        check_next(&r, 0, 3, want_first);
        /* after a failure no layer has cells of the old text */
        assert_refused(ops->part_load(to->context, 2, CUT, part, size / 2, error), WEIR_FORMAT, "bytes");
        assert_int_equal(ops->seq_pos_max(to->context, 2), -1);
        assert_true(ops->seq_remove(to->context, 2, 0, -1));
        feed_slowly(to, 2, edited, N);
        check_next(to, 2, 3, want);
        free(part);
        free(want);
        free(want_first);
        rig_fini(&other);
        rig_fini(&r);
    }
}

static void a_hybrid_state_is_cut_by_a_part(void **state)
{
    (void)state;
    cut_by_a_part("jamba");
}

static void a_window_is_cut_by_a_part(void **state)
{
    (void)state;
    cut_by_a_part("swa");
}

/* ---- Experts ---- */

#define N_EXPERT_TOKENS 40

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

/* Quantizes a file and writes the rows of logits of some tokens to `out`, in a process of its own, since
 * kernels are chosen once in each. */
static void rows_in_a_child(const char *path, enum llama_ftype type, const char *kernels, float *out)
{
    enum { WIDTH = 512 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char quantized[TEMP_PATH_MAX];
        rig r;
        int32_t ids[N_EXPERT_TOKENS];
        struct llama_model_quantize_params params = llama_model_quantize_default_params();
        setenv("WEIR_KERNELS", kernels, 1);
        temp_path(quantized, "quantized.gguf");
        params.ftype = type;
        params.nthread = 1;
        llama_log_set(quiet, NULL);
        if (llama_model_quantize(path, quantized, &params) != 0) _exit(1);
        use_model(quantized);
        rig_init(&r, 256, 1, WEIR_LAYOUT_UNIFIED);
        some_tokens(ids, 0, N_EXPERT_TOKENS);
        r.batch.n = 0;
        for (int32_t i = 0; i < N_EXPERT_TOKENS; i++) weir__batch_add(&r.batch, ids[i], i, 0, true);
        if (ops->decode(r.context, &r.batch, NULL) != WEIR_OK) _exit(1);
        for (int32_t i = 0; i < N_EXPERT_TOKENS; i++) {
            size_t size = WIDTH * sizeof(float);
            if (model_is.n_vocab != WIDTH || write(ends[1], ops->logits(r.context, i), size) != (ssize_t)size)
                _exit(1);
        }
        _exit(0);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "rb");
    assert_int_equal(fread(out, WIDTH * sizeof *out, N_EXPERT_TOKENS, in), N_EXPERT_TOKENS);
    fclose(in);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The first test: a process that forks should not have threads. */
static void experts_are_what_ggml_makes_of_them(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum llama_ftype type;
    } formats[] = {
        {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},     {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
        {"q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},     {"q5_0", LLAMA_FTYPE_MOSTLY_Q5_0},
        {"q5_1", LLAMA_FTYPE_MOSTLY_Q5_1},     {"q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M},
        {"q5_k_m", LLAMA_FTYPE_MOSTLY_Q5_K_M}, {"q6_k", LLAMA_FTYPE_MOSTLY_Q6_K},
        {"iq4_nl", LLAMA_FTYPE_MOSTLY_IQ4_NL}, {"mxfp4", LLAMA_FTYPE_MOSTLY_MXFP4_MOE},
        {"q2_k", LLAMA_FTYPE_MOSTLY_Q2_K},     {"q3_k_m", LLAMA_FTYPE_MOSTLY_Q3_K_M},
        {"iq4_xs", LLAMA_FTYPE_MOSTLY_IQ4_XS}, {"tq2_0", LLAMA_FTYPE_MOSTLY_TQ2_0},
    };
    static float ours[N_EXPERT_TOKENS][512], theirs[N_EXPERT_TOKENS][512];
    char path[TEMP_PATH_MAX];
    temp_model(path, "source.gguf", "moe --wide --type f16");
    for (size_t f = 0; f < N_ELEMENTS(formats); f++) {
        rows_in_a_child(path, formats[f].type, "auto", ours[0]);
        rows_in_a_child(path, formats[f].type, "off", theirs[0]);
        /* ggml rounds activations for blocks of 256 columns with one scale, weir with eight. And another
         * expert may be chosen where two are nearly equal: few rows may be further off. */
        int n_close = 0;
        for (int i = 0; i < N_EXPERT_TOKENS; i++) {
            double off = 0, size = 0;
            for (int v = 0; v < 512; v++) {
                off += pow((double)ours[i][v] - (double)theirs[i][v], 2);
                size += pow((double)theirs[i][v], 2);
            }
            if (sqrt(off / size) < 0.06) n_close++;
        }
        if (n_close < N_EXPERT_TOKENS - 4)
            fail_msg("%s: %d of %d rows are close", formats[f].name, n_close, N_EXPERT_TOKENS);
    }
}

/* Rows of experts are equal to the bit with weir's kernels. */
static void experts_do_not_depend_on_the_company(void **state)
{
    (void)state;
    make("moe --wide --type q8_0");
    if (*weir__hook_kernels() == '\0') return;
    rig r;
    int32_t ids[N_EXPERT_TOKENS];
    some_tokens(ids, 0, N_EXPERT_TOKENS);
    rig_init(&r, 1024, 4, WEIR_LAYOUT_PER_SLOT);
    for (size_t i = 0; i < N_EXPERT_TOKENS; i++) assert_ok(feed(&r, 0, ids + i, 1, error));
    float *want = row_copy(&r, -1);
    rig_fini(&r);
    static const int32_t n_threads[] = {1, 2, 3, 5};
    for (size_t t = 0; t < N_ELEMENTS(n_threads); t++) {
        weir_context_params params = rig_params(1024, 4, WEIR_LAYOUT_PER_SLOT);
        params.n_threads = params.n_threads_batch = n_threads[t];
        rig_init_with(&r, &params);
        assert_ok(feed(&r, 1, ids, N_EXPERT_TOKENS, error));
        assert_row_is(&r, -1, want);
        assert_ok(feed(&r, 2, ids, 3, error));
        assert_ok(feed(&r, 2, ids + 3, N_EXPERT_TOKENS - 3, error));
        assert_row_is(&r, -1, want);
        rig_fini(&r);
    }
    free(want);
}

/* A row is the same to the bit whatever each pass's number of threads is, with more cells than ggml's own
 * attention can bear; and where weir's attention does not run, the number stays. */
static void threads_change_between_passes(void **state)
{
    (void)state;
    make("moe --wide --type q8_0");
    rig r;
    int32_t ids[640];
    some_tokens(ids, 0, N_ELEMENTS(ids));
    weir_context_params params = rig_params(1024, 1, WEIR_LAYOUT_UNIFIED);
    float *want = NULL;
    for (int32_t most = 1; most <= 3; most += 2) {
        params.n_threads = params.n_threads_batch = most;
        rig_init_with(&r, &params);
        assert_int_equal(r.context->adapts, *weir__hook_kernels() != '\0');
        for (int32_t i = 0, n; i < (int32_t)N_ELEMENTS(ids) && r.context->adapts; i += n) {
            n = i < 600 ? 50 : 1;
            for (int k = 0; k < 2; k++) r.context->teams[k].n_threads = (i / 50 + i) % most + 1;
            assert_ok(feed(&r, 0, ids + i, (size_t)n, error));
        }
        if (r.context->adapts && want == NULL) want = row_copy(&r, -1);
        if (want != NULL) assert_row_is(&r, -1, want);
        rig_fini(&r);
    }
    free(want);
    static const weir_kv_type others[] = {WEIR_KV_F32, WEIR_KV_BF16, WEIR_KV_Q4_0};
    for (size_t i = 0; i < N_ELEMENTS(others); i++) {
        params.type_k = params.type_v = others[i];
        rig_init_with(&r, &params);
        assert_int_equal(r.context->adapts, *weir__hook_kernels() != '\0');
        rig_fini(&r);
    }
    params.type_k = params.type_v = WEIR_KV_F16;
    setenv("WEIR_ADAPT", "off", 1);
    rig_init_with(&r, &params);
    unsetenv("WEIR_ADAPT");
    assert_false(r.context->adapts);
    rig_fini(&r);
}

static void rig_for_embeddings(rig *r, weir_pooling pooling, int32_t n_ctx)
{
    weir_context_params params = rig_params(n_ctx, 4, WEIR_LAYOUT_UNIFIED);
    params.embeddings = true;
    params.pooling = pooling;
    params.n_ubatch = 4;
    rig_init_with(r, &params);
}

static void embeddings_of_an_encoder(void **state)
{
    (void)state;
    make("bert");
    weir__bcontext *context = NULL;
    weir_context_info info;
    weir_context_params params = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    assert_true(model_is.has_encoder && !model_is.has_decoder);
    assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_UNSUPPORTED,
                   "embeddings");

    const weir_pooling poolings[] = {WEIR_POOLING_UNSPECIFIED, WEIR_POOLING_MEAN, WEIR_POOLING_CLS,
                                     WEIR_POOLING_LAST, WEIR_POOLING_NONE};
    for (size_t p = 0; p < N_ELEMENTS(poolings); p++) {
        rig r;
        int32_t ids[40];
        some_tokens(ids, 0, 40);
        rig_for_embeddings(&r, poolings[p], 512);
        for (int round = 0; round < 2; round++) {
            r.batch.n = 0;
            for (int32_t s = 0; s < 3; s++)
                for (int32_t i = 0; i < 10 + 5 * s; i++) weir__batch_add(&r.batch, ids[i + s], i, s, i == 0);
            assert_ok(ops->decode(r.context, &r.batch, error));
            ops->logits_ready(r.context);
            const float *rows[3];
            for (int32_t s = 0; s < 3; s++) {
                bool pooled = r.info.pooling != WEIR_POOLING_NONE;
                rows[s] = pooled ? ops->embedding(r.context, -1, s) : ops->embedding(r.context, 7 * s, 0);
                assert_non_null(rows[s]);
                for (int32_t i = 0; i < ops->embedding_width(r.context); i++)
                    assert_true(isfinite(rows[s][i]));
            }
            assert_memory_not_equal(rows[0], rows[1],
                                    sizeof(float) * (size_t)ops->embedding_width(r.context));
            assert_null(ops->embedding(r.context, -1, 3));
        }
        assert_int_equal(ops->seq_pos_max(r.context, 0), -1);
        assert_true(ops->seq_remove(r.context, 0, 0, -1));
        ops->clear(r.context);
        assert_int_equal(ops->state_size(r.context, 0), 0);
        rig_fini(&r);
    }
}

/* The table of position embeddings has 512 rows; llama.cpp asserts beyond. */
static void positions_end(void **state)
{
    (void)state;
    make("bert");
    rig r;
    rig_for_embeddings(&r, WEIR_POOLING_MEAN, 1024);
    assert_int_equal(r.info.n_ctx_seq, model_is.n_ctx_train);
    r.batch.n = 0;
    for (int32_t i = 0; i <= model_is.n_ctx_train; i++) weir__batch_add(&r.batch, 20, i, 0, true);
    assert_refused(ops->decode(r.context, &r.batch, error), WEIR_INVALID, "pos");
    assert_null(ops->embedding(r.context, -1, 0));
    r.batch.n--;
    assert_ok(ops->decode(r.context, &r.batch, error));
    ops->logits_ready(r.context);
    assert_non_null(ops->embedding(r.context, -1, 0));
    rig_fini(&r);
}

static void scores_of_a_ranker(void **state)
{
    (void)state;
    make("rank");
    rig r;
    int32_t ids[16];
    some_tokens(ids, 0, 16);
    rig_for_embeddings(&r, WEIR_POOLING_RANK, 256);
    assert_int_equal(r.info.pooling, WEIR_POOLING_RANK);
    assert_int_equal(ops->embedding_width(r.context), 1);
    r.batch.n = 0;
    for (int32_t s = 0; s < 2; s++)
        for (int32_t i = 0; i < 8; i++) weir__batch_add(&r.batch, ids[i + 8 * s], i, s, true);
    assert_ok(ops->decode(r.context, &r.batch, error));
    ops->logits_ready(r.context);
    const float *a = ops->embedding(r.context, -1, 0), *b = ops->embedding(r.context, -1, 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_true(isfinite(*a) && isfinite(*b) && *a != *b);
    rig_fini(&r);
}

#define KIND_TEST(test) cmocka_unit_test_teardown(test, free_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND_TEST(experts_are_what_ggml_makes_of_them),
        KIND_TEST(experts_do_not_depend_on_the_company),
        KIND_TEST(threads_change_between_passes),
        KIND_TEST(recurrent_memory_is_not_cut),
        KIND_TEST(hybrid_memory_is_not_cut),
        KIND_TEST(a_window_that_slid_away),
        KIND_TEST(a_window_gives_back_what_a_pass_added),
        KIND_TEST(a_recurrent_state_saved_on_the_way),
        KIND_TEST(a_hybrid_state_saved_on_the_way),
        KIND_TEST(a_window_saved_on_the_way),
        KIND_TEST(a_hybrid_state_is_cut_by_a_part),
        KIND_TEST(a_window_is_cut_by_a_part),
        KIND_TEST(embeddings_of_an_encoder),
        KIND_TEST(positions_end),
        KIND_TEST(scores_of_a_ranker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
