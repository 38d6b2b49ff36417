/* random_schedule_test.c: the engine on the fake backend under random schedules, against a naive reference.
 *
 * Each schedule makes an engine, a vocabulary and requests of its own and throws events at them, between
 * ticks and inside them. WEIR_TEST_SCHEDULES says how many, WEIR_TEST_SEED where they begin: schedule i has
 * the seed WEIR_TEST_SEED + i, so that one that failed runs alone with its own seed and
 * WEIR_TEST_SCHEDULES=1. Those with deadlines look at the clock, the others repeat exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/plan.h"
#include "support/play.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
#define SCHEDULES 2000 /* sanitizers take five times as long and more */
#else
#define SCHEDULES 10000
#endif

#define BATCH 4 /* the most requests of one submit */

/* ---- Submitting ------------------------------------------------------------------------------------ */

/* What a submit may be refused for. */
typedef enum poison { NOTHING, TOKEN, TWICE, CANCELLED_BEFORE, ATTACHED, POISONS } poison;

/* One submit. Streams that are its own are in `own` too. */
typedef struct order {
    job *jobs; /* [n] */
    int32_t n;
    weir_request requests[BATCH];
    weir_stream *streams[BATCH], *own[BATCH];
    int32_t before[BATCH]; /* intervals */
    weir_result results[BATCH];
    bool streamed; /* streams is not NULL */
    bool too_long, state, invalid, full, closed;
    bool never; /* more than slots and queue hold */
} order;

static weir_stream *fresh_stream(play *p)
{
    weir_stream *stream = NULL;
    if (p->n_spares > 0) return p->spares[--p->n_spares];
    while (weir_stream_create(&stream, NULL) != WEIR_OK) MUST(p, p->scarce, "no stream");
    if (dice_one_in(&p->d, 10)) weir_stream_set_interval(stream, dice_in(&p->d, -2, 5));
    return stream;
}

/* A stream of a submit that was refused must be as before. */
static void put_back(play *p, weir_stream *stream)
{
    weir_chunk chunk;
    if (stream == NULL) return;
    MUST(p, weir_stream_index(stream) == -1 && !weir_stream_finished(stream), "a refused stream has changed");
    MUST(p, weir_stream_try_next(stream, &chunk) == WEIR_STATE, "a refused stream gives chunks");
    if (p->n_spares < PLAY_SPARES && !weir_stream_cancelled(stream))
        p->spares[p->n_spares++] = stream;
    else
        weir_stream_release(stream);
}

static void poison_order(play *p, order *o)
{
    static const int32_t bad_tokens[] = {-1, INT32_MIN, INT32_MAX};
    int32_t last = o->n - 1;
    weir_stream *other = NULL;
    for (int i = 0; i < p->n_jobs && other == NULL; i++) other = p->jobs[i].stream;
    switch ((poison)dice_in(&p->d, TOKEN, POISONS - 1)) {
    case TOKEN:
        if (o->requests[last].tokens == NULL) break;
        o->requests[last].tokens = &bad_tokens[dice_in(&p->d, 0, 2)];
        o->requests[last].n_tokens = 1;
        o->invalid = true;
        break;
    case TWICE: o->state = o->n > 1 && (other = o->streams[0]) != NULL; break;
    case CANCELLED_BEFORE:
        if (o->streams[last] == NULL) break;
        weir_stream_cancel(o->streams[last]);
        o->state = true;
        break;
    case ATTACHED: o->state = o->streamed && other != NULL; break;
    case NOTHING:
    case POISONS: break;
    }
    if (!o->state || weir_stream_cancelled(o->streams[last])) return;
    put_back(p, o->own[last]);
    o->own[last] = NULL;
    o->streams[last] = other;
}

