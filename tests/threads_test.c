/* threads_test.c: one engine and everybody at once: threads that submit, read, cancel, look and stop, on the
 * fake backend, against the naive reference.
 *
 * Rounds are played until WEIR_TEST_SECONDS are over, each with an engine of its own; WEIR_TEST_SEED seeds
 * their dice, but threads do not meet twice in the same way.
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/fake.h"
#include "support/pause.h"
#include "support/wish.h"

#define SECONDS     15
#define TASKS       600 /* of one round */
#define SUBMITTERS  8
#define CONSUMERS   4
#define CANCELLERS  2
#define BATCH       3
#define PATIENCE_MS 300000 /* nothing takes that long, also where the machine stands still for a while */

/* Who reads a task's stream. */
typedef enum style { BLOCK, POLL, CONSUME, LAZY, CALLBACK, ABANDON, STYLES } style;

typedef struct task {
    struct bout *bout;
    wish w;
    reader r; /* of the present consumer */
    style style;
    int32_t hand_over;     /* after hand_over chunks another consumer goes on; 0 = never */
    weir_stream *stream;   /* written under bout->mutex; NULL = none, or released */
    atomic_bool cancelled; /* somebody asked for it */
    atomic_bool accepted;  /* the submit has returned */
    atomic_int n_ready;    /* calls of count_ready */
    struct task *next;     /* in the inbox */
} task;

typedef struct bout {
    uint64_t seed;
    weir_model *model;
    weir__fake *fake;
    weir_engine *engine;
    weir_engine_params params;
    wish_limits limits;
    bool slow;        /* passes take their time: it may not end by itself soon */
    bool stop_inside; /* a ready callback stops the engine */
    bool ranked;      /* requests have priorities and salts */

    atomic_bool stopping; /* set before the engine is stopped */
    atomic_bool over;     /* the engine is not called any more */
    atomic_int n_open;    /* tasks whose end has to be seen */

    pthread_mutex_t mutex; /* protects all that follows */
    pthread_cond_t cond;   /* inbox or n_open has changed */
    task *inbox;
    task tasks[TASKS]; /* [n_tasks]; their contents belong to their readers */
    int n_tasks;
    char wrong[512]; /* the first error */

    atomic_uint_fast64_t n_accepted, n_ended[8], n_dawdled;
} bout;

/* One thread's arguments. */
typedef struct helper {
    bout *bout;
    dice d;
    pthread_t thread;
} helper;

__attribute__((format(printf, 3, 4))) static void must(bout *r, bool holds, const char *format, ...)
{
    va_list args;
    if (holds) return;
    pthread_mutex_lock(&r->mutex);
    va_start(args, format);
    if (r->wrong[0] == '\0') vsnprintf(r->wrong, sizeof r->wrong, format, args);
    va_end(args);
    pthread_mutex_unlock(&r->mutex);
}

/* ---- Readers --------------------------------------------------------------------------------------- */

static void close_task(task *t)
{
    bout *r = t->bout;
    pthread_mutex_lock(&r->mutex);
    weir_stream *stream = t->stream;
    t->stream = NULL;
    atomic_fetch_sub(&r->n_open, 1);
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->mutex);
    weir_stream_release(stream);
}

static void judge(task *t, weir_stream *stream)
{
    bout *r = t->bout;
    weir_error error;
    weir_reason reason = t->r.reason;
    weir_usage usage = weir_stream_usage(stream);
    const char *wrong = reader_judge(&t->r, &t->w, &usage);
    must(r, wrong == NULL, "%s: %s after %zu of %zu tokens", wrong, weir_reason_name(reason), t->r.n_tokens,
         t->w.want.n_tokens);
    weir_stream_error(stream, &error);
    must(r, reason != WEIR_REASON_CANCELLED || atomic_load(&t->cancelled), "nobody cancelled it");
    must(r, reason != WEIR_REASON_DEADLINE || t->w.deadline_ms > 0, "it had no deadline");
    must(r, reason != WEIR_REASON_ERROR || (atomic_load(&r->stopping) && error.code == WEIR_STOPPED),
         "an error: %s", error.message);
    must(r, weir_stream_finished(stream) && weir_stream_reason(stream) == reason, "another reason");
    atomic_fetch_add(&r->n_ended[reason], 1);
}

