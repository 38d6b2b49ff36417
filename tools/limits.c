/* The largest speeds that products can have on this machine, measured with nothing else in the way.
 * SPDX-License-Identifier: Apache-2.0 */
#include "limits.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/clock.h"

#define PARTS 64        /* parts of the work per thread: one that is held up leaves more to the others */
#define STEPS 8000      /* of a part */
#define BLOCK (1 << 20) /* bytes that a thread reads at once */
#define READ  ((size_t)64 * BLOCK) /* at once, by all */

/* ---- Products of bytes, registers only ---- */

struct multiplier {
    const char *instruction;
    int32_t macs; /* in a step */
    bool (*runs)(void);
    void (*steps)(void *, int32_t); /* STEPS of them: a part */
};

#if defined(__x86_64__)
/* Sums that do not wait for each other: as many as hide the latency of two multiplications a cycle. */
#define SUMS 10

static bool has_avx512_vnni(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni");
}

__attribute__((target("avx512f,avx512vnni"))) static void steps_avx512_vnni(void *user, int32_t part)
{
    (void)user, (void)part;
    __m512i sums[SUMS], a = _mm512_set1_epi8(1), b = a;
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) sums[i] = _mm512_set1_epi32(i);
    for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) {
            sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
            __asm__("" : "+v"(sums[i])); /* as if it were another value: no two sums are found to be one */
        }
    }
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) __asm__ volatile("" : : "v"(sums[i]));
}

static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

__attribute__((target("avx2,avxvnni"))) static void steps_avx_vnni(void *user, int32_t part)
{
    (void)user, (void)part;
    __m256i sums[SUMS], a = _mm256_set1_epi8(1), b = a;
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) sums[i] = _mm256_set1_epi32(i);
    for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) {
            sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
            __asm__("" : "+x"(sums[i]));
        }
    }
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) __asm__ volatile("" : : "x"(sums[i]));
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

__attribute__((target("avx2"))) static void steps_avx2(void *user, int32_t part)
{
    (void)user, (void)part;
    __m256i sums[SUMS], a = _mm256_set1_epi8(1), b = a, ones = _mm256_set1_epi16(1);
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) sums[i] = _mm256_set1_epi32(i);
    for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) {
            __asm__("" : "+x"(a)); /* nor is a product found to be the last one */
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
        }
    }
#pragma GCC unroll 10
    for (int i = 0; i < SUMS; i++) __asm__ volatile("" : : "x"(sums[i]));
}
#endif

/* The fastest first. */
static const struct multiplier multipliers[] = {
#if defined(__x86_64__)
    {"vpdpbusd, 512 bits", 64 * SUMS, has_avx512_vnni, steps_avx512_vnni},
    {"vpdpbusd, 256 bits", 32 * SUMS, has_avx_vnni, steps_avx_vnni},
    {"vpmaddubsw and vpmaddwd, 256 bits", 32 * SUMS, has_avx2, steps_avx2},
#endif
    {"", 0, NULL, NULL},
};

static const struct multiplier *fastest_multiplier(void)
{
    const struct multiplier *m = multipliers;
    while (m->runs != NULL && !m->runs()) m++;
    return m;
}

/* ---- Memory ---- */

/* Reads memory with the widest loads: a thread has more of them under way. */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void read_avx512(void *memory, int32_t block)
{
    const __m512i *at = (const __m512i *)memory + (size_t)block * (BLOCK / sizeof *at);
    __m512i a = _mm512_setzero_si512(), b = a;
    for (size_t i = 0; i < BLOCK / sizeof *at; i += 2) {
        a = _mm512_or_si512(a, _mm512_loadu_si512(at + i));
        b = _mm512_or_si512(b, _mm512_loadu_si512(at + i + 1));
    }
    __asm__ volatile("" : : "v"(a), "v"(b));
}

__attribute__((target("avx2"))) static void read_avx2(void *memory, int32_t block)
{
    const __m256i *at = (const __m256i *)memory + (size_t)block * (BLOCK / sizeof *at);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < BLOCK / sizeof *at; i += 2) {
        a = _mm256_or_si256(a, _mm256_loadu_si256(at + i));
        b = _mm256_or_si256(b, _mm256_loadu_si256(at + i + 1));
    }
    __asm__ volatile("" : : "x"(a), "x"(b));
}
#endif

static void read_words(void *memory, int32_t block)
{
    const uint64_t *at = (const uint64_t *)memory + (size_t)block * (BLOCK / sizeof *at);
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < BLOCK / sizeof *at; i += 4) {
        a |= at[i];
        b |= at[i + 1];
        c |= at[i + 2];
        d |= at[i + 3];
    }
    __asm__ volatile("" : : "r"(a | b | c | d));
}

static void (*memory_reader(void))(void *memory, int32_t block)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return read_avx512;
    if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
    return read_words;
}

/* ---- Both ---- */

/* Runs the function n times, and raises *best to the amount per second if it is more. */
static void run_limited(const cli_limits *limits, void (*fn)(void *user, int32_t i), void *user, int32_t n,
                        double amount, double *best)
{
    int64_t started = weir__clock_now_ns();
    weir__thread_pool_run(limits->threads, fn, user, n);
    int64_t took = weir__clock_now_ns() - started;
    if (took > 0 && amount * 1e9 / (double)took > *best) *best = amount * 1e9 / (double)took;
}

bool cli_limits_init(cli_limits *limits, int32_t n_threads)
{
    *limits = (cli_limits){.instruction = fastest_multiplier()->instruction, .n_threads = n_threads};
    limits->threads = weir__thread_pool_create(n_threads - 1);
    return limits->threads != NULL;
}

void cli_limits_fini(cli_limits *limits)
{
    weir__thread_pool_destroy(limits->threads);
    *limits = (cli_limits){0};
}

void cli_limits_measure(cli_limits *limits, char *memory, size_t size)
{
    const struct multiplier *m = fastest_multiplier();
    size_t skipped = -(uintptr_t)memory % 64; /* no load goes across two lines of the cache */
    memory += skipped;
    size -= skipped;
    int32_t n_parts = limits->n_threads * PARTS, n_blocks = (int32_t)((size < READ ? size : READ) / BLOCK);
    if (m->steps != NULL)
        run_limited(limits, m->steps, NULL, n_parts, (double)n_parts * STEPS * m->macs, &limits->macs);
    size_t bytes = (size_t)n_blocks * BLOCK;
    if (limits->at + bytes > size) limits->at = 0;
    run_limited(limits, memory_reader(), memory + limits->at, n_blocks, (double)bytes, &limits->bytes);
    limits->at += bytes;
}
