/* admit.c: which requests have slots. Takes requests out of the queue, suspends them when cells run out or a
 * request of higher priority preempts them. Their readers only see a pause.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/admit.h"

#include "base/mem.h"
#include "engine/account.h"
#include "engine/cells.h"
#include "engine/driver.h"
#include "engine/media.h"
#include "engine/reuse.h"

/* ---- Suspending ---- */

/* Saves the cells of the slot's request if possible, frees them, and puts the request into the queue. */
static void suspend_slot(weir__driver *driver, weir__slot *slot)
{
    weir__account_suspend(&driver->account, slot);
    weir__cells_save(&driver->memory, driver->prefix.cache, slot);
    weir__cache_end(driver->prefix.cache, &slot->live);
    weir__media_leave(driver->encoder, slot);
    weir__lanes_leave(&driver->lanes, slot);
    weir__shared_requeue(driver->shared, slot->request);
    weir__slot_init(slot, slot->index);
}

/* The slot to suspend first: the youngest of the lowest priority among those that `by` outranks (NULL: among
 * all). */
static weir__slot *choose_victim(const weir__slots *slots, const weir__request *by, int64_t now)
{
    weir__slot *victim = NULL;
    for (weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        const weir__request *request = slot->request;
        if (by != NULL && !weir__queue_outranks(by, request, now)) continue;
        if (victim == NULL || request->priority < victim->request->priority ||
            (request->priority == victim->request->priority && request->serial > victim->request->serial))
            victim = slot;
    }
    return victim;
}

bool weir__admit_relieve(weir__driver *driver, int64_t now)
{
    bool suspended = false;
    while (weir__cells_left(&driver->cells) < 0) {
        if (weir__cells_evict(&driver->cells)) continue;
        if (weir__slot_count_active(&driver->slots) < 2) break;
        suspend_slot(driver, choose_victim(&driver->slots, NULL, now));
        suspended = true;
    }
    if (suspended) weir__account_publish(&driver->account);
    return suspended;
}

/* ---- Admission ---- */

static weir__slot *idle_slot(const weir__slots *slots)
{
    for (weir__slot *slot = slots->first; slot < slots->end; slot++)
        if (slot->state == WEIR_SLOT_IDLE) return slot;
    return NULL;
}

/* Gives the request a slot, at the time of the tick, which a replay repeats, or of the request, if it arrived
 * while the tick began. */
static void start_request(weir__driver *driver, weir__request *request, int64_t now)
{
    weir__slot *slot = idle_slot(&driver->slots);
    if (now < request->submit_ns) now = request->submit_ns;
    bool resumed = request->admit_ns != 0;
    weir__shared_admit(driver->shared, request, resumed, now);
    weir__slot_start(slot, request, now);
    weir__turns_enter(&driver->turns, slot);
    weir__reuse_start(driver, slot);
    weir__account_admit(&driver->account, slot, resumed);
}

/* The lowest priority of a running request; INT32_MAX = none runs. */
static int32_t lowest_priority(const weir__slots *slots)
{
    int32_t lowest = INT32_MAX;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && slot->request->priority < lowest)
            lowest = slot->request->priority;
    }
    return lowest;
}

/* The next request of the queue, if it fits. A smaller one that would fit must not overtake it, or it might
 * wait forever. The exception is a request that preempts a running one: no other could take that slot. */
static weir__request *choose_request(weir__driver *driver, int64_t now)
{
    weir__request *request = NULL;
    weir__shared *shared = driver->shared;
    const weir__slots *slots = &driver->slots;
    if (idle_slot(slots) != NULL &&
        (request = weir__shared_next(shared, shared->n_seen, INT32_MIN, NULL, now)) != NULL &&
        weir__cells_fits(&driver->cells, request, false, now))
        return request;
    request = weir__shared_next(shared, shared->n_seen, lowest_priority(slots), NULL, now);
    if (request == NULL || !weir__cells_fits(&driver->cells, request, true, now)) return NULL;
    while (idle_slot(slots) == NULL || !weir__cells_fits(&driver->cells, request, false, now))
        suspend_slot(driver, choose_victim(slots, request, now));
    return request;
}

void weir__admit(weir__driver *driver, int64_t now)
{
    weir__request *request;
    bool admitted = false;
    weir__shared_see(driver->shared);
    while ((request = choose_request(driver, now)) != NULL) {
        admitted = true;
        start_request(driver, request, now);
    }
    if (admitted) weir__account_publish(&driver->account); /* now, because a pass may take long */
}