/* True when it was the terminal one. */
static bool add(task *t, weir_stream *stream, const weir_chunk *chunk)
{
    const char *wrong = reader_add(&t->r, chunk);
    must(t->bout, wrong == NULL, "%s", wrong);
    if (!chunk->finished) return false;
    judge(t, stream);
    weir_chunk none;
    must(t->bout, weir_stream_try_next(stream, &none) == WEIR_END, "something after the terminal chunk");
    return true;
}

/* The ready callback that reads: nobody else does. */
static void read_inside(weir_stream *stream, void *user)
{
    task *t = user;
    bout *r = t->bout;
    weir_chunk chunk;
    if (t->r.finished) return; /* the end is reported once more */
    for (;;) {
        weir_status status = weir_stream_try_next(stream, &chunk);
        if (status == WEIR_TIMEOUT) {
            if (!r->stop_inside || t->r.n_chunks < 3) return;
            atomic_store(&r->stopping, true);
            weir_engine_stop(r->engine);
            return;
        }
        must(r, status == WEIR_OK, "in a callback: %s", weir_status_name(status));
        if (status != WEIR_OK || add(t, stream, &chunk)) break;
    }
    close_task(t); /* releases the stream from within its callback */
}

static void count_ready(weir_stream *stream, void *user)
{
    task *t = user;
    (void)stream;
    atomic_fetch_add(&t->n_ready, 1);
}

static bool consume_some(const weir_chunk *chunk, void *user)
{
    task *t = user;
    if (chunk->length == 0 && !chunk->finished) return true;
    return !add(t, t->stream, chunk) && (t->hand_over == 0 || t->r.n_chunks % (size_t)t->hand_over != 0);
}

static weir_status poll_chunk(task *t, weir_chunk *chunk)
{
    struct pollfd entry = {.events = POLLIN};
    weir_status status = weir_stream_descriptor(t->stream, &entry.fd, NULL);
    must(t->bout, status == WEIR_OK, "no descriptor");
    must(t->bout, poll(&entry, 1, PATIENCE_MS) == 1, "a descriptor has stalled");
    status = weir_stream_try_next(t->stream, chunk);
    must(t->bout, status == WEIR_OK, "a readable descriptor: %s", weir_status_name(status));
    return status;
}

/* Takes one chunk, or waits a while for it; WEIR_TIMEOUT: not yet. */
static weir_status take(task *t, dice *d, weir_chunk *chunk)
{
    switch (t->style) {
    case POLL: return poll_chunk(t, chunk);
    case LAZY: pause_us(dice_in(d, 0, 3000)); return weir_stream_try_next(t->stream, chunk);
    default: return weir_stream_next(t->stream, dice_one_in(d, 2) ? PATIENCE_MS : dice_in(d, 0, 5), chunk);
    }
}

/* Reads until the end (true) or until it is another's turn. */
static bool read_task(task *t, dice *d)
{
    weir_chunk chunk;
    int64_t begin = weir__clock_now_ns();
    if (t->style == CONSUME) {
        weir_status status = weir_stream_consume(t->stream, consume_some, dice_in(d, 0, 3), t);
        must(t->bout, status == WEIR_OK || status == WEIR_ABORTED, "consume: %s", weir_status_name(status));
        return t->r.finished || (status != WEIR_OK && status != WEIR_ABORTED);
    }
    for (;;) {
        weir_status status = take(t, d, &chunk);
        if (status == WEIR_TIMEOUT) {
            bool patient = weir__clock_now_ns() - begin < (int64_t)PATIENCE_MS * WEIR__NS_PER_MS;
            must(t->bout, patient, "a stream has stalled");
            if (patient) continue;
            return true;
        }
        must(t->bout, status == WEIR_OK, "next: %s", weir_status_name(status));
        if (status != WEIR_OK || add(t, t->stream, &chunk)) return true;
        if (t->hand_over > 0 && t->r.n_chunks % (size_t)t->hand_over == 0) return false;
    }
}

