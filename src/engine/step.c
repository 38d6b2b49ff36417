/* step.c: the tick; docs/architecture.md describes its phases.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/engine.h"

/* ---- Prepare ---- */

void weir__step_prepare(weir_engine *engine, bool admits, int64_t now)
{
    weir__finish_collect(engine, now);
    weir__suspend_relieve(engine, now);
    if (admits) weir__admit(engine, now);
    do /* one that is suspended may have led others */
        weir__prefix_rejoin(engine);
    while (weir__suspend_relieve(engine, now));
    weir__lanes_compact(engine);
    weir__turn_choose(&engine->turn, engine->slots, engine->params.n_slots);
    if (engine->counts.n_kv_used != engine->memory.n_used) weir__account_publish(engine);
}

/* ---- Plan ---- */

void weir__step_view(weir_engine *engine, int64_t now)
{
    size_t n = 0;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        const weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE || !weir__turn_has(&engine->turn, slot)) continue;
        size_t at = n++;
        while (at > 0 &&
               engine->slots[engine->view_slots[at - 1].slot].request->serial > slot->request->serial) {
            engine->view_slots[at] = engine->view_slots[at - 1];
            at--;
        }
        engine->view_slots[at] = (weir_slot_view){
            .slot = slot->index,
            .state = slot->state,
            .n_prompt_left = slot->state == WEIR_SLOT_PREFILLING ? slot->n_tokens - slot->n_past : 0,
            .n_prompt = slot->request->n_prompt,
            .n_generated = slot->n_generated,
            .priority = slot->request->priority,
            .waited_ns = now > slot->request->submit_ns ? now - slot->request->submit_ns : 0,
            .n_past = slot->n_past,
            .lane = slot->lane,
            .n_draft = slot->state == WEIR_SLOT_GENERATING ? slot->draft.n : 0,
            .idle_ns = slot->state == WEIR_SLOT_GENERATING && now > slot->last_ns ? now - slot->last_ns : 0,
            .deadline_ns = slot->request->deadline_ns == WEIR__CLOCK_NEVER ? INT64_MAX
                                                                           : slot->request->deadline_ns - now,
            .limit = weir__score_limit(engine, slot),
        };
    }
    engine->view = (weir_view){
        .slots = engine->view_slots,
        .n_slots = n,
        .budget = engine->params.n_batch,
        .chunk_size = engine->params.chunk_size,
        .queue_depth = weir__shared_depth(&engine->shared),
        .n_ubatch = engine->info.n_ubatch,
        .layout = engine->info.layout,
        .itl_target_ns = (int64_t)engine->params.itl_target_ms * WEIR__NS_PER_MS /
                         (engine->turn.n_sets > 0 ? engine->turn.n_sets : 1),
        .cost = weir__cost_get(&engine->cost),
    };
}

/* What the batch has of the view's slots, for the figures: of prompts it may be less than was planned. */
static weir__shape shape_of(weir_engine *engine)
{
    size_t n = 0;
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].n_planned > 0)
            engine->plan[n++] = (weir_plan_entry){.slot = i, .n_tokens = engine->slots[i].n_planned};
    return weir__schedule_shape(&engine->view, engine->plan, n);
}

/* Fills the batch from the caller's plan or the strategy's; a plan that breaks the rules is replaced. */
static bool make_batch(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan, int64_t now)
{
    weir__step_view(engine, now);
    bool given = plan != NULL;
    if (!given) {
        engine->shows = false;
        n_plan = engine->strategy.plan(&engine->view, engine->plan, engine->strategy.user);
        plan = engine->plan;
    }
    /* A caller may let a tick pass; a strategy that does so with work at hand would let it wait for ever. */
    bool good =
        weir__batch_fill(engine, plan, n_plan) && (given || engine->batch.n > 0 || engine->view.n_slots == 0);
    if (!good) {
        const weir_strategy *standard = weir_strategy_decode_maximal();
        n_plan = standard->plan(&engine->view, engine->plan, NULL);
        engine->shows = false;
        weir__batch_fill(engine, engine->plan, n_plan);
    }
    engine->shows = false;
    engine->shape = shape_of(engine);
    return good;
}

/* ---- Decode ---- */

/* The pass was refused: it ends the streams it concerns. Without cells nothing was computed, and all try
 * again with fewer slots. */
static void fail_pass(weir_engine *engine, weir_status status, const weir_error *error)
{
    if (status != WEIR_ABORTED) engine->counts.n_failed_ticks++;
    if (status == WEIR_NO_SPACE && (weir__speculate_shrink(engine) || weir__suspend_shrink(engine))) return;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state != WEIR_SLOT_IDLE && slot->n_planned > 0) weir__slot_fail(slot, status, error);
    }
}

