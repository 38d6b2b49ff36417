/* events.h: the stream of ticks, GET /events. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_OPERATE_EVENTS_H
#define WEIR_SERVER_OPERATE_EVENTS_H

#include "server/request/serve.h"

void serve_events_destroy(serve_server *server);
void serve_events_end(serve_server *server);

/* Ends the streams of callers whose key was removed. */
void serve_events_revoke(serve_server *server);

#endif
