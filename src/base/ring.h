/* ring.h: a ring buffer with the last items of a series, numbered from 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_RING_H
#define WEIR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Item i is at i % capacity. It has the items from n - capacity on. The owner guards it. */
typedef struct weir__ring {
    char *items; /* [capacity][size] bytes */
    size_t size;
    size_t capacity;
    uint64_t n; /* items added so far, and the number of the next */
} weir__ring;

/* False: out of memory. Freed with fini in any case. */
bool weir__ring_init(weir__ring *ring, size_t capacity, size_t size);
void weir__ring_fini(weir__ring *ring);

/* Adds an item; if the ring is full, it replaces the oldest. */
void weir__ring_add(weir__ring *ring, const void *item);

/* Copies at most `most` items, from number *from or from the oldest available one. Returns how many. *from
 * becomes the number of the first one, or of the next to come if there is none. */
size_t weir__ring_copy(const weir__ring *ring, uint64_t *from, void *items, size_t most);

#endif
