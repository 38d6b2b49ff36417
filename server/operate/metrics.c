/* metrics.c: GET /metrics, in Prometheus' text format. The statistics of all engines are read first, with the
 * catalog locked; then each metric is written with a sample for each engine, whose label names its model
 * where there are several. A table says which numbers of weir_engine_stats are written, and their rows have
 * the type and the help. Numbers of the pool, the server and the process follow.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "operate.h"
#include "server/api/common/embedder.h"
#include "server/api/common/tape.h"
#include "server/models/catalog.h"
#include "server/recording/recorder.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/routers/router.h"
#include "server/system/label.h"

/* ---- Samples ---- */

/* An engine's statistics, and the labels of its samples. */
typedef struct source {
    weir_engine_stats stats;
    char name[WEIR_POOL_NAME_MAX + 1]; /* of its model; truncated */
    weir__text label;                  /* model="NAME" where there are several; else empty */
    weir__text adapters;               /* labels of those in use; empty where there are none */
} source;

/* Begins a metric, whose name is the prefix and the name. */
static void begin_metric(weir__text *text, const char *prefix, const char *name, const char *kind,
                         const char *help)
{
    weir__text_printf(text, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, kind);
}

/* Continues a sample behind its name with labels of its own, "" = none, and the source's. */
static void add_labels(weir__text *text, const char *labels, const weir__text *label)
{
    bool both = labels[0] != '\0' && label->n > 0;
    if (labels[0] == '\0' && label->n == 0)
        weir__text_add_string(text, " ");
    else
        weir__text_printf(text, "{%s%s%.*s} ", labels, both ? "," : "", (int)label->n,
                          label->n > 0 ? label->bytes : "");
}

/* Exponents of the buckets, of a histogram's 162, that are written: their bounds are powers of two in this
 * range. */
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
    {"encodes_total", "counter", "n_encodes", NULL},
    {"encodes_saved_total", "counter", "n_encodes_saved", NULL},
    {"encode_seconds_total", "counter", "encode_ns", NULL},
    {"embedding_bytes", "gauge", "embedding_bytes", NULL},
    {"grammar_bytes", "gauge", "grammar_bytes", NULL},
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
    {"abandoned_ticks_total", "counter", "n_abandoned_ticks", NULL},
    {"decode_seconds_total", "counter", "decode_ns", NULL},
    {"busy_seconds_total", "counter", "busy_ns", NULL},
    {"evicted_total", "counter", "n_evicted", NULL},
    {"joined_total", "counter", "n_joined", NULL},
    {"suspensions_total", "counter", "n_suspensions", NULL},
    {"resumes_total", "counter", "n_resumes", NULL},
};

static void add_head(weir__text *text, const char *name, const char *kind, const char *help)
{
    begin_metric(text, "weir_", name, kind, help);
}

/* Times are exported in seconds. */
static void add_value(weir__text *text, const weir_member *member, const weir_engine_stats *stats)
{
    const char *at = (const char *)stats + member->offset;
    if (member->type == WEIR_MEMBER_INT64)
        weir__text_printf(text, "%.15g\n", (double)*(const int64_t *)(const void *)at / 1e9);
    else if (member->type == WEIR_MEMBER_UINT64)
        weir__text_printf(text, "%llu\n", (unsigned long long)*(const uint64_t *)(const void *)at);
    else
        weir__text_printf(text, "%d\n", *(const int32_t *)(const void *)at);
}

static void add_sample(weir__text *text, const char *name, const char *part, const char *labels,
                       const weir__text *label)
{
    weir__text_printf(text, "weir_%s%s", name, part);
    add_labels(text, labels, label);
}

static void add_count(weir__text *text, const char *name, const char *part, const char *more,
                      const weir__text *label, uint64_t value)
{
    add_sample(text, name, part, more, label);
    weir__text_printf(text, "%llu\n", (unsigned long long)value);
}

static void add_numbers(weir__text *text, const source *sources, size_t n)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const weir_member *member = weir_member_find("engine_stats", numbers[i].member);
        if (member == NULL) continue; /* every one has a row */
        add_head(text, numbers[i].name, numbers[i].kind,
                 numbers[i].help != NULL ? numbers[i].help : member->help);
        for (size_t k = 0; k < n; k++) {
            add_sample(text, numbers[i].name, "", "", &sources[k].label);
            add_value(text, member, &sources[k].stats);
        }
    }
}

