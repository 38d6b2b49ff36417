/* absent.c: trace.h in a build without it. SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "trace.h"

weir_status serve_trace_check(const serve_params *params, weir_error *error)
{
    const char *field = params->otlp_endpoint != NULL                ? "otlp_endpoint"
                        : params->otlp_service_name != NULL          ? "otlp_service_name"
                        : params->otlp_sample != SERVE_SAMPLE_UNSAID ? "otlp_sample"
                                                                     : NULL;
    if (field == NULL) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, field,
                           "this weir was built without spans of requests: WEIR_WITH_TRACE=ON "
                           "scripts/build.sh builds it with them");
}

weir_status serve_tracer_create(const serve_params *params, serve_tracer **out, weir_error *error)
{
    *out = NULL;
    return serve_trace_check(params, error);
}

/* ---- Without a tracer there is no trace, and none of these does anything ---- */

void serve_tracer_destroy(serve_tracer *tracer)
{
    (void)tracer;
}

serve_tracer_stats serve_tracer_get_stats(serve_tracer *tracer)
{
    (void)tracer;
    return (serve_tracer_stats){0};
}

serve_trace *serve_trace_begin(serve_tracer *tracer, const char *parent, const char *state)
{
    (void)tracer, (void)parent, (void)state;
    return NULL;
}

bool serve_trace_is_sampled(const serve_trace *trace)
{
    (void)trace;
    return false;
}

const char *serve_trace_id(const serve_trace *trace)
{
    (void)trace;
    return NULL;
}

void serve_trace_headers(const serve_trace *trace, const char *id, char parent[SERVE_TRACE_HEADER],
                         char state[SERVE_TRACE_HEADER_STATE])
{
    (void)trace, (void)id;
    parent[0] = state[0] = '\0';
}

bool serve_span_make(char id[SERVE_SPAN_ID + 1])
{
    id[0] = '\0';
    return false;
}

bool serve_span_begin(serve_trace *trace, const char *name, serve_span_kind kind, const char *id,
                      const char *parent, int64_t from_ns, int64_t to_ns)
{
    (void)trace, (void)name, (void)kind, (void)id, (void)parent, (void)from_ns, (void)to_ns;
    return false;
}

bool serve_span_begin_own(serve_trace *trace, const char *name, int64_t from_ns, int64_t to_ns)
{
    (void)trace, (void)name, (void)from_ns, (void)to_ns;
    return false;
}

void serve_span_text(serve_trace *trace, const char *key, const char *value)
{
    (void)trace, (void)key, (void)value;
}

void serve_span_texts(serve_trace *trace, const char *key, const char *const *values, size_t n)
{
    (void)trace, (void)key, (void)values, (void)n;
}

void serve_span_int(serve_trace *trace, const char *key, int64_t value)
{
    (void)trace, (void)key, (void)value;
}

void serve_span_number(serve_trace *trace, const char *key, double value)
{
    (void)trace, (void)key, (void)value;
}

void serve_span_flag(serve_trace *trace, const char *key, bool value)
{
    (void)trace, (void)key, (void)value;
}

void serve_span_event(serve_trace *trace, const char *name, int64_t at_ns)
{
    (void)trace, (void)name, (void)at_ns;
}

void serve_span_fail(serve_trace *trace)
{
    (void)trace;
}

void serve_span_end(serve_trace *trace)
{
    (void)trace;
}

void serve_trace_call_begins(serve_trace *trace, int32_t choice, int32_t number)
{
    (void)trace, (void)choice, (void)number;
}

void serve_trace_call_goes_on(serve_trace *trace, int32_t choice, int32_t number, size_t n)
{
    (void)trace, (void)choice, (void)number, (void)n;
}

const serve_trace_call *serve_trace_calls(const serve_trace *trace, size_t *n)
{
    (void)trace;
    *n = 0;
    return NULL;
}

void serve_trace_end(serve_trace *trace)
{
    (void)trace;
}
