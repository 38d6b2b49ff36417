/* cells.cpp: where the tokens of a sequence lie in llama.cpp's caches.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/hook.h"
#include "hook/parts.h"

/* Headers that llama.cpp does not install: caches and their cells. */
#include <../src/llama-context.h>
#include <../src/llama-kv-cache-iswa.h>
#include <../src/llama-kv-cache.h>
#include <../src/llama-memory-hybrid-iswa.h>
#include <../src/llama-memory-hybrid.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>

namespace weir
{

/* ---- Caches of a context ---- */

namespace
{

/* Layers by the tensor of their keys. */
std::shared_mutex memories_lock;
std::unordered_map<const ggml_tensor *, layer> memories; /* under memories_lock */

void enter(const llama_kv_cache *cache, bool here)
{
    if (attention == nullptr) return;
    std::unique_lock<std::shared_mutex> lock(memories_lock);
    for (uint32_t layer : cache->get_layer_ids()) {
        const ggml_tensor *keys = cache->get_k_storage(static_cast<int32_t>(layer));
        if (here)
            memories[keys] = {cache, 0};
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

} // namespace

/* ---- Of an operation ---- */

layer *layer_of(const ggml_tensor *k)
{
    std::shared_lock<std::shared_mutex> lock(memories_lock);
    auto found = memories.find(k->view_src != nullptr ? k->view_src : k);
    return found != memories.end() ? &found->second : nullptr;
}

const llama_kv_cache *cache_of(const ggml_tensor *k)
{
    const layer *found = layer_of(k);
    return found != nullptr ? found->cache : nullptr;
}

int32_t lane_of(const llama_kv_cache *cache, const ggml_tensor *k, int64_t stream)
{
    if (cache->get_n_stream() == 1 || k->view_src == nullptr) return 0;
    return static_cast<int32_t>(static_cast<int64_t>(k->view_offs / k->view_src->nb[2]) + stream);
}

const llama_kv_cells *cells_of(const llama_kv_cache *cache, const ggml_tensor *k, int64_t stream)
{
    return cache != nullptr ? &cache->get_cells(lane_of(cache, k, stream)) : nullptr;
}

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
    if (ascending) return;
    std::copy(cells, cells + n, unordered);
    if (most - least + 1 == n) {
        std::fill(cells, cells + n, -1);
        for (int32_t i = 0; i < n; i++)
            cells[memory.pos_get(static_cast<uint32_t>(unordered[i])) - least] = unordered[i];
        if (std::find(cells, cells + n, -1) == cells + n) return;
        std::copy(unordered, unordered + n, cells);
    }
    std::sort(cells, cells + n, [&memory](int32_t a, int32_t b) {
        auto key = [&memory](int32_t cell) {
            const llama_kv_cell_ext &at = memory.ext_get(static_cast<uint32_t>(cell));
            return std::make_tuple(memory.pos_get(static_cast<uint32_t>(cell)), at.y, at.x, cell);
        };
        return key(a) < key(b);
    });
}

} // namespace weir

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
    } catch (...) { /* no memory: the next cache at the same address replaces the entry that stays */
    }
}
