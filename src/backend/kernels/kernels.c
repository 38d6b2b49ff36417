/* kernels.c: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/kernels.h"

#include <stdbool.h>

#if defined(__x86_64__)
static bool runs_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}
#endif

const weir__gemm *weir__kernels_gemm(int i)
{
    const weir__gemm *found[2] = {NULL, NULL};
    int n = 0;
#if defined(__x86_64__)
    if (runs_avx512()) found[n++] = &weir__gemm_avx512;
#endif
    (void)n;
    return i >= 0 && i < 2 ? found[i] : NULL;
}

const weir__attention *weir__kernels_attention(int i)
{
#if defined(__x86_64__)
    if (i == 0 && runs_avx512()) return &weir__attention_avx512;
#endif
    (void)i;
    return NULL;
}
