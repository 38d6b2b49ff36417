/* metrics.c: GET /metrics, in Prometheus' text format. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tape.h"

/* Of a histogram's 162 buckets those are written whose bound is a power of two in this range. */
#define LEAST_EXPONENT (-14)
#define MOST_EXPONENT  12

/* Numbers of weir_engine_stats; their rows have the type and the help. */
static const struct {
    const char *name, *kind, *member;
    const char *help; /* in place of the row's; NULL = the row's */
} numbers[] = {
    {"slots", "gauge", "n_slots", NULL},
    {"slots_prefilling", "gauge", "n_slots_prefilling", NULL},
    {"slots_generating", "gauge", "n_slots_generating", NULL},
    {"queue_depth", "gauge", "queue_depth", NULL},
    {"suspended", "gauge", "n_suspended", "requests in the queue that ran before"},
    {"kv_cells", "gauge", "n_kv", NULL},
    {"kv_cells_used", "gauge", "n_kv_used", NULL},
    {"kv_cells_cached", "gauge", "n_kv_cached", NULL},
    {"kv_bytes", "gauge", "kv_bytes", NULL},
    {"cache_bytes", "gauge", "cache_bytes", NULL},
    {"cache_entries", "gauge", "n_cache_entries", NULL},
    {"cache_files", "gauge", "n_cache_files", NULL},
    {"cache_disk_bytes", "gauge", "cache_disk_bytes", NULL},
    {"cache_restored_total", "counter", "n_cache_restored", NULL},
    {"submitted_total", "counter", "n_submitted", NULL},
    {"refused_total", "counter", "n_refused", NULL},
    {"prompt_tokens_total", "counter", "n_prompt_tokens", NULL},
    {"cached_tokens_total", "counter", "n_cached_tokens", "prompt tokens taken from the prefix cache"},
    {"generated_tokens_total", "counter", "n_generated_tokens", NULL},
    {"drafted_tokens_total", "counter", "n_drafted", NULL},
    {"accepted_tokens_total", "counter", "n_accepted", NULL},
    {"adapter_changes_total", "counter", "n_adapter_changes", NULL},
    {"ticks_total", "counter", "n_ticks", NULL},
    {"bad_plans_total", "counter", "n_bad_plans", NULL},
    {"failed_ticks_total", "counter", "n_failed_ticks", NULL},
    {"decode_seconds_total", "counter", "decode_ns", NULL},
    {"busy_seconds_total", "counter", "busy_ns", NULL},
    {"evicted_total", "counter", "n_evicted", NULL},
    {"joined_total", "counter", "n_joined", NULL},
    {"suspensions_total", "counter", "n_suspensions", NULL},
    {"resumes_total", "counter", "n_resumes", NULL},
};

static void add_head(weir__text *text, const char *name, const char *kind, const char *help)
{
    weir__text_printf(text, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, kind);
}

/* Times are exported in seconds. */
static void add_value(weir__text *text, const weir_member *member, const weir_engine_stats *stats)
{
    const char *at = (const char *)stats + member->offset;
    if (member->type == WEIR_MEMBER_INT64)
        weir__text_printf(text, "%.9g\n", (double)*(const int64_t *)(const void *)at / 1e9);
    else if (member->type == WEIR_MEMBER_UINT64)
        weir__text_printf(text, "%llu\n", (unsigned long long)*(const uint64_t *)(const void *)at);
    else
        weir__text_printf(text, "%d\n", *(const int32_t *)(const void *)at);
}

static void add_numbers(weir__text *text, const weir_engine_stats *stats)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const weir_member *member = weir_member_find("engine_stats", numbers[i].member);
        if (member == NULL) continue; /* every one has a row */
        add_head(text, numbers[i].name, numbers[i].kind,
                 numbers[i].help != NULL ? numbers[i].help : member->help);
        weir__text_printf(text, "weir_%s ", numbers[i].name);
        add_value(text, member, stats);
    }
}

static void add_histogram(weir__text *text, const char *name, const char *help,
                          const weir_histogram *histogram)
{
    uint64_t sum = 0;
    add_head(text, name, "histogram", help);
    for (size_t i = 0; i + 1 < WEIR_HISTOGRAM_BUCKETS; i++) {
        int exponent;
        double bound = weir_histogram_bound(i);
        sum += histogram->buckets[i];
        if (frexp(bound, &exponent) != 0.5 || exponent - 1 < LEAST_EXPONENT || exponent - 1 > MOST_EXPONENT)
            continue;
        weir__text_printf(text, "weir_%s_bucket{le=\"%.9g\"} %llu\n", name, bound, (unsigned long long)sum);
    }
    weir__text_printf(text, "weir_%s_bucket{le=\"+Inf\"} %llu\nweir_%s_sum %.9g\nweir_%s_count %llu\n", name,
                      (unsigned long long)histogram->count, name, histogram->sum, name,
                      (unsigned long long)histogram->count);
}

