/* weir bench replay: a recorded schedule once more, on the fake backend and a clock that stands still while
 * weir works.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Requests, their cancellations and the cost of ticks are derived from the record. The fake backend is given
 * the recorded lengths and drafts, the clock stands, and each pass moves it by the cost of its work. With the
 * recorded strategy each tick must have the recorded plan; with another one the two are compared. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/lib/file.h"
#include "cli/lib/signals.h"
#include "cli/lib/ticks.h"
#include "commands.h"
#include "engine/engine.h"
#include "measure.h"
#include "model/fake.h"

#define LONGEST 3.6e12 /* ns of a tick: an hour, as in a record */

/* A request as the record shows it, and the replay's own request. */
struct ask {
    uint64_t number; /* in the record; in the replay it is the position */
    bool cut;        /* the record begins in its middle: the rest of it is replayed */
    bool seen;       /* it had a slot */
    bool shown;      /* the record has more of it than its arrival */
    int64_t submit_ns;
    int64_t end_ns; /* 0 = not in the record */
    weir_reason reason;
    int32_t n_prompt, n_before, n_generated, max_tokens, priority;
    int32_t n_answer;    /* tokens until it ends by itself; 0 = it does not */
    int64_t leave_ns;    /* when its reader leaves; INT64_MAX = never */
    weir_stream *stream; /* once submitted */
};

/* ns of a tick */
struct cost {
    double tick, decode, prefill;
};

struct figures {
    double ttft[3], itl[3], tick[3]; /* ms: p50, p99, the most */
    size_t n_ttft, n_itl, n_ticks, n_suspensions;
    double total_s;
};

struct replay {
    const cli_args *args;
    cli_record recorded, played;
    struct ask *asks; /* [n] by number */
    size_t n;
    size_t next; /* the first that was not submitted */
    struct cost cost;
    weir_model *model;
    weir_engine *engine;
    int64_t now;
    const weir_tick *follow; /* the recorded tick that this one shall be; NULL = none */
    weir__drafter drafter;   /* of the drafts in it */
    size_t n_same;           /* ticks with the recorded plan */
    char difference[160];    /* the first; "" = none */
};

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* ---- Requests ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct ask *)a)->number, y = ((const struct ask *)b)->number;
    return (x > y) - (x < y);
}

static struct ask *find_ask(const struct replay *replay, uint64_t number)
{
    const struct ask key = {.number = number};
    return bsearch(&key, replay->asks, replay->n, sizeof *replay->asks, by_number);
}

static const weir_tick *last_tick(const cli_record *record)
{
    return &record->ticks[record->n_ticks - 1];
}

/* Every number that the record has, once. */
static void collect_numbers(struct replay *replay)
{
    const cli_record *record = &replay->recorded;
    size_t n = 0, kept = 0;
    replay->asks = cli_alloc(record->n_arrivals + record->n_parts + 1, sizeof *replay->asks);
    for (size_t i = 0; i < record->n_arrivals; i++) replay->asks[n++].number = record->arrivals[i].request;
    for (size_t i = 0; i < record->n_parts; i++) replay->asks[n++].number = record->parts[i].request;
    qsort(replay->asks, n, sizeof *replay->asks, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || replay->asks[i].number != replay->asks[kept - 1].number)
            replay->asks[kept++] = replay->asks[i];
    replay->n = kept;
}

/* The first that the record shows of it in a slot. */
static void see_first(struct ask *ask, const weir_tick_slot *part, bool first_tick)
{
    int32_t left = part->n_prompt - part->n_cached;
    ask->seen = true;
    if (part->suspended || part->resumed ||
        (first_tick && (part->state == WEIR_SLOT_GENERATING || part->n_past > part->n_cached)))
        ask->cut = true;
    if (ask->cut) {
        /* True if this tick made the newest of its tokens. */
        bool made = part->n_tokens > 0 && part->n_generated > 0 &&
                    (part->state == WEIR_SLOT_GENERATING ||
                     part->n_past + part->n_tokens == part->n_prompt + part->n_generated - 1);
        ask->n_before = part->n_generated - made;
        /* One that generates has its last token, not yet fed. */
        left = part->state == WEIR_SLOT_GENERATING ? 1 : part->n_prompt + ask->n_before - part->n_past;
    }
    ask->n_prompt = left > 0 ? left : 1;
}

