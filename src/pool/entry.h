/* entry.h: a model of a pool: its description, its state, its part of the budget.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_ENTRY_H
#define WEIR_POOL_ENTRY_H

#include "pool/resident.h"

/* An entry, under the pool's mutex, apart from the two atomics, which the loader uses. Invariant: n_bytes > 0
 * only while the state is LOADING, LOADED or LEAVING; resident is set while it is LOADED. */
typedef struct weir__entry {
    struct weir__entry *next; /* of all entries of the pool */
    weir__spec *spec;
    weir_pool_state state, before; /* before: the state when its load began */
    weir__resident *resident;
    bool listed;     /* false: weir_pool_set has removed it; it has leases, or goes now */
    bool wanted;     /* to be loaded without a lease */
    bool leave;      /* to be unloaded when its leases have ended; new ones wait */
    bool closed;     /* its memory is needed: new leases wait */
    bool was_closed; /* before the present choice */
    bool looked;     /* its size was estimated since it was listed, or that failed */
    bool known;      /* demand is new enough for a load */
    weir__demand demand;
    uint64_t measured; /* bytes after the last load; 0 = none */
    uint64_t n_bytes;  /* of the budget */
    uint64_t reserved; /* of these, what weir_pool_reserve has counted */
    int32_t n_leases, n_waiting;
    int64_t used_ns; /* when the last lease began or ended */
    uint64_t n_loads, n_failures;
    int64_t load_ms;
    int32_t n_ctx;
    weir_status status; /* of the last load */
    weir_error error;
    _Atomic float progress;
    atomic_bool cancelled; /* the load is to end */
} weir__entry;

/* Holds the spec. NULL: out of memory. */
weir__entry *weir__entry_create(weir__spec *spec);
void weir__entry_destroy(weir__entry *entry);

/* True if it is neither loaded nor on its way in or out. */
bool weir__entry_is_out(const weir__entry *entry);

/* True if a lease is granted now. */
bool weir__entry_is_open(const weir__entry *entry);

/* Bytes that a load takes: by estimate, or as the last load did if that was more. 0 = not known. */
uint64_t weir__entry_needs(const weir__entry *entry);

void weir__entry_info(const weir__entry *entry, weir_pool_info *info);

#endif
