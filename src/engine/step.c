/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/engine.h"

/* ---- Publishing ---- */

/* Copies the driver's counters to where other threads read them. */
static void publish(weir_engine *engine)
{
    weir_engine_stats *counts = &engine->counts;
    counts->n_slots_prefilling = counts->n_slots_generating = counts->n_kv_used = 0;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        const weir__slot *slot = &engine->slots[i];
        counts->n_slots_prefilling += slot->state == WEIR_SLOT_PREFILLING;
        counts->n_slots_generating += slot->state == WEIR_SLOT_GENERATING;
        if (slot->state != WEIR_SLOT_IDLE) counts->n_kv_used += slot->n_past;
    }
    counts->n_kv_reserved = engine->n_reserved;
    pthread_mutex_lock(&engine->mutex);
    counts->n_submitted = engine->stats.n_submitted;
    counts->n_refused = engine->stats.n_refused;
    counts->queue_depth = engine->queue.n;
    engine->stats = *counts;
    pthread_mutex_unlock(&engine->mutex);
}

static void count_down(weir_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    if (--engine->n_live == 0) pthread_cond_broadcast(&engine->drained);
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- Finish ---- */

/* Frees the cells first and counts it, so that whoever takes the terminal chunk finds both done. */
static void finish_slot(weir_engine *engine, weir__slot *slot)
{
    int64_t now = weir__clock_now_ns();
    engine->model->ops->seq_remove(engine->context, slot->lane, 0, -1);
    engine->lanes[slot->lane] = NULL;
    engine->n_reserved -= weir__request_cells(slot->request);
    weir__slot_settle(slot, &engine->scratch);
    engine->counts.n_finished[slot->reason]++;
    weir_slot_state state = slot->state;
    slot->state = WEIR_SLOT_IDLE;
    publish(engine);
    slot->state = state;
    weir__slot_finish(slot, now);
    count_down(engine);
}

static void finish_queued(weir_engine *engine, weir__request *request, weir_reason reason, weir_status status)
{
    static const weir__output nothing = {.text = ""};
    int64_t now = weir__clock_now_ns();
    weir_usage usage = {
        .n_prompt = request->n_prompt,
        .queue_ns = now - request->submit_ns,
        .total_ns = now - request->submit_ns,
    };
    weir_error error = {0};
    if (reason == WEIR_REASON_ERROR) weir__error_set(&error, status, "", "%s", weir_status_text(status));
    engine->counts.n_finished[reason]++;
    publish(engine);
    weir__request_finish(request, &nothing, reason, &error, &usage);
    count_down(engine);
}

static void finish_latched(weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state != WEIR_SLOT_IDLE && slot->reason != WEIR_REASON_NOT_FINISHED)
            finish_slot(engine, slot);
    }
}

/* ---- Collect ---- */

static bool is_over(const weir__request *request, int64_t now)
{
    return weir__request_cancelled(request) || now >= request->deadline_ns;
}

static void collect_queue(weir_engine *engine, int64_t now)
{
    pthread_mutex_lock(&engine->mutex);
    weir__request *over = weir__queue_take(&engine->queue, is_over, now);
    pthread_mutex_unlock(&engine->mutex);
    while (over != NULL) {
        weir__request *next = over->next;
        finish_queued(engine, over,
                      weir__request_cancelled(over) ? WEIR_REASON_CANCELLED : WEIR_REASON_DEADLINE, WEIR_OK);
        over = next;
    }
}

/* Reads the slots' cancels and deadlines; also between a pass and its sampling, where they beat the pass's
 * end. */
static void collect_slots(weir_engine *engine, int64_t now)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (weir__request_cancelled(slot->request)) weir__slot_latch(slot, WEIR_REASON_CANCELLED);
        if (now >= slot->request->deadline_ns) weir__slot_latch(slot, WEIR_REASON_DEADLINE);
    }
}

/* ---- Admit ---- */

static weir__slot *idle_slot(weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].state == WEIR_SLOT_IDLE) return &engine->slots[i];
    return NULL;
}

static int32_t free_lane(const weir_engine *engine)
{
    int32_t lane = 0;
    while (lane < engine->params.n_slots && engine->lanes[lane] != NULL) lane++;
    return lane;
}

