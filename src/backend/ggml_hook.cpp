/* ggml_hook.cpp: weir's kernels inside ggml's CPU backend.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ggml asks "extra buffer types" for each operation whether they take it over, and llama.cpp asks them first
 * where to put a weight. So a buffer type of weir's own, first in their list, keeps weights as panels and
 * multiplies them, within ggml's own threads. What it does not take goes the usual way. Nothing of ggml is
 * patched. */
#include "backend/ggml_hook.h"

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml-cpu-impl.h>
#include <ggml-cpu.h>
#include <traits.h>

/* Not public: where a sequence's tokens lie. */
#include <../src/llama-context.h>
#include <../src/llama-kv-cache-iswa.h>
#include <../src/llama-kv-cache.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

extern "C" {
#include "backend/kernels/kernels.h"
#include "backend/packed_file.h"
#include "base/cpu.h"
#include "base/crew.h"
#include "base/log.h"
}

namespace
{

/* Constant once installed. */
const weir__gemm *gemms[WEIR__PANEL_N_FORMATS]; /* nullptr, here and below: ggml's own */
const weir__attention *attention;

ggml_backend_buffer_type_t buffer_type();

/* The first that there are; nullptr: none. */
const weir__gemm *best()
{
    const auto *found =
        std::find_if(std::begin(gemms), std::end(gemms), [](auto *g) { return g != nullptr; });
    return found != std::end(gemms) ? *found : nullptr;
}

/* ---- Weights ---- */

/* A matrix, or one for each expert behind one another. False: ggml's own. */
bool format_of(const ggml_tensor *weights, weir__panel_format *format)
{
    switch (weights->type) {
    case GGML_TYPE_Q8_0: *format = WEIR__PANEL_Q8_0; break;
    case GGML_TYPE_Q4_0: *format = WEIR__PANEL_Q4_0; break;
    case GGML_TYPE_Q4_1: *format = WEIR__PANEL_Q4_1; break;
    case GGML_TYPE_Q5_0: *format = WEIR__PANEL_Q5_0; break;
    case GGML_TYPE_Q5_1: *format = WEIR__PANEL_Q5_1; break;
    case GGML_TYPE_IQ4_NL: *format = WEIR__PANEL_IQ4_NL; break;
    case GGML_TYPE_MXFP4: *format = WEIR__PANEL_MXFP4; break;
    case GGML_TYPE_Q4_K: *format = WEIR__PANEL_Q4_K; break;
    case GGML_TYPE_Q5_K: *format = WEIR__PANEL_Q5_K; break;
    case GGML_TYPE_Q6_K: *format = WEIR__PANEL_Q6_K; break;
    case GGML_TYPE_BF16: *format = WEIR__PANEL_BF16; break;
    case GGML_TYPE_F16: *format = WEIR__PANEL_F16; break;
    default: return false;
    }
    return gemms[*format] != nullptr && weights->ne[3] == 1 && weights->ne[0] % WEIR__UNIT == 0 &&
           weights->ne[1] % WEIR__PANEL_ROWS == 0 && ggml_is_contiguous(weights);
}

bool is_ours(const ggml_tensor *tensor)
{
    return tensor->buffer != nullptr && tensor->buffer->buft == buffer_type();
}

bool is_on_host(const ggml_tensor *tensor)
{
    return tensor->buffer == nullptr || ggml_backend_buft_is_host(tensor->buffer->buft);
}

/* ---- Products ---- */

/* Up to so many rows each thread rounds all activations for itself: that costs less than waiting for others. */
constexpr int64_t rounded_alone = 4;

/* Parts of a product for each thread, so that one that was held up does not hold up the others. */
constexpr int64_t parts = 6;

/* Rounds units [first, end) of x, whose matrices of ne[1] rows may lie apart. */
void round_units(const weir__gemm *gemm, const ggml_tensor *x, void *out, int64_t first, int64_t end)
{
    int64_t k = x->ne[0], m = ggml_nrows(x), each = x->ne[1] * (k / WEIR__UNIT);
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

struct product : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        weir__panel_format format;
        return op->op == GGML_OP_MUL_MAT && is_ours(op->src[0]) && format_of(op->src[0], &format) &&
               op->src[0]->ne[2] == 1 && op->src[1]->type == GGML_TYPE_F32 &&
               op->src[1]->nb[0] == sizeof(float) && is_on_host(op->src[1]);
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        weir__panel_format format;
        if (op->op != GGML_OP_MUL_MAT || !format_of(op->src[0], &format)) return false;
        int64_t m = ggml_nrows(op->src[1]);
        size = weir__activations_bytes(gemms[format], m, op->src[0]->ne[0]);
        if (m <= rounded_alone) size *= static_cast<size_t>(n_threads);
        size += 64;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        weir__panel_format format;
        if (op->op != GGML_OP_MUL_MAT || !format_of(weights, &format)) return false;
        const weir__gemm *gemm = gemms[format];
        int64_t k = weights->ne[0], m = ggml_nrows(x), n_panels = weights->ne[1] / WEIR__PANEL_ROWS;
        int64_t i = params->ith, n = params->nth, units = m * (k / WEIR__UNIT);
        char *scratch = aligned(params->wdata);
        float *to = static_cast<float *>(op->data);
        size_t stride = op->nb[1] / sizeof(float);
        if (m <= rounded_alone) {
            scratch += static_cast<size_t>(i) * weir__activations_bytes(gemm, m, k);
            round_units(gemm, x, scratch, 0, units);
            gemm->multiply(format, weights->data, scratch, m, k, to, stride, n_panels * i / n,
                           n_panels * (i + 1) / n);
            return true;
        }
        if (i == 0) ggml_threadpool_chunk_set(params->threadpool, 0);
        round_units(gemm, x, scratch, units * i / n, units * (i + 1) / n);
        ggml_barrier(params->threadpool);
        /* Even numbers of panels: some kernels multiply two at a time. */
        int64_t each = std::max<int64_t>((n_panels / (n * parts) + 1) / 2 * 2, 2), part;
        while ((part = ggml_threadpool_chunk_add(params->threadpool, 1)) * each < n_panels)
            gemm->multiply(format, weights->data, scratch, m, k, to, stride, part * each,
                           std::min((part + 1) * each, n_panels));
        return true;
    }
};

