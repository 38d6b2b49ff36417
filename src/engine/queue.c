/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"

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
        .served = weir__salt_served(request->salt, now),
        .serial = request->serial,
    };
}

bool weir__queue_outranks(const weir__request *waiting, const weir__request *running, int64_t now)
{
    return weir__rank_outranks(waiting->priority, waiting->submit_ns, running->priority, running->submit_ns,
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
