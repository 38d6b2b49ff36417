/* step.c: the tick.
 * SPDX-License-Identifier: Apache-2.0
 *
 * It prepares the slots (ends, suspends, admits, joins), lets the strategy plan, decodes one batch, samples,
 * and puts chunks into the streams; then it does the accounts. All runs on the driver's thread, but helpers
 * may share the sampling: a slot's tokens are kept in its `burst` until the driver takes them one by one, up
 * to the one that ends the answer. A draft stays as far as the sampled tokens agree, and the cells behind
 * that are removed. A failed pass ends its streams, an abandoned one is computed again. docs/architecture.md
 * describes the phases. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/account.h"
#include "engine/cells.h"
#include "engine/driver.h"
#include "engine/slot.h"
#include "engine/stream.h"
#include "model/sampler.h"

/* ---- Prepare ---- */

void weir__step_prepare(weir__driver *driver, bool admits, int64_t now)
{
    if (admits) atomic_store_explicit(&driver->shared->arrived, false, memory_order_relaxed);
    driver->file_came = weir__cache_has_read(driver->prefix.cache);
    weir__reuse_transfer(driver);
    weir__finish_collect(driver, now);
    weir__admit_relieve(driver, now);
    if (admits) weir__admit(driver, now);
    do /* a suspended request may have been a leader */
        weir__reuse_rejoin(driver);
    while (weir__admit_relieve(driver, now));
    if (weir__media_collect(driver->encoder, &driver->slots)) weir__finish_latched(driver);
    weir__media_look_ahead(driver, now);
    weir__lanes_compact(&driver->lanes);
    weir__turns_choose(&driver->turns, &driver->slots);
    weir__pace_choose(driver, now);
    if (driver->account.counts.n_kv_used != driver->memory.n_used) weir__account_publish(&driver->account);
}

/* ---- Plan ---- */

static weir_slot_view view_of(const weir__driver *driver, const weir__slot *slot, int64_t now)
{
    const weir__request *request = slot->request;
    /* Tokens of the answer that are computed again are like a draft. */
    bool flows = weir__slot_flows(slot), generates = slot->state == WEIR_SLOT_GENERATING;
    weir_slot_state state = weir__slot_shown(slot);
    return (weir_slot_view){
        .slot = slot->index,
        .state = slot->next == WEIR__NEXT_AWAITED ? WEIR_SLOT_JOINED : state,
        .n_prompt_left = state == WEIR_SLOT_PREFILLING ? request->history.n_tokens - slot->n_past : 0,
        .n_prompt = request->history.n_prompt,
        .n_generated = request->n_generated,
        .priority = request->priority,
        .waited_ns = now > request->submit_ns ? now - request->submit_ns : 0,
        .n_past = slot->n_past,
        .lane = slot->lane,
        .n_draft = generates ? slot->draft.n
                   : flows   ? weir__batch_most(driver, slot) - 1
                             : 0,
        .idle_ns = flows && now > request->last_ns ? now - request->last_ns : 0,
        .deadline_ns = request->deadline_ns == WEIR__CLOCK_NEVER ? INT64_MAX : request->deadline_ns - now,
        .limit = weir__batch_limit(driver, slot),
    };
}

void weir__step_view(weir__driver *driver, int64_t now)
{
    weir_slot_view *views = driver->view_slots;
    size_t n = 0;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || !weir__pace_has(slot) ||
            (slot->next != WEIR__NEXT_AWAITED && !weir__turns_has(&driver->turns, slot)))
            continue;
        size_t at = n++;
        for (; at > 0 && driver->slots.first[views[at - 1].slot].request->serial > slot->request->serial;
             at--)
            views[at] = views[at - 1];
        views[at] = view_of(driver, slot, now);
    }
    driver->view = (weir_view){
        .slots = driver->view_slots,
        .n_slots = n,
        .budget = driver->params->n_batch,
        .chunk_size = driver->params->chunk_size,
        .queue_depth = weir__shared_depth(driver->shared),
        .n_ubatch = driver->info.n_ubatch,
        .layout = driver->info.layout,
        .itl_target_ns = weir__pace_target_ns(driver),
        .cost = weir__cost_get(&driver->cost),
    };
}

