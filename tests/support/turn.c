/* SPDX-License-Identifier: Apache-2.0 */
#include "support/turn.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/event.h"
#include "support/plan.h"

/* Invariants while no call is inside the engine. */
static void check_rest(play *p)
{
    weir_engine_stats s = play_stats(p);
    uint64_t n_active = (uint64_t)s.n_slots_prefilling + (uint64_t)s.n_slots_generating;
    int64_t n_cells = atomic_load(&p->fake->n_cells);
    MUST(p, s.n_submitted == p->n_accepted && s.n_refused == p->n_refused, "%llu submitted, %llu refused",
         (unsigned long long)s.n_submitted, (unsigned long long)s.n_refused);
    MUST(p, play_n_finished(&s) + (uint64_t)s.queue_depth + n_active == s.n_submitted, "%d wait, %llu run",
         s.queue_depth, (unsigned long long)n_active);
    MUST(p, s.n_kv_used == n_cells, "%d of %lld", s.n_kv_used, (long long)n_cells);
    MUST(p, s.n_kv_reserved >= s.n_kv_used && s.n_kv_reserved <= s.n_kv, "%d reserved", s.n_kv_reserved);
    MUST(p, n_active > 0 || s.n_kv_reserved == s.n_kv_cached, "%d reserved", s.n_kv_reserved);
    MUST(p, s.n_kv_cached >= 0 && s.n_kv_cached <= s.n_kv_used, "%d cached", s.n_kv_cached);
    MUST(p, p->params.cache_sequences != 0 || s.n_cache_entries == 0, "cached");
    MUST(p, p->params.cache_sequences != 0 || p->n_forks > 0 || s.n_cached_tokens == 0, "cached");
    MUST(p, s.n_ticks == p->n_decodes && s.n_failed_ticks == p->n_failed, "%llu ticks, %llu failed",
         (unsigned long long)s.n_ticks, (unsigned long long)s.n_failed_ticks);
    /* Tokens sampled behind an answer's end do not count. */
    uint64_t n_samples = atomic_load(&p->fake->n_samples);
    MUST(p,
         s.n_generated_tokens <= n_samples && s.n_generated_tokens + s.n_drafted >= n_samples &&
             s.n_accepted <= s.n_drafted,
         "%llu generated, %llu sampled, %llu of %llu drafts", (unsigned long long)s.n_generated_tokens,
         (unsigned long long)n_samples, (unsigned long long)s.n_accepted, (unsigned long long)s.n_drafted);
    MUST(p, s.n_prompt_tokens == p->n_prefill, "%llu prompt tokens", (unsigned long long)s.n_prompt_tokens);
    MUST(p, s.n_bad_plans == p->n_bad_plans, "%llu bad plans", (unsigned long long)s.n_bad_plans);
    MUST(p, s.decode_ns >= 0 && s.decode_ns <= s.busy_ns && s.tick_ns <= s.busy_ns, "times");
    MUST(p, atomic_load(&p->fake->faults) == 0, "faults %x", (unsigned)atomic_load(&p->fake->faults));
    for (int i = 0; i < 8 && !p->scarce;
         i++) /* a last chunk without memory has another reason for its reader */
        MUST(p, s.n_finished[i] >= p->seen[i], "%llu of reason %d", (unsigned long long)s.n_finished[i], i);
}

/* Jobs that must have ended when a tick or a view that began at `start` as turn `turn` is over. */
static void check_ended(play *p, uint64_t turn, int64_t start)
{
    for (int i = 0; i < p->n_jobs; i++) {
        job *j = &p->jobs[i];
        if (j->stream == NULL || weir_stream_finished(j->stream)) continue;
        MUST(p, j->cancel_turn == 0 || j->cancel_turn >= turn, "job %d was cancelled before", i);
        MUST(p, !p->stopped, "job %d outlives the stop", i);
        MUST(p, j->due_ns > start, "the deadline of job %d has passed", i);
        uint64_t n_good = j->n_good; /* sets of adapters take turns, and a plan may waste one */
        if (p->disturbed) n_good += (job_rejected(p) - j->n_rejected) * (uint64_t)p->first.n_ctx;
        if (p->adapted) n_good = (n_good + p->n_planned - j->planned) * PLAY_SETS;
        MUST(p, p->ranked || p->n_good - j->good < n_good || j->cancel_turn > 0, "job %d starves: %llu ticks",
             i, (unsigned long long)n_good);
    }
}

/* With lanes there is room for each request that gets a slot: without ageing all that have a higher priority
 * than the lowest in a slot must be in one too. */
