/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"

void weir__queue_push(weir__queue *queue, weir__request *request)
{
    request->next = NULL;
    if (queue->last != NULL)
        queue->last->next = request;
    else
        queue->first = request;
    queue->last = request;
    if (queue->n == 0 || request->deadline_ns < queue->deadline_ns) queue->deadline_ns = request->deadline_ns;
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
