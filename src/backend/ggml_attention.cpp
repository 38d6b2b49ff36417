/* ggml_attention.cpp: attention, as ggml's operation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/ggml_hook.h"
#include "backend/ggml_parts.h"

#include <ggml-backend.h>

/* Not public: where a sequence's tokens lie. */
#include <../src/llama-context.h>
#include <../src/llama-kv-cache-iswa.h>
#include <../src/llama-kv-cache.h>
#include <../src/llama-memory-hybrid-iswa.h>
#include <../src/llama-memory-hybrid.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace weir
{

namespace
{

/* ---- Where tokens lie ---- */

/* The cells of a memory by the tensor that holds a layer's keys. In a pool that several sequences share, a
 * token can lie in a cell before that of the token before it; sums must run in the order of the tokens all
 * the same. */
std::shared_mutex memories_lock;
std::unordered_map<const ggml_tensor *, const llama_kv_cells *> memories; /* under memories_lock */

const llama_kv_cells *cells_of(const ggml_tensor *k)
{
    const ggml_tensor *storage = k->view_src != nullptr ? k->view_src : k;
    std::shared_lock<std::shared_mutex> lock(memories_lock);
    auto found = memories.find(storage);
    return found != memories.end() ? found->second : nullptr;
}

/* Puts a list of n cells into the order of their tokens, with room for as many. Where positions have
 * gaps or repeat themselves, it stays as it is. */
void put_in_order(const llama_kv_cells &memory, int32_t *cells, int32_t n, int32_t *unordered)
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
    std::copy(cells, cells + n, unordered);
    std::fill(cells, cells + n, -1);
    for (int32_t i = 0; i < n; i++)
        cells[memory.pos_get(static_cast<uint32_t>(unordered[i])) - least] = unordered[i];
    if (std::find(cells, cells + n, -1) != cells + n) std::copy(unordered, unordered + n, cells);
}

void enter(const llama_kv_cache *cache, bool here)
{
    if (attention == nullptr) return;
    std::unique_lock<std::shared_mutex> lock(memories_lock);
    for (uint32_t layer : cache->get_layer_ids()) {
        const ggml_tensor *keys = cache->get_k_storage(static_cast<int32_t>(layer));
        if (here && cache->get_n_stream() == 1) /* a pool */
            memories[keys] = &cache->get_cells(0);
        else
            memories.erase(keys);
    }
}

} // namespace

void caches_of(const llama_context *context, const llama_kv_cache *caches[2])
{
    llama_memory_i *memory = context->get_memory();
    if (auto *hybrid = dynamic_cast<llama_memory_hybrid *>(memory)) memory = hybrid->get_mem_attn();
    if (auto *hybrid = dynamic_cast<llama_memory_hybrid_iswa *>(memory)) memory = hybrid->get_mem_attn();
    auto *windowed = dynamic_cast<llama_kv_cache_iswa *>(memory);
    caches[0] = windowed != nullptr ? windowed->get_base() : dynamic_cast<llama_kv_cache *>(memory);
    caches[1] = windowed != nullptr ? windowed->get_swa() : nullptr;
}