static void add_buckets(weir__text *text, const char *name, const weir_histogram *histogram,
                        const weir__text *label)
{
    uint64_t sum = 0;
    char more[48];
    for (size_t i = 0; i + 1 < WEIR_HISTOGRAM_BUCKETS; i++) {
        int exponent;
        double bound = weir_histogram_bound(i);
        sum += histogram->buckets[i];
        if (frexp(bound, &exponent) != 0.5 || exponent - 1 < LEAST_EXPONENT || exponent - 1 > MOST_EXPONENT)
            continue;
        snprintf(more, sizeof more, "le=\"%.9g\"", bound);
        add_count(text, name, "_bucket", more, label, sum);
    }
    add_count(text, name, "_bucket", "le=\"+Inf\"", label, histogram->count);
    add_sample(text, name, "_sum", "", label);
    weir__text_printf(text, "%.15g\n", histogram->sum);
    add_count(text, name, "_count", "", label, histogram->count);
}

static void add_histogram(weir__text *text, const char *name, const char *help,
                          const weir_histogram *histogram)
{
    const weir__text none = {0};
    add_head(text, name, "histogram", help);
    add_buckets(text, name, histogram, &none);
}

static void add_histograms(weir__text *text, const source *sources, size_t n)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } histograms[] = {
        {"queue_seconds", "time from submit to the first slot", offsetof(weir_engine_stats, queue_seconds)},
        {"ttft_seconds", "time from submit to the first token", offsetof(weir_engine_stats, ttft_seconds)},
        {"itl_seconds", "time between two chunks of a stream, which may have several tokens",
         offsetof(weir_engine_stats, itl_seconds)},
        {"tpot_seconds", "time per generated token of a stream", offsetof(weir_engine_stats, tpot_seconds)},
        {"tick_seconds", "duration of each tick", offsetof(weir_engine_stats, tick_seconds)},
        {"batch_tokens", "tokens in the batch of each tick", offsetof(weir_engine_stats, batch_tokens)},
    };
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        add_head(text, histograms[i].name, "histogram", histograms[i].help);
        for (size_t k = 0; k < n; k++)
            add_buckets(
                text, histograms[i].name,
                (const weir_histogram *)(const void *)((const char *)&sources[k].stats + histograms[i].at),
                &sources[k].label);
    }
}

static void add_ends(weir__text *text, const source *sources, size_t n)
{
    char more[64];
    add_head(text, "finished_total", "counter", "requests that have ended, by reason");
    for (size_t k = 0; k < n; k++)
        for (int i = WEIR_REASON_END; i <= WEIR_REASON_DEADLINE; i++) {
            snprintf(more, sizeof more, "reason=\"%s\"", weir_reason_name((weir_reason)i));
            add_count(text, "finished_total", "", more, &sources[k].label, sources[k].stats.n_finished[i]);
        }
    add_head(text, "cancelled_total", "counter", "requests that were cancelled, by their state then");
    for (size_t k = 0; k < n; k++) {
        const weir_engine_stats *stats = &sources[k].stats;
        const weir__text *label = &sources[k].label;
        add_count(text, "cancelled_total", "", "state=\"queued\"", label, stats->n_cancelled_queued);
        add_count(text, "cancelled_total", "", "state=\"prefilling\"", label, stats->n_cancelled_prefilling);
        add_count(text, "cancelled_total", "", "state=\"generating\"", label, stats->n_cancelled_generating);
    }
    add_head(text, "cache_misses_total", "counter", "requests, by why no more of the prompt was cached");
    for (size_t k = 0; k < n; k++)
        for (int i = 0; i < WEIR_MISS_COUNT; i++) {
            snprintf(more, sizeof more, "miss=\"%s\"", weir_miss_name((weir_miss)i));
            add_count(text, "cache_misses_total", "", more, &sources[k].label, sources[k].stats.n_misses[i]);
        }
}

/* ---- Routers ---- */

typedef struct load {
    double running, waiting, queries, hits, hit_rate;
    double kv_usage; /* 0 to 1: cells that no other request may take */
} load;

