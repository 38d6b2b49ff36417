/* shared.c: data behind the engine's mutex. Callers count their requests against the limits and queue them;
 * the driver takes them out for slots, when they are cancelled, or when their deadline has passed, and
 * publishes counters once in a tick. Nothing under the mutex takes long: readers of the rings copy a few
 * hundred items at a time. Transfers of cached prefixes have a lock of their own: a caller posts one and
 * waits, and the driver takes it between two ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/shared.h"

#include <string.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "engine/stream.h"

#define TURN_NS (50 * WEIR__NS_PER_MS) /* how soon a transfer notices an interrupt */

/* ---- Rings ---- */

/* False: out of memory. Freed with fini in any case. */
static bool init_ring(weir__ring *ring, size_t capacity, size_t size)
{
    *ring = (weir__ring){.size = size, .capacity = capacity};
    if (capacity > SIZE_MAX / size) return false;
    ring->items = weir__mem_alloc(capacity * size); /* only items that were added are read */
    return ring->items != NULL;
}

/* False: out of memory. Freed with fini in any case. */
static void fini_ring(weir__ring *ring)
{
    weir__mem_free(ring->items);
    *ring = (weir__ring){0};
}

static char *item_at(const weir__ring *ring, uint64_t i)
{
    return ring->items + (size_t)(i % ring->capacity) * ring->size;
}

void weir__ring_add(weir__ring *ring, const void *item)
{
    memcpy(item_at(ring, ring->n++), item, ring->size);
}

/* Copies at most `most` items, from number *from or from the oldest available one. Returns how many. *from
 * becomes the number of the first one, or of the next to come if there is none. */
static size_t copy_ring(const weir__ring *ring, uint64_t *from, void *items, size_t most)
{
    uint64_t oldest = ring->n > ring->capacity ? ring->n - ring->capacity : 0;
    if (*from < oldest) *from = oldest;
    if (*from > ring->n) *from = ring->n;
    uint64_t there = ring->n - *from;
    size_t n = there < most ? (size_t)there : most;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)items + i * ring->size, item_at(ring, *from + i), ring->size);
    return n;
}

/* ---- Transfers ---- */

/* False: no lock. */
static bool init_transfers(weir__kv_transfers *transfers)
{
    *transfers = (weir__kv_transfers){0};
    if (pthread_mutex_init(&transfers->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&transfers->changed) == 0) return true;
    pthread_mutex_destroy(&transfers->mutex);
    return false;
}

/* False: no lock. */
static void fini_transfers(weir__kv_transfers *transfers)
{
    pthread_cond_destroy(&transfers->changed);
    pthread_mutex_destroy(&transfers->mutex);
}

static weir_status refuse_stopped(weir_error *error)
{
    return weir__error_set(error, WEIR_STOPPED, "engine", "the engine was stopped");
}

weir_status weir__kv_transfers_post(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    weir_error *error)
{
    transfer->next = NULL;
    transfer->taken = transfer->done = false;
    pthread_mutex_lock(&transfers->mutex);
    bool closed = transfers->closed;
    if (!closed) {
        *(transfers->last != NULL ? &transfers->last->next : &transfers->first) = transfer;
        transfers->last = transfer;
        atomic_store(&transfers->waiting, true);
    }
    pthread_mutex_unlock(&transfers->mutex);
    return closed ? refuse_stopped(error) : WEIR_OK;
}

/* The mutex is held. */
static void unlist_transfer(weir__kv_transfers *transfers, weir__kv_transfer *transfer)
{
    weir__kv_transfer *before = NULL, **at = &transfers->first;
    for (; *at != transfer; at = &(*at)->next) before = *at;
    *at = transfer->next;
    if (transfers->last == transfer) transfers->last = before;
    atomic_store(&transfers->waiting, transfers->first != NULL);
}

weir_status weir__kv_transfers_wait(weir__kv_transfers *transfers, weir__kv_transfer *transfer,
                                    int64_t deadline_ns, weir_error *error)
{
    bool late = false, asked = false;
    pthread_mutex_lock(&transfers->mutex);
    while (!transfer->done && (transfer->taken || (!late && !asked))) {
        int64_t now = weir__clock_now_ns(), turn = now + TURN_NS;
        if (!transfer->taken && turn > deadline_ns) turn = deadline_ns;
        (void)weir__clock_cond_wait(&transfers->changed, &transfers->mutex, turn);
        pthread_mutex_unlock(&transfers->mutex);
        late = weir__clock_now_ns() >= deadline_ns;
        asked = weir_interrupt_asked();
        pthread_mutex_lock(&transfers->mutex);
    }
    bool done = transfer->done;
    if (!done) unlist_transfer(transfers, transfer);
    pthread_mutex_unlock(&transfers->mutex);
    if (done && transfer->status == WEIR_OK) return WEIR_OK;
    if (done) return weir__error_as(error, &transfer->error, transfer->status, transfer->error.field);
    if (asked) return weir__interrupt_error(error);
    return weir__error_set(error, WEIR_TIMEOUT, "timeout_ms",
                           "the engine did not take it in time; a manual engine must be driven meanwhile");
}

