/* trace.h: spans of requests, for a collector of OpenTelemetry (ADR 0153): all that the rest of the server
 * knows of them. In a build without them (WEIR_TRACE=OFF) absent.c has these functions: it refuses the
 * parameters, so that there is never a tracer.
 *
 * A request with a trace has one span of its own and others within it. One thread at a time writes to a
 * trace: the service thread, or the worker that has the call. Spans never hold texts of prompts or answers.
 * If memory runs out, spans are lost and the request goes on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TRACE_TRACE_H
#define WEIR_SERVER_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

#include "context.h"
#include "exporter.h"
#include "server/settings/params.h"

/* The thread that sends spans, and the queue in front of it. */
typedef struct serve_tracer serve_tracer;
typedef struct serve_trace serve_trace;

/* OpenTelemetry's numbers. */
typedef enum serve_span_kind {
    SERVE_SPAN_INTERNAL = 1,
    SERVE_SPAN_SERVER = 2,
    SERVE_SPAN_CLIENT = 3
} serve_span_kind;

/* INVALID, or UNSUPPORTED in a build without this part; the field is the parameter. A mistake in the
 * environment is no error. */
weir_status serve_trace_check(const serve_params *params, weir_error *error);

/* *out NULL: neither the parameters nor the environment name a collector. Errors: as check, NO_MEMORY. */
weir_status serve_tracer_create(const serve_params *params, serve_tracer **out, weir_error *error);

/* Sends what waits, for two seconds at most. NULL is ignored. */
void serve_tracer_destroy(serve_tracer *tracer);
serve_tracer_stats serve_tracer_get_stats(serve_tracer *tracer);

/* Begins the trace of a request. parent, state: its headers traceparent and tracestate, or NULL; without a
 * parent that can be read, a trace begins here. Returns NULL without a tracer or memory. The functions below
 * take NULL, unless they need a trace. */
serve_trace *serve_trace_begin(serve_tracer *tracer, const char *parent, const char *state);

/* False: it has no spans, and is only passed on to other servers. */
bool serve_trace_is_sampled(const serve_trace *trace);

/* Hexadecimal; NULL: there is no trace. */
const char *serve_trace_id(const serve_trace *trace);

/* Writes the headers for another server, as lines without an end; "" = none. id: of the span in which it is
 * asked; NULL = the request's own. */
#define SERVE_TRACE_HEADER       (SERVE_TRACE_ID + SERVE_SPAN_ID + 24)
#define SERVE_TRACE_HEADER_STATE (SERVE_TRACE_STATE + 16)
void serve_trace_headers(const serve_trace *trace, const char *id, char parent[SERVE_TRACE_HEADER],
                         char state[SERVE_TRACE_HEADER_STATE]);

/* Makes the id of a span. False: the system gives no random bytes. */
bool serve_span_make(char id[SERVE_SPAN_ID + 1]);

/* Begin a span, any one, or the request's own, whose parent is that of the header. id NULL: a new one. parent
 * NULL: the request's own. Times are those of the monotonic clock. False: the trace is not sampled, or has
 * too many, and nothing else is to be called for it. */
bool serve_span_begin(serve_trace *trace, const char *name, serve_span_kind kind, const char *id,
                      const char *parent, int64_t from_ns, int64_t to_ns);
bool serve_span_begin_own(serve_trace *trace, const char *name, int64_t from_ns, int64_t to_ns);

/* These need a trace with a span that has begun: they add an attribute or an event, make it an error, end
 * it. */
void serve_span_text(serve_trace *trace, const char *key, const char *value);
void serve_span_texts(serve_trace *trace, const char *key, const char *const *values, size_t n);
void serve_span_int(serve_trace *trace, const char *key, int64_t value);
void serve_span_number(serve_trace *trace, const char *key, double value);
void serve_span_flag(serve_trace *trace, const char *key, bool value);
void serve_span_event(serve_trace *trace, const char *name, int64_t at_ns);
void serve_span_fail(serve_trace *trace);
void serve_span_end(serve_trace *trace);

/* Calls of tools, as they are read from an answer; the first SERVE_TRACE_CALLS are kept. number: of the
 * choice's calls. n: bytes of its arguments that were read now. */
#define SERVE_TRACE_CALLS 32
typedef struct serve_trace_call {
    int32_t choice, number;
    int64_t from_ns, to_ns;
    uint64_t n_bytes;
} serve_trace_call;
void serve_trace_call_begins(serve_trace *trace, int32_t choice, int32_t number);
void serve_trace_call_goes_on(serve_trace *trace, int32_t choice, int32_t number, size_t n);
const serve_trace_call *serve_trace_calls(const serve_trace *trace, size_t *n);

/* Hands the spans to the tracer, and frees the trace. */
void serve_trace_end(serve_trace *trace);

#endif
