/* queue.h: requests that wait for a slot, first in first out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_QUEUE_H
#define WEIR_ENGINE_QUEUE_H

#include "engine/request.h"

/* A singly linked list. Invariant: n is its length; last is NULL exactly when first is; no request in it has
 * an earlier deadline than deadline_ns, which counts while n > 0. The engine's mutex guards it. */
typedef struct weir__queue {
    weir__request *first;
    weir__request *last;
    int32_t n;
    int64_t deadline_ns;
} weir__queue;

void weir__queue_push(weir__queue *queue, weir__request *request);

/* The first request, NULL when there is none. */
weir__request *weir__queue_pop(weir__queue *queue);

/* Takes out all requests for which `wanted` holds, keeping order, as a list linked by next. */
weir__request *weir__queue_take(weir__queue *queue, bool (*wanted)(const weir__request *request, int64_t now),
                                int64_t now);

#endif