product the_product;

/* ---- Products with experts ---- */

/* Most rows that one expert multiplies at a time. */
constexpr int64_t group_rows = 8 * WEIR__TILE;

/* Panels of an expert at a time: as many as kernels multiply together. */
constexpr int64_t pair = 2;

/* Their activations, which are passed over for each panel, should stay in the second-level cache. */
constexpr int64_t group_bytes = 384 * 1024;

/* Row r of the operation is what expert ids[r % n_used][r / n_used] makes of a row of activations. The rows of an
 * expert are multiplied together, some at a time: they are groups. */
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
        return op->op == GGML_OP_MUL_MAT_ID && is_ours(op->src[0]) && format_of(op->src[0], &format) &&
               op->src[1]->type == GGML_TYPE_F32 && op->src[1]->nb[0] == sizeof(float) &&
               is_on_host(op->src[1]) && is_on_host(op->src[2]);
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        if (op->op != GGML_OP_MUL_MAT_ID) return false;
        shape s(op);
        size = s.x_bytes + static_cast<size_t>(n_threads) * s.lists_bytes + 64;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (op->op != GGML_OP_MUL_MAT_ID) return false;
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

    /* Puts rows into the order of their experts, and groups them; returns how many groups there are. Each thread
     * does so for itself. Behind the groups lie the rows, and behind these where an expert's end. */
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

    static int32_t expert_of(const ggml_tensor *op, const shape &s, int64_t row)
    {
        const ggml_tensor *ids = op->src[2];
        return *reinterpret_cast<const int32_t *>(static_cast<const char *>(ids->data) +
                                                  row % s.n_used * ids->nb[0] + row / s.n_used * ids->nb[1]);
    }

    /* Rounds rows [first, end) of a group. */
    static void round_rows(const ggml_tensor *op, const shape &s, const group &g, int64_t first, int64_t end)
    {
        const ggml_tensor *x = op->src[1];
        int64_t units = s.k / WEIR__UNIT;
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

/* Most rows of weights; beyond, ggml's are faster. */
constexpr int64_t most_dots = 512;

/* What chooses experts is in single precision in all files. ggml adds the products of one row of activations in
 * another order than those of several; here each is a scalar product of its own, ggml's. The weights stay where they
 * are. */
struct dots : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        return op->op == GGML_OP_MUL_MAT && ggml_get_op_params_i32(op, 1) == 0 &&
               weights->type == GGML_TYPE_F32 && x->type == GGML_TYPE_F32 && weights->buffer != nullptr &&
               weights->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && weights->ne[1] <= most_dots &&
               ggml_nrows(weights) == weights->ne[1] && weights->nb[0] == sizeof(float) &&
               x->nb[0] == sizeof(float) && ggml_nrows(x) == x->ne[1];
    }

    bool work_size(int, const ggml_tensor *op, size_t &size) override
    {
        if (!takes(op)) return false;
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (!takes(op)) return false;
        const ggml_tensor *weights = op->src[0], *x = op->src[1];
        ggml_vec_dot_t dot = ggml_get_type_traits_cpu(GGML_TYPE_F32)->vec_dot;
        int64_t first = weights->ne[1] * params->ith / params->nth;
        int64_t end = weights->ne[1] * (params->ith + 1) / params->nth;
        for (int64_t begin = 0; begin < x->ne[1]; begin += dot_rows)
            for (int64_t n = first; n < end; n++)
                for (int64_t m = begin; m < std::min(begin + dot_rows, x->ne[1]); m++)
                    dot(static_cast<int>(x->ne[0]),
                        reinterpret_cast<float *>(static_cast<char *>(op->data) + m * op->nb[1]) + n, 0,
                        static_cast<const char *>(weights->data) + n * weights->nb[1], 0,
                        static_cast<const char *>(x->data) + m * x->nb[1], 0, 1);
        return true;
    }
};

