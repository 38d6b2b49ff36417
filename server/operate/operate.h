/* operate.h: the paths for operators and probes (http/paths.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_OPERATE_OPERATE_H
#define WEIR_SERVER_OPERATE_OPERATE_H

#include "server/request/serve.h"

serve_handler serve_health, serve_metrics, serve_slots, serve_events_begin;

/* The streams of ticks, GET /events: ends them all; frees what they need, once no call is left; ends those of
 * callers whose key was removed. */
void serve_events_end(serve_server *server);
void serve_events_destroy(serve_server *server);
void serve_events_revoke(serve_server *server);

#endif
