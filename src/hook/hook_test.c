/* Products through ggml's own graphs, with weights in weir's buffers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "hook/hook.h"
#include "kernels/kernels.h"
#include "support/blocks.h"
#include "support/ggml.h"
#include "support/temp.h"

#define N    64
#define K    96
#define WIDE 512
#define MOST 40 /* rows of activations */

/* All formats of panels that a model may have. */
#define QUANTIZED(name) GGML_TYPE_##name,
static const enum ggml_type all_types[] = {WEIR__PANEL_QUANTIZED(QUANTIZED) GGML_TYPE_BF16, GGML_TYPE_F16};

static ggml_backend_buffer_type_t weights_type(void)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_get_extra_bufts_t extra =
        (ggml_backend_dev_get_extra_bufts_t)(uintptr_t)ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *types = extra(device);
    return types != NULL && *types != NULL && strcmp(ggml_backend_buft_name(*types), "CPU_WEIR") == 0 ? *types
                                                                                                      : NULL;
}

static void hold_weights(stage *s, ggml_backend_buffer_type_t where)
{
    s->weights = ggml_backend_alloc_ctx_tensors_from_buft(s->held, where);
    assert_non_null(s->weights);
    ggml_backend_buffer_set_usage(s->weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

/* Multiplies with activations whose rows and matrices lie `gap` numbers further apart than they must. */
static void multiply(int64_t gap, int64_t rows, int n_threads, float *out)
{
    stage s;
    stage_init(&s);
    struct ggml_tensor *weights = ggml_new_tensor_2d(s.held, GGML_TYPE_Q8_0, K, N);
    hold_weights(&s, weights_type());
    float *values = calloc((size_t)(N * K), sizeof *values);
    unsigned char *rounded = calloc(1, ggml_nbytes(weights));
    for (int i = 0; i < N * K; i++) values[i] = sinf((float)i);
    ggml_quantize_chunk(GGML_TYPE_Q8_0, values, rounded, 0, N, K, NULL);
    ggml_backend_tensor_set(weights, rounded, 0, ggml_nbytes(weights));

    struct ggml_tensor *all = ggml_new_tensor_3d(s.computed, GGML_TYPE_F32, K + gap, rows + gap, 3);
    struct ggml_tensor *x = ggml_view_3d(s.computed, all, K, rows, 3, all->nb[1], all->nb[2], 0);
    struct ggml_tensor *product = ggml_mul_mat(s.computed, weights, x);
    ggml_build_forward_expand(s.graph, product);
    allocate(&s);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < K; k++)
                ((float *)all->data)[(i * (rows + gap) + r) * (K + gap) + k] =
                    cosf((float)((i * rows + r) * K + k));
    /* Twice, as llama.cpp does with a graph that fits the next pass, too. */
    compute(&s, 4 - n_threads);
    memset(product->data, 0xff, ggml_nbytes(product));
    compute(&s, n_threads);
    memcpy(out, product->data, (size_t)(3 * rows * N) * sizeof *out);
    stage_fini(&s);
    free(rounded);
    free(values);
}

static void activations_may_lie_apart(void **state)
{
    (void)state;
    static float want[3 * 40 * N], got[3 * 40 * N];
    static const int64_t rows[] = {1, 2, 7, 40};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        multiply(0, rows[i], 1, want);
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            multiply(5, rows[i], n_threads, got);
            assert_memory_equal(got, want, (size_t)(3 * rows[i] * N) * sizeof *want);
        }
    }
    assert_true(fabsf(want[1]) > 0.0f);
}

/* Random weights, rounded to the format, and their values after it. */
static void make_weights(enum ggml_type type, int64_t n, int64_t k, void *rounded, float *values)
{
    dice d = {.state = 1};
    for (int64_t i = 0; i < n * k; i++) values[i] = sinf((float)i * (1.0f + (float)(i % 7)));
    if (blocks_are_random(type))
        blocks_fill(type, rounded, ggml_row_size(type, k) * (size_t)n, &d);
    else
        ggml_quantize_chunk(type, values, rounded, 0, n, k, NULL);
    ggml_get_type_traits(type)->to_float(rounded, values, n * k);
}

