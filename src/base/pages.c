/* pages.c: gives whole pages back to the system (madvise), and counts which of them are not there (mincore).
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef __linux__
#define _GNU_SOURCE /* madvise, mincore */
#endif
#include "base/pages.h"

#include <string.h>

#ifdef __linux__
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#define PAGES 32768 /* asked about at once, on the stack */

/* Whole pages of memory that was cleared. */
typedef struct promise {
    struct promise *next;
    const void *memory;
    void *pages;
    size_t size;
} promise;

static pthread_mutex_t promises_lock = PTHREAD_MUTEX_INITIALIZER; /* protects promises */
static promise *promises;

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The link that leads to it, or to the end. */
static promise **find_promise(const void *memory)
{
    promise **link = &promises;
    while (*link != NULL && (*link)->memory != memory) link = &(*link)->next;
    return link;
}

/* NULL: no memory. */
static promise *note_promise(const void *memory, void *pages, size_t size)
{
    pthread_mutex_lock(&promises_lock);
    promise *p = *find_promise(memory);
    if (p == NULL && (p = weir__mem_alloc(sizeof *p)) != NULL) {
        *p = (promise){.next = promises, .memory = memory, .pages = pages, .size = size};
        promises = p;
    }
    pthread_mutex_unlock(&promises_lock);
    return p;
}

void weir__pages_clear(void *memory, size_t size)
{
    size_t page = page_size(), before = (page - (uintptr_t)memory % page) % page;
    size_t whole = size > before ? (size - before) / page * page : 0;
    char *pages = (char *)memory + before;
    if (whole == 0 || note_promise(memory, pages, whole) == NULL ||
        madvise(pages, whole, MADV_DONTNEED) != 0) {
        memset(memory, 0, size);
        return;
    }
    memset(memory, 0, before);
    memset(pages + whole, 0, size - before - whole);
}

void weir__pages_forget(const void *memory)
{
    pthread_mutex_lock(&promises_lock);
    promise **link = find_promise(memory), *p = *link;
    if (p != NULL) *link = p->next;
    pthread_mutex_unlock(&promises_lock);
    weir__mem_free(p);
}

static uint64_t missing_bytes(const promise *p, size_t page)
{
    unsigned char there[PAGES];
    uint64_t n = 0;
    for (size_t at = 0; at < p->size; at += PAGES * page) {
        size_t n_pages = (p->size - at) / page;
        if (n_pages > PAGES) n_pages = PAGES;
        if (mincore((char *)p->pages + at, n_pages * page, there) != 0) continue;
        for (size_t i = 0; i < n_pages; i++) n += (there[i] & 1) == 0;
    }
    return n * page;
}

uint64_t weir__pages_promised(void)
{
    uint64_t n = 0;
    pthread_mutex_lock(&promises_lock);
    for (const promise *p = promises; p != NULL; p = p->next) n += missing_bytes(p, page_size());
    pthread_mutex_unlock(&promises_lock);
    return n;
}
#else
void weir__pages_clear(void *memory, size_t size)
{
    memset(memory, 0, size);
}

void weir__pages_forget(const void *memory)
{
    (void)memory;
}

uint64_t weir__pages_promised(void)
{
    return 0;
}
#endif
