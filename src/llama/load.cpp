/* load.cpp: loads of model files by llama.cpp, and what its models have. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/guard.h"
#include "llama/internal.h"

/* A header that llama.cpp does not install: the tensors of MTP layers. */
#include <../src/llama-model.h>

#include <cstdlib>
#include <cstring>

extern "C" {
#include "base/error.h"
#include "gguf/gguf.h"
}

using weir::attempt;
using weir::capture;
using weir::guard;
using weir::refuse_memory;

/* Refuses options that the devices cannot serve; only llama.cpp knows which ones it uses. OK: none. */
static weir_status refuse_option(const capture &said, const llama_model_params &params, weir_error *error)
{
    static const char count[] = "available devices: ";
    const char *at = said.says("invalid value for main_gpu") ? std::strstr(said.text, count) : nullptr;
    const long n = at != nullptr ? std::strtol(at + sizeof count - 1, nullptr, 10) : 0;
    if (n > 0)
        return weir__error_range(error, WEIR_INVALID, "main_gpu", params.main_gpu, 0,
                                 static_cast<double>(n - 1), "`main_gpu` is %d, and there %s %ld device%s",
                                 params.main_gpu, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    if (said.says("does not support split buffers"))
        return weir__error_of(error, WEIR_UNSUPPORTED, WEIR_ERROR_CONFLICT, "split_mode",
                              "`split_mode` is row, and a device of the model cannot hold rows of a tensor: "
                              "give layer");
    return WEIR_OK;
}

weir_status weir__llama_file_load(const char *path, llama_model_params params, llama_model **model,
                                  weir_error *error)
{
    capture said;
    const weir_status status = guard(error, WEIR_BACKEND, "the model cannot be loaded", [&] {
        *model = llama_model_load_from_file(path, params);
        return *model != nullptr ? WEIR_OK : said.starved() ? WEIR_NO_MEMORY : WEIR_FORMAT;
    });
    if (status == WEIR_FORMAT) {
        const weir_status refused = refuse_option(said, params, error);
        return refused != WEIR_OK ? refused : weir__gguf_refused(path, said.text, "cannot be loaded", error);
    }
    if (status != WEIR_NO_MEMORY) return status;
    return refuse_memory(error, "path", said, "the model's weights",
                         params.no_host
                             ? "free memory, or give a smaller model or one in a smaller quantization"
                             : "give the GPU fewer layers, free memory, or give a smaller model or one in "
                               "a smaller quantization");
}

weir_status weir__llama_template_text(const llama_model *model, const char **text, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the model's chat template cannot be read", [&] {
        *text = llama_model_chat_template(model, nullptr);
        return WEIR_OK;
    });
}

int32_t weir__llama_mtp_layers(const llama_model *model)
{
    return attempt<int32_t>(0, [&] {
        /* Each graph asserts on tensors of its own; for these architectures they are known. */
        const llama_hparams &has = model->hparams;
        bool glm = model->arch == LLM_ARCH_GLM4_MOE, hy = model->arch == LLM_ARCH_HY_V3,
             deepseek = model->arch == LLM_ARCH_DEEPSEEK2;
        if ((!glm && !hy && !deepseek) || has.n_layer_nextn != 1) return 0;
        const llama_layer &layer = model->layers[has.n_layer()];
        const llama_layer_nextn &nextn = layer.nextn;
        bool heads = (layer.wqkv || (layer.wq && layer.wk && layer.wv)) &&
                     (glm || (layer.attn_q_norm && layer.attn_k_norm));
        bool low_rank = has.is_mla() && has.f_attn_temp_scale == 0.0f && has.n_lora_q > 0 && layer.wq_a &&
                        layer.attn_q_a_norm && layer.wq_b && layer.wkv_a_mqa && layer.attn_kv_a_norm &&
                        layer.wk_b && layer.wv_b;
        bool experts = layer.ffn_gate_inp && layer.ffn_down_exps &&
                       (layer.ffn_gate_up_exps || (layer.ffn_up_exps && layer.ffn_gate_exps));
        bool shared = layer.ffn_gate_shexp && layer.ffn_down_shexp && layer.ffn_up_shexp;
        bool dense = hy && !layer.ffn_gate_inp && layer.ffn_up && layer.ffn_gate && layer.ffn_down;
        bool whole = nextn.eh_proj && nextn.enorm && nextn.hnorm && layer.wo && layer.attn_norm &&
                     (glm ? layer.attn_post_norm : layer.ffn_norm) && (deepseek ? low_rank : heads) &&
                     ((experts && (glm || shared)) || dense) && has.n_layer() >= has.n_layer_dense_lead;
        return whole ? 1 : 0;
    });
}
