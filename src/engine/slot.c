/* slot.c: a running request's state, whose turn it is, and the images and sounds that it needs
 * next.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/slot.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

void weir__slot_init(weir__slot *slot, int32_t index)
{
    memset(slot, 0, sizeof *slot);
    slot->index = index;
    slot->lane = -1;
    slot->row = -1;
    slot->draft.text = UINT64_MAX;
}

void weir__slot_start(weir__slot *slot, weir__request *request, int64_t now)
{
    weir__slot_init(slot, slot->index);
    slot->state = WEIR_SLOT_PREFILLING;
    slot->request = request;
    if (request->admit_ns != 0) slot->pace.outranked_ns = now; /* it was suspended for another one */
    if (request->admit_ns == 0) request->admit_ns = now;
}

int32_t weir__slot_count_active(const weir__slots *slots)
{
    int32_t n = 0;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++) n += slot->state != WEIR_SLOT_IDLE;
    return n;
}

bool weir__slot_awaits(const weir__slots *slots, const weir__slot *slot)
{
    while (slot->state == WEIR_SLOT_JOINED &&
           slot->leader >= 0) { /* a leader that waits is an older request */
        const weir__slot *leader = &slots->first[slot->leader];
        if (leader->state == WEIR_SLOT_IDLE || leader->request->serial != slot->leader_serial) return false;
        slot = leader;
    }
    return slot->next == WEIR__NEXT_AWAITED || weir__slot_awaits_file(slot);
}

static int64_t earlier_deadline(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t weir__slot_deadline(const weir__slots *slots)
{
    int64_t deadline = WEIR__CLOCK_NEVER;
    bool awaits = false;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        awaits |= weir__slot_awaits(slots, slot);
        deadline = earlier_deadline(deadline, slot->request->deadline_ns);
        if (weir__slot_awaits_file(slot)) deadline = earlier_deadline(deadline, slot->wait.due_ns);
    }
    return awaits ? deadline : 0;
}

void weir__slot_latch(weir__slot *slot, weir_reason reason)
{
    if (slot->reason == WEIR_REASON_NOT_FINISHED) slot->reason = reason;
}

void weir__slot_fail(weir__slot *slot, weir_status status, const weir_error *error)
{
    if (slot->reason != WEIR_REASON_NOT_FINISHED) return;
    slot->reason = WEIR_REASON_ERROR;
    if (error != NULL && error->code != WEIR_OK)
        slot->error = *error;
    else
        weir__error_set(&slot->error, status, "", "%s", weir_status_text(status));
}

static bool append_score(weir__request *request, const weir__sampled *sampled)
{
    size_t at = weir__request_n_output(request), n_top = (size_t)request->n_top;
    if (!weir__mem_grow(&request->logprob, &request->logprob_capacity, at + 1, sizeof *request->logprob))
        return false;
    request->logprob[at] = sampled->logprob;
    if (request->emit.stop != NULL) {
        if (!weir__mem_grow(&request->text_at, &request->text_at_capacity, at + 1, sizeof *request->text_at))
            return false;
        request->text_at[at] = request->emit.n_made;
    }
    if (n_top == 0) return true;
    if (!weir__mem_grow(&request->top, &request->top_capacity, (at + 1) * n_top, sizeof *request->top))
        return false;
    memcpy(request->top + at * n_top, sampled->top, n_top * sizeof *sampled->top);
    return true;
}

bool weir__slot_append(weir__slot *slot, const weir__sampled *sampled)
{
    weir__request *request = slot->request;
    if (request->scored && !append_score(request, sampled)) return false;
    return weir__history_add(&request->history, &sampled->token, 1);
}

void weir__slot_settle(weir__slot *slot, weir__emit_scratch *scratch)
{
    bool stopped = false;
    if (weir__emit_end(&slot->request->emit, scratch, &stopped) != WEIR_OK) {
        slot->reason = WEIR_REASON_NOT_FINISHED; /* text is missing, which matters more than any other end */
        weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
    }
    if (stopped && (slot->reason == WEIR_REASON_END || slot->reason == WEIR_REASON_LENGTH))
        slot->reason = WEIR_REASON_STOP_WORDS;
}

void weir__slot_finish(weir__slot *slot, int64_t now)
{
    weir__request *request = slot->request;
    weir__emit *emit = &request->emit;
    weir_usage usage = weir__request_usage(request, now);
    weir__output output = {
        .rest = weir__request_rest(request),
        .n_tokens = weir__request_n_output(request),
    };
    output.rest.finished = true;
    output.rest.reason = slot->reason;
    if (slot->reason != WEIR_REASON_STOP_WORDS) output.rest.n_hidden = 0; /* what was held back is there */
    if (request->result != NULL) {
        if (emit->text.bytes != NULL)
            emit->text.bytes[emit->text.n] = '\0'; /* emit_text always leaves room for it */
        output.text = emit->text.bytes;
        output.length = emit->text.n;
        emit->text = (weir__text){0}; /* passed on */
    }
    slot->state = WEIR_SLOT_IDLE;
    slot->request = NULL;
    weir__request_finish(request, &output, slot->reason == WEIR_REASON_ERROR ? &slot->error : NULL, &usage);
}

/* ---- Turns of adapters ---- */

static bool slot_has_work(const weir__slot *slot)
{
    return (slot->state == WEIR_SLOT_PREFILLING || slot->state == WEIR_SLOT_GENERATING) &&
           slot->next != WEIR__NEXT_AWAITED;
}

static bool is_same_set(const weir__slot *a, const weir__slot *b)
{
    return a->next == b->next && (a->next == WEIR__NEXT_SEGMENT ||
                                  a->request->history.adapters.key == b->request->history.adapters.key);
}

/* True if the slot is the first one from `from` on that has work with its set. */
static bool is_first(const weir__slot *from, const weir__slot *slot)
{
    for (const weir__slot *other = from; other < slot; other++)
        if (slot_has_work(other) && is_same_set(other, slot)) return false;
    return true;
}

/* The slot with a segment whose request is the oldest: its image is complete first. */
static const weir__slot *oldest_segment(const weir__slots *slots)
{
    const weir__slot *oldest = NULL;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++)
        if (slot_has_work(slot) && slot->next == WEIR__NEXT_SEGMENT &&
            (oldest == NULL || slot->request->serial < oldest->request->serial))
            oldest = slot;
    return oldest;
}

void weir__turns_choose(weir__turns *turns, const weir__slots *slots)
{
    const weir__slot *next = NULL, *first = NULL; /* first: with work */
    turns->n_sets = 0;
    turns->segment = -1;
    for (const weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (!slot_has_work(slot)) continue;
        if (first == NULL) first = slot;
        turns->n_sets += is_first(first, slot);
        if (next == NULL || slot->served < next->served) next = slot;
    }
    if (next == NULL) return;
    if (next->next == WEIR__NEXT_SEGMENT) {
        next = oldest_segment(slots);
        turns->segment = next->index;
    }
    turns->key = next->request->history.adapters.key;
}

void weir__turns_pass(weir__turns *turns, const weir__slots *slots)
{
    for (weir__slot *slot = slots->first; slot < slots->end; slot++)
        if (slot->state != WEIR_SLOT_IDLE &&
            (turns->segment >= 0 ? slot->next == WEIR__NEXT_SEGMENT : weir__turns_has(turns, slot)))
            slot->served = turns->stamp;
    turns->stamp++;
}

/* ---- Images and sounds ---- */

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