static load load_of(const weir_engine_stats *stats)
{
    load l = {
        .running = stats->n_slots_prefilling + stats->n_slots_generating,
        .waiting = stats->queue_depth,
        .queries = (double)(stats->n_prompt_tokens + stats->n_cached_tokens),
        .hits = (double)stats->n_cached_tokens,
    };
    if (l.queries > 0) l.hit_rate = l.hits / l.queries;
    if (stats->n_kv > 0) l.kv_usage = (double)(stats->n_kv_used - stats->n_kv_cached) / stats->n_kv;
    return l;
}

/* The member of a load at this offset. */
static double number_at(const weir_engine_stats *stats, size_t at)
{
    load l = load_of(stats);
    return *(const double *)(const void *)((const char *)&l + at);
}

static void add_blocks(weir__text *text, const char *prefix, const source *sources, size_t n)
{
    char labels[96];
    begin_metric(text, prefix, "cache_config_info", "gauge", "the KV cache as blocks of tokens");
    for (size_t i = 0; i < n; i++) {
        snprintf(labels, sizeof labels, "block_size=\"%d\",num_gpu_blocks=\"%d\"", SERVE_KV_BLOCK,
                 sources[i].stats.n_kv / SERVE_KV_BLOCK);
        weir__text_printf(text, "%scache_config_info", prefix);
        add_labels(text, labels, &sources[i].label);
        weir__text_add_string(text, "1\n");
    }
}

/* Adds which adapters are in use, as labels; the value is the time, by which readers find the newest
 * sample. */
static void add_adapters(weir__text *text, const char *prefix, const source *sources, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (sources[i].adapters.n == 0) continue;
        if (!any)
            begin_metric(text, prefix, "lora_requests_info", "gauge",
                         "when it was read, in Unix time; the labels name the adapters in use");
        any = true;
        weir__text_printf(text, "%slora_requests_info", prefix);
        add_labels(text, sources[i].adapters.bytes, &sources[i].label);
        weir__text_printf(text, "%lld\n", (long long)time(NULL));
    }
}

static void add_gauge(weir__text *text, const char *name, const char *help, const source *sources, size_t n,
                      size_t at)
{
    begin_metric(text, "weir_", name, "gauge", help);
    for (size_t i = 0; i < n; i++) {
        weir__text_printf(text, "weir_%s", name);
        add_labels(text, "", &sources[i].label);
        weir__text_printf(text, "%.15g\n", number_at(&sources[i].stats, at));
    }
}

/* vLLM labels each with the model. */
static void add_vllm(weir__text *text, const source *sources, size_t n)
{
    static const char prefix[] = "vllm:";
    static const struct {
        const char *name, *kind, *help;
        size_t at;
    } metrics[] = {
        {"num_requests_running", "gauge", "requests in a slot", offsetof(load, running)},
        {"num_requests_waiting", "gauge", "queued requests", offsetof(load, waiting)},
        {"kv_cache_usage_perc", "gauge", "the part of the KV cache in use, 0 to 1", offsetof(load, kv_usage)},
        {"gpu_cache_usage_perc", "gauge", "the same, by its former name", offsetof(load, kv_usage)},
        {"prefix_cache_queries_total", "counter", "prompt tokens", offsetof(load, queries)},
        {"prefix_cache_hits_total", "counter", "prompt tokens taken from the prefix cache",
         offsetof(load, hits)},
        {"gpu_prefix_cache_queries_total", "counter", "the same, by its former name",
         offsetof(load, queries)},
        {"gpu_prefix_cache_hits_total", "counter", "the same, by its former name", offsetof(load, hits)},
        {"gpu_prefix_cache_hit_rate", "gauge", "hits by queries since the start", offsetof(load, hit_rate)},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        begin_metric(text, prefix, metrics[i].name, metrics[i].kind, metrics[i].help);
        for (size_t k = 0; k < n; k++) {
            weir__text_printf(text, "%s%s{model_name=", prefix, metrics[i].name);
            serve_label_quote(text, sources[k].name, strlen(sources[k].name));
            weir__text_printf(text, "} %.15g\n", number_at(&sources[k].stats, metrics[i].at));
        }
    }
    add_blocks(text, prefix, sources, n);
    add_adapters(text, prefix, sources, n);
}

/* Appends the metrics by which routers choose a server, and the same under vLLM's names for those that know
 * no others. */