/* The adapters of this tick's slots. */
static weir_status adapt_context(weir_engine *engine, weir_error *error)
{
    const weir__adapters *wanted = NULL;
    if (engine->turn.key == engine->turn.adapters.key) return WEIR_OK;
    for (int32_t i = 0; i < engine->params.n_slots && wanted == NULL; i++)
        if (engine->slots[i].n_planned > 0) wanted = &engine->slots[i].request->adapters;
    engine->counts.n_adapter_changes++;
    return weir__adapters_set(engine->model, engine->context, &engine->turn.adapters, wanted, error);
}

static weir_status decode_batch(weir_engine *engine, int64_t *decode_ns, weir_error *error)
{
    int64_t start = weir__clock_now_ns();
    weir_status status = adapt_context(engine, error);
    if (status == WEIR_OK) status = engine->model->ops->decode(engine->context, &engine->batch, error);
    *decode_ns = weir__clock_now_ns() - start;
    engine->counts.decode_ns += *decode_ns;
    return status;
}

/* The pass is done: what was planned is computed. */
static void advance_slots(weir_engine *engine, weir_report *report)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->n_planned == 0) continue;
        slot->n_past += slot->n_planned - slot->n_drafted; /* whether the draft is of use is not known yet */
        weir__memory_append(&engine->memory, slot->lane, slot->n_planned);
        weir__prefix_advance(engine, slot);
        if (slot->state == WEIR_SLOT_PREFILLING)
            report->n_prefill += slot->n_planned;
        else
            report->n_decode++;
        report->n_drafted += slot->n_drafted;
        slot->request->n_drafted += slot->n_drafted;
        slot->n_unbilled += slot->state == WEIR_SLOT_GENERATING;
    }
    engine->counts.n_drafted += (uint64_t)report->n_drafted;
    engine->counts.n_prompt_tokens += (uint64_t)report->n_prefill;
}

/* ---- Emit ---- */

static void take_token(weir_engine *engine, weir__slot *slot, const weir__sampled *sampled, int64_t now)
{
    weir__request *request = slot->request;
    int32_t token = sampled->token;
    bool stopped = false;

    slot->n_generated++;
    if (request->scored) slot->logprob_sum += (double)sampled->logprob;
    if (slot->first_ns == 0) slot->first_ns = now;
    slot->last_ns = now;
    weir__account_token(engine, slot);
    if (engine->model->ops->is_eog(engine->model->model, token)) {
        weir__slot_latch(slot, WEIR_REASON_END);
        return;
    }
    if (!weir__slot_append(slot, sampled)) {
        weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
        return;
    }
    slot->state = WEIR_SLOT_GENERATING;
    if (request->stream != NULL || request->result != NULL || request->stop != NULL) {
        weir_status status = weir__emit_token(&slot->emit, &engine->scratch, request, token, &stopped);
        if (status != WEIR_OK) weir__slot_fail(slot, status, NULL);
    }
    if (stopped) weir__slot_latch(slot, WEIR_REASON_STOP_WORDS);
    if (slot->n_generated >= request->max_tokens) weir__slot_latch(slot, WEIR_REASON_LENGTH);
}

/* The tokens of this tick until one ends the answer. Those behind it were never there. */
static void take_burst(weir_engine *engine, weir__slot *slot, int64_t now)
{
    for (int32_t i = 0; i < slot->n_burst && slot->reason == WEIR_REASON_NOT_FINISHED; i++) {
        if (i > 0) { /* the token before this one was computed with the draft */
            slot->n_past++;
            slot->n_unbilled++;
        }
        take_token(engine, slot, &slot->burst[i], now);
        slot->n_accepted += i < slot->n_drafted && slot->burst[i].token == slot->draft.token[i];
    }
}

/* After the burst: what was drafted in vain is cut off. */
static void settle_draft(weir_engine *engine, weir__slot *slot)
{
    if (slot->n_drafted == 0) return;
    slot->request->n_accepted += slot->n_accepted;
    engine->counts.n_accepted += (uint64_t)slot->n_accepted;
    if (slot->n_burst > 0) weir__speculate_judge(&slot->draft, slot->n_drafted, slot->n_accepted);
    if (engine->memory.n[slot->lane] > slot->n_past &&
        !weir__memory_cut(&engine->memory, slot->lane, slot->n_past))
        weir__slot_fail(slot, WEIR_BACKEND, NULL);
}