dots the_dots;

/* ---- Where tokens lie ---- */

/* The cells of a memory by the tensor that holds a layer's keys. In a pool that several sequences share, a token
 * can lie in a cell before that of the token before it; sums must run in the order of the tokens all the same. */
std::shared_mutex memories_lock;
std::unordered_map<const ggml_tensor *, const llama_kv_cells *> memories; /* under memories_lock */

const llama_kv_cells *cells_of(const ggml_tensor *k)
{
    const ggml_tensor *storage = k->view_src != nullptr ? k->view_src : k;
    std::shared_lock<std::shared_mutex> lock(memories_lock);
    auto found = memories.find(storage);
    return found != memories.end() ? found->second : nullptr;
}

/* Puts a list of n cells, which has room for twice as many, into the order of their tokens. Where positions have
 * gaps or repeat themselves, it stays as it is. */
void put_in_order(const llama_kv_cells &memory, int32_t *cells, int32_t n)
{
    llama_pos least = INT32_MAX, most = -1, before = -1;
    bool ascending = true;
    for (int32_t i = 0; i < n; i++) {
        llama_pos pos = memory.pos_get(static_cast<uint32_t>(cells[i]));
        ascending = ascending && pos > before;
        before = pos;
        least = std::min(least, pos);
        most = std::max(most, pos);
    }
    if (ascending || most - least + 1 != n) return;
    int32_t *unordered = cells + n;
    std::copy(cells, cells + n, unordered);
    std::fill(cells, cells + n, -1);
    for (int32_t i = 0; i < n; i++)
        cells[memory.pos_get(static_cast<uint32_t>(unordered[i])) - least] = unordered[i];
    if (std::find(cells, cells + n, -1) != cells + n) std::copy(unordered, unordered + n, cells);
}

