/* cpu_test.c: quotas and memory under made-up trees of /proc and /sys, and instruction sets beside the
 * kernel's list.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/pages.h"
#include "support/model.h"
#include "support/temp.h"

#define MIB (UINT64_C(1) << 20)

/* ---- A root of our own ---------------------------------------------------------------------------- */

static const char *root;

/* Writes root/path with its directories. */
static void put(const char *path, const char *text)
{
    char full[512];
    assert_true((size_t)snprintf(full, sizeof full, "%s/%s", root, path) < sizeof full);
    for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
    (void)state;
    root = temp_folder();
    return 0;
}

static int remove_root(void **state)
{
    temp_remove();
    return nothing_left(state);
}

/* ---- Processors ----------------------------------------------------------------------------------- */

static void test_no_cgroup_is_no_quota(void **state)
{
    (void)state;
    assert_int_equal(weir__cpu_quota_at(root), 0);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(weir__cpu_quota_at(root), 0);
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 0);
}

static void test_quota_of_version_2(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t processors;
    } cases[] = {
        {"200000 100000\n", 2},
        {"50000 100000\n", 1},
        {"149999 100000\n", 1},
        {"150000 100000\n", 2},
        {"99999999999 1000\n", 512},
        {"max 100000\n", 0},
        {"200000\n", 0},
        {"200000 0\n", 0},
        {"0 100000\n", 0},
        {"garbage", 0},
        {"", 0},
    };
    put("proc/self/cgroup", "0::/a/b\n");
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        put("sys/fs/cgroup/a/b/cpu.max", cases[i].text);
        assert_int_equal(weir__cpu_quota_at(root), cases[i].processors);
    }
}

static void test_the_tightest_group_above_counts(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b/c\n");
    put("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 3);
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 2);
    put("sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 1);
}

static void test_a_path_from_outside_the_container(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/docker/4711\n");
    put("sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 4);
}

static void test_quota_of_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:cpuset:/x\n4:cpu,cpuacct:/a\n3:memory:/a\n0::/\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 0);
    put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "350000\n");
    assert_int_equal(weir__cpu_quota_at(root), 4);
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weir__cpu_quota_at(root), 2);
}

static void test_affinity_counts(void **state)
{
    (void)state;
    int32_t all = weir__cpu_count();
    assert_in_range(all, 1, WEIR__CPU_MAX);
#ifdef __linux__
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(all <= CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(weir__cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(weir__cpu_count(), all);
#endif
}

/* ---- Memory --------------------------------------------------------------------------------------- */

static void test_memory_that_the_kernel_calls_available(void **state)
{
    (void)state;
    assert_true(weir__cpu_memory_at(root).available == 0);
    put("proc/meminfo",
        "MemTotal:       8192000 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nBuffers: 2 kB\n");
    assert_true(weir__cpu_memory_at(root).available == 4096 * MIB);
    assert_true(weir__cpu_memory_at(root).limit == 0);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/memory.current", "1048576\n");
    assert_true(weir__cpu_memory_at(root).available == 4096 * MIB);
    assert_true(weir__cpu_memory_at(root).limit == 0);
}

static void test_memory_that_a_group_leaves(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable:   4194304 kB\n");
    put("proc/self/cgroup", "0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "1073741824\n");
    put("sys/fs/cgroup/a/memory.current", "536870912\n");
    assert_true(weir__cpu_memory_at(root).available == 512 * MIB);
    /* file pages that can be dropped are free to take */
    put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 268435456\nactive_file 7\n");
    assert_true(weir__cpu_memory_at(root).available == 768 * MIB);
    assert_true(weir__cpu_memory_at(root).limit == 1024 * MIB);
    put("sys/fs/cgroup/memory.max", "104857600\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    assert_true(weir__cpu_memory_at(root).available == 100 * MIB);
    put("sys/fs/cgroup/memory.current", "204857600\n");
    assert_true(weir__cpu_memory_at(root).available == 1);
    assert_true(weir__cpu_memory_at(root).limit == 100 * MIB);
}

static void test_memory_of_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "3:memory:/a\n");
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1073741824\n");
    put("sys/fs/cgroup/memory/a/memory.stat", "cache 5\ntotal_inactive_file 1048576\n");
    assert_true(weir__cpu_memory_at(root).available == 1025 * MIB);
}

#ifdef __linux__
static void test_this_machine_has_memory(void **state)
{
    (void)state;
    assert_true(weir__cpu_memory_available() > MIB);
}

static void test_promised_memory_is_not_available(void **state)
{
    (void)state;
    size_t size = 2 * weir__cpu_memory_available();
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    weir__pages_clear(memory, size);
    assert_true(weir__cpu_memory_available() == 1);
    weir__pages_forget(memory);
    assert_true(weir__cpu_memory_available() > MIB);
    munmap(memory, size);
}
#endif

/* ---- Instructions --------------------------------------------------------------------------------- */

static void test_hidden_features_are_not_told(void **state)
{
    (void)state;
    uint32_t all = weir__cpu_features();
    weir__cpu_hide(WEIR__CPU_FMA | WEIR__CPU_AVX512);
    assert_int_equal(weir__cpu_features(), all & ~(uint32_t)(WEIR__CPU_FMA | WEIR__CPU_AVX512));
    weir__cpu_hide(0);
    assert_int_equal(weir__cpu_features(), all);
}

/* The features are those that the kernel lists. */
static void test_features_of_this_machine(void **state)
{
    (void)state;
    static const struct {
        uint32_t feature;
        const char *flag;
    } cases[] = {
#if defined(__aarch64__)
        {WEIR__CPU_DOTPROD, " asimddp "},
        {WEIR__CPU_I8MM, " i8mm "},
    };
    static const char list[] = "Features";
#else
        {WEIR__CPU_AVX2, " avx2 "},
        {WEIR__CPU_FMA, " fma "},
        {WEIR__CPU_F16C, " f16c "},
        {WEIR__CPU_BMI2, " bmi2 "},
        {WEIR__CPU_AVX512, " avx512vl "},
        {WEIR__CPU_AVX512_VBMI, " avx512vbmi "},
        {WEIR__CPU_AVX512_VNNI, " avx512_vnni "},
        {WEIR__CPU_AVX512_BF16, " avx512_bf16 "},
    };
    static const char list[] = "flags";
#endif
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) skip();
    static char line[1 << 16];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) found = strncmp(line, list, strlen(list)) == 0;
    fclose(file);
    if (!found) skip(); /* another processor, or an emulated one */
    line[strcspn(line, "\n")] = ' ';
    for (size_t i = 0; i < N_ELEMENTS(cases); i++)
        assert_int_equal((weir__cpu_features() & cases[i].feature) != 0, strstr(line, cases[i].flag) != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_cgroup_is_no_quota, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_quota_of_version_2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_the_tightest_group_above_counts, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_a_path_from_outside_the_container, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_quota_of_version_1, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_affinity_counts, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_memory_that_the_kernel_calls_available, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_memory_that_a_group_leaves, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_memory_of_version_1, make_root, remove_root),
#ifdef __linux__
        cmocka_unit_test_setup_teardown(test_this_machine_has_memory, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_promised_memory_is_not_available, make_root, remove_root),
#endif
        cmocka_unit_test(test_hidden_features_are_not_told),
        cmocka_unit_test(test_features_of_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
