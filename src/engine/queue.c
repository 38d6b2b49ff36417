/* queue.c: the requests that wait for a slot; their ranks, the recent tokens of their tenants, and the
 * engines of the process that run requests which go before them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The list has no order: when a slot is free, the driver computes the rank of each request and takes the
 * best. A rank is the priority, which rises with age, then the tenant's recent tokens, then the submission.
 * Tenants have a table of fixed size, in which tokens lose half their weight in each half-life; tenants
 * without a row share row 0. Engines of a process are peers in one list under a mutex: each reports the
 * request that it runs of highest priority, and one that has stood back is woken when another one's priority
 * falls. An engine that is alone takes no lock. */
#include "engine/queue.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* ---- Ranks: pure functions ---- */

int32_t weir__rank_level(int32_t priority, int64_t waited_ns, int64_t ageing_ns, int32_t top)
{
    if (ageing_ns <= 0 || waited_ns <= 0 || priority >= top) return priority;
    int64_t gained = waited_ns / ageing_ns;
    return gained < (int64_t)top - priority ? priority + (int32_t)gained : top;
}

bool weir__rank_before(const weir__rank *a, const weir__rank *b)
{
    if (a->level != b->level) return a->level > b->level;
    if (a->served != b->served) return a->served < b->served;
    return a->serial < b->serial;
}

/* True if a request may preempt a running one: its priority is higher, even counting the other's age. */
static bool rank_outranks(int32_t priority, int64_t submit_ns, int32_t running_priority,
                          int64_t running_submit_ns, int64_t ageing_ns, int64_t now)
{
    return priority > running_priority &&
           weir__rank_level(priority, now - submit_ns, ageing_ns, INT32_MAX) >
               weir__rank_level(running_priority, now - running_submit_ns, ageing_ns, INT32_MAX);
}

/* ---- Tenants: fair shares of the slots ---- */

static double decayed_tokens(const weir__tenant *tenant, int64_t now)
{
    if (now <= tenant->at_ns) return tenant->served;
    return tenant->served * exp2(-(double)(now - tenant->at_ns) / (double)WEIR__TENANT_HALF_NS);
}

const weir__tenant *weir__tenant_find(const weir__tenants *tenants, uint64_t hash)
{
    for (size_t i = 1; i < WEIR__TENANTS; i++) {
        const weir__tenant *tenant = &tenants->each[i];
        if (tenant->hash == hash && (tenant->n_live > 0 || tenant->served > 0)) return tenant;
    }
    return NULL;
}

weir__tenant *weir__tenant_hold(weir__tenants *tenants, uint64_t hash, int64_t now)
{
    weir__tenant *tenant = (weir__tenant *)weir__tenant_find(tenants, hash);
    if (tenant == NULL) { /* replace the unused one with the fewest recent tokens */
        double least = 0;
        for (size_t i = 1; i < WEIR__TENANTS; i++) {
            weir__tenant *other = &tenants->each[i];
            if (other->n_live > 0) continue;
            double served = decayed_tokens(other, now);
            if (tenant != NULL && served >= least) continue;
            tenant = other;
            least = served;
        }
        if (tenant != NULL)
            *tenant = (weir__tenant){.hash = hash, .at_ns = now};
        else
            tenant = &tenants->each[0];
    }
    tenant->n_live++;
    return tenant;
}

void weir__tenant_release(weir__tenant *tenant)
{
    tenant->n_live--;
}

void weir__tenant_bill(weir__tenant *tenant, int32_t n_tokens, int64_t now)
{
    tenant->served = decayed_tokens(tenant, now) + n_tokens;
    if (now > tenant->at_ns) tenant->at_ns = now;
}

int64_t weir__tenant_served(const weir__tenant *tenant, int64_t now)
{
    return tenant != NULL ? (int64_t)decayed_tokens(tenant, now) : 0;
}

/* ---- The list ---- */