/* ---- Attention ---- */

/* The operation's parameters, in the order in which ggml keeps them. */
struct attention_params {
    float scale, max_bias, softcap;
};

/* False: ggml's own. */
bool format_of(const ggml_tensor *k_or_v, weir__attention_format *format)
{
    switch (k_or_v->type) {
    case GGML_TYPE_F16: *format = WEIR__ATTENTION_F16; break;
    case GGML_TYPE_Q8_0: *format = WEIR__ATTENTION_Q8_0; break;
    default: return false;
    }
    return k_or_v->ne[0] % 16 == 0 && k_or_v->ne[0] <= WEIR__ATTENTION_SIZE &&
           k_or_v->nb[0] == ggml_type_size(k_or_v->type);
}

/* ALiBi's slope of a head (Press et al., arXiv 2108.12409): numbers of heads that are no power of two take every
 * other one of the next such number's. */
float slope_of(int64_t head, int64_t n_heads, float max_bias)
{
    int64_t n = 1;
    while (2 * n <= n_heads) n *= 2;
    float exponent = head < n ? static_cast<float>(head + 1) : static_cast<float>(head - n) + 0.5f;
    return std::exp2(-max_bias * exponent / static_cast<float>(n));
}

/* How many of the heads that share keys one call takes: all, or an even part of them. */
int64_t heads_at_once(int64_t n_shared)
{
    int64_t n = std::min<int64_t>(n_shared, WEIR__ATTENTION_ROWS);
    while (n_shared % n != 0) n--;
    return n;
}

/* Room for a list of cells, and for as many beside it. */
size_t list_length(const ggml_tensor *op)
{
    return 2 * static_cast<size_t>(op->src[1]->ne[1]) + 31;
}

/* Room for the lists of cells of one call's queries. */
size_t lists_bytes(const ggml_tensor *op)
{
    return WEIR__ATTENTION_ROWS * list_length(op) * sizeof(int32_t);
}

