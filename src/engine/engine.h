/* engine.h: an engine: parameters, the part that callers share, and the driver's part.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/driver.h"
#include "engine/shared.h"
#include "engine/waker.h"
#include "weir/weir.h"

/* The table in which an engine finds a flight with the same request. Reference-counted by the engine and
 * by each flight, because a flight may outlive its engine. */
typedef struct weir__flights {
    pthread_mutex_t mutex; /* protects the rest and the flights' refs and links */
    weir_flight *first;    /* the shared flights */
    int refs;
} weir__flights;

void weir__flights_release(weir__flights *flights);

/* Access:
 *   - Any thread: `shared`, by the functions of shared.h, and members with a lock of their own.
 *   - The driver alone: `driver`.
 *   - `next` is the list's.
 *   - The rest up to `shared` is constant after create. */
struct weir_engine {
    weir_engine *next; /* in the list of the process's engines */
    weir_model *model;
    weir_engine_params params; /* complete */
    weir__waker *waker;
    weir__flights *flights; /* has its own lock */

    weir__shared shared; /* has its own lock */

    atomic_bool driven;
    weir__driving driving; /* of the thread that has set driven */
    weir__driver driver;

    pthread_mutex_t stop_mutex; /* held while stop joins the thread; taken before mutex */
    pthread_t thread;
    bool has_thread; /* under stop_mutex */
};

/* weir_engine_estimate of a model whose header was read (weir__model_outline). *memory is zeroes. */
weir_status weir__engine_estimate(weir_model *outline, const weir_engine_params *given,
                                  weir_engine_memory *memory, weir_error *error);

/* weir_engine_submit, or with `choices` weir_engine_submit_n: one request for all n. For weir_generate:
 * results [n] are filled and counted off on the ticket. */
weir_status weir__engine_submit(weir_engine *engine, const weir_request *requests, size_t n, bool choices,
                                weir_stream *const *streams, weir_result *results, weir__ticket *ticket,
                                weir_error *error);

/* INVALID, with this field, if it never takes n requests at once. */
weir_status weir__engine_check_count(const weir_engine *engine, uint64_t tenant, const char *field, size_t n,
                                     weir_error *error);

/* Checks, in every call, before it reads the engine, that the engine exists. STATE: it was destroyed. */
weir_status weir__engine_check_exists(const weir_engine *engine, weir_error *error);

/* Checks that a call may wait for the engine. STATE: on this thread it would wait forever, because the thread
 * runs one of the engine's callbacks, or because this is a child of fork(); or the engine was destroyed. */
weir_status weir__engine_check_caller(const weir_engine *engine, weir_error *error);

/* ---- Flights ---- */

/* The key of a request, for tests: bytes that are equal for requests that may share a generation; free with
 * weir__mem_free. NULL: the request must not be shared or, if *n is 1, out of memory. */
char *weir__flight_key(const weir_request *request, size_t *n);

#endif
