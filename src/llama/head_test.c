/* head_test.c: a head's rows are those of the text that its target holds, whatever happened to that
 * before: compared with a head of a new context that is given the text alone. Heads of random weights, made
 * by scripts/tiny_gguf.py, whose rows depend on all tokens before.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>

#include "support/llama.h"
#include "support/temp.h"

#define N_SEQ 4
#define N     40

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

typedef struct kind {
    const char *target, *head; /* the generator's arguments; NULL: the target has one of its own */
} kind;

static const kind kinds[] = {
    {"glm", NULL},
    {"llama", "eagle"},
    {"hy", NULL},
    {"mla", NULL},
    {"llama", "eagle --d2t whole --taps 1,0,1 --own 512"},
};

static weir__bmodel *head_model; /* NULL: the target's */

static void load(weir__bmodel **into, const char *arguments)
{
    char path[TEMP_PATH_MAX];
    weir_model_params params = weir_model_params_default();
    temp_model(path, into == &model ? "model.gguf" : "head.gguf", arguments); /* both are mapped */
    assert_ok(ops->model_load(path, &params, false, into, error));
}

static void load_kind(const kind *k)
{
    load(&model, k->target);
    ops->model_describe(model, &model_is);
    if (k->head != NULL) load(&head_model, k->head);
}

static int drop(void **state)
{
    ops->model_free(head_model);
    head_model = NULL;
    return free_model(state);
}

typedef struct pair {
    rig target;
    weir__bcontext *head;
    weir__batch batch; /* of the head */
} pair;

static weir_status pair_open(pair *p, weir_layout layout, weir_error *error)
{
    weir_context_params params = rig_params(1024, N_SEQ, layout);
    weir_context_info info;
    *p = (pair){.head = NULL};
    weir_status status = ops->context_create(model, &params, &p->target.context, &p->target.info, error);
    if (status == WEIR_OK) status = weir__batch_init(&p->target.batch, p->target.info.n_batch, error);
    if (status == WEIR_OK) status = weir__batch_init(&p->batch, 64, error);
    params.layout = WEIR_LAYOUT_UNIFIED;
    if (status == WEIR_OK)
        status = ops->head_create(p->target.context, head_model != NULL ? head_model : model, &params,
                                  &p->head, &info, error);
    return status;
}

static void pair_close(pair *p)
{
    weir__batch_fini(&p->batch);
    if (p->head != NULL) ops->context_free(p->head);
    weir__batch_fini(&p->target.batch);
    if (p->target.context != NULL) ops->context_free(p->target.context);
}

/* Entries of a sequence for the target's next pass. */
static void put(pair *p, int32_t seq, int32_t pos, const int32_t *ids, int32_t n, bool logits)
{
    for (int32_t i = 0; i < n; i++)
        weir__batch_add(&p->target.batch, ids[i], pos + i, seq, logits && i % 2 == 0);
}

static void pass(pair *p)
{
    assert_ok(ops->decode(p->target.context, &p->target.batch, error));
    ops->logits_ready(p->target.context);
    p->target.batch.n = 0;
}

static void give(pair *p, int32_t seq, int32_t pos, const int32_t *ids, int32_t n)
{
    put(p, seq, pos, ids, n, true);
    pass(p);
}

/* The head's row behind the sequence's first n tokens, where that one comes next; a copy. */
static float *guess(pair *p, int32_t seq, int32_t n, int32_t next)
{
    assert_int_equal(ops->seq_pos_max(p->head, seq), n - 1);
    p->batch.n = 0;
    weir__batch_add(&p->batch, next, n, seq, true);
    assert_ok(ops->decode(p->head, &p->batch, error));
    const float *row = ops->logits(p->head, 0);
    assert_non_null(row);
    float *copy = malloc((size_t)model_is.n_vocab * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, row, (size_t)model_is.n_vocab * sizeof *copy);
    return copy;
}

static float *expected(const int32_t *ids, int32_t n, int32_t next)
{
    pair p;
    assert_ok(pair_open(&p, WEIR_LAYOUT_UNIFIED, error));
    give(&p, 0, 0, ids, n);
    float *row = guess(&p, 0, n, next);
    pair_close(&p);
    return row;
}

