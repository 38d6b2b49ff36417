/* settings.h: where spans go, and which: the parameters, and the variables of the environment that programs
 * with OpenTelemetry have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TRACE_SETTINGS_H
#define WEIR_SERVER_TRACE_SETTINGS_H

#include <weir/weir.h>

#include "base/text.h"
#include "server/settings/params.h"

#define SERVE_TRACE_HEADERS 32 /* lines, with the server's own and the end */

/* Begins as zeroes. */
typedef struct serve_trace_settings {
    char *url;           /* to which spans are posted; NULL: nothing is traced */
    char why[256];       /* why nothing is traced though the environment names a collector; "" = no reason */
    char left_out[128];  /* the name of one of its headers that is not sent, or "?"; "" = none */
    char **headers;      /* [SERVE_TRACE_HEADERS] lines, NULL-terminated */
    weir__text resource; /* its attributes, as members of a JSON array */
    double share;        /* of the traces that begin here, or of all without heeds */
    bool heeds;          /* a trace of a caller is sampled as its flag says */
    int32_t timeout_ms, delay_ms; /* of a post; how long spans wait for others */
    int32_t n_queue, n_batch;     /* the most spans that wait, and of one post */
} serve_trace_settings;

/* Errors: INVALID, UNSUPPORTED (no libcurl); the field is the parameter. NO_MEMORY. Freed with fini
 * always. */
weir_status serve_trace_settings_init(serve_trace_settings *settings, const serve_params *params,
                                      weir_error *error);
void serve_trace_settings_fini(serve_trace_settings *settings);

/* Adds an attribute to a JSON array of attributes, as OTLP has them. */
void serve_trace_add_text(weir__text *text, const char *key, const char *value);

#endif
