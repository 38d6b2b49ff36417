/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/slot.h"

#include <string.h>

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
    weir__progress *progress = &request->progress;
    slot->state = WEIR_SLOT_PREFILLING;
    slot->request = request;
    slot->n_tokens = progress->n_tokens;
    slot->n_generated = progress->n_generated;
    slot->n_past = slot->n_planned = slot->n_unbilled = slot->n_promised = 0;
    slot->row = -1;
    slot->draft.n = slot->n_drafted = slot->n_accepted = slot->n_burst = 0;
    slot->failed = WEIR_OK;
    slot->draft.text = UINT64_MAX;
    slot->n_scored = 0;
    slot->logprob_sum = progress->logprob;
    slot->reason = WEIR_REASON_NOT_FINISHED;
    memset(&slot->error, 0, sizeof slot->error);
    slot->sample_ns = 0;
    slot->admit_ns = progress->admit_ns != 0 ? progress->admit_ns : now;
    slot->first_ns = progress->first_ns;
    slot->last_ns = progress->last_ns;
    slot->n_sent = progress->n_sent;
    slot->sent_ns = progress->sent_ns;
    slot->emit = progress->emit;
    weir__emit_init(&progress->emit); /* moved */
}

weir__request *weir__slot_suspend(weir__slot *slot)
{
    weir__request *request = slot->request;
    weir__progress *progress = &request->progress;
    progress->emit = slot->emit;
    progress->n_tokens = slot->n_tokens;
    progress->n_generated = slot->n_generated;
    progress->admit_ns = slot->admit_ns;
    progress->first_ns = slot->first_ns;
    progress->last_ns = slot->last_ns;
    progress->n_sent = slot->n_sent;
    progress->sent_ns = slot->sent_ns;
    progress->logprob = slot->logprob_sum;
    weir__emit_init(&slot->emit); /* moved */
    slot->state = WEIR_SLOT_IDLE;
    slot->request = NULL;
    return request;
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

/* For one more token. */
static bool append_score(weir__slot *slot, const weir__sampled *sampled)
{
    weir__request *request = slot->request;
    size_t at = weir__slot_n_output(slot), n_top = (size_t)request->n_top;
    if (!weir__mem_grow(&request->logprob, &request->logprob_capacity, at + 1, sizeof *request->logprob))
        return false;
    request->logprob[at] = sampled->logprob;
    if (n_top == 0) return true;
    if (!weir__mem_grow(&request->top, &request->top_capacity, (at + 1) * n_top, sizeof *request->top))
        return false;
    memcpy(request->top + at * n_top, sampled->top, n_top * sizeof *sampled->top);
    return true;
}

bool weir__slot_append(weir__slot *slot, const weir__sampled *sampled)
{
    weir__request *request = slot->request;
    if (request->scored && !append_score(slot, sampled)) return false;
    if (!weir__mem_grow(&request->tokens, &request->capacity, (size_t)slot->n_tokens + 1,
                        sizeof *request->tokens))
        return false;
    request->tokens[slot->n_tokens++] = sampled->token;
    return true;
}

weir_usage weir__slot_usage(const weir__slot *slot, int64_t now)
{
    const weir__request *request = slot->request;
    return (weir_usage){
        .n_prompt = request->n_prompt,
        .n_cached = request->n_cached > 0 ? request->n_cached : 0,
        .n_generated = slot->n_generated,
        .queue_ns = slot->admit_ns - request->submit_ns,
        .ttft_ns = slot->first_ns > 0 ? slot->first_ns - request->submit_ns : 0,
        .total_ns = now - request->submit_ns,
        .miss = request->miss.miss,
        .n_drafted = request->n_drafted,
        .n_accepted = request->n_accepted,
        .logprob = slot->logprob_sum,
    };
}

void weir__slot_settle(weir__slot *slot, weir__emit_scratch *scratch)
{
    bool stopped = false;
    if (weir__emit_end(&slot->emit, scratch, slot->request, &stopped) != WEIR_OK) {
        slot->reason = WEIR_REASON_NOT_FINISHED; /* the text is not whole: that is what has to be told */
        weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
    }
    if (stopped && (slot->reason == WEIR_REASON_END || slot->reason == WEIR_REASON_LENGTH))
        slot->reason = WEIR_REASON_STOP_WORDS;
}

void weir__slot_finish(weir__slot *slot, int64_t now)
{
    weir__request *request = slot->request;
    weir__emit *emit = &slot->emit;
    weir_usage usage = weir__slot_usage(slot, now);
    weir__output output = {
        .rest = weir__emit_rest(emit, request, weir__slot_n_output(slot)),
        .n_tokens = weir__slot_n_output(slot),
    };
    output.rest.finished = true;
    output.rest.reason = slot->reason;
    if (request->result != NULL) {
        if (emit->text != NULL) emit->text[emit->n_text] = '\0'; /* add_text always leaves room for it */
        output.text = emit->text;
        output.length = emit->n_text;
        emit->text = NULL; /* passed on */
    }
    slot->state = WEIR_SLOT_IDLE;
    slot->request = NULL;
    weir__request_finish(request, &output, slot->reason == WEIR_REASON_ERROR ? &slot->error : NULL, &usage);
    weir__emit_fini(emit);
}
