/* router.h: all that the rest of the server knows of the parts for routers and for other servers: events of
 * the prefix caches, a router's headers, cached prefixes that servers fetch from each other (ADR 0130). In a
 * build without them (WEIR_ROUTER=OFF) absent.c has these functions: it refuses the parameters, so that what
 * depends on them is never reached.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_ROUTER_H
#define WEIR_SERVER_ROUTERS_ROUTER_H

#include "kv_events.h"
#include "server/request/serve.h"

/* INVALID, or UNSUPPORTED in a build without these parts; the field is the parameter. */
weir_status serve_router_check(const serve_params *params, weir_error *error);

/* Publishes the events of all models' caches from now on. Before the first lease; the address is known. */
weir_status serve_router_open(serve_server *server, weir_error *error);
void serve_router_close(serve_server *server);

/* ---- A router's headers ---- */

/* The value of a header of the connection's request, the first of *n. */
typedef const char *serve_header_fn(const serve_connection *connection, const char *name, int *n);

/* Keeps the values of the headers in call->router (docs/guides/routers.md). A value that cannot be is as
 * none. With params->router_headers only: clients that reach the server must not be able to send them. */
void serve_router_read(serve_call *call, serve_header_fn *header);

/* ---- Cached prefixes (ADR 0089) ----
 *
 * Calls that give or may fetch one have threads of their own (server->carriers): they wait for the engine's
 * driver or for another server. */

/* The call's header says that the server at `url` has the prefix of its prompt: sets call->fetch if that one
 * may be asked. Service thread. */
void serve_prefix_hint(serve_call *call, const char *url);

/* Checks the key of another server, which may be NULL. False: the call has its answer. */
bool serve_prefix_admits(serve_call *call, const char *key);

/* The threads for the call's job. The body must be there. Service thread. */
serve_workers *serve_prefix_workers(serve_call *call);

/* POST /v1/prefixes and GET /v1/prefixes/ID: gives a cached prefix to another server. */
void serve_prefix_give(serve_call *call);

/* "fetched", "absent", … */
const char *serve_prefix_end_name(serve_prefix_end how);

#endif
