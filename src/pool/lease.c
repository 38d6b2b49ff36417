/* lease.c: leases: how they wait, are granted or fail, and end.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lease whose model is loaded is granted at once. Another one waits in the pool's queue, in order of age,
 * until the keeper grants or fails it. That settles it: callers that wait are woken, and a ready function is
 * put into a list from which the keeper calls it without the mutex. A lease that is released while its
 * function runs is freed when the function returns. */
#include "pool/lease.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

/* The pool whose ready function this thread runs. */
static _Thread_local const weir_pool *rings_here;

bool weir__lease_rings_here(const weir_pool *pool)
{
    return rings_here == pool;
}

weir__entry *weir__lease_find_entry(const weir_pool *pool, const char *name)
{
    for (size_t i = 0; i < pool->n_list; i++)
        if (weir__spec_is(pool->list[i]->spec, name)) return pool->list[i];
    return NULL;
}

/* ---- The queue ---- */

static void enqueue_lease(weir_lease *lease, weir__entry *entry)
{
    weir_pool *pool = lease->pool;
    lease->entry = entry;
    lease->before = pool->last;
    *(pool->last != NULL ? &pool->last->next : &pool->first) = lease;
    pool->last = lease;
    pool->n_waiting++;
    entry->n_waiting++;
    atomic_store(&entry->cancelled, false);
}

/* The load of an entry ends when nobody wants it any more. */
static void leave_entry(weir_lease *lease)
{
    weir__entry *entry = lease->entry;
    entry->n_waiting--;
    if (entry->state == WEIR_POOL_LOADING && entry->n_waiting == 0 && !entry->wanted)
        atomic_store(&entry->cancelled, true);
}

static void dequeue_lease(weir_lease *lease)
{
    weir_pool *pool = lease->pool;
    *(lease->before != NULL ? &lease->before->next : &pool->first) = lease->next;
    *(lease->next != NULL ? &lease->next->before : &pool->last) = lease->before;
    lease->next = lease->before = NULL;
    pool->n_waiting--;
}

static void hold_entry(weir_lease *lease, weir__entry *entry)
{
    lease->entry = entry;
    lease->is = WEIR__LEASE_GRANTED;
    entry->n_leases++;
    entry->used_ns = weir__clock_now_ns();
}

static void settle_lease(weir_lease *lease)
{
    weir_pool *pool = lease->pool;
    pthread_cond_broadcast(&lease->settled);
    if (lease->fn == NULL) return;
    weir_lease **end = &pool->ringing;
    while (*end != NULL) end = &(*end)->next;
    *end = lease;
    pthread_cond_signal(&pool->wake);
}

void weir__lease_grant(weir_lease *lease)
{
    dequeue_lease(lease);
    lease->entry->n_waiting--;
    hold_entry(lease, lease->entry);
    settle_lease(lease);
}

void weir__lease_fail(weir_lease *lease, const weir_error *error)
{
    dequeue_lease(lease);
    leave_entry(lease);
    lease->entry = NULL;
    lease->is = WEIR__LEASE_FAILED;
    lease->error = *error;
    settle_lease(lease);
}

void weir__lease_move(weir_lease *lease, weir__entry *entry)
{
    leave_entry(lease);
    lease->entry = entry;
    entry->n_waiting++;
}

/* ---- Ready functions ---- */

static void free_lease(weir_lease *lease)
{
    weir_pool *pool = lease->pool;
    pthread_cond_destroy(&lease->settled);
    weir__mem_free(lease);
    if (--pool->n_objects == 0) pthread_cond_broadcast(&pool->empty);
}

static void call_ready(weir_lease *lease)
{
    weir_pool *pool = lease->pool;
    const weir_pool *outer = rings_here;
    lease->calling = true;
    lease->caller = pthread_self();
    pthread_mutex_unlock(&pool->mutex);
    rings_here = pool;
    lease->fn(lease, lease->user);
    rings_here = outer;
    pthread_mutex_lock(&pool->mutex);
    lease->calling = false;
    if (lease->released)
        free_lease(lease);
    else
        pthread_cond_broadcast(&lease->settled);
}

bool weir__lease_ring(weir_pool *pool)
{
    weir_lease *lease = pool->ringing;
    if (lease == NULL) return false;
    pool->ringing = lease->next;
    lease->next = NULL;
    call_ready(lease);
    return true;
}

