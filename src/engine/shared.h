/* shared.h: data that callers' threads share with the driver: the queue, the tenants, the published counters,
 * the record of ticks, and transfers of cached prefixes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SHARED_H
#define WEIR_ENGINE_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/queue.h"
#include "weir/weir.h"

/* ---- Rings ---- */

/* A ring buffer with the last items of a series, numbered from 0: from n - capacity on, item i at
 * i % capacity. The owner guards it. */
typedef struct weir__ring {
    char *items; /* [capacity][size] bytes */
    size_t size;
    size_t capacity;
    uint64_t n; /* items added so far, and the number of the next */
} weir__ring;

/* Adds an item; if the ring is full, it replaces the oldest. */
void weir__ring_add(weir__ring *ring, const void *item);

/* ---- Transfers of cached prefixes, which the driver makes while callers wait ---- */

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

/* Puts the transfer at the end of the list; the caller wakes the driver. STOPPED: the list is closed. */
weir_status weir__kv_transfers_post(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    weir_error *error);

/* Waits until the driver has finished it, and returns its status. TIMEOUT: the driver did not take it before
 * deadline_ns; ABORTED: this thread's interrupt function asked for it. Nothing was copied in both cases: once
 * the driver has taken it, wait waits for the end of the copy. */
weir_status weir__kv_transfers_wait(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    int64_t deadline_ns, weir_error *error);

/* The driver takes the first transfer; NULL: the list is empty. put_back makes it the first one again. */
weir__kv_transfer *weir__kv_transfers_take(weir__kv_transfers *transfers);
void weir__kv_transfers_put_back(weir__kv_transfers *transfers, weir__kv_transfer *transfer);
void weir__kv_transfers_finish(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                               weir_status status);

/* Ends all transfers in the list, and refuses later ones, with STOPPED. */
void weir__kv_transfers_close(weir__kv_transfers *transfers);

/* ---- Recent rates ---- */

/* The recent cost of requests and ticks. */
typedef struct weir__rates {
    double service_ns; /* from first slot to end of a request, as a running average; 0 = none yet */
    weir_cost cost;
} weir__rates;

void weir__rates_finished(weir__rates *rates, int64_t service_ns);

/* The time until `places` requests have left the queue: 1 ms to an hour; a second each if nothing was
 * measured. */
int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places);

/* ---- Data ---- */

/* A request in a slot, as of the last tick, for forecasts. */
typedef struct weir__running {
    int32_t priority;
    int32_t n_past;
    int32_t n_prompt; /* tokens of its prompt that are left; 0 = it generates */
    int32_t n_answer; /* tokens of its answer that may follow */
} weir__running;

/* `mutex` protects everything except `arrived` and reads of `stopping`, and the requests' data that queue
 * and tenants use. Only the driver removes requests from the queue. Of an engine's locks this one is taken
 * last. It is held for a few instructions, never during a pass, a template, a callback or a large
 * allocation. The functions below take it unless they say that it is held. */
typedef struct weir__shared {
    pthread_mutex_t mutex;
    pthread_cond_t drained; /* n_live became 0 */
    weir__queue queue;
    bool open;            /* takes new requests */
    atomic_bool arrived;  /* a request was queued since the driver last filled the slots */
    atomic_bool stopping; /* ends the requests it has; written under the mutex */
    int32_t n_placed;     /* requests in the queue or in a slot */
    int32_t n_live;       /* those, and those whose end is being delivered */
    weir_engine_stats stats;
    weir__tenants tenants;
    uint64_t serial;   /* of the next request */
    uint64_t n_seen;   /* requests below this number had arrived when slots were assigned; the driver's */
    weir__rates rates; /* as of the last tick, like the next two */
    weir__running *running; /* [n_running] */
    int32_t n_running;
    weir__ring ticks;             /* weir_tick */
    weir__ring parts;             /* weir_tick_slot */
    weir__ring arrivals;          /* weir_arrival */
    weir__kv_transfers transfers; /* has its own lock */
} weir__shared;

/* Zeroed before, and open afterwards. NO_MEMORY: there is nothing to free. */
weir_status weir__shared_init(weir__shared *shared, int32_t n_slots, weir_error *error);
void weir__shared_fini(weir__shared *shared);

/* ---- Callers ---- */

/* The number of requests, of n more of this tenant, for which slots and queue have no place, or which would
 * leave others less than a third of what the tenant has in the queue. *waiting: how many it has there; tenant
 * 0 is nobody, and has no bound of its own. The mutex is held. */
int64_t weir__shared_over(const weir__shared *shared, const weir_engine_params *params, uint64_t tenant,
                          size_t n, int32_t *waiting);

/* The most that wait of a tenant that is alone. */
int32_t weir__shared_most(const weir_engine_params *params, uint64_t tenant);

/* Queues all of the requests or none: STOPPED, BUSY. */
weir_status weir__shared_submit(weir__shared *shared, const weir_engine_params *params,
                                weir__request *const *requests, size_t n, weir_error *error);

/* Refuses further requests and waits until the last one has ended. may_wait false: STATE instead of waiting.
 * TIMEOUT. */
weir_status weir__shared_drain(weir__shared *shared, bool may_wait, int64_t deadline_ns);

/* True if a request of this stream is in the queue. */
bool weir__shared_has(weir__shared *shared, const weir_stream *stream);

void weir__shared_stop(weir__shared *shared);

/* The counters as last published, with the current length of the queue. */
weir_engine_stats weir__shared_stats(weir__shared *shared);

/* Copies items of one of the rings, the first one `from` or the oldest that is left. END: there is none. */
weir_status weir__shared_read(const weir__shared *shared, const weir__ring *ring, uint64_t from, void *items,
                              size_t capacity, size_t *n);

/* ---- The driver ---- */

int32_t weir__shared_depth(weir__shared *shared);

/* Requests that arrive from now on get no slot in this tick and change no other request's turn, so that a
 * replay, which has them queued at once, assigns the same slots. */
void weir__shared_see(weir__shared *shared);

/* weir__queue_next; the request stays in the queue. */
weir__request *weir__shared_next(weir__shared *shared, uint64_t end, int32_t above,
                                 bool (*wanted)(const weir__request *request), int64_t now);

/* Takes a request out of the queue for a slot. Unless it resumes, its tenant is billed for the prompt. */
void weir__shared_admit(weir__shared *shared, weir__request *request, bool resumed, int64_t now);

/* Puts a suspended request back into the queue. */
void weir__shared_requeue(weir__shared *shared, weir__request *request);

/* Takes out the requests that were cancelled or whose deadline has passed, as a list linked by next. Searches
 * only if a deadline may have passed or `cancels` says that streams were cancelled. */
weir__request *weir__shared_take_over(weir__shared *shared, bool cancels, int64_t now);

/* Takes out all requests, as such a list. */
weir__request *weir__shared_take_all(weir__shared *shared);

/* A request leaves its slot, or the queue by weir__shared_take_*; its end is delivered next. */
void weir__shared_leave(weir__shared *shared);

/* Its end was delivered; its tenant is released. */
void weir__shared_end(weir__shared *shared, weir__tenant *tenant);

/* The time of the queue's next deadline, or an earlier one; WEIR__CLOCK_NEVER = none. */
int64_t weir__shared_next_deadline(weir__shared *shared);

#endif
