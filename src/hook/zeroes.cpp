/* zeroes.cpp: buffers in the machine's memory that are cleared without being written to.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp clears the memory of all KV cells, and of a row of logits for each sequence, when it makes a
 * context. So buffers of ggml's type for the machine's memory get another clear: ADR 0026. */
#include "hook/parts.h"

#include <ggml-backend.h>

#include <cstring>

extern "C" {
#include "base/pages.h"
}

namespace weir
{

namespace
{

/* ggml's own. */
decltype(ggml_backend_buffer_type_i::alloc_buffer) own_allocate;
decltype(ggml_backend_buffer_i::free_buffer) own_free;

void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    void *base = ggml_backend_buffer_get_base(buffer);
    if (value == 0)
        weir__pages_clear(base, buffer->size);
    else
        std::memset(base, value, buffer->size);
}

void free_buffer(ggml_backend_buffer_t buffer)
{
    weir__pages_forget(ggml_backend_buffer_get_base(buffer));
    own_free(buffer);
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size)
{
    ggml_backend_buffer_t buffer = own_allocate(type, size);
    if (buffer == nullptr) return nullptr;
    buffer->iface.clear = clear;
    buffer->iface.free_buffer = free_buffer;
    return buffer;
}

} // namespace

void spare_zeroes()
{
    ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, 1);
    if (buffer == nullptr) return;
    own_free = buffer->iface.free_buffer;
    ggml_backend_buffer_free(buffer);
    own_allocate = type->iface.alloc_buffer;
    type->iface.alloc_buffer = allocate;
}

} // namespace weir