static void add_router(const serve_server *server, const source *sources, size_t n, weir__text *text)
{
    add_gauge(text, "requests_running", "requests in a slot", sources, n, offsetof(load, running));
    add_gauge(text, "kv_usage_ratio", "the part of the KV cells that is neither free nor only cached, 0 to 1",
              sources, n, offsetof(load, kv_usage));
    add_blocks(text, "weir_", sources, n);
    add_adapters(text, "weir_", sources, n);
    if (server->params.vllm_metrics) add_vllm(text, sources, n);
}

/* ---- Engines ---- */

static void add_label(const char *name, weir__text *label)
{
    weir__text_add_string(label, "model=");
    serve_label_quote(label, name, strlen(name));
}

/* True if a newer one has the same name: a reload replaced the model, and this one still answers. */
static bool is_shadowed(serve_catalog *catalog, const serve_loaded *loaded)
{
    const serve_loaded *newer = serve_catalog_loaded(catalog);
    while (newer != loaded && strcmp(newer->name, loaded->name) != 0) newer = newer->next;
    return newer != loaded;
}

/* Engines that are in memory; the caller frees them. own: the name of the one model. NULL: none, or out of
 * memory. */
static source *read_engines(const serve_server *server, const char *own, size_t *n)
{
    source *sources = NULL;
    size_t capacity = 0;
    *n = 0;
    if (!serve_server_loaded(server)) return NULL;
    serve_catalog_lock(server->catalog, NULL);
    for (serve_loaded *loaded = serve_catalog_loaded(server->catalog); loaded != NULL;
         loaded = loaded->next) {
        if (!weir__mem_grow(&sources, &capacity, *n + 1, sizeof *sources)) break;
        sources[*n] = (source){.stats.size = sizeof sources->stats};
        if (loaded->engine == NULL || is_shadowed(server->catalog, loaded) ||
            weir_engine_get_stats(loaded->engine, &sources[*n].stats) != WEIR_OK)
            continue;
        snprintf(sources[*n].name, sizeof sources->name, "%s", loaded->name != NULL ? loaded->name : own);
        if (loaded->name != NULL) add_label(loaded->name, &sources[*n].label);
        serve_adapters_labels(loaded->adapters, &sources[*n].adapters);
        ++*n;
    }
    serve_catalog_unlock(server->catalog);
    return sources;
}

static void add_engines(const serve_server *server, weir__text *text)
{
    size_t n;
    serve_model *first = serve_catalog_find(server->catalog, NULL);
    source *sources = read_engines(server, first != NULL ? first->name : "", &n);
    if (n > 0) {
        add_numbers(text, sources, n);
        add_ends(text, sources, n);
        add_histograms(text, sources, n);
        add_router(server, sources, n, text);
    }
    serve_model_release(first);
    for (size_t i = 0; i < n; i++) {
        weir__text_fini(&sources[i].label);
        weir__text_fini(&sources[i].adapters);
    }
    weir__mem_free(sources);
}

static void add_number(weir__text *text, const char *name, const char *kind, const char *help, uint64_t value)
{
    add_head(text, name, kind, help);
    weir__text_printf(text, "weir_%s %llu\n", name, (unsigned long long)value);
}

static void add_embedders(const serve_server *server, weir__text *text)
{
    uint64_t n_bytes = 0;
    serve_catalog_lock(server->catalog, NULL);
    for (serve_loaded *loaded = serve_catalog_loaded(server->catalog); loaded != NULL; loaded = loaded->next)
        n_bytes += atomic_load(&loaded->embedder.n_bytes);
    serve_catalog_unlock(server->catalog);
    add_number(text, "embedder_bytes", "gauge", "memory of the contexts that compute embeddings of texts",
               n_bytes);
    add_number(text, "embedders_total", "counter", "such contexts that were created",
               serve_embedder_created());
}

static void add_recorder(const serve_server *server, weir__text *text)
{
    if (server->recorder == NULL) return;
    serve_recorder_stats stats = serve_recorder_count(server->recorder);
    add_number(text, "records_total", "counter", "requests and answers that were recorded", stats.n_frames);
    add_number(text, "records_dropped_total", "counter",
               "requests and answers that were not recorded: the disk was full or slow, or memory was short",
               stats.n_dropped);
    add_number(text, "record_bytes", "gauge", "bytes of the segments in the folder", stats.n_bytes);
}

