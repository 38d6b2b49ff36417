/* product.cpp: products of weights and activations, as ggml's operations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread rounds the activations that it needs, or its part of all, and then takes parts of the panels from
 * a counter until there are none. Products with experts sort the rows by expert first. Small matrices in
 * single precision, and the rotations of quantized caches, have products of their own. Anything else that
 * ggml would do to panels fails the pass. */
#include "hook/hook.h"
#include "hook/parts.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>

#include <algorithm>
#include <cstring>

namespace weir
{

namespace
{

/* The largest number of rows for which each thread rounds all activations itself, which costs less than
 * waiting for the others. */
constexpr int64_t rounded_alone = 4;

/* The operation's parameter in which a product counts the parts that threads have taken. ggml leaves it zero.
 * Each thread ends with a number past the last part, and the thread with the highest one sets the parameter
 * to zero again. So no barrier is needed before the first part, unlike with ggml's counter. */
constexpr int counter = GGML_MAX_OP_PARAMS / sizeof(int32_t) - 1;

/* Panels that kernels multiply together. */
constexpr int64_t pair = 2;

/* Panels [first, end) of a product: a thread takes half of its share of the panels left, so that a delayed
 * thread does not delay the others, and all end at the same time. Parts get their numbers from a counter that
 * all threads share. */
struct part {
    int64_t number = -1, first = 0, end = 0;

    /* Goes on to a later part, for n threads; false: there is none, and `number` is the last one's. */
    bool go_to(int64_t to, int64_t n_panels, int64_t n)
    {
        while (number < to && end < n_panels) {
            number++;
            first = end;
            end += std::max((n_panels - first) / (4 * n) * pair, pair);
        }
        end = std::min(end, n_panels);
        return number == to;
    }
};

/* Rounds units [first, end) of x, whose matrices of ne[1] rows may lie apart. */
void round_units(const weir__gemm *gemm, const ggml_tensor *x, void *out, int64_t first, int64_t end)
{
    int64_t k = x->ne[0], m = ggml_nrows(x), each = x->ne[1] * weir__units_in(k);
    for (int64_t i = first / each; i * each < end; i++) {
        const char *rows =
            static_cast<const char *>(x->data) + i % x->ne[2] * x->nb[2] + i / x->ne[2] * x->nb[3];
        gemm->quantize(reinterpret_cast<const float *>(rows), x->nb[1] / sizeof(float), i * x->ne[1], m, k,
                       out, std::max(first, i * each), std::min(end, (i + 1) * each));
    }
}

/* A thread's scratch, from a vector's boundary on; work sizes leave 64 bytes for that. */
char *aligned(void *scratch)
{
    return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(scratch) + 63) &
                                    ~static_cast<uintptr_t>(63));
}

/* True if the tensor is whole panels: a view of them has another layout than its shape and place suggest. */
bool is_weight(const ggml_tensor *tensor)
{
    return is_ours(tensor) && tensor->view_src == nullptr;
}

struct product : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        weir__panel_format format;
        return op->op == GGML_OP_MUL_MAT && is_weight(op->src[0]) && format_of(op->src[0], &format) &&
               op->src[0]->ne[2] == 1 && op->src[1]->type == GGML_TYPE_F32 &&
               op->src[1]->nb[0] == sizeof(float) && is_on_host(op->src[1]);
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        weir__panel_format format;
        format_of(op->src[0], &format);
        int64_t m = ggml_nrows(op->src[1]);
        if (op->op_params[counter] != 0) spoil(WEIR_UNSUPPORTED); /* another llama.cpp's */
        size = weir__activations_bytes(gemms[format], m, op->src[0]->ne[0]);
        if (m <= rounded_alone) size *= static_cast<size_t>(n_threads);
        size += 64;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        weir__panel_format format;
        format_of(weights, &format);
        const weir__gemm *gemm = gemms[format];
        int64_t k = weights->ne[0], m = ggml_nrows(x), n_panels = weights->ne[1] / WEIR__PANEL_ROWS;
        int64_t i = params->ith, n = params->nth, units = m * weir__units_in(k);
        char *scratch = aligned(params->wdata);
        float *to = static_cast<float *>(op->data);
        size_t stride = op->nb[1] / sizeof(float);
        if (m <= rounded_alone) {
            scratch += static_cast<size_t>(i) * weir__activations_bytes(gemm, m, k);
            round_units(gemm, x, scratch, 0, units);
        } else {
            round_units(gemm, x, scratch, units * i / n, units * (i + 1) / n);
            ggml_barrier(params->threadpool);
        }
        part some;
        int32_t *taken = &op->op_params[counter], number;
        while (some.go_to(number = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED), n_panels, n))
            gemm->multiply(format, weights->data, scratch, m, k, to, stride, some.first, some.end);
        if (number == some.number + n) __atomic_store_n(taken, 0, __ATOMIC_RELAXED);
        return true;
    }
};