struct attention_op : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
        weir__attention_format k_format, v_format;
        if (op->op != GGML_OP_FLASH_ATTN_EXT || !format_of(k, &k_format) || !format_of(v, &v_format))
            return false;
        attention_params params;
        std::memcpy(&params, op->op_params, sizeof params);
        bool plain = k_format == WEIR__ATTENTION_F16 && v_format == WEIR__ATTENTION_F16 &&
                     params.max_bias == 0.0f && params.softcap == 0.0f && op->src[4] == nullptr;
        return (plain || attention->complete) && mask != nullptr && q->type == GGML_TYPE_F32 &&
               mask->type == GGML_TYPE_F16 && q->ne[2] % k->ne[2] == 0 && k->ne[2] == v->ne[2] &&
               k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && mask->ne[2] == 1 &&
               q->ne[3] % mask->ne[3] == 0 && q->nb[0] == sizeof(float) &&
               mask->nb[0] == sizeof(ggml_fp16_t) &&
               (op->src[4] == nullptr || op->src[4]->type == GGML_TYPE_F32);
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        if (!takes(op)) return false;
        size = static_cast<size_t>(n_threads) * lists_bytes(op);
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (!takes(op)) return false;
        const ggml_tensor *q = op->src[0], *k = op->src[1];
        int64_t n_shared = q->ne[2] / k->ne[2], n_heads = heads_at_once(n_shared);
        int64_t most = WEIR__ATTENTION_ROWS / n_heads, n_groups = (q->ne[1] + most - 1) / most;
        const llama_kv_cells *memory = k->ne[3] == 1 ? cells_of(k) : nullptr;
        queries some = {};
        some.lists = reinterpret_cast<int32_t *>(static_cast<char *>(params->wdata) +
                                                 static_cast<size_t>(params->ith) * lists_bytes(op));
        /* Heads follow each other for the same queries, which are then looked at once by each thread. */
        for (int64_t i = params->ith; i < n_groups * q->ne[3] * k->ne[2]; i += params->nth) {
            int64_t head = i % k->ne[2], stream = i / k->ne[2] % q->ne[3],
                    first = i / k->ne[2] / q->ne[3] * most;
            if (some.n == 0 || some.stream != stream || some.first != first)
                look_at(op, memory, stream, first, std::min(most, q->ne[1] - first), some);
            for (int64_t part = 0; part < n_shared; part += n_heads)
                attend(op, some, head, head * n_shared + part, n_heads);
        }
        return true;
    }

    /* Queries [first, first + n) of a stream, and what each sees. */
    struct queries {
        int64_t stream, first;
        int32_t n;
        int32_t *lists; /* the cells of query i from i × list_length() on */
        int32_t n_cells[WEIR__ATTENTION_ROWS];
        const uint16_t *masks[WEIR__ATTENTION_ROWS]; /* nullptr: zeroes */
        bool joins[WEIR__ATTENTION_ROWS];            /* it sees what the one before it sees, and more */
    };

    static void look_at(const ggml_tensor *op, const llama_kv_cells *memory, int64_t stream, int64_t first,
                        int64_t n, queries &some)
    {
        const ggml_tensor *k = op->src[1], *mask = op->src[3];
        some.stream = stream;
        some.first = first;
        some.n = static_cast<int32_t>(n);
        for (int32_t i = 0; i < some.n; i++) {
            int32_t *cells = some.lists + static_cast<size_t>(i) * list_length(op);
            auto *row = reinterpret_cast<const uint16_t *>(static_cast<const char *>(mask->data) +
                                                           (first + i) * mask->nb[1] +
                                                           stream % mask->ne[3] * mask->nb[3]);
            bool plain;
            some.n_cells[i] = attention->visible(row, static_cast<int32_t>(k->ne[1]), cells, &plain);
            if (memory != nullptr) put_in_order(*memory, cells, some.n_cells[i]);
            some.masks[i] = plain ? nullptr : row;
            some.joins[i] =
                i > 0 && some.n_cells[i] >= some.n_cells[i - 1] &&
                std::equal(cells - list_length(op), cells - list_length(op) + some.n_cells[i - 1], cells);
        }
    }

    /* For n_heads heads of queries that share a head of keys: those that join each other together, as those of one
     * sequence do. */
    static void attend(ggml_tensor *op, const queries &some, int64_t k_head, int64_t q_head, int64_t n_heads)
    {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
        weir__attention_task task = {};
        task.q_query = q->nb[1];
        task.q_head = q->nb[2];
        task.out_query = op->nb[2];
        task.out_head = op->nb[1];
        task.k = static_cast<const char *>(k->data) + k_head * k->nb[2] + some.stream * k->nb[3];
        task.v = static_cast<const char *>(v->data) + k_head * v->nb[2] + some.stream * v->nb[3];
        task.k_cell = k->nb[1];
        task.v_cell = v->nb[1];
        task.size_k = static_cast<int32_t>(k->ne[0]);
        task.size_v = static_cast<int32_t>(v->ne[0]);
        task.n_heads = static_cast<int32_t>(n_heads);
        format_of(k, &task.k_format);
        format_of(v, &task.v_format);
        attention_params params;
        std::memcpy(&params, op->op_params, sizeof params);
        task.scale = params.scale;
        task.softcap = params.softcap;
        float slopes[WEIR__ATTENTION_ROWS];
        for (int64_t i = 0; i < n_heads && params.max_bias > 0.0f; i++)
            slopes[i] = slope_of(q_head + i, q->ne[2], params.max_bias);
        if (params.max_bias > 0.0f) task.slopes = slopes;
        if (op->src[4] != nullptr) task.sinks = static_cast<const float *>(op->src[4]->data) + q_head;
        for (int32_t begin = 0, end; begin < some.n; begin = end) {
            end = begin + 1;
            while (end < some.n && some.joins[end]) end++;
            task.q = static_cast<const char *>(q->data) + (some.first + begin) * q->nb[1] +
                     q_head * q->nb[2] + some.stream * q->nb[3];
            task.out = static_cast<char *>(op->data) + (some.first + begin) * op->nb[2] + q_head * op->nb[1] +
                       some.stream * op->nb[3];
            task.cells = some.lists + static_cast<size_t>(end - 1) * list_length(op);
            std::copy(some.masks + begin, some.masks + end, task.masks);
            attention->attend(&task, end - begin, some.n_cells + begin);
        }
    }
};

