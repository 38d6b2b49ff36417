/* media.c: gives slots the embeddings of their next image or sound, and has those of later ones encoded
 * ahead.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/media.h"

#include "base/error.h"
#include "base/mem.h"
#include "engine/driver.h"
#include "engine/prefix.h"

/* ---- For slots ---- */

void weir__media_leave(weir__encoder *encoder, weir__slot *slot)
{
    if (slot->embedding != NULL) weir__encoder_leave(encoder, slot->embedding);
    slot->embedding = NULL;
    slot->span = NULL;
    slot->next = WEIR__NEXT_TOKEN;
}

/* Releases the embeddings encoded ahead for the request's first n spans. */
static void drop_first_ahead(weir__encoder *encoder, weir__request *request, int32_t n)
{
    for (int32_t i = 0; request->ahead != NULL && i < n; i++) {
        if (request->ahead[i] != NULL) weir__encoder_leave(encoder, request->ahead[i]);
        request->ahead[i] = NULL;
    }
}

void weir__media_drop(weir__encoder *encoder, weir__request *request)
{
    drop_first_ahead(encoder, request, request->history.n_spans);
    weir__mem_free(request->ahead);
    request->ahead = NULL;
}

/* The embedding of a span, held for the slot; NULL: out of memory. */
static weir__embedding *want_embedding(weir__encoder *encoder, weir__request *request,
                                       const weir__media_span *span)
{
    const weir__history *history = &request->history;
    weir__embedding **ahead = request->ahead != NULL ? &request->ahead[span - history->spans] : NULL;
    if (ahead == NULL || *ahead == NULL) return weir__encoder_want(encoder, history, span);
    weir__embedding *taken = *ahead;
    *ahead = NULL;
    weir__encoder_need(encoder, taken);
    return taken;
}

/* False: the slot has failed. */
static bool collect_slot(weir__encoder *encoder, weir__slot *slot)
{
    const weir__history *history = &slot->request->history;
    const weir__media_span *span =
        slot->state == WEIR_SLOT_PREFILLING ? weir__history_span(history, slot->n_past) : NULL;
    weir_error error = {0};
    if (slot->span != span) weir__media_leave(encoder, slot);
    if (span == NULL) {
        if (slot->state != WEIR_SLOT_JOINED) weir__media_drop(encoder, slot->request);
        return true;
    }
    if (slot->embedding == NULL) {
        drop_first_ahead(encoder, slot->request, (int32_t)(span - history->spans));
        slot->embedding = want_embedding(encoder, slot->request, span);
    }
    slot->span = span;
    weir_status status = slot->embedding != NULL ? weir__encoder_state(encoder, slot->embedding, &error)
                                                 : weir__error_set(&error, WEIR_NO_MEMORY, "media",
                                                                   "out of memory for embeddings");
    if (status != WEIR_OK && status != WEIR_TIMEOUT) {
        weir__slot_fail(slot, status, &error);
        return false;
    }
    if (slot->n_past < span->at)
        slot->next = WEIR__NEXT_TOKEN;
    else
        slot->next = status == WEIR_OK ? WEIR__NEXT_SEGMENT : WEIR__NEXT_AWAITED;
    return true;
}

bool weir__media_collect(weir__encoder *encoder, const weir__slots *slots)
{
    bool failed = false;
    if (encoder == NULL) return false;
    for (weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && (slot->request->history.n_spans > 0 || slot->span != NULL))
            failed |= !collect_slot(encoder, slot);
    }
    return failed;
}

/* ---- Ahead of slots ---- */

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
