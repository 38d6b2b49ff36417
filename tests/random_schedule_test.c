/* random_schedule_test.c: the engine on the fake backend under random schedules, against a naive reference.
 *
 * Each schedule makes an engine, a vocabulary and requests of its own and throws events at them, between
 * ticks and inside them. WEIR_TEST_SCHEDULES says how many, WEIR_TEST_SEED where they begin: schedule i has
 * the seed WEIR_TEST_SEED + i, so that one that failed runs alone with its own seed and
 * WEIR_TEST_SCHEDULES=1. Those with deadlines look at the clock, the others repeat exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "support/effort.h"
#include "support/event.h"
#include "support/order.h"
#include "support/turn.h"

/* The engine ticks on the calling thread; its helpers have threads of their own. */
#define SCHEDULES (EFFORT_RACES ? 200 : EFFORT(10000, 2000))

/* ---- A schedule ------------------------------------------------------------------------------------ */

/* Four sets, of which the others must not see anything in each other's cells. */
static void load_adapters(play *p)
{
    p->adapted = true;
    for (int i = 0; i < 2; i++)
        MUST(p, weir_adapter_load(p->model, i == 0 ? "fake:1" : "fake:2", &p->adapters[i], NULL) == WEIR_OK,
             "no adapter");
    p->uses[1][0] = p->uses[3][0] = (weir_adapter_use){p->adapters[0], 1.0f};
    p->uses[2][0] = (weir_adapter_use){p->adapters[0], 0.5f};
    p->uses[3][1] = (weir_adapter_use){p->adapters[1], -2.0f};
}

static void open_play(play *p)
{
    char path[160];
    dice *d = &p->d;
    bool exact = dice_one_in(d, 2);
    int32_t n_vocab = dice_in(d, 260, 300), every = dice_one_in(d, 3) ? 0 : dice_in(d, 3, 60);
    snprintf(path, sizeof path,
             "fake:n_vocab=%d,seed=%d,eos_every=%d,any=%d,exact=%d,recurrent=%d,hybrid=%d,n_swa=%d", n_vocab,
             dice_in(d, 0, 1000000), every, !dice_one_in(d, 4), exact, dice_one_in(d, 8), dice_one_in(d, 6),
             dice_one_in(d, 4) ? dice_in(d, 1, 40) : 0);
    p->live = weir__mem_live();
    MUST(p, weir_model_load(path, NULL, &p->model, NULL) == WEIR_OK, "%s", path);
    p->fake = weir__fake_of(p->model);
    wish_vocabulary(p->model, n_vocab, d);
    p->fake->before_decode = play_before_decode;
    p->fake->before_sample = play_before_sample;
    p->fake->before_decode_user = p->fake->before_sample_user = p;
    p->deadlines = dice_one_in(d, 16);
    if (p->deadlines) atomic_store(&p->fake->tick_us, 100);
    p->disturbed = dice_one_in(d, 3);
    p->scarce = dice_one_in(d, 20);
    p->ranked = dice_one_in(d, 2);
    p->act_rate = dice_in(d, 2, 30);
    p->turns = 1;

    weir_engine_params *q = &p->params;
    *q = weir_engine_params_default();
    q->manual = true;
    q->n_slots = dice_in(d, 1, 8);
    q->n_ctx = dice_one_in(d, 2) ? dice_in(d, 16, 60) : dice_in(d, 16, 300);
    if (!dice_one_in(d, 3)) q->n_kv = dice_in(d, 8 * q->n_slots, q->n_slots * q->n_ctx);
    if (dice_one_in(d, 3)) q->n_kv = dice_in(d, q->n_ctx, q->n_ctx + q->n_slots * q->n_ctx / 4); /* tight */
    q->cache_bytes = dice_one_in(d, 2) ? WEIR_AUTO : dice_one_in(d, 3) ? 0 : (uint64_t)dice_in(d, 0, 2000);
    q->cache_sequences = dice_one_in(d, 3) ? -1 : dice_in(d, 0, 5);
    q->ageing_ms = dice_one_in(d, 2) ? 0 : dice_one_in(d, 2) ? 1 : 10000;
    q->n_batch = dice_in(d, q->n_slots, dice_one_in(d, 2) ? q->n_slots + 4 : 80);
    if (dice_one_in(d, 3)) q->n_ubatch = dice_in(d, 1, 30);
    q->chunk_size = dice_in(d, 1, dice_one_in(d, 2) ? 6 : 64);
    q->queue_limit = dice_one_in(d, 2) ? 0 : dice_in(d, 1, 8);
    q->max_tokens = dice_one_in(d, 4) ? dice_in(d, 0, 40) : -1;
    q->layout = (weir_layout)dice_in(d, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT);
    q->n_draft_max = dice_one_in(d, 3) ? 0 : dice_in(d, 1, 12);
    if (dice_one_in(d, 2)) q->lookup_bytes = (uint64_t)dice_in(d, 0, 20000);
    p->strategy = (weir_strategy){.name = "random", .plan = play_plan, .user = p};
    if (dice_one_in(d, 4)) q->strategy = &p->strategy;
    weir_error error = {0};
    MUST(p, weir_engine_create(p->model, q, &p->engine, &error) == WEIR_OK, "%s", error.message);
    if (!dice_one_in(d, 3)) guess_install(&p->guess, p->engine, p->model, -1, -1);
    p->first = p->at_decode = play_stats(p);
    bool shares = !p->model->info.is_recurrent;
    int32_t n_lanes = q->n_slots + (q->cache_sequences > 0 && shares ? q->cache_sequences : 0);
    say(p,
        "%s; %d slots, n_ctx %d, n_kv %d (%d), n_batch %d, chunks %d, queue %d, layout %d, drafts of "
        "%d%s%s%s",
        path, q->n_slots, p->first.n_ctx, p->first.n_kv, q->n_kv, p->first.n_batch, q->chunk_size,
        q->queue_limit, (int)p->first.layout, q->n_draft_max, p->disturbed ? ", disturbed" : "",
        p->scarce ? ", scarce" : "", q->strategy ? ", strategy" : "");
    bool lanes = p->first.layout == WEIR_LAYOUT_PER_SLOT;
    int32_t n_seq = lanes ? p->first.n_kv / n_lanes : p->first.n_kv;
    MUST(p, p->first.n_ctx == (q->n_ctx < n_seq ? q->n_ctx : n_seq), "n_ctx is %d", p->first.n_ctx);
    MUST(p, q->n_kv == 0 || lanes || (exact ? p->first.n_kv == q->n_kv : p->first.n_kv >= q->n_kv), "n_kv");
    MUST(p, q->n_kv > 0 || p->first.n_ctx == q->n_ctx, "a context is divided by slots");
    p->limits = (wish_limits){p->model,
                              p->first.n_ctx,
                              q->max_tokens,
                              dice_in(d, 3, dice_one_in(d, 3) ? 150 : 40),
                              n_vocab,
                              NULL,
                              0,
                              NULL,
                              NULL,
                              0};
    if (dice_one_in(d, 3)) load_adapters(p);
}

