/* pull.h: downloads of models that clients ask for, each on a thread of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_PULL_H
#define WEIR_SERVER_MODELS_PULL_H

#include "server/request/serve.h"

#define SERVE_PULLS_MAX 4 /* at a time */

/* Prepares a download for a call whose answer it will be: as lines in Ollama's format, or as a whole. False:
 * out of memory, and the call has its answer. Worker. */
bool serve_pull_prepare(serve_call *call, const char *name, bool stream);

/* Functions of the service thread. start: a worker has prepared it. pump: there may be progress to send.
 * leave: the call ends, and so does its download. */
void serve_pull_start(serve_call *call);
void serve_pull_pump(serve_call *call);
void serve_pull_leave(serve_call *call);

/* Ends the call's answer with an error, because the server stops. */
void serve_pull_stop(serve_call *call);

/* Waits for the threads, whose calls have ended. False: one did not end in time. */
bool serve_pulls_wait(serve_server *server, int timeout_ms);

#endif
