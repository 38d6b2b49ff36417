/* sse.c: collects lines, and delivers an event at each empty one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "sse.h"

#include <string.h>

#include "base/utf8.h"

static cli_sse_status fail_sse(cli_sse *sse, cli_sse_status status, const char *problem)
{
    sse->problem = problem;
    return sse->status = status;
}

static cli_sse_status refuse_stream(cli_sse *sse, const char *problem)
{
    return fail_sse(sse, CLI_SSE_MALFORMED, problem);
}

static bool is_named(const char *line, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(line, name, n) == 0;
}

/* Adds a data line's value; the lines of one event are apart by newlines. */
static cli_sse_status add_data(cli_sse *sse, const char *value, size_t n)
{
    if (sse->data.n + n + 2 > CLI_SSE_MAX) return refuse_stream(sse, "an event is longer than 1 MiB");
    if ((sse->has_data && !weir__text_add(&sse->data, "\n", 1)) || !weir__text_add(&sse->data, value, n))
        return fail_sse(sse, CLI_SSE_NO_MEMORY, "out of memory");
    sse->has_data = true;
    return CLI_SSE_OK;
}

static cli_sse_status end_event(cli_sse *sse, cli_sse_fn on_event, void *user)
{
    bool dispatch = sse->has_data;
    size_t n = sse->data.n;
    sse->data.n = 0;
    sse->has_data = sse->has_field = false;
    if (dispatch && !on_event(sse->data.bytes, n, user)) return fail_sse(sse, CLI_SSE_LEFT, NULL);
    return CLI_SSE_OK;
}

static cli_sse_status end_line(cli_sse *sse, cli_sse_fn on_event, void *user)
{
    const char *line = sse->line.bytes;
    size_t n = sse->line.n;
    sse->line.n = 0;
    if (!sse->begun && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        n -= 3;
    }
    sse->begun = true;
    if (n == 0) return end_event(sse, on_event, user);
    if (memchr(line, '\0', n) != NULL) return refuse_stream(sse, "a line has a NUL byte");
    if (!weir__utf8_valid(line, n)) return refuse_stream(sse, "a line is not UTF-8");
    if (line[0] == ':') return CLI_SSE_OK;
    const char *colon = memchr(line, ':', n);
    size_t n_name = colon != NULL ? (size_t)(colon - line) : n;
    const char *value = colon != NULL ? colon + 1 : line + n;
    size_t n_value = n - (size_t)(value - line);
    if (n_value > 0 && value[0] == ' ') {
        value++;
        n_value--;
    }
    sse->has_field = true;
    if (is_named(line, n_name, "data")) return add_data(sse, value, n_value);
    if (is_named(line, n_name, "event") || is_named(line, n_name, "id")) return CLI_SSE_OK;
    if (!is_named(line, n_name, "retry"))
        return refuse_stream(sse, "a line is not a field of an event stream");
    for (size_t i = 0; i < n_value; i++)
        if (value[i] < '0' || value[i] > '9') n_value = 0;
    return n_value > 0 ? CLI_SSE_OK : refuse_stream(sse, "retry is not a number");
}

static cli_sse_status add_to_line(cli_sse *sse, const char *bytes, size_t n)
{
    if (sse->line.n + n > CLI_SSE_MAX) return refuse_stream(sse, "a line is longer than 1 MiB");
    return weir__text_add(&sse->line, bytes, n) ? CLI_SSE_OK
                                                : fail_sse(sse, CLI_SSE_NO_MEMORY, "out of memory");
}

cli_sse_status cli_sse_feed(cli_sse *sse, const char *bytes, size_t n, cli_sse_fn on_event, void *user)
{
    for (size_t at = 0; at < n && sse->status == CLI_SSE_OK;) {
        if (sse->after_cr && bytes[at] == '\n') at++;
        sse->after_cr = false;
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r') end++;
        if (add_to_line(sse, bytes + at, end - at) != CLI_SSE_OK) break;
        at = end + 1;
        if (end == n) break;
        sse->after_cr = bytes[end] == '\r';
        end_line(sse, on_event, user);
    }
    return sse->status;
}

bool cli_sse_complete(const cli_sse *sse)
{
    return sse->status == CLI_SSE_OK && sse->line.n == 0 && !sse->has_field;
}

void cli_sse_fini(cli_sse *sse)
{
    weir__text_fini(&sse->line);
    weir__text_fini(&sse->data);
    *sse = (cli_sse){0};
}