/* Rows of activations through experts, `shared` ones for all a token uses; then each row alone as a product
 * with its expert's matrix. */
static void multiply_with_experts(enum ggml_type type, int n_tokens, bool shared, int n_threads)
{
    enum { EXPERTS = 7, USED = 3 };
    const int64_t k = ggml_blck_size(type) > 32 ? 256 : K;
    stage s;
    stage_init(&s);
    struct ggml_tensor *weights = ggml_new_tensor_3d(s.held, type, k, N, EXPERTS), *one[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) one[e] = ggml_new_tensor_2d(s.held, type, k, N);
    hold_weights(&s, weights_type());
    float *values = calloc((size_t)(EXPERTS * N * k), sizeof *values);
    unsigned char *rounded = calloc(1, ggml_nbytes(weights));
    make_weights(type, EXPERTS * N, k, rounded, values);
    ggml_backend_tensor_set(weights, rounded, 0, ggml_nbytes(weights));
    for (int e = 0; e < EXPERTS; e++)
        ggml_backend_tensor_set(one[e], rounded + (size_t)e * ggml_nbytes(one[e]), 0, ggml_nbytes(one[e]));

    /* The chosen experts are the first columns of more, as in llama.cpp. */
    struct ggml_tensor *all_ids = ggml_new_tensor_2d(s.computed, GGML_TYPE_I32, EXPERTS, n_tokens);
    struct ggml_tensor *ids = ggml_view_2d(s.computed, all_ids, USED, n_tokens, all_ids->nb[1], 0);
    struct ggml_tensor *x = ggml_new_tensor_3d(s.computed, GGML_TYPE_F32, k, shared ? 1 : USED, n_tokens);
    struct ggml_tensor *got = ggml_mul_mat_id(s.computed, weights, x, ids), *want[EXPERTS];
    ggml_build_forward_expand(s.graph, got);
    for (int e = 0; e < EXPERTS; e++) {
        want[e] = ggml_mul_mat(s.computed, one[e], x);
        ggml_build_forward_expand(s.graph, want[e]);
    }
    allocate(&s);
    for (int64_t i = 0; i < ggml_nelements(x); i++) ((float *)x->data)[i] = cosf((float)i);
    /* The last expert is used by no token, the one before it by most. */
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0; i < EXPERTS; i++)
            ((int32_t *)all_ids->data)[t * EXPERTS + i] = i >= USED ? -1
                                                          : i == 0 && t % 3 != 0
                                                              ? 5
                                                              : (t * t + 2 * i) % (EXPERTS - 2);
    compute(&s, n_threads);
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0; i < USED; i++) {
            int expert = ((int32_t *)all_ids->data)[t * EXPERTS + i];
            const float *row = (const float *)want[expert]->data + (shared ? t : t * USED + i) * N;
            assert_memory_equal((float *)got->data + (t * USED + i) * N, row, N * sizeof *row);
        }
    stage_fini(&s);
    free(rounded);
    free(values);
}

static void experts_multiply_as_matrices_do(void **state)
{
    (void)state;
    static const int n_tokens[] = {1, 2, 5, 40, 300}, n_threads[] = {1, 2, 3, 5};
    for (size_t i = 0; i < sizeof n_tokens / sizeof *n_tokens; i++)
        for (size_t t = 0; t < sizeof n_threads / sizeof *n_threads; t++) {
            multiply_with_experts(GGML_TYPE_Q8_0, n_tokens[i], true, n_threads[t]);
            multiply_with_experts(GGML_TYPE_Q8_0, n_tokens[i], false, n_threads[t]);
        }
    for (size_t t = 0; t < N_ELEMENTS(all_types); t++) {
        multiply_with_experts(all_types[t], 1, true, 1);
        multiply_with_experts(all_types[t], 40, false, 2);
    }
}

