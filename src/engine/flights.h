/* flights.h: the table in which an engine finds a flight with the same request.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FLIGHTS_H
#define WEIR_ENGINE_FLIGHTS_H

#include <pthread.h>

#include "weir/more.h"

/* Reference-counted by the engine and by each flight, because a flight may outlive its engine. */
typedef struct weir__flights {
    pthread_mutex_t mutex; /* protects the rest and the flights' refs and links */
    weir_flight *first;    /* the shared flights */
    int refs;
} weir__flights;

weir__flights *weir__flights_create(void);
void weir__flights_release(weir__flights *flights);

#endif
