/* resident.h: a model in memory, with everything that a lease hands out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_RESIDENT_H
#define WEIR_POOL_RESIDENT_H

#include "pool/spec.h"

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

#endif