static void add_tapes(weir__text *text, const serve_tapes_stats *tapes)
{
    add_number(text, "streams_kept", "gauge", "streams that can be resumed", (uint64_t)tapes->n);
    add_number(text, "streams_running", "gauge", "resumable streams that are still generating",
               (uint64_t)tapes->n_running);
    add_number(text, "streams_alone", "gauge", "generating resumable streams without a reader",
               (uint64_t)tapes->n_alone);
    add_number(text, "streams_bytes", "gauge", "memory of resumable streams", tapes->n_bytes);
    add_number(text, "streams_resumed_total", "counter", "readers that resumed a stream", tapes->n_resumed);
    add_number(text, "streams_abandoned_total", "counter",
               "streams cancelled because no reader came back in time", tapes->n_abandoned);
    add_number(text, "streams_dropped_total", "counter", "ended streams dropped to make room",
               tapes->n_dropped);
}

static void add_prefixes(const serve_server *server, weir__text *text)
{
    const serve_prefixes *prefixes = &server->prefixes;
    char more[48];
    if (server->carriers == NULL) return;
    add_head(text, "prefix_fetches_total", "counter",
             "requests that name a server with their prefix, by result");
    for (int i = SERVE_PREFIX_NONE + 1; i < SERVE_PREFIX_ENDS; i++) {
        snprintf(more, sizeof more, "end=\"%s\"", serve_prefix_end_name((serve_prefix_end)i));
        add_count(text, "prefix_fetches_total", "", more, &(weir__text){0},
                  atomic_load(&prefixes->n_ends[i]));
    }
    add_number(text, "prefix_fetched_bytes_total", "counter",
               "bytes of prefixes that came from other servers", atomic_load(&prefixes->n_bytes_fetched));
    add_number(text, "prefix_given_total", "counter", "prefixes given to other servers",
               atomic_load(&prefixes->n_given));
    add_number(text, "prefix_given_bytes_total", "counter", "bytes of these",
               atomic_load(&prefixes->n_bytes_given));
}

static void add_trace(const serve_server *server, weir__text *text)
{
    if (server->tracer == NULL) return;
    const serve_tracer_stats stats = serve_tracer_get_stats(server->tracer);
    add_number(text, "trace_spans_exported_total", "counter", "spans that the collector took",
               stats.n_exported);
    add_number(text, "trace_spans_dropped_total", "counter", "spans that found no room, or no collector",
               stats.n_dropped);
    add_number(text, "trace_failures_total", "counter", "posts of spans that failed", stats.n_failed);
    add_number(text, "trace_spans_queued", "gauge", "spans that wait to be sent", stats.n_queued);
}

static void add_kv_events(const serve_server *server, weir__text *text)
{
    if (server->kv_events == NULL) return;
    const serve_kv_events_stats stats = serve_kv_events_get_stats(server->kv_events);
    const weir__text none = {0};
    add_head(text, "kv_events_connections", "gauge", "connections of routers, by socket");
    add_count(text, "kv_events_connections", "", "socket=\"events\"", &none, stats.n_subscribers);
    add_count(text, "kv_events_connections", "", "socket=\"replay\"", &none, stats.n_replayers);
    add_number(text, "kv_events_replays_running", "gauge", "replays that are being sent", stats.n_replays);
    add_number(text, "kv_events_kept_bytes", "gauge", "memory of the messages that a replay sends",
               stats.n_bytes_kept);
    add_number(text, "kv_events_connection_bytes", "gauge", "memory of routers' connections",
               stats.n_bytes_readers);
    add_number(text, "kv_events_dropped_total", "counter",
               "connections of routers that the server closed: silent, or not ZeroMQ's", stats.n_dropped);
}

