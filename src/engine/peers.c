/* peers.c: the engines of this process that have a thread, and what each tells the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/peers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/queue.h"

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
                    weir__rank_outranks(p->priority, p->submit_ns, request->priority, request->submit_ns,
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