/* Takes the queue's first request if its cells can be promised. First in, first out: a large one is not
 * overtaken. */
static weir__request *next_request(weir_engine *engine)
{
    weir__request *request = NULL;
    pthread_mutex_lock(&engine->mutex);
    if (engine->queue.first != NULL &&
        engine->n_reserved + weir__request_cells(engine->queue.first) <= engine->info.n_ctx)
        request = weir__queue_pop(&engine->queue);
    pthread_mutex_unlock(&engine->mutex);
    return request;
}

static void admit(weir_engine *engine)
{
    weir__slot *slot;
    weir__request *request;
    bool admitted = false;
    while ((slot = idle_slot(engine)) != NULL && (request = next_request(engine)) != NULL) {
        admitted = true;
        /* Not the tick's time: the request may have come since. */
        weir__slot_start(slot, request, engine->serial++, weir__clock_now_ns());
        slot->lane = free_lane(engine);
        engine->lanes[slot->lane] = slot;
        engine->n_reserved += weir__request_cells(request);
    }
    if (admitted) publish(engine); /* a pass may take long: until then they would be neither here nor there */
}

/* With lanes of their own, sequences are computed in one pass only when their lanes have consecutive numbers:
 * closes a gap by moving the last lane into it. One move a tick; a copy costs far less than an extra pass
 * each tick. */
static void compact_lanes(weir_engine *engine)
{
    if (engine->info.layout != WEIR_LAYOUT_PER_SLOT) return;
    int32_t gap = free_lane(engine);
    int32_t last = engine->params.n_slots - 1;
    while (last > gap && engine->lanes[last] == NULL) last--;
    if (last <= gap) return;
    weir__slot *slot = engine->lanes[last];
    if (slot->n_past > 0) {
        const weir__backend *ops = engine->model->ops;
        if (ops->share(engine->context, last, gap, slot->n_past, NULL) != WEIR_OK) return;
        ops->seq_remove(engine->context, last, 0, -1);
    }
    engine->lanes[gap] = slot;
    engine->lanes[last] = NULL;
    slot->lane = gap;
}

void weir__step_prepare(weir_engine *engine, int64_t now)
{
    uint32_t cancels = weir__doorbell_cancels(engine->bell);
    pthread_mutex_lock(&engine->mutex);
    bool due = engine->queue.n > 0 && (now >= engine->queue.deadline_ns || cancels != engine->cancels_seen);
    pthread_mutex_unlock(&engine->mutex);
    if (due) collect_queue(engine, now);
    engine->cancels_seen = cancels;
    collect_slots(engine, now);
    finish_latched(engine);
    admit(engine);
    compact_lanes(engine);
}

/* ---- Plan ---- */

void weir__step_view(weir_engine *engine, int64_t now)
{
    size_t n = 0;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        const weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        size_t at = n++;
        while (at > 0 && engine->slots[engine->view_slots[at - 1].slot].serial > slot->serial) {
            engine->view_slots[at] = engine->view_slots[at - 1];
            at--;
        }
        engine->view_slots[at] = (weir_slot_view){
            .slot = slot->index,
            .state = slot->state,
            .n_prompt_left = slot->state == WEIR_SLOT_PREFILLING ? slot->request->n_prompt - slot->n_past : 0,
            .n_prompt = slot->request->n_prompt,
            .n_generated = slot->n_generated,
            .waited_ns = now > slot->request->submit_ns ? now - slot->request->submit_ns : 0,
            .n_past = slot->n_past,
            .lane = slot->lane,
            .idle_ns = slot->state == WEIR_SLOT_GENERATING && now > slot->last_ns ? now - slot->last_ns : 0,
            .deadline_ns = slot->request->deadline_ns == WEIR__CLOCK_NEVER ? INT64_MAX
                                                                           : slot->request->deadline_ns - now,
        };
    }
    pthread_mutex_lock(&engine->mutex);
    int32_t depth = engine->queue.n;
    pthread_mutex_unlock(&engine->mutex);
    engine->view = (weir_view){
        .slots = engine->view_slots,
        .n_slots = n,
        .budget = engine->params.n_batch,
        .chunk_size = engine->params.chunk_size,
        .queue_depth = depth,
        .n_ubatch = engine->info.n_ubatch,
        .layout = engine->info.layout,
        .itl_target_ns = (int64_t)engine->params.itl_target_ms * 1000000,
        .cost = weir__cost_get(&engine->cost),
    };
}