static double distance(const float *a, const float *b)
{
    double most = 0;
    for (int32_t i = 0; i < model_is.n_vocab; i++)
        if (!(a[i] == b[i])) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* ggml adds in another order where a pass has other rows. */
static void check(pair *p, int32_t seq, int32_t n, int32_t next, const float *want, const char *what)
{
    float *row = guess(p, seq, n, next);
    double far = distance(row, want);
    if (!(far < 1e-3)) fail_msg("%s: %g away", what, far);
    free(row);
}

static void rows_in_all_ways(const kind *k, weir_layout layout)
{
    pair p;
    int32_t ids[N + 8], other[N + 8], next = 77;
    load_kind(k);
    some_tokens(ids, 0, N + 8);
    some_tokens(other, 11, N + 8);
    float *want = expected(ids, N, 78), *longer = expected(ids, N + 5, next),
          *wrong = expected(other, N, next);
    assert_true(distance(want, wrong) > 0.1 && distance(want, longer) > 0.1);
    assert_ok(pair_open(&p, layout, error));

    for (int32_t i = 0; i < N; i += 8) give(&p, 0, i, ids + i, 8);
    check(&p, 0, N, 78, want, "in pieces");
    free(guess(&p, 0, N, next));
    check(&p, 0, N, 78, want, "after another guess");

    /* Lanes with unequal numbers of tokens: llama.cpp computes them in another order than the batch's. */
    for (int32_t at[3] = {0, 0, 0}, turn = 0; at[0] < N || at[1] < N || at[2] < N; turn++) {
        for (int32_t s = 0; s < 3; s++) {
            int32_t n = 1 + (turn * 5 + s * 3) % 7;
            if (n > N - at[s]) n = N - at[s];
            put(&p, s + 1, at[s], (s == 1 ? ids : other) + at[s], n, (turn + s) % 3 > 0);
            at[s] += n;
        }
        pass(&p);
    }
    check(&p, 2, N, 78, want, "in company");
    check(&p, 1, N, next, wrong, "its company");

    /* Guesses that were refused. */
    assert_true(ops->seq_remove(p.target.context, 1, 0, -1));
    assert_int_equal(ops->seq_pos_max(p.head, 1), -1);
    give(&p, 1, 0, ids, N - 10);
    free(guess(&p, 1, N - 10, ids[N - 10]));
    for (int32_t i = 1; i < 4; i++) { /* behind its own row */
        p.batch.n = 0;
        weir__batch_add(&p.batch, 50 + i, N - 10 + i, 1, true);
        assert_ok(ops->decode(p.head, &p.batch, error));
    }
    assert_true(ops->seq_remove(p.head, 1, N - 9, -1));
    memcpy(other, ids, sizeof ids);
    other[N - 8] = 50;
    give(&p, 1, N - 10, other + N - 10, 5); /* the third of these is wrong */
    assert_true(ops->seq_remove(p.target.context, 1, N - 8, -1));
    assert_int_equal(ops->seq_pos_max(p.head, 1), N - 9);
    give(&p, 1, N - 8, ids + N - 8, 8);
    check(&p, 1, N, 78, want, "after refused ones");

    /* Sequences that begin like others, and go on. */
    assert_ok(ops->share(p.target.context, 1, 3, N, error));
    check(&p, 3, N, 78, want, "shared");
    give(&p, 3, N, ids + N, 5);
    check(&p, 3, N + 5, next, longer, "shared, and on");
    assert_ok(ops->share(p.target.context, 3, 2, N, error)); /* of its last token nothing is known now */
    assert_int_equal(ops->seq_pos_max(p.head, 2), -1);
    give(&p, 2, N, ids + N, 5);
    free(guess(&p, 2, N + 5, next));
    check(&p, 1, N, 78, want, "what was shared");

    /* Saved and loaded. */
    size_t size = ops->state_size(p.target.context, 3);
    void *bytes = malloc(size);
    assert_int_equal(ops->state_save(p.target.context, 3, bytes, size), size);
    assert_true(ops->seq_remove(p.target.context, 0, 0, -1));
    assert_ok(ops->state_load(p.target.context, 0, bytes, size, error));
    check(&p, 0, N + 5, next, longer, "loaded");
    give(&p, 0, N + 5, ids, 1);
    assert_int_equal(ops->seq_pos_max(p.head, 0), N + 5);
    /* A state of an engine without a head: the target has all, the head begins anew. */
    assert_ok(ops->state_load(p.target.context, 0, bytes, size - 8, error));
    assert_int_equal(ops->seq_pos_max(p.target.context, 0), N + 4);
    assert_int_equal(ops->seq_pos_max(p.head, 0), -1);
    give(&p, 0, N + 5, ids, 1);
    free(guess(&p, 0, N + 6, next));

    ops->clear(p.target.context);
    assert_int_equal(ops->seq_pos_max(p.head, 0), -1);
    give(&p, 0, 0, ids, N);
    check(&p, 0, N, 78, want, "after all that");
    free(bytes);
    free(want);
    free(longer);
    free(wrong);
    pair_close(&p);
    drop(NULL);
}

static void rows_are_those_of_the_text(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_ELEMENTS(kinds); k++)
        for (size_t l = 0; l < N_ELEMENTS(layouts); l++) rows_in_all_ways(&kinds[k], layouts[l]);
}

