/* cpu.h: the processors and memory that this process may use, and the processor's instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_CPU_H
#define WEIR_BASE_CPU_H

#include <stdint.h>

#define WEIR__CPU_MAX 512 /* ggml's limit on the threads of one context */

/* Processors that this process may use, 1 … WEIR__CPU_MAX: its affinity mask, and the CPU quota of its cgroup
 * and of those above it, rounded to whole processors. Reads a few small files; any thread. */
int32_t weir__cpu_count(void);

/* Bytes. */
typedef struct weir__cpu_memory {
    /* Bytes that can still be allocated without swapping: the kernel's available memory, or less where limits
     * of cgroups leave less, minus the memory promised to this process (base/pages.h). 0 = unknown. */
    uint64_t available;
    uint64_t limit; /* the smallest of the cgroups' limits, used or not; 0 = there is none */
} weir__cpu_memory;

/* Reads a few small files; any thread. available: that number alone. */
weir__cpu_memory weir__cpu_memory_read(void);
uint64_t weir__cpu_memory_available(void);

/* Sets of instructions. */
typedef enum weir__cpu_feature {
    WEIR__CPU_AVX2 = 1 << 0,
    WEIR__CPU_FMA = 1 << 1,
    WEIR__CPU_F16C = 1 << 2,
    WEIR__CPU_BMI2 = 1 << 3,
    WEIR__CPU_AVX512 = 1 << 4, /* F, BW, CD, DQ and VL */
    WEIR__CPU_AVX512_VBMI = 1 << 5,
    WEIR__CPU_AVX512_VNNI = 1 << 6,
    WEIR__CPU_AVX512_BF16 = 1 << 7,
    WEIR__CPU_DOTPROD = 1 << 8, /* of ARM, as the next one */
    WEIR__CPU_I8MM = 1 << 9,
    WEIR__CPU_ZEN4 = 1 << 10, /* no instruction set: AMD's family 19h with AVX-512 */
} weir__cpu_feature;

/* The features that the processor executes and the system lets programs use; 0 if there is none of these.
 * Any thread. */
uint32_t weir__cpu_features(void);

/* ---- For tests: takes features away, from now on; 0 gives all back ---- */

void weir__cpu_hide(uint32_t features);

/* ---- For tests: quota and memory with another root than "", e.g. a folder with proc/ and sys/ ---- */

/* Processors by quota, at least 1; 0 = there is no quota. */
int32_t weir__cpu_quota_at(const char *root);
weir__cpu_memory weir__cpu_memory_at(const char *root);

#endif
