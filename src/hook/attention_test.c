/* Attention as ggml's operation against its definition in double precision, over random
 * shapes, masks and strides, and in passes over caches whose cells are copied, cut and loaded at random.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/hook.h"
#include "kernels/kernels.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/ggml.h"
#include "support/temp.h"

/* ---- The definition ---- */

/* The most that a row may differ from the definition, per largest value and score: queries and cells are
 * integers whose products' sums fit into 32 bits. */
#define TOLERANCE 1e-3
#define HIDDEN    0xfc00 /* minus infinity in half precision */

static dice the_dice;
static double worst;      /* difference so far, of TOLERANCE */
static int64_t n_checked; /* rows */

static void *row_at(const struct ggml_tensor *t, int64_t i, int64_t j, int64_t k)
{
    return (char *)t->data + (size_t)i * t->nb[1] + (size_t)j * t->nb[2] + (size_t)k * t->nb[3];
}

/* Keys or values of a head, [cells][size], for the caller to free. */
static float *numbers_of(const struct ggml_tensor *side, int64_t head, int64_t stream)
{
    int64_t size = side->ne[0];
    float *numbers = malloc((size_t)(side->ne[1] * size) * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t c = 0; c < side->ne[1]; c++) {
        const void *row = row_at(side, c, head, stream);
        if (side->type == GGML_TYPE_F32)
            memcpy(numbers + c * size, row, (size_t)size * sizeof *numbers);
        else
            ggml_get_type_traits(side->type)->to_float(row, numbers + c * size, size);
    }
    return numbers;
}

/* ALiBi's, arXiv 2108.12409; 1 without. */
static double slope_of(int64_t head, int64_t n_heads, double max_bias)
{
    int64_t n = 1;
    while (2 * n <= n_heads) n *= 2;
    double step = max_bias / (double)n;
    return head < n ? exp2(-step * (double)(head + 1)) : exp2(-step / 2 * (double)(2 * (head - n) + 1));
}

/* The scores of the cells that a query's head sees, -INFINITY for others; returns the largest without its
 * sign. */
static double scores_of(const struct ggml_tensor *op, const float *keys, int64_t query, int64_t head,
                        int64_t stream, double *scores)
{
    const struct ggml_tensor *k = op->src[1], *mask = op->src[3];
    const float *q = row_at(op->src[0], query, head, stream);
    const ggml_fp16_t *hides = mask != NULL ? row_at(mask, query, 0, stream % mask->ne[3]) : NULL;
    float params[3]; /* scale, ALiBi's largest bias, soft cap */
    double largest = 0;
    memcpy(params, op->op_params, sizeof params);
    double slope = slope_of(head, op->src[0]->ne[2], (double)params[1]), cap = (double)params[2];
    for (int64_t c = 0; c < k->ne[1]; c++) {
        double score = 0;
        scores[c] = -INFINITY;
        if (hides != NULL && hides[c] == HIDDEN) continue;
        for (int64_t i = 0; i < k->ne[0]; i++) score += (double)q[i] * (double)keys[c * k->ne[0] + i];
        score *= (double)params[0];
        if (cap > 0) score = cap * tanh(score / cap);
        if (hides != NULL) score += slope * (double)ggml_fp16_to_fp32(hides[c]);
        scores[c] = score;
        largest = fmax(largest, fabs(score));
    }
    return largest;
}

static void check_row(const struct ggml_tensor *op, const float *keys, const float *values, int64_t query,
                      int64_t head, int64_t stream, double *weights)
{
    const struct ggml_tensor *sinks = op->src[4];
    const float *got = row_at(op, head, query, stream);
    int64_t cells = op->src[1]->ne[1], size = op->ne[0];
    double score = scores_of(op, keys, query, head, stream, weights), most = -INFINITY, sum = 0, value = 0;
    if (sinks != NULL) most = (double)((const float *)sinks->data)[head];
    double sink = most;
    for (int64_t c = 0; c < cells; c++) most = fmax(most, weights[c]);
    if (sinks != NULL) sum = exp(sink - most);
    for (int64_t c = 0; c < cells; c++) {
        weights[c] = weights[c] > -INFINITY ? exp(weights[c] - most) : 0;
        sum += weights[c];
        for (int64_t i = 0; i < size && weights[c] > 0; i++)
            value = fmax(value, fabs((double)values[c * size + i]));
    }
    for (int64_t i = 0; i < size; i++) {
        double want = 0; /* also of a query that sees nothing */
        for (int64_t c = 0; c < cells; c++)
            if (weights[c] > 0) want += weights[c] / sum * (double)values[c * size + i];
        double off = fabs((double)got[i] - want), bound = TOLERANCE * value * (1 + score);
        if (!(off <= bound))
            fail_msg("number %lld of head %lld, query %lld, stream %lld is %.9g, not %.9g (%lld cells)",
                     (long long)i, (long long)head, (long long)query, (long long)stream, (double)got[i], want,
                     (long long)cells);
        if (bound > 0) worst = fmax(worst, off / bound);
    }
    n_checked++;
}

