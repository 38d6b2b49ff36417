/* exporter.c: the thread that posts spans to a collector, by OTLP over HTTP with JSON.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Requests put their spans into a queue, within bounds of spans and of bytes. The thread waits until there
 * are as many as one post has, until the queue is half full, or until the oldest has waited long enough, and
 * posts them. A collector that cannot be reached, or asks for it, is tried again with the same spans, after
 * pauses that grow; meanwhile the queue fills, and what finds no room is dropped and counted. */
#include "exporter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "hub/transfer/transfer.h"
#include "server/system/log.h"

#define QUEUE_BYTES ((size_t)4 << 20)
#define TRIES       5  /* posts of the same spans */
#define PAUSE_S     1  /* before the second one; it doubles */
#define RETRY_MAX_S 30 /* the most of a collector's Retry-After that is heeded */
#define LAST_MS     2000
#define ANSWER_MAX  4096 /* bytes of a collector's answer */

/* The spans of a request. */
typedef struct item {
    struct item *next;
    int32_t n;
    size_t length;
    char spans[];
} item;

struct serve_exporter {
    const serve_trace_settings *settings;
    weir__helper helper; /* its mutex protects the next six, and it is never held while something waits */
    item *first, *last;
    int64_t since_ns; /* when a post was taken, or the first one was added to an empty queue */
    int32_t n_queued;
    size_t n_bytes;
    serve_tracer_stats stats;
    _Atomic int64_t last_ns; /* when a post must have ended, since the exporter is to end; 0 = never */
    bool failing;            /* the thread's: the last post failed, and the log has it */
};

/* ---- The queue ---- */

void serve_exporter_add(serve_exporter *e, const weir__text *spans, int32_t n)
{
    item *one = spans->failed ? NULL : weir__mem_alloc(sizeof *one + spans->n);
    if (one != NULL) {
        *one = (item){.n = n, .length = spans->n};
        memcpy(one->spans, spans->bytes, spans->n);
    }
    pthread_mutex_lock(&e->helper.mutex);
    const bool fits =
        one != NULL && e->n_queued + n <= e->settings->n_queue && e->n_bytes + spans->n <= QUEUE_BYTES;
    if (fits) {
        if (e->first == NULL) e->since_ns = weir__clock_now_ns();
        *(e->first == NULL ? &e->first : &e->last->next) = one;
        e->last = one;
        e->n_queued += n;
        e->n_bytes += one->length;
        pthread_cond_signal(&e->helper.changed);
    } else {
        e->stats.n_dropped += (uint64_t)n;
    }
    pthread_mutex_unlock(&e->helper.mutex);
    if (!fits) weir__mem_free(one);
}

/* Takes the spans of one post as a body, which has failed if there was no memory. Their number. */
static int32_t take_batch(serve_exporter *e, weir__text *body)
{
    int32_t n = 0;
    weir__text_printf(body,
                      "{\"resourceSpans\":[{\"resource\":{\"attributes\":%s},\"scopeSpans\":[{\"scope\":",
                      e->settings->resource.bytes);
    weir__text_printf(body, "{\"name\":\"weir\",\"version\":\"%s\"},\"spans\":[", weir_version());
    while (e->first != NULL && (n == 0 || n + e->first->n <= e->settings->n_batch)) {
        item *one = e->first;
        weir__json_next(body);
        weir__text_add(body, one->spans, one->length);
        n += one->n;
        e->first = one->next;
        e->n_queued -= one->n;
        e->n_bytes -= one->length;
        weir__mem_free(one);
    }
    e->since_ns = weir__clock_now_ns();
    weir__text_add_string(body, "]}]}]}");
    return n;
}

/* ---- Posts ---- */

typedef struct post {
    serve_exporter *exporter;
    weir__text answer;
    weir__transfer_end end;
    long status;
    int64_t retry_s;
    char detail[256];
} post;

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    post *p = user;
    (void)head;
    const size_t room = ANSWER_MAX - p->answer.n;
    weir__text_add(&p->answer, bytes, n < room ? n : room);
    return true;
}

static void on_end(const weir__transfer_result *result, void *user)
{
    post *p = user;
    p->end = result->end;
    p->status = result->head.status;
    p->retry_s = result->retry_s;
    snprintf(p->detail, sizeof p->detail, "%s", result->detail);
}

/* True once the exporter is to end and its last time is over. */
static bool is_over(const serve_exporter *e)
{
    const int64_t last_ns = atomic_load(&e->last_ns);
    return last_ns != 0 && weir__clock_now_ns() >= last_ns;
}

static bool on_tick(void *user)
{
    const post *p = user;
    return !is_over(p->exporter);
}

/* True if the same spans may be posted again: OTLP names these statuses. */
static bool may_retry(const post *p)
{
    if (p->end != WEIR__TRANSFER_WHOLE)
        return p->end == WEIR__TRANSFER_CLOSED || p->end == WEIR__TRANSFER_UNREACHED ||
               p->end == WEIR__TRANSFER_LATE || p->end == WEIR__TRANSFER_CUT;
    return p->status == 429 || (p->status >= 502 && p->status <= 504);
}

/* The spans that a collector refused of those that it got. */
static uint64_t count_refused(const post *p, uint64_t most)
{
    json_t *json = NULL;
    if (p->answer.n == 0 ||
        weir__json_parse(p->answer.bytes, p->answer.n, "answer", WEIR_INVALID, &json, NULL) != WEIR_OK)
        return 0;
    const json_t *n = json_object_get(json_object_get(json, "partialSuccess"), "rejectedSpans");
    const char *text = json_string_value(n); /* 64 bits are a string in OTLP's JSON */
    const uint64_t refused = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)json_integer_value(n);
    json_decref(json);
    return refused < most ? refused : most;
}

