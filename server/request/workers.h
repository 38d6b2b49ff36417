/* workers.h: which thread works on a call next: workers read, render and write where this would
 * occupy the service thread too long; the ready list has the calls that others hand to that thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_WORKERS_H
#define WEIR_SERVER_REQUEST_WORKERS_H

#include "serve.h"

/* Puts a call on the ready list and wakes the service thread. Any thread. */
void serve_ready_post(serve_call *call);

/* Removes a call from the ready list; no other thread may be about to post it. Service thread. */
void serve_ready_unlist(serve_call *call);

/* Takes the first call from the ready list; NULL: it is empty. Service thread. */
serve_call *serve_ready_take(serve_server *server);

/* The call has output for the client. Service thread. */
void serve_call_send(serve_call *call);

/* n threads for jobs, and one for slow ones. done: gets each call back, on its worker. The library's
 * interrupt ends a running job when its client has left, when the workers are destroyed, or after most_s
 * seconds unless it is slow. */
serve_workers *serve_workers_create(int32_t n, int32_t most_s, void (*done)(serve_call *call));

/* Interrupts the running jobs and waits for them; the queued ones are given back. False: one did not end in
 * time (negative: no limit), and nothing that the workers use may be freed. */
bool serve_workers_destroy(serve_workers *workers, int timeout_ms);
/* True if the job of this thread may go on, for jobs that wait. */
bool serve_workers_go_on(void *unused);

/* True if the job may not go on because the workers are destroyed. */
bool serve_workers_are_stopping(void);

/* Owners take turns: a job waits for one of each other owner at most, and for its own owner's. */
void serve_workers_give(serve_workers *workers, serve_call *call, void (*job)(serve_call *call));

/* The number of jobs that still run late_s after the end of their time; *n_new: those that were not counted
 * before. */
int32_t serve_workers_stuck(serve_workers *workers, int64_t now_ns, int32_t late_s, int32_t *n_new);

/* Counts workers, busy workers, and calls that wait for one. */
void serve_workers_count(serve_workers *workers, int32_t *n, int32_t *n_busy, int32_t *n_queued);

/* True if the call's owner may have one more call among `most` that wait for these workers. */
bool serve_workers_have_room(serve_workers *workers, const serve_call *call, size_t most);

#endif