/* Derives the request's end, so that it repeats the recorded one. */
static void settle_ask(struct ask *ask, int64_t end)
{
    int32_t n = ask->n_generated - ask->n_before;
    ask->leave_ns = INT64_MAX;
    if (ask->cut) ask->max_tokens = ask->max_tokens > ask->n_before ? ask->max_tokens - ask->n_before : n;
    switch (ask->reason) {
    case WEIR_REASON_CANCELLED:
    case WEIR_REASON_DEADLINE: ask->leave_ns = ask->end_ns; break;
    case WEIR_REASON_ERROR:
    case WEIR_REASON_NOT_FINISHED: /* the work is the same, however fast */
        ask->n_answer = n > 0 ? n : 0;
        if (n <= 0) ask->leave_ns = ask->end_ns > 0 ? ask->end_ns : end;
        break;
    default:
        ask->n_answer = n > 0 ? n : 0;
        if (n <= 0) ask->max_tokens = 0;
    }
}

static void derive_asks(struct replay *replay)
{
    const cli_record *record = &replay->recorded;
    const weir_tick *last = last_tick(record);
    collect_numbers(replay);
    for (size_t i = 0; i < replay->n; i++) {
        replay->asks[i].submit_ns = record->ticks[0].start_ns;
        replay->asks[i].cut = true;
    }
    for (size_t i = 0; i < record->n_arrivals; i++) {
        struct ask *ask = find_ask(replay, record->arrivals[i].request);
        ask->submit_ns = record->arrivals[i].submit_ns;
        ask->n_prompt = record->arrivals[i].n_prompt;
        ask->max_tokens = record->arrivals[i].max_tokens;
        ask->priority = record->arrivals[i].priority;
        ask->cut = false;
    }
    for (size_t i = 0; i < record->n_parts; i++) {
        const weir_tick_slot *part = &record->parts[i];
        struct ask *ask = find_ask(replay, part->request);
        ask->shown = true;
        if (part->slot >= 0 && !ask->seen) see_first(ask, part, part->tick == record->ticks[0].serial);
        if (ask->n_prompt == 0) ask->n_prompt = part->n_prompt;
        ask->n_generated = part->n_generated;
        if (part->end_ns == 0) continue;
        ask->end_ns = part->end_ns;
        ask->reason = part->reason;
    }
    size_t n = 0;
    for (size_t i = 0; i < replay->n; i++) {
        struct ask *ask = &replay->asks[i];
        /* A request that is not shown had ended before the record begins, or waited all along. */
        if (record->ticks[0].serial > 0 && ask->number < record->ticks[0].n_arrived && !ask->shown) continue;
        settle_ask(ask, last->start_ns + last->tick_ns);
        replay->asks[n++] = *ask;
    }
    replay->n = n;
}

/* ---- The cost of ticks ---- */

/* Solves 3 equations, rows [3][4], by elimination; unknowns without a unique solution are 0. */
static void solve_equations(double rows[3][4], double x[3])
{
    for (int i = 0; i < 3; i++) {
        if (fabs(rows[i][i]) < 1e-9) {
            memset(rows[i], 0, sizeof rows[i]);
            rows[i][i] = 1;
        }
        for (int j = 0; j < 3; j++) {
            double factor = j == i ? 0 : rows[j][i] / rows[i][i];
            for (int k = 0; k < 4; k++) rows[j][k] -= factor * rows[i][k];
        }
    }
    for (int i = 0; i < 3; i++) x[i] = rows[i][3] / rows[i][i];
}

