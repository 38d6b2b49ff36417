/* suspend.c: suspends requests when cells run out or a request of higher priority preempts them, and restores
 * their states. Their readers only see a pause.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/suspend.h"

#include "base/mem.h"
#include "engine/account.h"
#include "engine/driver.h"
#include "engine/lanes.h"
#include "engine/media.h"

/* ---- Saving ---- */

/* Saves the slot's cells if memory and budget allow it. Otherwise they are computed again. */
static void save_slot(weir__memory *memory, weir__cache *cache, const weir__slot *slot)
{
    if (slot->lane < 0) return;
    size_t length = weir__memory_state_size(memory, slot->lane);
    if (length == 0 || !weir__cache_claim(cache, length)) return;
    weir__saved *saved = &slot->request->saved;
    *saved = (weir__saved){.state = weir__mem_alloc(length), .claimed = length, .n_past = slot->n_past};
    if (saved->state != NULL) saved->n_bytes = weir__memory_save(memory, slot->lane, saved->state, length);
    if (saved->n_bytes == 0) weir__suspend_drop(cache, slot->request);
}

void weir__suspend_drop(weir__cache *cache, weir__request *request)
{
    weir__cache_unclaim(cache, request->saved.claimed);
    weir__mem_free(request->saved.state);
    request->saved = (weir__saved){0};
}

void weir__suspend_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot)
{
    const weir__saved *saved = &slot->request->saved;
    if (saved->state != NULL &&
        weir__memory_load(memory, slot->lane, saved->state, saved->n_bytes, saved->n_past, NULL) == WEIR_OK)
        slot->n_past = saved->n_past;
    weir__suspend_drop(cache, slot->request);
}

void weir__suspend(weir__driver *driver, weir__slot *slot)
{
    weir__account_suspend(&driver->account, slot);
    save_slot(&driver->memory, driver->prefix.cache, slot);
    weir__cache_end(driver->prefix.cache, &slot->live);
    weir__media_leave(driver->encoder, slot);
    weir__lanes_leave(&driver->lanes, slot);
    weir__shared_requeue(driver->shared, slot->request);
    weir__slot_init(slot, slot->index);
}

/* ---- Cells ---- */

weir__slot *weir__suspend_victim(const weir__slots *slots, const weir__request *by, int64_t now)
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

bool weir__suspend_relieve(weir__driver *driver, int64_t now)
{
    bool suspended = false;
    while (weir__cells_left(&driver->cells) < 0) {
        if (weir__cells_evict(&driver->cells)) continue;
        if (weir__slot_count_active(&driver->slots) < 2) break;
        weir__suspend(driver, weir__suspend_victim(&driver->slots, NULL, now));
        suspended = true;
    }
    if (suspended) weir__account_publish(&driver->account);
    return suspended;
}
