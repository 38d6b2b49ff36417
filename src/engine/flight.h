/* flight.h: the table in which an engine finds a flight with the same request.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FLIGHT_H
#define WEIR_ENGINE_FLIGHT_H

#include <pthread.h>

#include "weir/weir.h"

/* Counted: the engine's and each flight's, so that a flight may outlive its engine. */
typedef struct weir__flights {
    pthread_mutex_t mutex; /* protects the rest, and the flights' refs and links */
    weir_flight *first;    /* those that may be joined */
    int refs;
} weir__flights;

weir__flights *weir__flights_create(void);
void weir__flights_release(weir__flights *flights);

/* For tests: what two requests have in common if they may share a generation, freed with weir__mem_free.
 * NULL: it may not be shared, or (*n is 1) there is no memory. */
char *weir__flight_key(const weir_request *request, size_t *n);

#endif