attention_op the_attention;

struct extra : ggml::cpu::extra_buffer_type {
    bool supports_op(ggml_backend_dev_t, const ggml_tensor *op) override
    {
        return product::takes(op) || experts::takes(op);
    }

    ggml::cpu::tensor_traits *get_tensor_traits(const ggml_tensor *op) override
    {
        if (op->op == GGML_OP_FLASH_ATTN_EXT && attention != nullptr) return &the_attention;
        if (op->op == GGML_OP_MUL_MAT && is_ours(op->src[0])) return &the_product;
        if (dots::takes(op)) return &the_dots;
        return op->op == GGML_OP_MUL_MAT_ID && is_ours(op->src[0]) ? &the_experts : nullptr;
    }
};

/* ---- The buffer type ---- */

/* Panels that are packed at once: long enough for a thread to be worth waking. */
constexpr int64_t pack_panels = 8;

/* Threads that pack; with this many, memory is the limit. */
constexpr int32_t most_packers = 16;

/* A matrix that is packed, in parts that may run at the same time. */
struct packing {
    weir__panel_format format;
    int64_t columns, n_panels;
    const void *rows;
    void *panels;
};

void pack(void *user, int32_t i)
{
    auto *p = static_cast<packing *>(user);
    weir__panel_pack(p->format, p->columns, p->rows, p->panels, i * pack_panels,
                     std::min<int64_t>((i + 1) * pack_panels, p->n_panels));
}

/* The load on this thread. */
struct loading {
    bool mapped;
    weir__packed_file *from; /* nullptr: none, or it does not hold what is loaded */
    weir__packed_writer *to; /* nullptr: none */
    bool unread;             /* the model was not read ahead, because there was a packed file */
    uint64_t n_packed, n_from_file;
    weir__crew *crew; /* nullptr: outside a load, the thread packs alone */
};
thread_local loading load;

/* For the whole pages of a file's mapping. */
void advise(const void *data, size_t size, int advice)
{
    uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(data);
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + size) / page * page;
    if (end > first) madvise(reinterpret_cast<void *>(first), end - first, advice);
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor *tensor, const void *data, size_t offset, size_t size)
{
    weir__panel_format format;
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && format_of(tensor, &format));
    packing all = {format, tensor->ne[0], ggml_nrows(tensor) / WEIR__PANEL_ROWS, data, tensor->data};
    auto n_parts = static_cast<int32_t>((all.n_panels + pack_panels - 1) / pack_panels);
    if (load.unread) advise(data, size, MADV_WILLNEED);
    if (load.crew != nullptr)
        weir__crew_run(load.crew, pack, &all, n_parts);
    else
        for (int32_t i = 0; i < n_parts; i++) pack(&all, i);
    load.n_packed += size;
    if (load.mapped) advise(data, size, MADV_DONTNEED); /* the pages can be read again */
}

size_t alignment(ggml_backend_buffer_type_t)
{
    return 64;
}

