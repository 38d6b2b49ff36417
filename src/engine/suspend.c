/* suspend.c: out of a slot, back into the queue, and into a slot again: when cells run out, or another's
 * priority is higher. The request's reader notices a pause only. SPDX-License-Identifier: Apache-2.0 */
#include "engine/suspend.h"

#include "base/mem.h"
#include "engine/account.h"
#include "engine/driver.h"
#include "engine/lanes.h"
#include "engine/prefix.h"

/* ---- Saving ---- */

/* Saves the slot's cells if memory and budget allow it. Else they are computed again. */
static void save_slot(weir__memory *memory, weir__cache *cache, const weir__slot *slot)
{
    weir__progress *progress = &slot->request->progress;
    if (slot->lane < 0) return;
    size_t length = weir__memory_state_size(memory, slot->lane);
    if (length == 0 || !weir__cache_claim(cache, length)) return;
    void *state = weir__mem_alloc(length);
    size_t saved = state != NULL ? weir__memory_save(memory, slot->lane, state, length) : 0;
    if (saved == 0) {
        weir__mem_free(state);
        weir__cache_unclaim(cache, length);
        return;
    }
    progress->state = state;
    progress->length = length;
    progress->n_bytes = saved;
    progress->n_past = slot->n_past;
}

void weir__suspend_drop(weir__cache *cache, weir__request *request)
{
    weir__progress *progress = &request->progress;
    if (progress->state != NULL) weir__cache_unclaim(cache, progress->length);
    weir__mem_free(progress->state);
    progress->state = NULL;
    progress->length = 0;
    progress->n_past = 0;
}

void weir__suspend_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot)
{
    const weir__progress *progress = &slot->request->progress;
    if (progress->state != NULL && weir__memory_load(memory, slot->lane, progress->state, progress->n_bytes,
                                                     progress->n_past, NULL) == WEIR_OK)
        slot->n_past = progress->n_past;
    weir__suspend_drop(cache, slot->request);
    if (slot->n_generated > 0 && slot->n_past == slot->n_tokens - 1) slot->state = WEIR_SLOT_GENERATING;
}

void weir__suspend(weir__driver *driver, weir__slot *slot)
{
    weir__account_suspend(&driver->account, slot);
    save_slot(&driver->memory, driver->cache, slot);
    weir__prefix_leave(&driver->prefix, slot);
    weir__lanes_leave(&driver->lanes, slot);
    weir__shared_requeue(driver->shared, weir__slot_suspend(slot));
}

/* ---- Cells ---- */

weir__slot *weir__suspend_victim(weir__slot *slots, int32_t n_slots, const weir__request *by,
                                 int64_t ageing_ns, int64_t now)
{
    weir__slot *victim = NULL;
    for (int32_t i = 0; i < n_slots; i++) {
        weir__slot *slot = &slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        const weir__request *request = slot->request;
        if (by != NULL && !weir__queue_outranks(by, request, ageing_ns, now)) continue;
        if (victim == NULL || request->priority < victim->request->priority ||
            (request->priority == victim->request->priority && request->serial > victim->request->serial))
            victim = slot;
    }
    return victim;
}

static int32_t count_active(const weir__driver *driver)
{
    int32_t n = 0;
    for (int32_t i = 0; i < driver->params->n_slots; i++) n += driver->slots[i].state != WEIR_SLOT_IDLE;
    return n;
}

bool weir__suspend_relieve(weir__driver *driver, int64_t now)
{
    bool suspended = false;
    while (weir__room_left(&driver->room) < 0) {
        if (weir__room_evict(&driver->room)) continue;
        if (count_active(driver) < 2) break;
        weir__suspend(driver, weir__suspend_victim(driver->slots, driver->params->n_slots, NULL, 0, now));
        suspended = true;
    }
    if (suspended) weir__account_publish(driver);
    return suspended;
}
