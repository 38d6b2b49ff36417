/* ring.c: the last records of a kind, the oldest overwritten.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/ring.h"

#include <string.h>

#include "base/mem.h"

bool weir__ring_init(weir__ring *ring, size_t capacity, size_t record_size)
{
    memset(ring, 0, sizeof *ring);
    ring->records = weir__mem_calloc(capacity, record_size);
    if (ring->records == NULL) return false;
    ring->capacity = capacity;
    ring->record_size = record_size;
    return true;
}

void weir__ring_fini(weir__ring *ring)
{
    weir__mem_free(ring->records);
    memset(ring, 0, sizeof *ring);
}

void weir__ring_push(weir__ring *ring, const void *record)
{
    size_t at = (size_t)(ring->n_pushed % ring->capacity);
    memcpy(ring->records + at * ring->record_size, record, ring->record_size);
    ring->n_pushed++;
}

size_t weir__ring_snapshot(const weir__ring *ring, void *out, size_t n)
{
    unsigned char *to = out;
    if (n > ring->capacity) n = ring->capacity;
    if (n > ring->n_pushed) n = (size_t)ring->n_pushed;
    if (n == 0) return 0;

    size_t first = (size_t)((ring->n_pushed - n) % ring->capacity);
    size_t before_wrap = ring->capacity - first < n ? ring->capacity - first : n;
    memcpy(to, ring->records + first * ring->record_size, before_wrap * ring->record_size);
    memcpy(to + before_wrap * ring->record_size, ring->records, (n - before_wrap) * ring->record_size);
    return n;
}
