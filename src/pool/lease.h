/* lease.h: the use of a loaded model by one caller.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_LEASE_H
#define WEIR_POOL_LEASE_H

#include "pool/shared.h"

typedef enum weir__lease_state {
    WEIR__LEASE_WAITING = 0,
    WEIR__LEASE_GRANTED = 1,
    WEIR__LEASE_FAILED = 2,
} weir__lease_state;

/* A lease, under the pool's mutex, apart from `pool`. */
struct weir_lease {
    weir_pool *pool;
    weir__entry *entry;        /* NULL when it has failed */
    weir_lease *next, *before; /* in the queue, or in the list of those that ring (next only) */
    weir__lease_state is;
    int64_t deadline_ns;
    int timeout_ms;
    pthread_cond_t settled; /* it no longer waits, or its function has returned */
    weir_lease_fn fn;
    void *user;
    bool calling; /* fn runs, on the thread `caller` */
    bool released;
    pthread_t caller;
    weir_error error;
    char name[WEIR_POOL_NAME_MAX + 1];
};

/* All with the mutex locked. */

weir__entry *weir__lease_find_entry(const weir_pool *pool, const char *name);

/* The lease, which waits, no longer does. */
void weir__lease_grant(weir_lease *lease);
void weir__lease_fail(weir_lease *lease, const weir_error *error);

/* Lets it wait for another entry, at the same place in line. */
void weir__lease_move(weir_lease *lease, weir__entry *entry);

/* Calls a ready function that is due, with the mutex unlocked meanwhile. False: there is none. */
bool weir__lease_ring(weir_pool *pool);

/* True if this thread runs a ready function of the pool. */
bool weir__lease_rings_here(const weir_pool *pool);

#endif
