/* attention_test.c: a row's bits with weir's attention, whatever else is in the pass: other lanes with
 * the same beginning, any number of threads, contexts of up to 8,192 cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "hook/hook.h"
#include "kernels/kernels.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/llama.h"
#include "support/pause.h"
#include "support/temp.h"

enum { LANES = 5, LONGEST = 2000 };

/* Makes and loads a model whose attention runs on weir's kernels; skips the test where there are none. */
static void make(const char *kind)
{
    char path[TEMP_PATH_MAX];
    rig r;
    const char *wanted = getenv("WEIR_KERNELS"); /* "off", or others than the best */
    temp_model(path, "model.gguf", kind);
    use_model(path); /* installs the kernels */
    if (*(wanted == NULL ? weir__kernels_name(0) : weir__hook_kernels()) == '\0') skip();
    rig_init(&r, 256, 1, WEIR_LAYOUT_UNIFIED);
    assert_true(weir__hook_attends(r.context->context));
    assert_true(weir__hook_multiplies(model->model));
    rig_fini(&r);
}

/* ---- Lanes with the same beginning ---- */

/* A lane, its tokens, and a context that computes the same text alone. */
typedef struct lane {
    int32_t n, tokens[LONGEST + 1];
    rig alone;
    int32_t n_alone, fed[LONGEST + 1];
} lane;

static void append(rig *r, int32_t seq, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i += 512)
        assert_ok(feed(r, seq, tokens + i, (size_t)(n - i < 512 ? n - i : 512), error));
}

/* The logits behind the lane's tokens. */
static const float *computed_alone(lane *l)
{
    int32_t same = 0;
    while (same < l->n - 1 && same < l->n_alone && l->tokens[same] == l->fed[same]) same++;
    assert_true(ops->seq_remove(l->alone.context, 0, same, -1));
    append(&l->alone, 0, l->tokens + same, l->n - same);
    memcpy(l->fed, l->tokens, sizeof l->fed);
    l->n_alone = l->n;
    return ops->logits(l->alone.context, -1);
}

static void add_random(dice *d, rig *r, int32_t seq, lane *l, int32_t n)
{
    if (n > LONGEST - l->n) n = LONGEST - l->n;
    for (int32_t i = 0; i < n; i++) l->tokens[l->n + i] = dice_in(d, 20, 400);
    append(r, seq, l->tokens + l->n, n);
    l->n += n;
}

/* A copy of the first n tokens. */
static void take_over(rig *r, lane *lanes, int32_t from, int32_t to, int32_t n)
{
    assert_ok(ops->share(r->context, from, to, n, error));
    memcpy(lanes[to].tokens, lanes[from].tokens, (size_t)n * sizeof *lanes->tokens);
    lanes[to].n = n;
}

/* Loads another lane's saved state in place of the lane's own cells. */
static void load(rig *r, lane *lanes, int32_t from, int32_t to)
{
    assert_ok(ops->settle(r->context, error));
    size_t size = ops->state_size(r->context, from);
    void *bytes = malloc(size);
    assert_int_equal(ops->state_save(r->context, from, bytes, size), size);
    assert_ok(ops->state_load(r->context, to, bytes, size, error));
    memcpy(lanes[to].tokens, lanes[from].tokens, sizeof lanes->tokens);
    lanes[to].n = lanes[from].n;
    free(bytes);
}

/* One token of each lane in one pass, or several of each; the last rows are as alone. */
static void check_all(dice *d, rig *r, lane *lanes)
{
    int32_t each = dice_one_in(d, 3) ? dice_in(d, 2, 9) : 1;
    r->batch.n = 0;
    for (int32_t s = 0; s < LANES; s++) {
        lane *l = &lanes[s];
        if (l->n + each > LONGEST) {
            assert_true(ops->seq_remove(r->context, s, LONGEST / 2, -1));
            l->n = LONGEST / 2;
        }
        for (int32_t i = 0; i < each; i++) {
            l->tokens[l->n] = dice_in(d, 20, 400);
            weir__batch_add(&r->batch, l->tokens[l->n], l->n, s, i + 1 == each);
            l->n++;
        }
    }
    for (int k = 0; k < 2; k++) r->context->teams[k].n_threads = dice_in(d, 1, 3);
    assert_ok(ops->decode(r->context, &r->batch, error));
    for (int32_t s = 0; s < LANES; s++) assert_row_is(r, (s + 1) * each - 1, computed_alone(&lanes[s]));
}

