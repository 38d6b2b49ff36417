/* account.c: counters, histograms and the record of the last ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/account.h"

#include "base/histogram.h"
#include "base/mem.h"

bool weir__account_init(weir__account *account)
{
    account->planned = weir__mem_calloc((size_t)account->counts.n_slots, sizeof *account->planned);
    if (account->planned == NULL) return false;
    for (int32_t i = 0; i < account->counts.n_slots; i++) account->planned[i].slot = -1;
    return true;
}

void weir__account_fini(weir__account *account)
{
    weir__mem_free(account->planned);
    account->planned = NULL;
}

/* ---- Counters ---- */

/* The mutex is held. */
static void publish_running(const weir__account *account)
{
    weir__shared *shared = account->shared;
    shared->n_running = 0;
    for (const weir__slot *slot = account->slots.first; slot < account->slots.end; slot++) {
        const weir__request *request = slot->request;
        if (request == NULL || slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        shared->running[shared->n_running++] = (weir__running){
            .priority = request->priority,
            .n_past = slot->n_past,
            .n_prompt = weir__slot_flows(slot) ? 0 : request->history.n_tokens - slot->n_past,
            .n_answer = request->max_tokens - request->n_generated,
        };
    }
}

void weir__account_publish(weir__account *account)
{
    weir_engine_stats *counts = &account->counts;
    counts->n_slots_prefilling = counts->n_slots_generating = 0;
    for (const weir__slot *slot = account->slots.first; slot < account->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        bool flows = weir__slot_flows(slot);
        counts->n_slots_prefilling += !flows;
        counts->n_slots_generating += flows;
    }
    int64_t reserved = weir__cells_reserved(account->cells);
    weir__cache_counts cached = weir__cache_count(account->cells->cache);
    counts->n_kv_used = account->cells->memory->n_used;
    counts->n_kv_cached = counts->n_kv_used - weir__cells_held(account->cells);
    counts->cache_bytes = cached.n_bytes;
    counts->n_cache_entries = cached.n_device + cached.n_host;
    counts->n_evicted = cached.n_evicted;
    counts->n_cache_files = cached.n_disk;
    counts->cache_disk_bytes = cached.disk_bytes;
    counts->n_cache_restored = cached.n_restored;
    weir__encoder_counts encoded = weir__encoder_count(account->encoder);
    counts->n_encodes = encoded.n_encodes;
    counts->n_encodes_saved = encoded.n_saved;
    counts->encode_ns = encoded.encode_ns;
    counts->embedding_bytes = encoded.n_bytes;
    const weir__backend *ops = account->model->ops;
    if (ops->grammar_bytes != NULL) counts->grammar_bytes = ops->grammar_bytes(account->model->model);
    counts->n_kv_reserved = (int32_t)(reserved < counts->n_kv ? reserved : counts->n_kv);
    counts->retry_ns = weir__rates_retry_ns(&account->rates, account->counts.n_slots, 1);
    weir__shared *shared = account->shared;
    pthread_mutex_lock(&shared->mutex);
    for (weir__slot *slot = account->slots.first; slot < account->slots.end; slot++) {
        if (slot->request == NULL || slot->n_unbilled == 0) continue; /* also one that is about to end */
        weir__tenant_bill(slot->request->tenant, slot->n_unbilled, account->tick.start_ns);
        slot->n_unbilled = 0;
    }
    publish_running(account);
    account->rates.cost = weir__cost_get(account->cost);
    shared->rates = account->rates;
    counts->n_submitted = shared->stats.n_submitted;
    counts->n_refused = shared->stats.n_refused;
    counts->queue_depth = shared->queue.n;
    shared->stats = *counts;
    pthread_mutex_unlock(&shared->mutex);
}

static double to_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

void weir__account_token(weir__account *account, const weir__request *request)
{
    account->counts.n_generated_tokens++;
    if (request->n_generated == 1)
        weir__histogram_observe(&account->counts.ttft_seconds,
                                to_seconds(request->first_ns - request->submit_ns));
}

/* A chunk of n tokens, which is not the request's first. */
static void count_gap(weir__account *account, const weir__request *request, size_t n, int64_t now)
{
    double gap = to_seconds(now - request->sent_ns);
    weir__histogram_observe(&account->counts.itl_seconds, gap);
    if (n > 0) weir__histogram_add(&account->counts.tpot_seconds, gap / (double)n, n);
}

void weir__account_chunk(weir__account *account, weir__request *request, int64_t now)
{
    size_t n = request->emit.sent_tokens - request->n_sent;
    if (n == 0) return;
    if (request->n_sent > 0) count_gap(account, request, n, now);
    request->n_sent = request->emit.sent_tokens;
    request->sent_ns = now;
}

static void count_end(weir__account *account, weir_reason reason, weir_slot_state state)
{
    weir_engine_stats *counts = &account->counts;
    counts->n_finished[reason]++;
    if (reason != WEIR_REASON_CANCELLED) return;
    counts->n_cancelled_queued += state == WEIR_SLOT_IDLE;
    counts->n_cancelled_prefilling += state == WEIR_SLOT_PREFILLING || state == WEIR_SLOT_JOINED;
    counts->n_cancelled_generating += state == WEIR_SLOT_GENERATING;
}

/* ---- The record ---- */

void weir__account_begin(weir__account *account, int64_t start)
{
    /* Parts added since the last tick belong to this one. */
    account->tick = (weir_tick){
        .serial = account->tick.serial,
        .start_ns = start,
        .first_slot = account->tick.first_slot,
    };
    account->n_failed = account->counts.n_failed_ticks;
    account->n_abandoned = account->counts.n_abandoned_ticks;
}

static weir_slot_state slot_state(const weir__slot *slot)
{
    return slot->index < 0 ? WEIR_SLOT_IDLE : slot->state;
}

static weir_tick_slot part_of(const weir__account *account, const weir__slot *slot)
{
    const weir__request *request = slot->request;
    return (weir_tick_slot){
        .tick = account->tick.serial,
        .request = request->serial,
        .slot = slot->index,
        .state = slot_state(slot),
        .n_tokens = slot->n_planned,
        .n_past = slot->n_past,
        .n_prompt = request->history.n_prompt,
        .n_cached = request->n_cached > 0 ? request->n_cached : 0,
        .n_generated = request->n_generated,
        .n_drafted = slot->n_drafted,
    };
}

void weir__account_plan(weir__account *account, const weir__shape *shape, int32_t n_batch)
{
    for (const weir__slot *slot = account->slots.first; slot < account->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        account->planned[slot->index] = part_of(account, slot);
    }
    account->tick.n_arrived = account->shared->n_seen;
    account->tick.n_passes = shape->n_passes;
    weir__histogram_observe(&account->counts.batch_tokens, n_batch);
    weir__histogram_observe(&account->counts.passes, shape->n_passes);
}

/* The mutex is held. */
static void add_part(weir__shared *shared, weir_tick_slot *part)
{
    part->serial = shared->parts.n;
    weir__ring_add(&shared->parts, part);
}

/* Records an event outside of a plan. It is complete at once. */
static void add_event(weir__shared *shared, weir_tick_slot part)
{
    part.n_tokens = part.n_drafted = part.n_accepted = 0;
    pthread_mutex_lock(&shared->mutex);
    add_part(shared, &part);
    pthread_mutex_unlock(&shared->mutex);
}

void weir__account_admit(weir__account *account, const weir__slot *slot, bool resumed)
{
    weir_engine_stats *counts = &account->counts;
    const weir__request *request = slot->request;
    if (!resumed) {
        weir__histogram_observe(&counts->queue_seconds, to_seconds(request->admit_ns - request->submit_ns));
        return;
    }
    counts->n_resumes++;
    counts->n_suspended--;
    weir_tick_slot part = part_of(account, slot);
    part.resumed = true;
    add_event(account->shared, part);
}

void weir__account_suspend(weir__account *account, const weir__slot *slot)
{
    weir_tick_slot part = part_of(account, slot);
    part.suspended = true;
    account->counts.n_suspensions++;
    account->counts.n_suspended++;
    add_event(account->shared, part);
}

void weir__account_finish(weir__account *account, const weir__slot *slot, int64_t now)
{
    const weir__request *request = slot->request;
    weir_tick_slot *planned = slot->index < 0 ? NULL : &account->planned[slot->index];
    bool in_plan = planned != NULL && planned->slot >= 0;
    weir_tick_slot part = in_plan ? *planned : part_of(account, slot);
    count_end(account, slot->reason, slot->index < 0 ? WEIR_SLOT_IDLE : weir__slot_shown(slot));
    /* A terminal chunk with text counts, too. After a cancel or an error nobody was waiting for the text. */
    if (request->n_sent > 0 && request->emit.text.n > request->emit.sent_text &&
        (slot->reason == WEIR_REASON_END || slot->reason == WEIR_REASON_LENGTH ||
         slot->reason == WEIR_REASON_STOP_WORDS))
        count_gap(account, request, weir__request_n_output(request) - request->n_sent, now);
    part.n_generated = request->n_generated;
    part.n_accepted = slot->n_accepted;
    part.reason = slot->reason;
    part.end_ns = now;
    if (in_plan)
        *planned = part;
    else
        add_event(account->shared, part);
}

static void add_tick(weir__account *account, const weir_report *report)
{
    weir__shared *shared = account->shared;
    weir_tick *tick = &account->tick;
    tick->decode_ns = report->decode_ns;
    tick->tick_ns = report->tick_ns;
    tick->n_prefill = report->n_prefill;
    tick->n_decode = report->n_decode;
    tick->n_drafted = report->n_drafted;
    tick->bad_plan = report->bad_plan;
    tick->failed = account->counts.n_failed_ticks > account->n_failed;
    tick->abandoned = account->counts.n_abandoned_ticks > account->n_abandoned;
    tick->queue_depth = account->counts.queue_depth;
    tick->n_kv_used = account->counts.n_kv_used;
    pthread_mutex_lock(&shared->mutex);
    for (int32_t i = 0; i < account->counts.n_slots; i++) {
        weir_tick_slot *part = &account->planned[i];
        if (part->slot < 0) continue;
        if (part->end_ns == 0) {
            part->n_generated = account->slots.first[i].request->n_generated;
            part->n_accepted = account->slots.first[i].n_accepted;
        }
        tick->n_accepted += part->n_accepted;
        add_part(shared, part);
        part->slot = -1;
    }
    tick->n_slots = (int32_t)(shared->parts.n - tick->first_slot);
    weir__ring_add(&shared->ticks, tick);
    tick->first_slot = shared->parts.n;
    pthread_mutex_unlock(&shared->mutex);
    tick->serial++;
}

void weir__account_end(weir__account *account, const weir_report *report, int64_t work_ns)
{
    weir_engine_stats *counts = &account->counts;
    if (report->idle) {
        weir__account_publish(account);
        return;
    }
    counts->n_ticks++;
    counts->tick_ns = report->tick_ns;
    counts->busy_ns += report->tick_ns;
    counts->n_bad_plans += report->bad_plan;
    weir__histogram_observe(&counts->tick_seconds, to_seconds(report->tick_ns));
    weir__account_publish(account);
    account->tick.work_ns = work_ns;
    add_tick(account, report);
}
