/* adapter.cpp: llama.cpp's LoRA adapters. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/hook.h"
#include "hook/numbers.h"
#include "llama/guard.h"
#include "llama/internal.h"

/* Headers that llama.cpp does not install: an adapter's matrices, and sched_reserve. */
#include <../src/llama-adapter.h>
#include <../src/llama-context.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cmath>
#include <cstring>

extern "C" {
#include "base/mem.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
}

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

/* Checks conditions without which llama.cpp, when it builds a graph, would assert, divide by zero or read
 * beyond the end. */
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
    /* A tied output multiplies by the same tensor, and these matrices would be transposed there. */
    if (model.get_tensor("output.weight") == nullptr)
        return unfit(error, name, "would change its output, too, which llama.cpp cannot do");
    if (a->ne[0] != b->ne[0]) return unfit(error, name, "have different ranks");
    return WEIR_OK;
}

/* Loads the file. The caller holds the model's adapter_lock: llama.cpp adds the adapter to the model's
 * list. */
weir_status load_file(weir__badapter *adapter, const char *path, weir_error *error)
{
    return guard(error, WEIR_FORMAT, "the adapter cannot be loaded", [&] {
        capture said;
        adapter->adapter = llama_adapter_lora_init(adapter->model->model, path);
        if (adapter->adapter != nullptr) return WEIR_OK;
        if (said.starved())
            return weir::refuse_memory(error, "path", said, "the adapter",
                                       "free memory, or load fewer adapters or one of lower rank");
        if (said.says("failed to open"))
            return weir__error_set(error, WEIR_IO, "path",
                                   "the adapter cannot be read; the log has llama.cpp's reason");
        const bool half = said.says("one component"), absent = said.says("does not exist in base model");
        const char *quote =
            half || absent || said.says("incorrect shape") ? std::strchr(said.text, '\'') : nullptr;
        if (quote == nullptr)
            return weir::refuse_unknown(error, WEIR_UNSUPPORTED, "path", "the adapter cannot be used",
                                        said.length > 0);
        const std::string name(quote + 1, std::strcspn(quote + 1, "'"));
        if (half)
            return weir__error_set(error, WEIR_FORMAT, "path",
                                   "the adapter has only one of the matrices for '%s'", name.c_str());
        return unfit(error, name,
                     absent ? "belong to no weights of it" : "have another shape than its weights");
    });
}

/* Checks the matrices, measures them, and prepares them for weir's kernels. */
weir_status prepare(weir__badapter *adapter, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the adapter cannot be used", [&] {
        llama_model *model = adapter->model->model;
        adapter->alpha = adapter->adapter->alpha;
        for (const auto &[name, pair] : adapter->adapter->ab_map) {
            weir_status status = check_weight(*model, name, pair, error);
            if (status != WEIR_OK) return status;
            adapter->n_weights++;
            adapter->rank = std::max(adapter->rank, static_cast<int32_t>(pair.b->ne[0]));
        }
        if (!weir__hook_adapter(model, adapter->adapter))
            return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for an adapter");
        for (const auto &buffer : adapter->adapter->bufs)
            adapter->n_bytes += ggml_backend_buffer_get_size(buffer.get());
        if (!std::isfinite(adapter->alpha))
            return weir__error_set(error, WEIR_FORMAT, "path", "its alpha is %f; it must be finite",
                                   static_cast<double>(adapter->alpha));
        return WEIR_OK;
    });
}

/* Sets a context's adapters. The caller holds the model's adapter_lock. */
weir_status set_all(llama_context *context, llama_adapter_lora **adapters, float *scales, int32_t n,
                    weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the adapters cannot be set", [&] {
        capture said;
        said.mute = true; /* it logs its plans, which would be every few ticks */
        llama_set_adapters_lora(context, adapters, static_cast<size_t>(n), scales);
        context->sched_reserve(); /* reads the model's list, so not when the next pass begins */
        return WEIR_OK;
    });
}

} // namespace

weir_status weir__llama_adapter_load(weir__bmodel *model, const char *path, weir__badapter **out,
                                     weir_error *error)
{
    weir__gguf_info file;
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "model", "the model was loaded without its weights");
    /* The check reads the whole file, so that the system has it cached before the lock is taken. */
    weir_status status = weir__gguf_check_adapter(path, &file, error);
    if (status != WEIR_OK) return status;
    char shown[WEIR__ERROR_PATH];
    weir__error_path(shown, path);
    if (std::strcmp(file.architecture, model->architecture) != 0)
        return weir__error_set(
            error, WEIR_UNSUPPORTED, "path",
            "\"%s\": the adapter is for models of the kind '%s', and this one is of the kind '%s'", shown,
            file.architecture, model->architecture);
    auto *made = static_cast<weir__badapter *>(weir__mem_calloc(1, sizeof(weir__badapter)));
    if (made == nullptr) return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for an adapter");
    made->model = model;
    made->identity = file.identity;
    pthread_mutex_lock(&model->adapter_lock);
    status = load_file(made, path, error);
    pthread_mutex_unlock(&model->adapter_lock);
    if (status == WEIR_OK) status = prepare(made, error);
    if (status != WEIR_OK) {
        weir__llama_adapter_free(made);
        return weir__error_wrap(error, error, status, "path", "\"%s\": ", shown);
    }
    char name[sizeof made->name] = "";
    llama_adapter_meta_val_str(made->adapter, "general.name", name, sizeof name);
    weir__utf8_copy(made->name, sizeof made->name, name, std::strlen(name));
    *out = made;
    return WEIR_OK;
}

void weir__llama_adapter_free(weir__badapter *adapter)
{
    if (adapter->adapter != nullptr) {
        pthread_mutex_lock(&adapter->model->adapter_lock);
        llama_adapter_lora_free(adapter->adapter);
        pthread_mutex_unlock(&adapter->model->adapter_lock);
    }
    weir__mem_free(adapter);
}

void weir__llama_adapter_describe(const weir__badapter *adapter, weir_adapter_info *info)
{
    info->name = adapter->name;
    info->n_weights = adapter->n_weights;
    info->rank = adapter->rank;
    info->alpha = adapter->alpha;
    info->n_bytes = adapter->n_bytes;
    info->identity = adapter->identity;
}

weir_status weir__llama_set_adapters(weir__bcontext *c, weir__badapter *const *adapters, const float *scales,
                                     int32_t n, weir_error *error)
{
    llama_adapter_lora *set[WEIR_ADAPTERS_MAX];
    float scale[WEIR_ADAPTERS_MAX];
    for (int32_t i = 0; i < n; i++) {
        set[i] = adapters[i]->adapter;
        scale[i] = scales[i];
    }
    pthread_mutex_lock(&c->model->adapter_lock);
    weir_status status = set_all(c->context, set, scale, n, error);
    if (status != WEIR_OK && n > 0) set_all(c->context, set, scale, 0, nullptr);
    pthread_mutex_unlock(&c->model->adapter_lock);
    return status;
}
