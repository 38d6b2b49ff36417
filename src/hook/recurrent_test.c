/* Layers with a state through ggml's own graphs, as llama.cpp builds them: the memory's states are read and
 * written where they lie, whichever sequences a pass has, and as ggml would where the graph is another one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "hook/hook.h"
#include "kernels/kernels.h"
#include "support/dice.h"
#include "support/ggml.h"

#define CELLS 44 /* of the memory */
#define MOST  40 /* sequences of a pass */

static float number(dice *d)
{
    return (float)dice_in(d, -1000000, 1000000) / 1e6f;
}

static void fill(dice *d, struct ggml_tensor *x)
{
    for (int64_t i = 0; i < ggml_nelements(x); i++) ((float *)x->data)[i] = number(d);
}

/* What a pass has. */
typedef struct pass {
    int64_t n_sequences, n_tokens, head; /* head: the first of the cells that it leaves its states in */
    int32_t from[MOST];                  /* the cell that has the state of each before it */
    int64_t n_kept;                      /* states of each that it leaves, in groups of CELLS cells */
    bool is_read, reads_rows; /* another operation reads what lies in between; the states before the pass */
    enum { COPY, SECOND, GELU } reader; /* SECOND: a second net, or a second copy of the states */
    int n_threads, n_first;             /* n_first: 0, or operations of the first of two plans */
} pass;

static pass roll_pass(dice *d)
{
    pass p = {.n_sequences = dice_in(d, 1, 3), .n_tokens = dice_one_in(d, 2) ? 1 : dice_in(d, 2, 40)};
    if (dice_one_in(d, 20)) p.n_sequences = dice_in(d, 33, MOST);
    p.head = dice_in(d, 0, CELLS - MOST - 1);
    p.n_kept = dice_one_in(d, 2) ? 1 : 3;
    p.is_read = dice_one_in(d, 4);
    p.reads_rows = dice_one_in(d, 2);
    p.reader = dice_in(d, COPY, GELU);
    p.n_threads = dice_in(d, 1, 3);
    if (!p.is_read && dice_one_in(d, 3)) p.n_first = dice_in(d, 1, 9);
    bool moves = dice_one_in(d, 2);
    for (int64_t s = 0; s < p.n_sequences; s++)
        p.from[s] = moves && !dice_one_in(d, 4) ? dice_in(d, 0, (int32_t)(p.head + p.n_sequences))
                                                : (int32_t)(p.head + s);
    return p;
}

/* The cells that have the states of a pass's sequences: an input, whose memory is used again. */
static struct ggml_tensor *new_cells(stage *s, const pass *p)
{
    struct ggml_tensor *from = ggml_new_tensor_1d(s->computed, GGML_TYPE_I32, p->n_sequences);
    ggml_set_input(from);
    return from;
}

/* The memory's cells copied out for the sequences of a pass. */
static struct ggml_tensor *copied_out(stage *s, struct ggml_tensor *memory, struct ggml_tensor *from)
{
    struct ggml_tensor *rows = ggml_get_rows(s->computed, memory, from);
    ggml_build_forward_expand(s->graph, rows);
    return rows;
}

static void compute_pass(stage *s, const pass *p, const struct ggml_tensor *from, int n_threads)
{
    struct ggml_cgraph *all = s->graph, *parts[2] = {all};
    int n = ggml_graph_n_nodes(all), n_parts = p->n_first > 0 && p->n_first < n ? 2 : 1;
    if (n_parts == 2) {
        for (int i = 0; i < 2; i++) parts[i] = ggml_new_graph_custom(s->computed, 64, false);
        for (int i = 0; i < n; i++) ggml_graph_add_node(parts[i >= p->n_first], ggml_graph_node(all, i));
    }
    memcpy(from->data, p->from, (size_t)p->n_sequences * sizeof *p->from);
    for (int i = 0; i < n_parts; i++) {
        s->graph = parts[i];
        compute(s, n_threads);
    }
    s->graph = all;
}

/* As llama.cpp does with a graph that fits the next pass, too. In the first, states stay where they are. */
static void compute_twice(stage *s, const pass *p, const struct ggml_tensor *from, struct ggml_tensor *memory)
{
    float *before = malloc(ggml_nbytes(memory));
    memcpy(before, memory->data, ggml_nbytes(memory));
    pass first = *p;
    first.n_first = 0;
    for (int64_t i = 0; i < p->n_sequences; i++) first.from[i] = (int32_t)(p->head + i);
    compute_pass(s, &first, from, 4 - p->n_threads);
    memcpy(memory->data, before, ggml_nbytes(memory));
    compute_pass(s, p, from, p->n_threads);
    free(before);
}

