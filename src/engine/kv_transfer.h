/* kv_transfer.h: transfers of cached prefixes out of an engine or into it. The driver makes the copies while
 * the callers wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_KV_TRANSFER_H
#define WEIR_ENGINE_KV_TRANSFER_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "weir/weir.h"

/* One copy of a state between the cache and a block. It belongs to its caller, but from post to the return of
 * wait the list's mutex protects it, and from take to finish only the driver uses it. */
typedef struct weir__kv_transfer {
    struct weir__kv_transfer *next;
    bool brings; /* the state goes into the cache; false: out of it */
    bool taken, done;
    weir__prefix_key key;
    const int32_t *tokens; /* [n] */
    int32_t n;             /* out: as many of these as are cached, up to all; then how many these are */
    int32_t more_than;     /* out: NOT_FOUND unless more tokens are cached */
    uint64_t most;         /* out: bytes of the state */
    void *state; /* [n_bytes], a weir__mem block; in: the cache takes it over, and it is NULL then */
    size_t n_bytes;
    weir__cache_wait wait; /* out: for files */
    weir_status status;    /* once done */
    weir_error error;
} weir__kv_transfer;

/* The list of the transfers that wait. The mutex protects it and them; it is held for a few instructions. */
typedef struct weir__kv_transfers {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    weir__kv_transfer *first, *last;
    atomic_bool waiting; /* the list is not empty */
    bool closed;         /* post refuses */
} weir__kv_transfers;

/* False: no lock. */
bool weir__kv_transfers_init(weir__kv_transfers *transfers);
void weir__kv_transfers_fini(weir__kv_transfers *transfers);

/* Puts the transfer at the end of the list; the caller wakes the driver. STOPPED: the list is closed. */
weir_status weir__kv_transfers_post(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    weir_error *error);

/* Waits until the driver has finished it, and returns its status. TIMEOUT: the driver did not take it before
 * deadline_ns; ABORTED: this thread's interrupt function asked for it. Nothing was copied in both cases: once
 * the driver has taken it, wait waits for the end of the copy. */
weir_status weir__kv_transfers_wait(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    int64_t deadline_ns, weir_error *error);

/* ---- The driver ---- */

/* Takes the first transfer; NULL: the list is empty. put_back makes it the first one again. */
weir__kv_transfer *weir__kv_transfers_take(weir__kv_transfers *transfers);
void weir__kv_transfers_put_back(weir__kv_transfers *transfers, weir__kv_transfer *transfer);
void weir__kv_transfers_finish(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                               weir_status status);

/* Ends all transfers in the list, and refuses later ones, with STOPPED. */
void weir__kv_transfers_close(weir__kv_transfers *transfers);

#endif
