/* hook.h: weir's kernels inside ggml's CPU backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HOOK_HOOK_H
#define WEIR_HOOK_HOOK_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/more.h>

struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
struct ggml_context;
struct llama_adapter_lora;
struct llama_context;
struct llama_model;
struct weir__optimized_file;
struct weir__optimized_writer;

#ifdef __cplusplus
extern "C" {
#endif

/* Offers the kernels to models that are loaded from now on: those that WEIR_KERNELS names in the environment,
 * else the best; without kernels for this processor, or with "off", none. Memory of contexts is taken as it
 * is used. Once, before the first model. */
void weir__hook_install(void);

/* A load. */
typedef struct weir__hook_load {
    bool mapped; /* the model is a mapped file: its weights' pages are given back once they are packed */
    bool locked; /* packed weights are locked in memory, or a warning was logged */
    struct weir__optimized_file *from; /* NULL, or packed weights, mapped if they are those of the load */
    struct weir__optimized_writer *to; /* NULL, or the packed weights are written to it */
} weir__hook_load;

/* Begin and end a load on this thread. False: no memory, and there is nothing to end. Returns the bytes of
 * the model's file that the kernels took over; *n_from_file of them came from the optimized file. model: NULL
 * when the load failed. */
bool weir__hook_begin(const weir__hook_load *how);
uint64_t weir__hook_end(const struct llama_model *model, uint64_t *n_from_file);

/* Puts an adapter's matrices that stand beside weights in the kernels' buffers there, too; their results stay
 * the same but for rounding. False: no memory, and nothing has changed. */
bool weir__hook_adapter(const struct llama_model *model, struct llama_adapter_lora *adapter);

/* Allocates the tensors of a projector: matrices of layers that the kernels multiply in their buffers, the
 * others in the given type's. NULL: no memory. */
struct ggml_backend_buffer *weir__hook_projector(struct ggml_context *tensors,
                                                 struct ggml_backend_buffer_type *type);

/* Tells the kernels which token each cell of a context's memory holds, while the context lives. */
void weir__hook_attach(struct llama_context *context);
void weir__hook_detach(struct llama_context *context);

/* copies: llama.cpp will copy a lane to this one before the next pass, as far as the cells that are known now
 * are in use. copied: it has copied all of them. */
void weir__hook_copies(const struct llama_context *context, int32_t to);
void weir__hook_copied(const struct llama_context *context);

/* A sequence becomes a copy of the first n tokens of another. And: from this position on a sequence's cells
 * will change; seq -1: those of all. Attention reads equal cells of several lanes once. */
void weir__hook_repeats(const struct llama_context *context, int32_t from, int32_t to, int32_t n);
void weir__hook_changes(const struct llama_context *context, int32_t seq, int32_t from);

/* True if all of a context's attention runs on weir's kernels. */
bool weir__hook_attends(const struct llama_context *context);

/* True if each row of a product with these weights is the same whatever the others are. */
bool weir__hook_multiplies(const struct llama_model *model);

/* The i-th kind of a model's weights. END past the last; NO_MEMORY. */
weir_status weir__hook_weights(const struct llama_model *model, size_t i, weir_model_weights *weights);

/* Bytes that attention needs while a pass runs, beside those that llama.cpp allocates for a context.
 * n_cells: of a lane; n_heads: heads of queries for each head of keys; n_head_kv: heads of keys; size: of a
 * head's values. */
uint64_t weir__hook_scratch(uint64_t n_cells, int32_t n_heads, int32_t n_head_kv, int64_t size,
                            int32_t n_threads);

/* The reason for which the result of this thread's last pass is invalid: UNSUPPORTED, an operation that the
 * kernels lack used packed weights; NO_MEMORY, for attention. OK: it is valid. The call resets it. */
weir_status weir__hook_fault(void);

/* The kernels in use, "" = none. Static. */
const char *weir__hook_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
