/* exporter.h: the thread that posts spans to a collector, and the bounded queue in front of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TRACE_EXPORTER_H
#define WEIR_SERVER_TRACE_EXPORTER_H

#include "settings.h"

typedef struct serve_exporter serve_exporter;

typedef struct serve_tracer_stats {
    uint64_t n_exported, n_dropped; /* spans: those that a collector took, and those that none got */
    uint64_t n_failed;              /* posts that no collector took */
    size_t n_queued;                /* spans that wait */
} serve_tracer_stats;

/* The settings must live as long. NULL: no memory, or no thread. */
serve_exporter *serve_exporter_create(const serve_trace_settings *settings);
void serve_exporter_destroy(serve_exporter *exporter);

/* Takes n spans as members of a JSON array; they are dropped where there is no room. Never waits. */
void serve_exporter_add(serve_exporter *exporter, const weir__text *spans, int32_t n);
serve_tracer_stats serve_exporter_get_stats(serve_exporter *exporter);

#endif