static void put(bout *r, task *t)
{
    pthread_mutex_lock(&r->mutex);
    t->next = r->inbox;
    r->inbox = t;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->mutex);
}

static void *consumer(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    for (;;) {
        pthread_mutex_lock(&r->mutex);
        while (r->inbox == NULL && !(atomic_load(&r->over) && atomic_load(&r->n_open) == 0))
            pthread_cond_wait(&r->cond, &r->mutex);
        task *t = r->inbox;
        if (t != NULL) r->inbox = t->next;
        pthread_mutex_unlock(&r->mutex);
        if (t == NULL) return NULL;
        if (t->style == ABANDON) {
            weir_chunk chunk;
            if (weir_stream_next(t->stream, dice_in(&h->d, 0, 3), &chunk) == WEIR_OK)
                add(t, t->stream, &chunk);
            atomic_store(&t->cancelled, true);
            close_task(t);
        } else if (read_task(t, &h->d)) {
            close_task(t);
        } else {
            put(r, t);
        }
    }
}

/* ---- Submitters ------------------------------------------------------------------------------------ */

static void prepare(bout *r, task *t, dice *d)
{
    t->bout = r;
    wish_make(&t->w, &r->limits, d);
    if (dice_one_in(d, 30)) t->w.deadline_ms = dice_in(d, 1, 20);
    t->style = (style)dice_in(d, 0, STYLES - 1);
    t->hand_over = dice_one_in(d, 2) ? dice_in(d, 1, 4) : 0;
    if (r->ranked) {
        t->w.priority = dice_in(d, 0, 3);
        t->w.salt = (const char *[]){NULL, "a", "b", "c"}[dice_in(d, 0, 3)];
    }
    if (dice_one_in(d, 10)) return; /* nobody reads it */
    weir_stream *stream = NULL;
    must(r, weir_stream_create(&stream, NULL) == WEIR_OK, "no stream");
    if (t->style == CALLBACK)
        weir_stream_set_ready(stream, read_inside, t);
    else if (dice_one_in(d, 3))
        weir_stream_set_ready(stream, count_ready, t);
    pthread_mutex_lock(&r->mutex);
    t->stream = stream;
    pthread_mutex_unlock(&r->mutex);
}

/* n fresh tasks in a row, or NULL when the round has had enough. */
static task *reserve(bout *r, int n)
{
    pthread_mutex_lock(&r->mutex);
    task *tasks = r->n_tasks + n <= TASKS ? &r->tasks[r->n_tasks] : NULL;
    if (tasks != NULL) r->n_tasks += n;
    pthread_mutex_unlock(&r->mutex);
    return tasks;
}

