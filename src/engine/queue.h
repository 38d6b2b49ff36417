/* queue.h: the requests that wait for a slot, and which of them is next.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_QUEUE_H
#define WEIR_ENGINE_QUEUE_H

#include "engine/rank.h"
#include "engine/request.h"

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

/* Whether a waiting request may preempt a running one: its priority is higher, even counting the running
 * one's age. Never both ways and never among equals, so that no two requests preempt each other in turns. */
bool weir__queue_outranks(const weir__request *waiting, const weir__request *running, int64_t now);

/* The highest priority of requests with serials below `end`; INT32_MIN = there is none. */
int32_t weir__queue_top(const weir__queue *queue, uint64_t end);

/* The next request of those with serials below `end` and a higher priority than `above` that are `wanted`
 * (NULL: all); NULL = none. Age lifts a request up to their highest priority, but not above it. At the same
 * level salts take turns, and a salt's oldest request goes first: a salt with many old requests does not hold
 * back the first request of another. */
weir__request *weir__queue_next(weir__queue *queue, uint64_t end, int32_t above,
                                bool (*wanted)(const weir__request *request), int64_t now);

#endif