static void assert_near(const float *got, double want, const char *what, uint64_t seed, int64_t i)
{
    if (!(fabs((double)*got - want) < 2e-5))
        fail_msg("seed %llu, %s %lld: %g, not %g", (unsigned long long)seed, what, (long long)i, (double)*got,
                 want);
}

static double gelu_of(double x)
{
    return x / 2.0 * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* ---- Gated delta net ---- */

#define SIZE   32
#define HEADS  3
#define KEYS   1 /* heads of queries and keys */
#define STATE  (HEADS * SIZE * SIZE)
#define POISON 12345.0f

typedef struct net {
    struct ggml_tensor *q, *k, *v, *gate, *beta, *out;
} net;

/* One token of a head, in double precision. */
static void step(const net *n, int64_t head, int64_t token, int64_t sequence, double *state, double *out)
{
    int64_t n_tokens = n->v->ne[2], at = sequence * n_tokens + token;
    const float *q = (float *)n->q->data + (at * KEYS + head % KEYS) * SIZE;
    const float *k = (float *)n->k->data + (at * KEYS + head % KEYS) * SIZE;
    const float *v = (float *)n->v->data + (at * HEADS + head) * SIZE;
    double decay = exp((double)((float *)n->gate->data)[at * HEADS + head]);
    double beta = (double)((float *)n->beta->data)[at * HEADS + head];
    for (int64_t j = 0; j < SIZE; j++) {
        double *row = state + j * SIZE, product = 0.0, result = 0.0;
        for (int64_t i = 0; i < SIZE; i++) product += decay * row[i] * (double)k[i];
        for (int64_t i = 0; i < SIZE; i++) {
            row[i] = decay * row[i] + ((double)v[j] - product) * beta * (double)k[i];
            result += row[i] * (double)q[i];
        }
        out[j] = result / sqrt((double)SIZE);
    }
}

static void check_net(const net *n, const pass *p, const float *before, const float *after, uint64_t seed)
{
    bool written[3 * CELLS] = {false};
    for (int64_t s = 0; s < p->n_sequences; s++)
        for (int64_t h = 0; h < HEADS; h++) {
            double state[SIZE * SIZE], out[SIZE];
            for (int64_t i = 0; i < SIZE * SIZE; i++)
                state[i] = (double)before[p->from[s] * STATE + h * SIZE * SIZE + i];
            for (int64_t t = 0; t < p->n_tokens; t++) {
                step(n, h, t, s, state, out);
                for (int64_t j = 0; j < SIZE; j++)
                    assert_near((float *)n->out->data + ((s * p->n_tokens + t) * HEADS + h) * SIZE + j,
                                out[j], "result", seed, j);
                int64_t back = p->n_tokens - 1 - t;
                if (back >= p->n_kept) continue;
                int64_t cell = back * CELLS + p->head + s;
                written[cell] = true;
                for (int64_t i = 0; i < SIZE * SIZE; i++)
                    assert_near(after + cell * STATE + h * SIZE * SIZE + i, state[i], "state", seed, i);
            }
        }
    for (int64_t cell = 0; cell < p->n_kept * CELLS; cell++)
        if (!written[cell])
            assert_memory_equal(before + cell * STATE, after + cell * STATE, STATE * sizeof(float));
}

static int n_reused; /* passes in which the cells' numbers were overwritten before the net */

/* True if the states went to the memory without a copy beside the results. */
static bool run_net(uint64_t seed)
{
    dice d = {seed};
    pass p = roll_pass(&d);
    int64_t n_written = p.n_tokens < p.n_kept ? p.n_tokens : p.n_kept;
    stage s;
    net n;
    stage_init(&s);
    struct ggml_tensor *memory = ggml_new_tensor_2d(s.held, GGML_TYPE_F32, STATE, CELLS * p.n_kept);
    struct ggml_tensor *spare = ggml_new_tensor_3d(s.held, GGML_TYPE_F32, STATE, p.n_sequences, n_written);
    n.q = ggml_new_tensor_4d(s.held, GGML_TYPE_F32, SIZE, KEYS, p.n_tokens, p.n_sequences);
    n.k = ggml_dup_tensor(s.held, n.q);
    n.v = ggml_new_tensor_4d(s.held, GGML_TYPE_F32, SIZE, HEADS, p.n_tokens, p.n_sequences);
    n.gate = ggml_new_tensor_4d(s.held, GGML_TYPE_F32, 1, HEADS, p.n_tokens, p.n_sequences);
    n.beta = ggml_dup_tensor(s.held, n.gate);
    s.weights = ggml_backend_alloc_ctx_tensors(s.held, s.backend);

    struct ggml_tensor *from = new_cells(&s, &p), *rows = copied_out(&s, memory, from);
    struct ggml_tensor *gate = ggml_dup(s.computed, n.gate); /* fits where the cells' numbers were */
    struct ggml_tensor *state = ggml_reshape_4d(s.computed, rows, SIZE, SIZE, HEADS, p.n_sequences);
    n.out = ggml_gated_delta_net(s.computed, n.q, n.k, n.v, gate, n.beta, state, p.n_kept);
    ggml_set_output(n.out);
    size_t results = (size_t)ggml_nelements(n.v) * sizeof(float), row = STATE * sizeof(float);
    struct ggml_tensor *states = ggml_view_3d(s.computed, n.out, STATE, p.n_sequences, n_written, row,
                                              row * (size_t)p.n_sequences, results);
    ggml_build_forward_expand(s.graph,
                              ggml_cpy(s.computed, states,
                                       ggml_view_3d(s.computed, memory, STATE, p.n_sequences, n_written,
                                                    memory->nb[1], CELLS * row, (size_t)p.head * row)));
    struct ggml_tensor *read = p.reads_rows ? rows : states, *other;
    if (p.reader == COPY)
        other = ggml_cont(s.computed, read);
    else if (p.reader == GELU)
        other = ggml_gelu(s.computed, read);
    else
        other = p.reads_rows ? ggml_gated_delta_net(s.computed, n.q, n.k, n.v, gate, n.beta, state, p.n_kept)
                             : ggml_cpy(s.computed, states, spare);
    ggml_set_output(other);
    if (p.is_read) ggml_build_forward_expand(s.graph, other);
    allocate_shared(&s);
    n_reused += gate->data == from->data;
    struct ggml_tensor *inputs[] = {memory, n.q, n.k, n.v, n.gate, n.beta};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) fill(&d, inputs[i]);
    for (int64_t i = 0; i < ggml_nelements(n.k); i++) ((float *)n.k->data)[i] /= 4.0f; /* about 1 long */
    for (int64_t i = 0; i < ggml_nelements(n.gate); i++) ((float *)n.gate->data)[i] -= 1.0f;
    float *beside = (float *)((char *)n.out->data + results), *before = malloc(ggml_nbytes(memory));
    memcpy(before, memory->data, ggml_nbytes(memory));
    *beside = POISON;
    compute_twice(&s, &p, from, memory);
    bool joined = *beside == POISON;
    check_net(&n, &p, before, memory->data, seed);
    bool is_net = other->op == GGML_OP_GATED_DELTA_NET;
    if (p.is_read && is_net) assert_memory_equal(other->data, n.out->data, results);
    for (int64_t i = 0; p.is_read && !is_net && i < p.n_sequences * STATE; i++) {
        const float *want = p.reads_rows ? before + p.from[i / STATE] * STATE + i % STATE
                                         : (float *)memory->data + p.head * STATE + i;
        if (p.reader == GELU)
            assert_near((float *)other->data + i, gelu_of((double)*want), "GELU", seed, i);
        else
            assert_true(((float *)other->data)[i] == *want);
    }
    if (p.n_first == 0) assert_int_equal(joined, !p.is_read || p.reads_rows);
    free(before);
    stage_fini(&s);
    return joined;
}