static weir_status submit(bout *r, task *tasks, int n, bool generate)
{
    weir_request requests[BATCH];
    weir_result results[BATCH];
    weir_stream *streams[BATCH];
    weir_error error = {0};
    int n_streams = 0;
    bool fits = true;
    for (int i = 0; i < n; i++) {
        requests[i] = wish_request(&tasks[i].w);
        streams[i] = tasks[i].stream;
        n_streams += streams[i] != NULL;
        fits &= tasks[i].w.fits;
    }
    /* Before the submit: it may end before that returns. */
    atomic_fetch_add(&r->n_open, n_streams);
    weir_status status = generate ? weir_generate(r->engine, requests, (size_t)n, streams, results, &error)
                                  : weir_engine_submit(r->engine, requests, (size_t)n, streams, &error);
    if (status != WEIR_OK) {
        must(r,
             status == WEIR_BUSY || (status == WEIR_STOPPED && atomic_load(&r->stopping)) ||
                 (status == WEIR_TOO_LONG && !fits) ||
                 (status == WEIR_INVALID &&
                  n > r->params.queue_limit - r->params.queue_limit / 4 + r->params.n_slots),
             "submit: %s", error.message);
        for (int i = 0; i < n; i++)
            if (tasks[i].stream != NULL) close_task(&tasks[i]);
        return status;
    }
    must(r, fits, "a prompt that is too long was taken");
    atomic_fetch_add(&r->n_accepted, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        atomic_store(&tasks[i].accepted, true);
        if (generate) {
            const char *wrong = wish_judge_result(&tasks[i].w, &results[i]);
            must(r, wrong == NULL, "result: %s, %s", wrong, weir_reason_name(results[i].reason));
            weir_result_fini(&results[i]);
        }
        if (streams[i] != NULL && tasks[i].style != CALLBACK) put(r, &tasks[i]);
    }
    return status;
}

static void *submitter(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    while (!atomic_load(&r->over)) {
        int n = dice_one_in(&h->d, 3) ? dice_in(&h->d, 2, BATCH) : 1;
        task *tasks = reserve(r, n);
        if (tasks == NULL) return NULL;
        for (int i = 0; i < n; i++) prepare(r, &tasks[i], &h->d);
        weir_status status = submit(r, tasks, n, dice_one_in(&h->d, 8));
        if (status == WEIR_STOPPED) return NULL;
        pause_us(status == WEIR_BUSY ? 500 : dice_in(&h->d, 0, 300));
    }
    return NULL;
}

/* ---- Others ---------------------------------------------------------------------------------------- */

/* Cancels, and all that may be asked of a stream at any time. */
static void *canceller(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    for (;;) {
        weir_stream *stream = NULL;
        pthread_mutex_lock(&r->mutex);
        bool done = atomic_load(&r->over) && atomic_load(&r->n_open) == 0;
        task *t = r->n_tasks > 0 ? &r->tasks[dice_in(&h->d, 0, r->n_tasks - 1)] : NULL;
        /* A stream that is not submitted yet would be refused. */
        if (t != NULL && t->stream != NULL && weir_stream_index(t->stream) >= 0)
            stream = weir_stream_hold(t->stream);
        pthread_mutex_unlock(&r->mutex);
        if (done) return NULL;
        if (stream != NULL) {
            weir_error error;
            weir_reason reason = weir_stream_reason(stream);
            switch (dice_in(&h->d, 0, 6)) {
            case 0:
                atomic_store(&t->cancelled, true);
                weir_stream_cancel(stream);
                must(r, weir_stream_cancelled(stream) || weir_stream_finished(stream), "not cancelled");
                break;
            case 1: weir_stream_set_interval(stream, dice_in(&h->d, -1, 8)); break;
            case 4:
                if (t->style != CALLBACK)
                    weir_stream_set_ready(stream, dice_one_in(&h->d, 2) ? count_ready : NULL, t);
                break;
            case 5:
                must(r,
                     !weir_stream_finished(stream) || weir_stream_reason(stream) != WEIR_REASON_NOT_FINISHED,
                     "ended without a reason");
                break;
            case 2: must(r, weir_stream_interval(stream) >= 1, "interval"); break;
            case 3:
                weir_stream_error(stream, &error);
                must(r, error.code == WEIR_OK || error.code == WEIR_STOPPED, "%s", error.message);
                break;
            default: must(r, weir_stream_usage(stream).n_generated >= 0, "usage");
            }
            if (reason != WEIR_REASON_NOT_FINISHED)
                must(r, weir_stream_finished(stream) && weir_stream_reason(stream) == reason,
                     "a reason has changed");
            weir_stream_release(stream); /* perhaps the last: an abandoned one is then cancelled */
        }
        pause_us(dice_in(&h->d, 0, 400));
    }
}

