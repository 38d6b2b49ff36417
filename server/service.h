/* service.h: between the files of the service thread. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SERVICE_H
#define WEIR_SERVER_SERVICE_H

#include "server/request/serve.h"

#define SERVE_SWEEP_US 250000 /* how often the deadlines of calls are checked */

/* Takes the ready list and the requests to the service thread (drain, stop, ping, reload). */
void serve_server_wake(serve_server *server);

/* reload.c: applies the parameters that serve_server_reload passed. */
void serve_reload_take(serve_server *server);

/* sweep.c: called by the timer. */
void serve_server_sweep(serve_timer *timer);

/* Called after each turn of the service thread. Wakes those who wait for the end of a drain once no call is
 * left, or a little after its deadline. */
void serve_server_end_drain(serve_server *server);

#endif