namespace
{

void enter_all(llama_context *context, bool here)
{
    const llama_kv_cache *caches[2];
    caches_of(context, caches);
    for (const llama_kv_cache *cache : caches) {
        if (cache == nullptr) continue;
        if (!here) lanes_leave(cache);
        enter(cache, here);
        if (here) lanes_enter(context, cache);
    }
}

/* ---- Attention ---- */

/* The operation's parameters, in the order in which ggml keeps them. */
struct attention_params {
    float scale, max_bias, softcap;
};

/* Of heads of this type and size. False: ggml's own. */
bool format_for(ggml_type type, int64_t size, weir__attention_format *format)
{
    switch (type) {
    case GGML_TYPE_F16: *format = WEIR__ATTENTION_F16; break;
    case GGML_TYPE_Q8_0: *format = WEIR__ATTENTION_Q8_0; break;
    default: return false;
    }
    return size % 16 == 0 && size <= WEIR__ATTENTION_SIZE;
}

bool format_of(const ggml_tensor *k_or_v, weir__attention_format *format)
{
    return format_for(k_or_v->type, k_or_v->ne[0], format) && k_or_v->nb[0] == ggml_type_size(k_or_v->type);
}

bool takes_all(const llama_kv_cache *cache, const llama_hparams &hparams)
{
    weir__attention_format format;
    if (hparams.is_mla()) return false; /* the cache has no values: they are a part of its keys */
    for (uint32_t layer : cache->get_layer_ids()) {
        const ggml_tensor *keys = cache->get_k_storage(static_cast<int32_t>(layer));
        if (!format_for(keys->type, keys->ne[0] / std::max(hparams.n_head_kv(layer), 1u), &format) ||
            !format_for(cache->type_v(), hparams.n_embd_head_v(layer), &format))
            return false;
    }
    return true;
}

/* ALiBi's slope of a head (Press et al., arXiv 2108.12409): numbers of heads that are no power of two take
 * every other one of the next such number's. */
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

/* Whose lists of cells a thread keeps at a time. */
int64_t queries_at_once(int64_t n_shared)
{
    return WEIR__ATTENTION_ROWS / heads_at_once(n_shared);
}

int64_t queries_at_once(const ggml_tensor *op)
{
    return queries_at_once(op->src[0]->ne[2] / op->src[1]->ne[2]);
}

size_t list_length(size_t n_cells)
{
    return n_cells + 31;
}

size_t list_length(const ggml_tensor *op)
{
    return list_length(static_cast<size_t>(op->src[1]->ne[1]));
}

/* The lists of one thread. */
size_t lists_bytes(size_t n_cells, int64_t n_shared)
{
    return static_cast<size_t>(queries_at_once(n_shared) + 1) * list_length(n_cells) * sizeof(int32_t);
}

size_t lists_bytes(const ggml_tensor *op)
{
    return lists_bytes(static_cast<size_t>(op->src[1]->ne[1]), op->src[0]->ne[2] / op->src[1]->ne[2]);
}

struct attention_op : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
        weir__attention_format k_format, v_format;
        if (op->op != GGML_OP_FLASH_ATTN_EXT || !format_of(k, &k_format) || !format_of(v, &v_format))
            return false;
        return mask != nullptr && q->type == GGML_TYPE_F32 && mask->type == GGML_TYPE_F16 &&
               q->ne[2] % k->ne[2] == 0 && k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] &&
               v->ne[3] == q->ne[3] && mask->ne[2] == 1 && q->ne[3] % mask->ne[3] == 0 &&
               q->nb[0] == sizeof(float) && mask->nb[0] == sizeof(ggml_fp16_t) &&
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
        int64_t most = queries_at_once(op), n_groups = (q->ne[1] + most - 1) / most;
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
        /* The cells of query i from i × list_length() on; behind those of all, room for one more. */
        int32_t *lists;
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
            if (memory != nullptr)
                put_in_order(*memory, cells, some.n_cells[i],
                             some.lists + static_cast<size_t>(queries_at_once(op)) * list_length(op));
            some.masks[i] = plain ? nullptr : row;
            some.joins[i] =
                i > 0 && some.n_cells[i] >= some.n_cells[i - 1] &&
                std::equal(cells - list_length(op), cells - list_length(op) + some.n_cells[i - 1], cells);
        }
    }

    /* For n_heads heads of queries that share a head of keys: those that join each other together, as those
     * of one sequence do. */
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

} // namespace

ggml::cpu::tensor_traits *attention_of(const ggml_tensor *op)
{
    return op->op == GGML_OP_FLASH_ATTN_EXT && attention != nullptr ? &the_attention : nullptr;
}

} // namespace weir

uint64_t weir__hook_scratch(uint64_t n_cells, int32_t n_heads, int32_t n_threads)
{
    if (weir::attention == nullptr) return 0;
    return static_cast<uint64_t>(n_threads) * weir::lists_bytes(n_cells, n_heads);
}

void weir__hook_attach(llama_context *context)
{
    try {
        weir::enter_all(context, true);
    } catch (...) { /* no memory: sums run in the order of the cells, lanes are copied as a whole */
    }
}

void weir__hook_detach(llama_context *context)
{
    try {
        weir::enter_all(context, false);
    } catch (...) { /* no memory: what stays is replaced by the next memory at that place */
    }
}

bool weir__hook_attends(const llama_context *context)
{
    if (weir::attention == nullptr || !context->get_cparams().flash_attn) return false;
    try {
        const llama_kv_cache *caches[2];
        weir::caches_of(context, caches);
        const llama_hparams &hparams = context->get_model().hparams;
        return caches[0] != nullptr && weir::takes_all(caches[0], hparams) &&
               (caches[1] == nullptr || weir::takes_all(caches[1], hparams));
    } catch (...) { /* no memory for a list of layers */
        return false;
    }
}