static void *watcher(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    weir_engine_stats last = {.size = sizeof last};
    weir_request request = weir_request_default();
    request.text = "what if";
    request.cache_salt = "a";
    while (!atomic_load(&r->over)) {
        weir_forecast f = {.size = sizeof f};
        weir_status status = weir_engine_plan_request(r->engine, &request, &f, NULL);
        must(r, status == WEIR_OK || (status == WEIR_STOPPED && atomic_load(&r->stopping)), "a dry run: %s",
             weir_status_name(status));
        must(r, status != WEIR_OK || (f.n_prompt >= 7 && f.queue_place >= 0), "a dry run");
        weir_engine_stats s = {.size = sizeof s};
        must(r, weir_engine_get_stats(r->engine, &s) == WEIR_OK, "no stats");
        uint64_t n = 0;
        for (int i = 0; i < 8; i++) {
            n += s.n_finished[i];
            must(r, s.n_finished[i] >= last.n_finished[i], "fewer have ended than before");
        }
        must(r, n + (uint64_t)s.queue_depth <= s.n_submitted, "more than were submitted");
        must(r, s.n_slots_prefilling + s.n_slots_generating <= s.n_slots, "more run than there are slots");
        must(r, s.n_kv_used <= s.n_kv_reserved && s.n_kv_reserved <= s.n_kv, "%d used, %d reserved, %d",
             s.n_kv_used, s.n_kv_reserved, s.n_kv);
        must(r,
             s.n_suspended >= 0 && s.n_resumes <= s.n_suspensions && s.cache_bytes <= r->params.cache_bytes,
             "%d suspended", s.n_suspended);
        must(r, s.n_submitted >= last.n_submitted && s.n_ticks >= last.n_ticks, "counters run backwards");
        last = s;
        pause_us(dice_in(&h->d, 0, 1000));
    }
    return NULL;
}

/* Drives a manual engine, now and then in competition with weir_generate and stop. */
static void *driver(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    while (!atomic_load(&r->over)) {
        weir_report report = {.size = sizeof report};
        const weir_view *view;
        weir_status status = dice_one_in(&h->d, 10) ? weir_engine_view(r->engine, &view, NULL)
                                                    : weir_engine_step(r->engine, NULL, 0, &report, NULL);
        must(r, status == WEIR_OK || status == WEIR_STATE, "step: %s", weir_status_name(status));
        if (status != WEIR_OK || report.idle) pause_us(dice_in(&h->d, 50, 300));
    }
    return NULL;
}

static void *stopper(void *user)
{
    helper *h = user;
    weir_engine_stop(h->bout->engine);
    return NULL;
}

/* Of those that were accepted before. */
static void all_have_ended(bout *r)
{
    bool ended = true;
    pthread_mutex_lock(&r->mutex);
    for (int i = 0; i < r->n_tasks; i++) {
        const task *t = &r->tasks[i];
        if (atomic_load(&t->accepted) && t->stream != NULL) ended &= weir_stream_finished(t->stream);
    }
    pthread_mutex_unlock(&r->mutex);
    must(r, ended, "the drain is over, and a stream runs");
}

static void *drainer(void *user)
{
    helper *h = user;
    bout *r = h->bout;
    int timeout_ms = !r->slow && dice_one_in(&h->d, 2) ? -1 : dice_in(&h->d, 0, 50);
    weir_status status = weir_engine_drain(r->engine, timeout_ms);
    must(r, status != WEIR_TIMEOUT || timeout_ms >= 0, "a drain without a limit has timed out");
    if (status == WEIR_OK) all_have_ended(r);
    must(r, status == WEIR_OK || status == WEIR_TIMEOUT || (status == WEIR_STATE && r->params.manual),
         "drain: %s", weir_status_name(status));
    return NULL;
}

/* ---- A round --------------------------------------------------------------------------------------- */

