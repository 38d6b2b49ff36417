/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/lookahead.h"

#include "base/mem.h"
#include "engine/driver.h"
#include "engine/prefix.h"

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

void weir__lookahead(weir__driver *driver, int64_t now)
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
