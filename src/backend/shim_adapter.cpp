/* shim_adapter.cpp: LoRA adapters of llama.cpp for C. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/ggml_hook.h"
#include "backend/numbers.h"
#include "backend/shim.h"
#include "backend/shim_guard.h"

/* Not public: an adapter's matrices, and when a context plans for others. */
#include <../src/llama-adapter.h>
#include <../src/llama-context.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cmath>

using weir::capture;
using weir::guard;

namespace
{

weir_status unfit(weir_error *error, const std::string &name, const char *why)
{
    return weir__error_set(error, WEIR_UNSUPPORTED, "path",
                           "the adapter cannot be used with this model: its matrices for '%s' %s",
                           name.c_str(), why);
}

bool is_known(ggml_type type)
{
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || type == GGML_TYPE_Q8_0;
}

bool is_finite(const ggml_tensor *tensor)
{
    std::vector<float> numbers = weir::numbers_of(tensor);
    return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

/* What llama.cpp asserts, divides by or reads beyond when it builds a graph, and does not look at before. */
weir_status check_weight(const llama_model &model, const std::string &name,
                         const llama_adapter_lora_weight &pair, weir_error *error)
{
    const ggml_tensor *base = model.get_tensor(name.c_str()), *a = pair.a, *b = pair.b;
    if (!is_known(a->type) || !is_known(b->type))
        return unfit(error, name, "are neither F32, F16, BF16 nor Q8_0");
    if (base->type == GGML_TYPE_NVFP4) return unfit(error, name, "stand beside NVFP4 weights");
    if (a->ne[2] != base->ne[2] || b->ne[2] != base->ne[2] || a->ne[3] != 1 || b->ne[3] != 1)
        return unfit(error, name, "are not as many as the weights'");
    if (!is_finite(a) || !is_finite(b))
        return weir__error_set(error, WEIR_FORMAT, "path",
                               "the adapter's matrices for '%s' hold numbers that are not finite",
                               name.c_str());
    if (name != "token_embd.weight") return WEIR_OK;
    /* A tied output is multiplied by the same tensor, for which these are the wrong way round. */
    if (model.get_tensor("output.weight") == nullptr)
        return unfit(error, name, "would change its output, too, which llama.cpp cannot do");
    if (a->ne[0] != b->ne[0]) return unfit(error, name, "have different ranks");
    return WEIR_OK;
}

} // namespace

weir_status weir__shim_adapter_load(llama_model *model, const char *path, llama_adapter_lora **adapter,
                                    weir_error *error)
{
    return guard(error, WEIR_FORMAT, "the adapter cannot be loaded", [&] {
        capture said;
        *adapter = llama_adapter_lora_init(model, path);
        if (*adapter != nullptr) return WEIR_OK;
        weir_status status = WEIR_FORMAT;
        if (said.says("mismatch") || said.says("base model") || said.says("not transposed"))
            status = WEIR_UNSUPPORTED;
        if (said.says("failed to allocate") || said.says("bad_alloc")) status = WEIR_NO_MEMORY;
        return weir__error_set(error, status, "path", "the adapter cannot be loaded: %s",
                               said.reason("llama.cpp gives no reason"));
    });
}

weir_status weir__shim_adapter_ready(llama_model *model, llama_adapter_lora *adapter,
                                     weir__shim_adapter *shape, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the adapter cannot be used", [&] {
        *shape = {};
        shape->alpha = adapter->alpha;
        for (const auto &[name, pair] : adapter->ab_map) {
            weir_status status = check_weight(*model, name, pair, error);
            if (status != WEIR_OK) return status;
            shape->n_weights++;
            shape->rank = std::max(shape->rank, static_cast<int32_t>(pair.b->ne[0]));
        }
        if (!weir__hook_adapter(model, adapter))
            return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for an adapter");
        for (const auto &buffer : adapter->bufs) shape->n_bytes += ggml_backend_buffer_get_size(buffer.get());
        return WEIR_OK;
    });
}

weir_status weir__shim_set_adapters(llama_context *context, llama_adapter_lora *const *adapters,
                                    const float *scales, int32_t n, weir_error *error)
{
    auto **set = const_cast<llama_adapter_lora **>(adapters);
    auto *scale = const_cast<float *>(scales);
    weir_status status = guard(error, WEIR_BACKEND, "the adapters cannot be set", [&] {
        capture said;
        said.mute = true; /* it tells its plans, which would be every few ticks */
        llama_set_adapters_lora(context, set, static_cast<size_t>(n), scale);
        context->sched_reserve(); /* now, not when the next pass begins: this reads the model's list */
        return WEIR_OK;
    });
    if (status == WEIR_OK || n == 0) return status;
    weir__shim_set_adapters(context, adapters, scales, 0, nullptr);
    return status;
}