static void start(helper *h, bout *r, dice *d, void *(*run)(void *user))
{
    h->bout = r;
    h->d.state = dice_roll(d);
    assert_int_equal(pthread_create(&h->thread, NULL, run, h), 0);
}

static void join(helper *h)
{
    assert_int_equal(pthread_join(h->thread, NULL), 0);
}

/* Leaves the choice to the model, and a pass half done for a while: a stop may then find it so. */
static int32_t dawdle(void *user, const int32_t *history, int32_t n)
{
    bout *r = user;
    (void)history;
    (void)n;
    if (atomic_fetch_add(&r->n_dawdled, 1) % 16 == 0) pause_us(300);
    return -1;
}

static void open_round(bout *r, dice *d)
{
    char path[128];
    int32_t n_vocab = dice_in(d, 260, 300);
    r->slow = dice_one_in(d, 2);
    snprintf(path, sizeof path, "fake:n_vocab=%d,seed=%d,eos_every=%d,any=1,exact=%d,tick_us=%d,token_us=%d",
             n_vocab, dice_in(d, 0, 1000000), dice_in(d, 0, 60), dice_one_in(d, 2),
             r->slow ? dice_in(d, 0, 2500) : 0, r->slow ? dice_in(d, 0, 10) : 0);
    assert_int_equal(weir_model_load(path, NULL, &r->model, NULL), WEIR_OK);
    r->fake = weir__fake_of(r->model);
    wish_vocabulary(r->model, n_vocab, d);
    if (r->slow && dice_one_in(d, 2)) {
        r->fake->next = dawdle;
        r->fake->next_user = r;
    }
    weir_engine_params *p = &r->params;
    *p = weir_engine_params_default();
    p->manual = dice_one_in(d, 4);
    p->n_slots = dice_in(d, 1, 16);
    p->n_ctx = dice_in(d, 30, 200);
    p->n_kv = dice_in(d, p->n_ctx, p->n_slots * p->n_ctx);
    if (dice_one_in(d, 2)) p->n_kv = dice_in(d, p->n_ctx, 2 * p->n_ctx); /* many are suspended */
    p->cache_bytes = dice_one_in(d, 3) ? WEIR_AUTO : (uint64_t)dice_in(d, 0, 5000);
    p->ageing_ms = dice_in(d, 0, 3);
    r->ranked = dice_one_in(d, 2);
    p->n_batch = dice_in(d, p->n_slots, 100);
    p->chunk_size = dice_in(d, 1, 40);
    p->queue_limit = dice_one_in(d, 2) ? 0 : dice_in(d, 1, 20);
    p->layout = (weir_layout)dice_in(d, WEIR_LAYOUT_AUTO, WEIR_LAYOUT_PER_SLOT);
    assert_int_equal(weir_engine_create(r->model, p, &r->engine, NULL), WEIR_OK);
    weir_engine_stats s = {.size = sizeof s};
    assert_int_equal(weir_engine_get_stats(r->engine, &s), WEIR_OK);
    r->limits = (wish_limits){.model = r->model,
                              .n_ctx = s.n_ctx,
                              .max_tokens = -1,
                              .usual = dice_in(d, 3, 40),
                              .n_vocab = n_vocab};
    r->stop_inside = !p->manual && dice_one_in(d, 6);
    assert_int_equal(pthread_mutex_init(&r->mutex, NULL), 0);
    assert_int_equal(pthread_cond_init(&r->cond, NULL), 0);
}

