/* metrics.h: metrics and samples of engines in /metrics. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_OPERATE_METRICS_H
#define WEIR_SERVER_OPERATE_METRICS_H

#include "server/request/serve.h"

/* An engine's statistics, and the labels of its samples. */
typedef struct serve_source {
    weir_engine_stats stats;
    char name[WEIR_POOL_NAME_MAX + 1]; /* of its model; truncated */
    weir__text label;                  /* model="NAME" where there are several; else empty */
    weir__text adapters;               /* labels of those in use; empty where there are none */
} serve_source;

/* Begins a metric, whose name is the prefix and the name. */
static inline void serve_metrics_head(weir__text *text, const char *prefix, const char *name,
                                      const char *kind, const char *help)
{
    weir__text_printf(text, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, kind);
}

/* Continues a sample behind its name with labels of its own, "" = none, and the source's. */
static inline void serve_source_labels(weir__text *text, const char *labels, const weir__text *label)
{
    bool both = labels[0] != '\0' && label->n > 0;
    if (labels[0] == '\0' && label->n == 0)
        weir__text_add_string(text, " ");
    else
        weir__text_printf(text, "{%s%s%.*s} ", labels, both ? "," : "", (int)label->n,
                          label->n > 0 ? label->bytes : "");
}

/* process.c: appends metrics of the process (from the kernel) and of the build. */
void serve_process_metrics(const serve_server *server, weir__text *text);

/* router_metrics.c: appends the metrics by which routers choose a server. */
void serve_router_metrics(const serve_server *server, const serve_source *sources, size_t n,
                          weir__text *text);

#endif