/* Weights as llama.cpp has those that choose experts. */
static void small_products_do_not_depend_on_the_company(void **state)
{
    (void)state;
    enum { WIDTH = 320, EXPERTS = 24, TOKENS = 37 };
    float all[TOKENS][EXPERTS];
    for (int m = TOKENS; m >= 1; m -= 9)
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            stage s;
            stage_init(&s);
            struct ggml_tensor *weights = ggml_new_tensor_2d(s.held, GGML_TYPE_F32, WIDTH, EXPERTS);
            int n = m % 2 == 0 ? 2 : 1; /* sequences */
            struct ggml_tensor *x = ggml_new_tensor_3d(s.computed, GGML_TYPE_F32, WIDTH, m / n, n);
            struct ggml_tensor *product = ggml_mul_mat(s.computed, weights, x);
            ggml_build_forward_expand(s.graph, product);
            hold_weights(&s, ggml_backend_cpu_buffer_type());
            allocate(&s);
            for (int i = 0; i < WIDTH * EXPERTS; i++) ((float *)weights->data)[i] = sinf(1.7f * (float)i);
            for (int i = 0; i < WIDTH * m; i++) ((float *)x->data)[i] = cosf(0.9f * (float)i);
            compute(&s, n_threads);
            if (m == TOKENS && n_threads == 1) memcpy(all, product->data, sizeof all);
            assert_memory_equal(product->data, all, (size_t)m * sizeof *all);
            for (int i = 0; i < m * EXPERTS; i++) {
                double want = 0;
                for (int k = 0; k < WIDTH; k++)
                    want += (double)((float *)weights->data)[i % EXPERTS * WIDTH + k] *
                            (double)((float *)x->data)[i / EXPERTS * WIDTH + k];
                assert_true(fabs(want - (double)((float *)product->data)[i]) < 1e-4);
            }
            stage_fini(&s);
        }
}

/* Heads by a matrix that is said to be Hadamard's: the result is this matrix's, whatever was put there. */
static void heads_are_rotated(void **state)
{
    (void)state;
    enum { SIDE = 128, HEADS = 37, GAP = 3 };
    weir__hadamard *transform = weir__kernels_hadamard(0);
    if (transform == NULL) skip();
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        stage s;
        float want[SIDE];
        stage_init(&s);
        struct ggml_tensor *matrix = ggml_new_tensor_2d(s.held, GGML_TYPE_F32, SIDE, SIDE);
        struct ggml_tensor *all = ggml_new_tensor_2d(s.computed, GGML_TYPE_F32, SIDE + GAP, HEADS);
        struct ggml_tensor *x = ggml_view_2d(s.computed, all, SIDE, HEADS, all->nb[1], 0);
        struct ggml_tensor *rotated = ggml_mul_mat(s.computed, matrix, x);
        ggml_mul_mat_set_hint(rotated, GGML_HINT_SRC0_IS_HADAMARD);
        ggml_build_forward_expand(s.graph, rotated);
        hold_weights(&s, ggml_backend_cpu_buffer_type());
        allocate(&s);
        memset(matrix->data, 0, ggml_nbytes(matrix));
        for (int i = 0; i < (SIDE + GAP) * HEADS; i++) ((float *)all->data)[i] = cosf(0.9f * (float)i);
        compute(&s, n_threads);
        for (int i = 0; i < HEADS; i++) {
            transform((float *)all->data + (ptrdiff_t)i * (SIDE + GAP), want, SIDE);
            assert_memory_equal((float *)rotated->data + (ptrdiff_t)i * SIDE, want, sizeof want);
        }
        stage_fini(&s);
    }
}

/* Numbers are the kernel's on any number of threads, in place or not. ggml's table gives strided ones, in
 * half precision. */
