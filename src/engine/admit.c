/* admit.c: from the queue into a slot.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "engine/account.h"
#include "engine/admit.h"
#include "engine/driver.h"
#include "engine/prefix.h"
#include "engine/suspend.h"

static weir__slot *idle_slot(weir__driver *driver)
{
    for (int32_t i = 0; i < driver->params->n_slots; i++)
        if (driver->slots[i].state == WEIR_SLOT_IDLE) return &driver->slots[i];
    return NULL;
}

/* Whether the request fits beside the slots that it would not suspend; those that it would are counted as
 * gone when `turns`. Alone it always fits: it is in the engine's limits. */
static bool request_fits(weir__driver *driver, const weir__request *request, bool turns, int64_t now)
{
    int64_t cells = 0;
    int32_t n = 0;
    memset(driver->wanted, 0, (size_t)driver->info.n_seq_max * sizeof *driver->wanted);
    for (int32_t i = 0; i < driver->params->n_slots; i++) {
        const weir__slot *slot = &driver->slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (turns && weir__queue_outranks(request, slot->request, weir__ageing_ns(driver->params), now))
            continue;
        if (slot->lane >= 0) driver->wanted[slot->lane] = true;
        cells += weir__suspend_cells_wanted(slot->request, slot->n_tokens) - weir__slot_n_there(slot);
        n++;
    }
    if (n == driver->params->n_slots) return false;
    cells += weir__memory_count(&driver->memory, driver->wanted);
    return n == 0 ||
           cells + weir__suspend_cells_wanted(request, request->progress.n_tokens) <= driver->n_room;
}

static void start_request(weir__driver *driver, weir__request *request)
{
    weir__slot *slot = idle_slot(driver);
    int64_t now = weir__clock_now_ns(); /* not the tick's time: the request may have come since */
    bool resumed = request->progress.admit_ns != 0;
    weir__shared_admit(driver->shared, request, resumed, now);
    weir__slot_start(slot, request, now);
    weir__turn_enter(&driver->turn, slot);
    weir__prefix_start(driver, slot);
    weir__account_admit(&driver->account, slot, resumed);
}

/* The lowest priority in a slot; INT32_MAX without any. */
static int32_t lowest_priority(const weir__driver *driver)
{
    int32_t lowest = INT32_MAX;
    for (int32_t i = 0; i < driver->params->n_slots; i++) {
        const weir__slot *slot = &driver->slots[i];
        if (slot->state != WEIR_SLOT_IDLE && slot->request->priority < lowest)
            lowest = slot->request->priority;
    }
    return lowest;
}

/* Who goes next and fits. It is not overtaken by what would fit, or it might wait for ever; only by what
 * outranks a running request, whose place is nobody else's. */
static weir__request *choose_request(weir__driver *driver, int64_t now)
{
    weir__request *request = NULL;
    int64_t ageing_ns = weir__ageing_ns(driver->params);
    if (idle_slot(driver) != NULL &&
        (request = weir__shared_next(driver->shared, INT32_MIN, ageing_ns, now)) != NULL &&
        request_fits(driver, request, false, now))
        return request;
    request = weir__shared_next(driver->shared, lowest_priority(driver), ageing_ns, now);
    if (request == NULL || !request_fits(driver, request, true, now)) return NULL;
    while (idle_slot(driver) == NULL || !request_fits(driver, request, false, now))
        weir__suspend(driver,
                      weir__suspend_victim(driver->slots, driver->params->n_slots, request, ageing_ns, now));
    return request;
}

void weir__admit(weir__driver *driver, int64_t now)
{
    weir__request *request;
    bool admitted = false;
    while ((request = choose_request(driver, now)) != NULL) {
        admitted = true;
        start_request(driver, request);
    }
    if (admitted)
        weir__account_publish(driver); /* a pass may take long: else they were neither here nor there */
}
