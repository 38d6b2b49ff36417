/* kernels.c: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/kernels.h"

#include <string.h>

/* What a kind of processor runs. */
typedef struct level {
    const char *name;
    bool (*runs)(void);
    const weir__gemm *quantized, *bf16, *f16; /* NULL: ggml's own */
    const weir__attention *attention;
} level;

#if defined(__x86_64__)
#include <cpuid.h>

static bool runs_avx2(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool runs_avx512_bf16(void)
{
    return runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* The best first. */
static const level levels[] = {
    {"avx512bf16", runs_avx512_bf16, &weir__gemm_avx512, &weir__gemm_bf16_avx512, &weir__gemm_fma_f16_avx512,
     &weir__attention_avx512},
    {"avx512", runs_avx512, &weir__gemm_avx512, &weir__gemm_fma_bf16_avx512, &weir__gemm_fma_f16_avx512,
     &weir__attention_avx512},
    {"avx2", runs_avx2, &weir__gemm_avx2, NULL, NULL, &weir__attention_avx2},
    {0},
};
#else
static const level levels[] = {{0}};
#endif

/* The i-th that runs here, or the end of the list. */
static const level *find(int i)
{
    const level *l = levels;
    for (; l->name != NULL; l++)
        if (l->runs() && i-- == 0) break;
    return l;
}

const char *weir__kernels_name(int i)
{
    const char *name = find(i)->name;
    return name != NULL ? name : "";
}

const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i)
{
    const level *l = find(i);
    return format == WEIR__PANEL_BF16 ? l->bf16 : format == WEIR__PANEL_F16 ? l->f16 : l->quantized;
}

const weir__attention *weir__kernels_attention(int i)
{
    return find(i)->attention;
}

const char *weir__kernels_level(int i)
{
    return levels[i].name;
}

int weir__kernels_find(const char *name, bool *runs)
{
    int i = 0;
    for (const level *l = levels; l->name != NULL; l++) {
        *runs = l->runs();
        if (strcmp(l->name, name) == 0) return i;
        i += *runs;
    }
    return -1;
}