weir__kv_transfer *weir__kv_transfers_take(weir__kv_transfers *transfers)
{
    if (!atomic_load(&transfers->waiting)) return NULL;
    pthread_mutex_lock(&transfers->mutex);
    weir__kv_transfer *transfer = transfers->first;
    if (transfer != NULL) {
        unlist_transfer(transfers, transfer);
        transfer->taken = true;
    }
    pthread_mutex_unlock(&transfers->mutex);
    return transfer;
}

void weir__kv_transfers_put_back(weir__kv_transfers *transfers, weir__kv_transfer *transfer)
{
    pthread_mutex_lock(&transfers->mutex);
    transfer->taken = false;
    transfer->next = transfers->first;
    transfers->first = transfer;
    if (transfers->last == NULL) transfers->last = transfer;
    atomic_store(&transfers->waiting, true);
    pthread_mutex_unlock(&transfers->mutex);
}

void weir__kv_transfers_finish(weir__kv_transfers *transfers, weir__kv_transfer *transfer, weir_status status)
{
    pthread_mutex_lock(&transfers->mutex);
    transfer->status = status;
    transfer->done = true;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->mutex);
}

void weir__kv_transfers_close(weir__kv_transfers *transfers)
{
    weir__kv_transfer *transfer;
    pthread_mutex_lock(&transfers->mutex);
    transfers->closed = true;
    pthread_mutex_unlock(&transfers->mutex);
    while ((transfer = weir__kv_transfers_take(transfers)) != NULL)
        weir__kv_transfers_finish(transfers, transfer, refuse_stopped(&transfer->error));
}

/* ---- Recent rates ---- */

#define NEWEST       0.125               /* weight of the newest measurement */
#define RETRY_NS     INT64_C(1000000000) /* until something is measured */
#define RETRY_MAX_NS (3600 * INT64_C(1000000000))

void weir__rates_finished(weir__rates *rates, int64_t service_ns)
{
    if (service_ns <= 0) return;
    double newest = (double)service_ns;
    rates->service_ns =
        rates->service_ns > 0 ? rates->service_ns + NEWEST * (newest - rates->service_ns) : newest;
}

int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places)
{
    double each = rates->service_ns > 0 ? rates->service_ns / n_slots : (double)RETRY_NS;
    double ns = each * (double)places;
    if (ns > (double)RETRY_MAX_NS) return RETRY_MAX_NS;
    return ns > (double)WEIR__NS_PER_MS ? (int64_t)ns : WEIR__NS_PER_MS;
}

#define PIECE    256  /* items copied at a time under the lock: a few microseconds */
#define TICKS    4096 /* as more.h promises: a minute or so */
#define ARRIVALS 4096
#define PARTS    32 /* slots per tick on average: with more slots, fewer ticks keep theirs */