weir_status weir_lease_set_ready(weir_lease *lease, weir_lease_fn fn, void *user)
{
    if (lease == NULL || fn == NULL) return WEIR_INVALID;
    weir_pool *pool = lease->pool;
    weir_status status = WEIR_STATE;
    pthread_mutex_lock(&pool->mutex);
    if (lease->fn == NULL) {
        lease->fn = fn;
        lease->user = user;
        if (lease->is != WEIR__LEASE_WAITING) call_ready(lease);
        status = WEIR_OK;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

/* ---- Life ---- */

static weir_status check_name(const weir_pool *pool, const char *name, weir_lease *const *lease,
                              weir_error *error)
{
    if (pool == NULL || name == NULL || lease == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING,
                             pool == NULL   ? "pool"
                             : name == NULL ? "name"
                                            : "lease",
                             "a pointer is NULL");
    return WEIR_OK;
}

/* A model that has lost a machine with some of its layers, or whose file has changed, is loaded again. */
static void check_model(weir_pool *pool, weir__entry *entry)
{
    if (entry->state != WEIR_POOL_LOADED || !weir__resident_is_lost(entry->resident)) return;
    entry->leave = true;
    pthread_cond_signal(&pool->wake);
}

/* Begins a lease. The caller holds the mutex. */
static weir_status begin_lease(weir_lease *lease, weir_error *error)
{
    weir_pool *pool = lease->pool;
    weir__entry *entry = weir__lease_find_entry(pool, lease->name);
    if (pool->stopping) return weir__error_set(error, WEIR_STOPPED, "pool", "the pool is being destroyed");
    if (entry == NULL)
        return weir__error_set(error, WEIR_NOT_FOUND, "name", "no model has the name \"%s\"", lease->name);
    check_model(pool, entry);
    if (weir__entry_is_open(entry)) {
        hold_entry(lease, entry);
    } else if (pool->params.queue_limit > 0 && pool->n_waiting >= pool->params.queue_limit) {
        return weir__error_set(error, WEIR_BUSY, "queue_limit",
                               "`queue_limit` is %d, and as many requests wait for models: try again later",
                               pool->params.queue_limit);
    } else {
        enqueue_lease(lease, entry);
        pthread_cond_signal(&pool->wake);
    }
    pool->n_objects++;
    return WEIR_OK;
}

weir_status weir_lease_create(weir_pool *pool, const char *name, int timeout_ms, weir_lease **out,
                              weir_error *error)
{
    weir_status status = check_name(pool, name, out, error);
    if (status != WEIR_OK) return status;
    if (strlen(name) > WEIR_POOL_NAME_MAX)
        return weir__error_set(error, WEIR_NOT_FOUND, "name", "no model has a name of %zu bytes",
                               strlen(name));
    weir_lease *lease = weir__mem_calloc(1, sizeof *lease);
    if (lease == NULL || weir__clock_cond_init(&lease->settled) != 0) {
        weir__mem_free(lease);
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a lease");
    }
    lease->pool = pool;
    lease->timeout_ms = timeout_ms;
    lease->deadline_ns = weir__clock_deadline_ns(timeout_ms);
    memcpy(lease->name, name, strlen(name) + 1);
    pthread_mutex_lock(&pool->mutex);
    status = begin_lease(lease, error);
    pthread_mutex_unlock(&pool->mutex);
    if (status == WEIR_OK) {
        *out = lease;
        return WEIR_OK;
    }
    pthread_cond_destroy(&lease->settled);
    weir__mem_free(lease);
    return status;
}

weir_status weir_lease_wait(weir_lease *lease, int timeout_ms, weir_error *error)
{
    if (lease == NULL) return weir__error_null(error, "lease");
    weir_pool *pool = lease->pool;
    weir_status status = WEIR_OK;
    int64_t deadline = weir__clock_deadline_ns(timeout_ms);
    pthread_mutex_lock(&pool->mutex);
    while (lease->is == WEIR__LEASE_WAITING && status == WEIR_OK) {
        if (timeout_ms == 0)
            status = WEIR_TIMEOUT;
        else if (rings_here == pool)
            status = WEIR_STATE;
        else if (weir__clock_cond_wait(&lease->settled, &pool->mutex, deadline) != 0 &&
                 lease->is == WEIR__LEASE_WAITING)
            status = WEIR_TIMEOUT;
    }
    if (status == WEIR_OK && lease->is == WEIR__LEASE_FAILED) status = weir__error_copy(error, &lease->error);
    pthread_mutex_unlock(&pool->mutex);
    if (status == WEIR_TIMEOUT)
        return weir__error_set(error, status, "", "\"%s\" is not loaded yet", lease->name);
    if (status == WEIR_STATE)
        return weir__error_set(error, status, "lease",
                               "a ready function must not wait: ask with a timeout of 0");
    return status;
}

static weir__resident *resident_of(const weir_lease *lease)
{
    weir__resident *resident = NULL;
    if (lease == NULL) return NULL;
    pthread_mutex_lock(&lease->pool->mutex);
    if (lease->is == WEIR__LEASE_GRANTED) resident = lease->entry->resident;
    pthread_mutex_unlock(&lease->pool->mutex);
    return resident;
}

weir_model *weir_lease_model(const weir_lease *lease)
{
    weir__resident *resident = resident_of(lease);
    return resident != NULL ? resident->model : NULL;
}

weir_engine *weir_lease_engine(const weir_lease *lease)
{
    weir__resident *resident = resident_of(lease);
    return resident != NULL ? resident->engine : NULL;
}

weir_adapter *weir_lease_adapter(const weir_lease *lease, size_t i)
{
    weir__resident *resident = resident_of(lease);
    return resident != NULL && i < resident->n_adapters ? resident->adapters[i] : NULL;
}

static void cancel_ring(weir_lease *lease)
{
    for (weir_lease **at = &lease->pool->ringing; *at != NULL; at = &(*at)->next)
        if (*at == lease) {
            *at = lease->next;
            return;
        }
}

void weir_lease_release(weir_lease *lease)
{
    if (lease == NULL) return;
    weir_pool *pool = lease->pool;
    pthread_mutex_lock(&pool->mutex);
    if (lease->is == WEIR__LEASE_WAITING) {
        dequeue_lease(lease);
        leave_entry(lease);
    } else {
        cancel_ring(lease);
    }
    if (lease->is == WEIR__LEASE_GRANTED) {
        lease->entry->n_leases--;
        lease->entry->used_ns = weir__clock_now_ns();
    }
    lease->is = WEIR__LEASE_FAILED;
    lease->entry = NULL;
    pthread_cond_signal(&pool->wake);
    while (lease->calling && !pthread_equal(lease->caller, pthread_self()))
        pthread_cond_wait(&lease->settled, &pool->mutex);
    if (lease->calling)
        lease->released = true;
    else
        free_lease(lease);
    pthread_mutex_unlock(&pool->mutex);
}
