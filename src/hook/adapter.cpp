/* adapter.cpp: matrices of LoRA adapters as panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ggml adds the products of one row of activations in another order than those of several, so that texts
 * would depend on their company; weir's kernels do not. They want 32 columns and 16 rows or multiples of
 * that: of a pair, whose product counts, the rank is filled up with zeroes. Both become half precision,
 * which loses less than the rounding of activations beside quantized weights does. */
#include "hook/hook.h"
#include "hook/numbers.h"
#include "hook/parts.h"

/* Headers that llama.cpp does not install: an adapter's matrices and a model's tensors. */
#include <../src/llama-adapter.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace weir
{

namespace
{

constexpr float half_max = 65504.0f;

/* A pair on its way. */
struct pair {
    std::string name;
    ggml_tensor *a, *b;
    float factor; /* that the numbers of b are multiplied by */
    ggml_tensor *a_to, *b_to;
};

bool fits(const ggml_tensor *tensor, float factor)
{
    std::vector<float> numbers = numbers_of(tensor);
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](float x) { return std::fabs(x * factor) <= half_max; });
}

/* Writes a matrix, times factor, into a larger one, and zeroes beside it. */
void write_tensor(ggml_tensor *to, const ggml_tensor *from, float factor)
{
    std::vector<float> old = numbers_of(from);
    std::vector<ggml_fp16_t> numbers(static_cast<size_t>(ggml_nelements(to)), ggml_fp32_to_fp16(0.0f));
    for (float &x : old) x *= factor;
    int64_t n_rows = from->ne[1] * from->ne[2];
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t row = r / from->ne[1] * to->ne[1] + r % from->ne[1];
        ggml_fp32_to_fp16_row(old.data() + r * from->ne[0], numbers.data() + row * to->ne[0], from->ne[0]);
    }
    ggml_set_name(to, from->name);
    ggml_backend_tensor_set(to, numbers.data(), 0, ggml_nbytes(to));
}

/* The columns of b that a rank becomes. */
int64_t wide_of(int64_t rank)
{
    return (rank + WEIR__UNIT - 1) / WEIR__UNIT * WEIR__UNIT;
}

/* The pairs of matrices that stand beside panels. llama.cpp divides the scale by the columns of b, which are
 * more then. */
std::vector<pair> pairs_of(const llama_model *model, const llama_adapter_lora *adapter)
{
    std::vector<pair> pairs;
    for (const auto &[name, weight] : adapter->ab_map) {
        const ggml_tensor *base = model->get_tensor(name.c_str());
        if (!is_ours(base) || name == "token_embd.weight") continue;
        int64_t rank = weight.b->ne[0], wide = wide_of(rank);
        float factor = adapter->alpha != 0.0f ? static_cast<float>(wide) / static_cast<float>(rank) : 1.0f;
        if (fits(weight.a, 1.0f) && fits(weight.b, factor))
            pairs.push_back({name, weight.a, weight.b, factor, nullptr, nullptr});
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
        const int64_t *a = p.a->ne, *b = p.b->ne;
        int64_t wide = wide_of(b[0]);
        p.a_to = ggml_new_tensor_3d(context.get(), GGML_TYPE_F16, a[0], wide, a[2]);
        p.b_to = ggml_new_tensor_3d(context.get(), GGML_TYPE_F16, wide, b[1], b[2]);
    }
    ggml_backend_buffer_ptr buffer{ggml_backend_alloc_ctx_tensors_from_buft(context.get(), buffer_type())};
    if (buffer == nullptr) return false;
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (pair &p : pairs) {
        write_tensor(p.a_to, p.a, 1.0f);
        write_tensor(p.b_to, p.b, p.factor);
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
