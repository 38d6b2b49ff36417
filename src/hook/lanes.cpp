/* lanes.cpp: copies between lanes, of the cells in use, and which lanes they made equal.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp copies a lane as a whole, every cell that it has room for, layer by layer, before the next pass:
 * by setting the target's tensor to the bytes of the source's. So the buffers of lanes get another
 * set_tensor, which sets the cells that the target was to get and leaves the others as they are: nobody
 * attends to them. */
#include "hook/hook.h"
#include "hook/parts.h"

extern "C" {
#include "hook/lane_text.h"
}

#include <ggml-backend.h>

/* Headers that llama.cpp does not install: which cells a lane uses. */
#include <../src/llama-context.h>
#include <../src/llama-kv-cache.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <new>
#include <vector>

namespace weir
{

namespace
{

/* The lanes of a context. */
struct lanes {
    const llama_kv_cache *cache;
    ggml_backend_buffer_t buffer;
    decltype(ggml_backend_buffer_i::set_tensor) own_set; /* ggml's */
    std::vector<uint32_t>
        wanted; /* of each, the cells up to the last one that copies are to bring; 0 = all */
    weir__lane_texts texts;
};

std::mutex lanes_lock;
std::list<lanes> all_lanes; /* under lanes_lock */

template <typename condition> lanes *find(condition &&holds)
{
    auto found = std::find_if(all_lanes.begin(), all_lanes.end(), holds);
    return found != all_lanes.end() ? &*found : nullptr;
}

bool lies_in(ggml_backend_buffer_t buffer, const void *data)
{
    auto *base = static_cast<const char *>(ggml_backend_buffer_get_base(buffer));
    return data >= base && data < base + buffer->size;
}

/* A lane is a view of its layer's tensor. */
void set_lane(ggml_backend_buffer_t buffer, ggml_tensor *tensor, const void *data, size_t offset, size_t size)
{
    const ggml_tensor *layer = tensor->view_src;
    decltype(ggml_backend_buffer_i::set_tensor) own_set;
    size_t n = 0;
    {
        std::lock_guard<std::mutex> guard(lanes_lock);
        const lanes *there = find([buffer](const lanes &l) { return l.buffer == buffer; });
        own_set = there->own_set;
        if (layer != nullptr && offset == 0 && size == ggml_nbytes(tensor) && lies_in(buffer, data))
            n = there->wanted[tensor->view_offs / layer->nb[2]];
    }
    own_set(buffer, tensor, data, offset, n > 0 ? std::min(size, n * tensor->nb[1]) : size);
}

template <typename visit> void for_each(const llama_context *context, visit &&fn)
{
    const llama_kv_cache *caches[2];
    caches_of(context, caches);
    std::lock_guard<std::mutex> guard(lanes_lock);
    for (const llama_kv_cache *cache : caches)
        if (lanes *there = find([cache](const lanes &l) { return l.cache == cache; })) fn(*there);
}

} // namespace

void lanes_enter(const llama_context *context, const llama_kv_cache *cache)
{
    std::vector<uint32_t> layers = cache->get_layer_ids();
    /* Flash attention is needed: without it a value's row is not a cell's. */
    if (cache->get_n_stream() == 1 || layers.empty() || !context->get_cparams().flash_attn) return;
    ggml_backend_buffer_t buffer = cache->get_k_storage(static_cast<int32_t>(layers[0]))->buffer;
    if (buffer->buft != ggml_backend_cpu_buffer_type()) return;
    std::lock_guard<std::mutex> guard(lanes_lock);
    all_lanes.push_back(
        {cache, buffer, buffer->iface.set_tensor, std::vector<uint32_t>(cache->get_n_stream(), 0), {}});
    if (!weir__lane_texts_init(&all_lanes.back().texts, static_cast<int32_t>(cache->get_n_stream()))) {
        all_lanes.pop_back();
        throw std::bad_alloc();
    }
    buffer->iface.set_tensor = set_lane;
}

void lanes_leave(const llama_kv_cache *cache)
{
    std::lock_guard<std::mutex> guard(lanes_lock);
    auto there = std::find_if(all_lanes.begin(), all_lanes.end(),
                              [cache](const lanes &l) { return l.cache == cache; });
    if (there == all_lanes.end()) return;
    there->buffer->iface.set_tensor = there->own_set;
    weir__lane_texts_fini(&there->texts);
    all_lanes.erase(there);
}

const weir__lane_texts *lane_texts_of(const llama_kv_cache *cache)
{
    std::lock_guard<std::mutex> guard(lanes_lock);
    lanes *there = find([cache](const lanes &l) { return l.cache == cache; });
    return there != nullptr ? &there->texts : nullptr;
}

} // namespace weir

void weir__hook_repeats(const llama_context *context, int32_t from, int32_t to, int32_t n)
{
    weir::for_each(context, [&](weir::lanes &there) { weir__lane_texts_copy(&there.texts, from, to, n); });
}

void weir__hook_changes(const llama_context *context, int32_t seq, int32_t from)
{
    weir::for_each(context, [&](weir::lanes &there) {
        for (int32_t lane = 0; lane < there.texts.n; lane++)
            if (seq < 0 || lane == seq) weir__lane_texts_cut(&there.texts, lane, std::max(from, 0));
    });
}

void weir__hook_copies(const llama_context *context, int32_t to)
{
    weir::for_each(context, [to](weir::lanes &there) {
        uint32_t &most = there.wanted[static_cast<size_t>(to)];
        most = std::max(most, there.cache->get_cells(to).used_max_p1());
    });
}

void weir__hook_copied(const llama_context *context)
{
    weir::for_each(context,
                   [](weir::lanes &there) { std::fill(there.wanted.begin(), there.wanted.end(), 0); });
}