static void lanes_do_not_depend_on_others(const char *kind, weir_kv_type type, uint64_t seed)
{
    static lane lanes[LANES];
    rig r;
    dice d = {seed};
    make(kind);
    weir_context_params params = rig_params(LANES * 2048, LANES, WEIR_LAYOUT_PER_SLOT);
    params.type_k = params.type_v = type;
    params.n_threads = params.n_threads_batch = 3;
    rig_init_with(&r, &params);
    params = rig_params(2048, 1, WEIR_LAYOUT_PER_SLOT);
    params.type_k = params.type_v = type;
    memset(lanes, 0, sizeof lanes);
    for (int32_t s = 0; s < LANES; s++) rig_init_with(&lanes[s].alone, &params);
    add_random(&d, &r, 0, &lanes[0], 1100);
    for (int32_t s = 1; s < LANES; s++) take_over(&r, lanes, 0, s, dice_in(&d, 900, 1100));
    for (int step = 0; step < EFFORT(60, 14); step++) {
        int32_t from = dice_in(&d, 0, LANES - 1), to = dice_in(&d, 0, LANES - 1);
        switch (dice_in(&d, 0, 7)) {
        case 0:
        case 1:
            if (from != to) take_over(&r, lanes, from, to, dice_in(&d, lanes[from].n / 2, lanes[from].n));
            break;
        case 2:
            if (from != to) load(&r, lanes, from, to);
            break;
        case 3: /* all but a part of the prefix, and on with other tokens */
            lanes[to].n = dice_in(&d, dice_one_in(&d, 4) ? 0 : lanes[to].n * 3 / 4, lanes[to].n);
            assert_true(ops->seq_remove(r.context, to, lanes[to].n, -1));
            break;
        case 4: add_random(&d, &r, to, &lanes[to], dice_in(&d, 1, 300)); break;
        case 5: /* copies that no pass has made yet, and a change of their source */
            if (from == to) break;
            take_over(&r, lanes, from, to, lanes[from].n);
            lanes[from].n = lanes[from].n / 2;
            assert_true(ops->seq_remove(r.context, from, lanes[from].n, -1));
            break;
        default: break;
        }
        check_all(&d, &r, lanes);
    }
    for (int32_t s = 0; s < LANES; s++) rig_fini(&lanes[s].alone);
    rig_fini(&r);
}

static void lanes_with_the_same_beginning(void **state)
{
    (void)state;
    lanes_do_not_depend_on_others("llama --wide --type q8_0", WEIR_KV_F16, 1);
    lanes_do_not_depend_on_others("llama --wide --type q8_0", WEIR_KV_Q8_0, 2);
}

static void lanes_with_sliding_windows(void **state)
{
    (void)state;
    lanes_do_not_depend_on_others("swa --wide --type q8_0", WEIR_KV_F16, 3);
}

/* A copy that ends in a hole of its source continues before the position at which it was to end, in cells
 * that the source has filled with other tokens. */
static void a_copy_that_ends_in_a_hole(void **state)
{
    (void)state;
    enum { N = 300, HOLE = 100, END = 150, MORE = 60 };
    int32_t ids[2][N], next = 30;
    rig r;
    make("llama --wide --type q8_0");
    for (int i = 0; i < 2; i++) some_tokens(ids[i], 10 * i, N);
    rig_init(&r, 512, 1, WEIR_LAYOUT_PER_SLOT);
    append(&r, 0, ids[0], HOLE);
    append(&r, 0, ids[1], MORE);
    assert_ok(feed(&r, 0, &next, 1, error));
    float *want = row_copy(&r, -1);
    rig_fini(&r);
    rig_init(&r, 2 * 512, 2, WEIR_LAYOUT_PER_SLOT);
    append(&r, 0, ids[0], N);
    assert_true(ops->seq_remove(r.context, 0, HOLE, 2 * HOLE));
    append(&r, 0, ids[0], MORE + 1);
    assert_ok(ops->share(r.context, 0, 1, END, error));
    assert_int_equal(ops->seq_pos_max(r.context, 1), HOLE - 1);
    append(&r, 1, ids[1], MORE);
    r.batch.n = 0;
    for (int32_t s = 0; s < 2; s++)
        weir__batch_add(&r.batch, next, ops->seq_pos_max(r.context, s) + 1, s, true);
    assert_ok(ops->decode(r.context, &r.batch, error));
    assert_row_is(&r, 1, want);
    free(want);
    rig_fini(&r);
}

