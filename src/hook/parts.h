/* parts.h: declarations shared by the parts of hook.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HOOK_PARTS_H
#define WEIR_HOOK_PARTS_H

#include <ggml-backend-impl.h>
#include <ggml-cpu-impl.h>
#include <ggml.h>
#include <traits.h>

#include <weir/weir.h>

extern "C" {
#include "kernels/kernels.h"
}

struct llama_context;
struct weir__lane_texts;
class llama_kv_cache;
class llama_kv_cells;

namespace weir
{

/* Constant once installed; nullptr: ggml's own. */
extern const weir__gemm *gemms[WEIR__PANEL_N_FORMATS];
extern const weir__attention *attention;
extern weir__hadamard *hadamard;
extern weir__gelu *gelu;
extern const weir__recurrent *recurrent;

/* True if any of them is weir's. */
inline bool installed()
{
    return gemms[WEIR__PANEL_Q8_0] != nullptr;
}

/* ---- weights.cpp ---- */

/* Tells the format of a matrix, or of one for each expert behind one another. False: it is ggml's own. */
bool format_of(const ggml_tensor *weights, weir__panel_format *format);

/* Has the kernels read the codebooks of formats that have one, before the first product; a format whose
 * codebook is not the one they know stays ggml's own. */
void learn_codebooks();

/* Most rows of a matrix in single precision that is taken over where it lies; beyond, ggml's products are
 * faster. */
constexpr int64_t most_dots = 512;

/* Weights in weir's own buffers, as panels. */
bool is_ours(const ggml_tensor *tensor);
bool is_on_host(const ggml_tensor *tensor);

ggml_backend_buffer_type_t buffer_type();

/* The buffers, and the formats, of an encoder's matrices, which are multiplied with many rows: those in half
 * precision become panels of integers. */
ggml_backend_buffer_type_t encoder_buffer_type();
bool format_in_encoder(const ggml_tensor *weights, weir__panel_format *format);

/* The operations that buffer_type() offers; in hook.cpp. */
ggml::cpu::extra_buffer_type *operations();

/* Lets a load that an optimized file spares its reading not read ahead. Called once. */
void spare_reading();

/* ---- lanes.cpp ---- */

/* Make copies between the lanes of a context copy the cells that weir__hook_copies named, from enter to
 * leave, while the context lives. May throw. */
void lanes_enter(const llama_context *context, const llama_kv_cache *cache);
void lanes_leave(const llama_kv_cache *cache);

/* The texts that a cache's lanes have in common; nullptr: unknown. Does not change while a pass runs. */
const weir__lane_texts *lane_texts_of(const llama_kv_cache *cache);

/* ---- cells.cpp ---- */

/* A layer, for attention. */
struct layer {
    const llama_kv_cache *cache;
    size_t n_work; /* the largest work buffer that there was memory for; of the thread that plans passes */
};

/* The layer whose keys an operation reads; nullptr: unknown. */
layer *layer_of(const ggml_tensor *k);

/* The KV cache of an operation; nullptr: unknown. */
const llama_kv_cache *cache_of(const ggml_tensor *k);

/* The lane of an operation's stream. In a pool all streams are in lane 0. */
int32_t lane_of(const llama_kv_cache *cache, const ggml_tensor *k, int64_t stream);

/* The cells of an operation's stream. nullptr: the KV cache is unknown; cells then count as in the order of
 * their tokens, from position 0. */
const llama_kv_cells *cells_of(const llama_kv_cache *cache, const ggml_tensor *k, int64_t stream);

/* Sorts a list of n cells by the positions of their tokens; `unordered` has room for n. In a pool that
 * sequences share, a token's cell can come before its predecessor's. The tokens of an image share a position;
 * they are sorted by line and column. */
void put_in_order(const llama_kv_cells &memory, int32_t *cells, int32_t n, int32_t *unordered);

/* The up to two caches of keys and values that a context's memory is made of; nullptr: less. */
void caches_of(const llama_context *context, const llama_kv_cache *caches[2]);

/* ---- zeroes.cpp ---- */

/* Makes buffers in the machine's memory that are made from now on take no memory by being cleared. Called
 * once. */
void spare_zeroes();

/* ---- product.cpp, attention.cpp, gelu.cpp, recurrent.cpp ---- */

/* Makes the pass that this thread plans fail: a plan itself cannot. In hook.cpp. */
void spoil(weir_status status);

/* True if weights in weir's buffers can take part in an operation. */
bool multiplies(const ggml_tensor *op);

/* The code that computes an operation; nullptr: ggml's own. */
ggml::cpu::tensor_traits *product_of(const ggml_tensor *op);
ggml::cpu::tensor_traits *attention_of(const ggml_tensor *op);
ggml::cpu::tensor_traits *gelu_of(const ggml_tensor *op);

/* Asked about each operation of a plan, in order, and again by each thread that computes it, which must find
 * nothing new to refuse. */
ggml::cpu::tensor_traits *recurrent_of(const ggml_tensor *op);

} // namespace weir

#endif
