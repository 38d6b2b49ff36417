/* events.c: GET /events, the engine's ticks as they happen, and GET /slots. A timer on the service thread
 * reads the engine's record of its ticks from where it stopped; the slots' parts in it give the present state
 * of each slot. There is one serve_events for each model that has readers, and an event is composed once for
 * all readers of a kind; a reader that is behind gets none. Rates and quantiles are differences to counters
 * of some seconds ago. An operator sees all of it; others see the numbers of their own requests, and no sums,
 * which would reveal those of others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "operate.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/access/keys.h"
#include "server/api/common/answer.h"
#include "server/api/openai/openai.h"
#include "server/models/catalog.h"
#include "server/request/call.h"
#include "server/request/workers.h"

#define PERIOD_US  100000 /* at most ten events a second */
#define IDLE_NS    WEIR__NS_PER_S
#define READ_N     256  /* items that are read at a time */
#define TICKS_MAX  256  /* in one event; older ones are left out */
#define ARRIVALS_N 1024 /* whose priorities are remembered */
#define SLOTS_MAX  256
#define SNAPS_N    10 /* seconds that rates and quantiles look back on */

typedef struct slot {
    const char *state;
    int32_t prompt, done, generated, cached, priority;
    uint64_t request; /* that has it, unless it is idle */
    bool own;         /* the reader's, for whom the state is being written */
} slot;

/* Counters as they were. */
typedef struct snap {
    int64_t at_ns; /* 0 = none yet */
    uint64_t prefilled, generated;
    weir_histogram ttft, itl, tpot;
} snap;

/* The events of one model. */
struct serve_events {
    serve_events *next; /* the server's */
    serve_server *server;
    serve_model *model; /* held */
    uint64_t loaded;    /* serial of the model in memory whose ticks these are; 0 = none */
    serve_timer timer;
    int32_t n_readers;
    int64_t sent_ns;
    uint64_t n_rounds; /* events sent to all readers */
    uint64_t next_tick, next_part, next_arrival;
    weir_tick ticks[TICKS_MAX]; /* a ring: since the last event; [n_ticks % TICKS_MAX] is the next one's */
    uint64_t n_ticks, n_sent;
    slot slots[SLOTS_MAX];
    int32_t priorities[ARRIVALS_N]; /* by request % ARRIVALS_N */
    snap snaps[SNAPS_N];
    size_t newest;
};

/* ---- The engine's record ---- */

static void read_arrivals(serve_events *events, const weir_engine *engine)
{
    weir_arrival arrivals[READ_N];
    size_t n;
    while (weir_engine_arrivals(engine, events->next_arrival, arrivals, READ_N, &n) == WEIR_OK) {
        for (size_t i = 0; i < n; i++)
            events->priorities[arrivals[i].request % ARRIVALS_N] = arrivals[i].priority;
        events->next_arrival = arrivals[n - 1].request + 1;
    }
}

static void take_part(serve_events *events, const weir_tick_slot *part)
{
    if (part->slot < 0 || part->slot >= SLOTS_MAX) return;
    slot *s = &events->slots[part->slot];
    if (part->end_ns != 0 || part->suspended) {
        *s = (slot){.state = "idle"};
        return;
    }
    s->state = part->n_generated > 0                 ? "generating"
               : part->state == WEIR_SLOT_JOINED     ? "joined"
               : part->state == WEIR_SLOT_GENERATING ? "generating"
                                                     : "prefilling";
    s->request = part->request;
    s->prompt = part->n_prompt;
    s->done = part->n_past < part->n_prompt ? part->n_past : part->n_prompt;
    s->generated = part->n_generated;
    s->cached = part->n_cached;
    s->priority = events->priorities[part->request % ARRIVALS_N];
}

/* Forgets all that was read from the engine before. */
static void change_engine(serve_events *events, uint64_t loaded)
{
    events->loaded = loaded;
    events->next_tick = events->next_part = events->next_arrival = 0;
    events->n_sent = events->n_ticks = 0;
    memset(events->slots, 0, sizeof events->slots);
    memset(events->priorities, 0, sizeof events->priorities);
    memset(events->snaps, 0, sizeof events->snaps);
}

