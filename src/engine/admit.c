/* admit.c: which requests have slots. Takes requests out of the queue, suspends them when cells run out or a
 * request of higher priority preempts them (their readers only see a pause), and ends them: naturally, by a
 * cancel, a deadline or a stop. What waits may have its images and sounds encoded ahead.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/account.h"
#include "engine/cells.h"
#include "engine/driver.h"
#include "engine/prefix.h"
#include "engine/slot.h"

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

/* ---- Ends ---- */

/* Publishes the counters and frees the place first, so that both hold for a reader of the terminal chunk. */
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
    weir__shared_leave(driver->shared);
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

/* ---- Cancels and deadlines ---- */

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

/* ---- Images and sounds of requests that wait ---- */

static bool has_more(const weir__request *request)
{
    return request->n_ahead < request->history.n_spans;
}

/* The request whose media are encoded next: the oldest of those in slots, else the next one of the queue.
 * *n_there: cells that are already computed. NULL: no request has media left to encode. */
static weir__request *next_request(const weir__driver *driver, int64_t now, int32_t *n_there)
{
    const weir__slot *first = NULL;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && has_more(slot->request) &&
            (first == NULL || slot->request->serial < first->request->serial))
            first = slot;
    }
    if (first != NULL) {
        *n_there = first->span != NULL ? first->span->end : weir__slot_n_there(first);
        return first->request;
    }
    weir__request *request = weir__shared_next(driver->shared, UINT64_MAX, INT32_MIN, has_more, now);
    if (request == NULL) return NULL;
    *n_there = request->saved.n_past;
    if (request->ahead == NULL && request->saved.state == NULL)
        *n_there = weir__prefix_known(&driver->prefix, driver->shared, request);
    return request;
}

void weir__media_look_ahead(weir__driver *driver, int64_t now)
{
    weir__request *request;
    int32_t n_there;
    if (driver->encoder == NULL) return;
    while (weir__encoder_is_idle(driver->encoder) &&
           (request = next_request(driver, now, &n_there)) != NULL) {
        const weir__history *history = &request->history;
        while (has_more(request) && history->spans[request->n_ahead].end <= n_there) request->n_ahead++;
        if (!has_more(request)) continue;
        if (request->ahead == NULL)
            request->ahead = weir__mem_calloc((size_t)history->n_spans, sizeof(weir__embedding *));
        if (request->ahead == NULL) return;
        weir__embedding *embedding =
            weir__encoder_want_ahead(driver->encoder, history, &history->spans[request->n_ahead]);
        if (embedding == NULL) return;
        request->ahead[request->n_ahead++] = embedding;
    }
}
