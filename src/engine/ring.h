/* ring.h: a ring buffer with the last items of an endless series, numbered from 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RING_H
#define WEIR_ENGINE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Item i lies at i % capacity; those from n - capacity on are there. Guarded by whoever has it. */
typedef struct weir__ring {
    char *items; /* [capacity][size] bytes */
    size_t size;
    size_t capacity;
    uint64_t n; /* added so far: the number of the next */
} weir__ring;

/* False: out of memory. Freed with fini in any case. */
bool weir__ring_init(weir__ring *ring, size_t capacity, size_t size);
void weir__ring_fini(weir__ring *ring);

/* Adds one item, over the oldest where it is full. */
void weir__ring_add(weir__ring *ring, const void *item);

/* Copies items from number *from on, or from the oldest that is still there, at most `most`: how many. *from
 * is then the number of the first of them, or of the one that comes next. */
size_t weir__ring_copy(const weir__ring *ring, uint64_t *from, void *items, size_t most);

#endif
