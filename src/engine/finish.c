/* finish.c: how requests end: cancels and deadlines, the terminal chunk, a stop.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/finish.h"
#include "base/clock.h"
#include "engine/account.h"
#include "engine/admit.h"
#include "engine/cells.h"
#include "engine/driver.h"
#include "engine/media.h"
#include "engine/prefix.h"

/* ---- Finish ---- */

/* Publishes the counters first, so that they are up to date for a reader of the terminal chunk. */
static void finish_request(weir__driver *driver, weir__slot *slot)
{
    int64_t now = weir__clock_now_ns();
    weir__tenant *tenant = slot->request->tenant;
    weir__media_drop(driver->encoder, slot->request);
    weir__slot_settle(slot, &driver->scratch);
    weir__account_finish(&driver->account, slot, now);
    weir_slot_state state = slot->state;
    slot->state = WEIR_SLOT_IDLE;
    weir__account_publish(&driver->account);
    slot->state = state;
    weir__slot_finish(slot, now);
    weir__shared_end(driver->shared, tenant);
}

static void finish_slot(weir__driver *driver, weir__slot *slot)
{
    weir__media_leave(driver->encoder, slot);
    weir__speculate_learn(&driver->speculate, slot);
    weir__prefix_keep(&driver->prefix, &driver->lanes, slot);
    weir__lanes_leave(&driver->lanes, slot);
    weir__cells_reset(&driver->cells);
    driver->speculate.crowded = false;
    weir__rates_finished(&driver->account.rates, weir__clock_now_ns() - slot->request->admit_ns);
    finish_request(driver, slot);
}

/* Ends requests that were taken out of the queue. A slot that stands for the queue delivers their output so
 * far. `reason` is for those that were not cancelled. */
static void finish_queued(weir__driver *driver, weir__request *request, weir_reason reason)
{
    for (weir__request *next; request != NULL; request = next) {
        weir__slot slot;
        next = request->next;
        weir__slot_init(&slot, -1);
        driver->account.counts.n_suspended -= request->admit_ns != 0;
        weir__cells_forget(driver->prefix.cache, request);
        weir__slot_start(&slot, request, weir__clock_now_ns());
        if (weir__request_cancelled(request))
            weir__slot_latch(&slot, WEIR_REASON_CANCELLED);
        else if (reason == WEIR_REASON_ERROR)
            weir__slot_fail(&slot, WEIR_STOPPED, NULL);
        else
            weir__slot_latch(&slot, reason);
        finish_request(driver, &slot);
    }
}

void weir__finish_latched(weir__driver *driver)
{
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && slot->reason != WEIR_REASON_NOT_FINISHED)
            finish_slot(driver, slot);
    }
}

/* ---- Collect ---- */

void weir__finish_collect_slots(const weir__slots *slots, int64_t now)
{
    for (weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (weir__request_cancelled(slot->request)) weir__slot_latch(slot, WEIR_REASON_CANCELLED);
        if (now >= slot->request->deadline_ns) weir__slot_latch(slot, WEIR_REASON_DEADLINE);
    }
}

void weir__finish_collect(weir__driver *driver, int64_t now)
{
    uint32_t cancels = weir__waker_cancels(driver->waker);
    finish_queued(driver, weir__shared_take_over(driver->shared, cancels != driver->cancels_seen, now),
                  WEIR_REASON_DEADLINE);
    driver->cancels_seen = cancels;
    weir__finish_collect_slots(&driver->slots, now);
    weir__finish_latched(driver);
}

/* ---- Stop ---- */

void weir__finish_all(weir__driver *driver)
{
    weir__finish_collect_slots(&driver->slots, weir__clock_now_ns());
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++)
        if (slot->state != WEIR_SLOT_IDLE) weir__slot_fail(slot, WEIR_STOPPED, NULL);
    weir__finish_latched(driver);
    finish_queued(driver, weir__shared_take_all(driver->shared), WEIR_REASON_ERROR);
    weir__kv_transfers_close(&driver->shared->transfers);
}