/* Least squares over the recorded ticks; a term that comes out negative is left out. */
static struct cost learn_cost(const cli_record *record)
{
    double x[3] = {0};
    bool out[3] = {false};
    for (int round = 0; round < 3; round++) {
        double rows[3][4] = {{0}};
        for (size_t t = 0; t < record->n_ticks; t++) {
            const weir_tick *tick = &record->ticks[t];
            const double terms[4] = {out[0] ? 0 : 1, out[1] ? 0 : tick->n_decode + tick->n_drafted,
                                     out[2] ? 0 : tick->n_prefill, (double)tick->tick_ns};
            if (tick->failed || tick->abandoned) continue;
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 4; j++) rows[i][j] += terms[i] * terms[j];
        }
        solve_equations(rows, x);
        int worst = 0;
        for (int i = 1; i < 3; i++)
            if (x[i] < x[worst]) worst = i;
        if (x[worst] >= 0) break;
        out[worst] = true;
    }
    return (struct cost){larger_of(x[0], 0), larger_of(x[1], 0), larger_of(x[2], 0)};
}

/* ---- On the backend ---- */

/* The request is the prompt's first token; it ends where it ended. */
static int32_t next_token(void *user, const int32_t *history, int32_t n)
{
    const struct replay *replay = user;
    const struct ask *ask = &replay->asks[history[0] - WEIR__FAKE_WORDS];
    return ask->n_answer > 0 && n - ask->n_prompt + 1 >= ask->n_answer ? WEIR__FAKE_EOS : 'a';
}

/* Drafts as much as was drafted in the recorded tick, and as much of it right. Rows without a record have no
 * drafts. */
static void draft_recorded(weir__drafter *drafter, weir__draft *const *drafts, size_t n,
                           weir__drafting *drafting)
{
    const struct replay *replay =
        (const struct replay *)(void *)((char *)drafter - offsetof(struct replay, drafter));
    const weir_tick *tick = replay->follow;
    for (size_t d = 0; d < n; d++) {
        uint64_t number = replay->asks[drafts[d]->text].number;
        for (int32_t i = 0; tick != NULL && i < tick->n_slots; i++) {
            const weir_tick_slot *part = &replay->recorded.parts[tick->first_slot + (uint64_t)i];
            if (part->request != number || part->n_tokens == 0) continue;
            while (drafts[d]->n < part->n_drafted && drafts[d]->n < drafts[d]->most && drafting->room > 0) {
                drafts[d]->token[drafts[d]->n] = drafts[d]->n < part->n_accepted ? 'a' : 'b';
                drafts[d]->n++;
                drafting->room--;
                drafting->throughput.tokens += WEIR__DRAFT_MAX; /* it was made, so it was worth it */
            }
        }
    }
}

static void drafter_destroy(weir__drafter *drafter)
{
    (void)drafter;
}

/* The saved state of a suspended request is there again where it was. */
static bool may_load(void *user, int32_t token)
{
    const struct replay *replay = user;
    const weir_tick *tick = replay->follow;
    uint64_t number = replay->asks[token - WEIR__FAKE_WORDS].number;
    for (int32_t i = 0; tick != NULL && i < tick->n_slots; i++) {
        const weir_tick_slot *part = &replay->recorded.parts[tick->first_slot + (uint64_t)i];
        if (part->request == number && part->resumed) return part->n_past > 0;
    }
    return true;
}

static void cancel_leaving(struct replay *replay, int64_t until)
{
    for (size_t i = 0; i < replay->next; i++) {
        struct ask *ask = &replay->asks[i];
        if (ask->leave_ns > until || ask->stream == NULL) continue;
        weir_stream_cancel(ask->stream);
        ask->leave_ns = INT64_MAX;
    }
}

/* Time passes. */
static void compute_pass(void *user, const weir__batch *batch)
{
    struct replay *replay = user;
    double ns = replay->cost.tick;
    for (int32_t i = 0; i < batch->n; i++) {
        bool first = i == 0 || batch->seq[i - 1] != batch->seq[i];
        bool last = i + 1 == batch->n || batch->seq[i + 1] != batch->seq[i];
        /* All rows of an answer keep their logits, of a prompt the last one. */
        bool generated =
            batch->logits[i] != 0 && (first ? last || batch->logits[i + 1] : batch->logits[i - 1]);
        ns += generated && batch->pos[i] > 0 ? replay->cost.decode : replay->cost.prefill;
    }
    if (ns > LONGEST) ns = LONGEST;
    const weir_tick *tick = replay->follow;
    if (tick == NULL)
        replay->now += (int64_t)larger_of(ns, 1);
    else /* strategies learn from the same figures */
        replay->now += tick->work_ns > 0 ? tick->work_ns : tick->decode_ns;
    weir__clock_stand(replay->now);
    cancel_leaving(replay, replay->now);
}