static void add_pool(const serve_server *server, weir__text *text)
{
    weir_pool_stats stats = {.size = sizeof stats};
    weir_pool *pool = serve_catalog_pool(server->catalog);
    if (pool == NULL || weir_pool_get_stats(pool, &stats) != WEIR_OK) return;
    add_number(text, "pool_budget_bytes", "gauge", "memory that all models may take", stats.memory_bytes);
    add_number(text, "pool_bytes", "gauge", "memory of the models that are loaded or being loaded",
               stats.used_bytes);
    add_number(text, "pool_waiting", "gauge", "requests that wait for their model",
               (uint64_t)stats.n_waiting);
    add_number(text, "pool_loaded", "gauge", "models in memory", (uint64_t)stats.n_loaded);
    add_number(text, "pool_sleeps_total", "counter", "models put to sleep", stats.n_sleeps);
    add_number(text, "pool_loads_total", "counter", "models loaded", stats.n_loads);
    add_number(text, "pool_failed_loads_total", "counter", "loads that failed", stats.n_failures);
}

/* ---- The process ---- */

static void add_metric(weir__text *text, const char *name, const char *kind, const char *help, double value)
{
    weir__text_printf(text, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, kind, name, value);
}

/* Pages of the address space and of memory; false: unknown on this system. */
static bool read_pages(double *all, double *resident)
{
    FILE *file = fopen("/proc/self/statm", "re");
    bool ok = file != NULL && fscanf(file, "%lf %lf", all, resident) == 2;
    if (file != NULL) fclose(file);
    return ok;
}

/* Entries of a folder of the process; -1: this system has none. */
static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (folder == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void add_files(weir__text *text)
{
    struct rlimit limit;
    int n = count_entries("/proc/self/fd");
    if (n > 0)
        add_metric(text, "process_open_fds", "gauge", "open file descriptors",
                   n - 1); /* without the folder's own */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        add_metric(text, "process_max_fds", "gauge", "limit of open file descriptors",
                   (double)limit.rlim_cur);
}

static double to_seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Appends metrics of the process, from the kernel, and of the build, under the names that Prometheus' client
 * libraries give them. */
static void add_process(const serve_server *server, weir__text *text)
{
    struct rusage usage;
    double page = (double)sysconf(_SC_PAGESIZE), all, resident;
    int n_threads = count_entries("/proc/self/task");
    weir__text_add_string(
        text,
        "# HELP weir_build_info always 1; the versions are in the labels\n# TYPE weir_build_info gauge\n");
    weir__text_printf(text, "weir_build_info{version=\"%s\",llama_cpp=\"%s\"} 1\n", weir_version(),
                      weir_backend_version());
    add_metric(text, "process_start_time_seconds", "gauge", "start of the server, in Unix time",
               (double)server->created_s);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        add_metric(text, "process_cpu_seconds_total", "counter", "processor time of all threads",
                   to_seconds(usage.ru_utime) + to_seconds(usage.ru_stime));
    if (read_pages(&all, &resident)) {
        add_metric(text, "process_virtual_memory_bytes", "gauge", "virtual memory", all * page);
        add_metric(text, "process_resident_memory_bytes", "gauge", "resident memory, mapped files included",
                   resident * page);
    }
    if (n_threads > 0) add_metric(text, "process_threads", "gauge", "threads", n_threads);
    add_files(text);
}

static uint64_t unsent_bytes(const serve_server *server)
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
    weir__text text = {0};
    int32_t n_workers, n_busy, n_queued;
    add_engines(server, &text);
    add_pool(server, &text);
    add_embedders(server, &text);
    add_head(&text, "http_requests_total", "counter",
             "requests, by class of status; 499: the client disconnected before the end");
    for (int i = 1; i < 6; i++)
        weir__text_printf(&text, "weir_http_requests_total{status=\"%dxx\"} %llu\n", i,
                          (unsigned long long)server->n_answers[i]);
    weir__text_printf(&text, "weir_http_requests_total{status=\"%d\"} %llu\n", SERVE_LEFT,
                      (unsigned long long)server->n_answers[0]);
    add_head(&text, "http_responses_total", "counter",
             "requests, by status; 499: the client disconnected before the end");
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
               unsent_bytes(server));
    add_number(&text, "shared_total", "counter", "requests that joined another request's generation",
               atomic_load_explicit(&server->n_shared, memory_order_relaxed));
    add_recorder(server, &text);
    add_tapes(&text, &tapes);
    add_prefixes(server, &text);
    add_kv_events(server, &text);
    add_trace(server, &text);
    add_histogram(&text, "e2e_seconds", "time from a request's head to the last byte of its answer",
                  &server->e2e_seconds);
    add_process(server, &text);
    serve_call_answer_text(call, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}
