/* flight.h: the table in which an engine finds a flight with the same request.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FLIGHT_H
#define WEIR_ENGINE_FLIGHT_H

#include <pthread.h>

#include "weir/weir.h"

/* Reference-counted by the engine and by each flight, because a flight may outlive its engine. */
typedef struct weir__flights {
    pthread_mutex_t mutex; /* protects the rest and the flights' refs and links */
    weir_flight *first;    /* the shared flights */
    int refs;
} weir__flights;

weir__flights *weir__flights_create(void);
void weir__flights_release(weir__flights *flights);

/* For tests: bytes that are equal for requests that may share a generation; free with weir__mem_free. NULL:
 * the request must not be shared or, if *n is 1, out of memory. */
char *weir__flight_key(const weir_request *request, size_t *n);

#endif
