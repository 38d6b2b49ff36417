/* admit.c: from the queue into a slot.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/engine.h"

static weir__slot *idle_slot(weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].state == WEIR_SLOT_IDLE) return &engine->slots[i];
    return NULL;
}

/* Takes the queue's first request if its cells can be promised. First in, first out: a large one is not
 * overtaken. */
static weir__request *next_request(weir_engine *engine)
{
    weir__request *request = NULL;
    pthread_mutex_lock(&engine->mutex);
    if (engine->queue.first != NULL &&
        engine->n_reserved + weir__request_cells(engine->queue.first) <= engine->info.n_ctx)
        request = weir__queue_pop(&engine->queue);
    pthread_mutex_unlock(&engine->mutex);
    return request;
}

void weir__admit(weir_engine *engine)
{
    weir__slot *slot;
    weir__request *request;
    bool admitted = false;
    while ((slot = idle_slot(engine)) != NULL && (request = next_request(engine)) != NULL) {
        admitted = true;
        /* Not the tick's time: the request may have come since. */
        weir__slot_start(slot, request, engine->serial++, weir__clock_now_ns());
        weir__account_admit(engine, slot);
        weir__lanes_enter(engine, slot);
        engine->n_reserved += weir__request_cells(request);
    }
    if (admitted)
        weir__account_publish(engine); /* a pass may take long: else they were neither here nor there */
}