static cli_exit start_replay(struct replay *replay, const weir_strategy *strategy)
{
    const cli_record *record = &replay->recorded;
    weir_engine_params params = record->engine;
    weir_error error = {0};
    char *path = cli_format("fake:exact=1,n_vocab=%zu,n_ctx_train=%d", WEIR__FAKE_WORDS + replay->n + 1,
                            record->engine.n_ctx < 1 << 20 ? record->engine.n_ctx : 1 << 20);
    weir_status status = weir_model_load(path, NULL, &replay->model, &error);
    cli_free(path);
    if (status != WEIR_OK)
        return cli_fail_error(replay->args, CLI_FAILED, "cannot replay this record", &error);
    weir__fake *fake = weir__fake_of(replay->model);
    fake->next = next_token;
    fake->next_user = replay;
    fake->before_decode = compute_pass;
    fake->before_decode_user = replay;
    fake->may_load = may_load;
    fake->may_load_user = replay;
    params.cache_bytes = INT64_MAX; /* states that were lost are lost again */
    params.cache_sequences = 0;     /* the prompts lack the cached tokens */
    params.queue_limit = 0;
    params.n_draft_max = WEIR__DRAFT_MAX;
    params.strategy = strategy;
    params.manual = true;
    status = weir_engine_create(replay->model, &params, &replay->engine, &error);
    if (status != WEIR_OK)
        return cli_fail_error(replay->args, CLI_FAILED, "cannot replay this record", &error);
    static const weir__drafter_ops ops = {
        .name = "record", .draft = draft_recorded, .destroy = drafter_destroy};
    replay->drafter = (weir__drafter){.ops = &ops, .target = replay->model};
    weir__speculate_use(&replay->engine->driver.speculate, &replay->drafter);
    cli_ticks_begin(&replay->played, replay->engine, &params);
    return CLI_OK;
}

static cli_exit submit_ask(struct replay *replay)
{
    size_t i = replay->next++;
    struct ask *ask = &replay->asks[i];
    weir_request request = weir_request_default();
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_error error = {0};
    int32_t *tokens = cli_alloc((size_t)ask->n_prompt, sizeof *tokens);
    for (int32_t t = 0; t < ask->n_prompt; t++) tokens[t] = t == 0 ? WEIR__FAKE_WORDS + (int32_t)i : 'a';
    sampler.temp = 0;
    request.tokens = tokens;
    request.n_tokens = (size_t)ask->n_prompt;
    request.max_tokens = ask->max_tokens;
    request.priority = ask->priority;
    request.sampler = &sampler;
    weir__clock_stand(ask->submit_ns);
    weir_status status = weir_stream_create(&ask->stream, &error);
    if (status == WEIR_OK) status = weir_engine_submit(replay->engine, &request, 1, &ask->stream, &error);
    weir__clock_stand(replay->now);
    cli_free(tokens);
    if (status == WEIR_OK) return CLI_OK;
    char *context = cli_format("request %llu of the record", (unsigned long long)ask->number);
    cli_exit code = cli_fail_error(replay->args, CLI_FAILED, context, &error);
    cli_free(context);
    return code;
}

/* Requests that left before this tick's pass was done. Those in its plan, and those that ended after the
 * pass, left during it. */
static void leave_before(struct replay *replay, const weir_tick *tick)
{
    const weir_tick_slot *parts = replay->recorded.parts + tick->first_slot;
    for (int32_t i = 0; i < tick->n_slots; i++) {
        struct ask *ask = find_ask(replay, parts[i].request);
        bool during = parts[i].n_tokens > 0 || parts[i].end_ns >= tick->start_ns + tick->decode_ns;
        if (ask->leave_ns == INT64_MAX || parts[i].end_ns == 0) continue;
        ask->leave_ns = during ? tick->start_ns + tick->decode_ns : tick->start_ns;
    }
    cancel_leaving(replay, tick->start_ns);
}

