/* cpu.c: the processors and memory that this process may use, and the processor's instruction sets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Processors are counted from the affinity mask and the quotas of the groups (cgroups of version 1 or 2) from
 * this process's own up to the root, and memory from /proc/meminfo and the groups' limits. Small files are
 * read with bounds. Instruction sets are asked of the processor once. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/pages.h"

#define PATH_CAPACITY 4096

/* A cgroup file system of version 1 or 2: the names of the files that are read. */
typedef struct group_files {
    const char *mount, *other_mount; /* below the root; NULL = none */
    const char *quota, *period;      /* period NULL: both stand in quota */
    const char *limit, *usage, *cache;
} group_files;

static const group_files v2 = {
    .mount = "/sys/fs/cgroup",
    .quota = "cpu.max",
    .limit = "memory.max",
    .usage = "memory.current",
    .cache = "inactive_file",
};
static const group_files v1_cpu = {
    .mount = "/sys/fs/cgroup/cpu",
    .other_mount = "/sys/fs/cgroup/cpu,cpuacct",
    .quota = "cpu.cfs_quota_us",
    .period = "cpu.cfs_period_us",
};
static const group_files v1_memory = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .cache = "total_inactive_file",
};

/* ---- Small files ---------------------------------------------------------------------------------- */

/* The file dir/name as text, at most capacity - 1 bytes; false when there is none. */
static bool read_small(const char *dir, const char *name, char *text, size_t capacity)
{
    char path[PATH_CAPACITY];
    int length = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t n = fread(text, 1, capacity - 1, file);
    fclose(file);
    text[n] = '\0';
    return n > 0;
}

/* The number after `key` at the beginning of a line; false when there is none. */
static bool number_after(const char *text, const char *key, uint64_t *number)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, length) == 0 && strchr(" \t", line[length]) != NULL && line[length] != '\0') {
            char *end;
            *number = strtoull(line + length, &end, 10);
            return end != line + length;
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return false;
}

/* A non-negative number at the beginning; false for "max", "-1" and the like. */
static bool number_of(const char *text, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    *number = strtoull(text, &end, 10);
    return end != text;
}

/* ---- cgroups -------------------------------------------------------------------------------------- */

/* The limits that the groups on the way to the root leave; starts at "no limit". */
typedef struct limits {
    double processors; /* 0 = no limit */
    uint64_t memory;   /* UINT64_MAX = no limit */
    uint64_t whole;    /* of which that is left; UINT64_MAX = no limit */
} limits;

static void limits_of(const group_files *files, const char *dir, limits *all)
{
    char text[4096], period_text[64];
    uint64_t quota, period, limit, usage, cache = 0;
    if (files->quota != NULL && read_small(dir, files->quota, text, sizeof text) && number_of(text, &quota)) {
        const char *rest = strchr(text, ' ');
        bool known = files->period != NULL
                         ? read_small(dir, files->period, period_text, sizeof period_text) &&
                               number_of(period_text, &period)
                         : rest != NULL && number_of(rest + 1, &period);
        if (known && period > 0 && quota > 0) {
            double processors = (double)quota / (double)period;
            if (all->processors <= 0.0 || processors < all->processors) all->processors = processors;
        }
    }
    if (files->limit == NULL || !read_small(dir, files->limit, text, sizeof text) || !number_of(text, &limit))
        return;
    if (limit < all->whole) all->whole = limit;
    if (read_small(dir, files->usage, text, sizeof text) && number_of(text, &usage)) {
        /* pages that the kernel can drop at once count as used, but are free to take */
        if (read_small(dir, "memory.stat", text, sizeof text)) number_after(text, files->cache, &cache);
        usage -= cache < usage ? cache : usage;
        uint64_t left = limit > usage ? limit - usage : 0;
        if (left < all->memory) all->memory = left;
    }
}

/* The group at `path` and all above it. Where the file system shows another part of the tree than /proc names
 * of, as in some containers, only those directories count that are there. */
static void limits_upward(const char *root, const char *mount, const group_files *files, const char *path,
                          limits *all)
{
    char dir[PATH_CAPACITY];
    int length = snprintf(dir, sizeof dir, "%s%s%s", root, mount, strcmp(path, "/") == 0 ? "" : path);
    if (length < 0 || (size_t)length >= sizeof dir) return;
    size_t top = strlen(root) + strlen(mount);
    for (;;) {
        limits_of(files, dir, all);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= top || slash == NULL) return;
        *slash = '\0';
        if (strlen(dir) < top) return;
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (;;) {
        size_t n = strcspn(list, ",");
        if (n == length && memcmp(list, name, n) == 0) return true;
        if (list[n] == '\0') return false;
        list += n + 1;
    }
}

static limits limits_read(const char *root)
{
    limits all = {.processors = 0.0, .memory = UINT64_MAX, .whole = UINT64_MAX};
    char dir[PATH_CAPACITY], text[PATH_CAPACITY];
    int length = snprintf(dir, sizeof dir, "%s/proc/self", root);
    if (length < 0 || (size_t)length >= sizeof dir || !read_small(dir, "cgroup", text, sizeof text))
        return all;

    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        /* id:controllers:path */
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL || path[1] != '/') continue;
        *path++ = '\0';
        list++;
        if (*list == '\0') limits_upward(root, v2.mount, &v2, path, &all);
        if (has_controller(list, "cpu")) {
            limits_upward(root, v1_cpu.mount, &v1_cpu, path, &all);
            limits_upward(root, v1_cpu.other_mount, &v1_cpu, path, &all);
        }
        if (has_controller(list, "memory")) limits_upward(root, v1_memory.mount, &v1_memory, path, &all);
    }
    return all;
}

