/* queue.h: the requests that wait for a slot, and the choice of the next one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_QUEUE_H
#define WEIR_ENGINE_QUEUE_H

#include "engine/rank.h"
#include "engine/request.h"

/* A singly linked list, in no order that matters. Invariant: n is its length; last is NULL exactly when first
 * is; no request in it has an earlier deadline than deadline_ns, or a higher priority than top, which count
 * while n > 0. The engine's mutex guards it. */
typedef struct weir__queue {
    weir__request *first;
    weir__request *last;
    int32_t n;
    int32_t top;
    int64_t deadline_ns;
} weir__queue;

void weir__queue_push(weir__queue *queue, weir__request *request);

/* The request that came in first of those that are there, NULL when there is none. */
weir__request *weir__queue_pop(weir__queue *queue);

/* Takes out this request, which is in the queue. */
void weir__queue_remove(weir__queue *queue, weir__request *request);

/* Takes out all requests for which `wanted` holds, keeping order, as a list linked by next. */
weir__request *weir__queue_take(weir__queue *queue, bool (*wanted)(const weir__request *request, int64_t now),
                                int64_t now);

/* ---- Who goes next ---- */

/* The request's rank among others of priorities up to `top`. */
weir__rank weir__queue_rank(const weir__request *request, int32_t top, int64_t ageing_ns, int64_t now);

/* Whether a waiting request may take the slot of a running one: its priority is higher, and age has not
 * lifted the other as high. Never both ways, and never among equals, so that no two requests take turns for
 * ever. */
bool weir__queue_outranks(const weir__request *waiting, const weir__request *running, int64_t ageing_ns,
                          int64_t now);

/* The highest priority in the queue; INT32_MIN when it is empty. */
int32_t weir__queue_top(const weir__queue *queue);

/* The request of higher priority than `above` that goes next, NULL when there is none. Age lifts a request up
 * to the highest priority that waits and not beyond: there, salts take turns, and of each the oldest goes
 * first. So a salt with many old requests does not keep back one that has just come with its first. */
weir__request *weir__queue_next(weir__queue *queue, int32_t above, int64_t ageing_ns, int64_t now);

#endif