void weir__queue_push(weir__queue *queue, weir__request *request)
{
    request->next = NULL;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = request;
    queue->last = request;
    if (queue->n == 0 || request->deadline_ns < queue->deadline_ns) queue->deadline_ns = request->deadline_ns;
    if (queue->n == 0 || request->priority > queue->top) queue->top = request->priority;
    queue->n++;
}

weir__request *weir__queue_pop(weir__queue *queue)
{
    weir__request *request = queue->first;
    if (request == NULL) return NULL;
    queue->first = request->next;
    if (queue->first == NULL) queue->last = NULL;
    queue->n--;
    request->next = NULL;
    return request;
}

void weir__queue_remove(weir__queue *queue, weir__request *request)
{
    weir__request **link = &queue->first, *before = NULL;
    while (*link != request) {
        before = *link;
        link = &before->next;
    }
    *link = request->next;
    if (queue->last == request) queue->last = before;
    queue->n--;
    request->next = NULL;
}

weir__request *weir__queue_take(weir__queue *queue, bool (*wanted)(const weir__request *request, int64_t now),
                                int64_t now)
{
    weir__queue kept = {0}, taken = {0};
    weir__request *request;
    while ((request = weir__queue_pop(queue)) != NULL)
        weir__queue_push(wanted(request, now) ? &taken : &kept, request);
    *queue = kept;
    return taken.first;
}

/* ---- Who goes next ---- */

weir__rank weir__queue_rank(const weir__request *request, int32_t top, int64_t now)
{
    return (weir__rank){
        .level = weir__rank_level(request->priority, now - request->submit_ns, request->ageing_ns, top),
        .served = weir__tenant_served(request->tenant, now),
        .serial = request->serial,
    };
}

bool weir__queue_outranks(const weir__request *waiting, const weir__request *running, int64_t now)
{
    return rank_outranks(waiting->priority, waiting->submit_ns, running->priority, running->submit_ns,
                         waiting->ageing_ns, now);
}

int32_t weir__queue_top(const weir__queue *queue, uint64_t end)
{
    int32_t top = INT32_MIN;
    for (const weir__request *at = queue->first; at != NULL; at = at->next)
        if (at->serial < end && at->priority > top) top = at->priority;
    return top;
}

weir__request *weir__queue_next(weir__queue *queue, uint64_t end, int32_t above,
                                bool (*wanted)(const weir__request *request), int64_t now)
{
    weir__request *best = NULL;
    weir__rank first;
    if (queue->n == 0 || queue->top <= above) return NULL;
    queue->top = weir__queue_top(queue, UINT64_MAX);
    int32_t top = weir__queue_top(queue, end);
    for (weir__request *at = queue->first; at != NULL; at = at->next) {
        if (at->serial >= end || at->priority <= above || (wanted != NULL && !wanted(at))) continue;
        weir__rank rank = weir__queue_rank(at, top, now);
        if (best != NULL && !weir__rank_before(&rank, &first)) continue;
        best = at;
        first = rank;
    }
    return best;
}

/* ---- Peers ---- */

/* A tenant that is ahead of another one by less does not stand back for it. */
#define AHEAD_US 1000000

static pthread_mutex_t peers_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t peers_once = PTHREAD_ONCE_INIT;
static weir__peer *first_peer;
static weir__tenants tenants; /* their time in microseconds; guarded by the mutex */
static atomic_int n_peers;
static atomic_uint n_rises;

static bool is_alone(const weir__peer *peer)
{
    return peer->waker == NULL || atomic_load_explicit(&n_peers, memory_order_relaxed) < 2;
}

/* Forgets all peers in a child of fork(): the engines of its parent do not run there, and one of them may
 * hold the mutex. */
static void forget_peers(void)
{
    pthread_mutex_init(&peers_mutex, NULL);
    first_peer = NULL;
    atomic_store(&n_peers, 0);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_peers);
}

void weir__peers_join(weir__peer *peer, weir__waker *waker)
{
    *peer = (weir__peer){.waker = waker};
    pthread_once(&peers_once, watch_forks);
    pthread_mutex_lock(&peers_mutex);
    peer->next = first_peer;
    first_peer = peer;
    if (atomic_fetch_add(&n_peers, 1) == 0) memset(&tenants, 0, sizeof tenants);
    pthread_mutex_unlock(&peers_mutex);
}