static void read_engine(serve_events *events, const serve_loaded *loaded)
{
    const weir_engine *engine = loaded != NULL ? loaded->engine : NULL;
    uint64_t serial = engine != NULL ? loaded->serial : 0;
    weir_tick_slot parts[READ_N];
    weir_tick ticks[READ_N];
    size_t n;
    if (events->loaded != serial) change_engine(events, serial);
    if (engine == NULL) return;
    read_arrivals(events, engine);
    while (weir_engine_tick_slots(engine, events->next_part, parts, READ_N, &n) == WEIR_OK) {
        for (size_t i = 0; i < n; i++) take_part(events, &parts[i]);
        events->next_part = parts[n - 1].serial + 1;
    }
    while (weir_engine_ticks(engine, events->next_tick, ticks, READ_N, &n) == WEIR_OK) {
        for (size_t i = 0; i < n; i++) events->ticks[events->n_ticks++ % TICKS_MAX] = ticks[i];
        events->next_tick = ticks[n - 1].serial + 1;
    }
}

/* ---- Whose they are ---- */

static bool is_idle(const slot *s)
{
    return s->state == NULL || strcmp(s->state, "idle") == 0;
}

static void mark_slot(serve_events *events, const weir_stream *stream)
{
    uint64_t request;
    if (stream == NULL || weir_stream_request(stream, &request) != WEIR_OK) return;
    for (size_t i = 0; i < SLOTS_MAX; i++)
        if (!is_idle(&events->slots[i]) && events->slots[i].request == request) events->slots[i].own = true;
}

/* Marks the slots that have requests of this key; -1: none, because clients without a key cannot be
 * distinguished. A call that a worker still has is left out. */
static void mark_own_slots(serve_events *events, int32_t key)
{
    for (size_t i = 0; i < SLOTS_MAX; i++) events->slots[i].own = false;
    for (serve_call *call = events->server->calls; key >= 0 && call != NULL; call = call->after) {
        if (call->key != key || call->state == SERVE_WORKING || call->answer == NULL) continue;
        if (call->loaded == NULL || call->loaded->serial != events->loaded)
            continue; /* another engine's numbers */
        for (int32_t i = 0; i < call->answer->n; i++) mark_slot(events, call->answer->choices[i].stream);
    }
}

/* ---- Figures ---- */

static void keep_snap(serve_events *events, const weir_engine_stats *stats, int64_t now_ns)
{
    if (now_ns - events->snaps[events->newest].at_ns < WEIR__NS_PER_S) return;
    events->newest = (events->newest + 1) % SNAPS_N;
    events->snaps[events->newest] = (snap){.at_ns = now_ns,
                                           .prefilled = stats->n_prompt_tokens,
                                           .generated = stats->n_generated_tokens,
                                           .ttft = stats->ttft_seconds,
                                           .itl = stats->itl_seconds,
                                           .tpot = stats->tpot_seconds};
}

/* Adds quantiles of what was observed since `before`; if that is nothing, as with first tokens while a long
 * answer runs, of all so far, which `lately` says. */
static void add_quantiles(weir__text *text, const char *name, const weir_histogram *now,
                          const weir_histogram *before)
{
    weir_histogram lately = *now;
    bool any = now->count > before->count;
    if (any) {
        lately.count -= before->count;
        lately.sum -= before->sum;
        for (size_t i = 0; i < WEIR_HISTOGRAM_BUCKETS; i++) lately.buckets[i] -= before->buckets[i];
    }
    weir__text_printf(text, ",\"%s\":{", name);
    weir__json_number(text, "p50", weir_histogram_quantile(&lately, 0.5) * 1e3, 2);
    weir__json_number(text, "p99", weir_histogram_quantile(&lately, 0.99) * 1e3, 2);
    weir__text_printf(text, ",\"lately\":%s}", any ? "true" : "false");
}

