/* kernels.c: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/kernels.h"

#if defined(__x86_64__)
static bool runs_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

static bool runs_avx512_vnni(void)
{
    return runs_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool runs_avx512_bf16(void)
{
    return runs_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

/* For formats from the first to the last; the best come first. */
static const struct {
    const weir__gemm *gemm;
    bool (*runs)(void);
    weir__panel_format first, last;
} gemms[] = {
#if defined(__x86_64__)
    {&weir__gemm_avx512, runs_avx512_vnni, WEIR__PANEL_Q8_0, WEIR__PANEL_Q6_K},
    {&weir__gemm_bf16_avx512, runs_avx512_bf16, WEIR__PANEL_BF16, WEIR__PANEL_BF16},
    {&weir__gemm_fma_bf16_avx512, runs_avx512, WEIR__PANEL_BF16, WEIR__PANEL_BF16},
    {&weir__gemm_fma_f16_avx512, runs_avx512, WEIR__PANEL_F16, WEIR__PANEL_F16},
#endif
    {NULL, NULL, WEIR__PANEL_Q8_0, WEIR__PANEL_Q8_0},
};

const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i)
{
    for (size_t g = 0; gemms[g].gemm != NULL; g++)
        if (gemms[g].first <= format && format <= gemms[g].last && gemms[g].runs() && i-- == 0)
            return gemms[g].gemm;
    return NULL;
}

const weir__attention *weir__kernels_attention(int i)
{
#if defined(__x86_64__)
    if (i == 0 && runs_avx512_vnni()) return &weir__attention_avx512;
#endif
    (void)i;
    return NULL;
}
