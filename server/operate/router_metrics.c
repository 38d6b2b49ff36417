/* router_metrics.c: the gauges by which routers choose a server, and the same under vLLM's names for those
 * that know no others. SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "metrics.h"

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

static void add_blocks(weir__text *text, const char *prefix, const serve_source *sources, size_t n)
{
    char labels[96];
    serve_metrics_head(text, prefix, "cache_config_info", "gauge", "the KV cache as blocks of tokens");
    for (size_t i = 0; i < n; i++) {
        snprintf(labels, sizeof labels, "block_size=\"%d\",num_gpu_blocks=\"%d\"", SERVE_KV_BLOCK,
                 sources[i].stats.n_kv / SERVE_KV_BLOCK);
        weir__text_printf(text, "%scache_config_info", prefix);
        serve_source_labels(text, labels, &sources[i].label);
        weir__text_add_string(text, "1\n");
    }
}

/* Adds which adapters are in use, as labels; the value is the time, by which readers find the newest
 * sample. */
static void add_adapters(weir__text *text, const char *prefix, const serve_source *sources, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (sources[i].adapters.n == 0) continue;
        if (!any)
            serve_metrics_head(text, prefix, "lora_requests_info", "gauge",
                               "when it was read, in Unix time; the labels name the adapters in use");
        any = true;
        weir__text_printf(text, "%slora_requests_info", prefix);
        serve_source_labels(text, sources[i].adapters.bytes, &sources[i].label);
        weir__text_printf(text, "%lld\n", (long long)time(NULL));
    }
}

static void add_gauge(weir__text *text, const char *name, const char *help, const serve_source *sources,
                      size_t n, size_t at)
{
    serve_metrics_head(text, "weir_", name, "gauge", help);
    for (size_t i = 0; i < n; i++) {
        weir__text_printf(text, "weir_%s", name);
        serve_source_labels(text, "", &sources[i].label);
        weir__text_printf(text, "%.9g\n", number_at(&sources[i].stats, at));
    }
}

/* vLLM labels each with the model. */
static void add_vllm(weir__text *text, const serve_source *sources, size_t n)
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
        serve_metrics_head(text, prefix, metrics[i].name, metrics[i].kind, metrics[i].help);
        for (size_t k = 0; k < n; k++) {
            weir__text_printf(text, "%s%s{model_name=", prefix, metrics[i].name);
            weir__json_quote(text, sources[k].name, strlen(sources[k].name));
            weir__text_printf(text, "} %.15g\n", number_at(&sources[k].stats, metrics[i].at));
        }
    }
    add_blocks(text, prefix, sources, n);
    add_adapters(text, prefix, sources, n);
}

void serve_router_metrics(const serve_server *server, const serve_source *sources, size_t n, weir__text *text)
{
    add_gauge(text, "requests_running", "requests in a slot", sources, n, offsetof(load, running));
    add_gauge(text, "kv_usage_ratio", "the part of the KV cells that is neither free nor only cached, 0 to 1",
              sources, n, offsetof(load, kv_usage));
    add_blocks(text, "weir_", sources, n);
    add_adapters(text, "weir_", sources, n);
    if (server->params.vllm_metrics) add_vllm(text, sources, n);
}