/* Long prompts are taken in with their pass, in several parts; several sequences guess in one pass. */
static void long_prompts_and_several_guesses(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        pair p;
        int32_t ids[300];
        float *want[N_SEQ];
        load_kind(&kinds[k]);
        some_tokens(ids, 3, 300);
        for (int32_t s = 0; s < N_SEQ; s++) want[s] = expected(ids + s, 70 + 10 * s, 5);
        assert_ok(pair_open(&p, WEIR_LAYOUT_UNIFIED, error));
        for (int32_t s = 0; s < N_SEQ; s++) give(&p, s, 0, ids + s, 70 + 10 * s);
        p.batch.n = 0;
        for (int32_t s = 0; s < N_SEQ; s++) weir__batch_add(&p.batch, 5, 70 + 10 * s, s, true);
        assert_ok(ops->decode(p.head, &p.batch, error));
        for (int32_t s = 0; s < N_SEQ; s++) {
            assert_true(distance(ops->logits(p.head, s), want[s]) < 1e-3);
            free(want[s]);
        }
        pair_close(&p);
        drop(NULL);
    }
}

static void unsuitable_heads_are_refused(void **state)
{
    static const struct {
        const char *target, *head;
        weir_status status;
    } pairs[] = {
        {"llama", "eagle --taps 0,1,9", WEIR_UNSUPPORTED}, /* of another number of layers */
        {"llama", "eagle --taps=-1,1,1", WEIR_UNSUPPORTED},
        {"llama --wide", "eagle", WEIR_INVALID}, /* of another width */
        {"llama", "eagle --wide", WEIR_INVALID},
        {"llama", "eagle --d2t bad", WEIR_FORMAT},
        {"llama", "eagle --own 500", WEIR_FORMAT},
        {"glm", "eagle", WEIR_UNSUPPORTED},   /* an architecture without such states */
        {"llama", "llama", WEIR_UNSUPPORTED}, /* no head */
        {"mamba", "eagle", WEIR_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(pairs); i++) {
        kind k = {pairs[i].target, pairs[i].head};
        pair p;
        load_kind(&k);
        assert_refused(pair_open(&p, WEIR_LAYOUT_UNIFIED, error), pairs[i].status, "draft_model");
        pair_close(&p);
        drop(NULL);
    }
    static const char *const bare[] = {"glm --stripped", "hy --stripped", "mla --stripped"};
    for (size_t i = 0; i < N_ELEMENTS(bare); i++) {
        kind stripped = {bare[i], NULL};
        pair p;
        load_kind(&stripped);
        assert_int_equal(model_is.n_layer_mtp, 0);
        assert_refused(pair_open(&p, WEIR_LAYOUT_UNIFIED, error), WEIR_UNSUPPORTED, "mtp");
        pair_close(&p);
        drop(NULL);
    }
}

static void a_head_without_weights_is_refused(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    pair p;
    weir_model_params params = weir_model_params_default();
    load(&model, "llama");
    temp_model(path, "head.gguf", "eagle");
    params.vocab_only = true;
    assert_ok(ops->model_load(path, &params, false, &head_model, error));
    weir_error why = {0};
    assert_int_equal(pair_open(&p, WEIR_LAYOUT_UNIFIED, &why), WEIR_UNSUPPORTED);
    assert_string_equal(why.field, "draft_model");
    assert_non_null(strstr(why.message, "without its weights"));
    pair_close(&p);
}

/* A head can compute only from its target's states. */
static void a_head_alone_is_refused(void **state)
{
    (void)state;
    load(&model, "eagle");
    ops->model_describe(model, &model_is);
    assert_true(model_is.is_draft_head && !model_is.has_decoder && model_is.n_layer_mtp == 0);
    for (int embeddings = 0; embeddings < 2; embeddings++) {
        weir_context_params params = rig_params(256, 1, WEIR_LAYOUT_UNIFIED);
        weir__bcontext *context = NULL;
        weir_context_info info;
        params.embeddings = embeddings != 0;
        assert_refused(ops->context_create(model, &params, &context, &info, error), WEIR_UNSUPPORTED, "");
    }
}

static void one_head_at_a_time(void **state)
{
    (void)state;
    pair p;
    int32_t ids[N];
    some_tokens(ids, 0, N);
    load_kind(&kinds[0]);
    assert_int_equal(model_is.n_layer, 2);
    assert_int_equal(model_is.n_layer_mtp, 1);
    assert_ok(pair_open(&p, WEIR_LAYOUT_UNIFIED, error));
    weir_context_params params = rig_params(1024, N_SEQ, WEIR_LAYOUT_UNIFIED);
    weir__bcontext *another = NULL;
    weir_context_info info;
    assert_refused(ops->head_create(p.target.context, model, &params, &another, &info, error), WEIR_BUSY,
                   "draft_model");
    ops->context_free(p.head);
    p.head = NULL;
    weir_context_params smaller[] = {params, params};
    smaller[0].n_batch--;
    smaller[1].n_seq_max--;
    for (size_t i = 0; i < 2; i++)
        assert_refused(ops->head_create(p.target.context, model, &smaller[i], &another, &info, error),
                       WEIR_INVALID, "n_batch");
    assert_ok(ops->head_create(p.target.context, model, &params, &p.head, &info, error));
    /* The head guesses nothing after tokens whose states it lacks, and stays usable. */
    give(&p, 0, 0, ids, N);
    weir__batch_add(&p.batch, 5, N + 3, 0, true);
    assert_refused(ops->decode(p.head, &p.batch, error), WEIR_INVALID, "pos");
    give(&p, 0, N, ids, 1);
    free(guess(&p, 0, N + 1, 5));
    ops->context_free(p.head);
    p.head = NULL;
    give(&p, 0, N + 1, ids, 1); /* nobody listens */
    assert_ok(ops->head_create(p.target.context, model, &params, &p.head, &info, error));
    give(&p, 0, N + 2, ids, 1);
    free(guess(&p, 0, N + 3, 5));
    pair_close(&p);
}

/* Passes take no lock, and planning reads the model's list of adapters: it is done when the head comes and
 * goes. */
static int n_plans;

static void count_plans(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)user;
    n_plans += strstr(message, "reserving ...") != NULL;
}

