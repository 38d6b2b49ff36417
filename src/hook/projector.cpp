/* projector.cpp: where the weights of a projector lie.
 * SPDX-License-Identifier: Apache-2.0
 *
 * libmtmd gives all tensors of a file one buffer type. weir's copy of it (scripts/mtmd_checked.py) asks here
 * instead: matrices of layers, which are only multiplied, go into weir's buffers as panels, the others where
 * libmtmd wants them. */
#include "hook/hook.h"
#include "hook/parts.h"

#include <ggml-alloc.h>

#include <cstring>
#include <string>
#include <vector>

namespace weir
{
namespace
{

bool ends_with(const std::string &name, const char *end)
{
    size_t n = std::strlen(end);
    return name.size() >= n && name.compare(name.size() - n, n, end) == 0;
}

bool is_packed(const ggml_tensor *tensor)
{
    static const char *const ends[] = {".attn_q.weight",   ".attn_k.weight",   ".attn_v.weight",
                                       ".attn_qkv.weight", ".attn_out.weight", ".ffn_up.weight",
                                       ".ffn_gate.weight", ".ffn_down.weight"};
    weir__panel_format format;
    std::string name = tensor->name;
    if (name.find(".blk.") == std::string::npos || tensor->ne[2] != 1 || !format_in_encoder(tensor, &format))
        return false;
    for (const char *end : ends)
        if (ends_with(name, end)) return true;
    return false;
}

/* nullptr: none is packed, or there is no memory for them. */
ggml_backend_buffer_t allocate_packed(ggml_context *tensors)
{
    ggml_backend_buffer_type_t type = encoder_buffer_type();
    size_t alignment = ggml_backend_buft_get_alignment(type), size = 0;
    for (ggml_tensor *t = ggml_get_first_tensor(tensors); t != nullptr; t = ggml_get_next_tensor(tensors, t))
        if (is_packed(t)) size += GGML_PAD(ggml_backend_buft_get_alloc_size(type, t), alignment);
    ggml_backend_buffer_t buffer = size > 0 ? ggml_backend_buft_alloc_buffer(type, size) : nullptr;
    if (buffer == nullptr) return nullptr;
    ggml_tallocr at = ggml_tallocr_new(buffer);
    for (ggml_tensor *t = ggml_get_first_tensor(tensors); t != nullptr; t = ggml_get_next_tensor(tensors, t))
        if (is_packed(t)) ggml_tallocr_alloc(&at, t);
    return buffer;
}

} // namespace
} // namespace weir

ggml_backend_buffer_t weir__hook_projector(ggml_context *tensors, ggml_backend_buffer_type_t type)
{
    bool here = weir::installed() && type == ggml_backend_cpu_buffer_type();
    ggml_backend_buffer_t buffers[2] = {here ? weir::allocate_packed(tensors) : nullptr, nullptr};
    buffers[1] = ggml_backend_alloc_ctx_tensors_from_buft(tensors, type);
    if (buffers[0] == nullptr || buffers[1] == nullptr) {
        ggml_backend_buffer_free(buffers[0]);
        return buffers[1];
    }
    return ggml_backend_multi_buffer_alloc_buffer(buffers, 2);
}