/* Fills the batch from the caller's plan or the strategy's; a plan that breaks the rules is replaced. */
static bool make_batch(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan, int64_t now)
{
    weir__step_view(engine, now);
    bool given = plan != NULL;
    if (!given) {
        n_plan = engine->strategy.plan(&engine->view, engine->plan, engine->strategy.user);
        plan = engine->plan;
    }
    /* A caller may let a tick pass; a strategy that does so with work at hand would let it wait for ever. */
    bool good =
        weir__batch_fill(engine, plan, n_plan) && (given || engine->batch.n > 0 || engine->view.n_slots == 0);
    if (!good) {
        const weir_strategy *standard = weir_strategy_decode_maximal();
        n_plan = standard->plan(&engine->view, engine->plan, NULL);
        plan = engine->plan;
        weir__batch_fill(engine, plan, n_plan);
    }
    engine->shape = weir__schedule_shape(&engine->view, plan, n_plan);
    return good;
}

/* ---- Decode ---- */

/* The pass was refused: it ends the streams it concerns. */
static void fail_pass(weir_engine *engine, weir_status status, const weir_error *error)
{
    weir__slot *youngest = NULL;
    if (status != WEIR_ABORTED) engine->counts.n_failed_ticks++;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        if (youngest == NULL || slot->serial > youngest->serial) youngest = slot;
        /* Without cells nothing was computed: the others try again without the youngest. */
        if (status != WEIR_NO_SPACE) weir__slot_fail(slot, status, error);
    }
    if (status == WEIR_NO_SPACE && youngest != NULL) weir__slot_fail(youngest, status, error);
}

static weir_status decode(weir_engine *engine, int64_t *decode_ns, weir_error *error)
{
    int64_t start = weir__clock_now_ns();
    weir_status status = engine->model->ops->decode(engine->context, &engine->batch, error);
    *decode_ns = weir__clock_now_ns() - start;
    engine->counts.decode_ns += *decode_ns;
    return status;
}

/* The pass is done: what was planned is computed. */
static void advance(weir_engine *engine, weir_report *report)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->n_planned == 0) continue;
        slot->n_past += slot->n_planned;
        if (slot->state == WEIR_SLOT_PREFILLING)
            report->n_prefill += slot->n_planned;
        else
            report->n_decode += slot->n_planned;
    }
    engine->counts.n_prompt_tokens += (uint64_t)report->n_prefill;
}

/* ---- Emit ---- */