/* Ticks until all have ended; at first things may go on happening. */
static void run_out(play *p)
{
    uint64_t work = PLAY_JOBS, n = 0;
    int rough = dice_in(&p->d, 0, 60);
    for (int i = 0; i < rough; i++) play_tick(p, false);
    if (dice_one_in(&p->d, 4)) {
        weir_engine_stats s = play_stats(p);
        bool live = play_n_finished(&s) < s.n_submitted;
        MUST(p, weir_engine_drain(p->engine, 0) == (live ? WEIR_STATE : WEIR_OK), "drain");
        p->closed = true;
    }
    for (;;) {
        weir_report report = play_tick(p, true);
        if (report.n_active == 0 && report.queue_depth == 0) break;
        work = PLAY_JOBS;
        for (int i = 0; i < p->n_jobs; i++)
            work += (uint64_t)p->jobs[i].w.task.n_prompt + (uint64_t)p->jobs[i].w.task.max_tokens;
        weir_engine_stats s = play_stats(p);
        work += s.n_suspensions * (uint64_t)p->first.n_ctx; /* computed again, like those of drafts: */
        work += (s.n_drafted - s.n_accepted) * (uint64_t)(p->params.n_draft_max + 1);
        MUST(p, ++n <= work, "the engine does not come to rest");
        if (dice_one_in(&p->d, 3)) play_read_all(p);
    }
}

static void stop(play *p, bool destroy)
{
    say(p, destroy ? "destroy" : "stop");
    p->closed = true;
    p->turns++;
    p->place = READY;
    if (destroy) { /* no other call on the engine may run */
        for (int i = 0; i < p->n_jobs; i++)
            if (p->jobs[i].on_ready == ACT) p->jobs[i].on_ready = COUNT_ONLY;
        weir_engine_destroy(p->engine);
        p->engine = NULL;
    } else {
        weir_engine_stop(p->engine);
    }
    p->place = BETWEEN;
    for (int i = 0; i < p->n_jobs; i++)
        MUST(p, p->jobs[i].stream == NULL || weir_stream_finished(p->jobs[i].stream), "job %d lives on", i);
    if (p->engine == NULL) return;
    weir_report report = play_tick(p, false);
    MUST(p, report.idle && report.n_active == 0 && report.queue_depth == 0, "work after the stop");
}