/* Checks as many rows of a result, chosen at random, as can be computed in some milliseconds. */
static void check_attention(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1];
    int64_t shared = q->ne[2] / k->ne[2];
    int64_t n = k->ne[1] * (k->ne[0] + op->ne[0]) * q->ne[1] * q->ne[2] * q->ne[3];
    int32_t one_in = (int32_t)(n / EFFORT(1500000, 500000)) + 1;
    double *weights = malloc((size_t)k->ne[1] * sizeof *weights);
    assert_non_null(weights);
    for (int64_t i = 0; i < k->ne[2] * q->ne[3]; i++) {
        int64_t kv = i % k->ne[2], stream = i / k->ne[2];
        float *keys = numbers_of(k, kv, stream), *values = numbers_of(op->src[2], kv, stream);
        for (int64_t row = 0; row < shared * q->ne[1]; row++)
            if (dice_one_in(&the_dice, one_in))
                check_row(op, keys, values, row / shared, kv * shared + row % shared, stream, weights);
        free(values);
        free(keys);
    }
    free(weights);
}

/* ---- Graphs ---- */

/* The inputs of attention. */
typedef struct attention {
    enum ggml_type type_k, type_v;
    int size_k, size_v, kv_heads, shared; /* shared: heads of queries for each of keys */
    int queries, streams, cells;
    float max_bias, softcap;
    bool sinks, unmasked, apart, sharp; /* each stream has its own mask; few cells get most of the weight */
} attention;

/* [size][n][heads][streams], which lie like llama.cpp's: heads behind one another, and room for more. */
static struct ggml_tensor *make_side(stage *s, enum ggml_type type, int size, int n, int heads, int streams)
{
    struct ggml_tensor *all = ggml_new_tensor_4d(s->computed, type, size, heads, n + 3, streams);
    return ggml_view_4d(s->computed, all, size, n, heads, streams, all->nb[2], all->nb[1], all->nb[3], 0);
}

/* Fills a side with numbers; behind the rows there are none. */
static void fill(dice *d, struct ggml_tensor *side)
{
    float numbers[WEIR__ATTENTION_SIZE];
    memset(side->view_src->data, 0xff, ggml_nbytes(side->view_src));
    for (int64_t row = 0; row < side->ne[1] * side->ne[2] * side->ne[3]; row++) {
        for (int64_t i = 0; i < side->ne[0]; i++) numbers[i] = (float)dice_in(d, -200000, 200000) * 1e-5f;
        void *at =
            row_at(side, row % side->ne[1], row / side->ne[1] % side->ne[2], row / side->ne[1] / side->ne[2]);
        ggml_quantize_chunk(side->type, numbers, at, 0, 1, side->ne[0], NULL);
    }
}

static void hide(ggml_fp16_t *row, int from, int to)
{
    for (int c = from; c < to; c++) row[c] = HIDDEN;
}

/* Makes the mask of a query: it sees the cells of the query before, less some of the first and a few more, as
 * in a prompt; or all, none, one, a window, or some, with a bias or without. */
static void mask_row(dice *d, ggml_fp16_t *row, int query, int cells, bool biased)
{
    int from = dice_in(d, 0, cells - 1), to = dice_in(d, from, cells), one_in = dice_in(d, 2, 9);
    if (query > 0 && dice_one_in(d, 2)) {
        memcpy(row, row - cells, (size_t)cells * sizeof *row);
        if (dice_one_in(d, 3)) hide(row, 0, from / 8);
        for (int n = dice_in(d, 0, 3); n > 0; n--) row[dice_in(d, 0, cells - 1)] = 0;
        return;
    }
    for (int c = 0; c < cells; c++)
        row[c] = ggml_fp32_to_fp16(biased ? (float)dice_in(d, -300, 0) * 0.01f : 0.0f);
    switch (dice_in(d, 0, 7)) {
    case 0: hide(row, 0, cells); break;
    case 1: break;
    case 2: hide(row, 0, from), hide(row, from + 1, cells); break;
    case 3: hide(row, to, cells); break;
    case 4: hide(row, 0, from), hide(row, to, cells); break;
    default:
        for (int c = 0; c < cells; c++)
            if (dice_one_in(d, one_in)) row[c] = HIDDEN;
    }
}

