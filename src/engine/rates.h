/* rates.h: recent costs of requests and ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RATES_H
#define WEIR_ENGINE_RATES_H

#include "weir/weir.h"

typedef struct weir__rates {
    double service_ns; /* first slot to end of a request: a running average; 0 = none yet */
    weir_cost cost;
} weir__rates;

void weir__rates_finished(weir__rates *rates, int64_t service_ns);

/* How long until `places` requests have left the queue for slots: 1 ms to an hour; a second for each where
 * nothing was measured. */
int64_t weir__rates_retry_ns(const weir__rates *rates, int32_t n_slots, int64_t places);

#endif