static void take_token(weir_engine *engine, weir__slot *slot, int64_t now)
{
    weir__request *request = slot->request;
    int32_t token = slot->sampled;
    bool stopped = false;

    slot->n_generated++;
    engine->counts.n_generated_tokens++;
    if (slot->first_ns == 0) slot->first_ns = now;
    slot->last_ns = now;
    if (engine->model->ops->is_eog(engine->model->model, token)) {
        weir__slot_latch(slot, WEIR_REASON_END);
        return;
    }
    if (!weir__slot_append(slot, token)) {
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

static void emit(weir_engine *engine)
{
    int64_t now = weir__clock_now_ns();
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        if (slot->reason == WEIR_REASON_NOT_FINISHED && slot->sampled >= 0) take_token(engine, slot, now);
        if (slot->n_past == slot->request->n_prompt && slot->request->max_tokens == 0)
            weir__slot_latch(slot, WEIR_REASON_LENGTH); /* prefill was all that was asked for */
        if (slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->state != WEIR_SLOT_GENERATING) continue;
        weir_usage usage = weir__slot_usage(slot, now);
        if (!weir__emit_chunk(&slot->emit, slot->request, weir__slot_output(slot), weir__slot_n_output(slot),
                              &usage))
            weir__slot_fail(slot, WEIR_NO_MEMORY, NULL);
    }
    finish_latched(engine);
}

/* ---- The tick ---- */

#ifdef WEIR_DEBUG
#include <assert.h>

static void check_invariants(const weir_engine *engine)
{
    int32_t reserved = 0;
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        const weir__slot *slot = &engine->slots[i];
        assert(slot->index == i);
        if (slot->state == WEIR_SLOT_IDLE) {
            assert(slot->request == NULL);
            continue;
        }
        const weir__request *request = slot->request;
        assert(engine->lanes[slot->lane] == slot);
        assert(slot->n_tokens - request->n_prompt <= slot->n_generated);
        if (slot->state == WEIR_SLOT_PREFILLING)
            assert(slot->n_past < request->n_prompt && slot->n_tokens == request->n_prompt);
        else
            assert(slot->n_past >= request->n_prompt && slot->n_past == slot->n_tokens - 1);
        assert(engine->model->ops->seq_pos_max(engine->context, slot->lane) == slot->n_past - 1);
        reserved += weir__request_cells(request);
    }
    for (int32_t lane = 0; lane < engine->params.n_slots; lane++) {
        assert(engine->lanes[lane] == NULL || engine->lanes[lane]->lane == lane);
        if (engine->lanes[lane] == NULL) assert(engine->model->ops->seq_pos_max(engine->context, lane) == -1);
    }
    assert(reserved == engine->n_reserved && reserved <= engine->info.n_ctx);
}
#else
static void check_invariants(const weir_engine *engine)
{
    (void)engine;
}
#endif

static void account(weir_engine *engine, weir_report *report, int64_t start)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        report->n_active += engine->slots[i].state != WEIR_SLOT_IDLE;
    report->tick_ns = weir__clock_now_ns() - start;
    if (!report->idle) {
        engine->counts.n_ticks++;
        engine->counts.tick_ns = report->tick_ns;
        engine->counts.busy_ns += report->tick_ns;
        engine->counts.n_bad_plans += report->bad_plan;
    }
    publish(engine);
    report->queue_depth = engine->counts.queue_depth;
    check_invariants(engine);
}

void weir__step_tick(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan, weir_report *report)
{
    int64_t start = weir__clock_now_ns();
    *report = (weir_report){.size = sizeof *report};
    weir__step_prepare(engine, start);
    int64_t prepared = weir__clock_now_ns();
    report->bad_plan = !make_batch(engine, plan, n_plan, start);
    report->idle = engine->batch.n == 0;
    if (!report->idle) {
        weir_error error = {0};
        weir_status status = decode(engine, &report->decode_ns, &error);
        collect_slots(engine, weir__clock_now_ns());
        if (status == WEIR_OK) {
            advance(engine, report);
            weir__sample(engine);
            emit(engine);
            /* With sampling, as a stream's reader sees it; without what came and went before the plan. */
            weir__cost_observe(&engine->cost, &engine->shape, weir__clock_now_ns() - prepared);
        } else {
            /* What a pass that a stop broke off has left in the memory is nobody's. */
            if (status == WEIR_ABORTED && atomic_load(&engine->abandon))
                weir__step_abandon(engine);
            else
                fail_pass(engine, status, &error);
            finish_latched(engine);
        }
    }
    account(engine, report, start);
}

int64_t weir__step_next_deadline(weir_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    int64_t next = engine->queue.n > 0 ? engine->queue.deadline_ns : WEIR__CLOCK_NEVER;
    pthread_mutex_unlock(&engine->mutex);
    return next;
}

void weir__step_abandon(weir_engine *engine)
{
    weir__request *request;
    collect_slots(engine, weir__clock_now_ns());
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        if (engine->slots[i].state != WEIR_SLOT_IDLE) weir__slot_fail(&engine->slots[i], WEIR_STOPPED, NULL);
    finish_latched(engine);
    for (;;) {
        pthread_mutex_lock(&engine->mutex);
        request = weir__queue_pop(&engine->queue);
        pthread_mutex_unlock(&engine->mutex);
        if (request == NULL) break;
        if (weir__request_cancelled(request))
            finish_queued(engine, request, WEIR_REASON_CANCELLED, WEIR_OK);
        else
            finish_queued(engine, request, WEIR_REASON_ERROR, WEIR_STOPPED);
    }
}