static void numbers_pass_through_gelu(void **state)
{
    (void)state;
    enum { WIDTH = 37, ROWS = 11, GAP = 3 };
    weir__gelu *gelu = weir__kernels_gelu(0);
    if (gelu == NULL) skip();
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        stage s;
        float x[WIDTH * ROWS], want[WIDTH * ROWS];
        stage_init(&s);
        struct ggml_tensor *whole = ggml_new_tensor_2d(s.computed, GGML_TYPE_F32, WIDTH, ROWS);
        struct ggml_tensor *all = ggml_new_tensor_2d(s.computed, GGML_TYPE_F32, WIDTH + GAP, ROWS);
        struct ggml_tensor *strided = ggml_view_2d(s.computed, all, WIDTH, ROWS, all->nb[1], 0);
        struct ggml_tensor *outs[] = {ggml_gelu(s.computed, whole), ggml_gelu(s.computed, strided),
                                      ggml_gelu_inplace(s.computed, whole)};
        for (int i = 0; i < 3; i++) ggml_build_forward_expand(s.graph, outs[i]);
        allocate(&s);
        for (int i = 0; i < WIDTH * ROWS; i++) {
            x[i] = ((float *)whole->data)[i] = 4.0f * cosf(0.9f * (float)i);
            ((float *)all->data)[i / WIDTH * (WIDTH + GAP) + i % WIDTH] = x[i];
        }
        gelu(x, want, WIDTH * ROWS);
        compute(&s, n_threads);
        assert_memory_equal(outs[0]->data, want, sizeof want);
        assert_memory_equal(outs[2]->data, want, sizeof want);
        for (int i = 0; i < WIDTH * ROWS; i++)
            assert_true(fabsf(((float *)outs[1]->data)[i] - want[i]) < 4e-3f);
        stage_fini(&s);
    }
}

/* ---- Beside ggml's own ----------------------------------------------------------------------------- */

/* The weights in a buffer of this type, the product on n_threads threads: [rows][N]. The graph runs three
 * times, as llama.cpp runs a graph again, once with a thread more. */
static void multiply_in(ggml_backend_buffer_type_t where, enum ggml_type type, const void *rounded,
                        const float *x, int64_t rows, int n_threads, float *out)
{
    stage s;
    stage_init(&s);
    struct ggml_tensor *weights = ggml_new_tensor_2d(s.held, type, WIDE, N);
    hold_weights(&s, where);
    ggml_backend_tensor_set(weights, rounded, 0, ggml_nbytes(weights));
    struct ggml_tensor *activations = ggml_new_tensor_2d(s.computed, GGML_TYPE_F32, WIDE, rows);
    struct ggml_tensor *product = ggml_mul_mat(s.computed, weights, activations);
    ggml_build_forward_expand(s.graph, product);
    allocate(&s);
    ggml_backend_tensor_set(activations, x, 0, ggml_nbytes(activations));
    for (int i = 0; i < 3; i++) {
        memset(product->data, 0xff, ggml_nbytes(product));
        compute(&s, n_threads + i % 2);
    }
    ggml_backend_tensor_get(product, out, 0, ggml_nbytes(product));
    stage_fini(&s);
}

static void make_activations(float *x)
{
    for (int i = 0; i < MOST * WIDE; i++) x[i] = cosf((float)i * 0.7f) * (float)(1 + i / WIDE % 5);
}

/* Products are those of ggml. Both round activations in the same way, so only the order of additions in
 * single precision differs. With a format that has minimums, ggml also rounds the sum of a unit's
 * activations, which a minimum is multiplied by, to half precision (Q8_1). The bounds are relative to the
 * products that are added, each taken without its sign. */