static void check_priorities(play *p, const weir_view *view)
{
    int32_t lowest = INT32_MAX, n_higher = 0;
    weir_engine_stats s = play_stats(p);
    if (p->params.ageing_ms > 0 || p->first.layout != WEIR_LAYOUT_PER_SLOT || p->disturbed || p->adapted ||
        view->n_slots < (size_t)s.n_slots_prefilling + (size_t)s.n_slots_generating)
        return; /* or the view does not have all */
    for (size_t i = 0; i < view->n_slots; i++)
        if (view->slots[i].priority < lowest) lowest = view->slots[i].priority;
    for (size_t i = 0; i < view->n_slots; i++) n_higher += view->slots[i].priority > lowest;
    for (int i = 0; i < p->n_jobs; i++) {
        const job *j = &p->jobs[i];
        bool live = j->accepted && j->stream != NULL && !weir_stream_finished(j->stream);
        n_higher -= live && j->w.priority > lowest;
    }
    MUST(p, n_higher >= 0, "%d wait for lower ones", -n_higher);
}

/* True if requests may be computing tokens of their answers again. */
static bool goes_back(play *p)
{
    weir_engine_stats s = play_stats(p);
    bool whole = p->model->info.is_recurrent || p->model->info.is_hybrid;
    bool lost = p->model->info.n_swa > 0 && s.n_failed_ticks > 0; /* windows, so slots start again */
    return s.n_suspensions > 0 || lost || (whole && s.n_drafted > s.n_accepted);
}

const weir_view *play_view(play *p)
{
    const weir_view *view = NULL;
    int64_t start = weir__clock_now_ns();
    uint64_t turn = ++p->turns;
    p->place = DECODING; /* requests that end in it may call back */
    MUST(p, weir_engine_view(p->engine, &view, NULL) == WEIR_OK, "no view");
    p->place = BETWEEN;
    say(p, "turn %llu: view of %zu slots, %d wait", (unsigned long long)turn, view->n_slots,
        view->queue_depth);
    if (p->stopped) return view; /* its result is gone */
    MUST(p, view->budget == p->first.n_batch && view->chunk_size == p->params.chunk_size, "view");
    MUST(p, view->n_slots > 0 || view->queue_depth == 0, "%d wait for an empty engine", view->queue_depth);
    bool back = goes_back(p);
    size_t n_joined = 0;
    for (size_t i = 0; i < view->n_slots; i++) {
        const weir_slot_view *v = &view->slots[i];
        bool prefilling = v->state == WEIR_SLOT_PREFILLING;
        if (v->state == WEIR_SLOT_JOINED) {
            MUST(p, v->n_prompt_left == 0 && p->params.cache_sequences != 0, "slot %d", v->slot);
            n_joined++;
            continue;
        }
        MUST(p, prefilling || v->state == WEIR_SLOT_GENERATING, "slot %d", v->slot);
        /* a suspended request computes its generated tokens again, and one whose state was taken back */
        MUST(p, prefilling == (v->n_prompt_left > 0) && v->n_prompt_left <= v->n_prompt + v->n_generated,
             "slot %d", v->slot);
        MUST(p, prefilling ? back || v->n_generated == 0 : v->n_generated > 0, "slot %d", v->slot);
        MUST(p, i == 0 || view->slots[i - 1].waited_ns >= v->waited_ns, "slot %d is older", v->slot);
    }
    MUST(p, n_joined < view->n_slots || n_joined == 0, "all wait for each other");
    check_priorities(p, view);
    check_ended(p, turn, start);
    check_rest(p);
    return view;
}

/* Ends by error that this tick must have caused; fewer only if something else ended the requests
 * concerned. */
static void check_errors(play *p, weir_status decoded, bool sample_failed)
{
    weir_engine_stats s = play_stats(p);
    uint64_t n = s.n_finished[WEIR_REASON_ERROR] - p->at_decode.n_finished[WEIR_REASON_ERROR];
    uint64_t want = sample_failed;
    if (decoded == WEIR_BACKEND) want = (uint64_t)p->batch_seqs;
    if (decoded == WEIR_NO_SPACE) /* alone it has all cells; of several one is suspended */
        want = p->at_decode.n_slots_prefilling + p->at_decode.n_slots_generating == 1 &&
               p->at_decode.n_cache_entries == 0 && p->batch_drafts == 0; /* they are left out first */
    if (decoded == WEIR_NO_SPACE && p->at_decode.n_cache_entries > 0 && n <= 1) return;
    if (p->scarce) return;
    /* A burst may end an answer before the sample that fails. */
    MUST(p, n == want || (n < want && (p->cancelled_inside || p->deadlines || p->batch_drafts > 0)),
         "%llu ended with an error instead of %llu", (unsigned long long)n, (unsigned long long)want);
}