static void make_order(play *p, order *o, int32_t n)
{
    memset(o, 0, sizeof *o);
    o->jobs = &p->jobs[p->n_jobs];
    o->closed = p->closed;
    o->n = n;
    o->streamed = !dice_one_in(&p->d, 12);
    for (int32_t i = 0; i < n; i++) {
        job *j = &o->jobs[i];
        memset(j, 0, sizeof *j);
        j->play = p;
        const job *like = p->n_jobs > 0 ? &p->jobs[dice_in(&p->d, 0, p->n_jobs - 1)] : NULL;
        p->limits.like =
            like != NULL && like->w.want.tokens != NULL && !dice_one_in(&p->d, 3) ? &like->w : NULL;
        if (i > 0 && dice_one_in(&p->d, 2)) p->limits.like = &o->jobs[i - 1].w; /* at the same time */
        wish_make(&j->w, &p->limits, &p->d);
        if (p->deadlines && dice_one_in(&p->d, 6)) j->w.deadline_ms = dice_in(&p->d, 1, 3);
        if (p->ranked) {
            j->w.priority = dice_one_in(&p->d, 8) ? dice_in(&p->d, -100, 100) : dice_in(&p->d, 0, 2);
            j->w.salt = (const char *[]){NULL, "a", "b", ""}[dice_in(&p->d, 0, 3)];
        }
        o->too_long |= !j->w.fits;
        o->requests[i] = wish_request(&j->w);
        if (o->streamed && !dice_one_in(&p->d, 10)) o->streams[i] = o->own[i] = fresh_stream(p);
        o->before[i] = weir_stream_interval(o->streams[i]);
    }
    if (dice_one_in(&p->d, 8)) poison_order(p, o);
    weir_engine_stats s = play_stats(p);
    int64_t n_running = (int64_t)(s.n_submitted - play_n_finished(&s)) - s.queue_depth;
    int64_t room = (int64_t)p->params.queue_limit + p->params.n_slots - n_running - s.queue_depth;
    o->full = p->params.queue_limit > 0 && n > room;
    o->never = p->params.queue_limit > 0 && n > p->params.queue_limit + p->params.n_slots;
}

static bool is_refused(const order *o)
{
    return o->too_long || o->state || o->invalid || o->full || o->never || o->closed;
}

static void judge_status(play *p, const order *o, weir_status status, const weir_error *error)
{
    bool allowed = false;
    switch (status) {
    case WEIR_OK: allowed = !is_refused(o) || (o->full && p->place == READY); break;
    case WEIR_TOO_LONG: allowed = o->too_long; break;
    case WEIR_STATE: allowed = o->state; break;
    case WEIR_INVALID: allowed = o->invalid || o->never; break;
    case WEIR_STOPPED: allowed = o->closed; break;
    case WEIR_BUSY: allowed = o->full || p->place == READY; break; /* a slot may be about to become free */
    case WEIR_NO_MEMORY: allowed = p->scarce; break;
    default: break;
    }
    say(p, "submit of %d: %s %s", o->n, weir_status_name(status), error->message);
    MUST(p, allowed, "too_long %d state %d invalid %d full %d closed %d", o->too_long, o->state, o->invalid,
         o->full, o->closed);
    MUST(p, error->code == status, "the error says %s", weir_status_name(error->code));
}

static void describe(play *p, const job *j)
{
    say(p, "  job %d: %d tokens, %d more, %zu stops, interval %d%s: %s after %zu", job_number(j),
        j->w.task.n_prompt, j->w.task.max_tokens, j->w.task.n_stops, j->w.interval,
        j->stream != NULL ? "" : ", unread", weir_reason_name(j->w.want.reason), j->w.want.n_tokens);
}

static void refused(play *p, order *o)
{
    for (int32_t i = 0; i < o->n; i++) {
        put_back(p, o->own[i]);
        wish_fini(&o->jobs[i].w);
    }
}

static void submit(play *p)
{
    order o;
    weir_error error = {0};
    int32_t n = dice_one_in(&p->d, 3) ? dice_in(&p->d, 1, BATCH) : 1;
    if (p->n_jobs + n > PLAY_JOBS) return;
    make_order(p, &o, n);
    weir_status status =
        weir_engine_submit(p->engine, o.requests, (size_t)n, o.streamed ? o.streams : NULL, &error);
    int64_t now = weir__clock_now_ns();
    judge_status(p, &o, status, &error);
    if (status == WEIR_BUSY) p->n_refused += (uint64_t)n;
    if (status != WEIR_OK) {
        refused(p, &o);
        return;
    }
    p->n_accepted += (uint64_t)n;
    p->n_jobs += n;
    p->n_acts++;
    for (int32_t i = 0; i < n; i++) {
        job *j = &o.jobs[i];
        j->stream = o.streams[i];
        describe(p, j);
        job_accept(j, o.before[i], now);
        if (j->stream == NULL) continue;
        MUST(p, weir_stream_index(j->stream) == i, "job %d", job_number(j));
        MUST(p, weir_stream_interval(j->stream) == j->least, "job %d", job_number(j));
    }
}

