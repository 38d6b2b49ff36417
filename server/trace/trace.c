/* trace.c: the trace of a request: its ids, and its spans as OTLP's JSON. The service thread, or the worker
 * that has the call, writes each span as a whole before the next one; the exporter gets all of them at the
 * request's end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "context.h"
#include "exporter.h"
#include "server/system/log.h"
#include "server/system/secret.h"
#include "settings.h"

#define SPANS_MAX 512 /* of a request */

struct serve_tracer {
    serve_trace_settings settings;
    serve_exporter *exporter;
};

struct serve_trace {
    serve_tracer *tracer;
    serve_trace_context context; /* parent "": it begins here */
    char span[SERVE_SPAN_ID + 1];
    char state[SERVE_TRACE_STATE + 1];
    int64_t offset_ns; /* from the monotonic clock to that of the world: the same for all spans */
    weir__text spans, events;
    int32_t n_spans;
    bool open, failed; /* these two: of the span that is being written */
    size_t n_calls;
    serve_trace_call calls[SERVE_TRACE_CALLS];
};

/* ---- Tracers ---- */

weir_status serve_trace_check(const serve_params *params, weir_error *error)
{
    serve_trace_settings settings;
    weir_status status = serve_trace_settings_init(&settings, params, error);
    serve_trace_settings_fini(&settings);
    return status;
}