static void add_engine(weir__text *text, const weir_engine_stats *stats)
{
    add_numbers(text, stats);
    add_head(text, "finished_total", "counter", "requests that have ended, by reason");
    for (int i = WEIR_REASON_END; i <= WEIR_REASON_DEADLINE; i++)
        weir__text_printf(text, "weir_finished_total{reason=\"%s\"} %llu\n", weir_reason_name((weir_reason)i),
                          (unsigned long long)stats->n_finished[i]);
    add_head(text, "cancelled_total", "counter", "requests that were cancelled, by their state then");
    weir__text_printf(
        text,
        "weir_cancelled_total{state=\"queued\"} %llu\nweir_cancelled_total{state=\"prefilling\"} %llu\n"
        "weir_cancelled_total{state=\"generating\"} %llu\n",
        (unsigned long long)stats->n_cancelled_queued, (unsigned long long)stats->n_cancelled_prefilling,
        (unsigned long long)stats->n_cancelled_generating);
    add_head(text, "cache_misses_total", "counter", "requests, by why no more of the prompt was cached");
    for (int i = 0; i < WEIR_MISS_COUNT; i++)
        weir__text_printf(text, "weir_cache_misses_total{miss=\"%s\"} %llu\n", weir_miss_name((weir_miss)i),
                          (unsigned long long)stats->n_misses[i]);
    add_histogram(text, "queue_seconds", "time from submit to the first slot", &stats->queue_seconds);
    add_histogram(text, "ttft_seconds", "time from submit to the first token", &stats->ttft_seconds);
    add_histogram(text, "itl_seconds", "time between two chunks of a stream", &stats->itl_seconds);
    add_histogram(text, "tick_seconds", "duration of each tick", &stats->tick_seconds);
    add_histogram(text, "batch_tokens", "tokens in the batch of each tick", &stats->batch_tokens);
}

static void add_number(weir__text *text, const char *name, const char *kind, const char *help, uint64_t value)
{
    add_head(text, name, kind, help);
    weir__text_printf(text, "weir_%s %llu\n", name, (unsigned long long)value);
}

static void add_tapes(weir__text *text, const serve_tapes_stats *tapes)
{
    add_number(text, "streams_kept", "gauge", "streams that can be resumed", (uint64_t)tapes->n);
    add_number(text, "streams_running", "gauge", "resumable streams that are still generating",
               (uint64_t)tapes->n_running);
    add_number(text, "streams_alone", "gauge", "generating resumable streams that nobody reads",
               (uint64_t)tapes->n_alone);
    add_number(text, "streams_bytes", "gauge", "memory of resumable streams", tapes->n_bytes);
    add_number(text, "streams_resumed_total", "counter", "readers that resumed a stream", tapes->n_resumed);
    add_number(text, "streams_abandoned_total", "counter",
               "streams cancelled because no reader came back in time", tapes->n_abandoned);
    add_number(text, "streams_dropped_total", "counter", "ended streams dropped to make room",
               tapes->n_dropped);
}

static uint64_t unsent(const serve_server *server)
{
    uint64_t n = 0;
    for (const serve_call *call = server->calls; call != NULL; call = call->after)
        if (call->state == SERVE_ANSWERING) n += call->out.n - call->out_at;
    return n;
}

void serve_metrics(serve_call *call)
{
    const serve_server *server = call->server;
    serve_tapes_stats tapes = serve_tapes_get_stats(server->tapes);
    weir_engine_stats stats = {.size = sizeof stats};
    weir__text text = {0};
    int32_t n_workers, n_busy, n_queued;
    if (serve_server_loaded(server) &&
        weir_engine_get_stats(server->model.loaded.engine, &stats) == WEIR_OK) {
        add_engine(&text, &stats);
        serve_router_metrics(server, server->model.name, &stats, &text);
    }
    add_head(&text, "http_requests_total", "counter", "HTTP answers, by class of status");
    for (int i = 1; i < 6; i++)
        weir__text_printf(&text, "weir_http_requests_total{status=\"%dxx\"} %llu\n", i,
                          (unsigned long long)server->n_answers[i]);
    add_head(&text, "http_responses_total", "counter", "HTTP answers, by status");
    for (int i = 100; i < 600; i++)
        if (server->n_codes[i] > 0)
            weir__text_printf(&text, "weir_http_responses_total{code=\"%d\"} %llu\n", i,
                              (unsigned long long)server->n_codes[i]);
    serve_workers_count(server->workers, &n_workers, &n_busy, &n_queued);
    add_number(&text, "workers", "gauge", "threads that parse requests and render templates",
               (uint64_t)n_workers);
    add_number(&text, "workers_busy", "gauge", "such threads at work", (uint64_t)n_busy);
    add_number(&text, "workers_queue_depth", "gauge", "requests that wait for such a thread",
               (uint64_t)n_queued);
    add_number(&text, "http_left_total", "counter",
               "clients that disconnected before the end of their answer", server->n_left);
    add_number(&text, "http_live", "gauge", "requests being read or answered",
               (uint64_t)(server->n_calls - tapes.n_running));
    add_number(&text, "http_unsent_bytes", "gauge", "bytes of answers that clients have not read yet",
               unsent(server));
    add_number(&text, "shared_total", "counter", "requests that joined another request's generation",
               atomic_load_explicit(&server->n_shared, memory_order_relaxed));
    add_tapes(&text, &tapes);
    add_histogram(&text, "e2e_seconds", "time from a request's head to the last byte of its answer",
                  &server->e2e_seconds);
    serve_process_metrics(server, &text);
    serve_call_answer_text(call, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}
