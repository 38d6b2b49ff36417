/* kernels.c: which of the kernels this processor runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <string.h>

#include "base/cpu.h"

/* The kernels of an instruction set. */
typedef struct level {
    const char *name;
    uint32_t needs;                                 /* bits of weir__cpu_feature */
    const weir__gemm *quantized, *bf16, *f16, *f32; /* NULL: ggml's own */
    const weir__attention *attention;
    weir__hadamard *hadamard;
    weir__gelu *gelu;
    const weir__recurrent *recurrent;
} level;

#if defined(__x86_64__)
#define AVX2   (WEIR__CPU_AVX2 | WEIR__CPU_FMA | WEIR__CPU_F16C)
#define AVX512 (AVX2 | WEIR__CPU_AVX512 | WEIR__CPU_AVX512_VNNI)

/* The best first. */
static const level levels[] = {
    {"avx512bf16", AVX512 | WEIR__CPU_AVX512_BF16, &weir__gemm_avx512, &weir__gemm_bf16_avx512,
     &weir__gemm_fma_f16_avx512, &weir__gemm_integers_avx512, &weir__attention_avx512, weir__hadamard_avx512,
     weir__gelu_avx512, &weir__recurrent_avx512},
    {"avx512", AVX512, &weir__gemm_avx512, &weir__gemm_fma_bf16_avx512, &weir__gemm_fma_f16_avx512,
     &weir__gemm_integers_avx512, &weir__attention_avx512, weir__hadamard_avx512, weir__gelu_avx512,
     &weir__recurrent_avx512},
    {"avx2", AVX2, &weir__gemm_avx2, &weir__gemm_fma_bf16_avx2, &weir__gemm_fma_f16_avx2,
     &weir__gemm_integers_avx2, &weir__attention_avx2, weir__hadamard_avx2, weir__gelu_avx2,
     &weir__recurrent_avx2},
    {0},
};
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define NEON_LEVEL(name, needs, quantized)                                                                   \
    {                                                                                                        \
        name, needs, &(quantized), &weir__gemm_fma_bf16_neon, &weir__gemm_fma_f16_neon,                      \
            &weir__gemm_integers_neon, &weir__attention_neon, weir__hadamard_neon, weir__gelu_neon,          \
            &weir__recurrent_neon                                                                            \
    }

/* The last one runs on each processor of 64 bits. */
static const level levels[] = {
    NEON_LEVEL("i8mm", WEIR__CPU_DOTPROD | WEIR__CPU_I8MM, weir__gemm_i8mm),
    NEON_LEVEL("dotprod", WEIR__CPU_DOTPROD, weir__gemm_dotprod),
    NEON_LEVEL("neon", 0, weir__gemm_neon),
    {0},
};
#else
static const level levels[] = {{0}};
#endif

static bool runs(const level *l)
{
    return (l->needs & ~weir__cpu_features()) == 0;
}

/* The i-th that runs here, or the end of the list. */
static const level *find_level(int i)
{
    const level *l = levels;
    for (; l->name != NULL; l++)
        if (runs(l) && i-- == 0) break;
    return l;
}

const char *weir__kernels_name(int i)
{
    const char *name = find_level(i)->name;
    return name != NULL ? name : "";
}

const weir__gemm *weir__kernels_gemm(weir__panel_format format, int i)
{
    const level *l = find_level(i);
    switch (format) {
    case WEIR__PANEL_BF16: return l->bf16;
    case WEIR__PANEL_F16: return l->f16;
    case WEIR__PANEL_F32: return l->f32;
    default: return l->quantized;
    }
}

const weir__attention *weir__kernels_attention(int i)
{
    return find_level(i)->attention;
}

weir__hadamard *weir__kernels_hadamard(int i)
{
    return find_level(i)->hadamard;
}

weir__gelu *weir__kernels_gelu(int i)
{
    return find_level(i)->gelu;
}

const weir__recurrent *weir__kernels_recurrent(int i)
{
    return find_level(i)->recurrent;
}

const char *weir__kernels_level(int i)
{
    return levels[i].name;
}

int weir__kernels_find(const char *name, bool *runs_here)
{
    int i = 0;
    for (const level *l = levels; l->name != NULL; l++) {
        *runs_here = runs(l);
        if (strcmp(l->name, name) == 0) return i;
        i += *runs_here;
    }
    return -1;
}