static void passes_plan_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        pair p;
        int32_t ids[N];
        some_tokens(ids, 0, N);
        load_kind(&kinds[k]);
        weir_log_set(count_plans, NULL);
        n_plans = 0;
        assert_ok(pair_open(&p, WEIR_LAYOUT_UNIFIED, error));
        assert_true(n_plans > 1);
        n_plans = 0;
        give(&p, 0, 0, ids, N);
        free(guess(&p, 0, N, 5));
        assert_int_equal(n_plans, 0);
        ops->context_free(p.head);
        p.head = NULL;
        n_plans = 0;
        give(&p, 0, N, ids, 1);
        assert_int_equal(n_plans, 0);
        weir_log_set(NULL, NULL);
        pair_close(&p);
        drop(NULL);
    }
}

static void without_memory(void **state)
{
    (void)state;
    load_kind(&kinds[1]);
    bool pending = false;
    for (long n = 0; !pending; n++) {
        pair p;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = pair_open(&p, WEIR_LAYOUT_UNIFIED, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        /* Optional allocations of a context may fail. */
        assert_true(status == WEIR_OK || (!pending && status == WEIR_NO_MEMORY));
        pair_close(&p);
    }
}

#ifndef __APPLE__ /* where a program cannot replace functions of a library */
_Noreturn void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

static bool encoder_throws;

/* The library calls this instead of llama.cpp's. */
__attribute__((visibility("default"))) int32_t llama_encode(struct llama_context *c, struct llama_batch batch)
{
    static int32_t (*next)(struct llama_context *, struct llama_batch);
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "llama_encode");
    if (encoder_throws) {
        encoder_throws = false;
        throw_bad_alloc();
    }
    return next(c, batch);
}

/* The target goes on, and the head begins anew with the next text. */
static void an_encoder_without_memory(void **state)
{
    (void)state;
    pair p;
    int32_t ids[N];
    some_tokens(ids, 0, N);
    load_kind(&kinds[1]);
    float *want = expected(ids, N, 5);
    assert_ok(pair_open(&p, WEIR_LAYOUT_UNIFIED, error));
    encoder_throws = true;
    give(&p, 0, 0, ids, N);
    weir__batch_add(&p.batch, 5, N, 0, true); /* which needs the rows that wait */
    ops->decode(p.head, &p.batch, NULL);
    assert_false(encoder_throws);
    assert_int_equal(ops->seq_pos_max(p.head, 0), -1);
    ops->clear(p.target.context);
    give(&p, 0, 0, ids, N);
    check(&p, 0, N, 5, want, "afterwards");
    free(want);
    pair_close(&p);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_text),
        cmocka_unit_test(long_prompts_and_several_guesses),
        cmocka_unit_test(unsuitable_heads_are_refused),
        cmocka_unit_test_teardown(a_head_without_weights_is_refused, drop),
        cmocka_unit_test_teardown(a_head_alone_is_refused, drop),
        cmocka_unit_test_teardown(one_head_at_a_time, drop),
        cmocka_unit_test_teardown(passes_plan_nothing, drop),
        cmocka_unit_test_teardown(without_memory, drop),
#ifndef __APPLE__
        cmocka_unit_test_teardown(an_encoder_without_memory, drop),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
