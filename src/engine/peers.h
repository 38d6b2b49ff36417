/* peers.h: the engines of this process, which share its processors: which of them has a request that goes
 * before another one's (ADR 0088).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PEERS_H
#define WEIR_ENGINE_PEERS_H

#include "engine/request.h"
#include "engine/waker.h"

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
