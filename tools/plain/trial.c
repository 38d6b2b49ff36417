/* trial.c: operations as ggml graphs on weights in a buffer of weir's or ggml's.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The side decides the type of the buffer, and the buffer which kernels compute. Data are made once and
 * shared by the operations on them. A graph holds one node for each of several matrices, and ggml's thread
 * pool runs it as the engine's runs a pass. */
#include "trial.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

#define PASS_MACS   (1 << 27) /* in a pass, as far as the data go: long beside the start of a graph */
#define PASS_MOST   1024      /* operations */
#define PATTERN     40        /* rows of weights that differ; rounding all of them would take long */
#define ATTENTION_V 2         /* the operation's sources, in ggml's order */

struct trial_threads {
    ggml_backend_t backend;
    struct ggml_threadpool *pool;
};

/* The bytes that one operation reads. */
struct matrix {
    struct ggml_tensor *weights; /* or keys */
    struct ggml_tensor *values;  /* NULL: it is no attention */
};

struct trial_data {
    trial_side side;
    trial_shape shape;
    struct ggml_context *tensors;
    ggml_backend_buffer_t buffer;
    struct matrix *matrices; /* [n] */
    int64_t n;
    size_t bytes; /* of one */
};

struct trial {
    trial_data *data;
    struct ggml_context *tensors;
    ggml_backend_buffer_t buffer;
    struct ggml_cgraph *lead,
        *pass;                /* lead: one operation before a pass, so that caches are as after a layer */
    struct ggml_tensor **ops; /* [1 + n]: the leading one's first */
    int64_t n, at;            /* at: the matrix that is next */
    double macs;
};

/* ---- Threads ---- */

/* Creates threads like the engine's: they look for work for some milliseconds after a pass. */
trial_threads *trial_threads_create(int32_t n)
{
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n);
    trial_threads *threads = calloc(1, sizeof *threads);
    if (threads == NULL) return NULL;
    params.poll = 1;
    threads->backend = weir__thread_room(n - 1) ? ggml_backend_cpu_init() : NULL;
    if (threads->backend != NULL) {
        sigset_t before;
        weir__thread_quiet(&before);
        threads->pool = ggml_threadpool_new(&params);
        weir__thread_restore(&before);
    }
    if (threads->pool == NULL) {
        trial_threads_destroy(threads);
        return NULL;
    }
    ggml_backend_cpu_set_n_threads(threads->backend, n);
    ggml_backend_cpu_set_threadpool(threads->backend, threads->pool);
    return threads;
}

void trial_threads_destroy(trial_threads *threads)
{
    if (threads == NULL) return;
    if (threads->backend != NULL) ggml_backend_free(threads->backend);
    if (threads->pool != NULL) ggml_threadpool_free(threads->pool);
    free(threads);
}

/* ---- Where data lie ---- */

static enum ggml_type type_of(const char *format)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *name = ggml_type_name((enum ggml_type)i);
        if (name != NULL && strcmp(name, format) == 0) return (enum ggml_type)i;
    }
    return GGML_TYPE_COUNT;
}

/* True if a product whose weights lie in such a buffer is computed there. */
static bool device_computes(ggml_backend_dev_t device, ggml_backend_buffer_type_t type,
                            const trial_shape *shape)
{
    struct ggml_init_params room = {.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *tensors = ggml_init(room);
    struct ggml_tensor *weights = ggml_new_tensor_2d(tensors, type_of(shape->format), shape->k, shape->n);
    struct ggml_tensor *x = ggml_new_tensor_2d(tensors, GGML_TYPE_F32, shape->k, 1);
    struct ggml_tensor *product = ggml_mul_mat(tensors, weights, x);
    weights->buffer = ggml_backend_buft_alloc_buffer(type, 0);
    bool answer = weights->buffer != NULL && ggml_backend_dev_supports_op(device, product);
    ggml_backend_buffer_free(weights->buffer);
    ggml_free(tensors);
    return answer;
}

/* NULL: this side does not compute this shape. */
static ggml_backend_buffer_type_t buffer_type(trial_side side, const trial_shape *shape)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    enum ggml_type format = shape->format != NULL ? type_of(shape->format) : GGML_TYPE_F16;
    if (device == NULL || format == GGML_TYPE_COUNT) return NULL;
    if (shape->format != NULL && shape->k % ggml_blck_size(format) != 0) return NULL;
    if (side == TRIAL_GGML) return ggml_backend_cpu_buffer_type();
    ggml_backend_dev_get_extra_bufts_t extra =
        (ggml_backend_dev_get_extra_bufts_t)(uintptr_t)ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *types = extra != NULL ? extra(device) : NULL;
    for (; types != NULL && *types != NULL; types++) {
        bool ours = strcmp(ggml_backend_buft_name(*types), "CPU_WEIR") == 0;
        if (ours != (side == TRIAL_WEIR)) continue;
        if (shape->format != NULL && device_computes(device, *types, shape)) return *types;
        if (shape->format == NULL && ours) return ggml_backend_cpu_buffer_type();
    }
    return NULL;
}