/* Ends the running requests in a random way. A manual engine does not drain by itself: it is stopped. */
static void end_engine(bout *r, dice *d)
{
    helper drains, stops[2];
    bool drain = dice_one_in(d, 2), stop = r->params.manual || !drain || dice_one_in(d, 2);
    atomic_store(&r->stopping, true);
    if (drain) start(&drains, r, d, drainer);
    if (drain && stop) pause_us(dice_in(d, 0, 20000));
    for (int i = 0; i < 2 && stop; i++) start(&stops[i], r, d, stopper);
    for (int i = 0; i < 2 && stop; i++) join(&stops[i]);
    if (drain) join(&drains);
    if (!stop && !r->slow && dice_one_in(d, 2)) /* else destroy finds requests that a drain has left */
        must(r, weir_engine_drain(r->engine, -1) == WEIR_OK, "drain");
}

static void play_round(bout *r, dice *d)
{
    helper submitters[SUBMITTERS], consumers[CONSUMERS], cancellers[CANCELLERS], watches, drives;
    long live = weir__mem_live();
    open_round(r, d);
    int n_submitters = dice_in(d, 4, SUBMITTERS), n_consumers = dice_in(d, 2, CONSUMERS);
    if (r->params.manual) start(&drives, r, d, driver);
    start(&watches, r, d, watcher);
    for (int i = 0; i < n_consumers; i++) start(&consumers[i], r, d, consumer);
    for (int i = 0; i < CANCELLERS; i++) start(&cancellers[i], r, d, canceller);
    for (int i = 0; i < n_submitters; i++) start(&submitters[i], r, d, submitter);
    pause_us(dice_in(d, 0, dice_one_in(d, 3) ? 5000 : 300000));

    end_engine(r, d);
    for (int i = 0; i < n_submitters; i++) join(&submitters[i]);
    pthread_mutex_lock(&r->mutex);
    atomic_store(&r->over, true);
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->mutex);
    join(&watches);
    if (r->params.manual) join(&drives);
    weir_engine_destroy(r->engine); /* streams live on: consumers and cancellers are still at it */
    for (int i = 0; i < n_consumers; i++) join(&consumers[i]);
    for (int i = 0; i < CANCELLERS; i++) join(&cancellers[i]);

    if (r->wrong[0] != '\0') fail_msg("round of seed %llu: %s", (unsigned long long)r->seed, r->wrong);
    assert_int_equal(atomic_load(&r->n_open), 0);
    assert_int_equal(atomic_load(&r->fake->faults), 0);
    assert_int_equal(atomic_load(&r->fake->n_cells), 0);
    assert_int_equal(atomic_load(&r->fake->n_samplers), 0);
    assert_int_equal(atomic_load(&r->fake->n_contexts), 0);
    for (int i = 0; i < r->n_tasks; i++) {
        assert_null(r->tasks[i].stream);
        reader_fini(&r->tasks[i].r);
        wish_fini(&r->tasks[i].w);
    }
    pthread_cond_destroy(&r->cond);
    pthread_mutex_destroy(&r->mutex);
    weir_model_release(r->model);
    assert_int_equal(weir__mem_live(), live);
}

static void test_everybody_at_once(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    int64_t seconds = (int64_t)dice_environment("WEIR_TEST_SECONDS", SECONDS);
    int64_t end = weir__clock_now_ns() + seconds * WEIR__NS_PER_S;
    uint64_t n_rounds = 0, n_accepted = 0, n_ended[8] = {0};
    print_message("rounds from WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    bout *r = NULL;
    do {
        r = calloc(1, sizeof *r);
        assert_non_null(r);
        r->seed = seed + n_rounds;
        dice d = {r->seed};
        play_round(r, &d);
        n_rounds++;
        n_accepted += atomic_load(&r->n_accepted);
        for (int i = 0; i < 8; i++) n_ended[i] += atomic_load(&r->n_ended[i]);
        free(r);
    } while (weir__clock_now_ns() < end);
    print_message("%llu rounds, %llu requests; read to the end:", (unsigned long long)n_rounds,
                  (unsigned long long)n_accepted);
    for (int i = 1; i <= WEIR_REASON_DEADLINE; i++)
        print_message(" %llu %s", (unsigned long long)n_ended[i], weir_reason_name((weir_reason)i));
    print_message("\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
