/* ring.c: a ring buffer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/ring.h"

#include <string.h>

#include "base/mem.h"

bool weir__ring_init(weir__ring *ring, size_t capacity, size_t size)
{
    *ring = (weir__ring){.size = size, .capacity = capacity};
    if (capacity > SIZE_MAX / size) return false;
    ring->items = weir__mem_alloc(capacity * size); /* only items that were added are read */
    return ring->items != NULL;
}

void weir__ring_fini(weir__ring *ring)
{
    weir__mem_free(ring->items);
    *ring = (weir__ring){0};
}

static char *item_at(const weir__ring *ring, uint64_t i)
{
    return ring->items + (size_t)(i % ring->capacity) * ring->size;
}

void weir__ring_add(weir__ring *ring, const void *item)
{
    memcpy(item_at(ring, ring->n++), item, ring->size);
}

size_t weir__ring_copy(const weir__ring *ring, uint64_t *from, void *items, size_t most)
{
    uint64_t oldest = ring->n > ring->capacity ? ring->n - ring->capacity : 0;
    if (*from < oldest) *from = oldest;
    if (*from > ring->n) *from = ring->n;
    uint64_t there = ring->n - *from;
    size_t n = there < most ? (size_t)there : most;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)items + i * ring->size, item_at(ring, *from + i), ring->size);
    return n;
}
