/* shared.h: data shared by the threads of a pool and its callers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two threads. The keeper decides and never does anything slow, so that deadlines are kept: it grants and
 * ends leases, calls ready functions and gives the loader one job after another. The loader reads headers
 * and the machine's memory, loads and unloads. */
#ifndef WEIR_POOL_SHARED_H
#define WEIR_POOL_SHARED_H

#include <pthread.h>

#include "base/cpu.h"
#include "pool/entry.h"

#define WEIR__POOL_NO_LIMIT UINT64_MAX

typedef enum weir__job_kind {
    WEIR__JOB_NONE = 0,
    WEIR__JOB_ESTIMATE = 1,
    WEIR__JOB_LOAD = 2,
    WEIR__JOB_UNLOAD = 3,
    WEIR__JOB_READ = 4, /* the machine's memory, without an entry; ESTIMATE reads it too */
} weir__job_kind;

/* A task of the loader. The keeper fills it and sets `kind`; the loader fills the results and sets `done`. */
typedef struct weir__job {
    weir__job_kind kind;
    bool done;
    weir__entry *entry; /* the loader uses its two atomics only */
    weir__spec *spec;   /* held */
    const char *cache_dir;
    weir__cpu_memory (*read)(void);
    weir__cpu_memory memory;
    weir__demand demand;
    weir__resident *resident;
    weir_status status;
    weir_error error;
    int64_t began_ns;
    int64_t ns; /* how long it took */
} weir__job;

struct weir_pool {
    weir_pool_params params; /* constant after create, like the next three; memory_bytes with the mutex */
    char *folder;            /* the cache_dir; NULL = none */
    bool has_private_folder;
    weir__cpu_memory (*read)(void); /* without the mutex: it reads files */

    pthread_mutex_t mutex; /* protects all below, entries and leases; held for a few instructions */
    pthread_cond_t wake;   /* for the keeper */
    pthread_cond_t work;   /* for the loader */
    pthread_cond_t empty;  /* n_objects is 0 */
    weir__entry *entries;
    weir__entry **list; /* [n_list], as weir_pool_set had it */
    size_t n_list;
    weir_lease *first, *last; /* those that wait, the oldest first */
    weir_lease *ringing;      /* settled, with a ready function that was not called yet */
    int32_t n_waiting;
    int32_t n_objects; /* leases that were not released, or whose function runs */
    weir__job job;
    uint64_t wanted;  /* bytes that models without a lease will sleep for, beside those of leases; 0 = none */
    uint64_t limit;   /* the budget, as it was last read or set */
    uint64_t most;    /* the budget at create, for WEIR_AUTO */
    int64_t limit_ns; /* when that was computed; 0: not since memory_bytes was set */
    uint64_t n_loads, n_failures, n_sleeps;
    bool stopping; /* no more leases */
    bool over;     /* the threads end */
    pthread_t keeper, loader;
};

/* ---- The threads ---- */

/* The thread of pool->keeper; user is the pool. */
void *weir__keeper_run(void *user);

/* The thread of pool->loader; user is the pool. */
void *weir__loader_run(void *user);

#endif
