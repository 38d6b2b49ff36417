/* kernels.c: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/kernels.h"

#if defined(__x86_64__)
static bool runs_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}
#define AVX512(kernels) (runs_avx512() ? &(kernels) : NULL)
#else
#define AVX512(kernels) NULL
#endif

const weir__gemm *weir__kernels_gemm(int i)
{
    return i == 0 ? AVX512(weir__gemm_avx512) : NULL;
}

const weir__attention *weir__kernels_attention(int i)
{
    return i == 0 ? AVX512(weir__attention_avx512) : NULL;
}