weir_status weir__shared_init(weir__shared *shared, int32_t n_slots, weir_error *error)
{
    size_t n_parts = (size_t)(n_slots < PARTS ? n_slots : PARTS);
    shared->running = weir__mem_calloc((size_t)n_slots, sizeof *shared->running);
    if (shared->running == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the engine's slots");
    if (pthread_mutex_init(&shared->mutex, NULL) != 0) goto no_mutex;
    if (weir__clock_cond_init(&shared->drained) != 0) goto no_cond;
    if (!init_transfers(&shared->transfers)) goto no_transfers;
    if (!init_ring(&shared->ticks, TICKS, sizeof(weir_tick)) ||
        !init_ring(&shared->parts, TICKS * n_parts, sizeof(weir_tick_slot)) ||
        !init_ring(&shared->arrivals, ARRIVALS, sizeof(weir_arrival)))
        goto no_rings;
    shared->open = true;
    return WEIR_OK;

no_rings:
    weir__shared_fini(shared);
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the engine's record");
no_transfers:
    pthread_cond_destroy(&shared->drained);
no_cond:
    pthread_mutex_destroy(&shared->mutex);
no_mutex:
    weir__mem_free(shared->running);
    shared->running = NULL;
    return weir__error_set(error, WEIR_NO_MEMORY, "",
                           "no lock for the engine: the process has reached a limit");
}

void weir__shared_fini(weir__shared *shared)
{
    fini_ring(&shared->ticks);
    fini_ring(&shared->parts);
    fini_ring(&shared->arrivals);
    weir__mem_free(shared->running);
    fini_transfers(&shared->transfers);
    pthread_cond_destroy(&shared->drained);
    pthread_mutex_destroy(&shared->mutex);
}

/* ---- Callers ---- */

static int32_t n_waiting(const weir__queue *queue, uint64_t tenant)
{
    int32_t n = 0;
    for (const weir__request *at = queue->first; at != NULL; at = at->next) n += at->tenant_hash == tenant;
    return n;
}

int32_t weir__shared_most(const weir_engine_params *params, uint64_t tenant)
{
    return params->queue_limit - (tenant != 0 ? params->queue_limit / 4 : 0);
}

int64_t weir__shared_over(const weir__shared *shared, const weir_engine_params *params, uint64_t tenant,
                          size_t n, int32_t *waiting)
{
    int32_t limit = params->queue_limit, depth = shared->queue.n;
    /* Requests that a free slot takes at the next tick do not count as waiting. Requests on their way from
     * the queue to their end are placed and in no slot. */
    int32_t n_free = params->n_slots - (shared->n_placed - depth);
    if (n_free < 0) n_free = 0;
    int64_t room = (int64_t)limit + n_free - depth - (int64_t)n, over = -room;
    *waiting = 0;
    if (limit == 0) return 0;
    if (tenant == 0 || 3 * room + 3 + n_free >= depth + (int64_t)n) return over > 0 ? over : 0;
    *waiting = n_waiting(&shared->queue, tenant);
    /* A tenant that has less than three times what is free may add one. Each that leaves changes both. */
    int64_t beyond = (*waiting + (int64_t)n - n_free - 3 * room - 3 + 3) / 4;
    if (beyond > over) over = beyond;
    return over > 0 ? over : 0;
}

static void add_arrival(weir__shared *shared, const weir__request *request)
{
    const weir_arrival arrival = {
        .request = request->serial,
        .submit_ns = request->submit_ns,
        .n_prompt = request->history.n_prompt,
        .max_tokens = request->max_tokens,
        .priority = request->priority,
    };
    weir__ring_add(&shared->arrivals, &arrival);
}

weir_status weir__shared_submit(weir__shared *shared, const weir_engine_params *params,
                                weir__request *const *requests, size_t n, weir_error *error)
{
    weir_status status = WEIR_OK;
    int64_t retry_ns = 0;
    pthread_mutex_lock(&shared->mutex);
    int32_t depth = shared->queue.n, waiting;
    int64_t over = weir__shared_over(shared, params, requests[0]->tenant_hash, n, &waiting);
    if (!shared->open) {
        status = WEIR_STOPPED;
    } else if (over > 0) {
        status = WEIR_BUSY;
        retry_ns = weir__rates_retry_ns(&shared->rates, params->n_slots, over);
        shared->stats.n_refused += n;
    } else {
        for (size_t i = 0; i < n; i++) {
            weir__request *request = requests[i];
            request->serial = shared->serial++;
            if (request->stream != NULL) weir__stream_number(request->stream, request->serial);
            request->tenant = weir__tenant_hold(&shared->tenants, request->tenant_hash, request->submit_ns);
            add_arrival(shared, request);
            weir__request_move(request, WEIR__ADAPTERS_WAITING);
            weir__queue_push(&shared->queue, request);
        }
        atomic_store_explicit(&shared->arrived, true, memory_order_relaxed);
        shared->n_placed += (int32_t)n;
        shared->n_live += (int32_t)n;
        shared->stats.n_submitted += n;
    }
    pthread_mutex_unlock(&shared->mutex);
    long long retry_ms = (long long)(retry_ns / WEIR__NS_PER_MS);
    if (status == WEIR_BUSY && waiting > 0)
        return weir__error_set(
            error, status, "",
            "%d request%s waiting, %d of the same tenant; allowed: as many as idle slots take, and %d more "
            "(`queue_limit`), of a tenant three times as many as places are left: try again in about %lld ms",
            depth, depth == 1 ? " is" : "s are", waiting, params->queue_limit, retry_ms);
    if (status == WEIR_BUSY)
        return weir__error_set(error, status, "",
                               "%d request%s waiting; allowed: as many as idle slots take, and %d more "
                               "(`queue_limit`): try again in about %lld ms",
                               depth, depth == 1 ? " is" : "s are", params->queue_limit, retry_ms);
    if (status == WEIR_STOPPED)
        return weir__error_set(error, status, "",
                               "the engine takes no more requests: it was stopped or is draining");
    return WEIR_OK;
}

weir_status weir__shared_drain(weir__shared *shared, bool may_wait, int64_t deadline_ns)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&shared->mutex);
    shared->open = false;
    while (shared->n_live > 0 && status == WEIR_OK) {
        if (!may_wait)
            status = WEIR_STATE;
        else if (weir__clock_cond_wait(&shared->drained, &shared->mutex, deadline_ns) != 0 &&
                 shared->n_live > 0)
            status = WEIR_TIMEOUT;
    }
    pthread_mutex_unlock(&shared->mutex);
    return status;
}