size_t allocated(ggml_backend_buffer_type_t, const ggml_tensor *tensor)
{
    weir__panel_format format;
    if (!format_of(tensor, &format)) return ggml_nbytes(tensor);
    return weir__panel_bytes(format, ggml_nrows(tensor), tensor->ne[0]);
}

/* As a packed file's table has it. */
weir__packed_tensor entry_of(ggml_backend_buffer_t buffer, const ggml_tensor *tensor)
{
    weir__packed_tensor entry = {};
    std::memcpy(entry.name, tensor->name, strnlen(tensor->name, sizeof entry.name));
    std::copy(tensor->ne, tensor->ne + 4, entry.shape);
    entry.type = static_cast<uint64_t>(tensor->type);
    entry.at = static_cast<uint64_t>(static_cast<char *>(tensor->data) -
                                     static_cast<char *>(ggml_backend_buffer_get_base(buffer)));
    entry.size = allocated(buffer->buft, tensor);
    return entry;
}

ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor *tensor)
{
    if (load.to == nullptr) return GGML_STATUS_SUCCESS;
    weir__packed_tensor entry = entry_of(buffer, tensor);
    return weir__packed_writer_tensor(load.to, &entry, tensor->data) ? GGML_STATUS_SUCCESS
                                                                     : GGML_STATUS_ALLOC_FAILED;
}

/* ---- Buffers that are mapped from a packed file ---- */

void skip_tensor(ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t size)
{
    load.n_packed += size;
    load.n_from_file += size;
}

/* Everything that follows is packed. */
void give_up_file(void)
{
    load.unread = true;
    load.from = nullptr;
}

/* All tensors of a buffer pass here before the first of them is set. Where one is not what the file holds, memory
 * takes the file's place, and all are packed. */
