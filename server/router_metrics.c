/* router_metrics.c: the gauges by which routers choose a server, and the same under vLLM's names for those
 * that know no others. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "serve.h"

typedef struct load {
    uint64_t running, waiting, queries, hits;
    double kv_usage; /* 0 to 1: cells that no other request may take */
} load;

static load load_of(const weir_engine_stats *stats)
{
    load l = {
        .running = (uint64_t)(stats->n_slots_prefilling + stats->n_slots_generating),
        .waiting = (uint64_t)stats->queue_depth,
        .queries = stats->n_prompt_tokens + stats->n_cached_tokens,
        .hits = stats->n_cached_tokens,
    };
    if (stats->n_kv > 0) l.kv_usage = (double)(stats->n_kv_used - stats->n_kv_cached) / stats->n_kv;
    return l;
}

static void add_head(weir__text *text, const char *prefix, const char *name, const char *kind,
                     const char *help)
{
    weir__text_printf(text, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, kind);
}

static void add_blocks(weir__text *text, const char *prefix, const weir_engine_stats *stats)
{
    add_head(text, prefix, "cache_config_info", "gauge", "the KV cache as blocks of tokens");
    weir__text_printf(text, "%scache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", prefix,
                      SERVE_KV_BLOCK, stats->n_kv / SERVE_KV_BLOCK);
}

/* vLLM labels each with the model. */
static void add_vllm(weir__text *text, const char *model, const weir_engine_stats *stats, const load *l)
{
    static const char prefix[] = "vllm:";
    double rate = l->queries > 0 ? (double)l->hits / (double)l->queries : 0;
    const struct {
        const char *name, *kind, *help;
        double value;
    } metrics[] = {
        {"num_requests_running", "gauge", "requests in a slot", (double)l->running},
        {"num_requests_waiting", "gauge", "queued requests", (double)l->waiting},
        {"kv_cache_usage_perc", "gauge", "the part of the KV cache in use, 0 to 1", l->kv_usage},
        {"gpu_cache_usage_perc", "gauge", "the same, by its former name", l->kv_usage},
        {"prefix_cache_queries_total", "counter", "prompt tokens", (double)l->queries},
        {"prefix_cache_hits_total", "counter", "prompt tokens taken from the prefix cache", (double)l->hits},
        {"gpu_prefix_cache_queries_total", "counter", "the same, by its former name", (double)l->queries},
        {"gpu_prefix_cache_hits_total", "counter", "the same, by its former name", (double)l->hits},
        {"gpu_prefix_cache_hit_rate", "gauge", "hits by queries since the start", rate},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        add_head(text, prefix, metrics[i].name, metrics[i].kind, metrics[i].help);
        weir__text_printf(text, "%s%s{model_name=", prefix, metrics[i].name);
        weir__json_quote(text, model, strlen(model));
        weir__text_printf(text, "} %.15g\n", metrics[i].value);
    }
    add_blocks(text, prefix, stats);
}

void serve_router_metrics(const serve_server *server, const char *model, const weir_engine_stats *stats,
                          weir__text *text)
{
    load l = load_of(stats);
    add_head(text, "weir_", "requests_running", "gauge", "requests in a slot");
    weir__text_printf(text, "weir_requests_running %llu\n", (unsigned long long)l.running);
    add_head(text, "weir_", "kv_usage_ratio", "gauge",
             "the part of the KV cells that is neither free nor only cached, 0 to 1");
    weir__text_printf(text, "weir_kv_usage_ratio %.9g\n", l.kv_usage);
    add_blocks(text, "weir_", stats);
    if (server->params.vllm_metrics) add_vllm(text, model, stats, &l);
}