/* Counts the ticks of weir_generate since the last call of this. */
static void count_generate(play *p)
{
    uint64_t passes = atomic_load(&p->fake->n_passes);
    if (p->params.strategy == NULL) p->n_good += passes - p->n_passes;
    p->n_passes = passes;
}

/* weir_generate drives the engine till these requests have ended; others run along. */
static void generate(play *p)
{
    order o;
    weir_error error = {0};
    int32_t n = dice_in(&p->d, 1, BATCH);
    if (p->n_jobs + n > PLAY_JOBS) return;
    make_order(p, &o, n);
    bool expected = !is_refused(&o);
    if (expected) {
        p->n_jobs += n;
        p->n_accepted += (uint64_t)n;
        for (int32_t i = 0; i < n; i++) {
            o.jobs[i].stream = o.streams[i];
            o.jobs[i].generated = true;
            describe(p, &o.jobs[i]);
            job_accept(&o.jobs[i], o.before[i], weir__clock_now_ns());
        }
    }
    p->generating = true;
    p->n_passes = atomic_load(&p->fake->n_passes);
    p->place = DECODING;
    weir_status status =
        weir_generate(p->engine, o.requests, (size_t)n, o.streamed ? o.streams : NULL, o.results, &error);
    p->place = BETWEEN;
    count_generate(p);
    p->generating = false;
    judge_status(p, &o, status, &error);
    if (status == WEIR_BUSY) p->n_refused += (uint64_t)n;
    if (status != WEIR_OK) {
        MUST(p, !expected, "weir_generate did not run");
        refused(p, &o);
        return;
    }
    p->turns++; /* an end after the last pass */
    p->n_prefill = play_stats(p).n_prompt_tokens;
    for (int32_t i = 0; i < n; i++) {
        job *j = &o.jobs[i];
        const char *wrong = wish_judge_result(&j->w, &o.results[i]);
        MUST(p, wrong == NULL, "result of job %d: %s", job_number(j), wrong);
        MUST(p, j->stream == NULL || weir_stream_reason(j->stream) == o.results[i].reason, "job %d",
             job_number(j));
        if (j->stream == NULL && !j->counted) {
            job_end(j, o.results[i].reason);
            p->n_seen_tokens += (uint64_t)o.results[i].usage.n_generated;
        }
        weir_result_fini(&o.results[i]);
    }
}

/* ---- Events ---------------------------------------------------------------------------------------- */

static void read_all(play *p)
{
    for (int i = 0; i < p->n_jobs; i++) {
        job *j = &p->jobs[i];
        if (j->stream != NULL && dice_one_in(&p->d, j->slow)) job_take(j, dice_one_in(&p->d, 3) ? 1 : 1000);
    }
}

static void act(play *p)
{
    int32_t event = dice_in(&p->d, 0, 99);
    job *j = p->n_jobs > 0 ? &p->jobs[dice_in(&p->d, 0, p->n_jobs - 1)] : NULL;
    if (event < 20) {
        submit(p);
        return;
    }
    if (event < 60) {
        read_all(p);
        return;
    }
    if (event == 99 && p->place != BETWEEN && dice_one_in(&p->d, 6)) {
        say(p, "stop in place %d", (int)p->place);
        weir_engine_stop(p->engine); /* within a tick: its end does the rest */
        p->closed = p->stopped = true;
        p->n_acts++;
        return;
    }
    if (j == NULL || j->stream == NULL) return;
    if (event < 68) {
        say(p, "cancel job %d in place %d", job_number(j), (int)p->place);
        job_cancel(j);
    } else if (event < 74) {
        int32_t interval = dice_in(&p->d, -1, 12), used = interval < 1 ? 1 : interval;
        weir_stream_set_interval(j->stream, interval);
        say(p, "interval of job %d is %d", job_number(j), interval);
        MUST(p, weir_stream_interval(j->stream) == used, "job %d", job_number(j));
        if (used < j->least) j->least = used;
        if (used > j->most) j->most = used;
    } else if (event < 77) {
        say(p, "let go of job %d in place %d", job_number(j), (int)p->place);
        job_let_go(j);
    } else if (event < 80) {
        weir_stream_release(weir_stream_hold(j->stream)); /* not the last: nothing happens */
    } else if (event < 84) {
        job_watch(j, dice_one_in(&p->d, 2));
    } else {
        job_take(j, dice_one_in(&p->d, 3) ? 1 : 1000);
    }
}

