/* numbers.h: the numbers of a tensor of any type.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HOOK_NUMBERS_H
#define WEIR_HOOK_NUMBERS_H

#include <ggml-backend.h>
#include <ggml.h>

#include <cstring>
#include <vector>

namespace weir
{

/* All numbers of a matrix, or of one matrix per expert. */
inline std::vector<float> numbers_of(const ggml_tensor *tensor)
{
    auto n = static_cast<std::size_t>(ggml_nelements(tensor));
    std::vector<char> bytes(ggml_nbytes(tensor));
    std::vector<float> numbers(n);
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    if (tensor->type == GGML_TYPE_F32)
        std::memcpy(numbers.data(), bytes.data(), n * sizeof(float));
    else
        ggml_get_type_traits(tensor->type)->to_float(bytes.data(), numbers.data(), ggml_nelements(tensor));
    return numbers;
}

} // namespace weir

#endif