/* A pass that was refused is refused again. */
static void fail_as_recorded(struct replay *replay, const weir_tick *tick)
{
    weir__fake *fake = weir__fake_of(replay->model);
    bool all = true;
    for (int32_t i = 0; i < tick->n_slots; i++) {
        const weir_tick_slot *part = &replay->recorded.parts[tick->first_slot + (uint64_t)i];
        if (part->n_tokens > 0 && part->end_ns == 0) all = false;
    }
    if (!tick->failed && !tick->abandoned) return;
    atomic_store(&fake->fail_decode_status, tick->abandoned ? WEIR_ABORTED
                                            : all           ? WEIR_BACKEND
                                                            : WEIR_NO_SPACE);
    atomic_store(&fake->fail_decode_at, 0);
}

static bool says_something(const weir_tick_slot *part)
{
    return part->n_tokens > 0 || part->suspended || part->resumed;
}

/* The part of the other record's tick that is of the same request and kind; NULL = none. */
static const weir_tick_slot *twin_slot(const struct replay *replay, const weir_tick_slot *of,
                                       const weir_tick *tick, bool played)
{
    const weir_tick_slot *parts = (played ? replay->played.parts : replay->recorded.parts) + tick->first_slot;
    for (int32_t i = 0; i < tick->n_slots; i++) {
        const weir_tick_slot *part = &parts[i];
        uint64_t a = played ? of->request : replay->asks[of->request].number;
        uint64_t b = played ? replay->asks[part->request].number : part->request;
        if (a == b && says_something(part) && part->suspended == of->suspended &&
            part->resumed == of->resumed)
            return part;
    }
    return NULL;
}

static void tell_difference(struct replay *replay, const weir_tick *tick, uint64_t request,
                            const weir_tick_slot *recorded, const weir_tick_slot *played)
{
    const weir_tick_slot *there = recorded != NULL ? recorded : played;
    unsigned long long which = tick->serial;
    if (there->suspended || there->resumed)
        snprintf(replay->difference, sizeof replay->difference, "tick %llu: request %llu %s, %s", which,
                 (unsigned long long)request, there->suspended ? "was suspended" : "got a slot again",
                 recorded != NULL ? "in the replay not" : "but only in the replay");
    else
        snprintf(replay->difference, sizeof replay->difference,
                 "tick %llu: request %llu had %d tokens, in the replay %d", which,
                 (unsigned long long)request, recorded != NULL ? recorded->n_tokens : 0,
                 played != NULL ? played->n_tokens : 0);
}

/* True if the newest tick has the recorded one's plan and suspensions; says where not. */
static bool same_plan(struct replay *replay, const weir_tick *tick)
{
    const weir_tick *got = last_tick(&replay->played);
    for (int32_t i = 0; i < tick->n_slots; i++) {
        const weir_tick_slot *part = &replay->recorded.parts[tick->first_slot + (uint64_t)i];
        if (!says_something(part)) continue;
        const weir_tick_slot *other = twin_slot(replay, part, got, true);
        if (other != NULL && other->n_tokens == part->n_tokens) continue;
        tell_difference(replay, tick, part->request, part, other);
        return false;
    }
    for (int32_t i = 0; i < got->n_slots; i++) {
        const weir_tick_slot *part = &replay->played.parts[got->first_slot + (uint64_t)i];
        if (!says_something(part) || twin_slot(replay, part, tick, false) != NULL) continue;
        tell_difference(replay, tick, replay->asks[part->request].number, NULL, part);
        return false;
    }
    return true;
}

/* The next time at which something happens to an engine without work; INT64_MAX = never. */
static int64_t next_event(const struct replay *replay)
{
    int64_t next = replay->next < replay->n ? replay->asks[replay->next].submit_ns : INT64_MAX;
    for (size_t i = 0; i < replay->next; i++)
        if (replay->asks[i].leave_ns < next && !weir_stream_finished(replay->asks[i].stream))
            next = replay->asks[i].leave_ns;
    return next;
}