/* Lanes of running requests have consecutive numbers once the engine had time for it. */
static void check_lanes(play *p, const weir_engine_stats *s, int32_t highest)
{
    bool same = s->n_suspensions == p->at_decode.n_suspensions &&
                memcmp(s->n_misses, p->at_decode.n_misses, sizeof s->n_misses) == 0 && /* none began */
                play_n_finished(s) == play_n_finished(&p->at_decode) &&
                s->n_submitted - (uint64_t)s->queue_depth ==
                    p->at_decode.n_submitted - (uint64_t)p->at_decode.queue_depth;
    p->calm = same && !atomic_load(&p->fake->fail_share) ? p->calm + 1 : 0;
    if (p->first.layout != WEIR_LAYOUT_PER_SLOT || p->calm <= 2 * p->params.n_slots) return;
    MUST(p, highest < s->n_slots_prefilling + s->n_slots_generating, "lane %d is used", highest);
}

static void before_decode(void *user, const weir__batch *batch)
{
    play *p = user;
    place outer = p->place;
    int32_t highest = 0, n = 0;
    p->place = DECODING;
    p->n_decodes++;
    p->turns += p->generating;
    if (p->generating) count_generate(p);
    p->batch_seqs = 0;
    MUST(p, batch->n >= 1 && batch->n <= p->first.n_batch, "a batch of %d", batch->n);
    for (int32_t i = 0; i < batch->n; i++) {
        bool last = i + 1 == batch->n || batch->seq[i + 1] != batch->seq[i];
        MUST(p, i == 0 || batch->seq[i - 1] <= batch->seq[i], "rows are not in lane order");
        MUST(p, last || !batch->logits[i], "logits for a token that is not the last");
        MUST(p, ++n <= p->params.chunk_size, "a chunk of %d", n);
        if (!last) continue;
        n = 0;
        p->batch_seqs++;
        highest = batch->seq[i];
    }
    weir_engine_stats s = play_stats(p);
    MUST(p, s.n_kv_used + batch->n <= s.n_kv_reserved, "%d cells in use, %d reserved, a batch of %d",
         s.n_kv_used, s.n_kv_reserved, batch->n);
    check_lanes(p, &s, highest);
    p->at_decode = s;
    if (dice_one_in(&p->d, p->act_rate)) act(p);
    p->place = outer;
}

static void before_sample(void *user, int32_t row)
{
    play *p = user;
    place outer = p->place;
    (void)row;
    p->place = SAMPLING;
    if (dice_one_in(&p->d, 3 * p->act_rate)) act(p);
    p->place = outer;
}

static size_t strategy_plan(const weir_view *view, weir_plan_entry *plan, void *user)
{
    play *p = user;
    size_t n = plan_random(&p->d, view, p->params.n_slots, plan, view->n_slots);
    p->strategy_bad = !plan_allowed(view, p->params.n_slots, plan, n) ||
                      (view->n_slots > 0 && plan_sum(plan, n) == 0); /* else it would wait for ever */
    if (dice_one_in(&p->d, 40)) {
        n = SIZE_MAX;
        p->strategy_bad = true;
    }
    p->n_bad_plans += p->strategy_bad && view->n_slots > 0; /* else there is no tick */
    return n;
}

/* ---- Ticks ----------------------------------------------------------------------------------------- */

/* What holds whenever no call is inside the engine. */
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
    MUST(p, p->params.cache_sequences != 0 || s.n_cached_tokens + (uint64_t)s.n_cache_entries == 0, "cached");
    MUST(p, s.n_ticks == p->n_decodes && s.n_failed_ticks == p->n_failed, "%llu ticks, %llu failed",
         (unsigned long long)s.n_ticks, (unsigned long long)s.n_failed_ticks);
    MUST(p, s.n_generated_tokens == atomic_load(&p->fake->n_samples), "%llu generated",
         (unsigned long long)s.n_generated_tokens);
    MUST(p, s.n_prompt_tokens == p->n_prefill, "%llu prompt tokens", (unsigned long long)s.n_prompt_tokens);
    MUST(p, s.n_bad_plans == p->n_bad_plans, "%llu bad plans", (unsigned long long)s.n_bad_plans);
    MUST(p, s.decode_ns >= 0 && s.decode_ns <= s.busy_ns && s.tick_ns <= s.busy_ns, "times");
    MUST(p, atomic_load(&p->fake->faults) == 0, "faults %x", (unsigned)atomic_load(&p->fake->faults));
    for (int i = 0; i < 8 && !p->scarce;
         i++) /* a last chunk without memory tells its reader another reason */
        MUST(p, s.n_finished[i] >= p->seen[i], "%llu of reason %d", (unsigned long long)s.n_finished[i], i);
}

