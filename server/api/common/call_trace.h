/* call_trace.h: a call and its answer as spans. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_CALL_TRACE_H
#define WEIR_SERVER_API_COMMON_CALL_TRACE_H

#include "server/request/serve.h"

/* Writes the spans of a call that has a trace, at its end, and frees the trace. Service thread. */
void serve_call_trace(serve_call *call);

#endif
