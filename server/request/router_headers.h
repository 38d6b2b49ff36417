/* router_headers.h: headers of llm-d's router that say how to treat a request (docs/guides/routers.md). They
 * are read with params->router_headers only: clients that reach the server must not be able to send them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_ROUTER_HEADERS_H
#define WEIR_SERVER_REQUEST_ROUTER_HEADERS_H

#include "server/request/serve.h"

typedef enum serve_router_header {
    SERVE_ROUTER_FAIRNESS,
    SERVE_ROUTER_OBJECTIVE,
    SERVE_ROUTER_TPOT,
    SERVE_ROUTER_ENDPOINT,
    SERVE_ROUTER_HEADERS,
} serve_router_header;

extern const char *const serve_router_header_names[SERVE_ROUTER_HEADERS];

/* Keeps the values of the headers in call->router; "" = not sent. A value that cannot be is as none. */
void serve_router_headers_read(serve_call *call, const char *const values[SERVE_ROUTER_HEADERS]);

/* Applies them within the limits of the call's key. A priority of the body, if not 0, stays. Without such a
 * header and a key the tenant is the call's owner, whose name is written to `owner` and must live as long as
 * the request. */
void serve_router_headers_apply(const serve_call *call, weir_request *request, char owner[SERVE_OWNER_NAME]);

#endif