static bool send_once(serve_exporter *e, post *p, const char *body)
{
    const serve_trace_settings *s = e->settings;
    const weir__transfer_request request = {
        .url = s->url,
        .body = body,
        .headers = (const char *const *)s->headers,
        .connect_ms = s->timeout_ms,
        .total_ms = s->timeout_ms,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = p,
    };
    weir__transfers *transfers = weir__transfers_create(1);
    p->end = WEIR__TRANSFER_NO_MEMORY;
    p->status = 0;
    weir__text_clear(&p->answer);
    if (transfers != NULL && weir__transfers_run(transfers, &request, on_tick) != WEIR_OK)
        p->end = WEIR__TRANSFER_NO_MEMORY; /* or it was to end */
    weir__transfers_destroy(transfers);
    return p->end == WEIR__TRANSFER_WHOLE && p->status >= 200 && p->status < 300;
}

static void report_failure(serve_exporter *e, const post *p)
{
    if (e->failing) return;
    e->failing = true;
    if (p->end == WEIR__TRANSFER_WHOLE)
        serve_log("warning", "trace", "the collector takes no spans: it answered with status %ld", p->status);
    else
        serve_log("warning", "trace", "the collector takes no spans: %s",
                  p->end == WEIR__TRANSFER_NO_MEMORY ? "no memory, or no time" : p->detail);
}

/* Waits for a pause, or until the exporter is to end: then there is one more try, without a pause. */
static void pause_post(serve_exporter *e, int64_t seconds)
{
    const int64_t until_ns = weir__clock_deadline_ns(seconds * 1000);
    pthread_mutex_lock(&e->helper.mutex);
    while (!e->helper.ending && weir__clock_now_ns() < until_ns)
        weir__clock_cond_wait(&e->helper.changed, &e->helper.mutex, until_ns);
    pthread_mutex_unlock(&e->helper.mutex);
}

static void send_batch(serve_exporter *e, const weir__text *body, int32_t n)
{
    post p = {.exporter = e};
    bool sent = false;
    int64_t pause_s = PAUSE_S;
    for (int i = 0; !sent && !body->failed && !is_over(e) && i < TRIES; i++) {
        const bool last = atomic_load(&e->last_ns) != 0;
        sent = send_once(e, &p, body->bytes);
        if (sent) break;
        report_failure(e, &p);
        pthread_mutex_lock(&e->helper.mutex);
        e->stats.n_failed++;
        pthread_mutex_unlock(&e->helper.mutex);
        if (last || !may_retry(&p) || i + 1 == TRIES) break;
        pause_post(e, p.retry_s > pause_s ? (p.retry_s < RETRY_MAX_S ? p.retry_s : RETRY_MAX_S) : pause_s);
        pause_s *= 2;
    }
    if (sent && e->failing) serve_log("info", "trace", "the collector takes spans again");
    if (sent) e->failing = false;
    const uint64_t refused = sent ? count_refused(&p, (uint64_t)n) : (uint64_t)n;
    pthread_mutex_lock(&e->helper.mutex);
    e->stats.n_exported += (uint64_t)n - refused;
    e->stats.n_dropped += refused;
    pthread_mutex_unlock(&e->helper.mutex);
    weir__text_fini(&p.answer);
}

/* A queue that is half full is due, too: the next request may have no room. */
static bool is_due(const serve_exporter *e)
{
    return e->n_queued >= e->settings->n_batch || e->n_queued >= e->settings->n_queue / 2 ||
           e->n_bytes >= QUEUE_BYTES / 2 ||
           weir__clock_now_ns() - e->since_ns >= e->settings->delay_ms * WEIR__NS_PER_MS;
}

static void *run_exporter(void *user)
{
    serve_exporter *e = user;
    weir__thread_name("weir-trace");
    pthread_mutex_lock(&e->helper.mutex);
    while (!e->helper.ending || e->first != NULL) {
        if (e->first == NULL) {
            weir__clock_cond_wait(&e->helper.changed, &e->helper.mutex, WEIR__CLOCK_NEVER);
        } else if (!e->helper.ending && !is_due(e)) {
            weir__clock_cond_wait(&e->helper.changed, &e->helper.mutex,
                                  e->since_ns + e->settings->delay_ms * WEIR__NS_PER_MS);
        } else {
            weir__text body = {0};
            const int32_t n = take_batch(e, &body);
            pthread_mutex_unlock(&e->helper.mutex);
            send_batch(e, &body, n);
            weir__text_fini(&body);
            pthread_mutex_lock(&e->helper.mutex);
        }
    }
    pthread_mutex_unlock(&e->helper.mutex);
    return NULL;
}

/* ---- Life ---- */

serve_exporter *serve_exporter_create(const serve_trace_settings *settings)
{
    serve_exporter *e = weir__mem_calloc(1, sizeof *e);
    if (e == NULL) return NULL;
    e->settings = settings;
    if (weir__helper_start(&e->helper, run_exporter, e)) return e;
    weir__mem_free(e);
    return NULL;
}

void serve_exporter_destroy(serve_exporter *e)
{
    if (e == NULL) return;
    atomic_store(&e->last_ns, weir__clock_deadline_ns(LAST_MS));
    weir__helper_join(&e->helper);
    weir__helper_fini(&e->helper);
    weir__mem_free(e);
}

serve_tracer_stats serve_exporter_get_stats(serve_exporter *e)
{
    pthread_mutex_lock(&e->helper.mutex);
    serve_tracer_stats stats = e->stats;
    stats.n_queued = (size_t)e->n_queued;
    pthread_mutex_unlock(&e->helper.mutex);
    return stats;
}
