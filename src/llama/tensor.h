/* tensor.h: pointers to tensors that refuse null, for the copy of libmtmd that weir builds
 * (scripts/mtmd_checked.py).
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

/* Allocates a file's tensors; in projector.cpp, which every program with libmtmd has. */
extern "C" ggml_backend_buffer_t weir__shim_projector_tensors(ggml_context *tensors,
                                                              ggml_backend_buffer_type_t type);
#define ggml_backend_alloc_ctx_tensors_from_buft weir__shim_projector_tensors
#define ggml_backend_buft_is_host(type)          false /* panels are not read into place */

namespace weir
{

inline void need_tensor(const ggml_tensor *tensor)
{
    if (tensor == nullptr) throw std::runtime_error("it lacks a tensor that its kind needs");
}

/* Like a pointer, except that reading through null throws. */
class tensor
{
    ggml_tensor *at = nullptr;

  public:
    tensor() = default;
    tensor(ggml_tensor *tensor) : at(tensor)
    {
    }
    operator ggml_tensor *() const
    {
        return at;
    }
    ggml_tensor *operator->() const
    {
        need_tensor(at);
        return at;
    }
};
static_assert(sizeof(tensor) == sizeof(ggml_tensor *), "an array of these is one of pointers");

template <typename T> void need_argument(const T &argument)
{
    if constexpr (std::is_convertible_v<const T &, const ggml_tensor *> && !std::is_same_v<T, std::nullptr_t>)
        need_tensor(argument);
    else
        (void)argument;
}

template <typename R> using result = std::conditional_t<std::is_same_v<R, ggml_tensor *>, tensor, R>;

/* Calls a function of ggml that reads all of its tensors. */
template <typename R, typename... P, typename... A>
result<R> tensors_all(R (*function)(P...), A &&...arguments)
{
    (need_argument(arguments), ...);
    return function(std::forward<A>(arguments)...);
}

/* … of which some may be null. */
template <typename R, typename... P, typename... A>
result<R> tensors_some(R (*function)(P...), A &&...arguments)
{
    return function(std::forward<A>(arguments)...);
}

template <typename T> T &&as_pointers(T &&argument)
{
    return std::forward<T>(argument);
}
inline ggml_tensor **as_pointers(tensor *array)
{
    return reinterpret_cast<ggml_tensor **>(array);
}

/* … that takes an array of tensors. */
template <typename R, typename... P, typename... A>
result<R> tensors_of_array(R (*function)(P...), A &&...arguments)
{
    return function(as_pointers(std::forward<A>(arguments))...);
}

} // namespace weir