/* What must have ended when a tick or a view that began at `start` as turn `turn` is over. */
static void check_ended(play *p, uint64_t turn, int64_t start)
{
    for (int i = 0; i < p->n_jobs; i++) {
        job *j = &p->jobs[i];
        if (j->stream == NULL || weir_stream_finished(j->stream)) continue;
        MUST(p, j->cancel_turn == 0 || j->cancel_turn >= turn, "job %d was cancelled before", i);
        MUST(p, !p->stopped, "job %d outlives the stop", i);
        MUST(p, j->due_ns > start, "the deadline of job %d has passed", i);
        MUST(p, p->ranked || p->n_good - j->good < j->n_good || j->cancel_turn > 0,
             "job %d starves: %llu ticks", i, (unsigned long long)j->n_good);
    }
}

/* With lanes there is room for whoever gets a slot: without ageing all that have a higher priority than the
 * lowest in a slot must be in one too. */
static void check_priorities(play *p, const weir_view *view)
{
    int32_t lowest = INT32_MAX, n_higher = 0;
    if (p->params.ageing_ms > 0 || p->first.layout != WEIR_LAYOUT_PER_SLOT || p->disturbed) return;
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

static const weir_view *look(play *p)
{
    const weir_view *view = NULL;
    int64_t start = weir__clock_now_ns();
    uint64_t turn = ++p->turns;
    p->place = DECODING; /* what ends in it may call back */
    MUST(p, weir_engine_view(p->engine, &view, NULL) == WEIR_OK, "no view");
    p->place = BETWEEN;
    say(p, "turn %llu: view of %zu slots, %d wait", (unsigned long long)turn, view->n_slots,
        view->queue_depth);
    if (p->stopped) return view; /* what it told is gone */
    MUST(p, view->budget == p->first.n_batch && view->chunk_size == p->params.chunk_size, "view");
    MUST(p, view->n_slots > 0 || view->queue_depth == 0, "%d wait for an empty engine", view->queue_depth);
    uint64_t n_suspensions = play_stats(p).n_suspensions;
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
        /* what was suspended computes again what it had generated */
        MUST(p, prefilling == (v->n_prompt_left > 0) && v->n_prompt_left <= v->n_prompt + v->n_generated,
             "slot %d", v->slot);
        MUST(p, prefilling ? n_suspensions > 0 || v->n_generated == 0 : v->n_generated > 0, "slot %d",
             v->slot);
        MUST(p, i == 0 || view->slots[i - 1].waited_ns >= v->waited_ns, "slot %d is older", v->slot);
    }
    MUST(p, n_joined < view->n_slots || n_joined == 0, "all wait for each other");
    check_priorities(p, view);
    check_ended(p, turn, start);
    check_rest(p);
    return view;
}