static void products_are_those_of_ggml(void **state)
{
    (void)state;
    static const enum ggml_type types[] = {GGML_TYPE_Q8_0,  GGML_TYPE_Q4_0,  GGML_TYPE_Q5_0, GGML_TYPE_IQ4_NL,
                                           GGML_TYPE_MXFP4, GGML_TYPE_Q4_1,  GGML_TYPE_Q5_1, GGML_TYPE_Q1_0,
                                           GGML_TYPE_Q2_0,  GGML_TYPE_NVFP4, GGML_TYPE_BF16, GGML_TYPE_F16};
    static const int64_t rows[] = {1, 2, 5, 16, MOST};
    static float weights[N * WIDE], x[MOST * WIDE], theirs[MOST * N], ours[MOST * N];
    static unsigned char rounded[sizeof weights];
    make_activations(x);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t block = ggml_type_size(types[t]);
        bool has_min = types[t] == GGML_TYPE_Q4_1 || types[t] == GGML_TYPE_Q5_1;
        double worst = 0;
        make_weights(types[t], N, WIDE, rounded, weights);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            multiply_in(ggml_backend_cpu_buffer_type(), types[t], rounded, x, rows[r], 1, theirs);
            multiply_in(weights_type(), types[t], rounded, x, rows[r], 1, ours);
            for (int64_t i = 0; i < rows[r] * N; i++) {
                const float *w = weights + i % N * WIDE, *a = x + i / N * WIDE;
                double size = 0, mins = 0, unit = 0;
                for (int k = 0; k < WIDE; k++) {
                    size += fabs((double)w[k] * (double)a[k]);
                    unit += (double)a[k];
                    if (k % 32 != 31) continue;
                    ggml_fp16_t min = 0;
                    if (has_min)
                        memcpy(&min, rounded + (size_t)(i % N * WIDE + k) / 32 * block + 2, sizeof min);
                    mins += fabs(unit * (double)ggml_fp16_to_fp32(min));
                    unit = 0;
                }
                double bound = 1e-5 * size + 0x1p-10 * mins, off = fabs((double)ours[i] - (double)theirs[i]);
                if (!(off <= bound))
                    fail_msg("%s: %lld rows, number %lld is %.9g, ggml's %.9g", ggml_type_name(types[t]),
                             (long long)rows[r], (long long)i, (double)ours[i], (double)theirs[i]);
                worst = fmax(worst, off / size);
            }
        }
        printf("%s: at most %.1e of the products' sum\n", ggml_type_name(types[t]), worst);
    }
}

/* Products are those of the numbers that ggml reads from a format's blocks with activations as Q8_0 has
 * them; ggml's own products of some formats round activations in another way. */
static void products_are_those_of_the_numbers(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    static float weights[N * WIDE], x[MOST * WIDE], ours[ROWS * N];
    static unsigned char rounded[sizeof weights], rounded_x[ROWS * WIDE * 2];
    const struct ggml_type_traits *q8_0 = ggml_get_type_traits(GGML_TYPE_Q8_0);
    for (size_t t = 0; t < N_ELEMENTS(all_types); t++) {
        if (all_types[t] == GGML_TYPE_BF16 || all_types[t] == GGML_TYPE_F16) continue;
        make_weights(all_types[t], N, WIDE, rounded, weights);
        make_activations(x);
        multiply_in(weights_type(), all_types[t], rounded, x, ROWS, 2, ours);
        ggml_quantize_chunk(GGML_TYPE_Q8_0, x, rounded_x, 0, ROWS, WIDE, NULL);
        q8_0->to_float(rounded_x, x, (int64_t)ROWS * WIDE);
        for (int64_t i = 0; i < (int64_t)ROWS * N; i++) {
            double want = 0, size = 0;
            for (int k = 0; k < WIDE; k++) {
                double term = (double)weights[i % N * WIDE + k] * (double)x[i / N * WIDE + k];
                want += term;
                size += fabs(term);
            }
            if (!(fabs((double)ours[i] - want) <= 1e-5 * size))
                fail_msg("%s: number %lld is %.9g, not %.9g", ggml_type_name(all_types[t]), (long long)i,
                         (double)ours[i], want);
        }
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 4, 5, MOST};
    static const int n_threads[] = {2, 3, 5};
    static float weights[N * WIDE], x[MOST * WIDE], want[MOST * N], got[MOST * N];
    static unsigned char rounded[sizeof weights];
    make_activations(x);
    for (size_t t = 0; t < N_ELEMENTS(all_types); t++) {
        make_weights(all_types[t], N, WIDE, rounded, weights);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            multiply_in(weights_type(), all_types[t], rounded, x, rows[r], 1, want);
            for (size_t n = 0; n < sizeof n_threads / sizeof *n_threads; n++) {
                multiply_in(weights_type(), all_types[t], rounded, x, rows[r], n_threads[n], got);
                assert_memory_equal(got, want, (size_t)(rows[r] * N) * sizeof *want);
            }
        }
    }
}

/* ---- Other operations ------------------------------------------------------------------------------ */

static void fill_weights(struct ggml_tensor *weights)
{
    float *values = calloc((size_t)(N * K), sizeof *values);
    unsigned char *rounded = calloc(1, ggml_nbytes(weights));
    for (int i = 0; i < N * K; i++) values[i] = sinf((float)i);
    ggml_quantize_chunk(weights->type, values, rounded, 0, N, K, NULL);
    ggml_backend_tensor_set(weights, rounded, 0, ggml_nbytes(weights));
    free(rounded);
    free(values);
}