ggml_status init_mapped(ggml_backend_buffer_t buffer, ggml_tensor *tensor)
{
    weir__packed_tensor entry = entry_of(buffer, tensor);
    if (load.from != nullptr && weir__packed_file_is_next(load.from, &entry)) return GGML_STATUS_SUCCESS;
    give_up_file();
    if (mmap(ggml_backend_buffer_get_base(buffer), buffer->size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return GGML_STATUS_ALLOC_FAILED;
    buffer->iface.init_tensor = init_tensor;
    buffer->iface.set_tensor = set_tensor;
    return GGML_STATUS_SUCCESS;
}

void unmap(ggml_backend_buffer_t buffer)
{
    munmap(ggml_backend_buffer_get_base(buffer), buffer->size);
}

/* nullptr: not from a file. */
ggml_backend_buffer_t allocate_mapped(size_t size)
{
    if (load.from == nullptr) return nullptr;
    void *at = weir__packed_file_map(load.from, size);
    if (at == nullptr) {
        give_up_file();
        return nullptr;
    }
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(at, size);
    buffer->iface.free_buffer = unmap;
    buffer->iface.init_tensor = init_mapped;
    buffer->iface.set_tensor = skip_tensor;
    return buffer;
}

const char *name(ggml_backend_buffer_type_t)
{
    return "CPU_WEIR";
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size)
{
    ggml_backend_buffer_t buffer = allocate_mapped(size);
    if (buffer == nullptr) {
        buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
        if (buffer == nullptr) return nullptr;
        buffer->iface.init_tensor = init_tensor;
        buffer->iface.set_tensor = set_tensor;
        if (load.to != nullptr) weir__packed_writer_buffer(load.to, size);
    }
    buffer->buft = type;
    buffer->iface.get_tensor = nullptr;
    buffer->iface.cpy_tensor = nullptr;
    return buffer;
}

ggml_backend_buffer_type_t buffer_type()
{
    static extra the_extra;
    static ggml_backend_buffer_type type = {
        {name, allocate, alignment, nullptr, allocated, nullptr},
        ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        &the_extra,
    };
    return &type;
}

} // namespace

bool weir__hook_begin(bool mapped, weir__packed_file *from, weir__packed_writer *to)
{
    load = {mapped, from, to, false, 0, 0, nullptr};
    if (best() == nullptr) return true;
    load.crew = weir__crew_create(std::min(weir__cpu_count(), most_packers) - 1);
    return load.crew != nullptr;
}

uint64_t weir__hook_end(uint64_t *n_from_file)
{
    weir__crew_destroy(load.crew);
    *n_from_file = load.n_from_file;
    uint64_t n_packed = load.n_packed;
    load = {};
    return n_packed;
}

/* ---- Reading ahead ---- */

/* llama.cpp has the whole model read when it maps it, unless the machine has several memories. With most weights in
 * a packed file that would be for nothing, so during such a load the answer to whether it has is yes. */
static decltype(ggml_backend_reg_i::get_proc_address) ask_cpu;

static bool reads_no_ahead(void)
{
    return load.from != nullptr || ggml_is_numa();
}

static void *ask(ggml_backend_reg_t reg, const char *name)
{
    if (std::strcmp(name, "ggml_backend_cpu_is_numa") == 0) return reinterpret_cast<void *>(reads_no_ahead);
    return ask_cpu(reg, name);
}

static void enter(const llama_kv_cache *cache, bool here)
{
    if (cache == nullptr || attention == nullptr) return;
    std::unique_lock<std::shared_mutex> lock(memories_lock);
    for (uint32_t layer : cache->get_layer_ids()) {
        const ggml_tensor *keys = cache->get_k_storage(static_cast<int32_t>(layer));
        if (here && cache->get_n_stream() == 1) /* a pool */
            memories[keys] = &cache->get_cells(0);
        else
            memories.erase(keys);
    }
}

static void enter_all(llama_context *context, bool here)
{
    llama_memory_i *memory = context->get_memory();
    auto *windowed = dynamic_cast<llama_kv_cache_iswa *>(memory);
    enter(dynamic_cast<llama_kv_cache *>(memory), here);
    if (windowed == nullptr) return;
    enter(windowed->get_base(), here);
    enter(windowed->get_swa(), here);
}

void weir__hook_attach(llama_context *context)
{
    try {
        enter_all(context, true);
    } catch (...) { /* no memory: sums run in the order of the cells */
    }
}

void weir__hook_detach(llama_context *context)
{
    enter_all(context, false);
}

const char *weir__hook_kernels(void)
{
    return best() != nullptr ? best()->name : "";
}

/* The level that WEIR_KERNELS asks for. */
static int wanted_level(const char *wanted)
{
    bool runs = true;
    if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "auto") == 0) return 0;
    int level = weir__kernels_find(wanted, &runs);
    if (level < 0) {
        weir__log(WEIR_LOG_WARN,
                  "WEIR_KERNELS is %.20s; allowed: auto, off, avx2, avx512, avx512bf16. It counts as auto",
                  wanted);
        return 0;
    }
    const weir__gemm *found = weir__kernels_gemm(WEIR__PANEL_Q8_0, level);
    if (!runs)
        weir__log(WEIR_LOG_WARN, "WEIR_KERNELS is %s, which this processor does not run; it runs %s", wanted,
                  found != nullptr ? found->name : "ggml's own");
    return level;
}

void weir__hook_install(void)
{
    const char *wanted = std::getenv("WEIR_KERNELS");
    if (wanted != nullptr && std::strcmp(wanted, "off") == 0) return;
    int level = wanted_level(wanted);
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        gemms[format] = weir__kernels_gemm(static_cast<weir__panel_format>(format), level);
    attention = weir__kernels_attention(level);
    if (best() == nullptr) return;
    std::vector<ggml_backend_buffer_type_t> &types = ggml_backend_cpu_get_extra_buffer_types();
    types.insert(types.begin(), buffer_type());
    ggml_backend_reg_t cpu = ggml_backend_cpu_reg();
    ask_cpu = cpu->iface.get_proc_address;
    cpu->iface.get_proc_address = ask;
}
