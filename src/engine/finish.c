/* finish.c: how requests end: cancels and deadlines, the terminal chunk, a stop.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/engine.h"

/* ---- Finish ---- */

/* Counts it first, so that whoever takes the terminal chunk finds that done. */
static void finish_request(weir_engine *engine, weir__slot *slot)
{
    int64_t now = weir__clock_now_ns();
    weir__salt *salt = slot->request->salt;
    weir__slot_settle(slot, &engine->scratch);
    weir__account_finish(engine, slot, now);
    weir_slot_state state = slot->state;
    slot->state = WEIR_SLOT_IDLE;
    weir__account_publish(engine);
    slot->state = state;
    weir__slot_finish(slot, now);
    weir__shared_end(&engine->shared, salt);
}

static void finish_slot(weir_engine *engine, weir__slot *slot)
{
    weir__prefix_keep(engine, slot);
    weir__lanes_leave(engine, slot);
    weir__suspend_reset(engine);
    weir__rates_finished(&engine->rates, weir__clock_now_ns() - slot->admit_ns);
    finish_request(engine, slot);
}

/* Ends a request that is not in the queue any more, and in no slot: what it has is given as from one. */
static void finish_queued(weir_engine *engine, weir__request *request, weir_reason reason)
{
    weir__slot slot;
    weir__slot_init(&slot, -1);
    engine->counts.n_suspended -= request->progress.admit_ns != 0;
    weir__suspend_drop(engine, request);
    weir__slot_start(&slot, request, weir__clock_now_ns());
    if (reason == WEIR_REASON_ERROR)
        weir__slot_fail(&slot, WEIR_STOPPED, NULL);
    else
        weir__slot_latch(&slot, reason);
    finish_request(engine, &slot);
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
    weir__request *over = weir__shared_take_over(&engine->shared, cancels != engine->cancels_seen, now);
    while (over != NULL) {
        weir__request *next = over->next;
        finish_queued(engine, over,
                      weir__request_cancelled(over) ? WEIR_REASON_CANCELLED : WEIR_REASON_DEADLINE);
        over = next;
    }
    engine->cancels_seen = cancels;
    weir__finish_collect_slots(engine, now);
    weir__finish_latched(engine);
}

/* ---- Stop ---- */

void weir__finish_all(weir_engine *engine)
{
    weir__request *request;
    weir__finish_collect_slots(engine, weir__clock_now_ns());
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].state != WEIR_SLOT_IDLE) weir__slot_fail(&engine->slots[i], WEIR_STOPPED, NULL);
    weir__finish_latched(engine);
    while ((request = weir__shared_pop(&engine->shared)) != NULL)
        finish_queued(engine, request,
                      weir__request_cancelled(request) ? WEIR_REASON_CANCELLED : WEIR_REASON_ERROR);
}
