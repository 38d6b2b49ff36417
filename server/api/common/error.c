/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hint.h"
#include "names.h"
#include "server/models/loaded.h"
#include "server/request/call.h"
#include "server/request/retry.h"
#include "server/system/log.h"
#include "too_long.h"

#define HEADER_MAX 2048 /* of a header's value */
#define MORE       "; and more"

/* Adds an item to a header's value, which holds ASCII. False: it has no room, and that is its end. */
static bool add_item(weir__text *header, const char *item)
{
    if (header->n + 3 * strlen(item) + sizeof MORE >= HEADER_MAX) return false;
    if (header->n > 0) weir__text_add_string(header, "; ");
    for (const char *c = item; *c != '\0'; c++)
        weir__text_printf(header, (unsigned char)*c < 0x80 ? "%c" : "%%%02X", (unsigned char)*c);
    return true;
}

void serve_call_relaxed(serve_call *call, const char *lines)
{
    char line[1024], place[1024];
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, lines);
        serve_names_field(line, &call->terms, place, sizeof place);
        if (!serve_hint_name(call, place)) return;
        lines += n + (lines[n] == '\n');
    }
}

/* A line of weir_chat_reshaped, in the request's terms. */
typedef struct reshaped {
    char message[96], shape[32], in[96]; /* in: "" = none */
} reshaped;

/* False: the list was cut here. */
static bool read_reshaped(const serve_call *call, const char **lines, reshaped *line)
{
    char message[32], in[32] = "";
    int n = sscanf(*lines, "%31[^:]: %31s in %31s", message, line->shape, in);
    *lines += strcspn(*lines, "\n");
    *lines += **lines == '\n';
    line->in[0] = '\0';
    if (n < 2) return false;
    serve_names_field(message, &call->terms, line->message, sizeof line->message);
    if (n > 2) serve_names_field(in, &call->terms, line->in, sizeof line->in);
    return true;
}

void serve_call_reshaped(serve_call *call, const char *dropped, const char *lines)
{
    weir__text header = {0};
    reshaped line;
    char item[256];
    bool all = true;
    for (size_t n; all && dropped != NULL && (n = strcspn(dropped, "\n")) > 0; dropped += n + 1) {
        snprintf(item, sizeof item, "%.*s: dropped_lines", (int)n, dropped);
        all = add_item(&header, item);
    }
    while (all && lines != NULL && *lines != '\0' && (all = read_reshaped(call, &lines, &line))) {
        snprintf(item, sizeof item, "%s: %s%s%s", line.message, line.shape, line.in[0] != '\0' ? " in " : "",
                 line.in);
        all = add_item(&header, item);
    }
    if (!all) weir__text_add_string(&header, MORE);
    if (header.n > 0)
        serve_log("debug", "messages", "request %s: changed for the prompt: %s", call->id, header.bytes);
    weir__mem_free(call->reshaped);
    call->reshaped = header.bytes;
}

void serve_call_add_reshaped(const serve_call *call, const char *lines, weir__text *text)
{
    reshaped line;
    bool all = true;
    if (lines == NULL || *lines == '\0') return;
    weir__json_key(text, "reshaped");
    weir__text_add_string(text, "[");
    while (*lines != '\0' && (all = read_reshaped(call, &lines, &line))) {
        weir__json_next(text);
        weir__text_add_string(text, "{");
        weir__json_string(text, "message", line.message);
        weir__json_string(text, "shape", line.shape);
        if (line.in[0] != '\0') weir__json_string(text, "in", line.in);
        weir__text_add_string(text, "}");
    }
    weir__text_add_string(text, "]");
    if (!all) weir__text_add_string(text, ",\"reshaped_more\":true");
}

static bool refuse_call(serve_call *call, const weir_error *error)
{
    char field[96], message[sizeof error->message];
    serve_names_field(error->field, &call->terms, field, sizeof field);
    serve_names_message(error, &call->terms, message, sizeof message);
    switch (error->code) {
    case WEIR_INVALID:
    case WEIR_REFUSED:
    case WEIR_GRAMMAR:
    case WEIR_TEMPLATE:
    case WEIR_FORMAT: return serve_call_refuse(call, 400, field, "invalid_value", "%s", message);
    case WEIR_UNSUPPORTED: return serve_call_refuse(call, 400, field, "unsupported_value", "%s", message);
    case WEIR_TOO_LONG: return serve_call_too_long(call, field, "%s", message);
    case WEIR_BUSY: {
        weir_engine_stats stats = {.size = sizeof stats};
        int64_t wait = 0;
        if (call->loaded != NULL && weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK)
            wait = stats.retry_ns / WEIR__NS_PER_S;
        bool soon = serve_retry_after(call, wait + (wait > 0));
        return serve_call_refuse(call, 429, NULL, "queue_full", "%s%s", message,
                                 soon ? "" : "; clients wait up to 120 s, so there is no Retry-After");
    }
    case WEIR_NO_MEMORY: return serve_call_no_memory(call);
    case WEIR_ABORTED: return serve_call_interrupted(call);
    case WEIR_BACKEND:
        if (call->loaded == NULL || weir_model_check(call->loaded->model, NULL) == WEIR_OK) break;
        if (call->lease != NULL) (void)serve_retry_after(call, 1); /* the next request has it loaded again */
        return serve_call_refuse(call, 503, NULL, "model_lost", "%s", message);
    case WEIR_STOPPED: return serve_call_stopping(call);
    default: break;
    }
    return serve_call_refuse(call, 500, NULL, weir_status_name(error->code), "%s", message);
}

bool serve_call_passes(serve_call *call, weir_status status, weir_error *error)
{
    error->code = status;
    return status == WEIR_OK || refuse_call(call, error);
}