static void emit_chunks(weir_engine *engine)
{
    int64_t now = weir__clock_now_ns();
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        take_burst(engine, slot, now);
        if (slot->failed != WEIR_OK) weir__slot_fail(slot, slot->failed, &slot->error);
        settle_draft(engine, slot);
        if (slot->n_past == slot->request->n_prompt && slot->request->max_tokens == 0)
            weir__slot_latch(slot, WEIR_REASON_LENGTH); /* prefill was all that was asked for */
        if (slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->state != WEIR_SLOT_GENERATING) continue;
        weir_usage usage = weir__slot_usage(slot, now);
        if (!weir__emit_chunk(&slot->emit, slot->request, weir__slot_n_output(slot), &usage))
            weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
        weir__account_chunk(engine, slot, now);
    }
    weir__finish_latched(engine);
}

/* ---- The tick ---- */

#ifdef WEIR_DEBUG
#include <assert.h>

static void check_invariants(const weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        const weir__slot *slot = &engine->slots[i];
        assert(slot->index == i);
        if (slot->state == WEIR_SLOT_IDLE) {
            assert(slot->request == NULL && slot->lane < 0 && slot->live.node == NULL);
            continue;
        }
        const weir__request *request = slot->request;
        if (slot->state == WEIR_SLOT_JOINED) {
            assert(slot->lane < 0 && slot->n_past == 0 && slot->n_promised > 0);
            continue;
        }
        assert(engine->lanes[slot->lane] == slot);
        assert(slot->n_tokens - request->n_prompt <= slot->n_generated);
        if (slot->state == WEIR_SLOT_PREFILLING)
            assert(slot->n_past < slot->n_tokens &&
                   (slot->n_generated > 0 || slot->n_tokens == request->n_prompt));
        else
            assert(slot->n_past >= request->n_prompt && slot->n_past == slot->n_tokens - 1);
        assert(engine->memory.n[slot->lane] == slot->n_past);
    }
    for (int32_t lane = 0; lane < engine->info.n_seq_max; lane++) {
        bool cached = weir__cache_entry_of(engine->cache, lane) != NULL;
        assert(engine->lanes[lane] == NULL || (engine->lanes[lane]->lane == lane && !cached));
        if (engine->lanes[lane] == NULL && !cached) assert(engine->memory.n[lane] == 0);
    }
    weir__memory_check(&engine->memory);
    weir__cache_check(engine->cache);
}
#else
static void check_invariants(const weir_engine *engine)
{
    (void)engine;
}
#endif

static void account_tick(weir_engine *engine, weir_report *report, int64_t start, int64_t work_ns)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        report->n_active += engine->slots[i].state != WEIR_SLOT_IDLE;
    report->tick_ns = weir__clock_now_ns() - start;
    weir__account_end(engine, report, work_ns);
    report->queue_depth = engine->counts.queue_depth;
    check_invariants(engine);
}

void weir__step_tick(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan, weir_report *report)
{
    int64_t start = weir__clock_now_ns(), work_ns = 0;
    *report = (weir_report){.size = sizeof *report};
    weir__account_begin(engine, start);
    weir__step_prepare(engine, plan == NULL, start); /* a plan knows the view's slots, as they were */
    weir__speculate_draft(engine);
    int64_t prepared = weir__clock_now_ns();
    report->bad_plan = !make_batch(engine, plan, n_plan, start);
    report->idle = engine->batch.n == 0;
    if (!report->idle) {
        weir_error error = {0};
        weir__account_plan(engine);
        weir_status status = decode_batch(engine, &report->decode_ns, &error);
        weir__finish_collect_slots(engine, weir__clock_now_ns());
        if (status == WEIR_OK) {
            advance_slots(engine, report);
            weir__sample(engine);
            emit_chunks(engine);
            /* With sampling, as a stream's reader sees it; without what came and went before the plan. */
            work_ns = weir__clock_now_ns() - prepared;
            weir__cost_observe(&engine->cost, &engine->shape, work_ns);
        } else {
            /* What a pass that a stop broke off has left in the memory is nobody's. */
            if (status == WEIR_ABORTED && atomic_load(&engine->shared.abandon))
                weir__finish_all(engine);
            else
                fail_pass(engine, status, &error);
            weir__finish_latched(engine);
        }
    }
    weir__turn_pass(&engine->turn, engine->slots, engine->params.n_slots);
    account_tick(engine, report, start, work_ns);
    if (weir__cache_archive(engine->cache, start, report->idle)) weir__account_publish(engine);
}
