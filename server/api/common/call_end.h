/* call_end.h: the end of a call and of its parts. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_CALL_END_H
#define WEIR_SERVER_API_COMMON_CALL_END_H

#include "server/request/serve.h"

/* Service thread; not while WORKING. Cancels its generation and writes the log. */
void serve_call_destroy(serve_call *call);

/* The client has left: destroys the call now, or when the worker is done with it. */
void serve_call_leave(serve_call *call);

#endif