/* The shape of the batch. A prompt may have fewer tokens in it than planned. */
static weir__shape shape_of(weir__driver *driver)
{
    size_t n = 0;
    int32_t rows[WEIR__SEQ_MAX] = {0};
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->n_planned == 0) continue;
        driver->plan[n++] = (weir_plan_entry){.slot = slot->index, .n_tokens = slot->n_planned};
        rows[slot->lane] = slot->n_planned;
    }
    weir__shape shape = weir__schedule_shape(&driver->view, driver->plan, n);
    shape.n_passes = weir__speculate_passes(&driver->speculate, rows);
    return shape;
}

/* True if the view has a slot that may get tokens. */
static bool has_work(const weir_view *view)
{
    for (size_t i = 0; i < view->n_slots; i++)
        if (view->slots[i].state != WEIR_SLOT_JOINED) return true;
    return false;
}

/* Fills the batch by the caller's plan or the strategy's. Returns false if the plan broke a rule and was
 * replaced. */
static bool make_batch(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan, int64_t now)
{
    weir__step_view(driver, now);
    bool given = plan != NULL;
    if (!given) {
        driver->shows = false;
        n_plan = driver->view.n_slots > 0
                     ? driver->strategy.plan(&driver->view, driver->plan, driver->strategy.user)
                     : 0;
        plan = driver->plan;
    }
    /* An empty plan is fine from a caller. From a strategy with work at hand it might go on forever. */
    bool good =
        weir__batch_fill(driver, plan, n_plan) && (given || driver->batch.n > 0 || !has_work(&driver->view));
    if (!good) {
        const weir_strategy *standard = weir_strategy_decode_maximal();
        n_plan = standard->plan(&driver->view, driver->plan, NULL);
        driver->shows = false;
        weir__batch_fill(driver, driver->plan, n_plan);
    }
    driver->shows = false;
    driver->shape = shape_of(driver);
    return good;
}

/* ---- Decode ---- */

static bool is_in_pass(const weir__slot *slot)
{
    return slot->state != WEIR_SLOT_IDLE && slot->n_planned > 0;
}

/* True if sequences of the pass, which was not computed, may lack cells of windows that their next tokens
 * attend to: a micro-batch has taken them that was placed behind another one (ADR 0140). If the pass found no
 * cells, the last micro-batch that was tried was not placed, and that can only be in a pool. There llama.cpp
 * tries equally many rows of each sequence where consecutive ones do not do. */
static bool loses_windows(const weir__driver *driver, weir_status status)
{
    int32_t rows[WEIR__SEQ_MAX], n = 0;
    if (driver->model->info.n_swa == 0) return false;
    if (status != WEIR_NO_SPACE) return driver->shape.n_passes > 1;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++)
        if (is_in_pass(slot)) rows[n++] = slot->n_planned;
    return driver->memory.pooled &&
           (driver->shape.n_passes > 2 ||
            weir__cost_passes(rows, n, driver->info.n_ubatch, WEIR_LAYOUT_PER_SLOT) > 2);
}

/* Drops the sequences of the pass, so that nobody gets their windows. again: slots that have not finished
 * start again. */
static void drop_windows(weir__driver *driver, bool again)
{
    weir__slot *slot, *first = driver->slots.first, *end = driver->slots.end;
    for (slot = first; slot < end; slot++)
        if (is_in_pass(slot)) weir__reuse_drop(driver, slot);
    for (slot = first; slot < end && again; slot++)
        if (is_in_pass(slot) && slot->reason == WEIR_REASON_NOT_FINISHED) weir__reuse_restart(driver, slot);
}

/* The pass failed, which ends the streams in it. If cells ran out, nothing was computed, and all try again
 * with fewer drafts or slots. */
static void fail_pass(weir__driver *driver, weir_status status, const weir_error *error)
{
    driver->account.counts.n_failed_ticks++;
    if (status == WEIR_NO_SPACE &&
        (weir__speculate_shrink(&driver->speculate) || weir__cells_shrink(&driver->cells))) {
        if (loses_windows(driver, status)) drop_windows(driver, true);
        return;
    }
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++)
        if (is_in_pass(slot)) weir__slot_fail(slot, status, error);
    if (loses_windows(driver, status)) drop_windows(driver, false); /* some may have been cancelled before */
}

/* Gives the context the adapters of this tick's slots. */
static weir_status adapt_context(weir__driver *driver, weir_error *error)
{
    const weir__adapters *wanted = NULL;
    if (driver->turns.key == driver->turns.adapters.key) return WEIR_OK;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end && wanted == NULL; slot++)
        if (slot->n_planned > 0) wanted = &slot->request->history.adapters;
    driver->account.counts.n_adapter_changes++;
    return weir__adapters_set(driver->model, driver->context, &driver->turns.adapters, wanted, error);
}