product the_product;

/* ---- Products with experts ---- */

/* Most rows that one expert multiplies at a time. */
constexpr int64_t group_rows = int64_t{8} * WEIR__TILE;

/* Parts of a product for each thread, so that one that was held up does not hold up the others. */
constexpr int64_t parts = 6;

/* Bytes of a group's activations, which are passed over for each panel and should stay in the second-level
 * cache. */
constexpr int64_t group_bytes = int64_t{384} * 1024;

/* Row r of the operation is the product of expert ids[r % n_used][r / n_used] and a row of activations. The
 * rows of an expert are multiplied together, some at a time: they are groups. */
struct experts : ggml::cpu::tensor_traits {
    struct group {
        int32_t expert, n;
        const int32_t *rows; /* [n] */
        char *x;             /* its activations, rounded */
    };

    struct shape {
        const weir__gemm *gemm;
        weir__panel_format format;
        int64_t k, n_panels, n_experts, n_used, m; /* m: rows of the operation */
        int64_t most;                              /* rows of a group, a multiple of a tile's */
        int64_t most_tiles, most_groups;           /* of all rows */
        size_t x_bytes, lists_bytes;               /* lists: of one thread */

        explicit shape(const ggml_tensor *op)
        {
            const ggml_tensor *weights = op->src[0], *ids = op->src[2];
            format_of(weights, &format);
            gemm = gemms[format];
            k = weights->ne[0];
            n_panels = weights->ne[1] / WEIR__PANEL_ROWS;
            n_experts = weights->ne[2];
            n_used = ids->ne[0];
            m = n_used * ids->ne[1];
            auto tile = static_cast<int64_t>(weir__activations_bytes(gemm, 1, k));
            most = std::min(std::max<int64_t>(group_bytes / tile, 1) * WEIR__TILE, group_rows);
            most_tiles = m / WEIR__TILE + std::min(m, n_experts);
            most_groups = m / most + std::min(m, n_experts);
            x_bytes = static_cast<size_t>(most_tiles * tile);
            lists_bytes = static_cast<size_t>(most_groups) * sizeof(group) +
                          static_cast<size_t>(m + n_experts) * sizeof(int32_t);
            lists_bytes = (lists_bytes + 63) / 64 * 64;
        }
    };

    static bool takes(const ggml_tensor *op)
    {
        weir__panel_format format;
        return op->op == GGML_OP_MUL_MAT_ID && is_weight(op->src[0]) && format_of(op->src[0], &format) &&
               op->src[1]->type == GGML_TYPE_F32 && op->src[1]->nb[0] == sizeof(float) &&
               is_on_host(op->src[1]) && is_on_host(op->src[2]);
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        shape s(op);
        size = s.x_bytes + static_cast<size_t>(n_threads) * s.lists_bytes + 64;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        shape s(op);
        int64_t i = params->ith, n = params->nth;
        char *x = aligned(params->wdata);
        auto *groups = reinterpret_cast<group *>(x + s.x_bytes + static_cast<size_t>(i) * s.lists_bytes);
        int64_t n_groups = list(op, s, groups, x);
        if (i == 0) ggml_threadpool_chunk_set(params->threadpool, 0);
        for (int64_t row = 0, g = 0; g < n_groups; row += groups[g++].n)
            round_rows(op, s, groups[g], std::max(s.m * i / n - row, int64_t{0}),
                       std::min<int64_t>(s.m * (i + 1) / n - row, groups[g].n));
        ggml_barrier(params->threadpool);
        int64_t each = std::min(s.n_panels * n_groups / (n * parts), s.n_panels);
        each = std::max((each + 1) / pair * pair, pair);
        int64_t n_parts = (s.n_panels + each - 1) / each, part;
        while ((part = ggml_threadpool_chunk_add(params->threadpool, 1)) < n_parts * n_groups)
            multiply(op, s, groups[part / n_parts], part % n_parts * each,
                     std::min((part % n_parts + 1) * each, s.n_panels));
        return true;
    }

