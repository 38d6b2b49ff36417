/* workers.h: threads that read, render and write where this would occupy the service thread too long.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_WORKERS_H
#define WEIR_SERVER_REQUEST_WORKERS_H

#include "serve.h"

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
