/* context.c: the headers traceparent and tracestate. SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#define VERSION 2  /* digits, as those of the flags */
#define MEMBERS 32 /* of a tracestate */

/* Lower case, as the standard wants it. */
static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

static bool is_zero(const char *text, size_t n)
{
    return strspn(text, "0") >= n;
}

/* Takes n digits and what follows them: a "-", or the end. */
static bool take_digits(const char **at, size_t n, char after, char *out)
{
    if (!is_hex(*at, n) || (*at)[n] != after) return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + 1;
    return true;
}

bool serve_trace_context_read(const char *header, serve_trace_context *context)
{
    char version[VERSION + 1], flags[VERSION + 1];
    const char *at = header;
    if (header == NULL || !take_digits(&at, VERSION, '-', version) || strcmp(version, "ff") == 0 ||
        !take_digits(&at, SERVE_TRACE_ID, '-', context->trace) ||
        !take_digits(&at, SERVE_SPAN_ID, '-', context->parent) || !is_hex(at, VERSION))
        return false;
    /* Later versions may have more behind the flags. */
    if (at[VERSION] != '\0' && (strcmp(version, "00") == 0 || at[VERSION] != '-')) return false;
    memcpy(flags, at, VERSION);
    flags[VERSION] = '\0';
    context->sampled = (strtoul(flags, NULL, 16) & 1) != 0;
    return !is_zero(context->trace, SERVE_TRACE_ID) && !is_zero(context->parent, SERVE_SPAN_ID);
}

bool serve_trace_state_fits(const char *state)
{
    size_t n = strlen(state), n_members = 1;
    if (n == 0 || n > SERVE_TRACE_STATE || strchr(state, '=') == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)state[i] < 0x20 || (unsigned char)state[i] > 0x7E) return false;
        n_members += state[i] == ',';
    }
    return n_members <= MEMBERS;
}

bool serve_trace_is_chosen(const char *trace, double share)
{
    const double all = 72057594037927936.0; /* 2^56: the random part of an id is its last 7 bytes */
    return (double)strtoull(trace + SERVE_TRACE_ID - 14, NULL, 16) < share * all;
}