static weir_status decode_batch(weir__driver *driver, int64_t *decode_ns, weir_error *error)
{
    int64_t start = weir__clock_now_ns();
    weir__pace_begin(driver, start);
    weir_status status = adapt_context(driver, error);
    const weir__backend *ops = driver->model->ops;
    if (status == WEIR_OK && driver->turns.segment >= 0)
        status = ops->decode_segment(driver->context, &driver->batch, &driver->slice, error);
    else if (status == WEIR_OK)
        status = ops->decode(driver->context, &driver->batch, error);
    *decode_ns = weir__clock_now_ns() - start;
    driver->account.counts.decode_ns += *decode_ns;
    return status;
}

/* The prompt's tokens that are there for the slot, or for the one whose prefill it waits for. */
static int32_t n_processed(const weir__slots *slots, const weir__slot *slot)
{
    int32_t most = slot->request->history.n_prompt;
    while (slot->state == WEIR_SLOT_JOINED) {
        const weir__slot *leader = slot->leader >= 0 ? &slots->first[slot->leader] : NULL;
        if (leader == NULL || leader->state == WEIR_SLOT_IDLE ||
            leader->request->serial != slot->leader_serial)
            return 0;
        if (slot->n_promised < most) most = slot->n_promised;
        slot = leader;
    }
    return slot->n_past < most ? slot->n_past : most;
}

/* Tells readers how far their prompts are. */
static void report_progress(const weir__driver *driver)
{
    int64_t now = weir__clock_now_ns();
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        const weir__request *request = slot->request;
        weir_slot_state shown = weir__slot_shown(slot);
        if ((shown != WEIR_SLOT_PREFILLING && shown != WEIR_SLOT_JOINED) || request->stream == NULL) continue;
        weir_progress progress = {
            .n_cached = request->n_cached > 0 ? request->n_cached : 0,
            .n_processed = n_processed(&driver->slots, slot),
            .prefill_ns = now - request->admit_ns,
        };
        weir__stream_advance(request->stream, &progress);
    }
}

/* The pass has computed the planned tokens. */
static void advance_slots(weir__driver *driver, weir_report *report)
{
    weir__pace_advance(&driver->slots);
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->n_planned == 0) continue;
        int32_t n = slot->n_planned - slot->n_drafted; /* sampling decides about the draft */
        if (weir__slot_flows(slot))
            report->n_decode += n;
        else
            report->n_prefill += n;
        slot->n_past += n;
        weir__memory_append(&driver->memory, slot->lane, slot->n_planned);
        weir__prefix_advance(&driver->prefix, slot);
        report->n_drafted += slot->n_drafted;
        slot->request->n_drafted += slot->n_drafted;
        if (slot->draft.predicted) slot->request->n_predicted += slot->n_drafted;
        slot->n_unbilled += slot->request->n_generated > 0 && slot->n_past == slot->request->history.n_tokens;
    }
    driver->account.counts.n_drafted += (uint64_t)report->n_drafted;
    driver->account.counts.n_prompt_tokens += (uint64_t)report->n_prefill;
}

/* ---- Sample ---- */

/* Waking a helper takes about 50 us; a greedy choice takes less. */
#define WORTH_SHARING_NS 200000
/* The vocabulary below which a choice takes this long only under a debugger or a sanitizer. */
#define LEAST_VOCABULARY 4096
/* Helpers at most: with 7, draws of 100 to 600 us for 8 slots, the default, take the time of one. */
#define MOST_HELPERS 7

static weir_status score_row(weir__driver *driver, const weir__slot *slot, int32_t row,
                             weir__sampled *sampled)
{
    const float *logits = driver->model->ops->logits(driver->context, row);
    if (logits == NULL) return WEIR_NO_MEMORY; /* the pass kept the row */
    sampled->logprob = weir__logprob(logits, driver->model->info.n_vocab, sampled->token, sampled->top,
                                     slot->request->n_top);
    return WEIR_OK;
}

/* The sampler's choice among the tokens that the request allows. */
static weir_status draw_token(weir__driver *driver, const weir__slot *slot, int32_t row, int32_t *token,
                              weir_error *error)
{
    const weir__backend *ops = driver->model->ops;
    weir__filter *filter = &slot->request->filter;
    weir__bsampler *chain = slot->request->sampler->chain;
    weir_status status = ops->sample(chain, driver->context, row, weir__filter_mask(filter), token, error);
    if (status == WEIR_REFUSED && weir__filter_yield(filter)) /* if only ends waited, all may come now */
        status = ops->sample(chain, driver->context, row, filter->limits != NULL ? filter->mask : NULL, token,
                             error);
    if (status != WEIR_REFUSED) return status;
    return weir__invalid(
        error, WEIR_ERROR_CONFLICT, filter->limits,
        "`allowed_tokens` and `bad_words`, with grammar and `logit_bias`, leave no token that may come next");
}

