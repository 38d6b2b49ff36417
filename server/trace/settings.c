/* settings.c: where spans go, and which. A mistake in a parameter is an error. The environment's variables
 * may be meant for other programs, so a mistake in them is a warning; a number that cannot be read counts as
 * not set, as in other programs with OpenTelemetry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "hub/transfer/transfer.h"

#define PATH           "/v1/traces"
#define URL_MAX        2000
#define ATTRIBUTES_MAX 64
#define VALUE_MAX      8192
#define NAME_MAX_BYTES 1023 /* of the service's name */

/* ---- The environment ---- */

/* NULL: it is not set, or empty, which is the same to OpenTelemetry. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The variable for traces, or that for all signals. */
static const char *of_otlp(const char *name)
{
    char own[64], all[64];
    snprintf(own, sizeof own, "OTEL_EXPORTER_OTLP_TRACES_%s", name);
    snprintf(all, sizeof all, "OTEL_EXPORTER_OTLP_%s", name);
    const char *value = variable(own);
    return value != NULL ? value : variable(all);
}

static int32_t whole_number(const char *value, int32_t usual, int32_t least, int32_t most)
{
    char *end;
    if (value == NULL) return usual;
    const long n = strtol(value, &end, 10);
    return end != value && *end == '\0' && n >= least && n <= most ? (int32_t)n : usual;
}

static bool is_among(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at != NULL;) {
        while (*at == ' ') at++;
        if (strncasecmp(at, word, n) == 0 && strchr(", ", at[n]) != NULL) return true; /* or its end */
        at = strchr(at, ',');
        if (at != NULL) at++;
    }
    return false;
}

/* ---- Lists of NAME=VALUE, with commas between them ---- */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Copies bytes, without spaces around them, with %XX as the byte. False: too many. */
static bool copy_decoded(const char *from, const char *to, char out[VALUE_MAX])
{
    size_t n = 0;
    while (from < to && *from == ' ') from++;
    while (to > from && to[-1] == ' ') to--;
    for (; from < to; from++) {
        if (n + 1 == VALUE_MAX) return false;
        const int high = *from == '%' && to - from > 2 ? digit(from[1]) : -1;
        const int low = high >= 0 ? digit(from[2]) : -1;
        out[n++] = low >= 0 && high + low > 0 ? (char)(high * 16 + low) : *from;
        if (low >= 0 && high + low > 0) from += 2;
    }
    out[n] = '\0';
    return true;
}

/* Reads the next pair of a list; false: there is none. *fits: it has this form, and is not too long; if not,
 * name may still be its name, or "". */
static bool next_pair(const char **list, char name[VALUE_MAX], char value[VALUE_MAX], bool *fits)
{
    if (*list != NULL) *list += strspn(*list, ", ");
    if (*list == NULL || **list == '\0') return false;
    const char *at = *list, *end = at + strcspn(at, ","), *equals = memchr(at, '=', (size_t)(end - at));
    *list = *end == ',' ? end + 1 : NULL;
    *fits = equals != NULL && copy_decoded(at, equals, name) && name[0] != '\0';
    if (!*fits)
        name[0] = '\0';
    else
        *fits = copy_decoded(equals + 1, end, value);
    return true;
}

/* ---- Headers ---- */

static bool is_token(const char *name)
{
    static const char token[] =
        "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return name[0] != '\0' && name[strspn(name, token)] == '\0';
}

static bool is_header(const char *name, const char *value)
{
    return is_token(name) && strpbrk(value, "\r\n") == NULL && strcasecmp(name, "Content-Type") != 0 &&
           strcasecmp(name, "Content-Length") != 0 && strcasecmp(name, "Host") != 0 &&
           strcasecmp(name, "Transfer-Encoding") != 0;
}

