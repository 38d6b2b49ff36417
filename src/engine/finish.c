/* finish.c: how requests end: cancels and deadlines, the terminal chunk, a stop.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/error.h"
#include "engine/engine.h"

static void count_down(weir_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    if (--engine->n_live == 0) pthread_cond_broadcast(&engine->drained);
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- Finish ---- */

/* Frees the cells first and counts it, so that whoever takes the terminal chunk finds both done. */
static void finish_slot(weir_engine *engine, weir__slot *slot)
{
    int64_t now = weir__clock_now_ns();
    weir__lanes_leave(engine, slot);
    engine->n_reserved -= weir__request_cells(slot->request);
    weir__slot_settle(slot, &engine->scratch);
    weir__account_finish(engine, slot, now);
    weir_slot_state state = slot->state;
    slot->state = WEIR_SLOT_IDLE;
    weir__account_publish(engine);
    slot->state = state;
    weir__slot_finish(slot, now);
    count_down(engine);
}

static void finish_queued(weir_engine *engine, weir__request *request, weir_reason reason, weir_status status)
{
    static const weir__output nothing = {.text = ""};
    int64_t now = weir__clock_now_ns();
    weir_usage usage = {
        .n_prompt = request->n_prompt,
        .queue_ns = now - request->submit_ns,
        .total_ns = now - request->submit_ns,
    };
    weir_error error = {0};
    if (reason == WEIR_REASON_ERROR) weir__error_set(&error, status, "", "%s", weir_status_text(status));
    weir__account_finish_queued(engine, request, reason, now);
    weir__account_publish(engine);
    weir__request_finish(request, &nothing, reason, &error, &usage);
    count_down(engine);
}

void weir__finish_latched(weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state != WEIR_SLOT_IDLE && slot->reason != WEIR_REASON_NOT_FINISHED)
            finish_slot(engine, slot);
    }
}

/* ---- Collect ---- */

static bool is_over(const weir__request *request, int64_t now)
{
    return weir__request_cancelled(request) || now >= request->deadline_ns;
}

static void collect_queue(weir_engine *engine, int64_t now)
{
    pthread_mutex_lock(&engine->mutex);
    weir__request *over = weir__queue_take(&engine->queue, is_over, now);
    pthread_mutex_unlock(&engine->mutex);
    while (over != NULL) {
        weir__request *next = over->next;
        finish_queued(engine, over,
                      weir__request_cancelled(over) ? WEIR_REASON_CANCELLED : WEIR_REASON_DEADLINE, WEIR_OK);
        over = next;
    }
}

void weir__finish_collect_slots(weir_engine *engine, int64_t now)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (weir__request_cancelled(slot->request)) weir__slot_latch(slot, WEIR_REASON_CANCELLED);
        if (now >= slot->request->deadline_ns) weir__slot_latch(slot, WEIR_REASON_DEADLINE);
    }
}

void weir__finish_collect(weir_engine *engine, int64_t now)
{
    uint32_t cancels = weir__doorbell_cancels(engine->bell);
    pthread_mutex_lock(&engine->mutex);
    bool due = engine->queue.n > 0 && (now >= engine->queue.deadline_ns || cancels != engine->cancels_seen);
    pthread_mutex_unlock(&engine->mutex);
    if (due) collect_queue(engine, now);
    engine->cancels_seen = cancels;
    weir__finish_collect_slots(engine, now);
    weir__finish_latched(engine);
}

int64_t weir__finish_next_deadline(weir_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    int64_t next = engine->queue.n > 0 ? engine->queue.deadline_ns : WEIR__CLOCK_NEVER;
    pthread_mutex_unlock(&engine->mutex);
    return next;
}

/* ---- Stop ---- */

void weir__finish_all(weir_engine *engine)
{
    weir__request *request;
    weir__finish_collect_slots(engine, weir__clock_now_ns());
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].state != WEIR_SLOT_IDLE) weir__slot_fail(&engine->slots[i], WEIR_STOPPED, NULL);
    weir__finish_latched(engine);
    for (;;) {
        pthread_mutex_lock(&engine->mutex);
        request = weir__queue_pop(&engine->queue);
        pthread_mutex_unlock(&engine->mutex);
        if (request == NULL) break;
        if (weir__request_cancelled(request))
            finish_queued(engine, request, WEIR_REASON_CANCELLED, WEIR_OK);
        else
            finish_queued(engine, request, WEIR_REASON_ERROR, WEIR_STOPPED);
    }
}