/* Chooses the token of a row: the one that ends the reasoning, where that must end and the grammar allows it,
 * or the sampler's. */
static weir_status choose_token(weir__driver *driver, const weir__slot *slot, int32_t row, int32_t *token,
                                weir_error *error)
{
    const weir__backend *ops = driver->model->ops;
    weir__request *request = slot->request;
    weir__bsampler *chain = request->sampler->chain;
    weir__reasoning *reasoning = &request->reasoning;
    int32_t forced = weir__reasoning_forced(reasoning, weir__request_ends_reasoning(request));
    weir_status status = forced >= 0 ? ops->accept(chain, forced, error) : WEIR_REFUSED;
    bool is_forced = status == WEIR_OK;
    if (is_forced)
        *token = forced;
    else if (status == WEIR_REFUSED)
        status = draw_token(driver, slot, row, token, error);
    if (status == WEIR_OK) weir__filter_take(&request->filter, *token);
    if (status == WEIR_OK && !weir__reasoning_take(reasoning, *token, is_forced)) status = WEIR_NO_MEMORY;
    return status;
}

/* Samples row by row as long as the draft agrees: the rows after a wrong token belong to another text. So
 * sampler, random numbers and reasoning advance as without a draft. */
static weir_status sample_rows(weir__driver *driver, weir__slot *slot, weir_error *error)
{
    for (int32_t i = 0; i <= slot->n_drafted; i++) {
        weir__sampled *sampled = &slot->burst[i];
        int32_t row = slot->row + i;
        weir_status status = choose_token(driver, slot, row, &sampled->token, error);
        sampled->before_call = driver->model->ops->text_before_call(slot->request->sampler->chain);
        sampled->n_reasoning = weir__reasoning_n(&slot->request->reasoning);
        if (status == WEIR_OK && slot->request->scored) status = score_row(driver, slot, row, sampled);
        if (status != WEIR_OK) return status;
        slot->n_burst = i + 1;
        if (i == slot->n_drafted || sampled->token != slot->draft.token[i]) break;
    }
    return WEIR_OK;
}

/* Runs on several threads. Each slot has a sampler of its own. */
static void sample_slot(void *user, int32_t i)
{
    weir__driver *driver = user;
    weir__slot *slot = driver->sampling[i];
    weir_error error = {0};
    int64_t start = weir__clock_now_ns();
    weir_status status = weir__score_rows(slot->request->history.score, driver->model, driver->context,
                                          slot->scored_row, slot->n_scored);
    if (status == WEIR_OK && slot->row >= 0) status = sample_rows(driver, slot, &error);
    slot->sample_ns = weir__clock_now_ns() - start;
    if (status == WEIR_OK) return;
    slot->failed = status; /* the tokens before the failure belong to the answer */
    slot->error = error;
}

/* Helpers save more time than they cost, judged by the slots' last draws. */
static bool is_worth_sharing(const weir__driver *driver, int32_t n)
{
    int64_t ns = 0, longest = 0;
    if (driver->params->n_threads < 2 || driver->model->info.n_vocab < LEAST_VOCABULARY) return false;
    for (int32_t i = 0; i < n; i++) {
        ns += driver->sampling[i]->sample_ns;
        if (driver->sampling[i]->sample_ns > longest) longest = driver->sampling[i]->sample_ns;
    }
    return ns - longest > WORTH_SHARING_NS;
}

/* Starts the helpers when they are first needed. NULL: not possible. */
static weir__thread_pool *sampling_threads(weir__driver *driver)
{
    int32_t n = driver->params->n_threads - 1;
    if (driver->threads == NULL)
        driver->threads = weir__thread_pool_create(n < MOST_HELPERS ? n : MOST_HELPERS);
    return driver->threads;
}

