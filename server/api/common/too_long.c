/* SPDX-License-Identifier: Apache-2.0 */
#include "too_long.h"

#include <stdarg.h>
#include <stdio.h>

#include "server/models/loaded.h"
#include "server/request/call.h"

/* Clients tell a prompt that is too long from other errors by the words that the API's first server used.
 * Other dialects begin it by themselves. */
static void begin_too_long(const serve_call *call, char *begin, size_t capacity)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (call->loaded != NULL && call->route->engine &&
        weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK)
        snprintf(begin, capacity, "This model's maximum context length is %d tokens. However, ", stats.n_ctx);
    else
        snprintf(begin, capacity, "the request exceeds the available context size: ");
}

bool serve_call_too_long(serve_call *call, const char *field, const char *format, ...)
{
    char begin[96] = "", message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    if (call->error == NULL) begin_too_long(call, begin, sizeof begin);
    return serve_call_refuse(call, 400, field, "context_length_exceeded", "%s%s", begin, message);
}