bool weir__shared_has(weir__shared *shared, const weir_stream *stream)
{
    pthread_mutex_lock(&shared->mutex);
    const weir__request *at = shared->queue.first;
    while (at != NULL && at->stream != stream) at = at->next;
    pthread_mutex_unlock(&shared->mutex);
    return at != NULL;
}

void weir__shared_stop(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    shared->open = false;
    atomic_store(&shared->stopping, true);
    pthread_mutex_unlock(&shared->mutex);
}

weir_engine_stats weir__shared_stats(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    weir_engine_stats stats = shared->stats;
    stats.queue_depth = shared->queue.n;
    pthread_mutex_unlock(&shared->mutex);
    return stats;
}

/* Reads in pieces, so that nobody waits long for the lock. Reading stops where the driver has overwritten the
 * next tick. */
weir_status weir__shared_read(const weir__shared *shared, const weir__ring *ring, uint64_t from, void *items,
                              size_t capacity, size_t *n)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&shared->mutex;
    size_t copied = 0, piece;
    *n = 0;
    if (capacity == 0) return WEIR_OK; /* items may be NULL */
    do {
        uint64_t wanted = from + copied, first = wanted;
        size_t most = capacity - copied < PIECE ? capacity - copied : PIECE;
        pthread_mutex_lock(mutex);
        piece = copy_ring(ring, &first, (char *)items + copied * ring->size, most);
        pthread_mutex_unlock(mutex);
        if (copied > 0 && first != wanted) break;
        if (copied == 0) from = first;
        copied += piece;
    } while (piece == PIECE);
    *n = copied;
    return copied > 0 ? WEIR_OK : WEIR_END;
}

/* ---- The driver ---- */

int32_t weir__shared_depth(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    int32_t depth = shared->queue.n;
    pthread_mutex_unlock(&shared->mutex);
    return depth;
}

void weir__shared_see(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    shared->n_seen = shared->serial;
    pthread_mutex_unlock(&shared->mutex);
}

weir__request *weir__shared_next(weir__shared *shared, uint64_t end, int32_t above,
                                 bool (*wanted)(const weir__request *request), int64_t now)
{
    pthread_mutex_lock(&shared->mutex);
    weir__request *request = weir__queue_next(&shared->queue, end, above, wanted, now);
    pthread_mutex_unlock(&shared->mutex);
    return request; /* only the driver takes requests out */
}

void weir__shared_admit(weir__shared *shared, weir__request *request, bool resumed, int64_t now)
{
    pthread_mutex_lock(&shared->mutex);
    weir__queue_remove(&shared->queue, request);
    weir__request_move(request, WEIR__ADAPTERS_RUNNING);
    if (!resumed) weir__tenant_bill(request->tenant, request->history.n_prompt, now);
    pthread_mutex_unlock(&shared->mutex);
}

void weir__shared_requeue(weir__shared *shared, weir__request *request)
{
    pthread_mutex_lock(&shared->mutex);
    weir__request_move(request, WEIR__ADAPTERS_WAITING);
    weir__queue_push(&shared->queue, request);
    pthread_mutex_unlock(&shared->mutex);
}

static bool request_is_over(const weir__request *request, int64_t now)
{
    return weir__request_cancelled(request) || now >= request->deadline_ns;
}

weir__request *weir__shared_take_over(weir__shared *shared, bool cancels, int64_t now)
{
    weir__request *over = NULL;
    pthread_mutex_lock(&shared->mutex);
    if (shared->queue.n > 0 && (cancels || now >= shared->queue.deadline_ns))
        over = weir__queue_take(&shared->queue, request_is_over, now);
    pthread_mutex_unlock(&shared->mutex);
    return over;
}

weir__request *weir__shared_take_all(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    weir__request *all = shared->queue.first;
    shared->queue = (weir__queue){0};
    pthread_mutex_unlock(&shared->mutex);
    return all;
}

void weir__shared_leave(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    shared->n_placed--;
    pthread_mutex_unlock(&shared->mutex);
}

void weir__shared_end(weir__shared *shared, weir__tenant *tenant)
{
    pthread_mutex_lock(&shared->mutex);
    weir__tenant_release(tenant);
    if (--shared->n_live == 0) pthread_cond_broadcast(&shared->drained);
    pthread_mutex_unlock(&shared->mutex);
}

int64_t weir__shared_next_deadline(weir__shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    int64_t next = shared->queue.n > 0 ? shared->queue.deadline_ns : WEIR__CLOCK_NEVER;
    pthread_mutex_unlock(&shared->mutex);
    return next;
}