    /* Puts rows into the order of their experts, and groups them; returns how many groups there are. Each
     * thread does so for itself. Behind the groups lie the rows, and behind these where an expert's end. */
    static int64_t list(const ggml_tensor *op, const shape &s, group *groups, char *x)
    {
        auto *rows = reinterpret_cast<int32_t *>(groups + s.most_groups), *ends = rows + s.m;
        int64_t n_groups = 0;
        int32_t first = 0;
        std::fill(ends, ends + s.n_experts, 0);
        for (int64_t r = 0; r < s.m; r++) ends[expert_of(op, s, r)]++;
        for (int64_t e = 0; e < s.n_experts; e++) {
            int32_t begin = first;
            first += ends[e];
            ends[e] = begin;
            for (int32_t at = begin; at < first; at += groups[n_groups++].n) {
                auto n = static_cast<int32_t>(std::min<int64_t>(first - at, s.most));
                groups[n_groups] = {static_cast<int32_t>(e), n, rows + at, x};
                x += weir__activations_bytes(s.gemm, n, s.k);
            }
        }
        for (int64_t r = 0; r < s.m; r++) rows[ends[expert_of(op, s, r)]++] = static_cast<int32_t>(r);
        return n_groups;
    }

    /* Numbers come from the model's own choice or, in some architectures, from a table in its file: in range
     * in any case. */
    static int64_t expert_of(const ggml_tensor *op, const shape &s, int64_t row)
    {
        const ggml_tensor *ids = op->src[2];
        int32_t id;
        std::memcpy(&id,
                    static_cast<const char *>(ids->data) + row % s.n_used * ids->nb[0] +
                        row / s.n_used * ids->nb[1],
                    sizeof id);
        return std::min<int64_t>(static_cast<uint32_t>(id), s.n_experts - 1);
    }

    /* Rounds rows [first, end) of a group. */
    static void round_rows(const ggml_tensor *op, const shape &s, const group &g, int64_t first, int64_t end)
    {
        const ggml_tensor *x = op->src[1];
        int64_t units = weir__units_in(s.k);
        for (int64_t r = first; r < end; r++) {
            const char *row = static_cast<const char *>(x->data) +
                              g.rows[r] % s.n_used % x->ne[1] * x->nb[1] + g.rows[r] / s.n_used * x->nb[2];
            s.gemm->quantize(reinterpret_cast<const float *>(row), 0, r, g.n, s.k, g.x, r * units,
                             (r + 1) * units);
        }
    }

    static void multiply(ggml_tensor *op, const shape &s, const group &g, int64_t first, int64_t end)
    {
        float out[group_rows][pair * WEIR__PANEL_ROWS];
        size_t panel_bytes = weir__panel_bytes(s.format, WEIR__PANEL_ROWS, s.k);
        for (int64_t p = first; p < end; p += pair) {
            int64_t n = std::min(pair, end - p);
            s.gemm->multiply(s.format,
                             static_cast<const char *>(op->src[0]->data) +
                                 static_cast<size_t>(g.expert * s.n_panels + p) * panel_bytes,
                             g.x, g.n, s.k, out[0], pair * WEIR__PANEL_ROWS, 0, n);
            for (int32_t r = 0; r < g.n; r++)
                std::memcpy(static_cast<char *>(op->data) + g.rows[r] % s.n_used * op->nb[1] +
                                g.rows[r] / s.n_used * op->nb[2] +
                                static_cast<size_t>(p * WEIR__PANEL_ROWS) * sizeof(float),
                            out[r], static_cast<size_t>(n * WEIR__PANEL_ROWS) * sizeof(float));
        }
    }
};

experts the_experts;

/* ---- Small products in single precision ---- */

/* Rows of activations that stay in the first-level cache while weights pass by. */
constexpr int64_t dot_rows = 4;

/* Small matrices in single precision, such as those that choose experts or give time steps. ggml adds the
 * products of one row of activations in another order than those of several; here each is a scalar product of
 * its own, ggml's. The weights stay where they are. */