/* ---- Long contexts ---- */

/* A decode of all lanes behind n tokens each; its rows, for the caller to free. */
static float *decode_behind(rig *r, int32_t n_lanes, int32_t n, int32_t n_threads)
{
    size_t width = (size_t)model_is.n_vocab;
    float *rows = malloc((size_t)n_lanes * width * sizeof *rows);
    assert_non_null(rows);
    for (int k = 0; k < 2; k++) r->context->teams[k].n_threads = n_threads;
    r->batch.n = 0;
    for (int32_t s = 0; s < n_lanes; s++) weir__batch_add(&r->batch, 20 + s, n, s, true);
    assert_ok(ops->decode(r->context, &r->batch, error));
    for (int32_t s = 0; s < n_lanes; s++)
        memcpy(rows + (size_t)s * width, ops->logits(r->context, s), width * sizeof *rows);
    for (int32_t s = 0; s < n_lanes; s++) assert_true(ops->seq_remove(r->context, s, n, -1));
    return rows;
}

/* Pieces are divided among threads in many ways, and their sums are the same. */
static void threads_do_not_change_a_bit(weir_layout layout, weir_kv_type type, int32_t n_lanes, bool shared)
{
    enum { MOST = 16, CELLS = EFFORT(8192, 3072), N = CELLS - 42 };
    static int32_t ids[N];
    rig r;
    weir_context_params params = rig_params(CELLS * n_lanes, n_lanes, layout);
    params.type_k = params.type_v = type;
    params.n_threads = params.n_threads_batch = MOST;
    rig_init_with(&r, &params);
    for (int k = 0; k < 2; k++) r.context->teams[k].n_threads = 2;
    for (int32_t s = 0; s < n_lanes; s++) {
        some_tokens(ids, 10 * s, N);
        if (s > 0 && shared) {
            assert_ok(ops->share(r.context, 0, s, N / 2, error));
            append(&r, s, ids, N / 2);
        } else {
            append(&r, s, ids, N);
        }
    }
    int32_t n = ops->seq_pos_max(r.context, n_lanes - 1) + 1;
    float *want = decode_behind(&r, n_lanes, n, 1);
    /* Few, because more threads than processors wait for each other busily. */
    static const int32_t n_threads[] = {2, 3, 7, MOST};
    for (size_t i = 0; i < N_ELEMENTS(n_threads); i++) {
        float *rows = decode_behind(&r, n_lanes, n, n_threads[i]);
        assert_memory_equal(rows, want, (size_t)(n_lanes * model_is.n_vocab) * sizeof *rows);
        free(rows);
    }
    free(want);
    rig_fini(&r);
}

static void sixteen_threads_as_one(void **state)
{
    (void)state;
    make("llama --wide --type q8_0");
    threads_do_not_change_a_bit(WEIR_LAYOUT_UNIFIED, WEIR_KV_F16, 1, false);
    threads_do_not_change_a_bit(WEIR_LAYOUT_PER_SLOT, WEIR_KV_Q8_0, 2, false);
    threads_do_not_change_a_bit(WEIR_LAYOUT_PER_SLOT, WEIR_KV_F16, 3, true);
    make("swa --wide --type q8_0");
    threads_do_not_change_a_bit(WEIR_LAYOUT_PER_SLOT, WEIR_KV_F16, 2, false);
}

/* ---- Faults ---- */

static void one_cell(void **state)
{
    (void)state;
    int32_t id = 30;
    make("llama --wide --type q8_0");
    float *want = NULL;
    for (int l = 0; l < 2; l++) {
        rig r;
        rig_init(&r, 512, 2, l == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT);
        assert_ok(feed(&r, 1, &id, 1, error));
        for (int32_t i = 0; i < model_is.n_vocab; i++) assert_true(isfinite(ops->logits(r.context, -1)[i]));
        if (want == NULL) want = row_copy(&r, -1);
        assert_row_is(&r, -1, want);
        rig_fini(&r);
    }
    free(want);
}