bool trial_serves(trial_side side, const trial_shape *shape)
{
    return buffer_type(side, shape) != NULL;
}

/* ---- Data ---- */

/* Knuth's MMIX constants; the high bits are the random ones. */
static uint64_t next_number(uint64_t *state)
{
    return *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* -1 … 1 */
static void fill_values(float *values, int64_t n)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) values[i] = (float)(next_number(&state) >> 40) / (float)(1 << 23) - 1.0f;
}

/* True for formats with a codebook. Rounding to one searches it for each block, and ggml first lists the
 * neighbours of all codes, which takes up to ten seconds of a fast processor. */
static bool is_searched(enum ggml_type type)
{
    const char *name = ggml_type_name(type);
    return strncmp(name, "iq1", 3) == 0 || strncmp(name, "iq2", 3) == 0 || strncmp(name, "iq3", 3) == 0;
}

/* Fills rows of a format with a codebook: all bits are codes, signs and scales of a part, apart from the
 * block's scale in half precision. It comes first, and in IQ1_M it is the last four words' highest bits. */
static void fill_codes(enum ggml_type type, unsigned char *rows, size_t n_bytes)
{
    const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01f);
    const size_t block = ggml_type_size(type);
    uint64_t state = 1;
    for (size_t i = 0; i < n_bytes; i++) rows[i] = (unsigned char)(next_number(&state) >> 56);
    for (unsigned char *b = rows; b < rows + n_bytes; b += block) {
        if (type != GGML_TYPE_IQ1_M) {
            memcpy(b, &scale, sizeof scale);
            continue;
        }
        for (size_t i = 0; i < 4; i++) {
            unsigned char *high = b + block - 7 + 2 * i;
            *high = (unsigned char)((*high & 15) | (scale >> 4 * i & 15) << 4);
        }
    }
}

/* Rounds `PATTERN` rows and repeats them. */
static void fill_rounded(enum ggml_type type, char *rows, int64_t k, int64_t n, float *values)
{
    int64_t distinct = n < PATTERN ? n : PATTERN;
    size_t row = ggml_row_size(type, k);
    fill_values(values, distinct * k);
    ggml_quantize_chunk(type, values, rows, 0, distinct, k, NULL);
    for (int64_t i = distinct; i < n; i++)
        memcpy(rows + (size_t)i * row, rows + (size_t)(i % distinct) * row, row);
}

static bool set_weights(struct ggml_tensor *weights)
{
    int64_t k = weights->ne[0], n = weights->ne[1];
    size_t n_bytes = (size_t)n * ggml_row_size(weights->type, k);
    float *values = malloc((size_t)(PATTERN * k) * sizeof *values);
    char *rows = malloc(n_bytes);
    bool done = values != NULL && rows != NULL;
    if (done) {
        if (is_searched(weights->type))
            fill_codes(weights->type, (unsigned char *)rows, n_bytes);
        else
            fill_rounded(weights->type, rows, k, n, values);
        ggml_backend_tensor_set(weights, rows, 0, n_bytes);
    }
    free(rows);
    free(values);
    return done;
}

static bool set_halves(struct ggml_tensor *to)
{
    int64_t n = ggml_nelements(to);
    float *values = malloc((size_t)n * sizeof *values);
    if (values == NULL) return false;
    fill_values(values, n);
    ggml_fp32_to_fp16_row(values, to->data, n);
    free(values);
    return true;
}