static cli_exit play_record(struct replay *replay, bool following)
{
    const cli_record *record = &replay->recorded;
    cli_exit code = CLI_OK;
    replay->now = replay->asks[0].submit_ns;
    if (record->ticks[0].start_ns < replay->now) replay->now = record->ticks[0].start_ns;
    while (code == CLI_OK && cli_signals_ended() == 0) {
        const weir_tick *tick =
            following && replay->n_same < record->n_ticks ? &record->ticks[replay->n_same] : NULL;
        replay->follow = tick;
        if (replay->now > INT64_MAX / 2) {
            code = cli_fail(CLI_FAILED, "the replay takes centuries: the record's times make no sense");
            break;
        }
        if (tick != NULL) replay->now = tick->start_ns;
        weir__clock_stand(replay->now);
        while (code == CLI_OK && replay->next < replay->n &&
               (tick != NULL ? replay->asks[replay->next].number < tick->n_arrived
                             : replay->asks[replay->next].submit_ns <= replay->now))
            code = submit_ask(replay);
        if (tick != NULL) {
            leave_before(replay, tick);
            fail_as_recorded(replay, tick);
        } else {
            cancel_leaving(replay, replay->now);
        }
        if (code != CLI_OK) break;
        weir_report report = {.size = sizeof report};
        weir_engine_step(replay->engine, NULL, 0, &report, NULL);
        cli_ticks_take(&replay->played, replay->engine);
        if (tick != NULL) {
            following = !report.idle && same_plan(replay, tick);
            if (report.idle)
                snprintf(replay->difference, sizeof replay->difference,
                         "tick %llu: in the replay there is nothing to do", (unsigned long long)tick->serial);
            replay->n_same += following;
            if (!report.idle) {
                replay->now = tick->start_ns + tick->tick_ns;
                replay->played.ticks[replay->played.n_ticks - 1].tick_ns = tick->tick_ns;
            }
        } else if (report.idle) {
            int64_t next = next_event(replay);
            if (next == INT64_MAX) break;
            if (next > replay->now) replay->now = next;
        }
    }
    weir__clock_stand(-1);
    return code;
}

/* ---- Figures ---- */

static void three_parts(double *values, size_t n, double figures[3])
{
    figures[0] = cli_measure_part(values, n, 0.5);
    figures[1] = cli_measure_part(values, n, 0.99);
    figures[2] = cli_measure_part(values, n, 1);
}

/* The figures of a record; `played`: its numbers are positions. A token's time is the end of its tick. */
static struct figures figures_of(const struct replay *replay, const cli_record *record, bool played)
{
    struct figures figures = {0};
    double *ttft = cli_alloc(replay->n + 1, sizeof *ttft), *itl = cli_alloc(record->n_parts + 1, sizeof *itl);
    double *ticks = cli_alloc(record->n_ticks + 1, sizeof *ticks);
    int64_t *at = cli_alloc(replay->n + 1, sizeof *at);
    int32_t *n = cli_alloc(replay->n + 1, sizeof *n);
    for (size_t t = 0; t < record->n_ticks; t++) {
        const weir_tick *tick = &record->ticks[t];
        int64_t end = tick->start_ns + tick->tick_ns;
        ticks[figures.n_ticks++] = (double)tick->tick_ns / 1e6;
        for (int32_t i = 0; i < tick->n_slots; i++) {
            const weir_tick_slot *part = &record->parts[tick->first_slot + (uint64_t)i];
            const struct ask *ask = played ? &replay->asks[part->request] : find_ask(replay, part->request);
            size_t which = (size_t)(ask - replay->asks);
            figures.n_suspensions += part->suspended;
            if (ask->cut || part->n_generated <= n[which]) continue;
            if (n[which] == 0)
                ttft[figures.n_ttft++] = (double)(end - ask->submit_ns) / 1e6;
            else
                itl[figures.n_itl++] = (double)(end - at[which]) / 1e6;
            n[which] = part->n_generated;
            at[which] = end;
        }
    }
    three_parts(ttft, figures.n_ttft, figures.ttft);
    three_parts(itl, figures.n_itl, figures.itl);
    three_parts(ticks, figures.n_ticks, figures.tick);
    if (record->n_ticks > 0) {
        const weir_tick *last = last_tick(record);
        figures.total_s = (double)(last->start_ns + last->tick_ns - record->ticks[0].start_ns) / 1e9;
    }
    cli_free(ttft);
    cli_free(itl);
    cli_free(ticks);
    cli_free(at);
    cli_free(n);
    return figures;
}

