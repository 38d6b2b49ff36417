/* room.h: which model is loaded next, and which ones are unloaded for it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_ROOM_H
#define WEIR_POOL_ROOM_H

#include "pool/shared.h"

/* Bytes of the budget that are taken. With the mutex locked, like the others. */
uint64_t weir__room_used(const weir_pool *pool);

/* Computes the budget anew if it depends on the machine's memory. */
void weir__room_set_limit(weir_pool *pool, weir__cpu_memory memory, int64_t now);

/* The time when that memory is to be read again because leases wait or models are loaded: every second.
 * WEIR__CLOCK_NEVER: not at all. */
int64_t weir__room_read_ns(const weir_pool *pool);

/* Memory for cached prefixes of an entry whose cache_bytes is WEIR_AUTO; base: its other memory, bytes. */
uint64_t weir__room_cache(const weir_pool *pool, uint64_t base, weir__cpu_memory memory);

typedef struct weir__room {
    weir__job_kind job; /* for the entry; NONE with an entry: it can never fit, beside `pinned` bytes */
    weir__entry *entry; /* NULL: nothing is to be done, but for READ */
    uint64_t needs, limit, pinned;
} weir__room;

/* The next job of a loader that has none. In this order: models to unload, sizes that leases wait for, models
 * that can never fit, the oldest waiting lease, models that are wanted without a lease, other sizes. Sets
 * `closed` of the models that will be unloaded for the oldest waiting lease when their leases have ended. */
weir__room weir__room_next(weir_pool *pool, int64_t now);

/* The time when there will be a job although nothing happens before: a model has been idle for long enough,
 * or the machine's memory is to be read. WEIR__CLOCK_NEVER: no such time, or the loader takes no job now. */
int64_t weir__room_wake_ns(const weir_pool *pool);

/* Counts n_bytes beside the entry, which is loaded, in place of `reserved`. BUSY: not yet, but models without
 * leases will sleep for it. TOO_LONG: never, beside *pinned bytes. */
weir_status weir__room_reserve(weir_pool *pool, weir__entry *entry, uint64_t n_bytes, uint64_t *pinned);

#endif
