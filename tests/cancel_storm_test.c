/* cancel_storm_test.c: cancels without end, of requests in whatever state they are, on the fake backend. Each
 * must end within a tick, no other request may give another text, and in the end all counts add up and
 * nothing is left. WEIR_TEST_CANCELS says how many, WEIR_TEST_SEED repeats a run.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "model/fake.h"
#include "support/wish.h"

#define CANCELS 10000
#define CLIENTS 24

/* Where a cancel finds a request. */
typedef enum where { QUEUED, SUSPENDED, PREFILLING, JOINED, GENERATING, UNREAD, WHERES } where;

static const char *const names[] = {"queued", "suspended",  "prefilling",
                                    "joined", "generating", "ended, unread"};

typedef struct client {
    wish w;
    reader r;
    weir_stream *stream; /* NULL: this place is free */
    int32_t slow;        /* reads at one of `slow` ticks */
    bool cancelled;      /* before it had ended */
} client;

typedef struct storm {
    dice d;
    uint64_t seed;
    weir_model *model;
    weir__fake *fake;
    weir_engine *engine;
    wish_limits limits;
    client clients[CLIENTS];
    const client *newest;
    uint64_t cancels[WHERES];
    uint64_t n_cancels, n_submitted;
    uint64_t seen[8]; /* ends by reason */
} storm;

#define MUST(s, condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) fail_msg("WEIR_TEST_SEED=%llu: " #condition, (unsigned long long)(s)->seed);       \
    } while (0)

/* ---- Requests -------------------------------------------------------------------------------------- */

static void submit(storm *s, client *c)
{
    const client *like = &s->clients[dice_in(&s->d, 0, CLIENTS - 1)];
    if (s->newest != NULL && dice_one_in(&s->d, 2)) like = s->newest; /* they come at the same time */
    *c = (client){.slow = dice_one_in(&s->d, 3) ? 40 : dice_in(&s->d, 1, 4)};
    s->limits.like = like->stream != NULL && !dice_one_in(&s->d, 4) ? &like->w : NULL;
    wish_make(&c->w, &s->limits, &s->d);
    if (!c->w.fits) {
        wish_fini(&c->w);
        return;
    }
    c->w.priority = dice_one_in(&s->d, 4) ? dice_in(&s->d, 1, 3) : 0;
    weir_request request = wish_request(&c->w);
    weir_error error = {0};
    MUST(s, weir_stream_create(&c->stream, NULL) == WEIR_OK);
    weir_status status = weir_engine_submit(s->engine, &request, 1, &c->stream, &error);
    if (status != WEIR_OK) fail_msg("WEIR_TEST_SEED=%llu: %s", (unsigned long long)s->seed, error.message);
    s->n_submitted++;
    s->newest = c;
}

/* Takes all that is there. At the end it must be this request's own text, whatever happened to the others. */
static void take(storm *s, client *c)
{
    weir_chunk chunk;
    while (weir_stream_try_next(c->stream, &chunk) == WEIR_OK) {
        const char *wrong = reader_add(&c->r, &chunk);
        if (wrong != NULL) fail_msg("WEIR_TEST_SEED=%llu: %s", (unsigned long long)s->seed, wrong);
    }
    if (!c->r.finished) return;
    weir_usage usage = weir_stream_usage(c->stream);
    const char *wrong = reader_judge(&c->r, &c->w, &usage);
    if (wrong != NULL)
        fail_msg("WEIR_TEST_SEED=%llu: %s; %s, \"%.*s\" for \"%s\"", (unsigned long long)s->seed, wrong,
                 weir_reason_name(c->r.reason), (int)c->r.length, c->r.text, c->w.want.text);
    MUST(s, c->r.reason == (c->cancelled ? WEIR_REASON_CANCELLED : c->w.want.reason));
    s->seen[c->r.reason]++;
    weir_stream_release(c->stream);
    reader_fini(&c->r);
    wish_fini(&c->w);
    c->stream = NULL;
}

/* ---- Cancels --------------------------------------------------------------------------------------- */

/* Between ticks the driver, which is this thread, may look into the engine. */
static where where_is(const storm *s, const client *c)
{
    if (weir_stream_finished(c->stream)) return UNREAD;
    for (int32_t i = 0; i < s->engine->params.n_slots; i++) {
        const weir__slot *slot = &s->engine->driver.slots.first[i];
        if (slot->state == WEIR_SLOT_IDLE || slot->request->stream != c->stream) continue;
        if (slot->state == WEIR_SLOT_JOINED) return JOINED;
        return slot->state == WEIR_SLOT_PREFILLING ? PREFILLING : GENERATING;
    }
    for (const weir__request *at = s->engine->shared.queue.first; at != NULL; at = at->next)
        if (at->stream == c->stream) return at->admit_ns > 0 ? SUSPENDED : QUEUED;
    MUST(s, !"a request that is nowhere");
    return QUEUED;
}

/* One of those that stand where the fewest cancels were so far, or any. */
static client *choose(storm *s)
{
    bool any = dice_one_in(&s->d, 3);
    client *chosen = NULL;
    uint64_t fewest = UINT64_MAX;
    int32_t first = dice_in(&s->d, 0, CLIENTS - 1);
    for (int32_t i = 0; i < CLIENTS; i++) {
        client *c = &s->clients[(first + i) % CLIENTS];
        if (c->stream == NULL || c->cancelled) continue;
        uint64_t n = any ? 0 : s->cancels[where_is(s, c)];
        if (n >= fewest) continue;
        fewest = n;
        chosen = c;
    }
    return chosen;
}