static void add_rates(serve_events *events, const weir_engine_stats *stats, int64_t now_ns, weir__text *text)
{
    const snap *last = &events->snaps[(events->newest + SNAPS_N - 1) % SNAPS_N]; /* a second ago or two */
    const snap *first = &events->snaps[(events->newest + 1) % SNAPS_N];
    if (last->at_ns == 0) last = &events->snaps[events->newest];
    if (first->at_ns == 0) first = &events->snaps[1]; /* the first one that was kept */
    if (first->at_ns == 0) first = &events->snaps[events->newest];
    double seconds = (double)(now_ns - last->at_ns) / 1e9;
    if (seconds < 0.05) seconds = 0.05;
    weir__text_add_string(text, ",\"rates\":{");
    weir__json_number(text, "prefill", (double)(stats->n_prompt_tokens - last->prefilled) / seconds, 1);
    weir__json_number(text, "decode", (double)(stats->n_generated_tokens - last->generated) / seconds, 1);
    weir__text_add_string(text, "}");
    add_quantiles(text, "ttft_ms", &stats->ttft_seconds, &first->ttft);
    add_quantiles(text, "itl_ms", &stats->itl_seconds, &first->itl);
    add_quantiles(text, "tpot_ms", &stats->tpot_seconds, &first->tpot);
}

static void add_ticks(serve_events *events, weir__text *text)
{
    if (events->n_ticks - events->n_sent > TICKS_MAX) events->n_sent = events->n_ticks - TICKS_MAX;
    weir__text_add_string(text, "{\"ticks\":[");
    for (uint64_t i = events->n_sent; i < events->n_ticks; i++) {
        const weir_tick *tick = &events->ticks[i % TICKS_MAX];
        weir__json_next(text);
        weir__text_add_string(text, "{");
        weir__json_number(text, "t_ms", (double)(tick->start_ns - events->server->created_ns) / 1e6, 2);
        weir__json_number(text, "ms", (double)tick->tick_ns / 1e6, 3);
        weir__text_printf(text, ",\"prefill\":%d,\"decode\":%d,\"draft\":%d,\"passes\":%d}", tick->n_prefill,
                          tick->n_decode, tick->n_drafted, tick->n_passes);
    }
    weir__text_add_string(text, "]");
}

/* all: also the numbers of slots that are not the reader's own. */
static void add_slot(const slot *s, int32_t id, bool all, weir__text *text)
{
    weir__json_next(text);
    weir__text_printf(text, "{\"id\":%d", id);
    if (!all && !s->own && !is_idle(s)) {
        weir__text_add_string(text, ",\"state\":\"busy\"}");
        return;
    }
    weir__text_printf(text,
                      ",\"state\":\"%s\",\"prompt\":%d,\"done\":%d,\"generated\":%d,\"cached\":%d,"
                      "\"priority\":%d}",
                      is_idle(s) ? "idle" : s->state, s->prompt, s->done, s->generated, s->cached,
                      s->priority);
}

static void add_slots(const serve_events *events, int32_t n, bool all, weir__text *text)
{
    weir__text_add_string(text, "[");
    for (int32_t i = 0; i < n && i < SLOTS_MAX; i++) add_slot(&events->slots[i], i, all, text);
    weir__text_add_string(text, "]");
}

/* Counters since the start. */
static void add_total(const weir_engine_stats *stats, weir__text *text)
{
    weir__text_printf(
        text,
        ",\"total\":{\"submitted\":%llu,\"refused\":%llu,\"prompt_tokens\":%llu,\"generated_tokens\":%llu,"
        "\"ticks\":%llu",
        (unsigned long long)stats->n_submitted, (unsigned long long)stats->n_refused,
        (unsigned long long)stats->n_prompt_tokens, (unsigned long long)stats->n_generated_tokens,
        (unsigned long long)stats->n_ticks);
    weir__json_number(text, "busy_seconds", (double)stats->busy_ns / 1e9, 6);
    for (int i = WEIR_REASON_END; i <= WEIR_REASON_DEADLINE; i++)
        weir__text_printf(text, "%s\"%s\":%llu", i == WEIR_REASON_END ? ",\"finished\":{" : ",",
                          weir_reason_name((weir_reason)i), (unsigned long long)stats->n_finished[i]);
    weir__text_add_string(text, "}}");
}

