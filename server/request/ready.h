/* ready.h: the service thread's next work: calls that others hand to it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_READY_H
#define WEIR_SERVER_REQUEST_READY_H

#include "serve.h"

/* Puts a call on the ready list and wakes the service thread. Any thread. */
void serve_ready_post(serve_call *call);

/* Removes a call from the ready list; no other thread may be about to post it. Service thread. */
void serve_ready_unlist(serve_call *call);

/* Takes the first call from the ready list; NULL: it is empty. Service thread. */
serve_call *serve_ready_take(serve_server *server);

/* The call has output for the client. Service thread. */
void serve_call_send(serve_call *call);

#endif