/* Cells lie as in llama.cpp's memory: all heads of a cell are neighbours. */
static struct ggml_tensor *new_cells(const trial_data *data)
{
    const trial_shape *shape = &data->shape;
    struct ggml_tensor *all =
        ggml_new_tensor_3d(data->tensors, GGML_TYPE_F16, shape->head_size, shape->n_heads_kv, shape->n_cells);
    return ggml_permute(data->tensors, all, 0, 2, 1, 3);
}

/* The tensors of one operation's data, without memory. */
static struct matrix new_matrix(const trial_data *data)
{
    const trial_shape *shape = &data->shape;
    if (shape->format == NULL) return (struct matrix){new_cells(data), new_cells(data)};
    return (struct matrix){ggml_new_tensor_2d(data->tensors, type_of(shape->format), shape->k, shape->n),
                           NULL};
}

static bool set_matrix(const struct matrix *m)
{
    if (m->values == NULL) return set_weights(m->weights);
    return set_halves(m->weights->view_src) && set_halves(m->values->view_src);
}

/* Layouts are a buffer type's own, and the same in all of its buffers. */
static void copy_matrix(const struct matrix *to, const struct matrix *from, size_t bytes)
{
    if (to->values == NULL) {
        memcpy(to->weights->data, from->weights->data, bytes);
    } else {
        memcpy(to->weights->data, from->weights->data, bytes / 2);
        memcpy(to->values->data, from->values->data, bytes / 2);
    }
}

trial_data *trial_data_create(trial_side side, const trial_shape *shape, size_t bytes)
{
    ggml_backend_buffer_type_t type = buffer_type(side, shape);
    trial_data *data = calloc(1, sizeof *data);
    if (data == NULL || type == NULL) goto failed;
    data->side = side;
    data->shape = *shape;
    if (shape->format != NULL)
        data->bytes = ggml_row_size(type_of(shape->format), shape->k) * (size_t)shape->n;
    else
        data->bytes = (size_t)(2 * shape->head_size * shape->n_heads_kv) * (size_t)shape->n_cells * 2;
    data->n = bytes > data->bytes ? (int64_t)(bytes / data->bytes) : 1;
    struct ggml_init_params room = {.mem_size = (size_t)(4 * data->n + 1) * ggml_tensor_overhead(),
                                    .no_alloc = true};
    data->matrices = calloc((size_t)data->n, sizeof *data->matrices);
    if (data->matrices == NULL) goto failed;
    data->tensors = ggml_init(room);
    for (int64_t i = 0; i < data->n; i++) data->matrices[i] = new_matrix(data);
    data->buffer = ggml_backend_alloc_ctx_tensors_from_buft(data->tensors, type);
    if (data->buffer == NULL) goto failed;
    if (shape->format != NULL)
        data->bytes = ggml_backend_buft_get_alloc_size(type, data->matrices[0].weights);
    if (!set_matrix(&data->matrices[0])) goto failed;
    for (int64_t i = 1; i < data->n; i++) copy_matrix(&data->matrices[i], &data->matrices[0], data->bytes);
    return data;
failed:
    trial_data_destroy(data);
    return NULL;
}

void trial_data_destroy(trial_data *data)
{
    if (data == NULL) return;
    ggml_backend_buffer_free(data->buffer);
    ggml_free(data->tensors);
    free(data->matrices);
    free(data);
}

size_t trial_data_bytes(const trial_data *data)
{
    return data->bytes;
}

/* ---- The operation ---- */

/* Query i sees the first n_cells - m + i + 1 cells, with each head. */
static void set_mask(struct ggml_tensor *mask)
{
    int64_t n_cells = mask->ne[0], m = mask->ne[1];
    ggml_fp16_t *to = mask->data, hidden = ggml_fp32_to_fp16(-INFINITY), seen = ggml_fp32_to_fp16(0.0f);
    for (int64_t i = 0; i < m * mask->ne[2]; i++)
        for (int64_t c = 0; c < n_cells; c++) to[i * n_cells + c] = c <= n_cells - m + i % m ? seen : hidden;
}

static struct ggml_tensor *new_attention(trial *t, struct ggml_tensor *q, struct ggml_tensor *mask,
                                         const struct matrix *cells)
{
    float scale = 1.0f / sqrtf((float)t->data->shape.head_size);
    return ggml_flash_attn_ext(t->tensors, q, cells->weights, cells->values, mask, scale, 0.0f, 0.0f);
}