enum { PART, AGAIN, LOOKED_UP, COPIED, HALVES, N_MISUSES };

/* Panels are never read as rows: there are zeroes instead. */
static void misuse(int how)
{
    stage s;
    stage_init(&s);
    struct ggml_tensor *weights = ggml_new_tensor_2d(s.held, GGML_TYPE_Q8_0, K, N), *got;
    struct ggml_tensor *x =
        ggml_new_tensor_2d(s.computed, how == HALVES ? GGML_TYPE_F16 : GGML_TYPE_F32, K, 3);
    struct ggml_tensor *ids = ggml_new_tensor_1d(s.computed, GGML_TYPE_I32, 3);
    hold_weights(&s, weights_type());
    fill_weights(weights);
    struct ggml_tensor *part = ggml_view_2d(s.computed, weights, K, N / 2, weights->nb[1], 0);
    struct ggml_tensor *again = ggml_reshape_3d(s.computed, weights, K, N, 1);
    switch (how) {
    case PART: got = ggml_mul_mat(s.computed, part, x); break;
    case AGAIN: got = ggml_mul_mat(s.computed, again, x); break;
    case LOOKED_UP: got = ggml_get_rows(s.computed, weights, ids); break;
    case COPIED: got = ggml_cast(s.computed, weights, GGML_TYPE_F32); break;
    default: got = ggml_mul_mat(s.computed, weights, x); break;
    }
    ggml_build_forward_expand(s.graph, got);
    allocate(&s);
    memset(x->data, 0x35, ggml_nbytes(x));
    memset(ids->data, 0, ggml_nbytes(ids));
    memset(got->data, 1, ggml_nbytes(got));
    compute(&s, 2);
    for (size_t b = 0; b < ggml_nbytes(got); b++) assert_int_equal(((char *)got->data)[b], 0);
    stage_fini(&s);
}

static void other_uses_of_weights_are_refused(void **state)
{
    (void)state;
    for (int how = 0; how < N_MISUSES; how++) {
        assert_int_equal(weir__hook_fault(), WEIR_OK);
        misuse(how);
        assert_int_equal(weir__hook_fault(), WEIR_UNSUPPORTED);
        assert_int_equal(weir__hook_fault(), WEIR_OK);
    }
}

/* The error goes only to the thread that asked for the pass. */
static void a_pass_that_misreads_fails(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    static const int32_t ids[] = {20, 57, 94};
    weir_model_params params = weir_model_params_default();
    rig r;
    temp_model(path, "tiny.gguf", "llama --type q8_0");
    assert_ok(ops->model_load(path, &params, false, &model, error));
    ops->model_describe(model, &model_is);
    rig_init(&r, 64, 1, WEIR_LAYOUT_UNIFIED);
    assert_ok(feed(&r, 0, ids, N_ELEMENTS(ids), error));
    misuse(AGAIN);
    assert_refused(feed(&r, 0, ids, N_ELEMENTS(ids), error), WEIR_UNSUPPORTED, "");
    assert_ok(feed(&r, 0, ids, N_ELEMENTS(ids), error));
    rig_fini(&r);
    ops->model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(activations_may_lie_apart),
                                       cmocka_unit_test(experts_multiply_as_matrices_do),
                                       cmocka_unit_test(small_products_do_not_depend_on_the_company),
                                       cmocka_unit_test(heads_are_rotated),
                                       cmocka_unit_test(numbers_pass_through_gelu),
                                       cmocka_unit_test(products_are_those_of_ggml),
                                       cmocka_unit_test(products_are_those_of_the_numbers),
                                       cmocka_unit_test(threads_do_not_change_a_bit),
                                       cmocka_unit_test(other_uses_of_weights_are_refused),
                                       cmocka_unit_test(a_pass_that_misreads_fails)};
    if (weir__llama_start(NULL) != WEIR_OK) return 77;
    if (weights_type() == NULL) return 77; /* no kernels here */
    return cmocka_run_group_tests_name("hook", tests, NULL, NULL);
}