#ifndef WEIR_SANITIZED /* there ggml asserts that sums are finite */
/* Puts numbers that are none into a sequence's cells: among the last layer's values, in half precision. */
static void spoil(rig *r, int32_t seq)
{
    assert_ok(ops->settle(r->context, error));
    size_t size = ops->state_size(r->context, seq);
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(ops->state_save(r->context, seq, bytes, size), size);
    memset(bytes + size / 8 * 7, 0x7e, 3);
    assert_ok(ops->state_load(r->context, seq, bytes, size, error));
    free(bytes);
}

/* A cell that is no number spoils its own sequence, not the others, of which `shares` begin with the cells
 * that it had. In a pool, cells of all sequences alternate. */
static void no_number_in_one_sequence(weir_layout layout, bool shares)
{
    enum { SEQUENCES = 3, SPOILT = 1, N = 1500, ALTERNATING = 10 };
    static int32_t ids[SEQUENCES][N];
    size_t width = (size_t)model_is.n_vocab;
    rig r;
    weir_context_params params = rig_params((SEQUENCES + 1) * 2048, SEQUENCES, layout);
    params.n_threads = params.n_threads_batch = 2;
    rig_init_with(&r, &params);
    for (int32_t s = 0; s < SEQUENCES; s++) some_tokens(ids[s], 10 * s, N);
    if (shares) append(&r, SPOILT, ids[SPOILT], N);
    for (int32_t s = 0; s < SEQUENCES && shares; s++)
        if (s != SPOILT) assert_ok(ops->share(r.context, SPOILT, s, N, error));
    for (int32_t i = 0; i < N && !shares; i += ALTERNATING)
        for (int32_t s = 0; s < SEQUENCES; s++) append(&r, s, ids[s] + i, ALTERNATING);
    float *want = decode_behind(&r, SEQUENCES, N, 1);
    spoil(&r, SPOILT);
    float *rows = decode_behind(&r, SEQUENCES, N, 2);
    for (int32_t s = 0; s < SEQUENCES; s++) {
        const float *row = rows + (size_t)s * width;
        if (s == SPOILT)
            assert_true(isnan(row[0]));
        else
            assert_memory_equal(row, want + (row - rows), width * sizeof *row);
    }
    free(rows);
    free(want);
    rig_fini(&r);
}

static void no_number_is_one_sequences_own(void **state)
{
    (void)state;
    make("llama --wide --type q8_0");
    for (int shares = 0; shares < 2; shares++) {
        no_number_in_one_sequence(WEIR_LAYOUT_PER_SLOT, shares);
        no_number_in_one_sequence(WEIR_LAYOUT_UNIFIED, shares);
    }
}
#endif

/* The pass fails, and the next one is as if it had not been. */
static void no_memory_for_attention(void **state)
{
    (void)state;
    enum { N = 600 };
    static int32_t ids[N];
    rig r;
    make("llama --wide --type q8_0");
    some_tokens(ids, 0, N);
    rig_init(&r, 1024, 1, WEIR_LAYOUT_UNIFIED);
    append(&r, 0, ids, N);
    float *want = row_copy(&r, -1);
    rig_fini(&r);
    rig_init(&r, 1024, 1, WEIR_LAYOUT_UNIFIED);
    for (int32_t n = 0, more = 0; n < N; n += more) {
        more = n < 400 ? 100 : 20;
        weir__mem_fail_after(0);
        weir_status status = feed(&r, 0, ids + n, (size_t)more, NULL);
        bool failed = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(failed || n > 0); /* later passes need more memory only now and then */
        assert_int_equal(status, failed ? WEIR_NO_MEMORY : WEIR_OK);
        if (!failed) continue;
        assert_true(ops->seq_remove(r.context, 0, n, -1));
        assert_ok(feed(&r, 0, ids + n, (size_t)more, error));
    }
    assert_row_is(&r, -1, want);
    free(want);
    rig_fini(&r);
}

#ifdef __linux__
/* ---- A thread that the system takes away ---- */

enum { WORKERS = 2, AWAY_US = 2000 };

static atomic_int n_away; /* how often a worker was stopped */

/* Workers block other signals than those of faults. */
static void stay_away(int signal)
{
    (void)signal;
    pause_us(AWAY_US);
    atomic_fetch_add(&n_away, 1);
}