/* Samples the slots that have a row. Each slot then has its tokens or its failure. */
static void sample_slots(weir__driver *driver)
{
    int32_t n = 0;
    driver->model->ops->logits_ready(driver->context);
    for (int32_t lane = 0; lane < driver->lanes.n; lane++) {
        weir__slot *slot = driver->lanes.slot[lane];
        if (slot == NULL || slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->row < 0 && slot->n_scored == 0) continue;
        driver->sampling[n++] = slot;
    }
    weir__thread_pool *threads = is_worth_sharing(driver, n) ? sampling_threads(driver) : NULL;
    if (threads != NULL) {
        weir__thread_pool_run(threads, sample_slot, driver, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) sample_slot(driver, i);
}

/* ---- Emit ---- */

static void take_token(weir__driver *driver, weir__slot *slot, const weir__sampled *sampled, int64_t now)
{
    weir__request *request = slot->request;
    int32_t token = sampled->token;
    bool stopped = false, stops = weir__filter_stops(&request->filter, token);

    request->n_generated++;
    request->n_reasoning = sampled->n_reasoning;
    if (request->scored) request->logprob_sum += (double)sampled->logprob;
    if (request->first_ns == 0) request->first_ns = now;
    request->last_ns = now;
    weir__account_token(&driver->account, request);
    if (driver->model->ops->is_eog(driver->model->model, token) || (stops && !request->keeps_stop)) {
        weir__slot_latch(slot, WEIR_REASON_END);
        return;
    }
    if (!weir__slot_append(slot, sampled)) {
        weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
        return;
    }
    slot->state = WEIR_SLOT_GENERATING;
    if (request->stream != NULL || request->result != NULL || request->emit.stop != NULL) {
        weir_status status =
            weir__emit_token(&request->emit, &driver->scratch, token, sampled->before_call, &stopped);
        if (status != WEIR_OK) weir__slot_fail(slot, status, NULL);
    }
    if (stopped) weir__slot_latch(slot, WEIR_REASON_STOP_WORDS);
    if (stops) weir__slot_latch(slot, WEIR_REASON_END);
    if (request->n_generated >= request->max_tokens) weir__slot_latch(slot, WEIR_REASON_LENGTH);
}

/* Takes this tick's tokens up to one that ends the answer. */
static void take_burst(weir__driver *driver, weir__slot *slot, int64_t now)
{
    for (int32_t i = 0; i < slot->n_burst && slot->reason == WEIR_REASON_NOT_FINISHED; i++) {
        if (i > 0) { /* the token before this one was computed with the draft */
            slot->n_past++;
            slot->n_unbilled++;
        }
        take_token(driver, slot, &slot->burst[i], now);
        slot->n_accepted += i < slot->n_drafted && slot->burst[i].token == slot->draft.token[i];
    }
}

/* Settles the draft after the burst: takes back its rejected part. False: that cannot be done. */
static bool settle_draft(weir__driver *driver, weir__slot *slot)
{
    if (slot->n_drafted == 0) return true;
    slot->request->n_accepted += slot->n_accepted;
    if (slot->draft.predicted) slot->request->n_predicted_accepted += slot->n_accepted;
    driver->account.counts.n_accepted += (uint64_t)slot->n_accepted;
    if (slot->n_burst > 0) weir__speculate_judge(&slot->draft, slot->n_drafted, slot->n_accepted);
    if (driver->memory.n[slot->lane] <= slot->n_past) return true;
    bool done = weir__rollback_undo(&driver->speculate.rollback, slot);
    if (done)
        weir__cache_advance(driver->prefix.cache, &slot->live, slot->n_past, 0);
    else
        weir__reuse_drop(driver, slot);
    return done;
}

/* Where the memory went back to the state before the pass, the tokens that were right are computed again,
 * like those of a suspended request. */
static void catch_up(weir__slot *slot)
{
    if (slot->n_past < slot->request->history.n_tokens - 1) slot->state = WEIR_SLOT_PREFILLING;
}

static void emit_chunks(weir__driver *driver)
{
    int64_t now = weir__clock_now_ns();
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (!is_in_pass(slot)) continue;
        take_burst(driver, slot, now);
        if (slot->failed != WEIR_OK) weir__slot_fail(slot, slot->failed, &slot->error);
        bool settled = settle_draft(driver, slot);
        if (slot->n_past == slot->request->history.n_prompt && slot->request->max_tokens == 0)
            weir__slot_latch(slot, WEIR_REASON_LENGTH); /* only prefill was requested */
        if (slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->state != WEIR_SLOT_GENERATING) continue;
        weir_usage usage = weir__request_usage(slot->request, now);
        if (!weir__request_emit(slot->request, &usage)) weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
        weir__account_chunk(&driver->account, slot->request, now);
        if (slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (settled) {
            catch_up(slot);
            continue;
        }
        weir__speculate_shrink(&driver->speculate); /* it might happen again */
        weir__reuse_restart(driver, slot);
    }
    weir__finish_latched(driver);
}

/* ---- The tick ---- */

#ifdef WEIR_DEBUG
#include <assert.h>

static void check_invariants(const weir__driver *driver)
{
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        assert(slot == driver->slots.first + slot->index);
        if (slot->state == WEIR_SLOT_IDLE) {
            assert(slot->request == NULL && slot->lane < 0 && slot->live.node == NULL);
            continue;
        }
        const weir__request *request = slot->request;
        if (slot->state == WEIR_SLOT_JOINED) {
            assert(slot->lane < 0 && slot->n_past == 0 && slot->n_promised > 0);
            continue;
        }
        assert(driver->lanes.slot[slot->lane] == slot);
        assert(request->history.n_tokens - request->history.n_prompt <= request->n_generated);
        if (slot->state == WEIR_SLOT_PREFILLING)
            assert(slot->n_past < request->history.n_tokens &&
                   (request->n_generated > 0 || request->history.n_tokens == request->history.n_prompt));
        else
            assert(slot->n_past >= request->history.n_prompt &&
                   slot->n_past == request->history.n_tokens - 1);
        assert(driver->memory.n[slot->lane] == slot->n_past);
    }
    for (int32_t lane = 0; lane < driver->lanes.n; lane++) {
        bool cached = weir__cache_entry_of(driver->prefix.cache, lane) != NULL;
        assert(driver->lanes.slot[lane] == NULL || (driver->lanes.slot[lane]->lane == lane && !cached));
        if (driver->lanes.slot[lane] == NULL && !cached) assert(driver->memory.n[lane] == 0);
    }
    weir__memory_check(&driver->memory);
    weir__cache_check(driver->prefix.cache);
}
#else
static void check_invariants(const weir__driver *driver)
{
    (void)driver;
}
#endif