weir_status serve_tracer_create(const serve_params *params, serve_tracer **out, weir_error *error)
{
    serve_tracer *tracer = weir__mem_calloc(1, sizeof *tracer);
    *out = NULL;
    if (tracer == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the tracer");
    weir_status status = serve_trace_settings_init(&tracer->settings, params, error);
    if (status == WEIR_OK && tracer->settings.why[0] != '\0')
        serve_log("warning", "trace", "nothing is traced: %s", tracer->settings.why);
    if (status == WEIR_OK && tracer->settings.left_out[0] != '\0')
        serve_log("warning", "trace",
                  "the collector does not get the header \"%s\" of OTEL_EXPORTER_OTLP_HEADERS: it is not "
                  "NAME=VALUE, is too long, is one that weir sets, or there are more than %d",
                  tracer->settings.left_out, SERVE_TRACE_HEADERS - 3);
    if (status == WEIR_OK && tracer->settings.url != NULL) {
        tracer->exporter = serve_exporter_create(&tracer->settings);
        if (tracer->exporter == NULL)
            status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory or thread for the tracer");
    }
    if (tracer->exporter != NULL)
        *out = tracer;
    else
        serve_tracer_destroy(tracer);
    return status;
}

void serve_tracer_destroy(serve_tracer *tracer)
{
    if (tracer == NULL) return;
    serve_exporter_destroy(tracer->exporter);
    serve_trace_settings_fini(&tracer->settings);
    weir__mem_free(tracer);
}

serve_tracer_stats serve_tracer_get_stats(serve_tracer *tracer)
{
    return serve_exporter_get_stats(tracer->exporter);
}

/* ---- Traces ---- */

/* Settles the ids, and whether the trace is sampled. False: the system gives no random bytes. */
static bool begin_context(serve_trace *trace, const char *parent, const char *state)
{
    const serve_trace_settings *settings = &trace->tracer->settings;
    serve_trace_context *context = &trace->context;
    if (!serve_span_make(trace->span)) return false;
    if (!serve_trace_context_read(parent, context)) {
        *context = (serve_trace_context){0};
        if (!serve_secret_make(context->trace, SERVE_TRACE_ID)) return false;
        context->sampled = serve_trace_is_chosen(context->trace, settings->share);
        return true;
    }
    if (!settings->heeds) context->sampled = serve_trace_is_chosen(context->trace, settings->share);
    if (state != NULL && serve_trace_state_fits(state)) memcpy(trace->state, state, strlen(state) + 1);
    return true;
}

serve_trace *serve_trace_begin(serve_tracer *tracer, const char *parent, const char *state)
{
    struct timespec now;
    serve_trace *trace = tracer != NULL ? weir__mem_calloc(1, sizeof *trace) : NULL;
    if (trace == NULL) return NULL;
    trace->tracer = tracer;
    if (!begin_context(trace, parent, state)) {
        weir__mem_free(trace);
        return NULL;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    trace->offset_ns = (int64_t)now.tv_sec * WEIR__NS_PER_S + now.tv_nsec - weir__clock_now_ns();
    return trace;
}

bool serve_trace_is_sampled(const serve_trace *trace)
{
    return trace != NULL && trace->context.sampled;
}

const char *serve_trace_id(const serve_trace *trace)
{
    return trace != NULL ? trace->context.trace : NULL;
}

void serve_trace_headers(const serve_trace *trace, const char *id, char parent[SERVE_TRACE_HEADER],
                         char state[SERVE_TRACE_HEADER_STATE])
{
    parent[0] = state[0] = '\0';
    if (trace == NULL) return;
    snprintf(parent, SERVE_TRACE_HEADER, "traceparent: 00-%s-%s-%s", trace->context.trace,
             id != NULL ? id : trace->span, trace->context.sampled ? "01" : "00");
    if (trace->state[0] != '\0') snprintf(state, SERVE_TRACE_HEADER_STATE, "tracestate: %s", trace->state);
}

void serve_trace_end(serve_trace *trace)
{
    if (trace == NULL) return;
    if (trace->n_spans > 0) serve_exporter_add(trace->tracer->exporter, &trace->spans, trace->n_spans);
    weir__text_fini(&trace->spans);
    weir__text_fini(&trace->events);
    weir__mem_free(trace);
}

/* ---- Spans ---- */

bool serve_span_make(char id[SERVE_SPAN_ID + 1])
{
    return serve_secret_make(id, SERVE_SPAN_ID);
}

static void add_time(const serve_trace *trace, weir__text *text, const char *name, int64_t ns)
{
    const int64_t at_ns = ns + trace->offset_ns;
    weir__text_printf(text, ",\"%s\":\"%lld\"", name, (long long)at_ns);
}

static void begin_span(serve_trace *trace, const char *name, serve_span_kind kind, const char *id,
                       const char *parent, bool remote, int64_t from_ns, int64_t to_ns)
{
    weir__text *text = &trace->spans;
    weir__json_next(text);
    weir__text_printf(text, "{\"traceId\":\"%s\",\"spanId\":\"%s\"", trace->context.trace, id);
    if (parent[0] != '\0') weir__text_printf(text, ",\"parentSpanId\":\"%s\"", parent);
    if (trace->state[0] != '\0') weir__json_string(text, "traceState", trace->state);
    /* Bit 8: it is known where the parent is; bit 9: on another machine. */
    weir__text_printf(text, ",\"flags\":%d", 1 | 1 << 8 | (remote ? 1 << 9 : 0));
    weir__json_string(text, "name", name);
    weir__text_printf(text, ",\"kind\":%d", (int)kind);
    add_time(trace, text, "startTimeUnixNano", from_ns);
    add_time(trace, text, "endTimeUnixNano", to_ns > from_ns ? to_ns : from_ns);
    weir__text_add_string(text, ",\"attributes\":[");
    trace->open = true;
    trace->failed = false;
    trace->n_spans++;
    weir__text_clear(&trace->events);
}

bool serve_span_begin(serve_trace *trace, const char *name, serve_span_kind kind, const char *id,
                      const char *parent, int64_t from_ns, int64_t to_ns)
{
    char own[SERVE_SPAN_ID + 1];
    if (!serve_trace_is_sampled(trace) || trace->n_spans >= SPANS_MAX) return false;
    if (id == NULL && !serve_span_make(own)) return false;
    begin_span(trace, name, kind, id != NULL ? id : own, parent != NULL ? parent : trace->span, false,
               from_ns, to_ns);
    return true;
}

bool serve_span_begin_own(serve_trace *trace, const char *name, int64_t from_ns, int64_t to_ns)
{
    if (!serve_trace_is_sampled(trace)) return false;
    const char *parent = trace->context.parent;
    begin_span(trace, name, SERVE_SPAN_SERVER, trace->span, parent, parent[0] != '\0', from_ns, to_ns);
    return true;
}

/* Begins an attribute's value. False: no span is being written. */
static bool begin_value(serve_trace *trace, const char *key)
{
    weir__text *text = &trace->spans;
    if (!trace->open) return false;
    weir__json_next(text);
    weir__text_printf(text, "{\"key\":\"%s\",\"value\":{", key);
    return true;
}

void serve_span_text(serve_trace *trace, const char *key, const char *value)
{
    if (trace->open) serve_trace_add_text(&trace->spans, key, value);
}

void serve_span_texts(serve_trace *trace, const char *key, const char *const *values, size_t n)
{
    if (!begin_value(trace, key)) return;
    weir__text_add_string(&trace->spans, "\"arrayValue\":{\"values\":[");
    for (size_t i = 0; i < n; i++) {
        weir__json_next(&trace->spans);
        weir__text_add_string(&trace->spans, "{");
        weir__json_string(&trace->spans, "stringValue", values[i]);
        weir__text_add_string(&trace->spans, "}");
    }
    weir__text_add_string(&trace->spans, "]}}}");
}

void serve_span_int(serve_trace *trace, const char *key, int64_t value)
{
    if (begin_value(trace, key))
        weir__text_printf(&trace->spans, "\"intValue\":\"%lld\"}}", (long long)value);
}

void serve_span_number(serve_trace *trace, const char *key, double value)
{
    char text[WEIR__JSON_REAL_MAX];
    if (!isfinite(value) || !begin_value(trace, key)) return;
    weir__json_real_text(value, text);
    weir__text_printf(&trace->spans, "\"doubleValue\":%s}}", text);
}

void serve_span_flag(serve_trace *trace, const char *key, bool value)
{
    if (begin_value(trace, key))
        weir__text_printf(&trace->spans, "\"boolValue\":%s}}", value ? "true" : "false");
}

void serve_span_event(serve_trace *trace, const char *name, int64_t at_ns)
{
    if (!trace->open) return;
    weir__text_printf(&trace->events, "%s{\"name\":\"%s\"", trace->events.n > 0 ? "," : "", name);
    add_time(trace, &trace->events, "timeUnixNano", at_ns);
    weir__text_add_string(&trace->events, "}");
}

void serve_span_fail(serve_trace *trace)
{
    trace->failed = true;
}

void serve_span_end(serve_trace *trace)
{
    weir__text *text = &trace->spans;
    if (!trace->open) return;
    weir__text_add_string(text, "]");
    if (trace->events.n > 0)
        weir__text_printf(text, ",\"events\":[%.*s]", (int)trace->events.n, trace->events.bytes);
    weir__text_add_string(text, trace->failed ? ",\"status\":{\"code\":2}}" : "}");
    text->failed = text->failed || trace->events.failed;
    trace->open = false;
}

/* ---- Calls of tools ---- */

void serve_trace_call_begins(serve_trace *trace, int32_t choice, int32_t number)
{
    if (!serve_trace_is_sampled(trace) || trace->n_calls == SERVE_TRACE_CALLS) return;
    const int64_t now_ns = weir__clock_now_ns();
    trace->calls[trace->n_calls++] = (serve_trace_call){choice, number, now_ns, now_ns, 0};
}

void serve_trace_call_goes_on(serve_trace *trace, int32_t choice, int32_t number, size_t n)
{
    if (!serve_trace_is_sampled(trace)) return;
    for (size_t i = trace->n_calls; i-- > 0;) {
        serve_trace_call *call = &trace->calls[i];
        if (call->choice != choice || call->number != number) continue;
        call->to_ns = weir__clock_now_ns();
        call->n_bytes += n;
        return;
    }
}

const serve_trace_call *serve_trace_calls(const serve_trace *trace, size_t *n)
{
    *n = trace != NULL ? trace->n_calls : 0;
    return *n > 0 ? trace->calls : NULL;
}
