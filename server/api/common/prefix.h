/* prefix.h: cached prefixes, which this server fetches from others and gives to them (ADR 0089).
 *
 * Calls that give or may fetch one have threads of their own (server->carriers): they wait for the engine's
 * driver or for another server.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_PREFIX_H
#define WEIR_SERVER_API_COMMON_PREFIX_H

#include "server/request/serve.h"

/* The call's header says that the server at `url` has the prefix of its prompt. Service thread. */
void serve_prefix_hint(serve_call *call, const char *url);

/* True if this is the key of --prefix-key. */
bool serve_prefix_is_key(const serve_server *server, const char *key);

/* The threads for the call's job. The body must be there. Service thread. */
serve_workers *serve_prefix_workers(serve_call *call);

/* Fetches the prefix of the request's prompt from the server that the call's header named, if that is worth
 * it, and waits for it. Whether it comes or not, the request can be submitted then. False: the client has
 * left, or the server stops; the call has its answer. Worker. */
bool serve_prefix_fetch(serve_call *call, const weir_request *request);

/* "fetched", "absent", … */
const char *serve_prefix_end_name(serve_prefix_end how);

#endif