static void account_tick(weir__driver *driver, weir_report *report, int64_t start, int64_t work_ns)
{
    report->n_active = weir__slot_count_active(&driver->slots);
    report->tick_ns = weir__clock_now_ns() - start;
    weir__account_end(&driver->account, report, work_ns);
    report->queue_depth = driver->account.counts.queue_depth;
    check_invariants(driver);
}

void weir__step_tick(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan, weir_report *report)
{
    int64_t start = weir__clock_now_ns(), work_ns = 0;
    *report = (weir_report){.size = sizeof *report};
    weir__account_begin(&driver->account, start);
    weir__step_prepare(driver, plan == NULL, start); /* a plan is for the slots of its view */
    report_progress(driver);                         /* of those that have begun */
    weir__speculate_draft(&driver->speculate);
    int64_t prepared = weir__clock_now_ns();
    report->bad_plan = !make_batch(driver, plan, n_plan, start);
    report->idle = driver->batch.n == 0;
    if (!report->idle) {
        weir_error error = {0};
        weir__account_plan(&driver->account, &driver->shape, driver->batch.n);
        weir_status status = decode_batch(driver, &report->decode_ns, &error);
        int64_t decoded = weir__clock_now_ns();
        weir__pace_bill(driver, decoded - prepared, decoded);
        weir__finish_collect_slots(&driver->slots, decoded);
        if (status == WEIR_OK) {
            advance_slots(driver, report);
            report_progress(driver);
            sample_slots(driver);
            emit_chunks(driver);
            /* The time includes sampling, as a stream's reader sees it, but not what came before the plan. */
            work_ns = weir__clock_now_ns() - prepared;
            weir__cost_observe(&driver->cost, &driver->shape, work_ns - driver->speculate.rollback.spent_ns);
        } else {
            if (status == WEIR_ABORTED && loses_windows(driver, status)) drop_windows(driver, false);
            /* Tokens of a pass that a stop aborted belong to nobody. */
            if (status == WEIR_ABORTED && atomic_load(&driver->shared->stopping))
                weir__finish_all(driver);
            else if (status == WEIR_ABORTED)
                weir__pace_restart(driver);
            else
                fail_pass(driver, status, &error);
            weir__finish_latched(driver);
        }
    }
    weir__turns_pass(&driver->turns, &driver->slots);
    account_tick(driver, report, start, work_ns);
    if (weir__cache_archive(driver->prefix.cache, start, report->idle))
        weir__account_publish(&driver->account);
}
