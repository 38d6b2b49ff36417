/* no_hook.c: replaces hook.cpp if it does not fit this version of llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/hook.h"

#include <ggml-alloc.h>

#include "base/log.h"

void weir__hook_install(void)
{
    weir__log(WEIR_LOG_WARN, "weir's CPU kernels do not fit this version of llama.cpp; ggml's own are used");
}

bool weir__hook_begin(const weir__hook_load *how)
{
    (void)how;
    return true;
}

uint64_t weir__hook_end(const struct llama_model *model, uint64_t *n_from_file)
{
    (void)model;
    *n_from_file = 0;
    return 0;
}

bool weir__hook_adapter(const struct llama_model *model, struct llama_adapter_lora *adapter)
{
    (void)model, (void)adapter;
    return true;
}

void weir__hook_attach(struct llama_context *context)
{
    (void)context;
}

void weir__hook_detach(struct llama_context *context)
{
    (void)context;
}

void weir__hook_copies(const struct llama_context *context, int32_t to)
{
    (void)context, (void)to;
}

void weir__hook_copied(const struct llama_context *context)
{
    (void)context;
}

void weir__hook_repeats(const struct llama_context *context, int32_t from, int32_t to, int32_t n)
{
    (void)context, (void)from, (void)to, (void)n;
}

void weir__hook_changes(const struct llama_context *context, int32_t seq, int32_t from)
{
    (void)context, (void)seq, (void)from;
}

struct ggml_backend_buffer *weir__hook_projector(struct ggml_context *tensors,
                                                 struct ggml_backend_buffer_type *type)
{
    return ggml_backend_alloc_ctx_tensors_from_buft(tensors, type);
}

bool weir__hook_attends(const struct llama_context *context)
{
    (void)context;
    return false;
}

bool weir__hook_multiplies(const struct llama_model *model)
{
    (void)model;
    return false;
}

weir_status weir__hook_weights(const struct llama_model *model, size_t i, weir_model_weights *weights)
{
    (void)model, (void)i, (void)weights;
    return WEIR_END;
}

uint64_t weir__hook_scratch(uint64_t n_cells, int32_t n_heads, int32_t n_head_kv, int64_t size,
                            int32_t n_threads)
{
    (void)n_cells, (void)n_heads, (void)n_head_kv, (void)size, (void)n_threads;
    return 0;
}

weir_status weir__hook_fault(void)
{
    return WEIR_OK;
}

const char *weir__hook_kernels(void)
{
    return "";
}