static void fill_mask(dice *d, struct ggml_tensor *mask, bool biased)
{
    int cells = (int)mask->ne[0], rows = (int)(mask->ne[1] * mask->ne[3]);
    for (int i = 0; i < rows; i++)
        mask_row(d, (ggml_fp16_t *)mask->data + i * cells, i % (int)mask->ne[1], cells, biased);
}

/* The number of threads does not change a bit of the result. */
static void compute_on(stage *s, const struct ggml_tensor *out, const int *n_threads, size_t n)
{
    void *first = malloc(ggml_nbytes(out));
    assert_non_null(first);
    for (size_t i = 0; i < n; i++) {
        memset(out->data, 0xff, ggml_nbytes(out));
        compute(s, n_threads[i]);
        if (i == 0) memcpy(first, out->data, ggml_nbytes(out));
        if (memcmp(out->data, first, ggml_nbytes(out)) != 0)
            fail_msg("%d threads compute other bits than %d", n_threads[i], n_threads[0]);
    }
    free(first);
}

static void attend(dice *d, const attention *a, const int *n_threads, size_t n)
{
    stage s;
    stage_init(&s);
    struct ggml_tensor *q =
        make_side(&s, GGML_TYPE_F32, a->size_k, a->queries, a->kv_heads * a->shared, a->streams);
    struct ggml_tensor *k = make_side(&s, a->type_k, a->size_k, a->cells, a->kv_heads, a->streams);
    struct ggml_tensor *v = make_side(&s, a->type_v, a->size_v, a->cells, a->kv_heads, a->streams);
    struct ggml_tensor *mask = a->unmasked ? NULL
                                           : ggml_new_tensor_4d(s.computed, GGML_TYPE_F16, a->cells,
                                                                a->queries, 1, a->apart ? a->streams : 1);
    struct ggml_tensor *sinks =
        a->sinks ? ggml_new_tensor_1d(s.computed, GGML_TYPE_F32, a->kv_heads * a->shared) : NULL;
    struct ggml_tensor *out = ggml_flash_attn_ext(s.computed, q, k, v, mask, 1.0f / sqrtf((float)a->size_k),
                                                  a->max_bias, a->softcap);
    ggml_flash_attn_ext_add_sinks(out, sinks);
    ggml_build_forward_expand(s.graph, out);
    allocate(&s);
    fill(d, q);
    fill(d, k);
    fill(d, v);
    if (mask != NULL) fill_mask(d, mask, a->max_bias > 0.0f || dice_one_in(d, 4));
    for (int i = 0; sinks != NULL && i < a->kv_heads * a->shared; i++)
        ((float *)sinks->data)[i] = (float)dice_in(d, -400, 400) * 0.01f;
    compute_on(&s, out, n_threads, n);
    check_attention(out);
    stage_fini(&s);
}

#define CELLS 96

static void attention_in_all_its_kinds(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 2, 3, 5, 7, 16};
    static const attention kinds[] = {
        {GGML_TYPE_F16, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 0, 0, false, false, false, false},
        {GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, 64, 64, 2, 3, 5, 1, CELLS, 0, 0, false, false, false, false},
        {GGML_TYPE_Q8_0, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 0, 0, false, false, false, false},
        {GGML_TYPE_F16, GGML_TYPE_Q8_0, 64, 64, 2, 3, 5, 1, CELLS, 0, 0, true, false, false, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 8, 0, false, false, false, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 0, 5, false, false, false, false},
        {GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, 64, 64, 2, 3, 5, 1, CELLS, 8, 5, true, false, false, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 0, 0, false, true, false, false},
        {GGML_TYPE_Q8_0, GGML_TYPE_F16, 64, 64, 2, 3, 5, 1, CELLS, 0, 5, true, true, false, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, 72, 72, 2, 3, 5, 1, CELLS, 0, 0, false, true, false, false},
        {GGML_TYPE_BF16, GGML_TYPE_F16, 88, 88, 2, 3, 5, 1, CELLS, 8, 5, true, false, false, false},
        {GGML_TYPE_F32, GGML_TYPE_F32, 8, 8, 2, 3, 5, 1, CELLS, 0, 0, false, false, false, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, 72, 72, 2, 3, 5, 3, CELLS, 0, 0, false, true, false, false},
        /* A thread packs a head's cells once for several tiles. */
        {GGML_TYPE_F16, GGML_TYPE_F16, 72, 72, 2, 3, 1500, 1, CELLS, 0, 0, false, true, false, false},
        {GGML_TYPE_F32, GGML_TYPE_Q8_0, 64, 64, 2, 3, 300, 3, CELLS, 0, 5, true, true, false, false},
    };
    for (size_t i = 0; i < N_ELEMENTS(kinds); i++)
        attend(&the_dice, &kinds[i], n_threads, N_ELEMENTS(n_threads));
}

