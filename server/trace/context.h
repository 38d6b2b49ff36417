/* context.h: the headers traceparent and tracestate, as W3C's Trace Context has them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TRACE_CONTEXT_H
#define WEIR_SERVER_TRACE_CONTEXT_H

#include <stdbool.h>

#define SERVE_TRACE_ID    32  /* hexadecimal digits */
#define SERVE_SPAN_ID     16  /* the same */
#define SERVE_TRACE_STATE 512 /* bytes of a tracestate; longer ones are dropped */

typedef struct serve_trace_context {
    char trace[SERVE_TRACE_ID + 1], parent[SERVE_SPAN_ID + 1];
    bool sampled;
} serve_trace_context;

/* False: the header has another form, and counts as not sent. */
bool serve_trace_context_read(const char *header, serve_trace_context *context);

/* True if a tracestate may be passed on as it is. */
bool serve_trace_state_fits(const char *state);

/* True if a trace is among those of a share, by its id alone: all servers of a trace that have the same share
 * decide the same. */
bool serve_trace_is_chosen(const char *trace, double share);

#endif
