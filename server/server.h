/* server.h: HTTP in front of an engine, as `weir serve` starts it. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SERVER_H
#define WEIR_SERVER_SERVER_H

#include <weir/weir.h>

#include "server/settings/params.h"

typedef struct serve_server serve_server;

/* Opens the sockets, also those that systemd hands over, and starts the service thread: it answers from now
 * on, a server of one model with 503 until ready. Errors: INVALID (field), IO (an address that cannot be
 * had, a certificate), NO_MEMORY. */
weir_status serve_server_create(const serve_params *params, serve_server **out, weir_error *error);

/* Sets the name of the model's file; before adapters and ready. */
void serve_server_name(serve_server *server, const char *file_name);

/* Adds, before ready, an adapter of its model that requests may name. scale: of those that do not say which
 * they want; 0 = not theirs. Holds it. INVALID, BUSY, NO_MEMORY. */
weir_status serve_server_add_adapter(serve_server *server, const char *name, weir_adapter *adapter,
                                     float scale, weir_error *error);

/* The one model is there; engine: NULL where it generates no text. Both must live until destroy. Once. */
void serve_server_ready(serve_server *server, weir_model *model, weir_engine *engine);

/* Applies the keys and their limits, origins, hosts, timeouts, body_bytes, log, models and the pool's memory
 * of these parameters, and reads the certificate's files again; the other parameters have no effect. Strings
 * and arrays must live until the next reload, or as long as the server. Waits for the service thread; not
 * after destroy. Errors: INVALID (also no keys where there were some, or several models where there was one),
 * IO (tls_cert), NO_MEMORY; nothing has changed. */
weir_status serve_server_reload(serve_server *server, const serve_params *params, weir_error *error);

/* True if the service thread answers within timeout_ms, and says that the engine works. Any thread. */
bool serve_server_is_healthy(serve_server *server, int timeout_ms);

/* The address where it listens: "http://127.0.0.1:8080"; valid as long as the server. */
const char *serve_server_address(const serve_server *server);

/* Running requests may end; new ones get 503, apart from those about running ones. Sockets from systemd are
 * closed at once: their clients wait for the next server. Returns at once. Idempotent, any thread. */
void serve_server_drain(serve_server *server);

/* Waits until all requests have ended after a drain; requests that still run after drain_s get an error
 * that the server stops, and a moment to read it. At most timeout_ms. False: not yet. */
bool serve_server_wait(serve_server *server, int timeout_ms);

/* Ends requests that still run, and the service thread. NULL is ignored. */
void serve_server_destroy(serve_server *server);

#endif
