/* ring.h: the last records of a kind, the oldest overwritten.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_RING_H
#define WEIR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Record number i (from 0) stands at records[i % capacity] until record i + capacity comes. Guarded by its
 * owner's lock: the ring has none. */
typedef struct weir__ring {
    unsigned char *records; /* [capacity * record_size] */
    size_t capacity;        /* records, at least 1 */
    size_t record_size;     /* bytes */
    uint64_t n_pushed;      /* ever */
} weir__ring;

/* False: out of memory; the ring is then empty and safe to fini. capacity and record_size are at least 1. */
bool weir__ring_init(weir__ring *ring, size_t capacity, size_t record_size);

/* A zeroed ring is fine too. */
void weir__ring_fini(weir__ring *ring);

/* Copies *record. Allocates nothing. */
void weir__ring_push(weir__ring *ring, const void *record);

/* Copies the last n records, or as many as there are, to out[n], oldest first; returns how many. */
size_t weir__ring_snapshot(const weir__ring *ring, void *out, size_t n);

#endif
