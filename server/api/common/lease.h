/* lease.h: the model that a request is about, and its lease. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_LEASE_H
#define WEIR_SERVER_API_COMMON_LEASE_H

#include "server/request/serve.h"

/* Gives the call its model where there is but one. Service thread. */
void serve_lease_begin(serve_call *call);

/* Runs the handler of a call's route, with its model. A worker's job; the call may come back without an
 * answer, and wait. */
void serve_lease_work(serve_call *call);

/* Runs a handler that does not wait: the model is locked in memory meanwhile, if it is there. Service
 * thread. */
void serve_lease_glance(serve_call *call);

/* True if the call, which a worker gave back, waits for its model; it is posted then. Service thread. */
bool serve_lease_await(serve_call *call);

/* Takes the time that the call has waited for its model off its deadline_ms, which is 0 for none. */
void serve_lease_shorten(const serve_call *call, int64_t *ms);

/* Ends the lease: nothing more is generated for the call. */
void serve_lease_end(serve_call *call);

/* Refusals: there is no such model; the model is not available now, because of the error. Return false. */
bool serve_lease_refuse_name(serve_call *call, const char *name);
bool serve_lease_refuse(serve_call *call, const char *name, weir_status status, const weir_error *error);

#endif