/* Arms one failure of the next tick. */
static void arm(play *p)
{
    if (p->scarce) weir__mem_fail_after(dice_in(&p->d, 0, 30));
    if (!p->disturbed) return;
    if (dice_one_in(&p->d, 12)) {
        atomic_store(&p->fake->fail_decode_status, dice_one_in(&p->d, 2) ? WEIR_BACKEND : WEIR_NO_SPACE);
        atomic_store(&p->fake->fail_decode_keep, dice_in(&p->d, 0, 3));
        atomic_store(&p->fake->fail_decode_at, 0);
    } else if (dice_one_in(&p->d, 12)) {
        atomic_store(&p->fake->fail_sample_at, dice_in(&p->d, 0, 3));
    }
    atomic_store(&p->fake->fail_share, dice_one_in(&p->d, 10));
    atomic_store(&p->fake->fail_state_save, dice_one_in(&p->d, 4));
    atomic_store(&p->fake->fail_state_load, dice_one_in(&p->d, 4));
}

weir_report play_tick(play *p, bool plain)
{
    weir_plan_entry plan[16];
    size_t n_plan = 0;
    bool planned = !plain && dice_one_in(&p->d, 3), bad = false;
    uint64_t acts = p->n_acts;
    if (planned) {
        const weir_view *view = play_view(p);
        n_plan = plan_random(&p->d, view, p->params.n_slots, plan, sizeof plan / sizeof *plan);
        bad = !plan_allowed(view, p->params.n_slots, plan, n_plan);
        if (dice_one_in(&p->d, 6)) play_act(p);
    }
    bool sure = acts == p->n_acts && !p->deadlines; /* the view still agrees with the step */

    if (!plain) arm(p);
    bool armed_decode = atomic_load(&p->fake->fail_decode_at) == 0;
    bool armed_sample = atomic_load(&p->fake->fail_sample_at) >= 0;
    weir_report report = {.size = sizeof report};
    weir_error error = {0};
    uint64_t passes = atomic_load(&p->fake->n_passes), tokens = atomic_load(&p->fake->n_tokens);
    uint64_t decodes = p->n_decodes, turn = ++p->turns;
    int64_t start = weir__clock_now_ns();
    p->strategy_bad = p->cancelled_inside = false;
    p->place = DECODING;
    weir_status status = weir_engine_step(p->engine, planned ? plan : NULL, n_plan, &report, &error);
    p->place = BETWEEN;
    weir__mem_fail_after(-1);
    bool decode_failed = armed_decode && atomic_load(&p->fake->fail_decode_at) < 0;
    bool sample_failed = armed_sample && atomic_load(&p->fake->fail_sample_at) < 0;
    atomic_store(&p->fake->fail_decode_at, -1);
    atomic_store(&p->fake->fail_sample_at, -1);
    atomic_store(&p->fake->fail_share, false);
    atomic_store(&p->fake->fail_state_save, false);
    atomic_store(&p->fake->fail_state_load, false);
    say(p, "turn %llu: %d prefilled, %d fed, %d drafted, %d run, %d wait%s%s%s%s", (unsigned long long)turn,
        report.n_prefill, report.n_decode, report.n_drafted, report.n_active, report.queue_depth,
        planned ? ", planned" : "", report.bad_plan ? ", bad plan" : "", decode_failed ? ", pass failed" : "",
        sample_failed ? ", sample failed" : "");
    MUST(p, status == WEIR_OK, "%s", error.message);

    passes = atomic_load(&p->fake->n_passes) - passes;
    tokens = atomic_load(&p->fake->n_tokens) - tokens;
    MUST(p, report.idle == (p->n_decodes == decodes) && p->n_decodes - decodes <= 1, "idle or not");
    MUST(p, tokens == (uint64_t)report.n_prefill + (uint64_t)report.n_decode + (uint64_t)report.n_drafted,
         "%llu tokens were computed", (unsigned long long)tokens);
    MUST(p, report.bad_plan == (planned ? bad : p->strategy_bad) || (planned && !sure), "the plan's rating");
    MUST(p, !report.idle || report.n_active == 0 || (planned && !report.bad_plan), "idle with work");
    p->n_failed += decode_failed;
    p->n_bad_plans += planned && report.bad_plan && !report.idle;
    p->n_prefill += (uint64_t)report.n_prefill;
    bool standard = !planned && p->params.strategy == NULL;
    if (passes > 0 && (standard || report.bad_plan)) p->n_good++;
    if (!standard && !report.bad_plan) p->n_planned++;
    if (!report.idle && !p->stopped)
        check_errors(p, decode_failed ? (weir_status)atomic_load(&p->fake->fail_decode_status) : WEIR_OK,
                     sample_failed);
    weir_engine_stats s = play_stats(p);
    MUST(p, p->stopped || report.n_active == s.n_slots_prefilling + s.n_slots_generating, "%d active",
         report.n_active);
    MUST(p, p->stopped || report.queue_depth == s.queue_depth, "%d wait", report.queue_depth);
    check_ended(p, turn, start);
    check_rest(p);
    return report;
}
