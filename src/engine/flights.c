/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/flights.h"

#include "base/mem.h"

weir__flights *weir__flights_create(void)
{
    weir__flights *flights = weir__mem_calloc(1, sizeof *flights);
    if (flights == NULL) return NULL;
    flights->refs = 1;
    if (pthread_mutex_init(&flights->mutex, NULL) == 0) return flights;
    weir__mem_free(flights);
    return NULL;
}

void weir__flights_release(weir__flights *flights)
{
    if (flights == NULL) return;
    pthread_mutex_lock(&flights->mutex);
    bool last = --flights->refs == 0;
    pthread_mutex_unlock(&flights->mutex);
    if (!last) return;
    pthread_mutex_destroy(&flights->mutex);
    weir__mem_free(flights);
}