static void compose_event(serve_events *events, const weir_engine_stats *stats, int64_t now_ns,
                          weir__text *text)
{
    uint64_t cached = stats->n_cached_tokens, prompt = cached + stats->n_prompt_tokens;
    weir__text_add_string(text, "event: tick\ndata: ");
    add_ticks(events, text);
    weir__json_key(text, "slots");
    add_slots(events, stats->n_slots, true, text);
    weir__text_printf(
        text,
        ",\"queue\":%d,\"suspended\":%d,\"kv\":{\"used\":%d,\"size\":%d},\"cache\":{\"entries\":%d,"
        "\"bytes\":%llu,\"prompt_tokens\":%llu,\"cached_tokens\":%llu",
        stats->queue_depth, stats->n_suspended, stats->n_kv_used, stats->n_kv, stats->n_cache_entries,
        (unsigned long long)stats->cache_bytes, (unsigned long long)prompt, (unsigned long long)cached);
    weir__json_number(text, "hits", prompt > 0 ? (double)cached / (double)prompt : 0,
                      4); /* of all prompt tokens */
    weir__text_add_string(text, "}");
    add_total(stats, text);
    add_rates(events, stats, now_ns, text);
    weir__json_string(text, "model", events->model->name);
    serve_models_add_states(events->server, text);
    weir__text_add_string(text, "}\n\n");
}

/* The event for a reader who is not an operator. Sums and times of ticks would reveal the lengths of others'
 * prompts and answers: differences of two sums are theirs. */
static void compose_own_event(serve_events *events, const weir_engine_stats *stats, int32_t key,
                              weir__text *text)
{
    mark_own_slots(events, key);
    weir__text_add_string(text, "event: tick\ndata: {\"operator\":false,\"ticks\":[],\"slots\":");
    add_slots(events, stats->n_slots, false, text);
    weir__text_printf(text, ",\"queue\":%d,\"suspended\":%d,\"kv\":{\"size\":%d}", stats->queue_depth,
                      stats->n_suspended, stats->n_kv);
    weir__json_string(text, "model", events->model->name);
    serve_models_add_states(events->server, text);
    weir__text_add_string(text, "}\n\n");
}

/* ---- Readers ---- */

/* The first reader from this call on that takes events; NULL: there is none. */
static serve_call *find_reader(const serve_events *events, serve_call *call)
{
    while (call != NULL &&
           (call->events != events || call->ended || call->out.n - call->out_at > SERVE_BUFFER_MAX))
        call = call->after;
    return call;
}

static void send_event(serve_call *call, const weir__text *text)
{
    if (text->failed) return;
    size_t at = serve_call_begin_piece(call);
    weir__text_add(&call->out, text->bytes, text->n);
    serve_call_end_piece(call, at);
    serve_call_send(call);
}

/* Composes the event once for this reader and all later ones of its kind: operators, or one key's. */
static void send_kind(serve_events *events, serve_call *reader, const weir_engine_stats *stats,
                      int64_t now_ns, weir__text *text)
{
    bool operates = serve_call_operates(reader);
    weir__text_clear(text);
    if (operates)
        compose_event(events, stats, now_ns, text);
    else
        compose_own_event(events, stats, reader->key, text);
    for (serve_call *call = reader; call != NULL; call = find_reader(events, call->after)) {
        if ((!operates && call->key != reader->key) || serve_call_operates(call) != operates) continue;
        call->n_told = events->n_rounds;
        send_event(call, text);
    }
}

static void send_to_readers(serve_events *events, const weir_engine_stats *stats, int64_t now_ns)
{
    weir__text text = {0};
    serve_call *call = find_reader(events, events->server->calls);
    events->n_rounds++;
    for (; call != NULL; call = find_reader(events, call->after))
        if (call->n_told != events->n_rounds) send_kind(events, call, stats, now_ns, &text);
    events->n_sent = events->n_ticks;
    weir__text_fini(&text);
}