/* ---- Questions of the rest of weir ---------------------------------------------------------------- */

int32_t weir__cpu_quota_at(const char *root)
{
    double processors = limits_read(root).processors;
    if (processors <= 0.0) return 0;
    if (processors < 1.0) return 1;
    return processors > WEIR__CPU_MAX ? WEIR__CPU_MAX : (int32_t)(processors + 0.5);
}

weir__cpu_memory weir__cpu_memory_at(const char *root)
{
    char dir[PATH_CAPACITY], text[4096];
    weir__cpu_memory memory = {0};
    uint64_t kib;
    int length = snprintf(dir, sizeof dir, "%s/proc", root);
    if (length >= 0 && (size_t)length < sizeof dir && read_small(dir, "meminfo", text, sizeof text) &&
        number_after(text, "MemAvailable:", &kib))
        memory.available = kib * 1024;
    limits all = limits_read(root);
    /* a limit of 0, or one that is used up, is a known answer, and 0 means unknown */
    if (all.whole != UINT64_MAX) memory.limit = all.whole > 0 ? all.whole : 1;
    if (all.memory == UINT64_MAX) return memory;
    uint64_t left = all.memory > 0 ? all.memory : 1;
    if (memory.available == 0 || left < memory.available) memory.available = left;
    return memory;
}

#ifdef __linux__
static int32_t affinity_cpus(void)
{
    for (int n = 1024; n <= 1 << 16; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (set == NULL) return 0;
        size_t size = CPU_ALLOC_SIZE((size_t)n);
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        bool larger = count == 0 && errno == EINVAL;
        CPU_FREE(set);
        if (!larger) return count;
    }
    return 0;
}
#else
static int32_t affinity_cpus(void)
{
    return 0;
}
#endif

int32_t weir__cpu_count(void)
{
    int64_t n = affinity_cpus();
    if (n <= 0) n = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t quota = weir__cpu_quota_at("");
    if (quota > 0 && quota < n) n = quota;
    if (n < 1) n = 1;
    return n > WEIR__CPU_MAX ? WEIR__CPU_MAX : (int32_t)n;
}

weir__cpu_memory weir__cpu_memory_read(void)
{
    weir__cpu_memory memory = weir__cpu_memory_at("");
    uint64_t promised = weir__pages_promised();
    if (memory.available > 0)
        memory.available = memory.available > promised ? memory.available - promised : 1;
    return memory;
}

uint64_t weir__cpu_memory_available(void)
{
    return weir__cpu_memory_read().available;
}

/* ---- Instructions --------------------------------------------------------------------------------- */

static _Atomic uint32_t hidden_features;

void weir__cpu_hide(uint32_t features)
{
    atomic_store_explicit(&hidden_features, features, memory_order_relaxed);
}

#if defined(__x86_64__)
static uint32_t executed_features(void)
{
    unsigned a, b, c, d;
    uint32_t all = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) all |= WEIR__CPU_AVX2;
    if (__builtin_cpu_supports("fma")) all |= WEIR__CPU_FMA;
    /* not every compiler knows this one; it uses AVX's registers */
    if (__builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0)
        all |= WEIR__CPU_F16C;
    if (__builtin_cpu_supports("bmi2")) all |= WEIR__CPU_BMI2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        all |= WEIR__CPU_AVX512;
    if ((all & WEIR__CPU_AVX512) != 0 && __builtin_cpu_is("amdfam19h")) all |= WEIR__CPU_ZEN4;
    if (__builtin_cpu_supports("avx512vbmi")) all |= WEIR__CPU_AVX512_VBMI;
    if (__builtin_cpu_supports("avx512vnni")) all |= WEIR__CPU_AVX512_VNNI;
    if (__builtin_cpu_supports("avx512bf16")) all |= WEIR__CPU_AVX512_BF16;
    return all;
}
#elif defined(__aarch64__) && defined(__linux__)
#ifndef HWCAP2_I8MM /* headers of Linux before 5.7 */
#define HWCAP2_I8MM (1 << 13)
#endif
static uint32_t executed_features(void)
{
    uint32_t all = 0;
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) all |= WEIR__CPU_DOTPROD;
    if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) all |= WEIR__CPU_I8MM;
    return all;
}
#elif defined(__aarch64__) && defined(__APPLE__)
static bool has(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}

static uint32_t executed_features(void)
{
    uint32_t all = 0;
    if (has("hw.optional.arm.FEAT_DotProd")) all |= WEIR__CPU_DOTPROD;
    if (has("hw.optional.arm.FEAT_I8MM")) all |= WEIR__CPU_I8MM;
    return all;
}
#else
static uint32_t executed_features(void)
{
    return 0;
}
#endif

/* The processor is asked once: on virtual machines the instruction takes microseconds. */
uint32_t weir__cpu_features(void)
{
    const uint32_t asked = UINT32_C(1) << 31;
    static _Atomic uint32_t known;
    uint32_t all = atomic_load_explicit(&known, memory_order_relaxed);
    if (all == 0) {
        all = asked | executed_features();
        atomic_store_explicit(&known, all, memory_order_relaxed);
    }
    return all & ~asked & ~atomic_load_explicit(&hidden_features, memory_order_relaxed);
}