struct dots : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        return op->op == GGML_OP_MUL_MAT && ggml_get_op_params_i32(op, 1) == GGML_HINT_NONE &&
               weights->type == GGML_TYPE_F32 && x->type == GGML_TYPE_F32 && weights->buffer != nullptr &&
               weights->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && weights->ne[1] <= most_dots &&
               ggml_nrows(weights) == weights->ne[1] && weights->nb[0] == sizeof(float) &&
               x->nb[0] == sizeof(float);
    }

    bool work_size(int, const ggml_tensor *, size_t &size) override
    {
        size = 0;
        return true;
    }

    /* Row m of a tensor, whose matrices may lie apart. */
    static char *row_of(const ggml_tensor *tensor, int64_t m)
    {
        int64_t i1 = m % tensor->ne[1], i2 = m / tensor->ne[1] % tensor->ne[2];
        int64_t i3 = m / tensor->ne[1] / tensor->ne[2];
        return static_cast<char *>(tensor->data) + i1 * tensor->nb[1] + i2 * tensor->nb[2] +
               i3 * tensor->nb[3];
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        int64_t n_rows = ggml_nrows(x);
        ggml_vec_dot_t dot = ggml_get_type_traits_cpu(GGML_TYPE_F32)->vec_dot;
        int64_t first = weights->ne[1] * params->ith / params->nth;
        int64_t end = weights->ne[1] * (params->ith + 1) / params->nth;
        for (int64_t begin = 0; begin < n_rows; begin += dot_rows) {
            int64_t count = std::min<int64_t>(dot_rows, n_rows - begin);
            char *to[dot_rows], *from[dot_rows];
            for (int64_t m = 0; m < count; m++) {
                to[m] = row_of(op, begin + m);
                from[m] = row_of(x, begin + m);
            }
            for (int64_t n = first; n < end; n++)
                for (int64_t m = 0; m < count; m++)
                    dot(static_cast<int>(x->ne[0]), reinterpret_cast<float *>(to[m]) + n, 0,
                        static_cast<const char *>(weights->data) + n * weights->nb[1], 0, from[m], 0, 1);
        }
        return true;
    }
};

dots the_dots;

/* ---- Rotations of heads ---- */

/* Activations as a matrix of heads, each multiplied with the Hadamard matrix. ggml's product does most levels
 * of the transform one number at a time, which took 4 to 7 % of a prompt's time. */
struct rotation : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *x = op->src[1];
        return op->op == GGML_OP_MUL_MAT && ggml_get_op_params_i32(op, 1) == GGML_HINT_SRC0_IS_HADAMARD &&
               hadamard != nullptr && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) &&
               weir__hadamard_takes(x->ne[0]) && ggml_nrows(x) == x->ne[1];
    }

    bool work_size(int, const ggml_tensor *, size_t &size) override
    {
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *x = op->src[1];
        int64_t end = x->ne[1] * (params->ith + 1) / params->nth;
        for (int64_t i = x->ne[1] * params->ith / params->nth; i < end; i++)
            hadamard(reinterpret_cast<const float *>(static_cast<const char *>(x->data) + i * x->nb[1]),
                     reinterpret_cast<float *>(static_cast<char *>(op->data) + i * op->nb[1]), x->ne[0]);
        return true;
    }
};

rotation the_rotation;

/* ---- Everything else that is done to panels ---- */

/* ggml's code would read panels as rows. Views of weights are known to lie here only when a pass is planned,
 * and a plan cannot fail; so the pass runs through, with zeroes in this place, and the thread that asked for
 * it gets an error. */
struct refusal : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        return !ggml_op_is_empty(op->op) &&
               std::any_of(op->src, op->src + GGML_MAX_SRC,
                           [](const ggml_tensor *src) { return src != nullptr && is_ours(src); });
    }

    bool work_size(int, const ggml_tensor *, size_t &size) override
    {
        spoil(WEIR_UNSUPPORTED);
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (params->ith == 0) std::memset(op->data, 0, ggml_nbytes(op));
        return true;
    }
};

refusal the_refusal;

} // namespace

bool multiplies(const ggml_tensor *op)
{
    return product::takes(op) || experts::takes(op);
}

ggml::cpu::tensor_traits *product_of(const ggml_tensor *op)
{
    if (product::takes(op)) return &the_product;
    if (experts::takes(op)) return &the_experts;
    if (dots::takes(op)) return &the_dots;
    if (rotation::takes(op)) return &the_rotation;
    return refusal::takes(op) ? &the_refusal : nullptr;
}

} // namespace weir
