/* cpu.h: what the machine, or the container around this process, lets it use.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_CPU_H
#define WEIR_BASE_CPU_H

#include <stdint.h>

/* ggml's limit on the threads of one context. */
#define WEIR__CPU_MAX 512

/* Processors that this process may use, 1 … WEIR__CPU_MAX: its affinity mask, and the CPU quota of its cgroup
 * and of those above it, rounded to whole processors. Reads a few small files; any thread. */
int32_t weir__cpu_count(void);

/* Bytes that can still be allocated without swapping: what the kernel calls available, and what the memory
 * limits of the cgroups leave. 0 = unknown. Reads a few small files; any thread. */
uint64_t weir__cpu_memory_available(void);

/* ---- For tests: the same with another root than "", e.g. a directory that holds proc/ and sys/ ---- */

/* Processors by quota, at least 1; 0 = there is no quota. */
int32_t weir__cpu_quota_at(const char *root);
uint64_t weir__cpu_memory_at(const char *root);

#endif