static void wake_others(const weir__peer *peer)
{
    for (weir__peer *p = first_peer; p != NULL; p = p->next) {
        if (p == peer || !p->yields) continue;
        p->yields = false;
        weir__waker_wake(p->waker);
    }
}

void weir__peers_leave(weir__peer *peer)
{
    if (peer->waker == NULL) return;
    pthread_mutex_lock(&peers_mutex);
    for (weir__peer **at = &first_peer; *at != NULL; at = &(*at)->next) {
        if (*at != peer) continue;
        *at = peer->next;
        atomic_fetch_sub(&n_peers, 1);
        break;
    }
    wake_others(peer);
    pthread_mutex_unlock(&peers_mutex);
    peer->waker = NULL;
}

void weir__peers_report(weir__peer *peer, const weir__request *top)
{
    /* Record the end of a request even when alone: the engine may be asleep when another one joins. */
    bool ends = peer->waker != NULL && peer->runs && top == NULL;
    if (is_alone(peer) && !ends) return;
    pthread_mutex_lock(&peers_mutex);
    bool rises = top != NULL && (!peer->runs || top->priority > peer->priority);
    bool falls = peer->runs && (top == NULL || top->priority < peer->priority);
    peer->runs = top != NULL;
    if (top != NULL) {
        peer->priority = top->priority;
        peer->submit_ns = top->submit_ns;
        peer->tenant = top->tenant_hash;
    }
    if (rises) atomic_fetch_add(&n_rises, 1);
    if (falls) wake_others(peer);
    pthread_mutex_unlock(&peers_mutex);
}

bool weir__peers_outrank(weir__peer *peer, const weir__request *request, int64_t now)
{
    bool outranked = false;
    if (is_alone(peer)) return false;
    pthread_mutex_lock(&peers_mutex);
    for (const weir__peer *p = first_peer; p != NULL && !outranked; p = p->next)
        outranked = p != peer && p->runs &&
                    rank_outranks(p->priority, p->submit_ns, request->priority, request->submit_ns,
                                  request->ageing_ns, now);
    peer->yields |= outranked;
    pthread_mutex_unlock(&peers_mutex);
    return outranked;
}

void weir__peers_bill(const weir__peer *peer, uint64_t tenant, int64_t ns, int64_t now)
{
    if (is_alone(peer)) return;
    pthread_mutex_lock(&peers_mutex);
    weir__tenant *account = weir__tenant_hold(&tenants, tenant, now);
    weir__tenant_bill(account, (int32_t)(ns / 1000 < INT32_MAX ? ns / 1000 : INT32_MAX), now);
    weir__tenant_release(account);
    pthread_mutex_unlock(&peers_mutex);
}

static int64_t recent_us(uint64_t tenant, int64_t now)
{
    return weir__tenant_served(weir__tenant_find(&tenants, tenant), now);
}

int64_t weir__peers_recent_ns(const weir__peer *peer, uint64_t tenant, int64_t now)
{
    if (is_alone(peer)) return 0;
    pthread_mutex_lock(&peers_mutex);
    int64_t us = recent_us(tenant, now);
    pthread_mutex_unlock(&peers_mutex);
    return us * 1000;
}

bool weir__peers_precede(weir__peer *peer, const weir__request *request, int64_t now)
{
    bool found = false;
    if (is_alone(peer)) return false;
    pthread_mutex_lock(&peers_mutex);
    for (const weir__peer *p = first_peer; p != NULL && !found; p = p->next)
        found = p != peer && p->runs && p->priority >= request->priority &&
                p->tenant != request->tenant_hash &&
                recent_us(p->tenant, now) + AHEAD_US < recent_us(request->tenant_hash, now);
    peer->yields |= found;
    pthread_mutex_unlock(&peers_mutex);
    return found;
}

uint32_t weir__peers_rises(void)
{
    return atomic_load_explicit(&n_rises, memory_order_relaxed);
}