/* Ends by error that this tick must have caused; fewer only when something else ended what it concerns. */
static void check_errors(play *p, weir_status decoded, bool sample_failed)
{
    weir_engine_stats s = play_stats(p);
    uint64_t n = s.n_finished[WEIR_REASON_ERROR] - p->at_decode.n_finished[WEIR_REASON_ERROR];
    uint64_t want = sample_failed;
    if (decoded == WEIR_BACKEND) want = (uint64_t)p->batch_seqs;
    if (decoded == WEIR_NO_SPACE) /* alone it has all cells; of several one is suspended */
        want = p->at_decode.n_slots_prefilling + p->at_decode.n_slots_generating == 1 &&
               p->at_decode.n_cache_entries == 0;
    if (decoded == WEIR_NO_SPACE && p->at_decode.n_cache_entries > 0 && n <= 1) return;
    if (p->scarce) return;
    MUST(p, n == want || (n < want && (p->cancelled_inside || p->deadlines)),
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

/* One tick; plain: nothing fails, and the engine's strategy makes the plan. */
static weir_report tick(play *p, bool plain)
{
    weir_plan_entry plan[16];
    size_t n_plan = 0;
    bool planned = !plain && dice_one_in(&p->d, 3), bad = false;
    uint64_t acts = p->n_acts;
    if (planned) {
        const weir_view *view = look(p);
        n_plan = plan_random(&p->d, view, p->params.n_slots, plan, sizeof plan / sizeof *plan);
        bad = !plan_allowed(view, p->params.n_slots, plan, n_plan);
        if (dice_one_in(&p->d, 6)) act(p);
    }
    bool sure = acts == p->n_acts && !p->deadlines; /* the view still tells what the step finds */

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
    say(p, "turn %llu: %d prefilled, %d fed, %d run, %d wait%s%s%s%s", (unsigned long long)turn,
        report.n_prefill, report.n_decode, report.n_active, report.queue_depth, planned ? ", planned" : "",
        report.bad_plan ? ", bad plan" : "", decode_failed ? ", pass failed" : "",
        sample_failed ? ", sample failed" : "");
    MUST(p, status == WEIR_OK, "%s", error.message);

    passes = atomic_load(&p->fake->n_passes) - passes;
    tokens = atomic_load(&p->fake->n_tokens) - tokens;
    MUST(p, report.idle == (p->n_decodes == decodes) && p->n_decodes - decodes <= 1, "idle or not");
    MUST(p, tokens == (uint64_t)report.n_prefill + (uint64_t)report.n_decode, "%llu tokens were computed",
         (unsigned long long)tokens);
    MUST(p, report.bad_plan == (planned ? bad : p->strategy_bad) || (planned && !sure), "the plan's rating");
    MUST(p, !report.idle || report.n_active == 0 || (planned && !report.bad_plan), "idle with work");
    p->n_failed += decode_failed;
    p->n_bad_plans += planned && report.bad_plan && !report.idle;
    p->n_prefill += (uint64_t)report.n_prefill;
    bool standard = !planned && p->params.strategy == NULL;
    if (passes > 0 && (standard || report.bad_plan)) p->n_good++;
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

/* ---- A schedule ------------------------------------------------------------------------------------ */

static void open_play(play *p)
{
    char path[160];
    dice *d = &p->d;
    bool exact = dice_one_in(d, 2);
    int32_t n_vocab = dice_in(d, 260, 300), every = dice_one_in(d, 3) ? 0 : dice_in(d, 3, 60);
    snprintf(path, sizeof path, "fake:n_vocab=%d,seed=%d,eos_every=%d,any=%d,exact=%d,recurrent=%d", n_vocab,
             dice_in(d, 0, 1000000), every, !dice_one_in(d, 4), exact, dice_one_in(d, 5));
    p->live = weir__mem_live();
    MUST(p, weir_model_load(path, NULL, &p->model, NULL) == WEIR_OK, "%s", path);
    p->fake = weir__fake_of(p->model);
    wish_vocabulary(p->model, n_vocab, d);
    p->fake->before_decode = before_decode;
    p->fake->before_sample = before_sample;
    p->fake->before_decode_user = p->fake->before_sample_user = p;
    p->deadlines = dice_one_in(d, 16);
    if (p->deadlines) atomic_store(&p->fake->tick_us, 100);
    p->disturbed = dice_one_in(d, 3);
    p->scarce = dice_one_in(d, 20);
    p->ranked = dice_one_in(d, 2);
    p->act = act;
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
    q->chunk_size = dice_in(d, 1, dice_one_in(d, 2) ? 6 : 64);
    q->queue_limit = dice_one_in(d, 2) ? 0 : dice_in(d, 1, 8);
    q->max_tokens = dice_one_in(d, 4) ? dice_in(d, 1, 40) : 0;
    q->layout = (weir_layout)dice_in(d, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT);
    p->strategy = (weir_strategy){.name = "random", .plan = strategy_plan, .user = p};
    if (dice_one_in(d, 4)) q->strategy = &p->strategy;
    weir_error error = {0};
    MUST(p, weir_engine_create(p->model, q, &p->engine, &error) == WEIR_OK, "%s", error.message);
    p->first = p->at_decode = play_stats(p);
    int32_t n_lanes =
        q->n_slots + (q->cache_sequences > 0 && strstr(path, "recurrent=1") == NULL ? q->cache_sequences : 0);
    say(p, "%s; %d slots, n_ctx %d, n_kv %d (%d), n_batch %d, chunks %d, queue %d, layout %d%s%s%s", path,
        q->n_slots, p->first.n_ctx, p->first.n_kv, q->n_kv, p->first.n_batch, q->chunk_size, q->queue_limit,
        (int)p->first.layout, p->disturbed ? ", disturbed" : "", p->scarce ? ", scarce" : "",
        q->strategy ? ", strategy" : "");
    bool lanes = p->first.layout == WEIR_LAYOUT_PER_SLOT;
    int32_t n_seq = lanes ? p->first.n_kv / n_lanes : p->first.n_kv;
    MUST(p, p->first.n_ctx == (q->n_ctx < n_seq ? q->n_ctx : n_seq), "n_ctx is %d", p->first.n_ctx);
    MUST(p, q->n_kv == 0 || lanes || (exact ? p->first.n_kv == q->n_kv : p->first.n_kv >= q->n_kv), "n_kv");
    MUST(p, q->n_kv > 0 || p->first.n_ctx == q->n_ctx, "a context is divided by slots");
    p->limits = (wish_limits){
        p->model, p->first.n_ctx, q->max_tokens, dice_in(d, 3, dice_one_in(d, 3) ? 150 : 40), n_vocab, NULL};
}

/* Ticks until all have ended; at first things may go on happening. */
static void run_out(play *p)
{
    uint64_t work = PLAY_JOBS, n = 0;
    int rough = dice_in(&p->d, 0, 60);
    for (int i = 0; i < rough; i++) tick(p, false);
    if (dice_one_in(&p->d, 4)) {
        weir_engine_stats s = play_stats(p);
        bool live = play_n_finished(&s) < s.n_submitted;
        MUST(p, weir_engine_drain(p->engine, 0) == (live ? WEIR_STATE : WEIR_OK), "drain");
        p->closed = true;
    }
    for (;;) {
        weir_report report = tick(p, true);
        if (report.n_active == 0 && report.queue_depth == 0) break;
        work = PLAY_JOBS;
        for (int i = 0; i < p->n_jobs; i++)
            work += (uint64_t)p->jobs[i].w.task.n_prompt + (uint64_t)p->jobs[i].w.task.max_tokens;
        work += play_stats(p).n_suspensions * (uint64_t)p->first.n_ctx; /* computed again */
        MUST(p, ++n <= work, "the engine does not come to rest");
        if (dice_one_in(&p->d, 3)) read_all(p);
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
    weir_report report = tick(p, false);
    MUST(p, report.idle && report.n_active == 0 && report.queue_depth == 0, "work after the stop");
}

/* The record has what was counted, as long as it has all of it. */
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

/* All have ended: what the counters say of those that nobody reads must be what they had to give. */
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
    p->n_evicted = s.n_evicted;
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
    submit(p);
    for (int i = 0; i < n_events; i++) {
        int32_t event = dice_in(&p->d, 0, 99);
        if (event < 30)
            act(p);
        else if (event < 34 && !p->scarce && !p->disturbed)
            generate(p);
        else if (event < 38)
            look(p);
        else
            for (int32_t n = dice_in(&p->d, 1, 6); n > 0; n--) tick(p, false);
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
    uint64_t seed = dice_environment("WEIR_TEST_SEED", (uint64_t)weir__clock_now_ns() % 1000000000);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", SCHEDULES);
    uint64_t reasons[8] = {0}, n_requests = 0, n_suspensions = 0, n_cached = 0, n_joined = 0, n_evicted = 0;
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
        for (int r = 0; r < 8; r++) reasons[r] += p.seen[r];
    }
    now_playing = NULL;
    print_message("%llu requests:", (unsigned long long)n_requests);
    for (int r = 1; r <= WEIR_REASON_DEADLINE; r++)
        print_message(" %llu %s", (unsigned long long)reasons[r], weir_reason_name((weir_reason)r));
    print_message(", %llu suspensions\n", (unsigned long long)n_suspensions);
    print_message(
        "%llu tokens came from the cache, %llu requests joined another, %llu entries were evicted\n",
        (unsigned long long)n_cached, (unsigned long long)n_joined, (unsigned long long)n_evicted);
    assert_true(n < 1000 || (n_cached > 10 * n && n_joined > n / 10 && n_evicted > n / 10));
    assert_true(n < 1000 || n_suspensions > n / 20);
    /* A test that no longer meets these proves nothing. */
    for (int r = 1; r <= WEIR_REASON_DEADLINE && n >= 1000; r++) assert_true(reasons[r] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