static bool read_headers(serve_trace_settings *s)
{
    char name[VALUE_MAX], value[VALUE_MAX];
    size_t n = 0;
    bool fits;
    s->headers = weir__mem_calloc(SERVE_TRACE_HEADERS, sizeof *s->headers);
    if (s->headers == NULL) return false;
    if ((s->headers[n++] = weir__mem_strdup("Content-Type: application/json")) == NULL ||
        (s->headers[n++] = weir__mem_strdup("Expect:")) == NULL)
        return false;
    for (const char *list = of_otlp("HEADERS"); next_pair(&list, name, value, &fits);) {
        if (!fits || !is_header(name, value) || n + 1 == SERVE_TRACE_HEADERS)
            snprintf(s->left_out, sizeof s->left_out, "%.100s", is_token(name) ? name : "?");
        else if ((s->headers[n++] = weir__text_format("%s: %s", name, value)) == NULL)
            return false;
    }
    return true;
}

/* ---- The resource ---- */

void serve_trace_add_text(weir__text *text, const char *key, const char *value)
{
    weir__json_next(text);
    weir__text_add_string(text, "{");
    weir__json_string(text, "key", key);
    weir__text_add_string(text, ",\"value\":{");
    weir__json_string(text, "stringValue", value);
    weir__text_add_string(text, "}}");
}

static bool read_resource(serve_trace_settings *s, const serve_params *params)
{
    char name[VALUE_MAX], value[VALUE_MAX];
    const char *service = params->otlp_service_name;
    if (service == NULL) service = variable("OTEL_SERVICE_NAME");
    weir__text_add_string(&s->resource, "[");
    bool names_it = service != NULL, fits;
    int n = 0;
    for (const char *list = variable("OTEL_RESOURCE_ATTRIBUTES");
         n < ATTRIBUTES_MAX && next_pair(&list, name, value, &fits); n++) {
        if (!fits) continue;
        const bool is_service = strcmp(name, "service.name") == 0;
        if (strcmp(name, "service.version") == 0 || (is_service && names_it)) continue;
        names_it = names_it || is_service;
        serve_trace_add_text(&s->resource, name, value);
    }
    if (service != NULL || !names_it)
        serve_trace_add_text(&s->resource, "service.name", service != NULL ? service : "weir");
    serve_trace_add_text(&s->resource, "service.version", weir_version());
    return weir__text_add_string(&s->resource, "]");
}

/* ---- Which traces ---- */

static bool read_share(const char *text, double *share)
{
    char *end;
    if (text == NULL) return false;
    *share = strtod(text, &end);
    return end != text && *end == '\0' && *share >= 0 && *share <= 1;
}

static void read_sampler(serve_trace_settings *s, const serve_params *params)
{
    static const char parent[] = "parentbased_";
    const char *sampler = variable("OTEL_TRACES_SAMPLER");
    double share;
    s->share = params->otlp_sample >= 0 ? params->otlp_sample : 1;
    s->heeds = true;
    if (sampler == NULL) return;
    const bool heeds = strncmp(sampler, parent, sizeof parent - 1) == 0;
    if (heeds) sampler += sizeof parent - 1;
    const bool off = strcmp(sampler, "always_off") == 0, ratio = strcmp(sampler, "traceidratio") == 0;
    if (!off && !ratio && strcmp(sampler, "always_on") != 0) return; /* as if it were not set */
    s->heeds = heeds;
    if (params->otlp_sample >= 0) return;
    s->share = off ? 0 : ratio && read_share(variable("OTEL_TRACES_SAMPLER_ARG"), &share) ? share : 1;
}

/* ---- Where to ---- */

/* NULL: spans cannot be posted to the URL. whole: it stays as it is, else it gets the path, if it has it not
 * yet. */
static char *make_url(const char *base, bool whole)
{
    weir__transfer_url parts;
    size_t n = strlen(base);
    if (n > URL_MAX || strchr(base, '#') != NULL || (!whole && strchr(base, '?') != NULL) ||
        !weir__transfer_read_url(base, &parts))
        return NULL;
    while (!whole && n > 0 && base[n - 1] == '/') n--;
    const size_t n_path = sizeof PATH - 1;
    whole = whole || (n > n_path && memcmp(base + n - n_path, PATH, n_path) == 0);
    return weir__text_format("%.*s%s", (int)n, base, whole ? "" : PATH);
}