static void states_stay_where_they_lie(void **state)
{
    (void)state;
    int n_joined = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) n_joined += run_net(seed);
    assert_true(n_joined > 200 && n_joined < 300);
    assert_true(n_reused > 100);
}

/* ---- Short convolutions ---- */

#define CHANNELS 48
#define BEFORE   3 /* numbers of the past */

static void run_convolution(uint64_t seed)
{
    dice d = {seed};
    pass p = roll_pass(&d);
    int64_t n_written = p.n_tokens < p.n_kept ? p.n_tokens : p.n_kept, row = BEFORE * CHANNELS;
    int32_t shape = dice_in(&d, 1, 3); /* of what is left in the memory: dimensions */
    stage s;
    stage_init(&s);
    struct ggml_tensor *memory = ggml_new_tensor_2d(s.held, GGML_TYPE_F32, row, CELLS * p.n_kept);
    struct ggml_tensor *x = ggml_new_tensor_3d(s.held, GGML_TYPE_F32, CHANNELS, p.n_tokens, p.n_sequences);
    struct ggml_tensor *weights = ggml_new_tensor_2d(s.held, GGML_TYPE_F32, BEFORE + 1, CHANNELS);
    s.weights = ggml_backend_alloc_ctx_tensors(s.held, s.backend);

    struct ggml_tensor *from = new_cells(&s, &p);
    struct ggml_tensor *past =
        ggml_reshape_3d(s.computed, copied_out(&s, memory, from), BEFORE, CHANNELS, p.n_sequences);
    struct ggml_tensor *window = ggml_concat(s.computed, past, ggml_transpose(s.computed, x), 0);
    for (int64_t back = 0; back < n_written; back++) {
        struct ggml_tensor *last =
            ggml_view_3d(s.computed, window, BEFORE, CHANNELS, p.n_sequences, window->nb[1], window->nb[2],
                         (size_t)(p.n_tokens - back) * sizeof(float));
        size_t at = (size_t)((back * CELLS + p.head) * row) * sizeof(float);
        struct ggml_tensor *to =
            shape == 1 ? ggml_view_1d(s.computed, memory, row * p.n_sequences, at)
                       : ggml_view_2d(s.computed, memory, row, p.n_sequences, memory->nb[1], at);
        if (shape == 3) to = ggml_permute(s.computed, to, 0, 2, 1, 3);
        ggml_build_forward_expand(s.graph, ggml_cpy(s.computed, last, to));
    }
    bool joined = !p.is_read && p.n_first == 0 && (shape < 3 || p.n_sequences == 1);
    struct ggml_tensor *out = ggml_ssm_conv(s.computed, window, weights);
    struct ggml_tensor *other = ggml_sqr(s.computed, window);
    if (p.is_read && dice_one_in(&d, 2)) ggml_build_forward_expand(s.graph, other);
    ggml_build_forward_expand(s.graph, out);
    if (p.is_read) ggml_build_forward_expand(s.graph, other);
    allocate(&s);
    fill(&d, memory);
    fill(&d, x);
    fill(&d, weights);
    float *before = malloc(ggml_nbytes(memory)), *after = memory->data;
    memcpy(before, memory->data, ggml_nbytes(memory));
    compute_twice(&s, &p, from, memory);

    float numbers[BEFORE + 40];
    for (int64_t i = 0; i < p.n_sequences * CHANNELS; i++) {
        int64_t sequence = i / CHANNELS, c = i % CHANNELS;
        for (int64_t t = 0; t < BEFORE; t++) numbers[t] = before[p.from[sequence] * row + c * BEFORE + t];
        for (int64_t t = 0; t < p.n_tokens; t++)
            numbers[BEFORE + t] = ((float *)x->data)[(sequence * p.n_tokens + t) * CHANNELS + c];
        for (int64_t t = 0; t < p.n_tokens; t++) {
            const float *w = (float *)weights->data + c * (BEFORE + 1);
            float want = numbers[t] * w[0]; /* to the bit, either way */
            for (int64_t tap = 1; tap <= BEFORE; tap++) want = fmaf(numbers[t + tap], w[tap], want);
            assert_true(((float *)out->data)[(sequence * p.n_tokens + t) * CHANNELS + c] == want);
        }
        for (int64_t back = 0; back < n_written; back++)
            for (int64_t t = 0; t < BEFORE; t++)
                assert_true(after[(back * CELLS + p.head + sequence) * row + c * BEFORE + t] ==
                            numbers[p.n_tokens - back + t]);
        for (int64_t t = 0; joined && t < BEFORE + p.n_tokens; t++) /* rows of tokens, not of channels */
            assert_true(((float *)window->data)[(sequence * (BEFORE + p.n_tokens) + t) * CHANNELS + c] ==
                        numbers[t]);
        for (int64_t t = 0; p.is_read && t < BEFORE + p.n_tokens; t++)
            assert_true(((float *)other->data)[i * (BEFORE + p.n_tokens) + t] == numbers[t] * numbers[t]);
    }
    free(before);
    stage_fini(&s);
}

static void windows_have_rows_of_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) run_convolution(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_stay_where_they_lie),
                                       cmocka_unit_test(windows_have_rows_of_tokens)};
    if (weir__llama_start(NULL) != WEIR_OK || *weir__hook_kernels() == '\0') return 77; /* no kernels here */
    return cmocka_run_group_tests_name("recurrent_hook", tests, NULL, NULL);
}
