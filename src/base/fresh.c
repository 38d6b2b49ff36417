/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */
#include "base/fresh.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

struct weir__fresh {
    char *memory;
    size_t size, n_ahead, page;
    pthread_t thread; /* if n_ahead > 0 */
    atomic_bool ends;
};

static void *touch(void *user)
{
    weir__fresh *f = user;
    weir__thread_name("weir-fresh");
    for (size_t at = 0; at < f->n_ahead && !atomic_load_explicit(&f->ends, memory_order_relaxed);
         at += f->page)
        *(volatile char *)(f->memory + at) = 0;
    return NULL;
}

weir__fresh *weir__fresh_begin(size_t size, size_t n_ahead)
{
    weir__fresh *f = weir__mem_calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    f->size = (size + f->page - 1) / f->page * f->page;
    f->n_ahead = n_ahead < f->size ? n_ahead : f->size;
    void *memory = f->size < size
                       ? MAP_FAILED
                       : mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) goto no_memory;
    f->memory = memory;
#ifdef MADV_HUGEPAGE
    madvise(memory, f->size, MADV_HUGEPAGE); /* a fifth of a load went into faults */
#endif
    if (n_ahead == 0 || weir__thread_start(&f->thread, NULL, touch, f) == 0) return f;
    munmap(memory, f->size);

no_memory:
    weir__mem_free(f);
    return NULL;
}

void *weir__fresh_take(weir__fresh *f, size_t n)
{
    if (f == NULL) return NULL;
    atomic_store_explicit(&f->ends, true, memory_order_relaxed);
    if (f->n_ahead > 0) pthread_join(f->thread, NULL);
    void *memory = f->memory;
    size_t kept = n > f->size ? 0 : (n + f->page - 1) / f->page * f->page;
    if (kept < f->size) munmap(f->memory + kept, f->size - kept);
    weir__mem_free(f);
    return kept > 0 ? memory : NULL;
}