/* The record agrees with the counters, as long as it has all ticks. */
static void check_record(play *p, const weir_engine_stats *s)
{
    static weir_tick_slot parts[256];
    uint64_t next = 0, n_suspended = 0, n_resumed = 0, n_tokens = 0, n_ended = 0;
    size_t n;
    while (weir_engine_tick_slots(p->engine, next, parts, 256, &n) == WEIR_OK) {
        if (parts[0].serial != next) return;
        for (size_t i = 0; i < n; i++) {
            n_suspended += parts[i].suspended;
            n_resumed += parts[i].resumed;
            n_tokens += (uint64_t)parts[i].n_tokens;
            n_ended += parts[i].end_ns > 0;
        }
        next += n;
    }
    MUST(p, n_suspended == s->n_suspensions && n_resumed == s->n_resumes, "%llu suspensions recorded",
         (unsigned long long)n_suspended);
    MUST(p, n_tokens == (uint64_t)s->batch_tokens.sum, "%llu tokens recorded", (unsigned long long)n_tokens);
    MUST(p, n_ended == s->n_submitted, "%llu ends recorded", (unsigned long long)n_ended);
}

/* All have ended: the counters of those that nobody reads must be those of their expected texts. */
static void check_counters(play *p, bool stopped)
{
    weir_engine_stats s = play_stats(p);
    bool all = !p->scarce, all_read = !p->scarce;
    uint64_t n_prompt = 0; /* of those that came to their own end */
    for (int i = 0; i < p->n_jobs; i++) {
        const job *j = &p->jobs[i];
        if (j->r.finished && j->r.reason == j->w.want.reason) n_prompt += (uint64_t)j->w.task.n_prompt;
        if (j->counted) continue;
        all_read = false;
        if (j->must_cancel)
            p->seen[WEIR_REASON_CANCELLED]++;
        else if (p->disturbed || stopped || j->w.deadline_ms > 0 || j->cancel_turn > 0)
            all = false;
        else
            p->seen[j->w.want.reason]++;
    }
    for (int i = 0; i < 8 && all; i++)
        MUST(p, s.n_finished[i] == p->seen[i], "%llu of reason %d", (unsigned long long)s.n_finished[i], i);
    MUST(p, !all_read || s.n_generated_tokens == p->n_seen_tokens, "%llu generated, %llu seen",
         (unsigned long long)s.n_generated_tokens, (unsigned long long)p->n_seen_tokens);
    MUST(p, s.n_prompt_tokens + s.n_cached_tokens >= n_prompt, "%llu of %llu prompt tokens were computed",
         (unsigned long long)s.n_prompt_tokens, (unsigned long long)n_prompt);
    MUST(p, s.n_kv_reserved == s.n_kv_cached && s.n_kv_used == s.n_kv_cached, "%d promised", s.n_kv_reserved);
    MUST(p, s.n_suspended == 0, "%d suspended", s.n_suspended);
    MUST(p, s.cache_bytes == 0 || s.n_cache_entries > 0, "%llu bytes", (unsigned long long)s.cache_bytes);
    p->n_cached_tokens = s.n_cached_tokens;
    p->n_joined = s.n_joined;
    p->n_adapter_changes = s.n_adapter_changes;
    p->n_evicted = s.n_evicted;
    p->n_drafted = s.n_drafted;
    p->n_drafted_right = s.n_accepted;
    MUST(p, s.n_resumes <= s.n_suspensions, "%llu resumes", (unsigned long long)s.n_resumes);
    MUST(p,
         s.n_cancelled_queued + s.n_cancelled_prefilling + s.n_cancelled_generating ==
             s.n_finished[WEIR_REASON_CANCELLED],
         "cancels do not add up");
    MUST(p,
         s.passes.count == s.n_ticks && s.tick_seconds.count == s.n_ticks &&
             s.batch_tokens.count == s.n_ticks,
         "%llu ticks", (unsigned long long)s.n_ticks);
    MUST(p, s.queue_seconds.count <= s.n_submitted && s.ttft_seconds.count <= s.queue_seconds.count,
         "%llu were given slots", (unsigned long long)s.queue_seconds.count);
    check_record(p, &s);
    p->n_suspensions = s.n_suspensions;
}

static void close_play(play *p)
{
    MUST(p, atomic_load(&p->fake->n_samplers) == 0, "samplers live on");
    p->n_parts = atomic_load(&p->fake->n_parts);
    weir_engine_destroy(p->engine);
    MUST(p, atomic_load(&p->fake->n_cells) == 0, "cells in use");
    MUST(p, atomic_load(&p->fake->n_contexts) == 0, "contexts live on");
    MUST(p, atomic_load(&p->fake->faults) == 0, "faults %x", (unsigned)atomic_load(&p->fake->faults));
    for (int i = 0; i < p->n_jobs; i++) {
        weir_stream_release(p->jobs[i].stream);
        reader_fini(&p->jobs[i].r);
        wish_fini(&p->jobs[i].w);
    }
    while (p->n_spares > 0) weir_stream_release(p->spares[--p->n_spares]);
    for (int i = 0; i < 2; i++) weir_adapter_release(p->adapters[i]);
    MUST(p, atomic_load(&p->fake->n_adapters) == 0, "adapters live on");
    weir_model_release(p->model);
    MUST(p, weir__mem_live() == p->live, "%ld blocks are left", weir__mem_live() - p->live);
}