/* Ids of threads. */
typedef struct threads {
    int32_t n;
    long ids[64];
} threads;

static threads threads_now(void)
{
    threads all = {0};
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.' && all.n < (int32_t)N_ELEMENTS(all.ids))
            all.ids[all.n++] = strtol(entry->d_name, NULL, 10);
    closedir(folder);
    return all;
}

static threads threads_since(const threads *before)
{
    threads all = threads_now(), since = {0};
    for (int32_t i = 0; i < all.n; i++) {
        bool known = false;
        for (int32_t k = 0; k < before->n; k++) known = known || before->ids[k] == all.ids[i];
        if (!known) since.ids[since.n++] = all.ids[i];
    }
    return since;
}

/* The thread to stop, and the operation of a pass after which it stops. */
typedef struct stop {
    int32_t n, at; /* operations so far; 0 = none */
    long thread;   /* 0 = the one that asked for the pass */
} stop;

/* The pass's first thread calls this after each operation, before the barrier. The other threads may still be
 * computing that operation, or have reached the barrier; they cannot pass it without the first thread. */
static bool take_away(void *user)
{
    stop *s = user;
    if (++s->n != s->at) return false;
    if (s->thread == 0)
        pause_us(AWAY_US);
    else
        assert_int_equal(syscall(SYS_tgkill, getpid(), s->thread, SIGTRAP), 0);
    return false;
}

/* The last row of a pass of n tokens, for the caller to free. */
static float *pass_with(rig *r, const int32_t *ids, int32_t n, stop *s)
{
    int32_t from = ops->seq_pos_max(r->context, 0) + 1, away = atomic_load(&n_away);
    for (int k = 0; k < 2; k++) r->context->teams[k].n_threads = WORKERS + 1;
    ops->set_abort(r->context, take_away, s);
    assert_ok(feed(r, 0, ids, (size_t)n, error));
    float *row = row_copy(r, -1);
    ops->set_abort(r->context, NULL, NULL);
    assert_true(ops->seq_remove(r->context, 0, from, -1));
    if (s->at > 0 && s->thread != 0)
        while (atomic_load(&n_away) == away) pause_us(100);
    return row;
}

/* A thread is taken away behind any operation, with pieces that are items of work of their own and with tiles
 * that threads claim. */
static void a_thread_is_taken_away(void **state)
{
    (void)state;
    enum { N = 1500 };
    static int32_t ids[N];
    static const int32_t rows[] = {1, 70};
    rig r;
    struct sigaction before, away = {.sa_handler = stay_away};
    make("llama --wide --type q8_0");
    some_tokens(ids, 0, N);
    assert_int_equal(sigaction(SIGTRAP, &away, &before), 0);
    threads others = threads_now();
    weir_context_params params = rig_params(2048, 1, WEIR_LAYOUT_UNIFIED);
    params.n_threads = params.n_threads_batch = WORKERS + 1;
    rig_init_with(&r, &params);
    append(&r, 0, ids, N);
    threads workers = threads_since(&others);
    assert_int_equal(workers.n, WORKERS);
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        stop none = {0};
        float *want = pass_with(&r, ids, rows[i], &none);
        assert_true(none.n > 10);
        for (int32_t at = 1; at <= none.n; at += EFFORT(1, 4)) {
            int32_t victim = at % (WORKERS + 1);
            stop s = {.at = at, .thread = victim < WORKERS ? workers.ids[victim] : 0};
            float *row = pass_with(&r, ids, rows[i], &s);
            assert_memory_equal(row, want, (size_t)model_is.n_vocab * sizeof *row);
            free(row);
        }
        free(want);
    }
    rig_fini(&r);
    sigaction(SIGTRAP, &before, NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_with_the_same_beginning),
        cmocka_unit_test(lanes_with_sliding_windows),
        cmocka_unit_test(a_copy_that_ends_in_a_hole),
        cmocka_unit_test(sixteen_threads_as_one),
        cmocka_unit_test(one_cell),
        cmocka_unit_test(no_memory_for_attention),
#ifdef __linux__
        cmocka_unit_test(a_thread_is_taken_away),
#endif
#ifndef WEIR_SANITIZED
        cmocka_unit_test(no_number_is_one_sequences_own),
#endif
    };
    return RUN_MODEL_TESTS_WITH(tests, NULL, free_model);
}