/* What the environment asks for, as far as it can be done. */
static void read_environment(serve_trace_settings *s)
{
    const char *whole = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    const char *base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *protocol = of_otlp("PROTOCOL"), *exporters = variable("OTEL_TRACES_EXPORTER");
    const char *off = variable("OTEL_SDK_DISABLED");
    if ((whole == NULL && base == NULL) || (off != NULL && strcasecmp(off, "true") == 0) ||
        (exporters != NULL && !is_among(exporters, "otlp")))
        return;
    if (!weir__transfer_exists)
        snprintf(s->why, sizeof s->why, "this weir was built without libcurl");
    else if (protocol != NULL && strcmp(protocol, "grpc") == 0)
        snprintf(s->why, sizeof s->why,
                 "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and weir speaks http/json: set it to that, and the "
                 "endpoint to the collector's HTTP port, such as http://localhost:4318");
    else if ((s->url = make_url(whole != NULL ? whole : base, whole != NULL)) == NULL)
        snprintf(s->why, sizeof s->why,
                 "OTEL_EXPORTER_OTLP_%sENDPOINT is not http://HOST:PORT or https://HOST:PORT",
                 whole != NULL ? "TRACES_" : "");
}

static weir_status read_endpoint(serve_trace_settings *s, const serve_params *params, weir_error *error)
{
    const char *field = "otlp_endpoint", *given = params->otlp_endpoint;
    if (given == NULL) {
        read_environment(s);
        return WEIR_OK;
    }
    if (!weir__transfer_exists)
        return weir__error_set(error, WEIR_UNSUPPORTED, field,
                               "this weir was built without libcurl and sends no spans");
    if ((s->url = make_url(given, false)) != NULL) return WEIR_OK;
    /* The message does not repeat the URL, which may have a password. */
    return weir__invalid(error, WEIR_ERROR_FORM, field,
                         "the collector's address must be http://HOST:PORT or https://HOST:PORT, with or "
                         "without a path before " PATH ", and without a user or a password");
}

static weir_status check_share(const serve_params *params, weir_error *error)
{
    const double share = params->otlp_sample;
    if (share <= 1 && (share >= 0 || share == SERVE_SAMPLE_UNSAID)) return WEIR_OK; /* no NaN */
    return weir__error_range(error, WEIR_INVALID, "otlp_sample", share, 0, 1, "`otlp_sample` is %g", share);
}

weir_status serve_trace_settings_init(serve_trace_settings *s, const serve_params *params, weir_error *error)
{
    *s = (serve_trace_settings){0};
    weir_status status = check_share(params, error);
    if (status == WEIR_OK && params->otlp_service_name != NULL &&
        (params->otlp_service_name[0] == '\0' || strlen(params->otlp_service_name) > NAME_MAX_BYTES ||
         !weir__utf8_valid(params->otlp_service_name, strlen(params->otlp_service_name))))
        status = weir__invalid(error, WEIR_ERROR_FORM, "otlp_service_name",
                               "the service's name must be UTF-8 with 1 to %d bytes", NAME_MAX_BYTES);
    if (status == WEIR_OK) status = read_endpoint(s, params, error);
    if (status != WEIR_OK || s->url == NULL) return status;
    read_sampler(s, params);
    s->timeout_ms = whole_number(of_otlp("TIMEOUT"), 10000, 1, 600000);
    s->delay_ms = whole_number(variable("OTEL_BSP_SCHEDULE_DELAY"), 5000, 1, 600000);
    s->n_queue = whole_number(variable("OTEL_BSP_MAX_QUEUE_SIZE"), 2048, 1, 1 << 20);
    s->n_batch = whole_number(variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 512, 1, 1 << 16);
    if (read_headers(s) && read_resource(s, params)) return WEIR_OK;
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the tracer");
}

void serve_trace_settings_fini(serve_trace_settings *s)
{
    for (size_t i = 0; s->headers != NULL && s->headers[i] != NULL; i++) weir__mem_free(s->headers[i]);
    weir__mem_free(s->headers);
    weir__mem_free(s->url);
    weir__text_fini(&s->resource);
    *s = (serve_trace_settings){0};
}
