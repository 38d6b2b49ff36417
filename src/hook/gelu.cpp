/* gelu.cpp: the activation function of most encoders, as ggml's operation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/parts.h"

namespace weir
{

namespace
{

struct gelu_op : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *x = op->src[0];
        return op->op == GGML_OP_UNARY && ggml_get_unary_op(op) == GGML_UNARY_OP_GELU && gelu != nullptr &&
               x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && ggml_is_contiguous(op);
    }

    bool work_size(int, const ggml_tensor *, size_t &size) override
    {
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        int64_t n = ggml_nelements(op), first = n * params->ith / params->nth;
        gelu(static_cast<const float *>(op->src[0]->data) + first, static_cast<float *>(op->data) + first,
             n * (params->ith + 1) / params->nth - first);
        return true;
    }
};

gelu_op the_gelu;

} // namespace

ggml::cpu::tensor_traits *gelu_of(const ggml_tensor *op)
{
    return gelu_op::takes(op) ? &the_gelu : nullptr;
}

} // namespace weir
