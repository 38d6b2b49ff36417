/* ggml_adapter.cpp: matrices of LoRA adapters as panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ggml adds the products of one row of activations in another order than those of several, so that texts
 * would depend on their company; weir's kernels do not. They want 32 columns and 16 rows or multiples of
 * that: of a pair, whose product counts, the rank is filled up with zeroes. Both become half precision,
 * which loses less than the rounding of activations beside quantized weights does. */
#include "backend/ggml_hook.h"
#include "backend/ggml_parts.h"

#include <ggml-backend.h>

/* Not public: an adapter's matrices and a model's tensors. */
#include <../src/llama-adapter.h>
#include <../src/llama-model.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace weir
{

namespace
{

constexpr float half_max = 65504.0f;

/* All numbers of a matrix, or of one for each expert. */
std::vector<float> read(const ggml_tensor *tensor)
{
    auto n = static_cast<size_t>(ggml_nelements(tensor));
    std::vector<char> bytes(ggml_nbytes(tensor));
    std::vector<float> numbers(n);
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    if (tensor->type == GGML_TYPE_F32)
        std::memcpy(numbers.data(), bytes.data(), n * sizeof(float));
    else
        ggml_get_type_traits(tensor->type)->to_float(bytes.data(), numbers.data(), ggml_nelements(tensor));
    return numbers;
}

/* A pair on its way. */
struct pair {
    std::string name;
    std::vector<float> a, b;
    ggml_tensor *old_a, *old_b, *a_to, *b_to;
};

bool fits(const pair &p)
{
    for (float x : p.a)
        if (!(std::fabs(x) <= half_max)) return false;
    for (float x : p.b)
        if (!(std::fabs(x) <= half_max)) return false;
    return true;
}

/* Writes `from`, of the shape of `old`, into a larger tensor, and zeroes beside it. */
void write(ggml_tensor *to, const ggml_tensor *old, const std::vector<float> &from)
{
    std::vector<ggml_fp16_t> numbers(static_cast<size_t>(ggml_nelements(to)), ggml_fp32_to_fp16(0.0f));
    int64_t n_rows = old->ne[1] * old->ne[2];
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t row = r / old->ne[1] * to->ne[1] + r % old->ne[1];
        ggml_fp32_to_fp16_row(from.data() + r * old->ne[0], numbers.data() + row * to->ne[0], old->ne[0]);
    }
    ggml_set_name(to, old->name);
    ggml_backend_tensor_set(to, numbers.data(), 0, ggml_nbytes(to));
}

/* Those that stand beside panels. llama.cpp divides the scale by the columns of b, which are more then. */
std::vector<pair> pairs_of(const llama_model *model, const llama_adapter_lora *adapter)
{
    std::vector<pair> pairs;
    for (const auto &[name, weight] : adapter->ab_map) {
        const ggml_tensor *base = model->get_tensor(name.c_str());
        if (!is_ours(base) || name == "token_embd.weight") continue;
        pair p{name, read(weight.a), read(weight.b), weight.a, weight.b, nullptr, nullptr};
        int64_t rank = weight.b->ne[0], wide = (rank + WEIR__UNIT - 1) / WEIR__UNIT * WEIR__UNIT;
        if (adapter->alpha != 0.0f)
            for (float &x : p.b) x *= static_cast<float>(wide) / static_cast<float>(rank);
        if (fits(p)) pairs.push_back(std::move(p));
    }
    return pairs;
}

bool pack(const llama_model *model, llama_adapter_lora *adapter)
{
    if (gemms[WEIR__PANEL_F16] == nullptr) return true;
    std::vector<pair> pairs = pairs_of(model, adapter);
    if (pairs.empty()) return true;
    ggml_context_ptr context{ggml_init({pairs.size() * 2 * ggml_tensor_overhead(), nullptr, true})};
    if (context == nullptr) return false;
    for (pair &p : pairs) {
        const int64_t *a = p.old_a->ne, *b = p.old_b->ne;
        int64_t wide = (b[0] + WEIR__UNIT - 1) / WEIR__UNIT * WEIR__UNIT;
        p.a_to = ggml_new_tensor_3d(context.get(), GGML_TYPE_F16, a[0], wide, a[2]);
        p.b_to = ggml_new_tensor_3d(context.get(), GGML_TYPE_F16, wide, b[1], b[2]);
    }
    ggml_backend_buffer_ptr buffer{ggml_backend_alloc_ctx_tensors_from_buft(context.get(), buffer_type())};
    if (buffer == nullptr) return false;
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (pair &p : pairs) {
        write(p.a_to, p.old_a, p.a);
        write(p.b_to, p.old_b, p.b);
    }
    adapter->ctxs.reserve(adapter->ctxs.size() + 1);
    adapter->bufs.reserve(adapter->bufs.size() + 1);
    if (pairs.size() == adapter->ab_map.size()) { /* nobody reads the file's any longer */
        adapter->bufs.clear();
        adapter->ctxs.clear();
    }
    for (pair &p : pairs) adapter->ab_map[p.name] = llama_adapter_lora_weight(p.a_to, p.b_to);
    adapter->ctxs.push_back(std::move(context));
    adapter->bufs.push_back(std::move(buffer));
    return true;
}

} // namespace

} // namespace weir

bool weir__hook_adapter(const llama_model *model, llama_adapter_lora *adapter)
{
    try {
        return weir::pack(model, adapter);
    } catch (...) {
        return false;
    }
}
