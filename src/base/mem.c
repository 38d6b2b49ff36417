/* mem.c: every allocation of weir's own, with a fault hook for tests.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that may still succeed before one fails; negative: none is to fail. */
static atomic_long fail_countdown = -1;
static atomic_long live_blocks;

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed) == 0;
}

static void *count_block(void *block)
{
    if (block != NULL) atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

void *weir__mem_alloc(size_t size)
{
    if (must_fail()) return NULL;
    return count_block(malloc(size > 0 ? size : 1));
}

void *weir__mem_calloc(size_t n, size_t size)
{
    if (size > 0 && n > SIZE_MAX / size) return NULL;
    if (must_fail()) return NULL;
    return count_block(n > 0 && size > 0 ? calloc(n, size) : calloc(1, 1));
}

void *weir__mem_realloc(void *ptr, size_t size)
{
    if (ptr == NULL) return weir__mem_alloc(size);
    if (must_fail()) return NULL;
    return realloc(ptr, size > 0 ? size : 1);
}

void weir__mem_free(void *ptr)
{
    if (ptr == NULL) return;
    int kept = errno;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(ptr);
    errno = kept;
}

char *weir__mem_strdup(const char *text)
{
    return weir__mem_dup(text, strlen(text) + 1);
}

void *weir__mem_dup(const void *ptr, size_t size)
{
    void *copy = weir__mem_alloc(size);
    if (copy != NULL && size > 0) memcpy(copy, ptr, size);
    return copy;
}

bool weir__mem_grow(void *items, size_t *capacity, size_t need, size_t item_size)
{
    if (need <= *capacity) return true;
    if (need > SIZE_MAX / item_size) return false;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) wanted = wanted > SIZE_MAX / 2 ? need : wanted * 2;
    if (wanted > SIZE_MAX / item_size) wanted = need;

    /* memcpy, since the pointer behind items is not a void * */
    void *old;
    memcpy(&old, items, sizeof old);
    void *grown = weir__mem_realloc(old, wanted * item_size);
    if (grown == NULL) return false;
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

void weir__mem_fail_after(long n)
{
    atomic_store_explicit(&fail_countdown, n < 0 ? -1 : n, memory_order_relaxed);
}

bool weir__mem_fail_pending(void)
{
    return atomic_load_explicit(&fail_countdown, memory_order_relaxed) >= 0;
}

long weir__mem_live(void)
{
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}