static void run_schedule(play *p, uint64_t seed)
{
    memset(p, 0, offsetof(play, trace));
    p->n_trace = 0;
    p->seed = seed;
    p->d.state = seed;
    open_play(p);
    int n_events = dice_in(&p->d, 4, 60);
    play_submit(p);
    for (int i = 0; i < n_events; i++) {
        int32_t event = dice_in(&p->d, 0, 99);
        if (event < 30)
            play_act(p);
        else if (event < 34 && !p->scarce && !p->disturbed)
            play_generate(p);
        else if (event < 38)
            play_view(p);
        else
            for (int32_t n = dice_in(&p->d, 1, 6); n > 0; n--) play_tick(p, false);
    }
    int32_t way = dice_in(&p->d, 0, 7);
    if (way < 2)
        stop(p, way == 0);
    else
        run_out(p);
    for (int i = 0; i < p->n_jobs; i++)
        if (p->jobs[i].stream != NULL) job_take(&p->jobs[i], 1000);
    if (p->engine != NULL) check_counters(p, way < 2 || p->stopped);
    close_play(p);
}

static play *now_playing; /* for the handler: an assertion inside the engine */

static void on_abort(int signal_number)
{
    /* NOLINTNEXTLINE(bugprone-signal-handler): show() only copies bytes and writes */
    if (now_playing != NULL) show(now_playing);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void test_random_schedules(void **state)
{
    static play p;
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", SCHEDULES);
    uint64_t n_drafted = 0, n_right = 0;
    uint64_t reasons[8] = {0}, n_requests = 0, n_suspensions = 0, n_cached = 0, n_joined = 0, n_evicted = 0,
             n_forks = 0, n_changes = 0, n_parts = 0;
#ifdef WEIR_DEBUG
    const char *checked = "the engine checks itself each tick";
#else
    const char *checked = "the engine does not check itself (WEIR_DEBUG is not defined)";
#endif
    print_message("%llu schedules from WEIR_TEST_SEED=%llu; %s\n", (unsigned long long)n,
                  (unsigned long long)seed, checked);
    now_playing = &p;
    signal(SIGABRT, on_abort);
    for (uint64_t i = 0; i < n; i++) {
        run_schedule(&p, seed + i);
        n_requests += p.n_accepted;
        n_suspensions += p.n_suspensions;
        n_cached += p.n_cached_tokens;
        n_joined += p.n_joined;
        n_evicted += p.n_evicted;
        n_drafted += p.n_drafted;
        n_right += p.n_drafted_right;
        n_forks += p.n_forks;
        n_changes += p.n_adapter_changes;
        n_parts += p.n_parts;
        for (int r = 0; r < 8; r++) reasons[r] += p.seen[r];
    }
    now_playing = NULL;
    print_message("%llu requests, %llu forks were asked for:", (unsigned long long)n_requests,
                  (unsigned long long)n_forks);
    for (int r = 1; r <= WEIR_REASON_DEADLINE; r++)
        print_message(" %llu %s", (unsigned long long)reasons[r], weir_reason_name((weir_reason)r));
    print_message(", %llu suspensions\n", (unsigned long long)n_suspensions);
    print_message(
        "%llu tokens came from the cache, %llu requests joined another, %llu entries were evicted\n",
        (unsigned long long)n_cached, (unsigned long long)n_joined, (unsigned long long)n_evicted);
    print_message("%llu sequences were cut by a part of a state\n", (unsigned long long)n_parts);
    assert_true(n < 1000 || n_parts > n / 50);
    assert_true(n < 1000 || (n_cached > 10 * n && n_joined > n / 25 && n_evicted > n / 10));
    print_message("%llu tokens were drafted, %llu rightly\n", (unsigned long long)n_drafted,
                  (unsigned long long)n_right);
    assert_true(n < 1000 || (n_right > 2 * n && n_drafted > n_right + n));
    assert_true(n < 1000 || n_suspensions > n / 20);
    assert_true(n < 1000 || n_forks > n);
    print_message("%llu times a pass had other adapters than the one before\n",
                  (unsigned long long)n_changes);
    assert_true(n < 1000 || n_changes > 2 * n);
    /* A test that no longer meets these proves nothing. */
    for (int r = 1; r <= WEIR_REASON_DEADLINE && n >= 1000; r++) assert_true(reasons[r] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