static double macs_of(const trial_shape *shape, int32_t m)
{
    if (shape->format != NULL) return (double)shape->k * shape->n * m;
    double seen = (double)m * shape->n_cells - (double)m * (m - 1) / 2; /* by all queries */
    return 2.0 * shape->head_size * shape->n_heads * seen;
}

trial *trial_create(trial_data *data, int32_t m)
{
    const trial_shape *shape = &data->shape;
    ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
    trial *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->data = data;
    t->macs = macs_of(shape, m);
    t->n = (int64_t)(PASS_MACS / t->macs);
    if (t->n > PASS_MOST) t->n = PASS_MOST;
    if (t->n > data->n && data->n > 1) t->n = data->n;
    if (t->n < 1) t->n = 1;
    size_t n = (size_t)t->n;
    struct ggml_init_params room = {.mem_size = (n + 8) * ggml_tensor_overhead() +
                                                ggml_graph_overhead_custom(8, false) +
                                                ggml_graph_overhead_custom(4 * n + 8, false),
                                    .no_alloc = true};
    if ((t->ops = calloc(n + 1, sizeof(struct ggml_tensor *))) == NULL) goto failed;
    t->tensors = ggml_init(room);
    t->lead = ggml_new_graph_custom(t->tensors, 8, false);
    t->pass = ggml_new_graph_custom(t->tensors, 4 * n + 8, false);
    struct ggml_tensor *x, *input, *mask = NULL;
    if (shape->format != NULL) {
        x = input = ggml_new_tensor_2d(t->tensors, GGML_TYPE_F32, shape->k, m);
    } else {
        input = ggml_new_tensor_3d(t->tensors, GGML_TYPE_F32, shape->head_size, shape->n_heads, m);
        x = ggml_permute(t->tensors, input, 0, 2, 1, 3);
        /* weir's kernels leave operations with a mask for each head to ggml. */
        mask = ggml_new_tensor_3d(t->tensors, GGML_TYPE_F16, shape->n_cells, m,
                                  data->side == TRIAL_WEIR ? 1 : shape->n_heads);
    }
    for (size_t i = 0; i < n + 1; i++) {
        const struct matrix *matrix = &data->matrices[i % (size_t)data->n];
        t->ops[i] =
            mask != NULL ? new_attention(t, x, mask, matrix) : ggml_mul_mat(t->tensors, matrix->weights, x);
        ggml_build_forward_expand(i == 0 ? t->lead : t->pass, t->ops[i]);
    }
    if ((t->buffer = ggml_backend_alloc_ctx_tensors_from_buft(t->tensors, type)) == NULL) goto failed;
    fill_values(input->data, ggml_nelements(input));
    if (mask != NULL) set_mask(mask);
    return t;
failed:
    trial_destroy(t);
    return NULL;
}

void trial_destroy(trial *t)
{
    if (t == NULL) return;
    ggml_backend_buffer_free(t->buffer);
    ggml_free(t->tensors);
    free(t->ops);
    free(t);
}

double trial_run(trial *t, trial_threads *threads)
{
    for (int64_t i = 0; i < 1 + t->n; i++, t->at++) {
        const struct matrix *matrix = &t->data->matrices[t->at % t->data->n];
        int first = matrix->values != NULL ? 1 : 0; /* of attention the first source are the queries */
        t->ops[i]->src[first] = matrix->weights;
        if (matrix->values != NULL) t->ops[i]->src[ATTENTION_V] = matrix->values;
    }
    if (ggml_backend_graph_compute(threads->backend, t->lead) != GGML_STATUS_SUCCESS) return 0;
    int64_t started = weir__clock_now_ns();
    if (ggml_backend_graph_compute(threads->backend, t->pass) != GGML_STATUS_SUCCESS) return 0;
    return (double)(weir__clock_now_ns() - started) / 1e9 / (double)t->n;
}

double trial_macs(const trial *t)
{
    return t->macs;
}

double trial_difference(const trial *a, const trial *b)
{
    const float *x = a->ops[0]->data, *y = b->ops[0]->data;
    double apart = 0, all = 0;
    for (int64_t i = 0; i < ggml_nelements(a->ops[0]); i++) {
        apart += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
        all += (double)y[i] * (double)y[i];
    }
    return all > 0 ? sqrt(apart / all) : 0;
}
