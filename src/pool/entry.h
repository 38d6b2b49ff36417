/* entry.h: the models of a pool: each with its description, its state and its part of the budget; and a
 * model in memory (resident), with everything that a lease hands out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_ENTRY_H
#define WEIR_POOL_ENTRY_H

#include "pool/spec.h"

/* The sum, or the largest number where it is larger. */
static inline uint64_t weir__bytes_add(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* Memory of a model, bytes. */
typedef struct weir__demand {
    uint64_t base;     /* weights, cells, buffers, texts for drafts, adapters */
    uint64_t cache;    /* cached prefixes in host memory */
    uint64_t kv;       /* of base, the cells */
    uint64_t adapters; /* of base */
    int32_t n_kv, n_ctx;
    weir_pool_kind kind;
    uint64_t files; /* which files it is of; 0 = to be estimated again before each load */
} weir__demand;

typedef struct weir__resident {
    weir_model *model, *draft; /* draft may be NULL */
    weir_engine *engine;       /* NULL: the model cannot generate */
    weir_adapter **adapters;   /* [n_adapters] */
    size_t n_adapters;
    uint64_t n_bytes; /* as loaded */
    int32_t n_ctx;
    weir_pool_leaving_fn leaving; /* NULL, also until it is loaded */
    void *leaving_user;
} weir__resident;

typedef struct weir__resident_params {
    const char *cache_dir; /* NULL = none */
    uint64_t cache_disk_bytes;
    weir_progress_fn progress;
    void *user;
    weir_pool_leaving_fn leaving;
    void *leaving_user;
} weir__resident_params;

/* Estimates the memory: as *demand says if it is of the same files, else from their headers, at low priority
 * beside the threads of engines. `available`: free memory of the machine, 0 = unknown. cache is 0 if the
 * parameters leave it to the pool (WEIR_AUTO). */
weir_status weir__resident_estimate(const weir__spec *spec, uint64_t available, weir__demand *demand,
                                    weir_error *error);

/* Loads within the estimate, at low priority beside the threads of engines. Blocks. ABORTED:
 * progress returned false. */
weir_status weir__resident_load(const weir__spec *spec, const weir__demand *demand,
                                const weir__resident_params *params, weir__resident **made,
                                weir_error *error);

/* True if it can compute no more. Does not wait. */
bool weir__resident_is_lost(const weir__resident *resident);

/* Calls `leaving`, ends the streams that still run and writes prefixes to the cache_dir. Blocks. NULL is
 * ignored. */
void weir__resident_free(weir__resident *resident);

/* ---- Entries ---- */

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