/* Several pieces of 512 cells, which become items of work of their own as soon as there are two threads. */
static void attention_to_many_cells(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 2, 3, 5, 7, 16};
    static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_Q8_0};
    dice *d = &the_dice;
    for (size_t t = 0; t < N_ELEMENTS(types); t++)
        for (int queries = 1; queries <= 6; queries++) {
            attention a = {.type_k = types[t],
                           .type_v = types[t],
                           .size_k = 64,
                           .size_v = 64,
                           .kv_heads = 2,
                           .shared = 3,
                           .queries = queries,
                           .streams = 1,
                           .cells = dice_in(d, 1900, 2100),
                           .sinks = dice_one_in(d, 4),
                           .sharp = dice_one_in(d, 2)};
            attend(d, &a, n_threads, N_ELEMENTS(n_threads));
        }
}

static enum ggml_type type_for(dice *d, int size)
{
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_Q8_0,
                                           GGML_TYPE_Q4_0};
    return types[dice_in(d, 0, size % 32 == 0 ? 4 : 2)];
}

static attention some_attention(dice *d)
{
    static const int sizes[] = {8, 64, 72, 80, 96, 112, 128, 192, 256},
                     shared[] = {1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 320},
                     /* at most */ cells[] = {1, 3, 70, 520, 2200}, queries[] = {1, 1, 3, 8, 70, 600};
    attention a = {.size_k = sizes[dice_in(d, 0, N_ELEMENTS(sizes) - 1)],
                   .size_v = sizes[dice_in(d, 0, N_ELEMENTS(sizes) - 1)],
                   .kv_heads = dice_in(d, 1, 4),
                   .shared = shared[dice_in(d, 0, N_ELEMENTS(shared) - 1)],
                   .queries = dice_in(d, 1, queries[dice_in(d, 0, N_ELEMENTS(queries) - 1)]),
                   .streams = dice_one_in(d, 3) ? dice_in(d, 2, 4) : 1,
                   .cells = dice_in(d, 1, cells[dice_in(d, 0, N_ELEMENTS(cells) - 1)]),
                   .softcap = dice_one_in(d, 3) ? 5.0f : 0.0f,
                   .sinks = dice_one_in(d, 3),
                   .unmasked = dice_one_in(d, 8),
                   .apart = dice_one_in(d, 2),
                   .sharp = dice_one_in(d, 2)};
    a.type_k = type_for(d, a.size_k);
    a.type_v = type_for(d, a.size_v);
    if (!a.unmasked && dice_one_in(d, 3)) a.max_bias = 8.0f;
    while (a.queries > 1 && (int64_t)a.queries * a.kv_heads * a.shared * a.streams * a.cells > 4000000)
        a.queries /= 2;
    return a;
}

static void attention_at_random(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 1, 2, 2, 3, 5, 7, 16};
    uint64_t rounds = dice_environment("WEIR_TEST_ROUNDS", EFFORT(300, 60));
    for (uint64_t i = 0; i < rounds; i++) {
        attention a = some_attention(&the_dice);
        const int n[] = {n_threads[dice_in(&the_dice, 0, 7)], n_threads[dice_in(&the_dice, 0, 7)]};
        attend(&the_dice, &a, n, N_ELEMENTS(n));
    }
}

/* ---- Passes ---- */

enum { SEQUENCES = 4, LONGEST = 480, STEPS = 40, MOST_THREADS = 5 };

static bool see_attention(struct ggml_tensor *node, bool ask, void *user)
{
    (void)user;
    if (ask) return node->op == GGML_OP_FLASH_ATTN_EXT;
    check_attention(node);
    return true;
}

