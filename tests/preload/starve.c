/* starve.c: malloc that fails, for a whole process: weir, llama.cpp, jansson and all other libraries.
 * Preloaded (LD_PRELOAD) by tests; glibc only.
 *
 * STARVE_FILE names a file of two numbers of 32 bits that the test changes while the program runs:
 * `one_in` (of so many allocations, one fails; 0: none) and `smallest` (bytes that one must have for
 * that). With starve_after, a program lets one of its own fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

typedef struct control {
    uint32_t one_in, smallest;
} control;

static control off;
static volatile control *orders = &off;

static _Thread_local uint64_t dice;
static atomic_long countdown = -1;

/* The next n allocations, of any thread, succeed, and the `many` after them fail. Negative n: off. */
void starve_after(long n, long many);

/* How many may still succeed; negative: a failure has been, or none was asked for. */
long starve_left(void);

static atomic_long failures;

void starve_after(long n, long many)
{
    atomic_store(&failures, many);
    atomic_store(&countdown, n < 0 ? -1 : n);
}

long starve_left(void)
{
    return atomic_load(&countdown);
}

static bool counts_down(void)
{
    if (atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) > 0) return false;
    return atomic_load(&failures) > 0 && atomic_fetch_sub(&failures, 1) > 0;
}

__attribute__((constructor)) static void map_orders(void)
{
    const char *path = getenv("STARVE_FILE");
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(control), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) orders = mapped;
}

static bool fails(size_t size)
{
    bool failed = counts_down();
    uint32_t one_in = orders->one_in;
    if (one_in > 0 && size >= orders->smallest) {
        if (dice == 0) dice = (uintptr_t)&dice * UINT64_C(0x9E3779B97F4A7C15) | 1;
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        failed = failed || (dice >> 16) % one_in == 0;
    }
    if (failed) errno = ENOMEM;
    return failed;
}

void *malloc(size_t size)
{
    return fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(n * size) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *ptr, size_t size)
{
    return fails(size) ? NULL : __libc_realloc(ptr, size);
}

void *memalign(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    if (fails(size)) return ENOMEM;
    void *made = __libc_memalign(alignment, size);
    if (made == NULL) return ENOMEM;
    *block = made;
    return 0;
}
