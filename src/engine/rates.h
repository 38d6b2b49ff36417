/* rates.h: the recent cost of requests and ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RATES_H
#define WEIR_ENGINE_RATES_H

#include "weir/more.h"

typedef struct weir__rates {
    double service_ns; /* from first slot to end of a request, as a running average; 0 = none yet */
    weir_cost cost;
} weir__rates;

void weir__rates_finished(weir__rates *rates, int64_t service_ns);

/* The time until `places` requests have left the queue: 1 ms to an hour; a second each if nothing was
 * measured. */
int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places);

#endif