static json_t *side_json(const struct figures *figures, const char *strategy)
{
    const double *a = figures->ttft, *b = figures->itl, *c = figures->tick;
    return json_pack("{s:s, s:I, s:f, s:I, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}}",
                     "strategy", strategy, "ticks", (json_int_t)figures->n_ticks, "total_s", figures->total_s,
                     "suspensions", (json_int_t)figures->n_suspensions, "ttft_ms", "p50", a[0], "p99", a[1],
                     "max", a[2], "itl_ms", "p50", b[0], "p99", b[1], "max", b[2], "tick_ms", "p50", c[0],
                     "p99", c[1], "max", c[2]);
}

/* True if prompts began with prefixes that other requests had computed. */
static bool shared_prefixes(const cli_record *record)
{
    for (size_t i = 0; i < record->n_parts; i++)
        if (record->parts[i].n_cached > 0 || record->parts[i].state == WEIR_SLOT_JOINED) return true;
    return false;
}

static void report_figures(const struct replay *replay, bool same)
{
    struct figures a = figures_of(replay, &replay->recorded, false),
                   b = figures_of(replay, &replay->played, true);
    size_t n_cut = 0;
    for (size_t i = 0; i < replay->n; i++) n_cut += replay->asks[i].cut;
    json_t *json = json_pack("{s:o, s:o, s:I, s:I}", "recorded", side_json(&a, replay->recorded.strategy),
                             "replayed", side_json(&b, replay->played.strategy), "requests",
                             (json_int_t)replay->n, "begun_before", (json_int_t)n_cut);
    if (json != NULL && same) {
        json_object_set_new(json, "same_ticks", json_integer((json_int_t)replay->n_same));
        json_object_set_new(json, "reproduced", json_boolean(replay->difference[0] == '\0'));
        json_object_set_new(json, "difference", json_string(replay->difference));
        if (replay->difference[0] != '\0' && shared_prefixes(&replay->recorded))
            json_object_set_new(
                json, "why",
                json_string("recorded prompts share prefixes, which were computed once; the replay has no "
                            "texts and computes each prompt: record with --no-cache-prompt"));
    }
    bench_report(replay->args, json, NULL, 0);
}

/* ---- The command ---- */

cli_exit bench_replay(cli_args *args)
{
    struct replay replay = {.args = args};
    const weir_strategy *strategy = args->engine.strategy;
    weir_error error = {0};
    char *text = NULL;
    size_t length;
    if (args->words.n != 1)
        return cli_fail(CLI_USAGE, args->words.n == 0
                                       ? "which record? weir bench replay FILE, as --ring writes it"
                                       : "weir bench replay takes one file");
    const char *path = args->words.items[0];
    cli_exit code = cli_file_read(path, "a record", &text, &length);
    if (code != CLI_OK) return code;
    if (cli_record_read(&replay.recorded, text, length, &error) != WEIR_OK) {
        code = cli_fail(CLI_USAGE, "%s: %s", strcmp(path, "-") == 0 ? "stdin" : path,
                        weir__error_words(&error).text);
        goto done;
    }
    if (replay.recorded.n_ticks == 0) {
        code = cli_fail(CLI_USAGE, "%s: there is no tick in it", path);
        goto done;
    }
    if (strategy == NULL && (strategy = weir_strategy_find(replay.recorded.strategy)) == NULL) {
        code = cli_fail(CLI_USAGE, "%s is not a strategy of weir's: name one with --strategy",
                        replay.recorded.strategy);
        goto done;
    }
    derive_asks(&replay);
    replay.cost = learn_cost(&replay.recorded);
    if ((code = start_replay(&replay, strategy)) != CLI_OK) goto done;
    bool same = strcmp(strategy->name, replay.recorded.strategy) == 0;
    code = play_record(&replay, same);
    if (code == CLI_OK && cli_signals_ended() == 0) report_figures(&replay, same);
done:
    weir_engine_destroy(replay.engine);
    for (size_t i = 0; i < replay.next; i++) weir_stream_release(replay.asks[i].stream);
    weir_model_release(replay.model);
    cli_free(replay.asks);
    cli_record_fini(&replay.played);
    cli_record_fini(&replay.recorded);
    cli_free(text);
    return code;
}
