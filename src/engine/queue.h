/* queue.h: the requests that wait for a slot, and which of them is next: by priority and age, then by the
 * recent tokens of their tenants, then by submit. Peers are the engines of this process, which share its
 * processors: a request may go before those of another engine, too (ADR 0088).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_QUEUE_H
#define WEIR_ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/request.h"
#include "engine/waker.h"

/* ---- Ranks: pure functions ---- */

typedef struct weir__rank {
    int32_t level;   /* priority plus age; higher goes first */
    int64_t served;  /* recent tokens of its tenant; fewer goes first */
    uint64_t serial; /* order of submit; earlier goes first */
} weir__rank;

/* The priority plus one level for each whole ageing_ns (0 = never) of waiting: at most `top`, but not below
 * the priority. */
int32_t weir__rank_level(int32_t priority, int64_t waited_ns, int64_t ageing_ns, int32_t top);

/* True if rank a goes before b: a strict order if serials differ. */
bool weir__rank_before(const weir__rank *a, const weir__rank *b);

/* ---- Tenants: fair shares of the slots ---- */

#define WEIR__TENANTS 256 /* tenants with an account of their own; live ones beyond that share one */

/* The time after which half of a tenant's tokens are forgotten: nothing is left after some minutes. */
#define WEIR__TENANT_HALF_NS INT64_C(10000000000)

typedef struct weir__tenant {
    uint64_t hash;  /* 0 = requests without a tenant */
    int32_t n_live; /* requests, waiting or running */
    double served;  /* tokens, decayed to at_ns */
    int64_t at_ns;
} weir__tenant;

/* Zeroed at first. The engine's mutex guards it. */
typedef struct weir__tenants {
    weir__tenant each[WEIR__TENANTS]; /* [0] is shared by those that found no place */
} weir__tenants;

/* The tenant of this hash, with one more live request. Does not move until release. */
weir__tenant *weir__tenant_hold(weir__tenants *tenants, uint64_t hash, int64_t now);
void weir__tenant_release(weir__tenant *tenant);

/* The tenant of this hash; NULL = not known. */
const weir__tenant *weir__tenant_find(const weir__tenants *tenants, uint64_t hash);

/* Counts tokens computed for the tenant. */
void weir__tenant_bill(weir__tenant *tenant, int32_t n_tokens, int64_t now);

/* Recent tokens; 0 for NULL. */
int64_t weir__tenant_served(const weir__tenant *tenant, int64_t now);

/* ---- The list ---- */

/* A singly linked list whose order has no meaning. Invariant: n is its length; last is NULL exactly when
 * first is; while n > 0, no request in it has an earlier deadline than deadline_ns or a higher priority than
 * top. The engine's mutex guards it. */
typedef struct weir__queue {
    weir__request *first;
    weir__request *last;
    int32_t n;
    int32_t top;
    int64_t deadline_ns;
} weir__queue;

void weir__queue_push(weir__queue *queue, weir__request *request);

/* The request that was pushed first; NULL = the queue is empty. */
weir__request *weir__queue_pop(weir__queue *queue);

/* Removes this request, which is in the queue. */
void weir__queue_remove(weir__queue *queue, weir__request *request);

/* Removes the requests for which `wanted` holds and returns them in order as a list linked by next. */
weir__request *weir__queue_take(weir__queue *queue, bool (*wanted)(const weir__request *request, int64_t now),
                                int64_t now);

/* ---- Who goes next ---- */

/* The request's rank among requests of priorities up to `top`. */
weir__rank weir__queue_rank(const weir__request *request, int32_t top, int64_t now);

/* True if a waiting request may preempt a running one: its priority is higher, even counting the running
 * one's age. Never both ways and never among equals, so that no two requests preempt each other in turns. */
bool weir__queue_outranks(const weir__request *waiting, const weir__request *running, int64_t now);

/* The highest priority of requests with serials below `end`; INT32_MIN = there is none. */
int32_t weir__queue_top(const weir__queue *queue, uint64_t end);

/* The next request of those with serials below `end` and a higher priority than `above` that are `wanted`
 * (NULL: all); NULL = none. Age lifts a request up to their highest priority, but not above it. At the
 * same level tenants take turns, and a tenant's oldest request goes first: a tenant with many old requests
 * does not hold back the first request of another. */
weir__request *weir__queue_next(weir__queue *queue, uint64_t end, int32_t above,
                                bool (*wanted)(const weir__request *request), int64_t now);

/* ---- Peers ---- */

/* The engines of this process, which share its processors: which of them has a request that goes before
 * another one's (ADR 0088). */

/* An engine with a thread of its own. The list's mutex guards it, which is held for a few instructions. */
typedef struct weir__peer {
    struct weir__peer *next;
    weir__waker *waker; /* NULL: not in the list; all functions do nothing */
    bool runs;          /* the next three are of a request */
    int32_t priority;
    int64_t submit_ns;
    uint64_t tenant;
    bool yields; /* another one's request was found to go before one of its own */
} weir__peer;

void weir__peers_join(weir__peer *peer, weir__waker *waker);
void weir__peers_leave(weir__peer *peer);

/* Reports which of the engine's running requests has the highest priority, and of these belongs to the tenant
 * with the least recent time; NULL = none runs. If the priority is lower than before, engines that yield are
 * woken. */
void weir__peers_report(weir__peer *peer, const weir__request *top);

/* True if another engine has a running request that outranks this one. */
bool weir__peers_outrank(weir__peer *peer, const weir__request *request, int64_t now);

/* The time that passes of this engine took for a request of the tenant. */
void weir__peers_bill(const weir__peer *peer, uint64_t tenant, int64_t ns, int64_t now);

/* The recent time of the tenant's requests, in all engines; see queue.h for how it is forgotten. */
int64_t weir__peers_recent_ns(const weir__peer *peer, uint64_t tenant, int64_t now);

/* True if another engine has a running request of a tenant with less recent time, whose priority is not lower
 * than this request's. */
bool weir__peers_precede(weir__peer *peer, const weir__request *request, int64_t now);

/* The number of times that an engine's priority has risen, in all engines. */
uint32_t weir__peers_rises(void);

#endif
