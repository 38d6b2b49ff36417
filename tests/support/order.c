/* SPDX-License-Identifier: Apache-2.0 */
#include "support/order.h"

#include <string.h>

#include "base/clock.h"

#define BATCH 4 /* the most requests of one submit */

/* The reasons for which a submit may be refused. */
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
    bool greedy,
        too_greedy; /* the tenant may have more than its part of the queue; more than it can ever have */
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

/* Some are forks of a job that was accepted, at a token that its reader has seen. */
static void fork_some(play *p)
{
    if (p->n_jobs == 0 || !dice_one_in(&p->d, 4)) return;
    job *source = &p->jobs[dice_in(&p->d, 0, p->n_jobs - 1)];
    if (source->stream == NULL) return;
    if (dice_one_in(&p->d, 2)) job_take(source, 1000);
    if (source->stream == NULL) return; /* let go of */
    p->limits.like = &source->w;
    p->limits.source = source->stream;
    p->limits.source_at = dice_in(&p->d, 0, (int32_t)source->r.n_tokens);
    p->n_forks++;
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
        if (p->adapted) {
            int32_t set = dice_in(&p->d, 0, PLAY_SETS - 1);
            p->limits.adapters = p->uses[set];
            p->limits.n_adapters = (size_t)(set + 1) / 2;
        }
        fork_some(p);
        wish_make(&j->w, &p->limits, &p->d);
        p->limits.source = NULL;
        p->scores |= j->w.scored;
        if (p->deadlines && dice_one_in(&p->d, 6)) j->w.deadline_ms = dice_in(&p->d, 1, 3);
        if (p->ranked) {
            j->w.priority = dice_one_in(&p->d, 8) ? dice_in(&p->d, -100, 100) : dice_in(&p->d, 0, 2);
            if (j->w.source == NULL) j->w.salt = (const char *[]){NULL, "a", "b", ""}[dice_in(&p->d, 0, 3)];
        }
        o->too_long |= !j->w.fits;
        o->requests[i] = wish_request(&j->w);
        if (j->w.source != NULL && dice_one_in(&p->d, 12)) { /* a token that has not come, and never will */
            o->requests[i].source_at = (int32_t)p->limits.like->want.n_tokens + dice_in(&p->d, 1, 1000);
            o->invalid = true;
        }
        if (o->streamed && !dice_one_in(&p->d, 10)) o->streams[i] = o->own[i] = fresh_stream(p);
        o->before[i] = weir_stream_interval(o->streams[i]);
    }
    if (dice_one_in(&p->d, 8)) poison_order(p, o);
    weir_engine_stats s = play_stats(p);
    int64_t n_running = (int64_t)(s.n_submitted - play_n_finished(&s)) - s.queue_depth;
    int64_t room = (int64_t)p->params.queue_limit + p->params.n_slots - n_running - s.queue_depth;
    o->full = p->params.queue_limit > 0 && n > room;
    o->never = p->params.queue_limit > 0 && n > p->params.queue_limit + p->params.n_slots;
    int64_t waiting = n - (p->params.n_slots - n_running); /* at most, of this tenant, beside the queue's */
    o->greedy = p->ranked && p->params.queue_limit > 0 && s.queue_depth + waiting > 3 * (room - n) + 3;
    o->too_greedy = p->ranked && p->params.queue_limit > 0 &&
                    n > p->params.queue_limit - p->params.queue_limit / 4 + p->params.n_slots;
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
    case WEIR_INVALID: allowed = o->invalid || o->never || o->too_greedy; break;
    case WEIR_STOPPED: allowed = o->closed; break;
    case WEIR_BUSY:
        allowed = o->full || o->greedy || p->place == READY; /* a slot may be about to become free */
        break;
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
    say(p, "  job %d: %d tokens, %d more, %zu stops, %zu adapters, interval %d%s: %s after %zu",
        job_number(j), j->w.task.n_prompt, j->w.task.max_tokens, j->w.task.n_stops, j->w.task.n_adapters,
        j->w.interval, j->stream != NULL ? "" : ", unread", weir_reason_name(j->w.want.reason),
        j->w.want.n_tokens);
}

static void refused(play *p, order *o)
{
    for (int32_t i = 0; i < o->n; i++) {
        put_back(p, o->own[i]);
        wish_fini(&o->jobs[i].w);
    }
}

void play_submit(play *p)
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

void play_count_generate(play *p)
{
    uint64_t passes = atomic_load(&p->fake->n_passes);
    if (p->params.strategy == NULL) p->n_good += passes - p->n_passes;
    p->n_passes = passes;
}

void play_generate(play *p)
{
    order o;
    weir_error error = {0};
    int32_t n = dice_in(&p->d, 1, BATCH);
    if (p->n_jobs + n > PLAY_JOBS) return;
    make_order(p, &o, n);
    bool expected = !is_refused(&o);
    if (expected && (o.greedy || o.too_greedy)) { /* whose the waiting ones are, nobody counts here */
        refused(p, &o);
        return;
    }
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
    play_count_generate(p);
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
