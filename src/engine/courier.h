/* courier.h: transfers of cached prefixes out of an engine or into it, which the driver carries out while
 * other threads wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_COURIER_H
#define WEIR_ENGINE_COURIER_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "weir/weir.h"

/* A transfer: one copy of a state between the cache and a block. The caller's while it does not wait, else
 * the courier's; from take to finish the driver's alone. */
typedef struct weir__errand {
    struct weir__errand *next;
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
} weir__errand;

/* The mutex protects the rest, and the transfers in the list; it is held for a few instructions. */
typedef struct weir__courier {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    weir__errand *first, *last;
    atomic_bool waiting; /* there is one in the list */
    bool closed;         /* none is taken any more */
} weir__courier;

/* False: no lock. */
bool weir__courier_init(weir__courier *courier);
void weir__courier_fini(weir__courier *courier);

/* Puts the transfer into the list. The driver is to be woken then. STOPPED: it is closed. */
weir_status weir__courier_post(weir__courier *courier, weir__errand *errand, weir_error *error);

/* Waits for the driver to finish it, and returns its status. TIMEOUT: the driver did not take it before
 * deadline_ns; ABORTED: this thread's interrupt function says so; nothing was done then. A copy that has
 * begun is waited for. */
weir_status weir__courier_wait(weir__courier *courier, weir__errand *errand, int64_t deadline_ns,
                               weir_error *error);

/* ---- The driver ---- */

/* Takes the first transfer; NULL: there is none. put_back: it is the first one again, and not taken. */
weir__errand *weir__courier_take(weir__courier *courier);
void weir__courier_put_back(weir__courier *courier, weir__errand *errand);
void weir__courier_finish(weir__courier *courier, weir__errand *errand, weir_status status);

/* Ends all transfers, and those that come, with STOPPED. */
void weir__courier_close(weir__courier *courier);

#endif
