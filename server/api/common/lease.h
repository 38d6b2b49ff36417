/* lease.h: the model that a request is about, its lease, and its adapters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_LEASE_H
#define WEIR_SERVER_API_COMMON_LEASE_H

#include "server/models/adapters.h"
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

/* ---- Adapters ---- */

/* Reads a list of ids and scales, a request's `field` or NULL for its body, into an empty set. False: the
 * call has its answer. */
bool serve_lora_read(serve_call *call, const char *field, const json_t *value, serve_adapter_set *set);

/* Fills an empty set with the adapters of a request's "lora", else with the adapter that its "model"
 * names, else with the server's default; either may be NULL. False: the call has its answer. */
bool serve_lora_choose(serve_call *call, const char *adapter, const json_t *list, serve_adapter_set *set);

#endif