/* Tokens of some sequences, few or many of each, one sequence after the other or in turns. */
static void decode_some(rig *r)
{
    dice *d = &the_dice;
    int32_t left[SEQUENCES], next[SEQUENCES], n = 0,
                                              most = dice_one_in(d, 3)   ? 100
                                                     : dice_one_in(d, 2) ? 9
                                                                         : 1;
    bool turns = dice_one_in(d, 3);
    for (int32_t s = 0; s < SEQUENCES; s++) {
        next[s] = ops->seq_pos_max(r->context, s) + 1;
        left[s] = s > 0 && dice_one_in(d, 3) ? 0 : dice_in(d, 1, most);
        if (next[s] + left[s] > LONGEST) {
            assert_true(ops->seq_remove(r->context, s, 0, -1));
            next[s] = 0;
        }
        n += left[s];
    }
    r->batch.n = 0;
    for (int32_t s = 0; r->batch.n < n; s = turns || left[s] == 0 ? (s + 1) % SEQUENCES : s) {
        if (left[s] == 0) continue;
        weir__batch_add(&r->batch, dice_in(d, 20, 400), next[s]++, s, --left[s] == 0);
    }
    for (int k = 0; k < 2; k++) r->context->teams[k].n_threads = dice_in(d, 1, MOST_THREADS);
    assert_ok(ops->decode(r->context, &r->batch, error));
}

/* Copies cells from another sequence, loads a saved state, or removes cells: those at the end, all, or some
 * in the middle. Some memories cannot do all of this. */
static void change_one(rig *r)
{
    dice *d = &the_dice;
    int32_t from = dice_in(d, 0, SEQUENCES - 1), to = (from + dice_in(d, 1, SEQUENCES - 1)) % SEQUENCES;
    int32_t n = ops->seq_pos_max(r->context, from) + 1, some = dice_in(d, 0, n);
    switch (dice_in(d, 0, 8)) {
    case 0: (void)ops->share(r->context, from, to, n, NULL); break;
    case 1: (void)ops->share(r->context, from, to, some, NULL); break;
    case 2: (void)ops->share(r->context, from, to, n * 3 / 4, NULL); break;
    case 3: (void)ops->seq_remove(r->context, from, some, -1); break;
    case 4: (void)ops->seq_remove(r->context, from, n / 2, n * 7 / 8); break;
    case 5: (void)ops->seq_remove(r->context, from, some / 2, some); break;
    case 6: {
        assert_ok(ops->settle(r->context, error));
        size_t size = ops->state_size(r->context, from);
        void *bytes = malloc(size);
        assert_int_equal(ops->state_save(r->context, from, bytes, size), size);
        assert_ok(ops->state_load(r->context, to, bytes, size, error));
        free(bytes);
        break;
    }
    default: break;
    }
}

static void passes_over(weir_layout layout, weir_kv_type type_k, weir_kv_type type_v)
{
    rig r;
    weir_context_params params = rig_params(SEQUENCES * 512, SEQUENCES, layout);
    params.type_k = type_k;
    params.type_v = type_v;
    params.n_threads = params.n_threads_batch = MOST_THREADS;
    rig_init_with(&r, &params);
    assert_true(weir__hook_attends(r.context->context));
    for (int i = 0; i < STEPS; i++) {
        change_one(&r);
        decode_some(&r);
    }
    rig_fini(&r);
}

static void passes_at_random(void **state)
{
    (void)state;
    static const char *const kinds[] = {"llama --wide --type q8_0", "swa --wide --type q8_0",
                                        "qwen --wide --type q8_0"};
    static const weir_kv_type types[] = {WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_Q4_0};
    uint64_t rounds = dice_environment("WEIR_TEST_ROUNDS", EFFORT(12, 3));
    int64_t before = n_checked;
    for (uint64_t i = 0; i < rounds; i++) {
        char path[TEMP_PATH_MAX];
        temp_model(path, "model.gguf", kinds[i % N_ELEMENTS(kinds)]);
        use_model(path);
        model->attention.cb_eval = see_attention;
        for (int l = 0; l < 2; l++)
            passes_over(l == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT, types[dice_in(&the_dice, 0, 2)],
                        types[dice_in(&the_dice, 0, 2)]);
    }
    free_model(NULL);
    assert_true(n_checked > before);
}

static int tell(void **state)
{
    (void)state;
    print_message("%lld rows; at most %.2f of the bound\n", (long long)n_checked, worst);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_in_all_its_kinds), cmocka_unit_test(attention_to_many_cells),
        cmocka_unit_test(attention_at_random), cmocka_unit_test(passes_at_random)};
    if (weir__llama_start(NULL) != WEIR_OK) return 77;
    if (*weir__hook_kernels() == '\0') return 77; /* none here */
    the_dice.state = dice_environment("WEIR_TEST_SEED", 1);
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)the_dice.state);
    return cmocka_run_group_tests_name("hook_attention", tests, NULL, tell);
}