static void cancel(storm *s)
{
    client *c = choose(s);
    if (c == NULL) return;
    where at = where_is(s, c);
    s->cancels[at]++;
    s->n_cancels++;
    c->cancelled = at != UNREAD;
    weir_stream_cancel(c->stream);
}

/* ---- A storm --------------------------------------------------------------------------------------- */

static weir_engine_stats stats_of(const storm *s)
{
    weir_engine_stats stats = {.size = sizeof stats};
    MUST(s, weir_engine_get_stats(s->engine, &stats) == WEIR_OK);
    return stats;
}

static void tick(storm *s)
{
    weir_report report = {.size = sizeof report};
    MUST(s, weir_engine_step(s->engine, NULL, 0, &report, NULL) == WEIR_OK);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &s->clients[i];
        if (c->stream == NULL) continue;
        MUST(s, !c->cancelled || weir_stream_finished(c->stream));
        if (dice_one_in(&s->d, c->slow)) take(s, c);
    }
}

static void open_storm(storm *s, weir_layout layout)
{
    char path[96];
    weir_engine_params params = weir_engine_params_default();
    weir_error error = {0};
    snprintf(path, sizeof path, "fake:n_vocab=280,seed=%d,eos_every=40,any=1,exact=1",
             dice_in(&s->d, 0, 1000000));
    MUST(s, weir_model_load(path, NULL, &s->model, NULL) == WEIR_OK);
    s->fake = weir__fake_of(s->model);
    wish_vocabulary(s->model, 280, &s->d);
    params.manual = true;
    params.n_slots = 6;
    params.n_ctx = 130;
    params.n_kv = layout == WEIR_LAYOUT_UNIFIED ? 250 : 0; /* of a pool there is too little */
    params.n_batch = 24;
    params.chunk_size = 4;
    params.queue_limit = 0;
    params.cache_sequences = layout == WEIR_LAYOUT_UNIFIED ? -1 : 3;
    params.cache_bytes = 4000;
    params.ageing_ms = 0;
    params.layout = layout;
    if (weir_engine_create(s->model, &params, &s->engine, &error) != WEIR_OK) fail_msg("%s", error.message);
    s->limits = (wish_limits){.model = s->model, .n_ctx = 130, .max_tokens = -1, .usual = 60, .n_vocab = 280};
}

/* All have ended. */
static void check_counts(const storm *s)
{
    weir_engine_stats stats = stats_of(s);
    const uint64_t *n = s->cancels;
    MUST(s, stats.n_submitted == s->n_submitted && stats.n_refused == 0);
    for (int i = 0; i < 8; i++) MUST(s, stats.n_finished[i] == s->seen[i]);
    MUST(s, stats.n_cancelled_queued == n[QUEUED] + n[SUSPENDED]);
    MUST(s, stats.n_cancelled_prefilling == n[PREFILLING] + n[JOINED]);
    MUST(s, stats.n_cancelled_generating == n[GENERATING]);
    MUST(s, stats.n_finished[WEIR_REASON_CANCELLED] == s->n_cancels - n[UNREAD]);
    MUST(s, stats.queue_depth == 0 && stats.n_suspended == 0);
    MUST(s, stats.n_slots_prefilling == 0 && stats.n_slots_generating == 0);
    MUST(s, stats.n_kv_used == stats.n_kv_cached && stats.n_kv_reserved == stats.n_kv_cached);
    MUST(s, atomic_load(&s->fake->n_cells) == stats.n_kv_used);
    MUST(s, atomic_load(&s->fake->n_samplers) == 0);
    MUST(s, atomic_load(&s->fake->faults) == 0);
}

static void blow(uint64_t seed, uint64_t n_cancels, weir_layout layout)
{
    static storm s;
    long live = weir__mem_live();
    s = (storm){.d.state = seed, .seed = seed};
    open_storm(&s, layout);
    while (s.n_cancels < n_cancels) {
        for (int i = 0; i < CLIENTS; i++)
            if (s.clients[i].stream == NULL && dice_one_in(&s.d, 3)) submit(&s, &s.clients[i]);
        tick(&s);
        for (int32_t n = dice_one_in(&s.d, 40) ? CLIENTS : dice_in(&s.d, 0, 2); n > 0; n--) cancel(&s);
    }
    for (bool live_ones = true; live_ones;) {
        live_ones = false;
        tick(&s);
        for (int i = 0; i < CLIENTS; i++) live_ones |= s.clients[i].stream != NULL;
    }
    check_counts(&s);
    for (int i = 0; i < WHERES; i++) {
        print_message("%s%llu %s", i > 0 ? ", " : "", (unsigned long long)s.cancels[i], names[i]);
        MUST(&s, n_cancels < 1000 || s.cancels[i] > n_cancels / 100); /* else it proves little */
    }
    print_message("\n");
    weir_engine_destroy(s.engine);
    MUST(&s, atomic_load(&s.fake->n_contexts) == 0 && atomic_load(&s.fake->n_cells) == 0);
    weir_model_release(s.model);
    MUST(&s, weir__mem_live() == live);
}

static void test_nothing_is_left_of_cancels(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n = dice_environment("WEIR_TEST_CANCELS", CANCELS);
    print_message("%llu cancels from WEIR_TEST_SEED=%llu\n", (unsigned long long)n, (unsigned long long)seed);
    blow(seed, n / 2, WEIR_LAYOUT_UNIFIED);
    blow(seed, n - n / 2, WEIR_LAYOUT_PER_SLOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_left_of_cancels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