/* Reads the statistics of the model's engine, which stays in memory meanwhile; zeroes without one. */
static bool read_stats(serve_events *events, weir_engine_stats *stats)
{
    const serve_loaded *loaded = serve_catalog_lock(events->server->catalog, events->model);
    const weir_engine *engine = loaded != NULL ? loaded->engine : NULL;
    read_engine(events, loaded);
    bool ok = engine == NULL || weir_engine_get_stats(engine, stats) == WEIR_OK;
    serve_catalog_unlock(events->server->catalog);
    return ok;
}

static void forget_events(serve_events *events)
{
    serve_events **at = &events->server->events;
    while (*at != events) at = &(*at)->next;
    *at = events->next;
    serve_model_release(events->model);
    weir__mem_free(events);
}

static void send_ticks(serve_timer *timer)
{
    serve_events *events = (serve_events *)(void *)((char *)timer - offsetof(serve_events, timer));
    int64_t now_ns = weir__clock_now_ns();
    weir_engine_stats stats = {.size = sizeof stats};
    if (events->n_readers == 0) {
        forget_events(events);
        return;
    }
    bool ok = read_stats(events, &stats);
    if (ok && (events->n_sent < events->n_ticks || now_ns - events->sent_ns >= IDLE_NS)) {
        events->sent_ns = now_ns;
        keep_snap(events, &stats, now_ns);
        send_to_readers(events, &stats, now_ns);
    }
    serve_loop_set(events->server->loop, &events->timer, PERIOD_US);
}

/* The events of the call's model, which the next turn sends or forgets. NULL: out of memory. */
static serve_events *events_of(const serve_call *call)
{
    serve_server *server = call->server;
    serve_events *events = server->events;
    while (events != NULL && events->model != call->model) events = events->next;
    if (events != NULL || (events = weir__mem_calloc(1, sizeof *events)) == NULL) return events;
    events->server = server;
    events->model = serve_model_hold(call->model);
    events->timer.fire = send_ticks;
    events->next = server->events;
    server->events = events;
    serve_loop_set(server->loop, &events->timer, 0);
    return events;
}

static void leave_events(serve_call *call)
{
    call->events->n_readers--;
    call->events = NULL;
}

void serve_events_begin(serve_call *call)
{
    serve_events *events = events_of(call);
    if (events == NULL) {
        serve_call_no_memory(call);
        return;
    }
    serve_call_begin(call, "text/event-stream; charset=utf-8");
    if (call->ended) return; /* HEAD */
    call->events = events;
    call->leave = leave_events;
    if (events->n_readers++ == 0) {
        read_engine(events, call->loaded);
        events->n_sent = events->n_ticks; /* earlier ticks are not sent */
        events->sent_ns = 0;
    }
}

static void end_streams(serve_server *server, bool all)
{
    for (serve_call *call = server->calls; call != NULL; call = call->after) {
        if (call->events == NULL || call->ended) continue;
        if (!all && serve_keys_are_valid(server->keys, call->key)) continue;
        serve_call_end(call);
        serve_call_send(call);
    }
}

void serve_events_end(serve_server *server)
{
    end_streams(server, true);
}

void serve_events_revoke(serve_server *server)
{
    end_streams(server, false);
}

void serve_events_destroy(serve_server *server)
{
    while (server->events != NULL) forget_events(server->events);
}

void serve_slots(serve_call *call)
{
    serve_events *events = events_of(call);
    weir_engine_stats stats = {.size = sizeof stats};
    weir__text text = {0};
    if (events == NULL) {
        serve_call_no_memory(call);
        return;
    }
    read_engine(events, call->loaded);
    if (call->loaded != NULL && call->loaded->engine != NULL)
        weir_engine_get_stats(call->loaded->engine, &stats);
    if (!call->operates) mark_own_slots(events, call->key);
    add_slots(events, stats.n_slots, call->operates, &text);
    serve_call_answer_json(call, &text);
}
